//! Real programs, each through its possible modes.
//!
//! A missing program skips its tests, with a line that says so; with `CI=true` it fails them.

mod curl;
mod git;
mod postgres;
mod redis;
mod rsync;
mod ssh;

use crate::common::programs::{Service, command, find, missing, run};
