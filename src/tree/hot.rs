//! Hot points: counts the leases of many threads on one point on several cache lines. Called by
//! `lease`, and by the evictor at each drain.
//!
//! Threads that lease one point at once all write its cache line. So a thread whose
//! compare-and-swap fails because of another thread *inflates* the point: it gives the point a
//! *slot*. From then on leases, hits and stamps are counted on the slot's *stripes*, about one for
//! each core, and the word is only read. The word has one lease for the slot, the *bias*, so an
//! inflated point stays alive. The evictor removes the slot when no lease is counted on its
//! stripes.
//!
//! - **Enter**: add one to the thread's own stripe, then check that the slot is still open
//!   (Dekker's handshake). If not, subtract one again and lease in the word.
//! - **Leave**: subtract one from the stripe on which the lease was counted, from any thread. The
//!   point is not read.
//! - **Deflate** (evictor): close the slot, then sum the stripes. If the sum is not zero, open it
//!   again. If it is zero, add hits and stamps to the point, remove slot and bias from the word
//!   with one compare-and-swap, like a release, and free the slot. While at most half of the slots
//!   are taken, two kinds of points keep theirs: points that another lease in their word holds
//!   anyway, and roots with child runs.
//!
//! A thread that enters a closed slot is counted for a moment. So a sum may be too
//! high, also for the slot's next point, but never too low. Only a thread whose lease is counted on
//! a stripe writes hits and stamps there.
//!
//! The bias protects an idle hot point until it is deflated. So every drain first looks for such
//! points, and a waiter's attempt closes every slot, even if kept or in use, to be sure of the sum.
//! Leased child runs do not keep a slot: their leases may be biases, so of nested hot prefixes each
//! drain would deflate only the deepest. When the evictor gives back the lease that kept a slot, it
//! removes the slot at once.
//!
//! # Invariants
//!
//! - **HP1** A slot that is attached to a point is taken, and names that point.
//! - **HP2** Each lease that counts on a stripe is given back on the same stripe.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E13 | `leave` | `deflate` sums | a leaseholder's use of the blocks, its hits and stamps come before the point's end |
//! | E17 | `deflate_all` sums | `leave`, `enter` of a closed slot | a thread that leaves after the sum sees that another one waits (cache::line::wait_list) |
//! | E18 | `deflate_all` looks for slots | `inflate` has attached one | the same, for a lease whose release is not queued because of the bias |
//! | E14 | `vacate` | `occupy` | a slot's next point finds stripes without the previous point's hits |
//! | Dekker | `enter` counts, then looks at the word | `deflate` closes, then looks at the counts | no lease is counted on a stripe that was summed without it |

use crossbeam_utils::CachePadded;

use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::dekker;

use super::lease::HeldLease;
use super::point::{Point, Statistics, Tally};
use super::queue::Queues;
use super::word::{HotSlotId, MAX_SLOTS, Word};

/// Maximum number of stripes of a slot; further sessions share them.
const MAX_STRIPES: usize = 64;

/// Where a lease is counted: in the point's word, or on a stripe of the slot that was attached to
/// the point.
///
/// One number, the slot above the stripe, because every lease writes and reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StripeRef(u16);

impl StripeRef {
    /// Counted in the word, by a thread whose stripe is `stripe`.
    pub(crate) fn word(stripe: u8) -> Self {
        Self(u16::from(stripe))
    }

    fn striped(slot: HotSlotId, stripe: u8) -> Self {
        Self(u16::from(slot.get()) << 8 | u16::from(stripe))
    }

    fn slot(self) -> Option<HotSlotId> {
        HotSlotId::new((self.0 >> 8) as u8)
    }

    /// Whether the lease is counted on a stripe.
    #[inline]
    pub(crate) fn is_striped(self) -> bool {
        self.0 >> 8 != 0
    }

    /// The stripe of the thread that took the lease.
    #[inline]
    pub(crate) fn stripe(self) -> u8 {
        self.0 as u8
    }
}

/// The counts of one stripe.
#[derive(Debug)]
struct Stripe {
    leases: AtomicU64,
    statistics: Statistics,
}

#[derive(Debug)]
struct HotSlot {
    point: AtomicPtr<Point>,
    stripes: Box<[CachePadded<Stripe>]>,
}

/// The slots of a cache for hot points.
#[derive(Debug)]
pub(crate) struct HotPoints {
    /// One bit for each slot.
    taken: CachePadded<AtomicU64>,
    slots: Box<[HotSlot]>,
    stripes: usize,
}

impl HotPoints {
    /// Makes `slots` slots with `stripes` stripes each, so up to `slots` points can be hot at once.
    pub(crate) fn new(slots: usize, stripes: usize) -> Self {
        let stripes = stripes.clamp(1, MAX_STRIPES);
        let stripe = |_| CachePadded::new(Stripe { leases: AtomicU64::new(0), statistics: Statistics::stamped(0) });
        let slot =
            |_| HotSlot { point: AtomicPtr::new(std::ptr::null_mut()), stripes: (0..stripes).map(stripe).collect() };
        Self {
            taken: CachePadded::new(AtomicU64::new(0)),
            slots: (0..slots.min(MAX_SLOTS)).map(slot).collect(),
            stripes,
        }
    }

    /// The stripe of the `i`-th session.
    pub(crate) fn stripe(&self, i: usize) -> u8 {
        (i % self.stripes) as u8
    }

    fn slot(&self, name: HotSlotId) -> &HotSlot {
        &self.slots[usize::from(name.get()) - 1]
    }

    fn stripes(&self, name: HotSlotId) -> &[CachePadded<Stripe>] {
        &self.slot(name).stripes
    }

    fn stripe_of(&self, counted_on: StripeRef) -> Option<&Stripe> {
        Some(&self.stripes(counted_on.slot()?)[usize::from(counted_on.stripe())])
    }

    /// Takes a lease on `stripe` of the slot that was seen open in `word`; `None` if the slot was
    /// closed meanwhile.
    #[inline(never)]
    pub(crate) fn enter(&self, word: &Word, slot: HotSlotId, stripe: u8) -> Option<StripeRef> {
        crate::sync::failpoint!("hot::enter");
        let count = &self.stripes(slot)[usize::from(stripe)].leases;
        if word.still_open(slot, count) {
            crate::sync::failpoint!("hot::entered");
            return Some(StripeRef::striped(slot, stripe));
        }
        // Acquire: E17. If a sum saw the count, the slot stays attached, and its bias keeps the
        // release of a lease in the word from being queued. No Release: nothing was used under this
        // count.
        count.fetch_sub(1, Acquire);
        None
    }

    /// Gives back a lease that counts on a stripe.
    pub(crate) fn leave(&self, counted_on: StripeRef) {
        if let Some(stripe) = self.stripe_of(counted_on) {
            // Release: E13. Acquire: E17.
            stripe.leases.fetch_sub(1, AcqRel);
        }
    }

    /// The statistics that count the hits and stamps of a lease.
    #[inline]
    pub(crate) fn statistics<'a>(&'a self, held: &'a HeldLease<'_>) -> &'a Statistics {
        if held.counted_on.is_striped() { self.striped(held) } else { &held.point.statistics }
    }

    #[inline(never)]
    fn striped<'a>(&'a self, held: &'a HeldLease<'_>) -> &'a Statistics {
        self.stripe_of(held.counted_on).map_or(&held.point.statistics, |stripe| &stripe.statistics)
    }

    /// The leases and statistics of `point`, including those on its stripes. Other threads may
    /// change them meanwhile.
    pub(crate) fn numbers(&self, point: Ref<'_, Point>, guard: &Guard<'_>) -> (u64, Tally) {
        // Relaxed, here and below: numbers for statistics.
        let (word, tally) = (point.word.load(Relaxed), point.tally(guard));
        let Some(slot) = word.slot() else { return (word.leases(), tally) };
        let add = |(leases, tally): (u64, Tally), stripe: &CachePadded<Stripe>| {
            (leases + stripe.leases.load(Relaxed), tally.joined(stripe.statistics.tally()))
        };
        // Without the bias.
        self.stripes(slot).iter().fold((word.leases() - 1, tally), add)
    }

    /// Gives `point` a slot if one is free and the point has none. The caller holds a lease on it.
    #[cold]
    pub(crate) fn inflate(&self, point: Ref<'_, Point>) {
        let Some(name) = self.occupy() else { return };
        let slot = self.slot(name);
        // Release: HP1. The evictor follows the pointer while the word names the slot; the bias
        // keeps the point alive for that time.
        slot.point.store(point.as_ptr(), Release);
        crate::sync::failpoint!("hot::taken");
        if point.word.attach(name) {
            // Changes nothing. Release: a later look finds the slot attached. Acquire: E18.
            self.taken.fetch_or(0, AcqRel);
        } else {
            self.vacate(name);
        }
    }

    fn occupy(&self) -> Option<HotSlotId> {
        // Relaxed: a guess, which the compare-and-swap checks.
        let mut taken = self.taken.load(Relaxed);
        loop {
            let free = (!taken).trailing_zeros() as usize;
            if free >= self.slots.len() {
                return None;
            }
            // Acquire: E14.
            match self.taken.compare_exchange_weak(taken, taken | 1 << free, Acquire, Relaxed) {
                Ok(_) => return HotSlotId::new(free as u8 + 1),
                Err(seen) => taken = seen,
            }
        }
    }

    fn vacate(&self, name: HotSlotId) {
        // Relaxed: a thread that fails to attach still has its lease. So this store comes before
        // the point's end (E2), and later looks of the evictor see it.
        self.slot(name).point.store(std::ptr::null_mut(), Relaxed);
        // Release: E14.
        self.taken.fetch_and(!(1 << (name.get() - 1)), Release);
    }

    /// Removes the slots of all points without leases; returns how many. Only the evictor calls it.
    #[inline]
    pub(crate) fn deflate_idle(&self, queues: &Queues, guard: &Guard<'_>) -> usize {
        // Relaxed: a point that is inflated now is found next time.
        let taken = self.taken.load(Relaxed);
        if taken == 0 {
            return 0;
        }
        let leases = |name| self.stripes(name).iter().map(|stripe| stripe.leases.load(Relaxed)).sum::<u64>();
        let are_few = taken.count_ones() as usize <= self.slots.len() / 2;
        // Acquire: HP1.
        let point = |name| Ref::from_ptr(self.slot(name).point.load(Acquire), guard);
        let stays = |name| are_few && point(name).is_some_and(|point| is_kept(point, name));
        // The sum is a hint, used to skip slots in use: closing one delays its users.
        let idle = self.taken(taken).filter(|name| !stays(*name) && leases(*name) == 0);
        idle.map(|name| usize::from(self.deflate(name, guard, |point| queues.push(point)))).sum()
    }

    /// Removes the slot of `point` if only the lease that the evictor has just given back in its
    /// word kept it; returns whether it did. Calls `push` if the point must be pushed.
    #[inline]
    pub(crate) fn deflate_spare<'g>(
        &self,
        point: Ref<'g, Point>,
        guard: &'g Guard<'_>,
        push: impl FnOnce(Ref<'g, Point>),
    ) -> bool {
        // Relaxed: a guess; a later call finds what this one misses.
        let word = point.word.load(Relaxed);
        let spare = word.slot().filter(|_| word.leases() == 1);
        spare.is_some_and(|name| self.deflate(name, guard, push))
    }

    /// As [`deflate_idle`](Self::deflate_idle), but closes every slot to be sure of its sum.
    pub(crate) fn deflate_all(&self, queues: &Queues, guard: &Guard<'_>) -> usize {
        // Changes nothing. Acquire: sees slots that were attached before. Release: E18.
        let taken = self.taken(self.taken.fetch_or(0, AcqRel));
        taken.map(|name| usize::from(self.deflate(name, guard, |point| queues.push(point)))).sum()
    }

    fn taken(&self, bits: u64) -> impl Iterator<Item = HotSlotId> {
        (0..self.slots.len() as u8).filter(move |i| bits & 1 << i != 0).filter_map(|i| HotSlotId::new(i + 1))
    }

    /// Removes a slot from its point if no lease is counted on it; returns whether it did. Calls
    /// `push` if the point must be pushed.
    fn deflate<'g>(&self, name: HotSlotId, guard: &'g Guard<'_>, push: impl FnOnce(Ref<'g, Point>)) -> bool {
        // Acquire: HP1.
        let Some(point) = Ref::from_ptr(self.slot(name).point.load(Acquire), guard) else { return false };
        // Relaxed: only the evictor detaches, and a slot that is not attached yet needs nothing.
        if point.word.load(Relaxed).slot() != Some(name) {
            return false;
        }
        if !self.close_idle(&point.word, name) {
            return false;
        }
        crate::sync::failpoint!("hot::summed");
        for stripe in self.stripes(name) {
            stripe.statistics.flow_to(&point.statistics);
        }
        if point.word.detach() {
            push(point);
        }
        self.vacate(name);
        true
    }

    /// Closes the slot that is attached to `word` if no lease is counted on its stripes; otherwise
    /// leaves it open. Only the evictor calls it.
    pub(crate) fn close_idle(&self, word: &Word, name: HotSlotId) -> bool {
        word.close();
        crate::sync::failpoint!("hot::closed");
        // `leases` acquires: E13.
        let idle = self.leases(name) == 0;
        if !idle {
            word.reopen();
        }
        idle
    }

    /// Whether `point` and the slots agree about it. For `validate`, while the cache is at rest.
    pub(crate) fn agree(&self, point: Ref<'_, Point>) -> bool {
        // Relaxed, twice: no pointer is followed.
        let word = point.word.load(Relaxed);
        let names_it = |name| self.slot(name).point.load(Relaxed) == point.as_ptr();
        let slot = word.slot();
        let is_in_use = |name| self.leases(name) > 0 || is_kept(point, name);
        word.is_open() == slot.is_some() && slot.is_none_or(|name| names_it(name) && is_in_use(name))
    }

    /// Number of leases that are counted on a slot's stripes.
    fn leases(&self, name: HotSlotId) -> u64 {
        self.stripes(name).iter().map(|stripe| dekker::look(&stripe.leases)).sum()
    }
}

/// Whether `point` has this slot and keeps it for now, because another lease in its word holds it
/// anyway, or it is a root with child runs in an attached space. Such a root is not ranked, so its
/// leases need not be known, and the next lookups that miss would inflate it again.
fn is_kept(point: Ref<'_, Point>, name: HotSlotId) -> bool {
    // Relaxed: a guess. A thread that gives up the other lease leaves only the bias, and the next
    // look finds that.
    let word = point.word.load(Relaxed);
    let is_busy_root = || word.children() > 1 && !point.run().space().is_detached();
    word.slot() == Some(name) && if point.run().is_trunk() { is_busy_root() } else { word.leases() > 1 }
}
