//! The trait of every remote tier: requests in batches, completions by polling.

use std::{sync::Arc, time::Duration};

use crate::{
    key::{Block, BlockKey},
    layout::Layout,
    object::Miss,
    stats::Stats,
};

/// Memory that a block is copied from or to: `Vec<u8>`, `Box<[u8]>`, or an engine's own type.
///
/// The tier owns the buffers while a request is in flight, and returns them with its completion. On
/// a thread of the tier, `put_from` reads only through `as_ref`, and `get_into` writes through
/// `as_mut`. A panic there fails only that request.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for T {}

/// A store of KV blocks outside this process: files, Redis, an object store.
///
/// A call adds its batch to a bounded queue and returns; threads of the tier carry it out. Each
/// item is completed separately, and [`poll`](Self::poll) returns completions. An item counts as in
/// flight until `poll` has returned its completion.
///
/// **Order.** Requests that are in flight at the same time are not ordered: a get that is submitted
/// before the completion of a put may miss, and a remove may take effect before the put. A get
/// never returns a part of a put.
///
/// **Content.** A tier may drop any block at any time. A block that it returns was verified:
/// layout, key, tokens and checksum. Anything else is a [`Miss`], and leaves the buffer unchanged.
///
/// **Progress.** No call waits for a network or a disk, except `poll`, which waits at most as long
/// as requested. Calls take a lock that no thread holds while it reads, writes, or runs the
/// caller's code. Calls allocate.
///
/// **Failure.** A request ends within the tier's timeout. If it was not completed before, its
/// completion says [`Failure::TimedOut`]; the store may still carry it out later.
pub trait RemoteTier<B>: Send + Sync {
    /// The layout of the blocks.
    fn layout(&self) -> &Layout;

    /// Asks which keys the store has. The answers are hints: an object is only verified when it is
    /// read.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the keys.
    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>>;

    /// Requests blocks, to be copied into buffers of [`Layout::block_bytes`].
    ///
    /// # Errors
    ///
    /// [`Refused`], with the blocks and their buffers.
    fn get_into(&self, gets: Vec<Get<B>>) -> Result<Ticket, Refused<Vec<Get<B>>>>;

    /// Stores blocks from buffers of [`Layout::block_bytes`]. A block that is already stored is
    /// replaced, including its time to live.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the blocks and their buffers.
    fn put_from(&self, puts: Vec<Put<B>>) -> Result<Ticket, Refused<Vec<Put<B>>>>;

    /// Removes blocks from the store.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the keys.
    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>>;

    /// Appends the available completions to `done`, and returns how many; waits up to `wait` for
    /// the first one.
    ///
    /// Returns at once if nothing is in flight. Several threads may poll; each completion is
    /// returned to one of them.
    fn poll(&self, done: &mut Vec<Completion<B>>, wait: Duration) -> usize;

    /// The counts since the tier was opened.
    fn stats(&self) -> Stats;
}

impl<B, T: RemoteTier<B> + ?Sized> RemoteTier<B> for Arc<T> {
    fn layout(&self) -> &Layout {
        (**self).layout()
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        (**self).contains(keys)
    }

    fn get_into(&self, gets: Vec<Get<B>>) -> Result<Ticket, Refused<Vec<Get<B>>>> {
        (**self).get_into(gets)
    }

    fn put_from(&self, puts: Vec<Put<B>>) -> Result<Ticket, Refused<Vec<Put<B>>>> {
        (**self).put_from(puts)
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        (**self).remove(keys)
    }

    fn poll(&self, done: &mut Vec<Completion<B>>, wait: Duration) -> usize {
        (**self).poll(done, wait)
    }

    fn stats(&self) -> Stats {
        (**self).stats()
    }
}

/// The id of an accepted batch; its completions carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Creates a ticket, for tiers of other packages: each batch of a tier needs a different
    /// number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A block to read, and the buffer for its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get<B> {
    /// The block.
    pub block: Block,
    /// The buffer for its bytes.
    pub buffer: B,
}

/// A block to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put<B> {
    /// The block.
    pub block: Block,
    /// Its bytes.
    pub buffer: B,
    /// How long the block can be found, from the call on, by the wall clock, because other
    /// processes also read the expiry. `None`: as long as the store keeps it.
    pub time_to_live: Option<Duration>,
}

/// The completion of one item of a batch, with the item's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion<B> {
    /// The batch.
    pub ticket: Ticket,
    /// The item's index in the batch.
    pub index: usize,
    /// The result.
    pub outcome: Outcome<B>,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<B> {
    /// The result of [`RemoteTier::contains`]: whether the store has the key.
    Contained(BlockKey, Result<bool, Failure>),
    /// The result of [`RemoteTier::get_into`]: whether the buffer holds the block. If it does not,
    /// the buffer is unchanged.
    Got(Get<B>, Result<(), NotGot>),
    /// The result of [`RemoteTier::put_from`]: whether the store accepted the block.
    Put(Put<B>, Result<(), Failure>),
    /// The result of [`RemoteTier::remove`]: whether the key was removed.
    Removed(BlockKey, Result<(), Failure>),
}

/// Why a buffer does not hold the requested block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotGot {
    /// The store answered that it does not have the block.
    #[error("miss: {0}")]
    Miss(#[from] Miss),
    /// The store did not answer.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a store did not carry out a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store did not answer in time. The request may still be carried out.
    #[error("timed out")]
    TimedOut,
    /// The store cannot be reached; later requests try again.
    #[error("the store cannot be reached")]
    Unreachable,
    /// The disk or the server has no room.
    #[error("the store is full")]
    NoRoom,
    /// The store denied access: permissions, or a read-only server.
    #[error("the store denied access")]
    Denied,
    /// The store's answer violates the protocol.
    #[error("the store's answer violates the protocol")]
    Protocol,
    /// The store was replaced by one with another layout while the tier was open.
    #[error("the store was replaced by one with another layout")]
    OtherLayout,
    /// A buffer's `as_ref` or `as_mut` panicked, or its length changed.
    #[error("the buffer panicked or changed its length")]
    Buffer,
    /// The key of an encrypted layout has reached its maximum number of seals: use a new key, and a
    /// new store.
    #[error("the key has encrypted the safe maximum of blocks: use a new key")]
    KeyExhausted,
    /// A library panicked during the request.
    #[error("the tier panicked")]
    Panicked,
    /// Another error of the system.
    #[error("i/o error: {0}")]
    Io(std::io::ErrorKind),
}

/// A batch that was not accepted. None of it was carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused<T> {
    /// The batch.
    pub batch: T,
    /// Why it was not accepted.
    pub reason: Refusal,
}

/// Why a batch was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too many items are in flight: poll, then call again, or continue without the batch.
    #[error("{asked} items requested, {in_flight} of at most {max} are in flight: poll, then try again")]
    Full {
        /// Items of the batch.
        asked: usize,
        /// Items in flight.
        in_flight: usize,
        /// Items that may be in flight.
        max: usize,
    },
    /// The batch has more items than may be in flight: use smaller batches, or allow more.
    #[error("{asked} items in one batch, at most {max} may be in flight: use smaller batches")]
    TooLarge {
        /// Items of the batch.
        asked: usize,
        /// Items that may be in flight.
        max: usize,
    },
    /// A buffer does not have the layout's block bytes.
    #[error("the buffer of item {index} has {bytes} bytes, a block has {block_bytes}")]
    BufferBytes {
        /// The item's index in the batch.
        index: usize,
        /// Bytes of its buffer.
        bytes: usize,
        /// Bytes of a block.
        block_bytes: usize,
    },
    /// A block's key was made with another layout than the tier's.
    #[error("the block of item {index} has another layout than the tier")]
    OtherLayout {
        /// The item's index in the batch.
        index: usize,
    },
    /// The process was forked after the tier was opened, and threads do not survive a fork: open a
    /// tier in this process.
    #[error("the tier was opened by process {opened_by}, this is process {here}: open it again after a fork")]
    Forked {
        /// The process that opened the tier.
        opened_by: u32,
        /// The calling process.
        here: u32,
    },
}
