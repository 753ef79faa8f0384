//! Wakers of tasks that wait for blocks run in the middle of a scheduler's work. They may run
//! another scheduler of the queue, abort, submit and count.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use radixkv_scheduler::{Request, Scheduler, SchedulerConfig, SequenceId, WaitingQueue};

use crate::engine::World;

thread_local! {
    /// A scheduler of the same queue, for the waker to run.
    static SECOND: RefCell<Option<Scheduler>> = const { RefCell::new(None) };
}

/// Does everything that a waker could do with a queue.
struct Meddles {
    queue: WaitingQueue,
    aborts: Option<SequenceId>,
    submits: Request,
}

impl Wake for Meddles {
    fn wake(self: Arc<Self>) {
        SECOND.with(|second| {
            if let Ok(mut second) = second.try_borrow_mut() {
                if let Some(second) = second.as_mut() {
                    drop(second.schedule());
                }
            }
        });
        let id = self.queue.submit(self.submits.clone()).expect("it fits");
        self.queue.abort(id);
        self.aborts.map(|id| self.queue.abort(id));
        _ = self.queue.len();
    }
}

fn world() -> World {
    World::new(4, 4)
}

fn meddling(world: &World, aborts: Option<SequenceId>) -> Waker {
    SECOND.set(Some(Scheduler::new(&world.queue, SchedulerConfig::default()).expect("sound")));
    let submits = Request::new(world.space.clone(), vec![9, 9], 1);
    Waker::from(Arc::new(Meddles { queue: world.queue.clone(), aborts, submits }))
}

/// Runs a test on a thread of its own, and fails if it does not end.
fn in_time(test: fn()) {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        SECOND.set(None);
        done.send(()).expect("the receiver waits");
    });
    match over.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test does not end"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// A refused request gives its lease back in the scheduler's turn, and that wakes the task.
// Holds: WA9.
#[test]
fn a_waker_may_schedule_while_another_scheduler_admits() {
    in_time(|| {
        let world = world();
        let session = world.cache.session();
        let tokens: Vec<u32> = (0..4).collect();
        let mut first = Scheduler::new(&world.queue, SchedulerConfig::default()).expect("sound");
        let waker = meddling(&world, None);
        let cold = session.match_prefix(&world.space, &tokens);
        drop(session.insert(cold.lease(), &tokens, session.reserve(1).expect("free")).expect("fitting"));
        drop(cold);
        let rest = session.reserve(2).expect("free");
        let mut waiting = Box::pin(world.cache.reserve_async(4));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        world.queue.submit(Request::new(world.space.clone(), (0..12).collect(), 2)).expect("it fits");
        assert!(first.schedule().is_empty());
        drop((rest, waiting));
        assert!(!first.schedule().is_empty(), "there is room now");
    });
}

// Holds: WA9.
#[test]
fn a_waker_may_schedule_and_abort_while_another_scheduler_preempts() {
    in_time(|| {
        let world = world();
        let mut first = Scheduler::new(&world.queue, SchedulerConfig::default()).expect("sound");
        let id = world.queue.submit(Request::new(world.space.clone(), (0..8).collect(), 2)).expect("it fits");
        let waker = meddling(&world, Some(id));
        first.schedule().complete(&[1]).expect("computed");
        let mut waiting = Box::pin(world.cache.reserve_async(4));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(first.preempt(id));
        assert_eq!(first.schedule().aborted(), [id], "aborted by the waker, listed once");
        assert!(first.schedule().aborted().is_empty());
        drop(first);
        SECOND.set(None);
        assert_eq!(world.queue.unfinished_requests(), 0);
    });
}
