//! Logical time for tasks on several threads: it stands still while any task can run.
//!
//! A task that was woken, or is being polled, counts as busy. When none is, whoever left last moves
//! time to the next alarm and wakes all tasks that wait for it. So every wake-up has all its
//! consequences before time goes on.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// One for all tasks of a load.
pub struct Clock {
    state: Mutex<State>,
}

struct State {
    now: u64,
    /// Tasks that can run.
    busy: usize,
    /// By time, and by a number that keeps equal times apart.
    alarms: BTreeMap<(u64, u64), Waker>,
    numbers: u64,
}

impl Clock {
    /// Stands at zero until it is [started](Self::start).
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { now: 0, busy: 1, alarms: BTreeMap::new(), numbers: 0 }) })
    }

    /// Lets time pass, once all tasks are spawned.
    pub fn start(&self) {
        self.leave();
    }

    pub fn now(&self) -> u64 {
        self.state().now
    }

    /// Spawns a task for which time stands still while it runs.
    pub fn spawn<F>(self: &Arc<Self>, runtime: &Runtime, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.enter();
        let standing = Standing { woken: true, over: false, runtimes: None };
        let task = Arc::new(Task { clock: self.clone(), standing: Mutex::new(standing) });
        runtime.spawn(Tracked { task, work: Box::pin(work) })
    }

    /// Ready from `time` on.
    pub fn at(self: &Arc<Self>, time: u64) -> Alarm {
        let mut state = self.state();
        state.numbers += 1;
        Alarm { clock: self.clone(), key: (time, state.numbers) }
    }

    /// What `work` returns; nothing if it is not done at `time`, when it is dropped where it waits.
    pub async fn until<T>(self: &Arc<Self>, time: u64, work: impl Future<Output = T>) -> Option<T> {
        let (mut alarm, mut work) = (self.at(time), Box::pin(work));
        std::future::poll_fn(move |context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Pin::new(&mut alarm).poll(context).map(|()| None),
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the lock")
    }

    fn enter(&self) {
        self.state().busy += 1;
    }

    fn leave(&self) {
        let mut state = self.state();
        state.busy -= 1;
        while state.busy == 0 {
            let Some((time, _)) = state.alarms.keys().next().copied() else { return };
            state.now = time;
            let later = state.alarms.split_off(&(time + 1, 0));
            let due = std::mem::replace(&mut state.alarms, later);
            // Busy itself, until all are woken.
            state.busy = 1;
            drop(state);
            due.into_values().for_each(Waker::wake);
            state = self.state();
            state.busy -= 1;
        }
    }
}

/// A moment that a task waits for.
pub struct Alarm {
    clock: Arc<Clock>,
    key: (u64, u64),
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        state.alarms.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let waker = self.clock.state().alarms.remove(&self.key);
        drop(waker);
    }
}

/// A task's part in the count of those that can run.
struct Task {
    clock: Arc<Clock>,
    standing: Mutex<Standing>,
}

struct Standing {
    /// Counted as busy, until its next poll has ended.
    woken: bool,
    over: bool,
    runtimes: Option<Waker>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut standing = self.standing.lock().expect("no panic under the lock");
        if standing.over {
            return;
        }
        if !std::mem::replace(&mut standing.woken, true) {
            self.clock.enter();
        }
        let waker = standing.runtimes.clone();
        drop(standing);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// One poll of a task; ends in a panic too.
struct Turn<'a> {
    task: &'a Task,
    over: bool,
}

impl<'a> Turn<'a> {
    fn begin(task: &'a Task, runtimes: &Waker) -> Self {
        let mut standing = task.standing.lock().expect("no panic under the lock");
        standing.runtimes = Some(runtimes.clone());
        // The count goes over from the wake-up to the poll. A poll without a wake-up counts too.
        if !std::mem::replace(&mut standing.woken, false) {
            task.clock.enter();
        }
        Self { task, over: true }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut standing = self.task.standing.lock().expect("no panic under the lock");
        standing.over = self.over;
        let unanswered = self.over && standing.woken;
        drop(standing);
        if unanswered {
            self.task.clock.leave();
        }
        self.task.clock.leave();
    }
}

struct Tracked {
    task: Arc<Task>,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Future for Tracked {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.task.clone();
        let mut turn = Turn::begin(&task, context.waker());
        let polled = self.work.as_mut().poll(&mut Context::from_waker(&Waker::from(task.clone())));
        turn.over = polled.is_ready();
        polled
    }
}
