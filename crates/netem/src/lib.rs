//! Network emulation.
