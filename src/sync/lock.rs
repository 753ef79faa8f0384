//! A mutex that is never poisoned by a panicking holder, in every build, and a condition variable
//! for it.
//!
//! It wraps the standard library's mutex. On systems with futexes, an unlock is one
//! read-modify-write and, if a thread waits, one system call. So an unlock is not delayed by a
//! thread that is stopped while it falls asleep at the lock, as it would be in a mutex with its own
//! table of waiters.

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

/// How many times a thread checks whether the lock is free before it sleeps; this takes some tens
/// of microseconds. Most holds are shorter than the time that the system takes to wake a thread.
const LOOKS: u32 = 2_000;

/// How long [`unlock_fairly`] lets a waiting thread take the lock: longer than waking it takes.
const COURTESY: Duration = Duration::from_millis(1);

/// A mutex that a panicking holder does not poison.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    inner: backend::Mutex<T>,
    /// In its own cache line: a waiting thread reads it repeatedly; attempts to lock instead would
    /// take the holder's cache line.
    hints: CachePadded<Hints>,
}

/// Counts that no model explores. Every access is Relaxed: no memory depends on them.
#[derive(Debug)]
struct Hints {
    /// About how often the lock was released: a delayed store may overwrite a newer one.
    released: AtomicUsize,
    /// Number of waiting threads.
    waiting: AtomicUsize,
    /// How many times a thread waited for the lock and got it.
    served: AtomicUsize,
    longest: LongestHold,
}

/// A held lock.
pub(crate) struct MutexGuard<'a, T> {
    // Dropped before `notice`: unlocking waits for all earlier stores, and a store to the hints is
    // slow, because a waiting thread has their cache line.
    inner: backend::MutexGuard<'a, T>,
    notice: ReleaseNotice<'a>,
    of: &'a Mutex<T>,
}

/// Notes when dropped that the lock was released.
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
        // Relaxed: a hint. Not a read-modify-write, which would wait for the cache line.
        self.hints.released.store(self.released, Relaxed);
        self.hints.longest.end(self.began);
    }
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with(value, LongestHold::default())
    }

    /// Makes a mutex whose holds are measured (feature `holds`).
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

    /// Takes the lock if it becomes free within some tens of microseconds; spins, never sleeps.
    /// `None` if it stays busy, or as soon as `ends` returns true.
    #[inline]
    pub(crate) fn lock_awake(&self, ends: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
        if cfg!(any(radixkv_loom, radixkv_shuttle)) {
            // In models, the attempt would only add a point at which threads switch.
            return Some(self.sleep_for_it());
        }
        self.try_lock().or_else(|| self.look_for_it(ends))
    }

    /// Whether a thread waits for the lock: a hint.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        // Relaxed: a hint.
        self.hints.waiting.load(Relaxed) > 0
    }

    #[cold]
    fn look_for_it(&self, ends: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
        self.counted(|| self.spin_for_it(ends))
    }

    /// Takes the lock; sleeps while it is held.
    #[cold]
    pub(crate) fn lock_asleep(&self) -> MutexGuard<'_, T> {
        self.counted(|| Some(self.sleep_for_it())).expect("the wait returns a guard")
    }

    /// Counts this thread as waiting while `wait` runs.
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
            // Always tries at the first look: a release may not have been noted yet.
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

    /// Spins until the lock is free. This code is compiled with the crate, so that ThreadSanitizer
    /// sees that the lock changes hands.
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

/// A condition variable for [`Mutex`].
#[derive(Debug)]
pub(crate) struct Condvar(backend::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(backend::Condvar::new())
    }

    /// Waits for a notification, `deadline` or a spurious wake-up; returns whether the deadline has
    /// passed. In models no deadline passes, so a thread that is never notified is reported.
    #[cfg(not(radixkv_tsan))]
    pub(crate) fn wait<'a, T>(&self, lock: MutexGuard<'a, T>, deadline: Option<Instant>) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard { inner, notice, of } = lock;
        // A little early: the wait below releases the lock.
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

    /// As above, but checks every 50 us, so that ThreadSanitizer sees that the lock changes hands.
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

/// Unlocks. If threads wait, gives one of them time to take the lock, at most [`COURTESY`], so that
/// a loop that locks again at once does not starve them.
pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
    let MutexGuard { inner, notice, of } = guard;
    let Hints { waiting, served, .. } = &*of.hints;
    // Relaxed, here and below: hints.
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
