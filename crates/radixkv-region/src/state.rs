//! The state word of an entry: it says whether the entry may be read, and which process may write
//! it.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 9 | owner | bits 0 and 1: the [`Kind`]; the others: while the entry is written, the process slot of the writer |
//! | 10 to 19, 20 to 29 | owner | two more copies of bits 0 to 9 |
//! | 30 to 63 | generation | how many times the entry was claimed |
//!
//! The majority of the three copies counts, bit by bit. So a flipped bit does not free an entry
//! that a process is writing, which would let another process write it as well.

const KIND: u64 = 0b11;
const SLOT_AT: u32 = 2;
const SLOT: u64 = 0xff << SLOT_AT;
const OWNER: u64 = KIND | SLOT;
const OWNER_BITS: u32 = 10;
const GENERATION_AT: u32 = 3 * OWNER_BITS;

/// The state word of an entry, as one process read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u64);

/// The content of an entry.
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

    /// The majority of the three copies.
    const fn owner(self) -> u64 {
        let (one, two, three) = (self.0, self.0 >> OWNER_BITS, self.0 >> (2 * OWNER_BITS));
        (one & two | two & three | one & three) & OWNER
    }

    const fn new(generation: u64, owner: u64) -> Self {
        Self(generation << GENERATION_AT | owner << (2 * OWNER_BITS) | owner << OWNER_BITS | owner)
    }

    pub(crate) const fn kind(self) -> Kind {
        match self.owner() & KIND {
            0 => Kind::Free,
            1 => Kind::Writing,
            2 => Kind::Ready,
            _ => Kind::Unknown,
        }
    }

    /// The process slot of the writer; meaningless for other kinds than `Writing`.
    pub(crate) const fn slot(self) -> usize {
        (self.owner() >> SLOT_AT) as usize
    }

    pub(crate) const fn generation(self) -> u64 {
        self.0 >> GENERATION_AT
    }

    /// The state after the process of a slot claims the entry: a new generation.
    pub(crate) const fn claimed(self, slot: usize) -> Self {
        // The generation wraps: its highest bits are shifted out.
        Self::new(self.generation().wrapping_add(1), (slot as u64) << SLOT_AT & SLOT | 1)
    }

    /// The state after publishing: the same generation, readable.
    pub(crate) const fn ready(self) -> Self {
        Self::new(self.generation(), 2)
    }

    /// The state after giving back: the same generation, empty.
    pub(crate) const fn free(self) -> Self {
        Self::new(self.generation(), 0)
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

    // Holds: RG7.
    #[test]
    fn a_flipped_bit_changes_neither_kind_nor_slot() {
        for state in [State::from_word(0), State::from_word(0).claimed(77), State::from_word(0).claimed(0).ready()] {
            for bit in 0..64 {
                let flipped = State::from_word(state.word() ^ 1 << bit);
                assert_eq!((flipped.kind(), flipped.slot()), (state.kind(), state.slot()), "bit {bit}");
            }
        }
    }
}
