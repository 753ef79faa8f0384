//! Text of tokens that come one by one.
//!
//! A token may be a part of a letter, and its text may depend on the tokens before it. So text is given out only when it
//! ends with a whole letter, and each piece is decoded together with the piece before it.

use radixkv::Token;

use super::Tokenizer;

/// What `decode` writes for bytes that are not a letter yet.
const INCOMPLETE: char = '\u{fffd}';

/// Tokens that are held back at most: no letter has more, so what comes is no text, and is given out as it is.
const HELD: usize = 16;

/// The text of a growing list of tokens.
#[derive(Debug, Default)]
pub struct TextStream {
    tokens: Vec<Token>,
    /// Where the piece begins that was given out last.
    before: usize,
    /// Where the tokens begin whose text was not given out.
    next: usize,
}

impl TextStream {
    /// Text that this token completes; it may be empty.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: Token) -> String {
        self.tokens.push(token);
        let text = self.rest(tokenizer);
        let held = self.tokens.len() - self.next;
        if text.is_empty() || (text.ends_with(INCOMPLETE) && held < HELD) {
            return String::new();
        }
        self.before = self.next;
        self.next = self.tokens.len();
        text
    }

    /// The text of what is left when no token comes any more.
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
    fn half_a_letter_is_marked_at_the_end() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push(&Tokenizer::Bytes, 0xc3), "");
        assert_eq!(stream.finish(&Tokenizer::Bytes), "\u{fffd}");
    }
}
