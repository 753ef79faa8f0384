#![doc = include_str!("../README.md")]

// Threads share only the state in `admission`; everything else belongs to one scheduler's thread.
// Modules have no cyclic dependencies.
//
// | file | contents |
// |---|---|
// | `config` | configuration of queues and schedulers; the orders of admission |
// | `request`, `queue` | requests; the waiting queue as callers see it |
// | `abort` | the result of an abort; the state that stops publishing after it |
// | `admission` | the queue as schedulers see it: the state of each request, the turn, the claims |
// | `turn`, `ready`, `lines` | the lock that orders admissions; the ready requests in order; requests that wait for a quota |
// | `claims`, `prompts` | which sequence computes which prefix; prompts in a radix tree |
// | `pick` | choosing the request to try next |
// | `sequence`, `slots`, `copies` | tokens and blocks of one request; the slot table; pending block copies |
// | `batch`, `step` | the work of a step; scheduling a step and applying its results |
// | `admit` | trying and admitting a request: match, claim, reserve, fill |
// | `tier` | an optional tier below the cache |
// | `lifecycle`, `finish`, `fork` | the scheduler, and operations on its sequences between two steps |
// | `sync` | the only module that names locks and threads |

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
