#![doc = include_str!("../README.md")]
//! # The parts
//!
//! A [`Trace`] is a list of requests in the order of their arrival, read from a file
//! ([`Trace::open`]) or generated from a seed ([`workload`]). [`replay`](replay()) serves a trace
//! from a cache and reports hits, evictions, latencies, memory, and a digest of all hits: two
//! replays have the same digest only if every request hit the same number of blocks.
//!
//! | word     | means                                                                                    |
//! |----------|------------------------------------------------------------------------------------------|
//! | row      | a line of the file that is not blank; each request keeps its row number, counted from 0   |
//! | hash id  | a name for `unit` tokens that the trace does not publish; [`token_id`] makes tokens for it |
//! | segment  | consecutive tokens of a request that come from one hash id, or that the row spells out    |
//! | key      | the tokens to be cached: whole blocks of the prompt, and of the output if configured      |
//! | bypass   | to serve a request without the cache, because it is larger than the cache                 |
//! | step     | one request served; with `hold`, a lease lives for as many steps as its request generates tokens |
//!
//! The size of a trace is bounded while it is read ([`Limits`]) and before it is replayed
//! ([`ReplayConfig`]): a file of some kilobytes can decompress to terabytes, and a row can claim
//! billions of tokens.
//!
//! The package uses only the public interface of the cache: a replay sees what an engine would see.

#[doc = include_str!("../docs/replay.md")]
pub mod guide {
    #[doc = include_str!("../docs/tools.md")]
    pub mod tools {}
}
pub mod convert;
pub mod details;
mod explain;
mod limits;
mod lines;
mod list;
pub mod model;
pub mod picture;
pub mod prefixes;
mod priority;
mod read;
pub mod replay;
mod request;
mod row;
mod source;
#[cfg(feature = "sweep")]
pub mod sweep;
mod tokens;
mod unit;
mod value_kind;
mod warning;
mod working_set;
pub mod workload;

pub use details::Details;
pub use explain::Explained;
pub use limits::Limits;
pub use priority::PriorityFault;
pub use read::TraceError;
pub use replay::{Replay, ReplayConfig, ReplayError, Report, replay};
pub use request::{Request, Trace};
pub use row::{Field, RowFault};
pub use tokens::{UNIQUE_OUTPUT, UNIQUE_PROMPT, token_id};
pub use warning::TraceWarning;
