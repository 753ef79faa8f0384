//! Listing the blocks that are cached at one moment, in slices so that other threads get turns in
//! between. `cache::listening::listing` calls it.
//!
//! A listing has the runs and pieces that were in the accounts when it began. If a run is to be
//! shortened or hidden meanwhile, the evictor first lists it as it is; so the listing can visit all
//! other runs later, and misses nothing. Runs and pieces that are taken in later have later
//! serials, and are skipped.

use std::collections::HashSet;
use std::ops::Range;

use smallvec::SmallVec;

use crate::block::BlockLayout;
use crate::cache::evictor::{Evictor, Resources};
use crate::name::NamespaceName;
use crate::reclaim::{Link, Ref};
use crate::tree::{PathSnapshot, PieceId, Run, Space};

/// The listings in progress.
#[derive(Debug, Default)]
pub(in crate::cache) struct Listings {
    begun: u64,
    under_way: Vec<Listing>,
}

/// The runs and pieces that were cached at one moment.
#[derive(Debug)]
pub(in crate::cache) struct Listing {
    id: u64,
    /// For each shard, the serial of the first run or piece that is not in the listing.
    until: SmallVec<[u64; 1]>,
    /// The number of the first batch of events that reports later changes.
    pub(in crate::cache) next_batch: u64,
    pub(in crate::cache) paths: PathSnapshot,
    pub(in crate::cache) runs: Vec<Listed>,
    seen: HashSet<Link<Run>>,
    /// Trees that were detached since it began.
    detached: Vec<Link<Space>>,
}

/// A run, or a piece of one, as it was.
#[derive(Debug)]
pub(in crate::cache) struct Listed {
    /// Its serial number, which tells when it was taken into the accounts.
    pub(in crate::cache) serial: u64,
    pub(in crate::cache) run: Link<Run>,
    pub(in crate::cache) piece: PieceId,
    /// The depths of the run that lookups found.
    pub(in crate::cache) at: Range<u32>,
    /// Serials and depths of the pieces after it, until `list_pieces` lists them separately.
    behind: Vec<(u64, Range<u32>)>,
    pub(in crate::cache) namespace: NamespaceName,
    pub(in crate::cache) layout: BlockLayout,
}

impl Listing {
    /// Lists pieces separately from the runs that they were appended to. Called without a lock:
    /// there may be many more pieces than runs.
    pub(in crate::cache) fn list_pieces(&mut self) {
        let pieces = self.runs.iter_mut().flat_map(|listed| {
            let behind = std::mem::take(&mut listed.behind);
            behind.into_iter().map(|(serial, at)| Listed {
                serial,
                at,
                namespace: listed.namespace.clone(),
                behind: Vec::new(),
                ..*listed
            })
        });
        let pieces: Vec<_> = pieces.collect();
        self.runs.extend(pieces);
    }
}

impl Listings {
    #[inline]
    pub(in crate::cache) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}

impl Evictor<'_> {
    /// Whether a listing is in progress.
    #[cfg(test)]
    pub(in crate::cache) fn is_listing(&self) -> bool {
        !self.common.listeners.listings.is_empty()
    }

    /// Begins a listing; returns its id.
    pub(in crate::cache) fn begin_listing(&mut self) -> u64 {
        let id = self.common.listeners.listings.begun;
        let until = self.shards().map(|shard| shard.registered).collect();
        let next_batch = self.common.listeners.observers.next();
        self.common.listeners.listings.begun += 1;
        self.common.listeners.listings.under_way.push(Listing {
            id,
            until,
            next_batch,
            paths: PathSnapshot::default(),
            runs: Vec::new(),
            seen: HashSet::new(),
            detached: Vec::new(),
        });
        id
    }

    /// Makes room for `runs` runs while few are listed, so that no long list is copied under the
    /// lock later.
    pub(in crate::cache) fn make_room(&mut self, id: u64, runs: usize) {
        if let Some(listing) = self.common.listeners.listings.under_way.iter_mut().find(|listing| listing.id == id) {
            listing.paths.reserve(runs);
            listing.runs.reserve(runs);
            listing.seen.reserve(runs);
        }
    }

    /// Notes that a tree is being detached, which the listings in progress have to list.
    pub(in crate::cache) fn list_detached(&mut self, space: Link<Space>) {
        self.common.listeners.listings.under_way.iter_mut().for_each(|listing| listing.detached.push(space));
    }

    /// The trees that were detached since a listing began.
    pub(in crate::cache) fn take_detached_since(&mut self, id: u64) -> Vec<Link<Space>> {
        let listing = self.common.listeners.listings.under_way.iter_mut().find(|listing| listing.id == id);
        listing.map_or_else(Vec::new, |listing| std::mem::take(&mut listing.detached))
    }

    pub(in crate::cache) fn end_listing(&mut self, id: u64) -> Listing {
        let at = self.common.listeners.listings.under_way.iter().position(|listing| listing.id == id);
        self.common.listeners.listings.under_way.swap_remove(at.expect("a listing ends once"))
    }

    /// Lists a run in all listings in progress, with the `len` tokens that it had until now.
    #[inline]
    pub(in crate::cache) fn list_first<'g>(&mut self, run: Ref<'g, Run>, len: u32, resources: Resources<'g>) {
        if !self.common.listeners.listings.is_empty() {
            (0..self.common.listeners.listings.under_way.len()).for_each(|at| self.list(at, run, len, resources));
        }
    }

    #[cold]
    fn list<'g>(&mut self, at: usize, run: Ref<'g, Run>, len: u32, resources: Resources<'g>) {
        let until = self.common.listeners.listings.under_way[at].until[run.shard().index()];
        let depth = len.min(run.shown(resources.guard));
        // Parts that were appended later are not listed. For most runs, which have one part,
        // nothing is allocated.
        let (first, behind) = run.account.with(&self.owner, |account| {
            let parts = account.parts().filter(|(serial, at)| *serial < until && at.start < depth);
            let mut parts = parts.map(|(serial, at)| (serial, at.start..at.end.min(depth)));
            (parts.next().filter(|_| account.is_registered()), parts.collect())
        });
        let Some((serial, part)) = first else { return };
        let (layout, listing) = (resources.layout_of(run), &mut self.common.listeners.listings.under_way[at]);
        if !listing.seen.insert(run.link()) {
            return;
        }
        listing.runs.push(Listed {
            serial,
            run: run.link(),
            piece: listing.paths.take(run, layout, resources.guard),
            at: part,
            behind,
            namespace: run.space().account.name.clone(),
            layout,
        });
    }

    /// Lists the runs that the listing does not have yet.
    pub(in crate::cache) fn list_slice<'g>(
        &mut self,
        id: u64,
        runs: impl Iterator<Item = Ref<'g, Run>>,
        resources: Resources<'g>,
    ) {
        let Some(at) = self.common.listeners.listings.under_way.iter().position(|listing| listing.id == id) else {
            return;
        };
        for run in runs {
            self.list(at, run, run.word().len(), resources);
        }
    }
}
