//! Rebuilds a worker's holdings from batches that may arrive twice, late or never. Does no I/O:
//! callers such as `Subscriber` feed it messages.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    batch::{Batch, Numbered},
    event::Event,
    holdings::{HoldError, Holdings},
    wire::{self, DecodeError, Decoded},
};

/// Reconstructs a worker's blocks from its batches, and detects missing batches.
///
/// Pass each message to [`receive`](Self::receive) and act on the [`Verdict`]. `Subscriber` does
/// this over ZeroMQ. With another transport, do the same:
///
/// - [`Verdict::Gap`]: request the batches from the first missing one on, and feed them. If the
///   publisher no longer has them, request a snapshot ([`restore`](Self::restore)). Then feed the
///   message again; if neither request helped, call [`accept_gap`](Self::accept_gap) first.
/// - [`Verdict::Restarted`]: the publisher restarted and lost its blocks. Proceed as with a gap.
///
/// # Examples
///
/// ```
/// use radixkv_events::{Batch, BlockHash, Event, Follower, Stored, Verdict, wire};
///
/// let hashes = vec![BlockHash::Unsigned(5)];
/// let stored = Stored { hashes, tokens: vec![1, 2], block_size: 2, ..Stored::default() };
/// let batch = Batch { time: 1.0, events: vec![Event::Stored(stored)], ..Batch::default() };
/// let payload = wire::encode(&batch, wire::Format::Maps);
///
/// let mut follower = Follower::new();
/// assert_eq!(follower.receive(0, &payload)?, Verdict::Applied);
/// assert_eq!(follower.receive(3, &payload)?, Verdict::Gap { missing: 1..3 });
/// assert_eq!(follower.holdings().len(), 1);
/// # Ok::<_, radixkv_events::FollowError>(())
/// ```
#[derive(Default)]
pub struct Follower {
    holdings: Holdings,
    /// The number of the next batch; `None` before the first.
    next: Option<u64>,
    epoch: Option<u64>,
    time: f64,
    is_incomplete: bool,
    /// The first missing number of the gap that was counted last, so that each gap counts once.
    gap: Option<u64>,
    counts: Counts,
    watcher: Option<Watcher>,
}

type Watcher = Box<dyn FnMut(Update<'_>) + Send>;

/// The result of processing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The events were applied.
    Applied,
    /// The batch was already applied; it was ignored.
    Duplicate,
    /// Earlier batches are missing; the batch was not applied.
    Gap {
        /// Their numbers.
        missing: Range<u64>,
    },
    /// The publisher restarted and the holdings were cleared; the batch was not applied.
    Restarted,
}

/// Why a message was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The message is not a batch. It counts as lost; only a snapshot completes the holdings again.
    #[error("the message is not a batch: {0}")]
    Garbage(#[from] DecodeError),
    /// The worker cannot be followed with these settings.
    #[error(transparent)]
    Refused(#[from] HoldError),
}

/// A change of a follower's holdings, reported to a watcher that keeps an index of them.
#[derive(Debug, Clone, Copy)]
pub enum Update<'a> {
    /// An event was applied.
    Applied(&'a Event),
    /// All blocks were forgotten.
    Forgotten,
}

/// Statistics of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Batches that were applied.
    pub batches: u64,
    /// Events that were applied, including those of snapshots.
    pub events: u64,
    /// Events that were skipped
    /// ([`Decoded::skipped_events`](crate::wire::Decoded::skipped_events)).
    pub skipped_events: u64,
    /// Batches that were received again.
    pub duplicates: u64,
    /// How often batches were missing.
    pub gaps: u64,
    /// Missing batches that were given up.
    pub lost_batches: u64,
    /// Messages that were not batches.
    pub garbage: u64,
    /// How often the publisher restarted.
    pub restarts: u64,
    /// Snapshots that were restored.
    pub snapshots: u64,
    /// Calls of the watcher that panicked.
    pub watcher_panics: u64,
}

impl Follower {
    /// Creates a follower that takes the block size from the worker's first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a follower of a worker with this block size.
    pub fn with_block_size(block_size: u32) -> Self {
        Self { holdings: Holdings::with_block_size(block_size), ..Self::default() }
    }

    /// Refuses a worker whose blocks would take more memory than this. Default: no limit.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { holdings: self.holdings.max_bytes(bytes), ..self }
    }

    /// Calls `watcher` for each change of the holdings, on the thread that feeds the follower. A
    /// call that panics is counted ([`Counts::watcher_panics`]), and following continues.
    pub fn watched(self, watcher: impl FnMut(Update<'_>) + Send + 'static) -> Self {
        Self { watcher: Some(Box::new(watcher)), ..self }
    }

    /// The blocks that the worker holds.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// The statistics so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The sequence number of the next batch; `None` before the first.
    pub fn next_seq(&self) -> Option<u64> {
        self.next
    }

    /// The publisher's epoch, if it names one.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Whether no batch is missing: the holdings equal the worker's after batch `next_seq() - 1`.
    pub fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Processes a message, live or replayed.
    ///
    /// A publisher has restarted if its batch carries another [`epoch`](crate::Batch::epoch). If it
    /// never sent an epoch, it has restarted if an old number arrives again with a later time.
    ///
    /// # Errors
    ///
    /// [`FollowError::Garbage`] if the payload is not a batch, [`FollowError::Refused`] if the
    /// holdings refuse an event. Either way, if its number was the next one, the follower then
    /// expects the number after it.
    pub fn receive(&mut self, seq: u64, payload: &[u8]) -> Result<Verdict, FollowError> {
        self.receive_decoded(seq, &wire::decode(payload))
    }

    /// Processes a payload that the caller has decoded. Decoding takes time, so callers do it
    /// before they lock the follower.
    pub(crate) fn receive_decoded(
        &mut self,
        seq: u64,
        decoded: &Result<Decoded, DecodeError>,
    ) -> Result<Verdict, FollowError> {
        let Decoded { batch, skipped_events } = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                self.pass_garbage(seq);
                return Err((*error).into());
            }
        };
        let verdict = self.take_batch(seq, batch)?;
        if verdict == Verdict::Applied {
            self.counts.skipped_events += skipped_events;
        }
        Ok(verdict)
    }

    /// Processes a decoded batch.
    ///
    /// # Errors
    ///
    /// [`HoldError`], as [`Holdings::apply`].
    pub fn take(&mut self, Numbered { seq, batch }: &Numbered) -> Result<Verdict, HoldError> {
        self.take_batch(*seq, batch)
    }

    fn take_batch(&mut self, seq: u64, batch: &Batch) -> Result<Verdict, HoldError> {
        if let (Some(known), Some(new)) = (self.epoch, batch.epoch)
            && known != new
        {
            self.restart();
            self.epoch = Some(new);
            return Ok(Verdict::Restarted);
        }
        self.epoch = self.epoch.or(batch.epoch);
        let next = self.next.unwrap_or(0);
        if seq < next {
            if self.epoch.is_none() && batch.time > self.time {
                self.restart();
                return Ok(Verdict::Restarted);
            }
            self.counts.duplicates += 1;
            return Ok(Verdict::Duplicate);
        }
        if seq > next {
            self.counts.gaps += u64::from(self.gap.replace(next) != Some(next));
            return Ok(Verdict::Gap { missing: next..seq });
        }
        // Saturating: a false number from the publisher must not overflow.
        self.next = Some(next.saturating_add(1));
        self.time = batch.time;
        self.apply(&batch.events).inspect_err(|_| self.is_incomplete = true)?;
        self.counts.batches += 1;
        Ok(Verdict::Applied)
    }

    /// Gives up the missing batches before `seq`. The holdings may then contain too many or too few
    /// blocks, until a snapshot or a [`Cleared`](Event::Cleared).
    pub fn accept_gap(&mut self, seq: u64) {
        let next = self.next.unwrap_or(0);
        if seq > next {
            self.counts.lost_batches = self.counts.lost_batches.saturating_add(seq - next);
            self.is_incomplete = true;
            self.next = Some(seq);
        }
    }

    /// Replaces the holdings by a snapshot of everything that the worker held before batch `next`.
    ///
    /// # Errors
    ///
    /// [`HoldError`], as [`Holdings::apply`]. The holdings then contain only a part of the
    /// snapshot.
    pub fn restore(&mut self, next: u64, epoch: Option<u64>, events: &[Event]) -> Result<(), HoldError> {
        self.forget();
        self.is_incomplete = true;
        self.apply(events)?;
        self.next = Some(next);
        // Batches that the snapshot already covers may still arrive; none of them is a restart.
        self.time = f64::INFINITY;
        self.counts.restarts += u64::from(self.epoch.is_some() && epoch.is_some() && epoch != self.epoch);
        self.epoch = epoch.or(self.epoch);
        self.is_incomplete = false;
        self.counts.snapshots += 1;
        Ok(())
    }

    fn apply(&mut self, events: &[Event]) -> Result<(), HoldError> {
        for event in events {
            self.holdings.apply(event)?;
            // After a clear, missing batches no longer matter.
            self.is_incomplete &= *event != Event::Cleared;
            self.counts.events += 1;
            self.tell(Update::Applied(event));
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.forget();
        self.next = None;
        self.gap = None;
        self.epoch = None;
        self.time = 0.0;
        self.is_incomplete = false;
        self.counts.restarts += 1;
    }

    fn forget(&mut self) {
        self.holdings.clear();
        self.tell(Update::Forgotten);
    }

    /// Calls the watcher. A panic must not leave a batch half applied, nor end a subscriber's
    /// thread.
    fn tell(&mut self, update: Update<'_>) {
        if let Some(watcher) = &mut self.watcher {
            let told = catch_unwind(AssertUnwindSafe(|| watcher(update)));
            self.counts.watcher_panics += u64::from(told.is_err());
        }
    }

    fn pass_garbage(&mut self, seq: u64) {
        self.counts.garbage += 1;
        self.is_incomplete = true;
        if self.next == Some(seq) {
            self.next = Some(seq.saturating_add(1));
            self.counts.lost_batches = self.counts.lost_batches.saturating_add(1);
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Follower");
        out.field("blocks", &self.holdings.len()).field("next", &self.next).field("epoch", &self.epoch);
        out.field("is_incomplete", &self.is_incomplete).field("counts", &self.counts).finish_non_exhaustive()
    }
}
