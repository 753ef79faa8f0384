//! The wire format of batches, as vLLM and SGLang send them: [MessagePack](https://msgpack.org), in
//! frames of ZeroMQ.
//!
//! | frame of a message | holds |
//! |---|---|
//! | topic | UTF-8 |
//! | sequence number | 8 bytes, big-endian; from 0, one more for each batch |
//! | payload | `[time, [event, ...], rank or nil]` |
//!
//! An event is a map with the field `type` ([`Format::Maps`]), or an array that begins with the
//! type ([`Format::Arrays`], older publishers). [`decode`](decode()) reads both. In maps, the
//! publisher's epoch ([`Batch::epoch`](crate::Batch::epoch)) is the field `epoch` of the first
//! event.
//!
//! A subscriber requests missed batches from a DEALER socket to the publisher's ROUTER socket:
//!
//! | request | answer |
//! |---|---|
//! | `["", first number]` | `["", topic, number, payload]` for each batch from that number on that the publisher still keeps |
//! | `["", SNAPSHOT]` | the same frames with all held blocks as events; the number is that of the first batch that is not included |
//!
//! Either answer ends with `["", "", END, ""]`. Answers without a topic frame are also accepted. A
//! publisher without snapshots takes [`SNAPSHOT`] for a number beyond all batches, so its answer
//! has only the end.

mod decode;
mod encode;
mod error;
mod read;

pub use decode::{Decoded, decode};
pub use encode::{Format, encode};
pub use error::DecodeError;

/// The frame that ends a replay answer, in place of a sequence number.
pub const END: [u8; 8] = [0xff; 8];

/// The frame that requests a snapshot, in place of a sequence number.
pub const SNAPSHOT: [u8; 8] = *b"snapshot";

/// The maximum size of a payload in bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// The maximum number of hashes in one event.
pub const MAX_HASHES: usize = 1 << 20;
