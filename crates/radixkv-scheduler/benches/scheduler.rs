//! One pass over 10,000 waiting requests, compared with memcmp of the tokens that match, measured
//! in turn in one process; and one `schedule` and one `abort` while 10 to 100,000 requests wait
//! ([`crowd`]).
//!
//! `cargo bench -p radixkv-scheduler [-- passes|crowd]`. Requests have 2,000 tokens in the mean,
//! and their prefixes are cached. A pass is a whole [`Scheduler::schedule`] after the queue has
//! changed, its one admission included, under each order. Prints nanoseconds a request; the limit
//! is one and a half times memcmp and 100 ns.

#[allow(dead_code)]
#[path = "../../../benches/common/mod.rs"]
mod common;
#[path = "scheduler/crowd.rs"]
mod crowd;

use std::time::Instant;

use common::{Aligned, Spread, insert, memcmp, sequence};
use radixkv::{PrefixCache, Token};
use radixkv_scheduler::{Order, QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};

const BLOCK: usize = 16;
const WAITING: usize = 10_000;
const TAIL: usize = 64;
const ROUNDS: usize = 15;

/// The cached prefix of request `i`, one of `prefixes`: 1,000 to 3,000 tokens, in the mean 2,000
/// with the tail.
fn prefix(i: usize, prefixes: usize) -> Vec<Token> {
    let (group, len) = (i % prefixes, 2_000 - TAIL);
    sequence(group as u32, (len / 2 + (2 * group + 1) * len / (2 * prefixes)) / BLOCK * BLOCK)
}

/// Nanoseconds a request of a pass, of memcmp of the tokens that match, and the share of the limit.
fn passes(order: Order, prefixes: usize) -> [Spread; 3] {
    let cache = PrefixCache::builder(BLOCK, prefixes * 4_000 / BLOCK + 1_000).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let cached: Vec<Aligned> = (0..prefixes).map(|i| Aligned::new(&prefix(i, prefixes))).collect();
    let _leases: Vec<_> = cached.iter().map(|tokens| insert(&session, &space, &cache, tokens.tokens())).collect();
    let queue = WaitingQueue::new(&cache, QueueConfig::default().order(order).max_blocks(512));
    let mut copies = Vec::new();
    for i in 0..WAITING {
        let prefix = prefix(i, prefixes);
        let tokens = [&prefix[..], &sequence((1_000_000 + i) as u32, TAIL)].concat();
        assert_eq!(session.peek(&space, &tokens), prefix.len());
        queue.submit(Request::new(space.clone(), tokens, 1)).expect("sound");
        copies.push(Aligned::new(&prefix));
    }
    let config = SchedulerConfig::default().max_running(1);
    let mut scheduler = Scheduler::new(&queue, config).expect("sound");
    let mut measured = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let start = Instant::now();
        copies.iter().enumerate().for_each(|(i, copy)| memcmp(copy.tokens(), cached[i % prefixes].tokens()));
        let limit = start.elapsed().as_nanos() as f64 / WAITING as f64;
        let start = Instant::now();
        let step = scheduler.schedule();
        let ours = start.elapsed().as_nanos() as f64 / WAITING as f64;
        let first = step.batch().sequence(0).id;
        drop(step);
        assert!(scheduler.preempt(first), "one was admitted");
        if round > 0 {
            measured[0].push(ours);
            measured[1].push(limit);
            measured[2].push(ours / (1.5 * limit + 100.0));
        }
    }
    measured.map(Spread::of)
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    if wanted("passes") {
        all_passes();
    }
    if wanted("crowd") {
        crowd::run();
    }
}

fn all_passes() {
    println!("{:<44} {:>8} {:>8} {:>22}", "a pass over 10,000 requests, ns a request", "ns", "memcmp", "of the limit");
    for (name, order, prefixes) in [
        ("longest prefix, 1 prefix", Order::LongestPrefix, 1),
        ("longest prefix, 64 prefixes", Order::LongestPrefix, 64),
        ("longest prefix, 1,000 prefixes", Order::LongestPrefix, 1_000),
        ("dfs weight, 64 prefixes", Order::DfsWeight, 64),
        ("dfs weight, 1,000 prefixes", Order::DfsWeight, 1_000),
        ("priority, 64 prefixes", Order::Priority, 64),
        ("first come, 64 prefixes", Order::Fcfs, 64),
    ] {
        let [ours, limit, ratio] = passes(order, prefixes);
        let spread = format!("{:.2} [{:.2} {:.2}]", ratio.median, ratio.low, ratio.high);
        println!("{name:<44} {:>8.1} {:>8.1} {spread:>22}", ours.median, limit.median);
    }
}
