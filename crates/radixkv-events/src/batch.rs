//! Batches: the unit in which events are published and numbered.

use std::{
    hash::{BuildHasher, RandomState},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::event::Event;

/// A group of events that is published as one message. The order of the events counts.
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
    /// It is sent as the field `epoch` of the first event; readers that do not know the field skip
    /// it. Batches in [`Arrays`](crate::wire::Format::Arrays) format, and batches without events,
    /// do not carry it.
    pub epoch: Option<u64>,
}

/// A batch with its sequence number. Numbers begin at 0 and grow by one; a skipped number means a
/// lost batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// The number.
    pub seq: u64,
    /// The batch.
    pub batch: Batch,
}

/// The current time in seconds since 1970, for [`Batch::time`].
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Creates a random epoch for a publisher.
pub fn new_epoch() -> u64 {
    // Each `RandomState` is keyed from the system's random numbers.
    RandomState::new().hash_one(now().to_bits())
}
