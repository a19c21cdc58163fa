//! Wanax: chunks of several sizes, known to both ends by their names and kept on disk at the receiving end
//! [Wanax §3].
//!
//! Here it is a layer of the stream codec: a block may refer to the log and to named chunks. Design:
//! `docs/design/wanax.md`.

mod name;
pub mod path;
mod shape;
pub mod shed;
mod tree;

pub use name::{NAME_LEN, Name, NameKey, TAG_LEN};
pub use shape::{Shape, ShapeError};
pub use tree::{Node, Tree};
