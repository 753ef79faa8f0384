//! Request traces: reading, generating and replaying them.
//!
//! A [`Trace`] is a list of requests in the order of their arrival, read from a file ([`Trace::open`]) or made from a
//! seed ([`workload`]). [`replay`](replay()) runs one through a cache and reports what came of it: hits, evictions,
//! latencies, memory, and a digest of all hits that two replays share only if every request hit the same.
//!
//! | word     | means                                                                                    |
//! |----------|------------------------------------------------------------------------------------------|
//! | row      | a line of the file; requests keep its number                                             |
//! | hash id  | a name for `unit` tokens that the trace does not publish; [`token_id`] makes them up      |
//! | segment  | consecutive tokens of a request that come from one hash id, or that the row spells out    |
//! | key      | the tokens to be cached: whole blocks of the prompt, and of the output if asked for       |
//! | bypass   | a request that is larger than the cache and goes past it                                  |
//! | step     | a request served: with `hold`, a request's lease lives for as many steps as it generates tokens |
//!
//! What a trace may ask for is bounded, while it is read ([`Limits`]) and before it is replayed ([`ReplayConfig`]): a file
//! of some kilobytes can decompress to terabytes, and a row can claim billions of tokens.
//!
//! Built on the public interface of the cache alone: what is replayed here is what an engine would see.

#[doc = include_str!("../docs/replay.md")]
pub mod guide {}
mod limits;
mod lines;
mod list;
mod priority;
mod read;
pub mod replay;
mod request;
mod row;
mod shape;
mod source;
mod tokens;
mod unit;
mod working_set;
pub mod workload;

pub use limits::Limits;
pub use priority::PriorityFault;
pub use read::TraceError;
pub use replay::{Replay, ReplayConfig, ReplayError, Report, replay};
pub use request::{Request, Trace};
pub use row::{Field, RowFault};
pub use tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, token_id};
