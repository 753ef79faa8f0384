//! Converts the integers that engines use, signed 32-bit and 64-bit, to tokens.
#![allow(unsafe_code)]

use std::fmt;

use super::Token;

/// Reinterprets the numbers as tokens, without a copy. Negative numbers become tokens of 2^31 or
/// more, which no vocabulary has.
///
/// # Examples
///
/// ```
/// let prompt: Vec<i32> = vec![1, 2, -1];
/// assert_eq!(radixkv::key::from_i32(&prompt), [1, 2, u32::MAX]);
/// ```
pub const fn from_i32(numbers: &[i32]) -> &[Token] {
    // SAFETY: `i32` and `u32` have the same layout, and every bit pattern is valid in both; the
    // borrow is the same.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// The error for a number that is not a token. Nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotAToken {
    /// Index of the number.
    pub at: usize,
    /// The number; a token is from 0 to 2^32 - 1.
    pub number: i64,
}

impl fmt::Display for NotAToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {} of the sequence is {}, but a token is from 0 to {}", self.at, self.number, Token::MAX)
    }
}

impl std::error::Error for NotAToken {}

/// Appends the numbers to `tokens`, converted to 32 bits.
///
/// # Errors
///
/// [`NotAToken`] for the first number that does not fit; nothing was appended.
///
/// # Examples
///
/// ```
/// use radixkv::key::append_i64;
///
/// let mut tokens = Vec::new();
/// append_i64(&[151_643, 7], &mut tokens)?;
/// let refused = append_i64(&[3, -1], &mut tokens).unwrap_err();
/// assert_eq!((tokens, refused.at, refused.number), (vec![151_643, 7], 1, -1));
/// # Ok::<_, radixkv::key::NotAToken>(())
/// ```
pub fn append_i64(numbers: &[i64], tokens: &mut Vec<Token>) -> Result<(), NotAToken> {
    if let Some((at, &number)) = numbers.iter().enumerate().find(|(_, number)| Token::try_from(**number).is_err()) {
        return Err(NotAToken { at, number });
    }
    tokens.extend(numbers.iter().map(|number| *number as Token));
    Ok(())
}
