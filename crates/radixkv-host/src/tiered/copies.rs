//! The mover's thread: a queue of copies with a bound on the blocks in flight.
//!
//! A thread first takes room in the queue, then submits its job. So the jobs in the queue never
//! have more blocks than the bound, except for one job that is larger than the bound, which runs
//! when no other is in flight. Room is given in the order of the requests, so a large job waits
//! only for earlier ones. The queue's thread runs the jobs in their order. It ends when the queue
//! is closed and empty. A job holds both ends of its copies, so no block is released while it is
//! being copied.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use radixkv_tiers::caught;

type Job = Box<dyn FnOnce() + Send>;

/// The queue and its thread, which ends after this is dropped.
#[derive(Debug)]
pub(super) struct Copies {
    line: Arc<Line>,
    worker: ThreadId,
}

#[derive(Debug)]
struct Line {
    most: usize,
    state: Mutex<LineState>,
    job_came: Condvar,
    room_came: Condvar,
}

#[derive(Default)]
struct LineState {
    jobs: VecDeque<Job>,
    /// Blocks for which room was taken.
    in_flight: usize,
    /// The ticket of the next thread that asks for room; it then waits for its turn.
    next_ticket: u64,
    /// The ticket of the thread whose turn it is; equal to `next_ticket` if none waits.
    turn: u64,
    closed: bool,
}

/// Room in the queue, given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Room {
    line: Arc<Line>,
    blocks: usize,
}

impl Copies {
    /// Starts the thread of a queue of at most `most` blocks.
    pub(super) fn start(most: usize) -> io::Result<Self> {
        let state = Mutex::default();
        let line = Arc::new(Line { most, state, job_came: Condvar::new(), room_came: Condvar::new() });
        let working = Arc::clone(&line);
        let worker = thread::Builder::new().name("radixkv-mover".to_owned()).spawn(move || working.work())?;
        Ok(Self { line, worker: worker.thread().id() })
    }

    /// Whether the calling thread is the queue's own, which must not wait for room or for a job.
    pub(super) fn is_worker(&self) -> bool {
        thread::current().id() == self.worker
    }

    /// Takes room for a job, waiting for its turn and for the room.
    pub(super) fn room(&self, blocks: usize) -> Room {
        let mut state = self.line.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        while state.turn != ticket || !self.line.fits(&state, blocks) {
            state = self.line.room_came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.turn += 1;
        let room = self.line.take(&mut state, blocks);
        drop(state);
        // There may be room for the next thread's job as well.
        self.line.room_came.notify_all();
        room
    }

    /// Takes room for a job, if there is room and no thread waits for room.
    pub(super) fn try_room(&self, blocks: usize) -> Option<Room> {
        let mut state = self.line.lock();
        let is_free = state.turn == state.next_ticket && self.line.fits(&state, blocks);
        is_free.then(|| self.line.take(&mut state, blocks))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.line.lock().closed = true;
        self.line.job_came.notify_all();
    }
}

impl Room {
    /// Adds a job to the queue; its room is given back when it has ended.
    pub(super) fn submit(self, job: impl FnOnce() + Send + 'static) {
        let line = Arc::clone(&self.line);
        let job = move || {
            job();
            drop(self);
        };
        line.lock().jobs.push_back(Box::new(job));
        line.job_came.notify_one();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.line.lock().in_flight -= self.blocks;
        self.line.room_came.notify_all();
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, LineState> {
        // No job runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, state: &LineState, blocks: usize) -> bool {
        state.in_flight == 0 || state.in_flight.saturating_add(blocks) <= self.most
    }

    fn take(self: &Arc<Self>, state: &mut LineState, blocks: usize) -> Room {
        state.in_flight += blocks;
        Room { line: Arc::clone(self), blocks }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // A job that panics drops its blocks; the panic hook has reported the panic.
            let _ = caught(job);
        }
    }

    /// The next job; `None` when the queue is closed and empty.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.job_came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl std::fmt::Debug for LineState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineState").field("jobs", &self.jobs.len()).field("in_flight", &self.in_flight).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        time::{Duration, Instant},
    };

    use super::*;

    // Holds: HT14.
    #[test]
    fn what_does_not_fit_is_refused_or_waits() {
        let copies = Copies::start(4).expect("a thread");
        let (go, gate) = mpsc::channel::<()>();
        copies.room(3).submit(move || gate.recv().expect("the test goes on"));
        assert!(copies.try_room(2).is_none());
        let one = copies.try_room(1).expect("there is room for one");
        assert!(copies.try_room(1).is_none());
        drop(one);
        go.send(()).expect("the job waits");
        // A job larger than the bound runs when no other is in flight.
        let (done, ended) = mpsc::channel();
        copies.room(9).submit(move || done.send(()).expect("the test waits"));
        ended.recv().expect("it ran");
    }

    // Holds: HT14.
    #[test]
    fn no_thread_that_comes_later_passes_one_that_waits() {
        let copies = Copies::start(4).expect("a thread");
        let held = copies.room(1);
        let (got, large) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let room = copies.room(4);
                got.send(()).expect("the test waits");
                drop(room);
            });
            let began = Instant::now();
            while copies.try_room(1).is_some() {
                assert!(began.elapsed() < Duration::from_secs(60), "small jobs pass a large one that waits");
                thread::yield_now();
            }
            let small = scope.spawn(|| drop(copies.room(1)));
            assert!(large.try_recv().is_err(), "one block is held");
            drop(held);
            large.recv().expect("it is its turn");
            small.join().expect("no panic");
        });
        assert!(copies.try_room(4).is_some(), "nobody waits");
    }

    #[test]
    fn a_job_that_panics_gives_its_room_back_and_stops_no_other() {
        let copies = Copies::start(1).expect("a thread");
        copies.room(1).submit(|| panic!("planned"));
        let (done, ended) = mpsc::channel();
        copies.room(1).submit(move || done.send(7).expect("the test waits"));
        drop(copies);
        assert_eq!(ended.recv(), Ok(7), "a closed queue ends its jobs");
    }
}
