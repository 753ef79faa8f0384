//! What the reference knows of a block's use, and which block each policy gives up first.

use super::marks::Marks;
use crate::policy::PolicyKind;

/// What a policy may look at.
///
/// Every cached block has its own, kept by touching the whole path of every request. Nothing is inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Time of the last match, resume or insert whose path includes the block.
    pub last: u64,
    /// One for the insert that cached the block, and one for every later request that touched it.
    pub hits: u64,
    /// Time of the insert that cached the block.
    pub born: u64,
    /// Pieces of inserted sequences on its path, up to the one that the block's last token belongs to.
    pub level: u32,
}

impl Statistics {
    /// Those of a block cached at `now`.
    pub(super) fn born_at(now: u64, level: u32) -> Self {
        Self { last: now, hits: 1, born: now, level }
    }
}

/// A block's place in the order of eviction: the smallest goes first, compared from the left. What was demoted begins
/// with a zero; the last is the piece that the block was inserted with.
pub(super) type Rank = [i128; 4];

/// The key that eviction by `policy` compares at `now`, for a block of the `piece`-th insert.
pub(super) fn rank(policy: PolicyKind, of: &Statistics, piece: u64, marks: &Marks, now: u64) -> Rank {
    let (last, hits, born) = (i128::from(of.last), i128::from(of.hits), i128::from(of.born));
    let [first, second] = match policy {
        PolicyKind::Lru => [last, 0],
        PolicyKind::Lfu => [hits, last],
        PolicyKind::Fifo => [born, 0],
        PolicyKind::Mru => [-last, 0],
        PolicyKind::Filo => [-born, 0],
        PolicyKind::Slru => [i128::from(hits >= 2), last],
        PolicyKind::Level => [-i128::from(of.level), last],
        PolicyKind::Priority => [i128::from(marks.priority(now)), last],
    };
    [i128::from(!marks.is_demoted()), first, second, i128::from(piece)]
}
