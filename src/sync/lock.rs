//! A mutex that a panicking holder does not poison, in every build, and a condition variable that hands its lock over and
//! back.
//!
//! The standard library's mutex is behind it: where the system has futexes, unlocking is a read-modify-write and, with a
//! waiter, a system call. So a thread that is stopped on its way to sleep at a lock does not delay an unlock; a mutex that
//! keeps its waiters in a table of its own would.

use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
use std::time::{Duration, Instant};

#[cfg(radixkv_loom)]
use loom::sync as backend;
#[cfg(all(radixkv_shuttle, not(radixkv_loom)))]
use shuttle::sync as backend;
#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
use std::sync as backend;

use crossbeam_utils::CachePadded;

use super::gauge::{AtomicUsize, Relaxed};
use super::holds::{Beginning, LongestHold};
use super::{spin_loop, thread};

/// How often a thread looks whether the lock is free before it sleeps: for some tens of microseconds. Most holds are shorter than
/// the system takes to wake a thread.
const LOOKS: u32 = 2_000;

/// How long [`unlock_fairly`] waits for a waiting thread to take the lock: longer than a system takes to wake one.
const COURTESY: Duration = Duration::from_millis(1);

/// A mutex; a panicking holder poisons nothing.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    inner: backend::Mutex<T>,
    /// Apart from what the lock guards: a thread that waits looks here again and again, and an attempt to lock would take the
    /// holder's cache line.
    hints: CachePadded<Hints>,
}

/// What no model explores. Every access is relaxed: no memory depends on it.
#[derive(Debug)]
struct Hints {
    /// How often the lock was given up, or nearly: a store that comes late may take one back.
    released: AtomicUsize,
    /// Threads that wait.
    waiting: AtomicUsize,
    /// Threads that have waited and got it so far.
    served: AtomicUsize,
    longest: LongestHold,
}

/// The lock, held.
pub(crate) struct MutexGuard<'a, T> {
    // Dropped first: to unlock waits for every store before it, and a thread that waits has the hints' cache line.
    inner: backend::MutexGuard<'a, T>,
    notice: ReleaseNotice<'a>,
    of: &'a Mutex<T>,
}

/// Says that the lock was given up.
struct ReleaseNotice<'a> {
    hints: &'a Hints,
    released: usize,
    began: Beginning,
}

impl<'a> ReleaseNotice<'a> {
    fn of(hints: &'a Hints) -> Self {
        // Relaxed: a hint.
        Self { hints, released: hints.released.load(Relaxed).wrapping_add(1), began: hints.longest.begin() }
    }
}

impl Drop for ReleaseNotice<'_> {
    fn drop(&mut self) {
        // Relaxed: a hint. Not counted by a read-modify-write: that would wait for the line.
        self.hints.released.store(self.released, Relaxed);
        self.hints.longest.end(self.began);
    }
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with(value, LongestHold::default())
    }

    /// One whose holds are measured (feature `holds`).
    pub(crate) fn measured(value: T) -> Self {
        Self::with(value, LongestHold::measured())
    }

    fn with(value: T, longest: LongestHold) -> Self {
        let [released, waiting, served] = std::array::from_fn(|_| AtomicUsize::new(0));
        let hints = Hints { released, waiting, served, longest };
        Self { inner: backend::Mutex::new(value), hints: CachePadded::new(hints) }
    }

    fn held<'a>(&'a self, inner: backend::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { inner, notice: ReleaseNotice::of(&self.hints), of: self }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_awake(|| false).unwrap_or_else(|| self.lock_asleep())
    }

    /// The lock, if it is given up while this thread looks for it, for some tens of microseconds: it does not sleep. It stops looking when
    /// `ends` says so.
    #[inline]
    pub(crate) fn lock_awake(&self, ends: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
        if cfg!(any(radixkv_loom, radixkv_shuttle)) {
            // There the attempt would be one more point at which threads switch.
            return Some(self.sleep_for_it());
        }
        self.try_lock().or_else(|| self.look_for_it(ends))
    }

    /// Whether a thread waits: a hint.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        // Relaxed: a hint.
        self.hints.waiting.load(Relaxed) > 0
    }

    #[cold]
    fn look_for_it(&self, ends: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
        self.counted(|| self.spin_for_it(ends))
    }

    /// The lock, for which this thread sleeps until it is given up.
    #[cold]
    pub(crate) fn lock_asleep(&self) -> MutexGuard<'_, T> {
        self.counted(|| Some(self.sleep_for_it())).expect("it was waited for")
    }

    /// Waits, counted among those that do.
    fn counted<'a>(&'a self, wait: impl FnOnce() -> Option<MutexGuard<'a, T>>) -> Option<MutexGuard<'a, T>> {
        // Relaxed, here and below: a hint.
        self.hints.waiting.fetch_add(1, Relaxed);
        let guard = wait();
        self.hints.waiting.fetch_sub(1, Relaxed);
        self.hints.served.fetch_add(usize::from(guard.is_some()), Relaxed);
        guard
    }

    fn spin_for_it(&self, ends: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
        // Relaxed, here and below: a hint.
        let mut seen = self.hints.released.load(Relaxed);
        (0..LOOKS).take_while(|_| !ends()).find_map(|look| {
            spin_loop();
            let released = self.hints.released.load(Relaxed);
            // The first time too: it may have been given up before that was noted.
            let tries = look == 0 || std::mem::replace(&mut seen, released) != released;
            if tries { self.try_lock() } else { None }
        })
    }

    fn sleep_for_it(&self) -> MutexGuard<'_, T> {
        #[cfg(not(radixkv_tsan))]
        let guard = self.held(self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        #[cfg(radixkv_tsan)]
        let guard = self.spin();
        guard
    }

    /// Waits where ThreadSanitizer sees the lock change hands: in code that is compiled with the crate.
    #[cfg(radixkv_tsan)]
    fn spin(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            thread::yield_now();
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.held(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.held(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The longest hold since the last call, if holds are measured.
    #[cfg(feature = "holds")]
    pub(crate) fn longest_hold(&self) -> Duration {
        self.hints.longest.take()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Where a thread that holds a lock waits for another thread to change what the lock guards.
#[derive(Debug)]
pub(crate) struct Condvar(backend::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(backend::Condvar::new())
    }

    /// Waits until it is notified or `deadline` has come, or wakes spuriously; whether the deadline has passed. In models
    /// no deadline passes, so a thread that is never notified is reported.
    #[cfg(not(radixkv_tsan))]
    pub(crate) fn wait<'a, T>(&self, lock: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { inner, notice, of } = lock;
        // A little early: the lock is given up in the call that waits.
        drop(notice);
        #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
        if let Some(deadline) = deadline {
            let pause = deadline.saturating_duration_since(Instant::now());
            let (inner, _) = self.0.wait_timeout(inner, pause).unwrap_or_else(|poisoned| poisoned.into_inner());
            return (of.held(inner), Instant::now() >= deadline);
        }
        let _ = deadline;
        let inner = self.0.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
        (of.held(inner), false)
    }

    /// The same where ThreadSanitizer sees the lock change hands: looks every 50 us.
    #[cfg(radixkv_tsan)]
    pub(crate) fn wait<'a, T>(&self, lock: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { inner, notice, of } = lock;
        drop((inner, notice));
        thread::sleep(std::time::Duration::from_micros(50));
        (of.spin(), deadline.is_some_and(|deadline| Instant::now() >= deadline))
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// Unlocks, and if threads wait gives one of them the time to take the lock, so that a loop that locks again at once does
/// not keep it from them. Bounded: after [`COURTESY`] it returns all the same.
pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
    let MutexGuard { inner, notice, of } = guard;
    let Hints { waiting, served, .. } = &*of.hints;
    // Relaxed, all: hints.
    let (waits, before) = (waiting.load(Relaxed) > 0, served.load(Relaxed));
    drop(inner);
    drop(notice);
    if !waits || cfg!(any(radixkv_loom, radixkv_shuttle)) {
        return;
    }
    let began = Instant::now();
    while served.load(Relaxed) == before && began.elapsed() < COURTESY {
        thread::yield_now();
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
