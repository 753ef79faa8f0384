//! Handles texts of special tokens inside messages ("marks"): they count as plain text, never as
//! the template's special tokens.
//!
//! Before the template is rendered, the first character of each mark is replaced by a private
//! character (a stand-in). The template's output is then split at its own special tokens, the
//! characters are put back, and each part is encoded without special tokens. This is wrong if a
//! part's tokens depend on the text before it. The caller checks for that case, and then refuses
//! the message.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use radixkv::Token;

use super::hostile::caught;

/// The first stand-in: a character of a Unicode private-use area.
const STAND_INS: u32 = 0xf_0000;

/// The special tokens of a tokenizer.
#[derive(Debug)]
pub(super) struct Marks {
    special: Vec<(Token, String)>,
    /// Finds the first special token in a text; if two begin at the same position, the longer one,
    /// as the tokenizer does.
    finder: AhoCorasick,
    /// First characters of special tokens; the character at index `i` is replaced by stand-in `i`.
    firsts: Vec<char>,
    /// The tokenizer without special tokens, made at first use.
    plain: OnceLock<tokenizers::Tokenizer>,
}

impl Marks {
    /// Creates the finder for special tokens and their texts.
    ///
    /// # Errors
    ///
    /// If there are too many of them to search for.
    pub(super) fn new(special: Vec<(Token, String)>) -> Result<Self, String> {
        let texts = special.iter().map(|(_, mark)| mark);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        let mut firsts: Vec<char> = special.iter().filter_map(|(_, mark)| mark.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        Ok(Self { finder: finder.map_err(|error| error.to_string())?, special, firsts, plain: OnceLock::new() })
    }

    /// The first mark in a text.
    pub(super) fn within(&self, text: &str) -> Option<&str> {
        self.finder.find(text).map(|found| self.special[found.pattern()].1.as_str())
    }

    /// The text of a special token that is among these tokens.
    pub(super) fn among(&self, tokens: &[Token]) -> Option<&str> {
        self.special.iter().find(|(token, _)| tokens.contains(token)).map(|(_, mark)| mark.as_str())
    }

    /// Whether a text contains a stand-in.
    pub(super) fn has_stand_in(&self, text: &str) -> bool {
        text.chars().any(|letter| self.stands_for(letter).is_some())
    }

    fn stands_for(&self, letter: char) -> Option<char> {
        self.firsts.get((letter as u32).checked_sub(STAND_INS)? as usize).copied()
    }

    /// Replaces the first characters of all marks by stand-ins, so that no special token is found
    /// in the result.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // More than one pass is needed only if marks overlap.
        while self.finder.is_match(&text) {
            let mut hidden = String::with_capacity(text.len() + 16);
            self.finder.replace_all_with(&text, &mut hidden, |_, mark, hidden| {
                let first = mark.chars().next().expect("a mark has a letter");
                let index = self.firsts.binary_search(&first).expect("it is the first letter of a mark");
                hidden.push(char::from_u32(STAND_INS + index as u32).expect("a private letter"));
                hidden.push_str(&mark[first.len_utf8()..]);
                true
            });
            text = hidden;
        }
        text
    }

    fn reveal(&self, text: &str) -> String {
        text.chars().map(|letter| self.stands_for(letter).unwrap_or(letter)).collect()
    }

    /// Encodes a text that is split at its special tokens. With `reveal`, first replaces stand-ins
    /// by their original characters.
    pub(super) fn encode_apart(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        reveal: bool,
    ) -> Result<Vec<Token>, String> {
        let plain = self.plain.get_or_init(|| {
            let mut plain = tokenizer.clone();
            plain.set_encode_special_tokens(true);
            plain
        });
        let encode = |part: &str| {
            let part = if reveal { self.reveal(part) } else { part.to_owned() };
            caught(|| plain.encode_fast(part, false).map_err(|error| error.to_string()))
        };
        let (mut tokens, mut from) = (Vec::new(), 0);
        for mark in self.finder.find_iter(text) {
            tokens.extend_from_slice(encode(&text[from..mark.start()])?.get_ids());
            tokens.push(self.special[mark.pattern()].0);
            from = mark.end();
        }
        tokens.extend_from_slice(encode(&text[from..])?.get_ids());
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_found_no_more_and_comes_back() {
        let special = ["<a>", "<a>b", "[x]", "a>[x"].into_iter().map(str::to_owned);
        let marks = Marks::new((1..).zip(special).collect()).expect("a few marks");
        for text in ["", "no mark", "<a>", "é<a>b[x]<a><a", "<<a>>[[x]]", "<a>[x]", "a>[x"] {
            let hidden = marks.hide(text);
            assert_eq!((marks.within(&hidden), marks.reveal(&hidden).as_str()), (None, text));
            assert_eq!(hidden.chars().count(), text.chars().count());
            assert_eq!(marks.has_stand_in(&hidden), marks.within(text).is_some());
        }
        assert_eq!(marks.within("é<a>b"), Some("<a>b"));
    }
}
