//! What the reference knows of a block's use, and which block each policy gives up first.

use super::marks::Marks;

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
/// with a zero.
pub(super) type Rank = [i64; 3];

/// The order in which idle leaves are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Least recently used first.
    #[default]
    Lru,
    /// Fewest hits first, the least recently used among equals.
    Lfu,
    /// Oldest insert first.
    Fifo,
    /// Most recently used first.
    Mru,
    /// Youngest insert first.
    Filo,
    /// Blocks that only their insert has used first, the least recently used among equals.
    Slru,
    /// Deepest level first, the least recently used among equals.
    Level,
    /// Lowest priority first, the least recently used among equals.
    Priority,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 8] =
        [Self::Lru, Self::Lfu, Self::Fifo, Self::Mru, Self::Filo, Self::Slru, Self::Level, Self::Priority];

    /// The word for it in traces, reports and golden files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Fifo => "fifo",
            Self::Mru => "mru",
            Self::Filo => "filo",
            Self::Slru => "slru",
            Self::Level => "level",
            Self::Priority => "priority",
        }
    }

    /// The key that eviction compares at `now`.
    pub(super) fn rank(self, of: &Statistics, marks: &Marks, now: u64) -> Rank {
        let signed = |n: u64| i64::try_from(n).expect("times and hits stay below 2^63");
        let (last, hits, born) = (signed(of.last), signed(of.hits), signed(of.born));
        let [first, second] = match self {
            Self::Lru => [last, 0],
            Self::Lfu => [hits, last],
            Self::Fifo => [born, 0],
            Self::Mru => [-last, 0],
            Self::Filo => [-born, 0],
            Self::Slru => [i64::from(hits >= 2), last],
            Self::Level => [-i64::from(of.level), last],
            Self::Priority => [i64::from(marks.priority(now)), last],
        };
        [i64::from(!marks.is_demoted(of.last)), first, second]
    }
}
