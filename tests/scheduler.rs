//! The scheduler with an engine that computes nothing but remembers which prefix each slot was written for.

#[path = "scheduler/aborts.rs"]
mod aborts;
#[path = "scheduler/copies.rs"]
mod copies;
#[path = "scheduler/engine.rs"]
mod engine;
#[path = "scheduler/forks.rs"]
mod forks;
#[path = "scheduler/lifecycle.rs"]
mod lifecycle;
#[path = "scheduler/orders.rs"]
mod orders;
#[path = "scheduler/patience.rs"]
mod patience;
#[path = "scheduler/preemption.rs"]
mod preemption;
#[path = "scheduler/quotas.rs"]
mod quotas;
#[path = "scheduler/random.rs"]
mod random;
#[path = "scheduler/refusals.rs"]
mod refusals;
#[path = "scheduler/sharing.rs"]
mod sharing;
#[path = "scheduler/threads.rs"]
mod threads;
#[path = "scheduler/turns.rs"]
mod turns;
#[cfg(feature = "async")]
#[path = "scheduler/wakers.rs"]
mod wakers;
