//! Maintenance operations: settings, marks, eviction, clearing, statistics and checks.

use std::collections::BTreeSet;

use radixkv::PolicyKind;

use super::Reference;
use super::marks::BlockMarks;
use super::outcome::{Lease, Stats};
use super::store::{BlockId, Violation};

impl Reference {
    /// Changes the eviction policy.
    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.store.set_policy(policy);
    }

    /// Limits the cached blocks of a namespace, and the blocks in its leases and reservations.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// cache.set_quota(&["tenant-7"], Some(4), Some(2)); // 4 blocks cached, 2 in leases and reservations
    /// assert!(cache.reserve_in(&["tenant-7"], 3).is_err());
    /// ```
    pub fn set_quota(&mut self, namespace: &[&str], cached: Option<usize>, pinned: Option<usize>) {
        let owner = self.namespace_id(namespace);
        let is_limited = self.store.limits.iter().any(|(limited, _)| *limited == owner);
        if is_limited || cached.is_some() {
            *self.store.limit_of(owner) = cached;
        }
        self.pinned_limits.remove(&owner);
        self.pinned_limits.extend(pinned.map(|limit| (owner, limit)));
    }

    /// Makes [`settle`](Self::settle) drop blocks of one namespace that were unused for `duration`.
    pub fn set_time_to_idle(&mut self, namespace: &[&str], duration: Option<u64>) {
        let owner = self.namespace_id(namespace);
        self.times_to_idle.remove(&owner);
        if let Some(duration) = duration {
            // From now on the namespace has a place in the order of limits.
            self.store.limit_of(owner);
            self.times_to_idle.insert(owner, duration);
        }
    }

    /// Adds free blocks.
    pub fn grow(&mut self, blocks: usize) {
        self.store.grow(blocks);
    }

    /// Invalidates these blocks and all their descendants: no lookup finds them any more. Returns
    /// how many of them lookups could find before.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// assert_eq!(cache.invalidate_blocks(&inserted.blocks[1..]), 1);
    /// assert_eq!((cache.peek(&[], &[1, 2, 3, 4]), cache.stats().free_blocks), (2, 7));
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn invalidate_blocks(&mut self, blocks: &[BlockId]) -> usize {
        self.store.hide(blocks)
    }

    /// Evicts the blocks of a namespace that were unused for `idle`; returns how many.
    pub fn evict_idle(&mut self, namespace: &[&str], idle: u64) -> usize {
        let owner = self.namespace_id(namespace);
        self.now.checked_sub(idle).map_or(0, |idle_since| self.store.age(Some(owner), idle_since))
    }

    /// Evicts the blocks that were idle for too long, then those beyond a limit.
    pub fn settle(&mut self) {
        if let Some(idle_since) = self.time_to_idle.and_then(|duration| self.now.checked_sub(duration)) {
            self.store.age(None, idle_since);
        }
        for (owner, duration) in &self.times_to_idle {
            if let Some(idle_since) = self.now.checked_sub(*duration) {
                self.store.age(Some(*owner), idle_since);
            }
        }
        self.store.keep_to_limits();
    }

    /// Gives every block up to the lease a priority, which expires after `ttl` if there is one.
    pub fn prioritize(&mut self, lease: &Lease, priority: i64, ttl: Option<u64>) {
        let expiry = ttl.map(|ttl| self.now.saturating_add(ttl));
        self.store.mark(lease.at, |marks| marks.prioritize(priority, expiry));
    }

    /// Demotes every block up to the lease: it is evicted before all others until it is used,
    /// renewed or retained.
    pub fn demote(&mut self, lease: &Lease) {
        self.store.mark(lease.at, BlockMarks::demote);
    }

    /// Sets the last use of every block up to the lease to now, without counting a use.
    pub fn renew(&mut self, lease: &Lease) {
        for block in self.store.path(lease.at) {
            self.store.touch(block, self.now, false);
        }
    }

    /// Counts a use of every block up to the lease, without changing its last use.
    pub fn count_use(&mut self, lease: &Lease) {
        for block in self.store.path(lease.at) {
            self.store.count(block);
        }
    }

    /// Protects every block up to the lease for `duration`, and ends its demotion. Returns false if
    /// the lease's tree was dropped or its blocks were invalidated.
    pub fn retain(&mut self, lease: &Lease, duration: u64) -> bool {
        if self.store.is_dropped(lease.tree) || self.store.is_hidden(lease.at) {
            return false;
        }
        let now = self.now;
        self.store.mark(lease.at, BlockMarks::keep);
        if lease.len_tokens > 0 {
            self.store.retain(lease.at, now.saturating_add(duration));
        }
        true
    }

    /// Ends the retention ([`retain`](Self::retain)) of exactly this path.
    pub fn release_retained(&mut self, lease: &Lease) {
        self.store.release_retained(lease.at);
    }

    /// Evicts up to `blocks` blocks in the order of the policy; returns how many.
    pub fn evict(&mut self, blocks: usize) -> usize {
        self.store.evict(blocks)
    }

    /// Evicts up to `blocks` blocks of one namespace in the order of the policy; returns how many.
    pub fn evict_namespace(&mut self, namespace: &[&str], blocks: usize) -> usize {
        let owner = self.namespace_id(namespace);
        // From now on the namespace has a place in the order of limits.
        self.store.limit_of(owner);
        self.store.evict_of(owner, blocks)
    }

    /// Empties every namespace.
    pub fn clear(&mut self) {
        for (_, tree) in std::mem::take(&mut self.namespaces) {
            self.store.fell(tree);
        }
    }

    /// Empties one namespace and removes its quota and time to idle; the default namespace keeps
    /// both.
    pub fn drop_namespace(&mut self, namespace: &[&str]) {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        if let Some(tree) = self.namespaces.remove(&key) {
            self.store.fell(tree);
        }
        if key.is_empty() {
            return;
        }
        if let Some(owner) = self.namespace_ids.remove(&key) {
            self.store.limits.retain(|(limited, _)| *limited != owner);
            self.pinned_limits.remove(&owner);
            self.times_to_idle.remove(&owner);
        }
    }

    /// The numbers of free, reserved, evictable and protected blocks.
    pub fn stats(&self) -> Stats {
        let (free_blocks, reserved_blocks) = (self.store.free.len(), self.store.reserved.len());
        let protected_blocks = self.store.protected().len();
        let used = free_blocks + reserved_blocks + protected_blocks;
        Stats { free_blocks, reserved_blocks, evictable_blocks: self.store.capacity() - used, protected_blocks }
    }

    /// The reserved and cached blocks.
    pub fn blocks_in_use(&self) -> BTreeSet<BlockId> {
        let blocks = 0..self.store.capacity() as BlockId;
        blocks.filter(|block| !self.store.free.contains(block)).collect()
    }

    /// Checks every invariant for every block.
    ///
    /// # Errors
    ///
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        self.store.validate()
    }
}
