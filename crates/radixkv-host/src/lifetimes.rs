//! Times to live: how long blocks can be found. Lookups, arrivals and evictions apply them.

use std::{
    collections::HashMap,
    ops::Range,
    time::{Duration, Instant},
};

use radixkv::{NamespaceName, Token};

use crate::{
    index::Place,
    tier::{HostBlock, HostTier, State},
};

/// The time to live of each namespace; those without an entry share a common one.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    common: Option<Duration>,
    of: HashMap<NamespaceName, Option<Duration>>,
}

impl Lifetimes {
    pub(crate) fn new(common: Option<Duration>) -> Self {
        Self { common, of: HashMap::new() }
    }

    /// How long blocks of a namespace can be found; `None`: as long as there is room.
    pub(crate) fn of(&self, namespace: &NamespaceName) -> Option<Duration> {
        if self.of.is_empty() { self.common } else { self.of.get(namespace).copied().unwrap_or(self.common) }
    }

    /// When a block of a namespace that is of this age expires; `None`: never.
    pub(crate) fn end_of(&self, namespace: &NamespaceName, age: Duration) -> Option<Instant> {
        Instant::now().checked_add(self.of(namespace)?.saturating_sub(age))
    }

    /// Sets a namespace's time to live. The common one takes no memory.
    fn set(&mut self, namespace: &NamespaceName, time_to_live: Option<Duration>) {
        if time_to_live == self.common {
            self.of.remove(namespace);
        } else {
            self.of.insert(namespace.clone(), time_to_live);
        }
    }
}

impl HostTier {
    /// Sets how long a block of a namespace can be found after it was stored; a use does not extend
    /// it. A remote tier gets a block with the remaining time. `None`: as long as there is room.
    /// Default: [`HostBuilder::time_to_live`](crate::HostBuilder::time_to_live).
    ///
    /// It also applies to blocks that are already here, but not to those in remote tiers. The time
    /// of a block begins again when it arrives from a remote tier, or once more from a device.
    ///
    /// The tier remembers the name of each namespace whose time differs from the builder's, even if
    /// it has no blocks of it: set the builder's time for a namespace that will not be used again.
    pub fn set_time_to_live(&self, namespace: &NamespaceName, time_to_live: Option<Duration>) {
        self.inner.lock().lifetimes.set(namespace, time_to_live);
    }

    /// Removes the expired blocks; returns how many. Lookups do not find expired blocks, but their
    /// memory is freed only when a lookup encounters them, when they are evicted, or by this call.
    /// Checks every block.
    pub fn remove_expired(&self) -> usize {
        let mut state = self.inner.lock();
        let cached = state.slots.cached();
        let expired: Vec<_> = cached.into_iter().filter(|&(block, place)| state.is_expired(block, place)).collect();
        state.remove_as_expired(expired.into_iter().map(|(block, _)| block))
    }
}

impl State {
    /// Whether a cached block has expired.
    pub(crate) fn is_expired(&self, block: HostBlock, place: Place) -> bool {
        self.lifetimes.of(self.index.namespace(place)).is_some_and(|limit| self.slots.age(block) >= limit)
    }

    /// Removes the expired blocks among the given ones of a sequence.
    pub(crate) fn expire(&mut self, namespace: &NamespaceName, tokens: &[Token], numbers: Range<usize>) {
        if self.lifetimes.of(namespace).is_none() {
            return;
        }
        let Some(path) = self.index.path(namespace, tokens) else { return };
        let held = numbers.filter_map(|number| self.held(&path, number));
        let expired: Vec<_> = held.filter(|&(block, place)| self.is_expired(block, place)).collect();
        self.remove_as_expired(expired.into_iter().map(|(block, _)| block));
    }

    /// Removes blocks, deepest first, so that each removal cuts the end of a run only once.
    fn remove_as_expired(&mut self, blocks: impl DoubleEndedIterator<Item = HostBlock>) -> usize {
        let count = blocks.rev().filter(|&block| self.remove(block)).count();
        self.counters.expired_blocks += count as u64;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_common_time_takes_no_memory() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let [hour, day] = [1, 24].map(|hours| Some(Duration::from_secs(3600 * hours)));
        let mut lifetimes = Lifetimes::new(day);
        for tenant in 0..1000 {
            let name = cache.namespace(&[&format!("tenant-{tenant}")]).name();
            for time in [None, hour] {
                lifetimes.set(&name, time);
                assert_eq!((lifetimes.of(&name), lifetimes.of.len()), (time, 1));
            }
            lifetimes.set(&name, day);
            assert_eq!(lifetimes.of(&name), day);
        }
        assert!(lifetimes.of.is_empty());
    }
}
