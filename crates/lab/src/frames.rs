//! Blocks in frames, for measurements of their repeats.

use oncewire_codec::endre::tokens::{self, Copy};
use oncewire_codec::log::LogOffset;
use oncewire_codec::wire::{Block, BlockBody};

/// Returns a block's copies; `None` if it is not coded, or its tokens are compressed or unsound.
pub fn copies(block: &Block<'_>) -> Option<Vec<Copy>> {
    let BlockBody::Coded(body) = &block.body else { return None };
    if body.entropy.is_some() {
        return None;
    }
    let mut copies = Vec::new();
    let Some(tokens_len) = body.tokens else { return Some(copies) };
    let tokens = body.bytes.get(..tokens_len)?;
    tokens::decode(tokens, block.plain_len, LogOffset(body.start), body.literals, &mut copies).ok()?;
    Some(copies)
}
