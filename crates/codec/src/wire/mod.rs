//! The wire format: varints, frames and hellos; `docs/spec/wire-format.md` is its specification.

pub mod varint;
