//! `common_prefix` against the loop that needs no proof, at every alignment of both slices.

use arbitrary::{Result, Unstructured};
use radixkv::Token;
use radixkv::key::common_prefix;

/// Tokens that a cache line holds: alignments beyond repeat.
const ALIGNMENTS: usize = 16;
/// How often the bytes are repeated at most: a few hundred of them reach every loop of the vector
/// code.
const REPEATS: usize = 32;

/// Panics if the two disagree.
pub fn run(data: &[u8]) {
    // Too few bytes are no case.
    let _ = compare(Unstructured::new(data));
}

fn compare(mut bytes: Unstructured<'_>) -> Result<()> {
    let (at_a, at_b) = (bytes.int_in_range(0..=ALIGNMENTS - 1)?, bytes.int_in_range(0..=ALIGNMENTS - 1)?);
    let (repeats, cut) = (bytes.int_in_range(1..=REPEATS)?, bytes.arbitrary::<u16>()?);
    let (flip_at, flip) = (bytes.arbitrary::<u16>()?, bytes.int_in_range(0..=32_u32)?);
    let body: Vec<Token> = bytes.take_rest().iter().map(|&byte| Token::from(byte) * 0x0101_0101).collect();
    let tokens = body.repeat(repeats);

    let (mut a, mut b) = (shifted(&tokens, at_a), shifted(&tokens, at_b));
    b.truncate(b.len() - usize::from(cut) % (tokens.len() + 1));
    let (a, b) = (&mut a[at_a..], &mut b[at_b..]);
    if !b.is_empty() && flip < 32 {
        b[usize::from(flip_at) % b.len()] ^= 1 << flip;
    }
    let expected = a.iter().zip(&*b).take_while(|(x, y)| x == y).count();
    assert_eq!(common_prefix(a, b), expected);
    assert_eq!(common_prefix(b, a), expected);
    Ok(())
}

/// The tokens at an offset in an allocation; the bytes before them are in no slice.
fn shifted(tokens: &[Token], offset: usize) -> Vec<Token> {
    let mut all = vec![Token::MAX; offset];
    all.extend_from_slice(tokens);
    all
}
