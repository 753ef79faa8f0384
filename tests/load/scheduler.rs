//! A scheduler: one step at a time for all its sequences, and who is preempted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// The sequences that one scheduler runs.
#[derive(Default)]
pub struct Scheduler {
    batch: Mutex<Batch>,
}

#[derive(Default)]
struct Batch {
    steps: u64,
    /// By the number of their request: the one that came last is the last.
    running: BTreeMap<usize, Sequence>,
}

#[derive(Default)]
struct Sequence {
    preempted: bool,
    waker: Option<Waker>,
}

/// A sequence that was told to make room.
#[derive(Debug)]
pub struct Preempted;

impl Scheduler {
    /// Takes a sequence in, until the handle is dropped.
    pub fn run(&self, number: usize) -> Running<'_> {
        self.batch.lock().expect("no panic").running.insert(number, Sequence::default());
        Running { scheduler: self, number }
    }

    /// The end of a step: every sequence goes on.
    pub fn step(&self) {
        let mut batch = self.batch.lock().expect("no panic");
        batch.steps += 1;
        let wakers: Vec<_> = batch.running.values_mut().filter_map(|sequence| sequence.waker.take()).collect();
        drop(batch);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Tells the sequence that came last to make room; its number.
    pub fn preempt_last(&self) -> Option<usize> {
        let mut batch = self.batch.lock().expect("no panic");
        let (number, last) = batch.running.iter_mut().next_back()?;
        let (number, waker) = (*number, last.waker.take());
        last.preempted = true;
        drop(batch);
        waker.into_iter().for_each(Waker::wake);
        Some(number)
    }
}

/// A sequence's place in its scheduler's batch.
pub struct Running<'a> {
    scheduler: &'a Scheduler,
    number: usize,
}

impl Running<'_> {
    /// Waits until the present step has ended.
    pub async fn step(&self) -> Result<(), Preempted> {
        let mut began = None;
        std::future::poll_fn(|context| {
            let mut batch = self.scheduler.batch.lock().expect("no panic");
            let steps = batch.steps;
            let sequence = batch.running.get_mut(&self.number).expect("it runs");
            if sequence.preempted {
                Poll::Ready(Err(Preempted))
            } else if *began.get_or_insert(steps) < steps {
                Poll::Ready(Ok(()))
            } else {
                sequence.waker = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let left = self.scheduler.batch.lock().expect("no panic").running.remove(&self.number);
        drop(left);
    }
}
