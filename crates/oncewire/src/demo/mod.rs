//! demo
mod path;
