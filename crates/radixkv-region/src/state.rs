//! The state word of an entry: whether it may be read, and which process may write it.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 1 | kind | [`Kind`] |
//! | 2 to 9 | slot | while it is written: the process slot of the writer |
//! | 10 to 63 | generation | how many times the entry was claimed |

const KIND: u64 = 0b11;
const SLOT_AT: u32 = 2;
const SLOT: u64 = 0xff << SLOT_AT;
const GENERATION_AT: u32 = 10;
const GENERATION: u64 = !(KIND | SLOT);

/// What an entry is, as one value of its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It holds nothing; any process may claim it.
    Free,
    /// A process has claimed it, fills it or empties it.
    Writing,
    /// It holds a block; any process may read it, or claim it to put another block there.
    Ready,
    /// No process wrote this: the memory was damaged. Treated as free.
    Unknown,
}

impl State {
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn kind(self) -> Kind {
        match self.0 & KIND {
            0 => Kind::Free,
            1 => Kind::Writing,
            2 => Kind::Ready,
            _ => Kind::Unknown,
        }
    }

    /// The process slot of the writer; without meaning in other kinds.
    pub(crate) const fn slot(self) -> usize {
        ((self.0 & SLOT) >> SLOT_AT) as usize
    }

    pub(crate) const fn generation(self) -> u64 {
        self.0 >> GENERATION_AT
    }

    /// The same entry, claimed by the process of a slot: a new generation.
    pub(crate) const fn claimed(self, slot: usize) -> Self {
        let generation = self.generation().wrapping_add(1) << GENERATION_AT & GENERATION;
        Self(generation | (slot as u64) << SLOT_AT & SLOT | 1)
    }

    /// The same generation, readable.
    pub(crate) const fn ready(self) -> Self {
        Self(self.0 & GENERATION | 2)
    }

    /// The same generation, empty.
    pub(crate) const fn free(self) -> Self {
        Self(self.0 & GENERATION)
    }

    /// Whether a process of this slot is writing it.
    pub(crate) fn is_written_by(self, slot: usize) -> bool {
        self.kind() == Kind::Writing && self.slot() == slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_kind_and_each_change_keeps_its_fields() {
        let mut random = fastrand::Rng::with_seed(7);
        for at in 0..10_000 {
            let word = if at == 0 { u64::MAX } else { random.u64(..) };
            let state = State::from_word(word);
            let claimed = state.claimed(random.usize(..256));
            assert_eq!(claimed.kind(), Kind::Writing);
            assert_eq!(claimed.generation(), state.generation().wrapping_add(1) & u64::MAX >> GENERATION_AT);
            assert!(claimed.is_written_by(claimed.slot()) && !claimed.is_written_by(claimed.slot() + 1));
            assert_eq!((claimed.ready().kind(), claimed.free().kind()), (Kind::Ready, Kind::Free));
            assert_eq!(claimed.ready().generation(), claimed.generation());
            assert_eq!(claimed.free().generation(), claimed.generation());
            assert_ne!(state.claimed(1), state);
        }
    }
}
