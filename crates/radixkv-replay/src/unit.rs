//! Infers from the rows how many tokens a hash id stands for: the unit.
//!
//! In a row of `n` ids the last id covers at least one token, hence
//! `(n - 1) * unit < input_length`: an upper bound of the unit. If the ids cover the whole prompt,
//! `n * unit >= input_length`: a lower bound. This one holds only if the trace also hashes the tail
//! of each prompt; a trace that hashes only whole units has no lower bound. Units in use are powers
//! of two (512 in Mooncake's traces, 64 and 16 elsewhere), so the result is the largest power of
//! two within the upper bound. If that power of two does not cover every row but the upper bound
//! does, the result is the upper bound.

/// The unit of Mooncake's traces, used where the rows do not bound the unit.
const USUAL: u64 = 512;

/// Bounds of the unit, from the rows so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnitBounds {
    /// Smallest unit that covers every row so far.
    covering: u64,
    /// Largest unit that leaves no id without a token; `None` while no row has two ids.
    largest: Option<u64>,
}

impl Default for UnitBounds {
    fn default() -> Self {
        Self { covering: 1, largest: None }
    }
}

impl UnitBounds {
    /// Adds a row. It must have no more ids than tokens.
    pub(super) fn add(&mut self, tokens: u64, ids: u64) {
        if tokens > 0 {
            self.covering = self.covering.max(if ids == 0 { u64::MAX } else { tokens.div_ceil(ids) });
        }
        if ids > 1 {
            let bound = (tokens - 1) / (ids - 1);
            self.largest = Some(self.largest.map_or(bound, |known| known.min(bound)));
        }
    }

    /// The unit that fits best.
    pub(super) fn infer(self) -> u64 {
        let Some(largest) = self.largest else {
            return USUAL;
        };
        let power = 1 << largest.max(1).ilog2();
        let covered_by_largest_only = power < self.covering && self.covering <= largest;
        if covered_by_largest_only { largest } else { power }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(rows: &[(u64, u64)]) -> u64 {
        let mut bounds = UnitBounds::default();
        for &(tokens, ids) in rows {
            bounds.add(tokens, ids);
        }
        bounds.infer()
    }

    #[test]
    fn covered_rows_give_their_unit() {
        assert_eq!(inferred(&[(6758, 14), (7322, 15), (2290, 5)]), 512);
        assert_eq!(inferred(&[(6758, 14)]), 512);
        assert_eq!(inferred(&[(1919, 120), (525, 33), (1908, 120)]), 16);
        assert_eq!(inferred(&[(300, 3), (299, 3), (201, 3), (1000, 10)]), 100);
    }

    #[test]
    fn rows_with_uncovered_tails_give_their_unit_too() {
        assert_eq!(inferred(&[(1593, 99), (1641, 102), (130, 8)]), 16);
        assert_eq!(inferred(&[(1593, 99), (15, 0)]), 16);
    }

    #[test]
    fn rows_that_do_not_bound_the_unit_give_the_usual_one() {
        assert_eq!(inferred(&[]), 512);
        assert_eq!(inferred(&[(40, 1), (0, 0), (7, 0)]), 512);
    }

    #[test]
    fn as_many_ids_as_tokens_give_a_unit_of_one() {
        assert_eq!(inferred(&[(5, 5), (9, 9)]), 1);
    }
}
