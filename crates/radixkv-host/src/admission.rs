//! Admission policies: a tier stores all offered blocks, or only blocks that were offered before.
//! `offload` applies the policy to each block.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState},
    ops::Range,
};

use radixkv::{NamespaceName, Token};

use crate::grid::Grid;

/// Which evicted blocks a host tier stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Admission {
    /// Stores every block that a cache evicts or writes through.
    #[default]
    All,
    /// Stores a block when it is offered for the second time, so that blocks used only once take no
    /// room here or in remote tiers. After the first offer only a hash is kept.
    SecondTouch {
        /// Number of remembered blocks, at about 40 bytes each; the oldest are forgotten.
        remembered: usize,
    },
}

/// The hashes of blocks that were offered once.
///
/// A collision of two hashes only admits a block at its first offer: no lookup uses them.
#[derive(Debug)]
pub(crate) struct Remembered {
    most: usize,
    /// The offload that first offered each block.
    brought_by: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

/// Computes the hashes of blocks.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(RandomState);

impl Admission {
    /// The policy's state, if it needs any.
    pub(crate) fn memory(self) -> Option<Remembered> {
        match self {
            Self::All => None,
            Self::SecondTouch { remembered } => {
                Some(Remembered { most: remembered, brought_by: HashMap::new(), order: VecDeque::new() })
            }
        }
    }
}

impl Fingerprints {
    /// Hashes the given blocks of a sequence, each with its namespace and all tokens up to its end.
    pub(crate) fn of(
        &self,
        namespace: &NamespaceName,
        tokens: &[Token],
        grid: Grid,
        numbers: Range<usize>,
    ) -> Vec<u64> {
        let mut hasher = self.0.build_hasher();
        namespace.hash(&mut hasher);
        let mut from = 0;
        let mut next = |number: usize| {
            let end = grid.end_of(number);
            tokens[from..end].iter().for_each(|&token| hasher.write_u32(token));
            from = end;
            hasher.finish()
        };
        numbers.map(&mut next).collect()
    }
}

impl Remembered {
    /// Whether an earlier offload offered the block; if it is new, remembers it.
    pub(crate) fn was_brought(&mut self, fingerprint: u64, offload: u64) -> bool {
        if let Some(&by) = self.brought_by.get(&fingerprint) {
            return by != offload;
        }
        if self.most == 0 {
            return false;
        }
        if self.order.len() == self.most {
            self.order.pop_front().map(|oldest| self.brought_by.remove(&oldest));
        }
        self.order.push_back(fingerprint);
        self.brought_by.insert(fingerprint, offload);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_admitted_when_another_offload_brings_it_and_it_is_remembered() {
        let mut memory = Admission::SecondTouch { remembered: 2 }.memory().expect("it has one");
        let mut brings = |fingerprint, offload| memory.was_brought(fingerprint, offload);
        assert_eq!([brings(1, 0), brings(1, 0), brings(1, 1), brings(1, 2)], [false, false, true, true]);
        assert_eq!([brings(2, 3), brings(3, 3), brings(1, 4), brings(3, 4)], [false, false, false, true]);
        assert!(Admission::All.memory().is_none());
    }

    #[test]
    fn fingerprints_are_of_the_namespace_and_all_tokens_up_to_the_end() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let [one, two] = ["one", "two"].map(|name| cache.namespace(&[name]).name());
        let (of, grid) = (Fingerprints::default(), Grid::new(2, one.keys()));
        let all = of.of(&one, &[1, 2, 3, 4], grid, 0..2);
        assert_eq!(of.of(&one, &[1, 2, 3, 4], grid, 1..2), all[1..]);
        assert_ne!(of.of(&two, &[1, 2, 3, 4], grid, 0..2), all);
        assert_ne!(of.of(&one, &[9, 2, 3, 4], grid, 1..2), all[1..]);
    }
}
