//! Events that a cache reports to subscribers: blocks were stored or removed, or a namespace was
//! cleared.
//!
//! The evictor makes events in the order of its accounts: a block is stored when its run enters the
//! accounts, and removed when a trim takes it out. So a block's removal comes after its store and
//! before its next store, whatever threads do in between. A lookup, a lease or a release makes no
//! event. Events are gathered into batches.

use std::ops::Range;

use crate::block::{BlockId, BlockLayout};
use crate::key::Token;
use crate::name::NamespaceName;
use crate::sync::Arc;

/// A change of the cached blocks.
///
/// # Examples
///
/// ```
/// use radixkv::{CacheEvent, PrefixCache};
///
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let (session, space) = (cache.session(), cache.default_namespace());
/// let mut events = cache.subscribe(64);
/// let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
/// drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
/// cache.evict(1);
///
/// let batch = events.try_next().expect("two changes");
/// let [stored, removed] = batch.events().collect::<Vec<_>>().try_into().expect("two");
/// assert!(matches!(stored, CacheEvent::Stored { start: 0, tokens: [1, 2, 3, 4], blocks: [_, _], .. }));
/// assert!(matches!(removed, CacheEvent::Removed { start: 2, blocks: [_], .. }));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheEvent<'a> {
    /// Blocks of one sequence were cached.
    #[non_exhaustive]
    Stored {
        /// The namespace.
        namespace: &'a NamespaceName,
        /// The cached block before the first of them; `None` at the beginning of a sequence.
        parent: Option<BlockId>,
        /// Number of tokens before them in their sequence.
        start: usize,
        /// Their tokens; in a namespace of bigrams, also the next token.
        tokens: &'a [Token],
        /// The blocks, in the order of the sequence.
        blocks: &'a [BlockId],
    },
    /// Blocks at the end of a sequence were removed from the cache. One trim is one event.
    #[non_exhaustive]
    Removed {
        /// The namespace in which they were cached.
        namespace: &'a NamespaceName,
        /// Number of tokens before them in their sequence.
        start: usize,
        /// The blocks, in the order of the sequence.
        blocks: &'a [BlockId],
        /// The reason.
        reason: EvictionReason,
    },
    /// A namespace was cleared or removed: all blocks stored in it before are gone, and their
    /// removals are not reported one by one.
    #[non_exhaustive]
    Cleared {
        /// The namespace.
        namespace: &'a NamespaceName,
    },
}

/// Why cached blocks were evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EvictionReason {
    /// Blocks were needed, or [`PrefixCache::evict`](crate::PrefixCache::evict) was called.
    Capacity,
    /// The namespace exceeded its quota.
    Quota,
    /// The blocks were not used for the time to idle
    /// ([`Builder::time_to_idle`](crate::Builder::time_to_idle)).
    Age,
    /// The blocks were invalidated
    /// ([`PrefixCache::invalidate_blocks`](crate::PrefixCache::invalidate_blocks)).
    Invalidated,
}

/// Consecutive events, in order. Cloning it costs a reference count.
#[derive(Debug, Clone)]
pub struct EventBatch(Arc<Gathered>);

/// Events that are being gathered and will become a batch.
#[derive(Debug, Default)]
pub(in crate::cache) struct Gathered {
    number: u64,
    entries: Vec<Entry>,
    tokens: Vec<Token>,
    blocks: Vec<BlockId>,
}

#[derive(Debug)]
struct Entry {
    namespace: NamespaceName,
    start: usize,
    tokens: Range<usize>,
    blocks: Range<usize>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Stored { parent: Option<BlockId> },
    Removed { reason: EvictionReason },
    Cleared,
}

impl EventBatch {
    /// The number of the batch. Batches of a cache are numbered consecutively, starting at 0.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The events of the batch.
    pub fn events(&self) -> impl ExactSizeIterator<Item = CacheEvent<'_>> {
        self.0.entries.iter().map(|entry| self.0.event(entry))
    }
}

fn with_room<T>(last: &Vec<T>) -> Vec<T> {
    Vec::with_capacity(last.len().midpoint(last.capacity()))
}

impl Gathered {
    /// An empty one, with room for about as much as `last` had.
    pub(in crate::cache) fn like(last: &Self) -> Self {
        Self {
            number: last.number + 1,
            entries: with_room(&last.entries),
            tokens: with_room(&last.tokens),
            blocks: with_room(&last.blocks),
        }
    }

    /// An empty one, for the batch with this number.
    pub(in crate::cache) fn numbered(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    pub(in crate::cache) fn number(&self) -> u64 {
        self.number
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::cache) fn batch(self) -> EventBatch {
        EventBatch(Arc::new(self))
    }

    fn event<'a>(&'a self, entry: &'a Entry) -> CacheEvent<'a> {
        let (namespace, start, blocks) = (&entry.namespace, entry.start, &self.blocks[entry.blocks.clone()]);
        match entry.kind {
            Kind::Stored { parent } => {
                CacheEvent::Stored { namespace, parent, start, tokens: &self.tokens[entry.tokens.clone()], blocks }
            }
            Kind::Removed { reason } => CacheEvent::Removed { namespace, start, blocks, reason },
            Kind::Cleared => CacheEvent::Cleared { namespace },
        }
    }

    /// Adds the store of `blocks`; the first of them is block number `first` of the sequence.
    /// `fill` appends the tokens from one depth to another.
    pub(in crate::cache) fn store(
        &mut self,
        namespace: NamespaceName,
        layout: BlockLayout,
        first: usize,
        parent: Option<BlockId>,
        blocks: &[BlockId],
        fill: impl FnOnce(Range<usize>, &mut Vec<Token>),
    ) {
        let from = self.tokens.len();
        fill(layout.filled(layout.end_of(first))..layout.end_of(first + blocks.len()), &mut self.tokens);
        let tokens = from..self.tokens.len();
        self.push(namespace, layout.filled(layout.end_of(first)), tokens, blocks, Kind::Stored { parent });
    }

    /// Adds the removal of `blocks`; the first of them is block number `first` of the sequence.
    pub(in crate::cache) fn remove(
        &mut self,
        namespace: NamespaceName,
        layout: BlockLayout,
        first: usize,
        blocks: &[BlockId],
        reason: EvictionReason,
    ) {
        self.push(namespace, layout.filled(layout.end_of(first)), 0..0, blocks, Kind::Removed { reason });
    }

    pub(in crate::cache) fn clear_namespace(&mut self, namespace: NamespaceName) {
        self.push(namespace, 0, 0..0, &[], Kind::Cleared);
    }

    /// A copy of these events, in which `rest` has appended tokens and blocks to each store.
    pub(in crate::cache) fn completed(&self, mut rest: impl FnMut(&mut Vec<Token>, &mut Vec<BlockId>)) -> Self {
        let mut whole = Self::numbered(self.number);
        whole.entries.reserve_exact(self.entries.len());
        for Entry { namespace, start, tokens, blocks, kind } in &self.entries {
            let (first_token, first_block) = (whole.tokens.len(), whole.blocks.len());
            whole.tokens.extend_from_slice(&self.tokens[tokens.clone()]);
            whole.blocks.extend_from_slice(&self.blocks[blocks.clone()]);
            if let Kind::Stored { .. } = kind {
                rest(&mut whole.tokens, &mut whole.blocks);
            }
            whole.entries.push(Entry {
                namespace: namespace.clone(),
                start: *start,
                tokens: first_token..whole.tokens.len(),
                blocks: first_block..whole.blocks.len(),
                kind: *kind,
            });
        }
        whole
    }

    fn push(&mut self, namespace: NamespaceName, start: usize, tokens: Range<usize>, blocks: &[BlockId], kind: Kind) {
        let from = self.blocks.len();
        self.blocks.extend_from_slice(blocks);
        self.entries.push(Entry { namespace, start, tokens, blocks: from..self.blocks.len(), kind });
    }
}
