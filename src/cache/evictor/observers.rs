//! Those who listen to what is stored and removed, and what is gathered for them.

use std::ops::Range;

use super::drafts::Drafts;
use super::{Evictor, Resources};
use crate::block::BlockId;
use crate::cache::draft::{Draft, Rest};
use crate::cache::events::EvictionReason;
use crate::name::NamespaceName;
use crate::reclaim::{Guard, Ref};
use crate::sync::Arc;
use crate::sync::channel::Sender;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::tree::path::{append_blocks, append_tokens};
use crate::tree::{Excerpt, PieceId, Run, Space};

/// Events that make a batch; fewer wait until somebody asks for them.
const FULL: usize = 64;

/// The subscribers, and the events of the next batch.
#[derive(Debug, Default)]
pub(in crate::cache) struct Observers {
    subscribers: Vec<Subscriber>,
    draft: Draft,
    pub(in crate::cache) drafts: Drafts,
}

/// In place of a count: the subscriber has gone.
pub(in crate::cache) const GONE: usize = usize::MAX;

/// The evictor's end of a subscriber's channel.
#[derive(Debug)]
pub(in crate::cache) struct Subscriber {
    pub(in crate::cache) drafts: Sender<Arc<Draft>>,
    /// Batches that were sent and not received yet, or [`GONE`]; and the most of them.
    pub(in crate::cache) waiting: Arc<AtomicUsize>,
    pub(in crate::cache) most: usize,
}

impl Subscriber {
    /// Sends it if there is room; false if nobody is there to receive it.
    fn send(&self, draft: &Arc<Draft>) -> bool {
        // Relaxed: a bound; this end alone raises the count, under the evictor's lock.
        match self.waiting.load(Relaxed) {
            GONE => false,
            waiting if waiting >= self.most => true,
            _ => self.waiting.fetch_add(1, Relaxed) != GONE && self.drafts.send(Arc::clone(draft)).is_ok(),
        }
    }

    fn has_gone(&self) -> bool {
        // Relaxed: who has gone does not come back.
        self.waiting.load(Relaxed) == GONE
    }
}

impl Observers {
    /// Adds a subscriber; the number of its first batch.
    pub(in crate::cache) fn add(&mut self, subscriber: Subscriber, guard: &Guard<'_>) -> u64 {
        self.publish(guard);
        self.subscribers.retain(|subscriber| !subscriber.has_gone());
        self.subscribers.push(subscriber);
        self.next()
    }

    /// The number of the next batch.
    pub(in crate::cache) fn next(&self) -> u64 {
        self.draft.number()
    }

    /// Hands what was gathered to every subscriber whose channel has room; it never waits.
    pub(in crate::cache) fn publish(&mut self, guard: &Guard<'_>) {
        if self.draft.len() == 0 {
            return;
        }
        let next = self.draft.next();
        let draft = Arc::new(std::mem::replace(&mut self.draft, next));
        self.subscribers.retain(|subscriber| subscriber.send(&draft));
        self.drafts.add(draft);
        self.drafts.release(guard);
    }

    /// Publishes a batch that is full, or for which nobody waits any more: what it names is let go. At the end of a turn.
    #[inline]
    pub(in crate::cache) fn publish_due(&mut self, guard: &Guard<'_>) {
        let gathered = self.draft.len();
        if gathered > 0 && (gathered >= FULL || self.subscribers.iter().all(Subscriber::has_gone)) {
            self.publish(guard);
        }
        if !self.drafts.is_empty() {
            self.drafts.release(guard);
        }
    }

    fn is_listened_to(&self) -> bool {
        !self.subscribers.is_empty()
    }
}

/// Evicted blocks on their way to the caller of [`evict_into`](crate::PrefixCache::evict_into), or to the eviction sink.
#[derive(Debug, Default)]
pub(in crate::cache) struct Victims {
    pub(in crate::cache) excerpt: Excerpt,
    pub(in crate::cache) victims: Vec<Victim>,
    pub(in crate::cache) blocks: Vec<BlockId>,
}

/// What one trim took.
#[derive(Debug)]
pub(in crate::cache) struct Victim {
    pub(in crate::cache) namespace: NamespaceName,
    pub(in crate::cache) piece: PieceId,
    pub(in crate::cache) reason: EvictionReason,
    /// Tokens of its sequence that have keys and values before its first block, and the depth at which its last block ends.
    pub(in crate::cache) start: usize,
    pub(in crate::cache) end: usize,
    pub(in crate::cache) blocks: usize,
}

impl Evictor {
    /// Tells that these blocks of a run are in the accounts. `from` is the depth where the first of them begins, unless it begins
    /// above the run.
    #[inline]
    pub(super) fn tell_stored<'g>(
        &mut self,
        run: Ref<'g, Run>,
        from: u32,
        blocks: Range<usize>,
        resources: Resources<'g>,
    ) {
        if !blocks.is_empty() && self.observers.is_listened_to() {
            self.gather_stored(run, from as usize, blocks, resources);
        }
    }

    #[cold]
    fn gather_stored<'g>(&mut self, run: Ref<'g, Run>, from: usize, held: Range<usize>, resources: Resources<'g>) {
        let (space, grid, guard) = (run.space(), resources.grid_of(run), resources.guard);
        if space.is_detached() || run.shown(guard) as usize <= from {
            return;
        }
        let Some(arrays) = run.arrays(guard) else { return };
        let first = grid.blocks(run.start()) + held.start;
        let mut before = Vec::new();
        match run.parent() {
            _ if held.start > 0 => before.push(arrays.blocks()[held.start - 1]),
            Some(parent) if first > 0 => append_blocks(parent, first - 1, grid, &mut before, guard),
            _ => {}
        }
        let to = grid.end_of(first + held.len()) - run.start();
        arrays.name();
        let name = space.holdings.name.clone();
        self.observers.draft.store(
            name,
            grid,
            first,
            before.pop(),
            Rest { arrays: arrays.link(), tokens: from..to, blocks: held },
            |begin, tokens| {
                append_tokens(run, begin..run.start() + from, tokens, guard);
            },
        );
    }

    /// Puts the blocks of `run` from the `keep`-th on, which have left the accounts, on their way, and tells of them.
    #[inline]
    pub(super) fn take_off<'g>(&mut self, run: Ref<'g, Run>, keep: usize, held: usize, resources: Resources<'g>) {
        let blocks = &run.block_ids(resources.guard)[keep..held];
        if run.space().is_detached() {
            self.totals.cleared += blocks.len() as u64;
            self.freed.extend_from_slice(blocks);
            return;
        }
        // What is hidden was told of then, and goes to no tier.
        let hidden = self.hidden_of(run, held, resources).min(blocks.len());
        let (blocks, hidden) = blocks.split_at(blocks.len() - hidden);
        self.totals.count_evicted(hidden.len() as u64, EvictionReason::Invalidated);
        self.freed.extend_from_slice(hidden);
        self.totals.count_evicted(blocks.len() as u64, self.reason);
        self.tell_removed(run, keep, blocks, resources);
        self.put_evicted(run, keep, blocks, resources);
    }

    /// Tells that lookups do not find `blocks` any more, the blocks of `run` from the `keep`-th on, and leaves a mark for those that miss them.
    #[inline]
    pub(super) fn tell_removed<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        resources: Resources<'g>,
    ) {
        if blocks.is_empty() {
            return;
        }
        // Of a run or piece that goes whole, the first block was marked when it came; as many marks were left since as came after it.
        let (serial, first) = self.insert_of(run, keep, resources);
        if keep > first || !resources.seen.keeps_for(self.registered - serial) {
            resources.mark_seen(run, keep);
        }
        if self.observers.is_listened_to() {
            self.gather_removed(run, keep, blocks, resources);
        }
    }

    /// The number of the run or piece that has a block of `run`, and the first of its blocks.
    #[inline]
    fn insert_of(&self, run: Ref<'_, Run>, block: usize, resources: Resources<'_>) -> (u64, usize) {
        run.account.with(&self.owner, |account| {
            let grid = resources.grid_of(run);
            let end = || (grid.end_of(grid.blocks(run.start()) + block + 1) - run.start()) as u32;
            let piece = if account.pieces.is_empty() { None } else { account.pieces.at(end()) };
            piece.map_or((account.serial, 0), |piece| (piece.serial, run.blocks_to(piece.start, grid)))
        })
    }

    #[cold]
    fn gather_removed<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        let grid = resources.grid_of(run);
        let (name, first) = (run.space().holdings.name.clone(), grid.blocks(run.start()) + keep);
        self.observers.draft.remove(name, grid, first, blocks, self.reason);
    }

    /// Tells that lookups find nothing of a space any more, which was just detached.
    pub(in crate::cache) fn tell_cleared(&mut self, space: &Space) {
        if self.observers.is_listened_to() {
            self.observers.draft.clear_namespace(space.holdings.name.clone());
        }
    }
}

impl Victims {
    pub(super) fn add<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        reason: EvictionReason,
        resources: Resources<'g>,
    ) {
        if blocks.is_empty() {
            return;
        }
        let grid = resources.grid_of(run);
        let first = grid.blocks(run.start()) + keep;
        self.victims.push(Victim {
            namespace: run.space().holdings.name.clone(),
            piece: self.excerpt.take(run, grid, resources.guard),
            reason,
            start: grid.filled(grid.end_of(first)),
            end: grid.end_of(first + blocks.len()),
            blocks: blocks.len(),
        });
        self.blocks.extend_from_slice(blocks);
    }
}
