//! Recording: which thread called what, from when to when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::spawn;

use todc_utils::{Action, History, Specification, WGLChecker};

/// Something that happened between two readings of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<T> {
    pub thread: usize,
    pub called: u64,
    pub returned: u64,
    pub what: T,
}

impl<T> Event<T> {
    /// Whether both were under way at one moment.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.called < other.returned && other.called < self.returned
    }
}

/// The clock of one history and the gate that its threads start at.
#[derive(Default)]
pub struct Clock {
    ticks: AtomicU64,
    arrived: AtomicUsize,
}

impl Clock {
    /// Waits until `threads` threads are there.
    fn start(&self, threads: usize) {
        self.arrived.fetch_add(1, SeqCst);
        while self.arrived.load(SeqCst) < threads {
            std::thread::yield_now();
        }
    }
}

/// One thread's record.
pub struct Recorder<'c, T> {
    clock: &'c Clock,
    thread: usize,
    events: Vec<Event<T>>,
}

impl<T> Recorder<'_, T> {
    /// Times `call` and keeps what it returns; the rest of what it returns is handed on.
    pub fn record<R>(&mut self, call: impl FnOnce() -> (T, R)) -> R {
        let called = self.clock.ticks.fetch_add(1, SeqCst);
        let (what, rest) = call();
        let returned = self.clock.ticks.fetch_add(1, SeqCst);
        self.events.push(Event { thread: self.thread, called, returned, what });
        rest
    }
}

/// Runs `work` on several threads at once and returns all that they recorded.
pub fn record<S, T>(threads: usize, shared: S, work: fn(&S, usize, &mut Recorder<'_, T>)) -> Vec<Event<T>>
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let all = Arc::new((shared, Clock::default()));
    let start = |thread| {
        let all = Arc::clone(&all);
        spawn(move || {
            let (shared, clock) = &*all;
            let mut recorder = Recorder { clock, thread, events: Vec::new() };
            clock.start(threads);
            work(shared, thread, &mut recorder);
            recorder.events
        })
    };
    let threads: Vec<_> = (0..threads).map(start).collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
}

/// Whether some order that respects time makes every answer right.
pub fn is_linearizable<S: Specification>(events: &[Event<S::Operation>]) -> bool {
    let mut actions: Vec<_> = events
        .iter()
        .enumerate()
        .flat_map(|(id, event)| {
            let call = (event.called, id, Action::Call(event.what.clone()));
            [call, (event.returned, id, Action::Response(event.what.clone()))]
        })
        .collect();
    actions.sort_by_key(|(tick, ..)| *tick);
    let history = History::from_actions(actions.into_iter().map(|(_, id, action)| (id, action)).collect());
    WGLChecker::<S>::is_linearizable(history)
}
