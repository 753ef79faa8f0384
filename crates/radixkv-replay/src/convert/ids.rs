//! Assigns hash ids that reveal only which parts of prompts are equal.

use std::collections::HashMap;

use radixkv::key::Token;

/// The id that precedes the first piece of every prompt.
const START: u64 = u64::MAX;

/// The ids so far: one for each distinct pair of a preceding id and a piece, compared token by
/// token.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pieces: HashMap<(u64, Box<[Token]>), u64>,
    given: HashMap<u64, u64>,
}

impl Ids {
    /// The hash ids of a prompt, one for each `unit` tokens.
    pub(super) fn of_tokens(&mut self, tokens: &[Token], unit: usize) -> Vec<u64> {
        let mut before = START;
        let piece = |piece: &[Token]| {
            let next = self.pieces.len() as u64;
            before = *self.pieces.entry((before, piece.into())).or_insert(next);
            before
        };
        tokens.chunks(unit).map(piece).collect()
    }

    /// The new id for an id of the converted trace.
    pub(super) fn of_id(&mut self, id: u64) -> u64 {
        let next = self.given.len() as u64;
        *self.given.entry(id).or_insert(next)
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.given.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_have_equal_tokens_before_them() {
        let mut ids = Ids::default();
        assert_eq!(ids.of_tokens(&[1, 2, 3, 4, 5], 2), [0, 1, 2]);
        assert_eq!(ids.of_tokens(&[1, 2, 3, 4, 6], 2), [0, 1, 3]);
        assert_eq!(ids.of_tokens(&[3, 4], 2), [4], "the same tokens after others");
        assert_eq!(ids.of_tokens(&[], 2), [0; 0]);
    }
}
