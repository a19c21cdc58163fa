use proptest::prelude::*;

use super::*;

const BASE: LogOffset = LogOffset(1000);

fn copy(at: u32, len: u32, source: u64) -> Copy {
    Copy { at, len, source: LogOffset(source) }
}

fn encoded(copies: &[Copy], block: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut tokens = Vec::new();
    encode(copies, BASE, &mut tokens);
    (tokens, literals(copies, block).collect::<Vec<_>>().concat())
}

fn decoded(tokens: &[u8], plain_len: usize, literals_len: usize) -> Result<Vec<Copy>, TokenError> {
    let mut copies = vec![copy(1, 2, 3)];
    decode(tokens, plain_len, BASE, literals_len, &mut copies).map(|()| copies)
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let block: Vec<u8> = (0..100).collect();
    let copies = [copy(3, 40, 100), copy(44, 30, 141), copy(80, 10, 137)];
    let (tokens, literals) = encoded(&copies, &block);
    assert_eq!(
        tokens,
        [
            3, 40, 0x84, 7, // 900 bytes before the base
            1, 30, 0, // after an edit of one byte, where it is expected
            6, 10, 79, // 40 bytes before where it is expected
        ]
    );
    assert_eq!(literals, [&block[0..3], &block[43..44], &block[74..80], &block[90..]].concat());
    assert_eq!(decoded(&tokens, 100, literals.len()), Ok(copies.to_vec()));
}

#[test]
fn a_block_without_copies_has_no_tokens() {
    let (tokens, literals) = encoded(&[], b"abc");
    assert_eq!((tokens.len(), &literals[..]), (0, &b"abc"[..]));
    assert_eq!(decoded(&[], 3, 3), Ok(vec![]));
    assert_eq!(decoded(&[], 0, 0), Ok(vec![]));
}

#[test]
fn each_wrong_token_has_its_error() {
    let too_long = |plain_len| Err(TokenError::TooLong { plain_len });
    assert_eq!(decoded(&[0x80, 0, 1, 1], 10, 0), Err(TokenError::Varint), "overlong number");
    assert_eq!(decoded(&[0, 5], 10, 5), Err(TokenError::Varint), "cut");
    assert_eq!(decoded(&[0, 5, 9, 0], 10, 5), Err(TokenError::Varint), "trailing byte");
    assert_eq!(decoded(&[0, 0, 9], 10, 10), Err(TokenError::EmptyCopy));
    assert_eq!(decoded(&[0, 11, 11], 10, 0), too_long(10), "copy beyond the block");
    assert_eq!(decoded(&[8, 5, 9], 10, 8), too_long(10), "literals and copy beyond the block");
    assert_eq!(decoded(&[0, 5, 9, 1, 5, 0], 10, 1), too_long(10), "second copy beyond the block");
    assert_eq!(decoded(&[1, 5, 9], 10, 4), Err(TokenError::Literals { expected: 5, found: 4 }));
    assert_eq!(decoded(&[1, 5, 9], 10, 6), Err(TokenError::Literals { expected: 5, found: 6 }));
    assert_eq!(decoded(&[0, 10, 10], 10, 0), Ok(vec![copy(0, 10, 990)]), "up to the base");
    assert_eq!(decoded(&[0, 10, 9], 10, 0), Err(TokenError::Source), "across the base");
    assert_eq!(decoded(&[0, 10, 0], 10, 0), Err(TokenError::Source), "at the base");
    assert_eq!(decoded(&[0, 1, 0xe9, 7], 1, 0), Err(TokenError::Source), "before the origin");
    assert_eq!(decoded(&[0, 5, 5, 0, 5, 0], 10, 0), Err(TokenError::Source), "second at the base");
}

#[test]
fn numbers_at_the_end_of_their_range_do_not_panic() {
    let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for token in [
        [&largest[..], &[1], &[1]].concat(),
        [&[1][..], &largest, &[1]].concat(),
        [&[1][..], &[1], &largest].concat(),
        [&[0][..], &[1], &[1], &[0], &[1], &largest].concat(),
    ] {
        assert!(decoded(&token, usize::MAX, usize::MAX).is_err());
    }
}

/// Copies as a matcher leaves them, and the block's length.
fn copies() -> impl Strategy<Value = (Vec<Copy>, usize)> {
    let parts = prop::collection::vec((0u32..200, 1u32..200, 0u64..800), 0..20);
    (parts, 0usize..100).prop_map(|(parts, tail)| {
        let mut end = 0;
        let copies: Vec<Copy> = parts
            .into_iter()
            .map(|(literals, len, source)| {
                let at = end + literals;
                end = at + len;
                copy(at, len, source)
            })
            .collect();
        (copies, end as usize + tail)
    })
}

proptest! {
    #[test]
    fn tokens_are_read_as_they_were_written((copies, plain_len) in copies()) {
        let block: Vec<u8> = (0..plain_len).map(|position| (position % 251) as u8).collect();
        let (tokens, literals) = encoded(&copies, &block);
        prop_assert_eq!(decoded(&tokens, plain_len, literals.len()), Ok(copies));
    }

    #[test]
    fn accepted_tokens_are_in_order_and_in_bounds(
        tokens in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..40),
        plain_len in 0usize..300,
        literals_len in 0usize..300,
    ) {
        let mut log = Log::new(BASE.0 as usize);
        log.write(LogOffset(0), &vec![9; BASE.0 as usize]);
        for literals_len in [literals_len, plain_len.saturating_sub(literals_len)] {
            if let Ok(copies) = decoded(&tokens, plain_len, literals_len) {
                let mut end = 0;
                for copy in &copies {
                    prop_assert!(copy.at as usize >= end && copy.len > 0);
                    prop_assert!(copy.source_end() <= BASE);
                    end = copy.end();
                }
                prop_assert!(end <= plain_len);
                let mut out = Vec::new();
                rebuild(&copies, &vec![7; literals_len], plain_len, &log, &mut out);
                prop_assert_eq!(out.len(), plain_len);
                // One spelling only.
                let (again, _) = encoded(&copies, &out);
                prop_assert_eq!(&again, &tokens);
            }
        }
    }

    #[test]
    fn rebuilt_block_is_copies_and_literals_alone(
        (copies, plain_len) in copies(),
        room in 0usize..6000,
    ) {
        // Sources lie on both sides of a segment's end in the log, and up to the end of the written part.
        let first = (128 << 10) - 500;
        let mut log = Log::new(1 << 20);
        log.write(LogOffset(first), &(0..1000u32).map(|at| ((at * 7) >> 2) as u8).collect::<Vec<_>>());
        let copies: Vec<Copy> =
            copies.iter().map(|copy| Copy { source: copy.source.plus(first), ..*copy }).collect();
        let mut block: Vec<u8> = (0..plain_len).map(|at| (at % 251) as u8).collect();
        let literals = literals(&copies, &block).collect::<Vec<_>>().concat();
        for copy in &copies {
            let mut bytes = Vec::new();
            log.copy_to(copy.source, copy.len as usize, &mut bytes);
            block[copy.at as usize..copy.end()].copy_from_slice(&bytes);
        }
        let mut out = Vec::with_capacity(room);
        rebuild(&copies, &literals, plain_len, &log, &mut out);
        prop_assert_eq!(out, block);
    }
}
