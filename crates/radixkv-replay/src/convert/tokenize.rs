//! The interface to tokenizers, and a fallback.

use radixkv::key::Token;

/// A tokenizer: converts texts to tokens.
///
/// # Examples
///
/// ```
/// use radixkv_replay::convert::{ByteTokens, Tokenize};
///
/// assert_eq!(ByteTokens.tokens("hé"), Ok(vec![0x68, 0xc3, 0xa9]));
/// ```
pub trait Tokenize {
    /// The tokens of a text; special tokens in it are recognized.
    ///
    /// # Errors
    ///
    /// Fails with the tokenizer's own message.
    fn tokens(&self, text: &str) -> Result<Vec<Token>, Box<str>>;

    /// The text of a token, if it has one.
    fn text(&self, token: Token) -> Option<String>;
}

/// A fallback tokenizer that makes one token of each byte. The sharing between prompts is right,
/// but their lengths are not.
///
/// # Examples
///
/// As for [`Tokenize`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ByteTokens;

impl Tokenize for ByteTokens {
    fn tokens(&self, text: &str) -> Result<Vec<Token>, Box<str>> {
        Ok(text.bytes().map(Token::from).collect())
    }

    fn text(&self, token: Token) -> Option<String> {
        let byte = u8::try_from(token).ok()?;
        Some(if byte.is_ascii() { char::from(byte).to_string() } else { format!("\\x{byte:02x}") })
    }
}
