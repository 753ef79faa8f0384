//! The statistics of a block, and the eviction order of each policy.

use radixkv::PolicyKind;

use super::marks::BlockMarks;

/// The statistics of one block, from which the policies compute its rank.
///
/// Each use updates all blocks of its path. The real cache has statistics only at points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Time of the last match, resume or insert whose path includes the block.
    pub last: u64,
    /// One for the insert that cached the block, plus one for every later request that used it.
    pub hits: u64,
    /// Time of the insert that cached the block.
    pub born: u64,
    /// The number of pieces (see the [module](super)) on the path up to the block's last token.
    pub level: u32,
}

impl Statistics {
    /// The statistics of a block cached at `now`.
    pub(super) fn born_at(now: u64, level: u32) -> Self {
        Self { last: now, hits: 1, born: now, level }
    }
}

/// A block's rank; the lexicographically smallest is evicted first. The first number is 0 if the
/// block is demoted, else 1; the last is the number of the insert that cached the block.
pub(super) type BlockRank = [i128; 4];

/// The rank of a block of the `piece`-th insert under `policy` at `now`.
pub(super) fn rank(policy: PolicyKind, of: &Statistics, piece: u64, marks: &BlockMarks, now: u64) -> BlockRank {
    let (last, hits, born) = (i128::from(of.last), i128::from(of.hits), i128::from(of.born));
    let [first, second] = match policy {
        PolicyKind::Lru => [last, 0],
        PolicyKind::Lfu => [hits, last],
        PolicyKind::Fifo => [born, 0],
        PolicyKind::Mru => [-last, 0],
        PolicyKind::Filo => [-born, 0],
        PolicyKind::Slru => [i128::from(hits >= 2), last],
        PolicyKind::SlruFrom(uses) => [i128::from(hits >= i128::from(uses)), last],
        PolicyKind::Level => [-i128::from(of.level), last],
        PolicyKind::Priority => [i128::from(marks.priority(now)), last],
        unknown => panic!("unknown policy {unknown}: use the reference's version for this cache"),
    };
    [i128::from(!marks.is_demoted()), first, second, i128::from(piece)]
}
