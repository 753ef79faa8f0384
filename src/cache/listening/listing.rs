//! Lists the blocks cached at one moment, while other threads continue: for snapshots and
//! `Namespace::walk`. The evictor's part is `evictor::listeners::listing`.

use std::collections::HashMap;

use crate::cache::evictor::{Listed, Listing, SWEEP_SLICE, runs_below};
use crate::cache::inner::Inner;
use crate::cache::namespaces::namespace::Namespace;
use crate::reclaim::{Guard, Ref};
use crate::tree::Space;

impl Inner {
    /// Lists the cached runs of a namespace, or of all, with every change made before the call.
    /// `guard` was pinned before, and keeps the listed runs readable.
    pub(in crate::cache) fn list(&self, namespace: Option<&Namespace>, guard: &Guard<'_>) -> Listing {
        let (id, one) = self.settled(|evictor, resources| {
            evictor.publish(resources);
            (evictor.begin_listing(), namespace.map(|namespace| namespace.0.root(guard)))
        });
        // From here on the lock is taken only for slices: a trim that removes something meanwhile
        // lists it first.
        let spaces = match one {
            Some(root) => root.map(|root| root.run().space()).into_iter().collect(),
            None => self.all_spaces_since(id, guard),
        };
        let roots = spaces.iter().filter_map(|space| space.root(guard));
        let runs: Vec<_> = roots.flat_map(|root| runs_below(root, usize::MAX, guard).0).map(Ref::link).collect();
        self.in_turn(|evictor, _| evictor.make_room(id, runs.len()));
        for slice in runs.chunks(SWEEP_SLICE) {
            self.in_turn(|evictor, resources| {
                evictor.list_slice(id, slice.iter().map(|run| run.get(resources.guard)), resources);
            });
        }
        let mut listing = self.in_turn(|evictor, _| evictor.end_listing(id));
        listing.list_pieces();
        let spaces: HashMap<_, _> = spaces.into_iter().map(Ref::link).zip(0..).collect();
        let place = |listed: &Listed| spaces.get(&listed.run.get(guard).space().link()).copied();
        // Removed runs were listed meanwhile, whatever their namespace.
        listing.runs.retain(|listed| place(listed).is_some());
        // Ordered by space, then by the order in which the evictor took the runs in, so parents
        // come before their children. With several shards there is no such order, but a parent
        // begins before its children.
        let begin = |listed: &Listed| listed.run.get(guard).start() + listed.at.start as usize;
        let begin = |listed: &Listed| if self.shards.get() > 1 { begin(listed) } else { 0 };
        listing.runs.sort_unstable_by_key(|listed| (place(listed), begin(listed), listed.serial));
        listing
    }

    /// The trees in which lookups start, and those in which they started when the listing began.
    fn all_spaces_since<'g>(&self, id: u64, guard: &'g Guard<'_>) -> Vec<Ref<'g, Space>> {
        let present = self.namespaces.spaces(guard);
        // Read after `present`: a tree that `present` lacks was detached before this.
        let detached = self.in_turn(|evictor, _| evictor.take_detached_since(id));
        let mut spaces: HashMap<_, _> = detached.into_iter().map(|space| (space, space.get(guard))).collect();
        spaces.extend(present.into_iter().map(|space| (space.link(), space)));
        spaces.into_values().collect()
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
