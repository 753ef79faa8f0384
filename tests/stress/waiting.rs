//! Those who wait for blocks: with a deadline, and as futures that any thread polls, forgets or drops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use radixkv::{PrefixCache, Reservation, ReserveError, Reserving};

use crate::held::Filling;
use crate::wakers::{Wild, waker};
use crate::worker::Worker;
use crate::world::World;

/// A thread waits for blocks at most so long.
const LONGEST_WAIT: Duration = Duration::from_millis(2);
/// Tasks of one round at once.
const MOST_TASKS: usize = 6;

/// A future that any thread may poll, its own waker included.
pub struct Task(Mutex<Option<Pin<Box<Reserving>>>>);

impl Task {
    pub fn new(cache: &PrefixCache, blocks: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Box::pin(cache.reserve_async(blocks))))))
    }

    /// Polls it, if nobody else is at it; what it gives. A waker's panic ends the poll and nothing else.
    pub fn poll(&self, waker: &Waker) -> Option<Reservation> {
        let mut future = self.0.try_lock()?;
        let mut served = None;
        // Cloning this waker and dropping the one of before run here, and may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let polled = future.as_mut()?.as_mut().poll(&mut Context::from_waker(waker));
            if let Poll::Ready(ready) = polled {
                served = Some(ready.expect("it can be served"));
            }
            Some(())
        }));
        if served.is_none() {
            return None;
        }
        let done = future.take();
        drop(future);
        let_go(done);
        served
    }

    /// Drops the future, unless somebody is at it.
    pub fn cancel(&self) {
        let future = self.0.try_lock().and_then(|mut future| future.take());
        let_go(future);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let_go(self.0.get_mut().take());
    }
}

/// Drops what a waker may go with, which may panic.
pub fn let_go<T>(what: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
}

impl Worker {
    /// Waits for blocks with a deadline.
    pub fn wait(&mut self) {
        let blocks = self.dice.usize(1..=self.world.setting.capacity / 4);
        let deadline = Instant::now() + LONGEST_WAIT / self.dice.u32(1..=100);
        match self.session.reserve_until(blocks, deadline) {
            Ok(reservation) => {
                assert_eq!(reservation.len(), blocks, "all or nothing");
                drop(Filling::new(self.world, reservation));
                self.tally.served += 1;
            }
            Err(ReserveError::TimedOut { requested, available }) => {
                assert!(requested == blocks && available <= self.world.setting.capacity);
                self.let_tasks_go();
            }
            Err(error) => panic!("refused without a reason: {error}"),
        }
    }

    /// Makes a task, polls one of somebody's, or drops one.
    pub fn await_blocks(&mut self) {
        let task = match self.dice.u8(..4) {
            0 => return self.let_tasks_go(),
            1 => {
                let tasks = self.world.tasks.lock();
                self.dice.choice(tasks.iter()).cloned()
            }
            _ => None,
        };
        let blocks = self.dice.usize(1..=self.world.setting.capacity / 4);
        let task = task.unwrap_or_else(|| self.new_task(blocks));
        let held = if self.dice.u8(..4) == 0 { self.take_kept() } else { None };
        let filling = if self.dice.u8(..8) == 0 { self.reserve(None, 1) } else { None };
        let wild = Wild::new(self.world, &task, held, filling, &mut self.dice);
        let waker = waker(wild);
        if let Some(reservation) = task.poll(&waker) {
            drop(Filling::new(self.world, reservation));
            self.tally.served += 1;
        }
        let_go(waker);
    }

    fn new_task(&mut self, blocks: usize) -> Arc<Task> {
        let task = Task::new(&self.world.cache, blocks);
        let mut tasks = self.world.tasks.lock();
        tasks.push(Arc::clone(&task));
        let oldest = (tasks.len() > MOST_TASKS).then(|| tasks.remove(0));
        drop(tasks);
        drop(oldest);
        task
    }

    /// Some task is given up: those in the line behind it have their turn.
    pub fn let_tasks_go(&mut self) {
        let mut tasks = self.world.tasks.lock();
        let count = tasks.len();
        let task = (count > 0).then(|| tasks.swap_remove(self.dice.usize(..count)));
        drop(tasks);
        if let Some(task) = task {
            task.cancel();
        }
    }
}

/// Caches that a forgotten future keeps: out of sight, but not lost to who looks for leaks.
static FORGOTTEN: Mutex<Vec<Pin<Box<Reserving>>>> = Mutex::new(Vec::new());

/// Leaves a future that stands first in the line and is never polled again.
pub fn forget_a_future(world: &World) {
    let session = world.cache.session();
    let reservation = session.reserve(1).expect("nothing is held");
    let mut future = Box::pin(world.cache.reserve_async(world.setting.capacity));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(reservation);
    FORGOTTEN.lock().push(future);
    let refused = session.reserve_until(world.setting.capacity + 1 - 1, Instant::now() + LONGEST_WAIT);
    // The first attempt stands in no line where nobody waits; here somebody does.
    assert!(matches!(refused, Err(ReserveError::TimedOut { .. })), "{refused:?}");
    assert!(session.reserve(world.setting.capacity).is_ok(), "a plain reserve goes past those who wait");
}
