//! Linearizability: threads record their calls to a small cache and the answers. A checker then
//! searches for an order of the calls that respects real time and in which every answer is correct.
//!
//! # The tree
//!
//! Sequences have up to three blocks, each with one of two contents, so a namespace has at most
//! fourteen blocks. Its state is the leases and the set of cached blocks, which contains every
//! prefix of its members.
//!
//! | call | answer | effect |
//! |---|---|---|
//! | `match_prefix` | the longest cached prefix | leases it |
//! | `peek` | the longest cached prefix | |
//! | `insert` from a lease | how much beyond the lease was already cached | the whole sequence is cached and leased |
//! | dropping a lease | | |
//! | `evict(n)` | `k <= n` | `k` times: removes a cached block that has no cached successor and no lease |
//! | `evict(n)` with `k < n` | | and then no such block is left |
//! | `clear` | | nothing is cached, and all leases are of an old tree: inserts from them are refused |
//!
//! The policy chooses the block that `evict` removes, so the checker follows every choice that the
//! answers allow: it tracks the set of all states that are still possible. Three answers may be
//! less exact than the table:
//!
//! - Clearing swaps the tree and then dismantles the old one. A lookup or insert that overlaps it
//!   may still walk the old tree and find less than was cached, but never more; the inserted blocks
//!   may be removed with the old tree.
//! - An `evict` that overlaps other calls may stop early: a point that another thread is about to
//!   queue is not ranked yet. Without overlap, it stops only when nothing is evictable.
//! - After a clear, an `evict` that overlaps other calls may count a block of the old tree whose
//!   last lease has just ended.
//!
//! # The pool
//!
//! A cache of five blocks that caches nothing is a counter: `reserve(n)` is granted if and only if
//! `n` blocks are free.
//!
//! The environment variables `HISTORIES` and `SEED` are used; `ci/histories.sh` runs more
//! histories, with yields at atomic operations.

#[path = "histories/pool.rs"]
mod pool;
#[path = "histories/record.rs"]
mod record;
#[path = "histories/rejected.rs"]
mod rejected;
#[path = "histories/reserving.rs"]
mod reserving;
#[path = "histories/sharing.rs"]
mod sharing;
#[path = "histories/tree.rs"]
mod tree;

use std::time::Instant;

use record::{Event, is_linearizable};

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Checks as many histories as the environment asks for, and prints the first that has no order.
fn check_many<S>(what: &str, history: fn(u64) -> Vec<Event<S::Operation>>)
where
    S: todc_utils::Specification,
{
    let histories = from_environment("HISTORIES", 200);
    let first = from_environment("SEED", 1);
    let (start, mut checking) = (Instant::now(), 0.0);
    let mut overlaps = 0;
    for seed in first..first + histories {
        let mut events = history(seed);
        let recorded = Instant::now();
        let found = is_linearizable::<S>(&events);
        checking += recorded.elapsed().as_secs_f64();
        events.sort_by_key(|event| event.called);
        overlaps += events.windows(2).filter(|pair| pair[0].overlaps(&pair[1])).count();
        if !found {
            events.iter().for_each(|event| eprintln!("{event:?}"));
            panic!("{what}: the history of SEED={seed} has no order");
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {histories} histories in {seconds:.1} s ({checking:.1} s checking), {overlaps} overlaps");
}

// Holds: MA8.
#[test]
fn a_tree_answers_as_if_one_call_came_after_the_other() {
    check_many::<tree::Tree>("tree", sharing::history);
}

// Holds: RE11.
#[test]
fn a_pool_answers_as_if_one_call_came_after_the_other() {
    check_many::<pool::Pool>("pool", reserving::history);
}
