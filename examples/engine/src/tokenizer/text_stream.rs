//! Decodes tokens that arrive one by one to text.
//!
//! A token may be part of a character, and its text may depend on the tokens before it. So text is
//! returned only when it ends with a complete character, and each piece is decoded together with
//! the piece before it.

use radixkv::Token;

use super::Tokenizer;

/// The character that `decode` writes for an incomplete character.
const INCOMPLETE: char = '\u{fffd}';

/// Maximum number of tokens to hold back. No character has more, so longer sequences are not valid
/// text, and are returned as decoded.
const HELD: usize = 16;

/// The text of a growing list of tokens.
#[derive(Debug, Default)]
pub struct TextStream {
    tokens: Vec<Token>,
    /// The start of the piece that was returned last.
    before: usize,
    /// The first token whose text was not returned yet.
    next: usize,
}

impl TextStream {
    /// Adds a token, and returns the text that is now complete, which may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: Token) -> String {
        self.tokens.push(token);
        let text = self.rest(tokenizer);
        let held = self.tokens.len() - self.next;
        if text.is_empty() || (text.ends_with(INCOMPLETE) && held < HELD) {
            return String::new();
        }
        // The end of an incomplete character may change with the next token, so it is no context.
        self.before = if text.ends_with(INCOMPLETE) { self.tokens.len() } else { self.next };
        self.next = self.tokens.len();
        text
    }

    /// Returns the remaining text after the last token.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let text = self.rest(tokenizer);
        (self.before, self.next) = (self.tokens.len(), self.tokens.len());
        text
    }

    fn rest(&self, tokenizer: &Tokenizer) -> String {
        let known = tokenizer.decode(&self.tokens[self.before..self.next]);
        let all = tokenizer.decode(&self.tokens[self.before..]);
        all.get(known.len()..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_letters_and_give_the_text() {
        let text = "Grüße, 世界 🦀!";
        let mut stream = TextStream::default();
        let pieces: Vec<String> = text.bytes().map(|byte| stream.push(&Tokenizer::Bytes, Token::from(byte))).collect();
        assert!(pieces.iter().all(|piece| !piece.contains(INCOMPLETE)), "{pieces:?}");
        assert_eq!(pieces.concat() + &stream.finish(&Tokenizer::Bytes), text);
    }

    #[test]
    fn letters_after_what_is_no_text_are_not_lost() {
        let tokens = [&[0xff; 15][..], "éab".as_bytes()].concat();
        let mut stream = TextStream::default();
        let pieces: Vec<String> =
            tokens.into_iter().map(|byte| stream.push(&Tokenizer::Bytes, Token::from(byte))).collect();
        let text = pieces.concat() + &stream.finish(&Tokenizer::Bytes);
        assert!(text.ends_with("ab"), "{text:?}");
    }

    #[test]
    fn half_a_letter_is_marked_at_the_end() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(&Tokenizer::Bytes, 0xc3), "");
        assert_eq!(stream.finish(&Tokenizer::Bytes), "\u{fffd}");
    }
}
