//! What is cached at one moment, listed while other threads go on.

use std::collections::HashMap;

use crate::cache::evictor::{Listed, Listing, SWEEP_SLICE, runs_below};
use crate::cache::inner::Inner;
use crate::cache::namespaces::namespace::Namespace;
use crate::reclaim::{Guard, Ref};
use crate::tree::Space;

impl Inner {
    /// Lists what is cached in a namespace, or in all of them, once every change is taken in that was made before. `guard` was
    /// pinned before and stays: what is listed is readable as long.
    pub(in crate::cache) fn list(&self, namespace: Option<&Namespace>, guard: &Guard<'_>) -> Listing {
        let (id, one) = self.settled(|evictor, resources| {
            evictor.publish(resources);
            (evictor.begin_listing(), namespace.map(|namespace| namespace.0.root(guard)))
        });
        // Under no lock, from here to the end: a trim that takes something away meanwhile lists it first.
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
        // What went meanwhile was listed wherever it was.
        listing.runs.retain(|listed| place(listed).is_some());
        // One space after the other; in each, what was taken in first comes first, and so parents before their children.
        listing.runs.sort_unstable_by_key(|listed| (place(listed), listed.serial));
        listing
    }

    /// The trees in which lookups start, and those in which they started when a listing began.
    fn all_spaces_since<'g>(&self, id: u64, guard: &'g Guard<'_>) -> Vec<Ref<'g, Space>> {
        let present = self.namespaces.spaces(guard);
        // Afterwards: a tree that was not met above had been detached before.
        let detached = self.in_turn(|evictor, _| evictor.take_detached_since(id));
        let mut spaces: HashMap<_, _> = detached.into_iter().map(|space| (space, space.get(guard))).collect();
        spaces.extend(present.into_iter().map(|space| (space.link(), space)));
        spaces.into_values().collect()
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
