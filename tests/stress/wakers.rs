//! Wakers that misbehave: what they are asked to do is the caller's code, and does anything.
#![allow(unsafe_code)]

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::thread::panicking;

use fastrand::Rng;

use crate::held::{Filling, Held};
use crate::waiting::Task;
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

/// The state of a waker and its clones.
pub struct Wild {
    world: &'static World,
    task: Weak<Task>,
    cloned: Manner,
    woken: Manner,
    dropped: Manner,
    dice: AtomicU64,
    /// Goes with the last clone.
    _holds: (Option<Held>, Option<Filling>),
}

impl Wild {
    pub fn new(
        world: &'static World,
        task: &Arc<Task>,
        held: Option<Held>,
        filling: Option<Filling>,
        dice: &mut Rng,
    ) -> Self {
        let mut rarely = || if dice.u8(..4) == 0 { MANNERS[dice.usize(..MANNERS.len())] } else { Manner::Nothing };
        let (cloned, dropped) = (rarely(), rarely());
        let woken = MANNERS[dice.usize(..MANNERS.len())];
        let (task, dice) = (Arc::downgrade(task), AtomicU64::new(dice.u64(..)));
        Self { world, task, cloned, woken, dropped, dice, _holds: (held, filling) }
    }

    fn act(&self, manner: Manner) {
        match manner {
            Manner::Nothing => {}
            Manner::Polls => self.task.upgrade().into_iter().for_each(|task| self.poll(&task)),
            Manner::PollsAnother => {
                let first = self.world.tasks.try_lock().and_then(|tasks| tasks.first().cloned());
                first.into_iter().for_each(|task| self.poll(&task));
            }
            Manner::Enters => self.enter(),
            // Past the hook: this panic is no news. A second one would end the process, and none is wanted.
            Manner::Panics if !panicking() => resume_unwind(Box::new("expected")),
            Manner::Panics => {}
        }
    }

    fn poll(&self, task: &Task) {
        if let Some(reservation) = task.poll(Waker::noop()) {
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
            _ => _ = cache.set_policy(self.world.setting.policy),
        }
    }
}

impl Drop for Wild {
    fn drop(&mut self) {
        self.act(self.dropped);
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |wild| {
        // SAFETY: the pointer came from `Arc::into_raw`, and the waker that is cloned is counted.
        unsafe { &*wild.cast::<Wild>() }.act_cloned();
        // SAFETY: as above.
        unsafe { Arc::increment_strong_count(wild.cast::<Wild>()) };
        RawWaker::new(wild, &TABLE)
    },
    |wild| {
        // SAFETY: as above; this waker's count is taken over.
        let wild = unsafe { Arc::from_raw(wild.cast::<Wild>()) };
        wild.act(wild.woken);
    },
    |wild| {
        // SAFETY: as above; the waker stays.
        let wild = unsafe { &*wild.cast::<Wild>() };
        wild.act(wild.woken);
    },
    |wild| {
        // SAFETY: as above; this waker's count is taken over.
        drop(unsafe { Arc::from_raw(wild.cast::<Wild>()) });
    },
);

impl Wild {
    fn act_cloned(&self) {
        self.act(self.cloned);
    }
}

pub fn waker(wild: Wild) -> Waker {
    let data = Arc::into_raw(Arc::new(wild)).cast();
    // SAFETY: the table's functions treat the pointer as the count of an `Arc`, which may be sent and shared.
    unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
}
