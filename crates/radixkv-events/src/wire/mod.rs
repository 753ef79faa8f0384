//! Batches as bytes, as vLLM and SGLang send them: [MessagePack](https://msgpack.org), in frames of ZeroMQ.
//!
//! | frame of a message | holds |
//! |---|---|
//! | topic | UTF-8 |
//! | sequence number | 8 bytes, big-endian; from 0, one more for each batch |
//! | payload | `[time, [event, ...], rank or nil]` |
//!
//! An event is a map with the field `type` ([`Format::Maps`]), or an array that begins with the type
//! ([`Format::Arrays`], older publishers). [`decode`] reads both. The life of the publisher
//! ([`Batch::epoch`](crate::Batch::epoch)) is the field `epoch` of the first event, in maps.
//!
//! To ask for batches again, a DEALER sends `["", first number]`. The publisher answers with `["", topic, number,
//! payload]` for each batch that it still has, and ends with `["", "", END, ""]`. Publishers that send no topic there
//! are understood too. `["", SNAPSHOT]` asks for what is held, as events: their number is that of the first batch that
//! is not in them. To publishers that know no snapshots that is a number which no batch has, so they answer with the
//! end alone.

mod decode;
mod encode;
mod error;
mod read;

pub use decode::{Decoded, decode};
pub use encode::{Format, encode};
pub use error::DecodeError;

/// The frame that ends an answer, in place of a sequence number.
pub const END: [u8; 8] = [0xff; 8];

/// The frame that asks for a snapshot, in place of a sequence number.
pub const SNAPSHOT: [u8; 8] = *b"snapshot";

/// Bytes of a payload that are read: more are refused.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// Hashes of one event that are read: more are refused.
pub const MAX_HASHES: usize = 1 << 20;
