#![doc = include_str!("../../docs/engine.md")]
//!
//! # Inside
//!
//! Uses the cache as anybody does, through its public interface. `desk` is what the threads share, under one lock; all
//! else belongs to one thread.
//!
//! | file | holds |
//! |---|---|
//! | `request`, `queue` | what is asked for; the queue as callers see it |
//! | `desk` | the queue as schedulers see it: where each request is, and the claims |
//! | `claims`, `prompts` | who computes what; prompts in a tree, by their tokens |
//! | `pick` | who is admitted next |
//! | `step`, `batch` | one step: chosen, handed out, taken in |
//! | `sequence`, `slots` | tokens and blocks of one request; the table of slots |
//! | `lifecycle`, `fork` | what happens between two steps |

mod batch;
mod claims;
mod desk;
mod fork;
mod lifecycle;
mod pick;
mod prompts;
mod queue;
mod request;
mod sequence;
mod slots;
mod step;

pub use batch::{Batch, BlockCopy, Scheduled, SequenceId};
pub use fork::ForkError;
pub use lifecycle::{ConfigError, Finish, FinishError, Finished, Scheduler, SchedulerConfig};
pub use queue::{Aborted, Order, QueueConfig, WaitingQueue};
pub use request::{Request, SubmitError, SubmitErrorKind};
pub use sequence::Sequence;
pub use step::{CompleteError, Step};
