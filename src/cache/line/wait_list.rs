//! The wait list: threads and tasks that wait for blocks, in the order in which they are served.
//!
//! A request that finds too few blocks joins the list, through `waiter` and `in_line`. Only the
//! first in the list tries again. A waiter that leaves, served or not, wakes the next one. A thread
//! that makes blocks available calls `Inner::ring`, which wakes the first waiter, if any.
//!
//! There are two *lanes*: requests of running sequences (growth) are served before requests that
//! are to be admitted. An admission that [`PASSED`] growth requests have passed is *overdue*: it
//! looks first whenever blocks become available. If there are too few for it, the growth requests
//! continue, because the blocks that it needs return when running sequences end.
//!
//! A request whose namespace is at its limit is *held back*, so that it delays no other namespace:
//! it leaves its lane and waits in the *line* of its namespace and lane. Later requests of that
//! namespace and lane join the line when it is their turn. A growth request that is held back also
//! holds back the admissions of its namespace, except an overdue one; never the reverse. The first
//! of each line is also woken. It checks whether its quota allows the request now, and if so
//! returns to its position in its lane.
//!
//! **No wake-up is lost.** A waiter joins the list and then looks for blocks; a releaser gives
//! blocks back and then looks for waiters. At least one must see the other. Fences would ensure
//! that, but cost every release. Instead both do a read-modify-write of one location, for each way
//! in which blocks become available: of two read-modify-writes one comes first, and the second sees
//! everything before it.
//!
//! | edge | releaser | waiter | location |
//! |---|---|---|---|
//! | E15 | `Queue::push` after a release that was queued | `Queue::drain_for_waiter` | the queue's head |
//! | E16, E21 | `Pool::give_back`; `Pool::free_for_waiter` where only a charge ends, or a retention is requested | `Pool::free_for_waiter` | the count of free blocks |
//! | E17 | `HotPoints::leave`, and `enter` of a closed slot | `HotPoints::deflate_all` | the stripe |
//! | E18 | `HotPoints::inflate`, before a release that is not queued because of the bias | `HotPoints::deflate_all` | the slots taken |
//!
//! Quota limits need no edge of their own: they are set, and waiters read them, under the evictor's
//! lock. A thread whose refused charge has ended reads them without it, after E21.
//!
//! A request to retain also finds `QUEUED` set at times, and the thread that then pushes the entry
//! need not look for waiters. So such requests are counted, and published by the count of free
//! blocks (E21): a waiter that has taken in fewer looks again after a pause (`Inner::next_look`).
//!
//! A release that finds `QUEUED` set pushes nothing and relies on the thread that pushes that
//! entry: either its push (E15) comes later, or the entry is in the queue, and the waiter takes it
//! out after the release.
//!
//! A background evictor that finds nothing to evict below its low watermark waits in the same way,
//! outside the list but by the same edges: it calls [`WaitList::evictor_waits`], then looks on the
//! waiter's side of the edges.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, Signal, contained, model_size};

/// The count's increment for one waiter.
const WAITER: usize = 2;
/// Set in the count while the background evictor waits.
const EVICTOR: usize = 1;

/// The number of growth requests that may pass an admission.
const PASSED: u64 = model_size(64, 0) as u64;

/// The waiters, in the order in which they are served.
#[derive(Debug)]
pub(in crate::cache) struct WaitList {
    /// The number of waiters, times [`WAITER`], and the bit [`EVICTOR`].
    waiting: CachePadded<AtomicUsize>,
    waiters: Mutex<Waiters>,
    /// Whether waiting is possible; false in models of other protocols, which then need not explore
    /// it.
    open: bool,
}

/// The lane of a waiter: all waiters of the first lane are served before those of the second,
/// within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cache) enum Lane {
    /// For a running sequence that needs more blocks.
    Growth,
    /// For a request that waits to be admitted.
    Admission,
}

/// The position of a waiter.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Place {
    /// Its number in the order of arrival.
    ticket: u64,
    lane: Lane,
    /// Identifies its namespace's lines.
    lines: usize,
}

impl Place {
    /// Its key in its lane.
    fn in_lane(self) -> LineKey {
        (0, self.lane, self.ticket)
    }

    /// Its key among the lines.
    fn in_line(self) -> LineKey {
        (self.lines, self.lane, self.ticket)
    }
}

/// What a waiter may do at its next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum QueuePosition {
    /// It may take blocks.
    First,
    /// It is the first in its namespace's line: it may check whether the quota allows its request
    /// now.
    HeldBack,
    /// Other waiters come first.
    Behind,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// For an admission: it is overdue once this many growth requests were served.
    patience: u64,
    /// For an admission: its last look found too few blocks, and none have become available since.
    in_vain: bool,
    signal: Arc<Signal>,
}

/// The number of a namespace's lines (zero in a lane), the lane, and the ticket.
type LineKey = (usize, Lane, u64);

type Entries = BTreeMap<LineKey, Entry>;

#[derive(Debug, Default)]
struct Waiters {
    growing: Entries,
    admissions: Entries,
    /// The waiters that are held back.
    lines: Entries,
    tickets: u64,
    /// Number of growth requests that were served.
    grown: u64,
}

impl Waiters {
    fn lane(&mut self, lane: Lane) -> &mut Entries {
        match lane {
            Lane::Growth => &mut self.growing,
            Lane::Admission => &mut self.admissions,
        }
    }

    /// The first waiter that is not held back. Waiters that must follow a held-back one of their
    /// namespace are moved to its line on the way.
    fn first(&mut self) -> Option<&Entry> {
        while let Some(entry) = self.next() {
            let place = entry.place;
            let behind_growth = place.lane == Lane::Admission
                && !self.is_overdue(entry)
                && self.first_of(place.lines, Lane::Growth).is_some();
            let before = self.first_of_line(place).is_some_and(|held_back| held_back.place.ticket < place.ticket);
            if !before && !behind_growth {
                break;
            }
            self.hold_back(place);
        }
        self.next()
    }

    fn next(&self) -> Option<&Entry> {
        let admission = self.admissions.values().next();
        let goes_first = |entry: &&Entry| self.growing.is_empty() || (self.is_overdue(entry) && !entry.in_vain);
        admission.filter(goes_first).or_else(|| self.growing.values().next())
    }

    /// Lets the first admission look again: blocks may have become available since its last look.
    fn let_look_again(&mut self) {
        if let Some(mut admission) = self.admissions.first_entry() {
            admission.get_mut().in_vain = false;
        }
    }

    fn is_overdue(&self, admission: &Entry) -> bool {
        admission.patience <= self.grown
    }

    /// The first admission, if it is overdue.
    fn overdue(&self) -> Option<&Entry> {
        self.admissions.values().next().filter(|entry| self.is_overdue(entry))
    }

    fn hold_back(&mut self, place: Place) {
        if let Some(entry) = self.lane(place.lane).remove(&place.in_lane()) {
            self.lines.insert(place.in_line(), entry);
        }
    }

    /// Takes a waiter out of its line, if it is in one.
    fn take_from_line(&mut self, place: Place) -> Option<Entry> {
        self.lines.remove(&place.in_line())
    }

    fn first_signal(&mut self) -> Option<Arc<Signal>> {
        self.first().map(|entry| Arc::clone(&entry.signal))
    }

    /// The first waiter in the line of this place.
    fn first_of_line(&self, place: Place) -> Option<&Entry> {
        self.first_of(place.lines, place.lane)
    }

    fn first_of(&self, lines: usize, lane: Lane) -> Option<&Entry> {
        let first = self.lines.range((lines, lane, 0)..).next();
        first.filter(|((of, in_lane, _), _)| (*of, *in_lane) == (lines, lane)).map(|(_, entry)| entry)
    }

    /// The first waiter of each line: of one namespace, or of all.
    fn firsts_of_lines(&self, of: Option<usize>) -> impl Iterator<Item = &Entry> {
        let first = self.lines.range((of.unwrap_or(0), Lane::Growth, 0)..).next();
        // Tickets stay below the greatest number.
        let next = |(key, _): &(&LineKey, &Entry)| self.lines.range((key.0, key.1, u64::MAX)..).next();
        let firsts = std::iter::successors(first, next);
        firsts.take_while(move |((lines, ..), _)| of.is_none_or(|of| of == *lines)).map(|(_, entry)| entry)
    }
}

impl WaitList {
    pub(in crate::cache) fn new(open: bool) -> Self {
        Self { waiting: CachePadded::new(AtomicUsize::new(0)), waiters: Mutex::new(Waiters::default()), open }
    }

    /// Whether a thread or task waits.
    #[inline]
    pub(in crate::cache) fn has_waiters(&self) -> bool {
        // Relaxed: E15 to E18.
        self.open && self.waiting.load(Relaxed) >= WAITER
    }

    /// Whether a thread, a task or the background evictor waits.
    #[inline]
    pub(in crate::cache) fn is_awaited(&self) -> bool {
        // Relaxed: E15 to E18.
        self.open && self.waiting.load(Relaxed) != 0
    }

    /// Number of threads and tasks that wait.
    pub(in crate::cache) fn len(&self) -> usize {
        // Relaxed: a number for statistics.
        self.waiting.load(Relaxed) / WAITER
    }

    /// Wakes the first waiter, if any, and the first of each line. Runs their wakers: call it with
    /// no lock held.
    #[cold]
    pub(in crate::cache) fn wake(&self) {
        let mut waiters = self.waiters.lock();
        waiters.let_look_again();
        let (first, of_lines) = (waiters.first_signal(), signals(waiters.firsts_of_lines(None)));
        drop(waiters);
        raise(first.into_iter().chain(of_lines));
    }

    /// Wakes the first waiter and the first of each line of this namespace, except the one at
    /// `place`, which has just found too few blocks: blocks that it held briefly may have made
    /// other looks fail. A look from a line makes none fail, because it takes nothing.
    pub(in crate::cache) fn wake_another(&self, place: Place) {
        let mut waiters = self.waiters.lock();
        if let Some(entry) = waiters.admissions.get_mut(&place.in_lane()) {
            entry.in_vain = true;
        }
        let is_another = |entry: &&Entry| entry.place.ticket != place.ticket;
        let first = waiters.first().filter(is_another).map(|first| Arc::clone(&first.signal));
        let of_lines = signals(waiters.firsts_of_lines(Some(place.lines)).filter(is_another));
        drop(waiters);
        raise(first.into_iter().chain(of_lines));
    }

    /// Registers the background evictor as waiting: it is called when blocks may have become
    /// available. Its next look, on the waiter's side of E15 to E18, sees everything that was given
    /// back before.
    pub(in crate::cache) fn evictor_waits(&self) {
        // Relaxed: E15 to E18 publish it.
        self.waiting.fetch_or(EVICTOR, Relaxed);
    }

    pub(in crate::cache) fn evictor_is_waiting(&self) -> bool {
        // Relaxed: the evictor's own bit; if a call has just cleared it, the evictor looks once
        // more.
        self.waiting.load(Relaxed) & EVICTOR != 0
    }

    /// Ends the background evictor's wait; true if it waited.
    pub(in crate::cache) fn evictor_wakes(&self) -> bool {
        // Relaxed, twice: an extra call does no harm.
        self.waiting.load(Relaxed) & EVICTOR != 0 && self.waiting.fetch_and(!EVICTOR, Relaxed) & EVICTOR != 0
    }

    /// Joins the list as the last of its lane.
    pub(in crate::cache) fn append(&self, lane: Lane, lines: usize) -> (Place, Arc<Signal>) {
        let signal = Arc::new(Signal::new());
        let mut waiters = self.waiters.lock();
        let place = Place { ticket: waiters.tickets, lane, lines };
        waiters.tickets += 1;
        let patience = waiters.grown + PASSED;
        let entry = Entry { place, patience, in_vain: false, signal: Arc::clone(&signal) };
        waiters.lane(lane).insert(place.in_lane(), entry);
        // Relaxed: E15 to E18 publish it.
        self.waiting.fetch_add(WAITER, Relaxed);
        (place, signal)
    }

    pub(in crate::cache) fn position(&self, place: Place) -> QueuePosition {
        let mut waiters = self.waiters.lock();
        let is = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.place.ticket == place.ticket);
        // An overdue admission may look while growth requests continue without it.
        if is(waiters.first()) || is(waiters.overdue()) {
            QueuePosition::First
        } else if is(waiters.first_of_line(place)) {
            QueuePosition::HeldBack
        } else {
            QueuePosition::Behind
        }
    }

    /// Lets others pass a waiter whose quota does not allow its request; wakes the first of them.
    pub(in crate::cache) fn hold_back(&self, place: Place) {
        let mut waiters = self.waiters.lock();
        waiters.hold_back(place);
        let next = waiters.first_signal();
        drop(waiters);
        raise(next);
    }

    /// Moves a held-back waiter from its line to its position in its lane.
    pub(in crate::cache) fn let_pass(&self, place: Place) {
        let mut waiters = self.waiters.lock();
        if let Some(entry) = waiters.take_from_line(place) {
            waiters.lane(place.lane).insert(place.in_lane(), Entry { in_vain: false, ..entry });
        }
    }

    /// Counts a served growth request, which has passed the waiting admissions.
    pub(in crate::cache) fn count_served(&self, place: Place) {
        if place.lane == Lane::Growth {
            self.waiters.lock().grown += 1;
        }
    }

    pub(in crate::cache) fn leave(&self, place: Place) {
        let mut waiters = self.waiters.lock();
        let left = waiters.lane(place.lane).remove(&place.in_lane()).or_else(|| waiters.take_from_line(place));
        // Relaxed: if the count is too high, a wake-up is wasted.
        self.waiting.fetch_sub(WAITER, Relaxed);
        if place.lane == Lane::Admission {
            waiters.let_look_again();
        }
        // Also the lines of its namespace: they may have waited behind it.
        let (next, of_lines) = (waiters.first_signal(), signals(waiters.firsts_of_lines(Some(place.lines))));
        drop(waiters);
        drop(left);
        raise(next.into_iter().chain(of_lines));
    }
}

fn signals<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Arc<Signal>> {
    entries.map(|entry| Arc::clone(&entry.signal)).collect()
}

/// Raises the signals. Dropping the last handle of one drops its waker, which is also the caller's
/// code.
fn raise(signals: impl IntoIterator<Item = Arc<Signal>>) {
    for signal in signals {
        signal.raise();
        contained(|| drop(signal));
    }
}
