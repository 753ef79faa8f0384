//! Hot points: leases on one point from many threads, counted apart.
//!
//! A point that several threads lease at once is a line that all of them write. So a leaser whom another one got in the
//! way of gives the point a *slot*: from then on leases, hits and stamps count on the slot's *stripes*, one for each
//! core or so, and the word is only read. The word holds one lease for the slot, the bias, so an inflated point stays.
//! The evictor takes the slot off again where nobody is counted on its stripes.
//!
//! - **Enter**: count on the own stripe, then look whether the slot is still open (Dekker); if not, uncount and lease
//!   in the word.
//! - **Leave**: uncount on the stripe that was counted on, from whatever thread. The point is not looked at.
//! - **Deflate** (evictor): close, then sum the stripes. Not zero: open again. Zero: hits and stamps go to the point,
//!   one compare-and-swap takes slot and bias off the word as a release, and the slot is free.
//!
//! Who enters too late counts himself for a moment and takes it back: a sum may be too high, never too low, also for
//! the slot's next point. Hits and stamps are written by those who are counted only.
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
//! | E13 | `leave` | `deflate` sums | a holder's use of the blocks, his hits and stamps come before the point's end |
//! | E17 | `deflate_all` sums | `leave`, `enter` too late | who is counted no more after it sees what came before it (cache::wait_list) |
//! | E18 | `deflate_all` looks for slots | `inflate` has attached one | who releases a lease that is no step for the bias, as above |
//! | E14 | `vacate` | `occupy` | a slot's next point finds stripes without the last one's hits |
//! | Dekker | `enter` counts, then looks at the word | `deflate` closes, then looks at the counts | nobody counts on a stripe that was summed without him |

use crossbeam_utils::CachePadded;

use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::dekker;

use super::lease::Held;
use super::point::{Point, Statistics};
use super::queue::Queue;
use super::word::{MAX_SLOTS, SlotName, Word};

/// Stripes of a slot at most; sessions beyond share them.
const MAX_STRIPES: usize = 64;

/// Where a lease is counted: on the point's word, or on a stripe of the slot that was attached to it.
///
/// One number, the slot above the stripe: written and read at once, as it is on every lease's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share(u16);

impl Share {
    /// Counted on the word, by somebody whose stripe is `stripe`.
    pub(crate) fn word(stripe: u8) -> Self {
        Self(u16::from(stripe))
    }

    fn striped(slot: SlotName, stripe: u8) -> Self {
        Self(u16::from(slot.get()) << 8 | u16::from(stripe))
    }

    fn slot(self) -> Option<SlotName> {
        SlotName::new((self.0 >> 8) as u8)
    }

    /// Whether it is counted on a stripe.
    #[inline]
    pub(crate) fn is_striped(self) -> bool {
        self.0 >> 8 != 0
    }

    /// The stripe of whoever took the lease.
    #[inline]
    pub(crate) fn stripe(self) -> u8 {
        self.0 as u8
    }
}

/// What one stripe counts.
#[derive(Debug)]
struct Stripe {
    leases: AtomicU64,
    statistics: Statistics,
}

#[derive(Debug)]
struct Slot {
    point: AtomicPtr<Point>,
    stripes: Box<[CachePadded<Stripe>]>,
}

/// The slots of a cache.
#[derive(Debug)]
pub(crate) struct HotPoints {
    /// A bit for each slot.
    taken: CachePadded<AtomicU64>,
    slots: Box<[Slot]>,
    stripes: usize,
}

impl HotPoints {
    /// `slots` slots, as many as points that can be hot at once, of `stripes` stripes each.
    pub(crate) fn new(slots: usize, stripes: usize) -> Self {
        let stripes = stripes.clamp(1, MAX_STRIPES);
        let stripe = |_| CachePadded::new(Stripe { leases: AtomicU64::new(0), statistics: Statistics::stamped(0) });
        let slot =
            |_| Slot { point: AtomicPtr::new(std::ptr::null_mut()), stripes: (0..stripes).map(stripe).collect() };
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

    fn slot(&self, name: SlotName) -> &Slot {
        &self.slots[usize::from(name.get()) - 1]
    }

    fn stripes(&self, name: SlotName) -> &[CachePadded<Stripe>] {
        &self.slot(name).stripes
    }

    fn share(&self, share: Share) -> Option<&Stripe> {
        Some(&self.stripes(share.slot()?)[usize::from(share.stripe())])
    }

    /// Takes a lease on `stripe` of the slot that was seen open in `word`; nothing if it is open no more.
    #[inline(never)]
    pub(crate) fn enter(&self, word: &Word, slot: SlotName, stripe: u8) -> Option<Share> {
        crate::sync::point!("hot::enter");
        let count = &self.stripes(slot)[usize::from(stripe)].leases;
        if word.still_open(slot, count) {
            crate::sync::point!("hot::entered");
            return Some(Share::striped(slot, stripe));
        }
        // Acquire: E17. A sum may have seen the count; then the slot stays, and letting go of a lease in the word is no
        // step. No Release: whoever was never counted used nothing.
        count.fetch_sub(1, Acquire);
        None
    }

    /// Gives back a lease that counts on a stripe.
    pub(crate) fn leave(&self, share: Share) {
        if let Some(stripe) = self.share(share) {
            // Release: E13. Acquire: E17.
            stripe.leases.fetch_sub(1, AcqRel);
        }
    }

    /// Where a holder's hits and stamps are counted.
    #[inline]
    pub(crate) fn statistics<'a>(&'a self, held: &'a Held<'_>) -> &'a Statistics {
        if held.share.is_striped() { self.striped(held) } else { &held.point.statistics }
    }

    #[inline(never)]
    fn striped<'a>(&'a self, held: &'a Held<'_>) -> &'a Statistics {
        self.share(held.share).map_or(&held.point.statistics, |stripe| &stripe.statistics)
    }

    /// Gives `point`, on which the caller holds a lease, a slot, if one is free and it has none.
    #[cold]
    pub(crate) fn inflate(&self, point: Ref<'_, Point>) {
        let Some(name) = self.occupy() else { return };
        let slot = self.slot(name);
        // Release: HP1. The evictor follows it while the word names the slot, and then the bias keeps the point.
        slot.point.store(point.as_ptr(), Release);
        crate::sync::point!("hot::taken");
        if point.word.attach(name) {
            // Changes nothing. Release: who looks after this finds the slot attached. Acquire: E18.
            self.taken.fetch_or(0, AcqRel);
        } else {
            self.vacate(name);
        }
    }

    fn occupy(&self) -> Option<SlotName> {
        let mut taken = self.taken.load(Relaxed);
        loop {
            let free = (!taken).trailing_zeros() as usize;
            if free >= self.slots.len() {
                return None;
            }
            // Acquire: E14.
            match self.taken.compare_exchange_weak(taken, taken | 1 << free, Acquire, Relaxed) {
                Ok(_) => return SlotName::new(free as u8 + 1),
                Err(seen) => taken = seen,
            }
        }
    }

    fn vacate(&self, name: SlotName) {
        // Relaxed: whoever gave the point up comes before its end (E2), and so before the evictor's next look here.
        self.slot(name).point.store(std::ptr::null_mut(), Relaxed);
        // Release: E14.
        self.taken.fetch_and(!(1 << (name.get() - 1)), Release);
    }

    /// The evictor's: takes the slots off all points that nobody leases.
    #[inline]
    pub(crate) fn deflate_idle(&self, queue: &Queue, guard: &Guard<'_>) {
        // Relaxed: whoever inflates now does so after this look.
        let taken = self.taken.load(Relaxed);
        if taken != 0 {
            let leases = |name| self.stripes(name).iter().map(|stripe| stripe.leases.load(Relaxed)).sum::<u64>();
            // The sum is a hint: to close a point that is in use is to be in its way.
            let idle = self.taken(taken).filter(|name| leases(*name) == 0);
            idle.for_each(|name| self.deflate(name, queue, guard));
        }
    }

    /// The evictor's: the same, but closes those in use as well to look again.
    pub(crate) fn deflate_all(&self, queue: &Queue, guard: &Guard<'_>) {
        // Changes nothing. Acquire: finds attached what was attached before. Release: E18.
        self.taken(self.taken.fetch_or(0, AcqRel)).for_each(|name| self.deflate(name, queue, guard));
    }

    fn taken(&self, bits: u64) -> impl Iterator<Item = SlotName> {
        (0..self.slots.len() as u8).filter(move |i| bits & 1 << i != 0).filter_map(|i| SlotName::new(i + 1))
    }

    fn deflate(&self, name: SlotName, queue: &Queue, guard: &Guard<'_>) {
        // Acquire: HP1.
        let Some(point) = Ref::from_ptr(self.slot(name).point.load(Acquire), guard) else { return };
        // Relaxed: the evictor alone detaches; where it is not attached yet there is nothing to do.
        if point.word.load(Relaxed).slot() != Some(name) {
            return;
        }
        if !self.close_idle(&point.word, name) {
            return;
        }
        crate::sync::point!("hot::summed");
        for stripe in self.stripes(name) {
            point.statistics.take_in(stripe.statistics.take_out(), guard);
        }
        if point.word.detach() {
            queue.push(point);
        }
        self.vacate(name);
    }

    /// Closes the slot that is attached to `word` if nobody counts on its stripes. The evictor's.
    pub(crate) fn close_idle(&self, word: &Word, name: SlotName) -> bool {
        word.close();
        crate::sync::point!("hot::closed");
        // `look` acquires: E13.
        let idle = self.leases(name) == 0;
        if !idle {
            word.reopen();
        }
        idle
    }

    /// Whether `point` and the slots agree about it: for `validate`, at rest.
    pub(crate) fn agree(&self, point: Ref<'_, Point>) -> bool {
        // Relaxed, twice: nothing is followed.
        let word = point.word.load(Relaxed);
        let names_it = |name| self.slot(name).point.load(Relaxed) == point.as_ptr();
        let slot = word.slot();
        word.is_open() == slot.is_some() && slot.is_none_or(|name| names_it(name) && self.leases(name) > 0)
    }

    /// Leases that count on a slot's stripes.
    fn leases(&self, name: SlotName) -> u64 {
        self.stripes(name).iter().map(|stripe| dekker::look(&stripe.leases)).sum()
    }
}
