//! Programs that people use, each through the modes that it can use.
//!
//! A program that is missing leaves its tests out, with a line that says so; with `CI=true` it fails them.

mod curl;
mod git;
mod postgres;
mod redis;
mod rsync;
mod ssh;

use crate::common::programs::{Service, command, find, missing, run};
