//! Listeners: the parts of the cache that the evictor tells of stored and removed blocks, in one
//! order. The accounts and `trim` call the functions of this file and name no listener. A listener
//! is a file here, and a line in each function below that it needs.
//!
//! | listener | is told of | who needs it | cost if nobody does |
//! |---|---|---|---|
//! | `quota` | stored, protected, removed | namespaces with limits, and the statistics of each namespace | its counts |
//! | `invalidation` | stored, removed | callers that found wrong keys and values in blocks | one comparison |
//! | `listing` | removed | snapshots, saving, routing: all that need a list of the blocks cached at one moment | one comparison |
//! | `marks` | unfindable | statistics of the reasons why lookups missed | a mark for each eviction |
//! | `observers`, `drafts` | stored, unfindable | subscribers to events | the flag `has_any` |
//! | `sinking` | evicted | tiers below the cache | the same flag |
//!
//! `live` is the record of the subscribers, the sink and the settings. Not listeners: `exchange`
//! and `aging`, which `ranking` tells what is filed, and `retained`, which gets points from the
//! queue.
//!
//! Each function calls its listeners in the order that they need. A removal: `listing` first, for
//! the run as it was; events before the sink, because the receiver of blocks may store them again;
//! `invalidation` last, because the others ask it which blocks are hidden. A stored run:
//! `invalidation` before the events. Calls are direct and under the evictor's lock, without a table
//! of functions or allocation. An insert tells no listener: the evictor does so when it takes a run
//! into the accounts, and when a trim takes blocks out. So events have one order. `ledger` is an
//! example of a listener, for tests.
//!
//! A turn of one shard has one lock, so it may tell only `marks` and the counts of `quota`, which
//! are atomic. While any other listener has someone to tell, or a namespace has a limit on cached
//! blocks, [`Listeners::let_shards_alone`] is false and every eviction is in a turn of all. That
//! check costs a turn of one five comparisons. A new listener must be added to it, unless several
//! threads may call the listener at once.

mod drafts;
mod invalidation;
#[cfg(test)]
mod ledger;
mod listing;
mod live;
mod marks;
mod observers;
mod quota;
mod sinking;

use std::ops::Range;

use super::{Evictor, Resources};
use crate::block::BlockId;
use crate::cache::listening::events::EvictionReason;
use crate::cache::numbers::stats::Total;
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::tree::Run;

pub(super) use drafts::retire_unless_drafted;
pub(in crate::cache) use invalidation::{Cut, Hidden};
pub(in crate::cache) use listing::{Listed, Listing, Listings};
pub(in crate::cache) use live::{Live, LiveSettings};
pub(in crate::cache) use observers::{GONE, Observers, Subscriber, Victim, Victims};
pub(in crate::cache) use quota::{QuotaPass, Quotas, SortGoal, Sorting};
pub(in crate::cache) use sinking::{Beneficiary, ForSink, Outlet, SharedOutlet, Sinking};

/// The state of all listeners.
#[derive(Debug)]
pub(in crate::cache) struct Listeners {
    pub(in crate::cache) quotas: Quotas,
    /// Runs of which lookups find only a part, or nothing.
    pub(in crate::cache) hidden: Hidden,
    listings: Listings,
    pub(in crate::cache) observers: Observers,
    /// Evicted blocks on their way to a caller that asked for them, or to the sink.
    pub(in crate::cache) victims: Option<Box<Victims>>,
    pub(in crate::cache) sinking: Sinking,
    /// The current settings.
    pub(in crate::cache) live: Arc<Live>,
    /// Whether there is a sink or a subscriber.
    has_any: bool,
    /// The numbers of blocks that were stored and removed.
    #[cfg(test)]
    ledger: [crate::sync::gauge::AtomicUsize; 2],
}

impl Listeners {
    /// `live` must have no sink and no subscribers.
    pub(super) fn new(live: Arc<Live>) -> Self {
        Self {
            quotas: Quotas::default(),
            hidden: Hidden::default(),
            listings: Listings::default(),
            observers: Observers::default(),
            victims: None,
            sinking: Sinking::default(),
            live,
            has_any: false,
            #[cfg(test)]
            ledger: Default::default(),
        }
    }
}

impl Listeners {
    /// Whether no listener needs to be told of a turn of one shard.
    pub(super) fn let_shards_alone(&self) -> bool {
        !self.has_any
            && self.victims.is_none()
            && self.hidden.is_empty()
            && self.listings.is_empty()
            && self.quotas.have_no_limits()
    }
}

/// The part that a trim cuts off the end of a run.
#[derive(Debug, Clone)]
pub(super) struct Removal {
    /// The depths that are cut off.
    pub(super) depths: Range<u32>,
    /// The run's blocks that are removed.
    pub(super) blocks: Range<usize>,
}

impl Evictor<'_> {
    /// Tells the listeners that blocks of a run are in the accounts. `from` is the depth at which
    /// the first of them begins, or zero if it begins before the run.
    #[inline]
    pub(super) fn stored<'g>(
        &mut self,
        run: Ref<'g, Run>,
        from: u32,
        blocks: Range<usize>,
        charged: usize,
        resources: Resources<'g>,
    ) {
        #[cfg(test)]
        self.enter_stored(&blocks);
        self.count_cached(run, blocks.len(), charged);
        if from == 0 {
            self.sever_if_beyond(run, resources);
        }
        self.tell_stored(run, from, blocks, resources);
    }

    /// Tells the listeners that leases now protect `after` blocks of a run instead of `before`.
    #[inline]
    pub(super) fn protected(&mut self, run: Ref<'_, Run>, before: usize, after: usize) {
        self.count_protected(run, before, after);
    }

    /// Tells the listeners that a trim has cut off the end of a run, and passes its blocks on: to
    /// the pool, to the caller that asked for them, or to the sink.
    #[inline]
    pub(super) fn removed<'g>(&mut self, run: Ref<'g, Run>, removal: Removal, resources: Resources<'g>) {
        let Removal { depths, blocks } = removal;
        #[cfg(test)]
        self.enter_removed(&blocks);
        // First, because a listing needs the run as it was.
        self.list_first(run, depths.end, resources);
        let ids = &run.block_ids(resources.guard)[blocks.clone()];
        if run.space().is_detached() {
            // Subscribers were told of all its blocks when the space was detached.
            self.totals.add(Total::Cleared, ids.len());
            self.first_mut().freed.extend_from_slice(ids);
        } else {
            // Subscribers were told of hidden blocks when they were hidden; no tier gets them.
            let hidden = self.hidden_of(run, blocks.end, resources).min(ids.len());
            let (evicted, hidden) = ids.split_at(ids.len() - hidden);
            self.totals.count_evicted(hidden.len(), EvictionReason::Invalidated);
            self.first_mut().freed.extend_from_slice(hidden);
            let reason = self.first().reason;
            self.totals.count_evicted(evicted.len(), reason);
            self.unfindable(run, blocks.start, evicted, resources);
            self.put_evicted(run, blocks.start, evicted, resources);
        }
        self.count_freed(run, blocks.len());
        self.note_end(run, depths.start, resources);
    }

    /// Tells the listeners that lookups no longer find `blocks`, the blocks of `run` from the
    /// `keep`-th on.
    #[inline]
    fn unfindable<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        if !blocks.is_empty() {
            self.leave_mark(run, keep, resources);
            self.tell_removed(run, keep, blocks, resources);
        }
    }

    /// How many of the last blocks of a run that ends at `depth` must be freed as soon as nothing
    /// holds them, regardless of the policy.
    #[inline]
    pub(super) fn must_go<'g>(&self, run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) -> usize {
        if run.space().is_detached() {
            return usize::MAX;
        }
        if self.common.listeners.hidden.is_empty() {
            return 0;
        }
        self.hidden_of(run, run.blocks_to(depth, resources.layout_of(run)), resources)
    }
}
