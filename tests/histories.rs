//! Linearizability: threads record what they asked of a small cache and what it answered, and a checker looks for an
//! order of the calls that respects time and makes every answer right.
//!
//! # The tree
//!
//! Sequences of up to three blocks, each one of two: a namespace of at most fourteen blocks. Its state is the set of
//! cached blocks, closed under taking prefixes, and the leases.
//!
//! | call | answer | effect |
//! |---|---|---|
//! | `match_prefix` | the longest cached prefix | leases it |
//! | `peek` | the longest cached prefix | |
//! | `insert` from a lease | how much beyond the lease was cached already | all of it is cached and leased |
//! | dropping a lease | | |
//! | `evict(n)` | `k <= n` | `k` times: some cached block that no cached block continues and no lease is on goes |
//! | `evict(n)` with `k < n` | | and then no such block is left |
//! | `clear` | | nothing is cached, and no lease is of this tree: inserting from them is refused |
//!
//! Which block `evict` takes is the policy's business: the checker follows every choice that the answers allow (a state
//! is the set of all states that they leave open). Three answers may be less exact than this:
//!
//! - Clearing swaps the tree and then takes the old one apart. A lookup or insert that overlaps it may still walk the
//!   old one and find less than was there, though never more; its insert may go down with the old tree.
//! - An `evict` that overlaps other calls may stop early: a point that another thread is about to announce is not in its
//!   ranking yet. Alone, it stops only when nothing can go.
//! - After a clear, an `evict` that overlaps other calls may count a block of the old tree whose last lease has just
//!   gone.
//!
//! # The pool
//!
//! A cache of five blocks that caches nothing is a counter: `reserve(n)` is granted exactly if `n` blocks are free.
//!
//! `HISTORIES` and `SEED` are read from the environment; `ci/histories.sh` runs more, with yields in the atomics.

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

#[test]
fn a_tree_answers_as_if_one_call_came_after_the_other() {
    check_many::<tree::Tree>("tree", sharing::history);
}

#[test]
fn a_pool_answers_as_if_one_call_came_after_the_other() {
    check_many::<pool::Pool>("pool", reserving::history);
}
