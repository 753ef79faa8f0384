#![doc = include_str!("../../docs/engine.md")]
//!
//! # Inside
//!
//! Uses the cache as anybody does, through its public interface. `admission` is what the threads share, under one lock; all
//! else belongs to one thread.
//!
//! | file | holds |
//! |---|---|
//! | `request`, `queue` | what is asked for; the queue as callers see it |
//! | `admission` | the queue as schedulers see it: where each request is, whose turn it is, and the claims |
//! | `ready` | the requests that are ready, as their order prefers them |
//! | `fate` | whether a request that is served was aborted |
//! | `claims`, `prompts` | who computes what; prompts in a tree, by their tokens |
//! | `pick` | who is admitted next |
//! | `step`, `batch` | one step: chosen, handed out, taken in |
//! | `sequence`, `slots` | tokens and blocks of one request; the table of slots |
//! | `lifecycle`, `fork`, `copies` | what happens between two steps; blocks that are to be copied |

mod admission;
mod batch;
mod claims;
mod copies;
mod fate;
mod fork;
mod lifecycle;
mod pick;
mod prompts;
mod queue;
mod ready;
mod request;
mod sequence;
mod slots;
mod step;
mod turn;

pub use batch::{Batch, BlockCopy, Scheduled, SequenceId};
pub use fork::ForkError;
pub use lifecycle::{ConfigError, Finish, FinishError, Finished, Scheduler, SchedulerConfig};
pub use queue::{Aborted, Order, QueueConfig, WaitingQueue};
pub use request::{Request, SubmitError, SubmitErrorKind};
pub use sequence::Sequence;
pub use step::{CompleteError, Step};
