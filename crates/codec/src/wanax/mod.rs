//! Named chunks: what a receiving end has on disk is referred to by name [Wanax §3].
//!
//! Design: `docs/design/wanax.md`.

pub mod path;
pub mod shed;
