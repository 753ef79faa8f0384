//! The marks of a block, which are part of its rank: its priorities, and whether it is demoted.

/// The default priority.
const DEFAULT_PRIORITY: i64 = 35;

/// A priority and its expiry time; `None` if it never expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    priority: i64,
    expiry: Option<u64>,
}

impl Pair {
    /// A key that orders pairs by how long they last.
    fn lasts(self) -> (bool, Option<u64>) {
        (self.expiry.is_none(), self.expiry)
    }

    fn counts_at(self, now: u64) -> bool {
        self.expiry.is_none_or(|expiry| now < expiry)
    }
}

/// A block's marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockMarks {
    /// The highest priority; among equals, the longest-lasting one.
    highest: Option<Pair>,
    /// The longest-lasting priority; among equals, the highest.
    longest: Option<Pair>,
    /// Whether the block was demoted, and not used, renewed or retained since.
    demoted: bool,
}

impl BlockMarks {
    /// Adds a priority. Keeps only the highest and the longest-lasting one.
    pub(super) fn prioritize(&mut self, priority: i64, expiry: Option<u64>) {
        let new = Pair { priority, expiry };
        let pairs = || [self.highest, self.longest, Some(new)].into_iter().flatten();
        let highest = pairs().max_by_key(|pair| (pair.priority, pair.lasts()));
        let longest = pairs().max_by_key(|pair| (pair.lasts(), pair.priority));
        (self.highest, self.longest) = (highest, longest);
    }

    pub(super) fn demote(&mut self) {
        self.demoted = true;
    }

    /// Ends a demotion: the block was used, renewed or retained.
    pub(super) fn keep(&mut self) {
        self.demoted = false;
    }

    /// The highest priority that has not expired, or the default one.
    pub(super) fn priority(&self, now: u64) -> i64 {
        let pairs = [self.highest, self.longest].into_iter().flatten();
        pairs.filter(|pair| pair.counts_at(now)).map(|pair| pair.priority).max().unwrap_or(DEFAULT_PRIORITY)
    }

    /// Whether the block is evicted before all that are not demoted.
    pub(super) fn is_demoted(&self) -> bool {
        self.demoted
    }

    /// Whether one of the block's priorities expires, which changes its rank.
    pub(super) fn expire(&self) -> bool {
        [self.highest, self.longest].into_iter().flatten().any(|pair| pair.expiry.is_some())
    }
}
