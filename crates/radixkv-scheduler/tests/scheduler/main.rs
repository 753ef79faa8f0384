//! The scheduler with an engine that computes nothing but remembers which prefix each slot was
//! written for.

mod aborts;
mod copies;
mod engine;
mod forks;
mod lifecycle;
mod orders;
mod panics;
mod patience;
mod preemption;
mod quotas;
mod random;
mod refusals;
mod sharing;
mod threads;
mod turns;
mod wakers;
