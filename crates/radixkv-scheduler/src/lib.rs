#![doc = include_str!("../README.md")]

// Threads share `admission`, under one lock; everything else belongs to one thread. No file uses one that uses it.
//
// | file | holds |
// |---|---|
// | `config` | how queues and schedulers are configured; the orders |
// | `request`, `queue` | requests, and the waiting queue as callers see it |
// | `abort` | what an abort found; nothing is published after it |
// | `admission` | the queue as schedulers see it: the state of each request, the turn, the claims |
// | `turn`, `ready`, `lines` | one scheduler at a time; the ready requests as their order prefers them; those that wait for a quota |
// | `claims`, `prompts` | which sequence computes which prefix; prompts in a radix tree |
// | `pick` | which request is tried next |
// | `sequence`, `slots`, `copies` | tokens and blocks of one request; the table of slots; block copies to be made |
// | `batch`, `step` | what a step computes; a step chosen, given to the engine, and taken in |
// | `admit` | a request tried and admitted: match, claim, reserve, fill |
// | `tier` | what lies below the cache |
// | `lifecycle`, `finish`, `fork` | a scheduler, and what may happen to its sequences between two steps |
// | `sync` | the only door to locks and threads |

mod abort;
mod admission;
mod admit;
mod batch;
mod claims;
mod config;
mod copies;
mod finish;
mod fork;
#[doc = include_str!("../docs/engine.md")]
pub mod guide {}
mod lifecycle;
mod lines;
mod pick;
mod prompts;
mod queue;
mod ready;
mod request;
mod sequence;
mod slots;
mod step;
mod sync;
mod tier;
mod turn;

pub use abort::Aborted;
pub use batch::{Batch, BlockCopy, Scheduled};
pub use config::{ConfigError, Order, QueueConfig, SchedulerConfig};
pub use finish::{Finish, FinishError, Finished};
pub use fork::ForkError;
pub use lifecycle::Scheduler;
pub use queue::WaitingQueue;
pub use request::{Request, SequenceId, SubmitError, SubmitErrorKind};
pub use sequence::Sequence;
pub use step::{CompleteError, Step};
pub use tier::Filled;
