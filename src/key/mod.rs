//! Tokens and how many of them agree: the only identity a prefix has.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

/// A token id, as the tokenizer gave it.
///
/// An alias and not a type of its own, so that an engine's arrays of token ids are passed without conversion or copy. The
/// price: the compiler does not tell a token from a [`BlockId`](crate::BlockId) or from any other `u32`.
pub type Token = u32;

/// Tokens in which `a` and `b` agree from their start on.
///
/// Reads no further than one vector past the first difference. Lock-free, allocates nothing.
///
/// # Examples
///
/// ```
/// assert_eq!(radixkv::key::common_prefix(&[1, 2, 3, 99], &[1, 2, 3, 5]), 3);
/// ```
#[inline]
pub fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(agreed) = x86::common_prefix(a, b) {
        return agreed;
    }
    common_prefix_portable(a, b)
}

/// The same, by whole-slice comparison of pieces: `==` on slices is the platform's `memcmp`.
fn common_prefix_portable(a: &[Token], b: &[Token]) -> usize {
    const PIECE: usize = 64;
    let mut at = 0;
    for (x, y) in a.chunks(PIECE).zip(b.chunks(PIECE)) {
        if x != y {
            return at + x.iter().zip(y).take_while(|(x, y)| x == y).count();
        }
        at += x.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_first_difference() {
        for len in (0..70).chain([127, 128, 129, 255, 256, 300]) {
            let a: Vec<Token> = (0..len).collect();
            assert_eq!(common_prefix(&a, &a), a.len());
            for at in 0..a.len() {
                let mut b = a.clone();
                b[at] ^= 1 << 31;
                assert_eq!(common_prefix(&a, &b), at);
                assert_eq!(common_prefix_portable(&a, &b), at);
                assert_eq!(common_prefix(&a[..at], &b), at);
            }
        }
    }
}
