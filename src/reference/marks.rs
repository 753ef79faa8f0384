//! What was asked for a block by every request whose path it was on: its priorities, and whether it was demoted.

/// The priority of a block that has none.
const DEFAULT_PRIORITY: u8 = 35;

/// A priority, and when it expires; never without a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    priority: u8,
    expiry: Option<u64>,
}

impl Pair {
    /// Expiries in order, with what does not expire last.
    fn lasts(self) -> (bool, Option<u64>) {
        (self.expiry.is_none(), self.expiry)
    }

    fn counts_at(self, now: u64) -> bool {
        self.expiry.is_none_or(|expiry| now < expiry)
    }
}

/// A block's marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Of the highest priority; of those, what lasts longest.
    highest: Option<Pair>,
    /// What lasts longest; of those, of the highest priority.
    longest: Option<Pair>,
    /// Nobody has used or retained it since it was demoted.
    demoted: bool,
}

impl Marks {
    /// One more priority. The pair that is neither the highest nor the longest is forgotten.
    pub(super) fn prioritize(&mut self, priority: u8, expiry: Option<u64>) {
        let new = Pair { priority, expiry };
        let pairs = || [self.highest, self.longest, Some(new)].into_iter().flatten();
        let highest = pairs().max_by_key(|pair| (pair.priority, pair.lasts()));
        let longest = pairs().max_by_key(|pair| (pair.lasts(), pair.priority));
        (self.highest, self.longest) = (highest, longest);
    }

    pub(super) fn demote(&mut self) {
        self.demoted = true;
    }

    /// A use, or a retention.
    pub(super) fn keep(&mut self) {
        self.demoted = false;
    }

    /// The highest priority that has not expired.
    pub(super) fn priority(&self, now: u64) -> u8 {
        let pairs = [self.highest, self.longest].into_iter().flatten();
        pairs.filter(|pair| pair.counts_at(now)).map(|pair| pair.priority).max().unwrap_or(DEFAULT_PRIORITY)
    }

    /// Whether the block is to go before the others.
    pub(super) fn is_demoted(&self) -> bool {
        self.demoted
    }

    /// Whether time alone can change the block's rank.
    pub(super) fn expire(&self) -> bool {
        [self.highest, self.longest].into_iter().flatten().any(|pair| pair.expiry.is_some())
    }
}
