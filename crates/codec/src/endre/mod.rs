//! EndRE: sender-driven, fine-grained elimination [EndRE §4 to §6].

pub mod matcher;
pub mod tokens;
