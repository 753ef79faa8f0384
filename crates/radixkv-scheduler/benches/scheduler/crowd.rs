//! What one `schedule` and one `abort` cost while 10 to 100,000 requests wait, under each order;
//! the baseline is the cost while 10 wait.
//!
//! Prompts of 64 tokens, all different or all equal. Of equal prompts the first is admitted, and
//! the others that a step tries have to wait for its blocks. Medians; a whole
//! [`Scheduler::schedule`], its admissions included.

use std::time::Instant;

use radixkv::{Namespace, PrefixCache};
use radixkv_scheduler::{Aborted, Order, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, WaitingQueue};

use crate::common::sequence;

const PROMPT: usize = 64;

struct Crowd {
    queue: WaitingQueue,
    space: Namespace,
    equal: bool,
    next: u32,
}

impl Crowd {
    fn new(cache: &PrefixCache, order: Order, equal: bool, waiting: usize) -> (Self, Vec<SequenceId>) {
        let queue = WaitingQueue::new(cache, QueueConfig::default().order(order));
        let mut crowd = Self { queue, space: cache.default_namespace(), equal, next: 0 };
        let ids = (0..waiting).map(|_| crowd.submit()).collect();
        (crowd, ids)
    }

    fn submit(&mut self) -> SequenceId {
        self.next += 1;
        let tokens = sequence(if self.equal { 0 } else { self.next }, PROMPT);
        self.queue.submit(Request::new(self.space.clone(), tokens, 1)).expect("sound")
    }
}

fn median(mut measured: Vec<f64>) -> f64 {
    measured.sort_by(f64::total_cmp);
    measured[measured.len() / 2]
}

/// Nanoseconds to abort one of these requests, which wait.
fn abort(queue: &WaitingQueue, ids: &[SequenceId]) -> f64 {
    let start = Instant::now();
    for &id in ids {
        assert!(matches!(queue.abort(id), Aborted::Waiting { .. }));
    }
    start.elapsed().as_nanos() as f64 / ids.len() as f64
}

/// Nanoseconds of a `schedule`, of an abort of a ready request, and of an abort of one that waits
/// for a claim.
fn measure(order: Order, equal: bool, waiting: usize) -> [f64; 3] {
    let cache = PrefixCache::builder(16, 1_024).build().expect("sound");
    let (crowd, ids) = Crowd::new(&cache, order, equal, waiting);
    let config = SchedulerConfig::default().max_running(2).max_chunk_tokens(16);
    let mut scheduler = Scheduler::new(&crowd.queue, config).expect("sound");
    let mut passes = Vec::new();
    for _ in 0..if waiting < 10_000 { 31 } else { 3 } {
        let start = Instant::now();
        drop(scheduler.schedule());
        passes.push(start.elapsed().as_nanos() as f64);
        while let Some(last) = scheduler.running().last().map(|sequence| sequence.id()) {
            assert!(scheduler.preempt(last));
        }
    }
    drop(scheduler.schedule());
    // These were tried, and wait for the claim of the request that is served.
    let claimed: Vec<_> = ids[2..].iter().copied().take(4).collect();
    let claimed = if equal { abort(&crowd.queue, &claimed) } else { f64::NAN };
    let ready: Vec<_> = ids[ids.len() / 2 + 2..].iter().copied().take(1_000).collect();
    [median(passes), abort(&crowd.queue, &ready), claimed]
}

pub fn run() {
    println!(
        "{:<34} {:>8} {:>14} {:>15} {:>12}",
        "order, prompts", "waiting", "schedule, us", "abort ready, ns", "waits, ns"
    );
    for (name, order) in [
        ("first come", Order::Fcfs),
        ("longest prefix", Order::LongestPrefix),
        ("dfs weight", Order::DfsWeight),
        ("priority", Order::Priority),
    ] {
        for (prompts, equal) in [("different", false), ("equal", true)] {
            for waiting in [10, 100, 1_000, 10_000, 100_000] {
                let [schedule, ready, claimed] = measure(order, equal, waiting);
                let schedule = schedule / 1_000.0;
                println!(
                    "{:<34} {waiting:>8} {schedule:>14.1} {ready:>15.0} {claimed:>12.0}",
                    format!("{name}, {prompts}")
                );
            }
        }
    }
}
