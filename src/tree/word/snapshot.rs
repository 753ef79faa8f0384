//! A point word as a plain value: its bits, queries, and modified copies.

pub(super) const DEAD: u64 = 1 << 63;
pub(super) const NEW: u64 = 1 << 62;
pub(super) const QUEUED: u64 = 1 << 61;
pub(super) const OPEN: u64 = 1 << 60;
pub(super) const SLOT: u64 = 1 << 54;
pub(super) const SLOTS: u64 = 63 * SLOT;
pub(super) const LEASE: u64 = 1 << 26;
pub(super) const LEASES: u64 = MAX_LEASES * LEASE;
pub(super) const SILENT: u64 = 1 << 25;
pub(super) const CHILD: u64 = 1;
pub(super) const CHILDREN: u64 = SILENT - CHILD;

/// Maximum number of leases on one point.
pub(crate) const MAX_LEASES: u64 = if cfg!(radixkv_tiny) { 3 } else { (1 << 28) - 1 };

/// Number of slots that a word can name.
pub(crate) const MAX_SLOTS: usize = (SLOTS / SLOT) as usize;

/// The number of a slot of hot points, counted from one.
pub(crate) type HotSlotId = std::num::NonZeroU8;

/// A point word at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(super) u64);

/// Queries.
impl Snapshot {
    #[inline]
    pub(crate) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    #[inline]
    pub(crate) fn is_new(self) -> bool {
        self.0 & NEW != 0
    }

    #[inline]
    pub(crate) fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// Whether leases and releases are not queued.
    #[inline]
    pub(crate) fn is_silent(self) -> bool {
        self.0 & SILENT != 0
    }

    /// Whether leases may count on the stripes of the slot.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// The slot that is attached, open or not.
    #[inline]
    pub(crate) fn slot(self) -> Option<HotSlotId> {
        HotSlotId::new((self.0 / SLOT) as u8 & (SLOTS / SLOT) as u8)
    }

    /// The slot on whose stripes a lease may count.
    #[inline]
    pub(super) fn open_slot(self) -> Option<HotSlotId> {
        if self.is_open() { self.slot() } else { None }
    }

    #[inline]
    pub(crate) fn leases(self) -> u64 {
        (self.0 & LEASES) / LEASE
    }

    #[inline]
    pub(crate) fn children(self) -> u64 {
        self.0 & CHILDREN
    }

    /// Whether the point has neither lease nor child, so that it may be killed and ranked.
    #[inline]
    pub(crate) fn is_idle(self) -> bool {
        self.0 & (LEASES | CHILDREN) == 0
    }

    /// Whether nothing holds the point except one child.
    #[inline]
    pub(super) fn has_one_child_alone(self) -> bool {
        self.0 & (LEASES | CHILDREN) == CHILD
    }

    /// Whether the point has one lease, not counting the bias of a slot.
    #[inline]
    pub(super) fn has_one_lease(self) -> bool {
        let leases = self.0 & LEASES;
        leases == LEASE || (leases == 2 * LEASE && self.0 & SLOTS != 0)
    }

    /// For a root: whether only its permanent child holds it. One load is enough: an insert counts
    /// its run before it gives up its lease on the root, so no run is attached either.
    pub(crate) fn is_bare_root(self) -> bool {
        self.has_one_child_alone()
    }

    /// Whether the point is neither dead nor waiting to be proved.
    #[inline]
    pub(super) fn is_proven(self) -> bool {
        self.0 & (DEAD | NEW) == 0
    }

    /// Whether no further lease can be counted.
    #[inline]
    pub(super) fn is_full(self) -> bool {
        self.0 & LEASES == LEASES
    }
}

/// Copies of the word with one thing changed.
impl Snapshot {
    #[inline]
    pub(super) fn with_lease(self) -> Self {
        Self(self.0 + LEASE)
    }

    #[inline]
    pub(super) fn without_lease(self) -> Self {
        Self(self.0 - LEASE)
    }

    #[inline]
    pub(super) fn with_child(self) -> Self {
        Self(self.0 + CHILD)
    }

    #[inline]
    pub(super) fn without_child(self) -> Self {
        Self(self.0 - CHILD)
    }

    #[inline]
    pub(super) fn dead(self) -> Self {
        Self(self.0 | DEAD)
    }

    #[inline]
    pub(super) fn proven(self) -> Self {
        Self(self.0 & !NEW)
    }

    #[inline]
    pub(super) fn queued(self) -> Self {
        Self(self.0 | QUEUED)
    }

    /// With this slot attached and open; none was attached before.
    #[inline]
    pub(super) fn with_slot(self, slot: HotSlotId) -> Self {
        Self(self.0 | OPEN | (u64::from(slot.get()) * SLOT))
    }

    #[inline]
    pub(super) fn without_slot(self) -> Self {
        Self(self.0 & !SLOTS)
    }
}

impl Snapshot {
    /// `next` with `QUEUED` set if the transition from this word is a queued change, and whether
    /// the caller must then push the point.
    #[inline]
    pub(super) fn changed(self, next: Self, queued: bool) -> (Self, bool) {
        if queued && !next.is_new() && !self.is_silent() { (next.queued(), !self.is_queued()) } else { (next, false) }
    }
}

#[cfg(test)]
mod tests;
