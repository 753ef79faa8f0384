//! Subscribers to events of stored and removed blocks, and the events that are gathered for them.

use std::ops::Range;

use super::drafts::Drafts;
use super::{Listeners, Live};
use crate::block::BlockId;
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::listening::draft::{Draft, Rest};
use crate::cache::listening::events::EvictionReason;
use crate::name::NamespaceName;
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::sync::channel::Sender;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::tree::path::{append_blocks, append_tokens};
use crate::tree::{PathSnapshot, PieceId, Run, Space};

/// The number of events that make a full batch; fewer wait until somebody asks for them.
const FULL: usize = 64;

/// The next batch of events, and the drafts that subscribers have not copied.
#[derive(Debug, Default)]
pub(in crate::cache) struct Observers {
    draft: Draft,
    pub(in crate::cache) drafts: Drafts,
}

/// The value of [`Subscriber::waiting`] once the subscriber has gone.
pub(in crate::cache) const GONE: usize = usize::MAX;

/// The evictor's end of a subscriber's channel.
#[derive(Debug, Clone)]
pub(in crate::cache) struct Subscriber {
    pub(in crate::cache) drafts: Sender<Arc<Draft>>,
    /// Batches that were sent and not received yet, at most `most`; or [`GONE`].
    pub(in crate::cache) waiting: Arc<AtomicUsize>,
    pub(in crate::cache) most: usize,
}

impl Subscriber {
    /// Sends `draft` if there is room; returns false if the subscriber has gone.
    fn send(&self, draft: &Arc<Draft>) -> bool {
        // Relaxed: a bound; only this end raises the count, under the evictor's lock.
        match self.waiting.load(Relaxed) {
            GONE => false,
            waiting if waiting >= self.most => true,
            _ => {
                let is_there =
                    self.waiting.fetch_add(1, Relaxed) != GONE && self.drafts.send(Arc::clone(draft)).is_ok();
                if !is_there {
                    // The subscriber has gone meanwhile.
                    self.waiting.store(GONE, Relaxed);
                }
                is_there
            }
        }
    }

    pub(in crate::cache) fn has_gone(&self) -> bool {
        // Relaxed: a subscriber that has gone does not come back.
        self.waiting.load(Relaxed) == GONE
    }
}

impl Observers {
    /// The number of the next batch.
    pub(in crate::cache) fn next(&self) -> u64 {
        self.draft.number()
    }
}

/// Evicted blocks on their way to the caller of [`evict_into`](crate::PrefixCache::evict_into), or
/// to the eviction sink.
#[derive(Debug, Default)]
pub(in crate::cache) struct Victims {
    pub(in crate::cache) paths: PathSnapshot,
    pub(in crate::cache) victims: Vec<Victim>,
    pub(in crate::cache) blocks: Vec<BlockId>,
}

/// The blocks that one trim evicted.
#[derive(Debug)]
pub(in crate::cache) struct Victim {
    pub(in crate::cache) namespace: NamespaceName,
    pub(in crate::cache) piece: PieceId,
    pub(in crate::cache) reason: EvictionReason,
    /// The number of tokens with keys and values before its first block, and the depth at which its
    /// last block ends.
    pub(in crate::cache) start: usize,
    pub(in crate::cache) end: usize,
    pub(in crate::cache) blocks: usize,
}

impl Evictor<'_> {
    /// Adds a subscriber; returns the number of its first batch.
    pub(in crate::cache) fn subscribe(&mut self, subscriber: Subscriber, resources: Resources<'_>) -> u64 {
        self.publish(resources);
        self.change_subscribers(resources, |subscribers| subscribers.push(subscriber));
        self.common.listeners.observers.next()
    }

    /// Changes the list of subscribers, and removes subscribers that have gone.
    fn change_subscribers(&mut self, resources: Resources<'_>, change: impl FnOnce(&mut Vec<Subscriber>)) {
        let mut live = Live::clone(&self.common.listeners.live);
        live.subscribers.retain(|subscriber| !subscriber.has_gone());
        change(&mut live.subscribers);
        resources.live.replace(live, self);
    }

    /// Hands the gathered events to every subscriber whose channel has room; it never waits.
    pub(in crate::cache) fn publish(&mut self, resources: Resources<'_>) {
        let Listeners { observers: Observers { draft, drafts }, live, .. } = &mut self.common.listeners;
        if draft.len() == 0 {
            return;
        }
        let next = draft.next();
        let draft = Arc::new(std::mem::replace(draft, next));
        let mut has_gone = false;
        live.subscribers.iter().for_each(|subscriber| has_gone |= !subscriber.send(&draft));
        drafts.add(draft);
        drafts.release(resources.guard);
        if has_gone {
            self.change_subscribers(resources, |_| ());
        }
    }

    /// At the end of a turn, publishes a batch that is full, or whose subscribers have all gone, so
    /// that the arrays that it names are released.
    #[inline]
    pub(in crate::cache) fn publish_due(&mut self, resources: Resources<'_>) {
        let gathered = self.common.listeners.observers.draft.len();
        if gathered > 0 && (gathered >= FULL || self.common.listeners.live.subscribers.iter().all(Subscriber::has_gone))
        {
            self.publish(resources);
        }
        if !self.common.listeners.observers.drafts.is_empty() {
            self.common.listeners.observers.drafts.release(resources.guard);
        }
    }

    /// Tells subscribers of stored blocks; the arguments are as in `stored`.
    #[inline]
    pub(in crate::cache) fn tell_stored<'g>(
        &mut self,
        run: Ref<'g, Run>,
        from: u32,
        blocks: Range<usize>,
        resources: Resources<'g>,
    ) {
        if !blocks.is_empty() && self.has_subscribers() {
            self.gather_stored(run, from as usize, blocks, resources);
        }
    }

    #[cold]
    fn gather_stored<'g>(&mut self, run: Ref<'g, Run>, from: usize, held: Range<usize>, resources: Resources<'g>) {
        let (space, layout, guard) = (run.space(), resources.layout_of(run), resources.guard);
        if space.is_detached() || run.shown(guard) as usize <= from {
            return;
        }
        let Some(arrays) = run.arrays(guard) else { return };
        let first = layout.blocks(run.start()) + held.start;
        let mut before = Vec::new();
        match run.parent() {
            _ if held.start > 0 => before.push(arrays.blocks()[held.start - 1]),
            Some(parent) if first > 0 => append_blocks(parent, first - 1, layout, &mut before, guard),
            _ => {}
        }
        let to = layout.end_of(first + held.len()) - run.start();
        arrays.name();
        let name = space.account.name.clone();
        self.common.listeners.observers.draft.store(
            name,
            layout,
            first,
            before.pop(),
            Rest { arrays: arrays.link(), tokens: from..to, blocks: held },
            |begin, tokens| {
                append_tokens(run, begin..run.start() + from, tokens, guard);
            },
        );
    }

    /// Tells subscribers of blocks that lookups no longer find, as in `unfindable`.
    #[inline]
    pub(in crate::cache) fn tell_removed<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        resources: Resources<'g>,
    ) {
        if self.has_subscribers() {
            self.gather_removed(run, keep, blocks, resources);
        }
    }

    #[cold]
    fn gather_removed<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        let layout = resources.layout_of(run);
        let (name, first) = (run.space().account.name.clone(), layout.blocks(run.start()) + keep);
        let reason = self.first().reason;
        self.common.listeners.observers.draft.remove(name, layout, first, blocks, reason);
    }

    /// Tells subscribers that lookups find nothing any more of a space that was just detached.
    pub(in crate::cache) fn tell_cleared(&mut self, space: &Space) {
        if self.has_subscribers() {
            self.common.listeners.observers.draft.clear_namespace(space.account.name.clone());
        }
    }
}

impl Victims {
    pub(in crate::cache) fn add<'g>(
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
        let layout = resources.layout_of(run);
        let first = layout.blocks(run.start()) + keep;
        self.victims.push(Victim {
            namespace: run.space().account.name.clone(),
            piece: self.paths.take(run, layout, resources.guard),
            reason,
            start: layout.filled(layout.end_of(first)),
            end: layout.end_of(first + blocks.len()),
            blocks: blocks.len(),
        });
        self.blocks.extend_from_slice(blocks);
    }
}
