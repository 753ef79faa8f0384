//! Events: batches of the changes of a cache, for a subscriber that tracks its content.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::mem::MaybeUninit;

use radixkv::{CacheEvent, EventBatch, EvictionReason, Keys, NamespaceName};

use crate::boundary::{Exclusive, free, given, new_handle, output, run};
use crate::cache::Cache;
use crate::failure::Failure;
use crate::namespace::{KEYS_BIGRAMS, KEYS_TOKENS};
use crate::status::Status;

/// The receiving end of a bounded channel of batches. It does not keep the cache alive.
pub struct Subscription(Exclusive<radixkv::Subscription>);

/// Consecutive events, in the order in which they happened.
pub struct Batch {
    core: EventBatch,
    names: Names,
}

/// The parts of the namespaces' names of a list of events, in the form for C.
#[derive(Default)]
pub(crate) struct Names {
    parts: Vec<Text>,
    /// For each event, the end of its parts in `parts`.
    ends: Vec<usize>,
}

// SAFETY: the texts belong to names that are kept beside this value, and never change.
unsafe impl Send for Names {}
// SAFETY: as above.
unsafe impl Sync for Names {}

impl Names {
    /// Adds the name of the next event. The name must outlive the use of this value.
    pub(crate) fn push(&mut self, name: Option<&NamespaceName>) {
        let parts = name.into_iter().flat_map(NamespaceName::parts);
        self.parts.extend(parts.map(|part| Text { data: part.as_ptr().cast(), len: part.len() }));
        self.ends.push(self.parts.len());
    }

    /// The parts of the event `index`, which must exist.
    pub(crate) fn of(&self, index: usize) -> &[Text] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.parts[start..self.ends[index]]
    }
}

/// A text of `len` bytes in UTF-8, without a zero at its end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Its bytes.
    pub data: *const c_char,
    /// Their number.
    pub len: usize,
}

/// The kind of change that an event reports.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Blocks of one sequence were cached.
    Stored = 0,
    /// Blocks at the end of a sequence were evicted: to make room, or by `radixkv_cache_evict`.
    RemovedForCapacity = 1,
    /// The same, because their namespace exceeded its quota.
    RemovedForQuota = 2,
    /// The same, because they were not used for too long.
    RemovedForAge = 3,
    /// The same, because they were invalidated.
    RemovedAsInvalid = 4,
    /// The same, for a reason that this version does not name.
    Removed = 5,
    /// A namespace was cleared or removed: all blocks stored in it before are gone.
    Cleared = 6,
    /// Another change that this version does not name.
    Unknown = 7,
}

/// An event. Its pointers are valid until the handle that it was read from is freed.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// The change.
    pub kind: EventKind,
    /// The keys that lookups of its namespace compare: RADIXKV_KEYS_TOKENS or RADIXKV_KEYS_BIGRAMS.
    pub keys: u32,
    /// The parts of the namespace's name.
    pub parts: *const Text,
    /// Their number; 0 for the default namespace.
    pub parts_len: usize,
    /// The number of tokens before the blocks in the sequence.
    pub start: usize,
    /// The tokens of stored blocks; with bigrams, also the token after them. For evicted blocks
    /// (`radixkv_evicted_get`), the tokens of the sequence from its beginning to the end of the
    /// blocks.
    pub tokens: *const u32,
    /// Their number; 0 for other changes.
    pub tokens_len: usize,
    /// The blocks, in the order of the sequence.
    pub blocks: *const u32,
    /// Their number.
    pub blocks_len: usize,
    /// The cached block before the first stored one. Only if `has_parent`.
    pub parent: u32,
    /// Whether there is such a block: false at the beginning of a sequence.
    pub has_parent: bool,
}

/// The name of an event's namespace; `None` if this version does not know the kind of event.
fn name_of<'a>(event: &CacheEvent<'a>) -> Option<&'a NamespaceName> {
    match *event {
        CacheEvent::Stored { namespace, .. }
        | CacheEvent::Removed { namespace, .. }
        | CacheEvent::Cleared { namespace, .. } => Some(namespace),
        _ => None,
    }
}

/// The kind of a removal event.
pub(crate) fn kind_of(reason: EvictionReason) -> EventKind {
    match reason {
        EvictionReason::Capacity => EventKind::RemovedForCapacity,
        EvictionReason::Quota => EventKind::RemovedForQuota,
        EvictionReason::Age => EventKind::RemovedForAge,
        EvictionReason::Invalidated => EventKind::RemovedAsInvalid,
        _ => EventKind::Removed,
    }
}

/// The constant for a kind of keys.
pub(crate) fn code_of(keys: Keys) -> u32 {
    if keys == Keys::Bigrams { KEYS_BIGRAMS } else { KEYS_TOKENS }
}

impl Batch {
    fn new(core: EventBatch) -> Self {
        let mut names = Names::default();
        core.events().for_each(|event| names.push(name_of(&event)));
        Self { core, names }
    }

    fn event(&self, index: usize) -> Option<Event> {
        let event = self.core.events().nth(index)?;
        let parts = self.names.of(index);
        let (kind, start, tokens, blocks, parent): (_, _, &[u32], &[u32], _) = match event {
            CacheEvent::Stored { parent, start, tokens, blocks, .. } => {
                (EventKind::Stored, start, tokens, blocks, parent)
            }
            CacheEvent::Removed { start, blocks, reason, .. } => (kind_of(reason), start, &[], blocks, None),
            CacheEvent::Cleared { .. } => (EventKind::Cleared, 0, &[], &[], None),
            _ => (EventKind::Unknown, 0, &[], &[], None),
        };
        Some(Event {
            kind,
            keys: name_of(&event).map_or(KEYS_TOKENS, |name| code_of(name.keys())),
            parts: parts.as_ptr(),
            parts_len: parts.len(),
            start,
            tokens: tokens.as_ptr(),
            tokens_len: tokens.len(),
            blocks: blocks.as_ptr(),
            blocks_len: blocks.len(),
            parent: parent.unwrap_or_default(),
            has_parent: parent.is_some(),
        })
    }
}

/// Subscribes to later changes, through a channel of up to `batches` batches, at least one. A batch
/// that does not fit is lost for this subscriber; no other thread waits.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_subscribe(
    cache: Option<&Cache>,
    batches: usize,
    subscription: Option<&mut MaybeUninit<Option<Box<Subscription>>>>,
) -> Status {
    run(|| {
        let subscription = new_handle(subscription, "subscription")?;
        let core = given(cache, "cache")?.core.subscribe(batches);
        *subscription = Some(Box::new(Subscription(Exclusive::new(core))));
        Ok(())
    })
}

/// Takes the next batch; `batch` is NULL if there is none.
///
/// Threads: one at a time for each subscription; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_subscription_next(
    subscription: Option<&Subscription>,
    batch: Option<&mut MaybeUninit<Option<Box<Batch>>>>,
) -> Status {
    run(|| {
        let batch = new_handle(batch, "batch")?;
        let next = given(subscription, "subscription")?.0.enter("subscription")?.try_next();
        *batch = next.map(|core| Box::new(Batch::new(core)));
        Ok(())
    })
}

/// `lost_batches` is the number of batches that were lost because the channel was full: start again
/// from a snapshot. `has_ended` says whether the cache is gone and all its batches were taken. Both
/// may be NULL.
///
/// Threads: one at a time for each subscription.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_subscription_state(
    subscription: Option<&Subscription>,
    lost_batches: Option<&mut MaybeUninit<u64>>,
    has_ended: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let core = given(subscription, "subscription")?.0.enter("subscription")?;
        lost_batches.map(|place| place.write(core.lost_batches()));
        has_ended.map(|place| place.write(core.has_ended()));
        Ok(())
    })
}

/// Frees a subscription. NULL is allowed.
///
/// Threads: no other thread may use the subscription from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_subscription_free(subscription: Option<Box<Subscription>>) {
    free(subscription);
}

/// Takes a snapshot of the cached blocks, as a batch of stores, each after its parent. Its number
/// is that of the next batch that a subscriber gets: the snapshot and the batches from that number
/// on describe the whole cache.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_snapshot(
    cache: Option<&Cache>,
    batch: Option<&mut MaybeUninit<Option<Box<Batch>>>>,
) -> Status {
    run(|| {
        let batch = new_handle(batch, "batch")?;
        *batch = Some(Box::new(Batch::new(given(cache, "cache")?.core.snapshot())));
        Ok(())
    })
}

/// Writes the sequence number of a batch to `number` and its number of events to `events`. Both may
/// be NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_batch_len(
    batch: Option<&Batch>,
    number: Option<&mut MaybeUninit<u64>>,
    events: Option<&mut MaybeUninit<usize>>,
) -> Status {
    run(|| {
        let batch = given(batch, "batch")?;
        number.map(|place| place.write(batch.core.number()));
        events.map(|place| place.write(batch.core.events().len()));
        Ok(())
    })
}

/// Writes the event `index` of a batch, counted from 0, to `event`.
///
/// Errors: INVALID_ARGUMENT if there is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_batch_event(
    batch: Option<&Batch>,
    index: usize,
    event: Option<&mut MaybeUninit<Event>>,
) -> Status {
    run(|| {
        let event = output(event, "event")?;
        let found = given(batch, "batch")?.event(index);
        let accepted = "the index of an event of the batch";
        event.write(found.ok_or(Failure::Invalid { argument: "index", accepted })?);
        Ok(())
    })
}

/// Frees a batch, and what its events point to. NULL is allowed.
///
/// Threads: no other thread may use the batch from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_batch_free(batch: Option<Box<Batch>>) {
    free(batch);
}
