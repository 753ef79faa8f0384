//! Tokens and their comparison. A prefix is identified only by its tokens.

pub mod media;
mod slices;
mod token;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

pub use slices::{NotAToken, append_i64, from_i32};
pub use token::Token;

/// Length of the longest common prefix of `a` and `b`, in tokens.
///
/// Reads at most 64 tokens past the first difference. Lock-free, allocates nothing.
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

/// As [`common_prefix`], comparing piece by piece: `==` on slices is the platform's `memcmp`.
#[cfg_attr(all(target_arch = "x86_64", not(miri)), cold)]
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
mod tests;
