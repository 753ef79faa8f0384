//! Events that are sent together.

use std::{
    hash::{BuildHasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::event::Event;

/// Events that are published together, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The time of the batch: seconds since 1970.
    pub time: f64,
    /// The events.
    pub events: Vec<Event>,
    /// The data-parallel rank of the worker.
    pub rank: Option<u32>,
    /// The publisher's epoch: a new number means that the publisher restarted and no longer holds
    /// any earlier block.
    ///
    /// It travels in the first event, as the field `epoch`, which other readers of maps skip. Arrays and batches
    /// without events do not carry it.
    pub epoch: Option<u64>,
}

/// A batch with its sequence number. Numbers begin at 0 and grow by one; a number that is left out
/// is a batch that was lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// The number.
    pub seq: u64,
    /// The batch.
    pub batch: Batch,
}

/// The current time in seconds since 1970, as batches carry it.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Creates a random epoch for a publisher.
pub fn new_epoch() -> u64 {
    // Each state has keys of the system's own random numbers.
    RandomState::new().hash_one(now().to_bits())
}
