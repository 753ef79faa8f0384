//! Wakers that misbehave: what they are asked to do is the caller's code, and does anything.
#![allow(unsafe_code)]

use std::panic::resume_unwind;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed, Release},
};
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::thread::panicking;

use fastrand::Rng;

use crate::held::{Filling, Held};
use crate::waiting::TASKS;
use crate::world::World;

/// What a waker does when it is cloned, woken or dropped.
#[derive(Clone, Copy)]
enum Manner {
    Nothing,
    /// Polls its own future at once.
    Polls,
    /// Polls another one.
    PollsAnother,
    /// Uses the cache.
    Enters,
    Panics,
}

const MANNERS: [Manner; 5] = [Manner::Nothing, Manner::Polls, Manner::PollsAnother, Manner::Enters, Manner::Panics];

/// The state of a waker and its clones, and how many they are. Not an `Arc`, whose last fence
/// ThreadSanitizer does not see.
struct Wild {
    count: AtomicUsize,
    world: &'static World,
    task: usize,
    cloned: Manner,
    woken: Manner,
    dropped: Manner,
    dice: AtomicU64,
    /// Goes with the last clone.
    _holds: (Option<Held>, Option<Filling>),
}

impl Wild {
    fn act(&self, manner: Manner) {
        match manner {
            Manner::Nothing => {}
            Manner::Polls => self.poll(self.task),
            Manner::PollsAnother => self.poll((self.task + 1) % TASKS),
            Manner::Enters => self.enter(),
            // Past the hook: this panic is no news. A second one would end the process, and none is
            // wanted.
            Manner::Panics if !panicking() => resume_unwind(Box::new("expected")),
            Manner::Panics => {}
        }
    }

    fn poll(&self, task: usize) {
        if let Some(reservation) = self.world.tasks[task].poll(|| None, Waker::noop()) {
            drop(Filling::new(self.world, reservation));
        }
    }

    /// Any verb of the cache, with a session of its own.
    fn enter(&self) {
        let (cache, session) = (&self.world.cache, self.world.cache.session());
        match self.dice.fetch_add(1, Relaxed) % 8 {
            0 => cache.settle(),
            1 => _ = cache.stats(),
            2 => _ = cache.evict(1),
            3 => _ = cache.run_once(),
            4 => drop(session.reserve(1).map(|reservation| Filling::new(self.world, reservation))),
            5 => drop(session.match_prefix(&self.world.namespace(0), &[0; 8])),
            6 => drop(self.world.namespace(1)),
            _ => cache.settings().set_policy(self.world.setting.policy),
        }
    }
}

impl Drop for Wild {
    fn drop(&mut self) {
        self.act(self.dropped);
    }
}

/// # Safety
///
/// `wild` is of a waker of [`TABLE`] that is not dropped yet.
unsafe fn borrow<'a>(wild: *const ()) -> &'a Wild {
    // SAFETY: the caller's waker is counted.
    unsafe { &*wild.cast::<Wild>() }
}

/// # Safety
///
/// `wild` is of a waker of [`TABLE`] that is dropped with this.
unsafe fn release(wild: *const ()) {
    // SAFETY: not dropped before this.
    let borrowed = unsafe { borrow(wild) };
    let world = borrowed.world;
    if borrowed.count.fetch_sub(1, AcqRel) == 1 {
        let _gone = Gone(world);
        // SAFETY: made by `Box::into_raw`, and no other handle is left.
        drop(unsafe { Box::from_raw(wild.cast::<Wild>().cast_mut()) });
    }
}

/// Counts a waker off when all of it has gone, by a panic too.
struct Gone(&'static World);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.wakers.fetch_sub(1, Release);
    }
}

/// Drops a waker when it goes out of scope, by a panic too.
struct Woken(*const ());

impl Drop for Woken {
    fn drop(&mut self) {
        // SAFETY: made where a waker is woken by value.
        unsafe { release(self.0) };
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |wild| {
        // SAFETY: the waker that is cloned is there.
        let original = unsafe { borrow(wild) };
        original.act(original.cloned);
        original.count.fetch_add(1, Relaxed);
        RawWaker::new(wild, &TABLE)
    },
    |wild| {
        let woken = Woken(wild);
        // SAFETY: dropped after this.
        let wild = unsafe { borrow(woken.0) };
        wild.act(wild.woken);
    },
    |wild| {
        // SAFETY: the waker stays.
        let wild = unsafe { borrow(wild) };
        wild.act(wild.woken);
    },
    |wild| {
        // SAFETY: the waker is dropped with this.
        unsafe { release(wild) };
    },
);

/// A waker of that task, which holds on to something, and misbehaves at random.
pub fn waker(world: &'static World, task: usize, holds: (Option<Held>, Option<Filling>), dice: &mut Rng) -> Waker {
    let mut rarely = || if dice.u8(..4) == 0 { MANNERS[dice.usize(..MANNERS.len())] } else { Manner::Nothing };
    let (cloned, dropped) = (rarely(), rarely());
    let woken = MANNERS[dice.usize(..MANNERS.len())];
    let dice = AtomicU64::new(dice.u64(..));
    let wild = Wild { count: AtomicUsize::new(1), world, task, cloned, woken, dropped, dice, _holds: holds };
    world.wakers.fetch_add(1, Relaxed);
    let data = Box::into_raw(Box::new(wild)).cast_const().cast();
    // SAFETY: the table's functions count the clones of the state, which may be sent and shared.
    unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
}
