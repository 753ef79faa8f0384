//! Who is told of what is stored and of what goes, in this order. The accounts and `trim` name none
//! of them: a listener is a file here, and a line in each of the functions below that it needs.
//!
//! | listener | is told of | who needs it | what it costs where nobody does |
//! |---|---|---|---|
//! | `quota` | stored, protected, removed | namespaces with limits, and the numbers of each | its counts |
//! | `invalidation` | stored, removed | who found wrong keys and values in blocks | one comparison |
//! | `listing` | removed | snapshots, saving, routing: one moment of a cache that runs on | one comparison |
//! | `marks` | unfindable | who asks why lookups missed | a mark for each eviction |
//! | `observers`, `drafts` | stored, unfindable | subscribers to events | the flag `has_any` |
//! | `sinking` | evicted | tiers below the cache | the same flag |
//!
//! `live` is the record that says who they are. What is filed with the policy is told in `ranking`;
//! `retained` hears of points by the queue, as the evictor itself does.
//!
//! Each function calls its listeners in the order in which they must hear of it: a listing first,
//! while the run is as it was; events before the sink, because the receiver of blocks may store
//! them again; the invalidated runs last, because the others ask for them. Calls are direct and
//! under the evictor's lock, without a table of functions and without allocation. An insert tells
//! nobody: the evictor tells of a run when it takes it into the accounts, and of blocks when a trim
//! takes them out. So events have one order. `ledger` is an example of a listener, for tests.

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
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::tree::Run;

pub(super) use drafts::let_go;
pub(in crate::cache) use invalidation::{Cut, Hidden};
pub(in crate::cache) use listing::{Listed, Listing, Listings};
pub(in crate::cache) use live::{Live, LiveSettings};
pub(in crate::cache) use observers::{GONE, Observers, Subscriber, Victim, Victims};
pub(in crate::cache) use quota::{QuotaPass, Quotas};
pub(in crate::cache) use sinking::{Beneficiary, ForSink, LeftForSink, Outlet, SharedOutlet, Sinking};

/// What the listeners know.
#[derive(Debug)]
pub(in crate::cache) struct Listeners {
    pub(in crate::cache) quotas: Quotas,
    /// Runs that lookups do not find whole.
    pub(in crate::cache) hidden: Hidden,
    listings: Listings,
    pub(in crate::cache) observers: Observers,
    /// Where evicted blocks go while a caller asks for them, or if there is a sink.
    pub(in crate::cache) victims: Option<Box<Victims>>,
    pub(in crate::cache) sinking: Sinking,
    /// The settings in force.
    pub(in crate::cache) live: Arc<Live>,
    /// There is a sink, or a subscriber.
    has_any: bool,
    /// Blocks that were stored, and that went.
    #[cfg(test)]
    ledger: [usize; 2],
}

impl Listeners {
    /// `live`: without a sink and subscribers.
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
            ledger: [0; 2],
        }
    }
}

/// What a trim takes off the end of a run.
#[derive(Debug, Clone)]
pub(super) struct Removal {
    /// The depths between which it lies.
    pub(super) depths: Range<u32>,
    /// The run's blocks that go.
    pub(super) blocks: Range<usize>,
}

impl Evictor {
    /// Blocks of a run came into the accounts. `from` is the depth where the first of them begins,
    /// unless it begins above the run.
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

    /// Leases protect `after` blocks of a run, where they protected `before`.
    #[inline]
    pub(super) fn protected(&mut self, run: Ref<'_, Run>, before: usize, after: usize) {
        self.count_protected(run, before, after);
    }

    /// The end of a run has left the tree. Its blocks go to the pool next, or to who asked for
    /// them.
    #[inline]
    pub(super) fn removed<'g>(&mut self, run: Ref<'g, Run>, removal: Removal, resources: Resources<'g>) {
        let Removal { depths, blocks } = removal;
        #[cfg(test)]
        self.enter_removed(&blocks);
        // First: as it was.
        self.list_first(run, depths.end, resources);
        let ids = &run.block_ids(resources.guard)[blocks.clone()];
        if run.space().is_detached() {
            // All that was in it was told of when it was detached.
            self.totals.cleared += ids.len() as u64;
            self.freed.extend_from_slice(ids);
        } else {
            // What is hidden was told of then, and goes to no tier.
            let hidden = self.hidden_of(run, blocks.end, resources).min(ids.len());
            let (evicted, hidden) = ids.split_at(ids.len() - hidden);
            self.totals.count_evicted(hidden.len() as u64, EvictionReason::Invalidated);
            self.freed.extend_from_slice(hidden);
            self.totals.count_evicted(evicted.len() as u64, self.reason);
            self.unfindable(run, blocks.start, evicted, resources);
            self.put_evicted(run, blocks.start, evicted, resources);
        }
        self.count_freed(run, blocks.len());
        self.note_end(run, depths.start, resources);
    }

    /// Lookups do not find `blocks` any more, the blocks of `run` from the `keep`-th on.
    #[inline]
    fn unfindable<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        if !blocks.is_empty() {
            self.leave_mark(run, keep, resources);
            self.tell_removed(run, keep, blocks, resources);
        }
    }

    /// The blocks of a run up to `depth` that go as soon as nothing holds them, whatever the policy
    /// says.
    #[inline]
    pub(super) fn must_go<'g>(&self, run: Ref<'g, Run>, depth: u32, resources: Resources<'g>) -> usize {
        if run.space().is_detached() {
            return usize::MAX;
        }
        if self.listeners.hidden.is_empty() {
            return 0;
        }
        self.hidden_of(run, run.blocks_to(depth, resources.grid_of(run)), resources)
    }
}
