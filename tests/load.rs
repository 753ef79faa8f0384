//! A load test: four schedulers and 64 clients, which give up at any moment, with a pool that is
//! too small for most of them. The result is compared with an ideal.
//!
//! The engine follows `docs/admission.md`: requests are acquired, computed and published chunk by
//! chunk, grow block by block, are preempted when the pool is exhausted, and are dropped, wherever
//! they wait, when their client leaves.
//!
//! **The ideal** is a single-threaded program on `radixkv-reference`, without waiting, wake-ups and
//! races. It admits requests in the order of arrival, each at the first moment at which its blocks
//! are free. It has the same arrivals, tokens, steps and departures. The engine must complete
//! nearly as many requests as the ideal. The difference comes from preempted requests: they keep
//! their place in the ideal, but join the end of the line in the engine.
//!
//! **Time is logical**: it does not advance while any task can run, and then jumps to the next
//! alarm (`clock`). The tasks run on four threads and race within each instant, but the number of
//! completed requests does not depend on the machine's speed.
//!
//! The environment variables `SECONDS` and `SEED` are used.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

#[path = "load/client.rs"]
mod client;
#[path = "load/clock.rs"]
mod clock;
#[path = "load/engine.rs"]
mod engine;
#[path = "load/ideal.rs"]
mod ideal;
#[path = "load/lateness.rs"]
mod lateness;
#[path = "load/plan.rs"]
mod plan;
#[path = "load/scheduler.rs"]
mod scheduler;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clock::Clock;
use engine::{Admission, Engine, Tally};
use plan::Plan;

/// Cancellations that a run has, however short it is.
const CANCELLATIONS: usize = 10_000;

/// Of what the ideal completes.
const SHARE: f64 = 0.95;

fn from_environment(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Serves what was planned, and looks whether anything is lost.
fn serve(plan: &Plan, admission: Admission) -> Tally {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("threads");
    let clock = Clock::new();
    let engine = Arc::new(Engine::new(clock.clone(), admission));
    let mut tasks: Vec<_> =
        (0..plan::SCHEDULERS).map(|index| clock.spawn(&runtime, engine.clone().schedule(index, plan.end()))).collect();
    for client in 0..plan::CLIENTS {
        tasks.push(clock.spawn(&runtime, client::run(engine.clone(), plan.of(client))));
    }
    clock.start();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    engine.check_that_nothing_is_lost();
    engine.tally()
}

// Holds: QU8.
#[test]
fn nearly_as_many_are_completed_as_in_the_ideal() {
    let end = Instant::now() + Duration::from_secs_f64(from_environment("SECONDS", 3.0));
    let (mut tally, mut ideal) = (Tally::default(), Tally::default());
    for seed in from_environment("SEED", 1.0) as u64.. {
        let plan = Plan::new(seed);
        let (served, best) = (serve(&plan, Admission::Acquire), ideal::serve(&plan));
        println!("seed {seed}: {served:?}, ideal {best:?}");
        tally.add(served);
        ideal.add(best);
        if Instant::now() >= end && tally.cancelled() >= CANCELLATIONS {
            break;
        }
    }
    let share = tally.completed as f64 / ideal.completed as f64;
    println!("{} of the {} that the ideal completes: {share:.3}; {tally:?}", tally.completed, ideal.completed);
    assert!(share >= SHARE, "{share:.3} of the ideal");
    assert!(
        tally.waiting > 0 && tally.running > 0 && tally.preempted > 0,
        "not every place was cancelled at: {tally:?}"
    );
}

/// What the test above finds if requests keep the lease of their match while they wait: they wait
/// for each other.
#[test]
fn requests_that_wait_with_a_lease_complete_far_less() {
    let plan = Plan::new(1);
    let (held, ideal) = (serve(&plan, Admission::HoldAndWait), ideal::serve(&plan));
    let share = held.completed as f64 / ideal.completed as f64;
    println!("{} of the {} that the ideal completes: {share:.3}; {held:?}", held.completed, ideal.completed);
    assert!(share < SHARE, "{share:.3} of the ideal");
}

/// Lateness is printed and not asserted: it is the machine's.
#[test]
fn requests_that_are_late_are_told_and_leave_nothing() {
    lateness::measure(Duration::from_secs_f64(from_environment("SECONDS", 3.0) / 4.0));
}
