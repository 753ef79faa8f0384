//! Waiting for blocks: with a deadline, and as futures that any thread polls, forgets or drops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use radixkv::{BlockRequest, Namespace, Reservation, ReserveError, Reserving};

use crate::held::Filling;
use crate::wakers::waker;
use crate::worker::Worker;
use crate::world::World;

/// A thread waits for blocks at most so long.
const LONGEST_WAIT: Duration = Duration::from_millis(2);
/// Tasks of one round at once.
pub const TASKS: usize = 6;

/// A place for a future that any thread may poll, its own waker included.
#[derive(Default)]
pub struct Task(Mutex<Option<Pin<Box<Reserving>>>>);

impl Task {
    /// Polls the future unless another thread does; returns its result. A waker's panic ends the
    /// poll and nothing else.
    pub fn poll(&self, make: impl FnOnce() -> Option<Reserving>, waker: &Waker) -> Option<Reservation> {
        let mut place = self.0.try_lock()?;
        if place.is_none() {
            *place = make().map(Box::pin);
        }
        let future = place.as_mut()?;
        let mut served = None;
        // Cloning this waker and dropping the one of before run here.
        contain(|| {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                served = Some(ready);
            }
        });
        let done = if served.is_some() { place.take() } else { None };
        drop(place);
        contain(|| drop(done));
        served.and_then(|ready| match ready {
            Ok(reservation) => Some(reservation),
            Err(ReserveError::OverQuota { requested, limit, .. }) if requested > limit => None,
            Err(error) => panic!("it can be served: {error}"),
        })
    }

    /// Drops the future unless another thread polls it.
    pub fn cancel(&self) {
        let future = self.0.try_lock().and_then(|mut place| place.take());
        contain(|| drop(future));
    }
}

/// A request to admit or to grow.
fn request<'a>(blocks: usize, payer: Option<&'a Namespace>, dice: &mut fastrand::Rng) -> BlockRequest<'a> {
    let request = payer.map_or(BlockRequest::new(blocks), |payer| BlockRequest::new(blocks).paid_by(payer));
    if dice.u8(..3) == 0 { request.for_running_sequence() } else { request }
}

/// Runs what may panic because of a waker.
pub fn contain(run: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(run));
}

impl Worker {
    /// Waits for blocks with a deadline.
    pub fn wait(&mut self) {
        let blocks = self.dice.usize(1..=self.world.setting.capacity / 4);
        let deadline = Instant::now() + LONGEST_WAIT / self.dice.u32(1..=100);
        let payer = self.pick_payer();
        match self.session.reserve(request(blocks, payer.as_ref(), &mut self.dice).until(deadline)) {
            Ok(reservation) => {
                assert_eq!(reservation.len(), blocks, "all or nothing");
                drop(Filling::new(self.world, reservation));
                self.tally.served += 1;
            }
            Err(ReserveError::TimedOut { requested, available }) => {
                assert!(requested == blocks && available <= self.world.setting.capacity);
                self.let_a_task_go();
            }
            Err(ReserveError::OverQuota { requested, pinned, limit }) => {
                assert!(requested == blocks && requested + pinned > limit);
                self.tally.over_quota += 1;
                self.let_a_task_go();
            }
            Err(error) => panic!("refused without a reason: {error}"),
        }
    }

    /// The namespace that pays for what is waited for; none for the default one.
    fn pick_payer(&mut self) -> Option<Namespace> {
        let name = self.pick_name();
        self.dice.bool().then(|| self.handle(name).namespace.clone())
    }

    /// Makes a task, polls one that is there, or drops one.
    pub fn await_blocks(&mut self) {
        if self.dice.u8(..4) == 0 {
            return self.let_a_task_go();
        }
        let (task, blocks) = (self.dice.usize(..TASKS), self.dice.usize(1..=self.world.setting.capacity / 4));
        let held = if self.dice.u8(..4) == 0 { self.take_kept() } else { None };
        let filling = if self.dice.u8(..8) == 0 { self.reserve(None, 1) } else { None };
        let waker = waker(self.world, task, (held, filling), &mut self.dice);
        let (world, payer) = (self.world, self.pick_payer());
        let request = request(blocks, payer.as_ref(), &mut self.dice);
        if let Some(reservation) = world.tasks[task].poll(|| Some(world.cache.reserve_async(request)), &waker) {
            drop(Filling::new(world, reservation));
            self.tally.served += 1;
        }
        contain(|| drop(waker));
    }

    /// Gives up a task, so that the waiters behind it have their turn.
    pub fn let_a_task_go(&mut self) {
        self.world.tasks[self.dice.usize(..TASKS)].cancel();
    }
}

/// Caches that a forgotten future keeps: still reachable, so that a leak checker does not report
/// them.
static FORGOTTEN: Mutex<Vec<Pin<Box<Reserving>>>> = Mutex::new(Vec::new());

/// Leaves a future that is the first waiter and is never polled again.
pub fn forget_a_future(world: &World) {
    let session = world.cache.session();
    let reservation = session.reserve(1).expect("nothing is held");
    let mut future = Box::pin(world.cache.reserve_async(world.setting.capacity));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(reservation);
    FORGOTTEN.lock().push(future);
    let refused = session.reserve(BlockRequest::new(1).until(Instant::now() + LONGEST_WAIT));
    assert!(matches!(refused, Err(ReserveError::TimedOut { .. })), "{refused:?}");
    assert!(session.reserve(world.setting.capacity).is_ok(), "a plain reserve passes waiters");
}
