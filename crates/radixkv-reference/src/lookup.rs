//! Lookups, and operations on the leases that they return.

use radixkv::Token;

use super::Reference;
use super::outcome::{Lease, PrefixMatch, WeakLease};
use super::store::{BlockId, Place, TreeId};

impl Reference {
    /// Leases the longest cached prefix and counts a use of it.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 9]);
    /// assert_eq!((hit.lease.len_tokens(), hit.blocks.len()), (2, 1));
    /// cache.release(hit.lease);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn match_prefix(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.resume(lease, tokens)
    }

    /// As [`match_prefix`](Self::match_prefix), without counting a use.
    pub fn match_prefix_untouched(&mut self, namespace: &[&str], tokens: &[Token]) -> PrefixMatch {
        let lease = self.root_lease(namespace);
        self.extend(lease, tokens)
    }

    /// Returns the length of the longest cached prefix in tokens, without any effect.
    pub fn peek(&self, namespace: &[&str], tokens: &[Token]) -> usize {
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let tree = self.namespaces.get(&key);
        tree.map_or(0, |&tree| self.descend(tree, Place::Root(tree), &self.keys(tree, tokens)).1 * self.block_size)
    }

    /// Extends a lease to the longest cached prefix of `tokens`, and counts a use of every block
    /// that the lease's request has not used yet.
    ///
    /// `tokens` is the whole sequence and begins with the leased tokens; a shorter one panics.
    pub fn resume(&mut self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        let touched = if lease.touched { lease.len_tokens / self.block_size } else { 0 };
        let mut found = self.extend(lease, tokens);
        for (i, &block) in found.blocks.iter().enumerate() {
            self.store.touch(block, self.now, i >= touched);
        }
        found.lease.touched = true;
        found
    }

    /// Finds the blocks just beyond a lease that share the most first tokens with `tokens`, the
    /// whole sequence. Returns the number of shared tokens and the blocks; `None` if that number is
    /// 0 or below `min_tokens`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 3, 9]);
    /// let (agreeing, blocks) = cache.match_partial(&hit.lease, &[1, 2, 3, 9], 1).expect("token 3 agrees");
    /// assert_eq!((agreeing, blocks.len()), (1, 1));
    /// # cache.release(hit.lease);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn match_partial(&self, lease: &Lease, tokens: &[Token], min_tokens: usize) -> Option<(usize, Vec<BlockId>)> {
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let wanted = &keys[lease.len_tokens * width..];
        let pairs = |block| <[Token]>::chunks(block, width).zip(wanted.chunks(width));
        let agreeing = |block| pairs(block).take_while(|(ours, theirs)| ours == theirs).count();
        let below = self.store.blocks_below(lease.at);
        let longest = below.iter().map(|(tokens, _)| agreeing(tokens)).max()?;
        let best = below.iter().filter(|(tokens, _)| agreeing(tokens) == longest).map(|(_, block)| *block);
        (longest >= min_tokens.max(1)).then(|| (longest, best.collect()))
    }

    /// Leases the path up to `block`, which is just beyond `lease`, without counting a use.
    ///
    /// # Panics
    ///
    /// If the block is not just beyond the lease.
    pub fn lease_block(&mut self, lease: &Lease, block: BlockId) -> Lease {
        assert!(self.store.blocks_below(lease.at).iter().any(|(_, below)| *below == block));
        let at = Place::After(block);
        self.store.lease(at);
        Lease { tree: lease.tree, at, len_tokens: lease.len_tokens + self.block_size, touched: false }
    }

    /// A second lease on the same path, not counted as a use.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2]);
    /// let second = cache.clone_lease(&hit.lease);
    /// cache.release(hit.lease);
    /// assert_eq!(cache.stats().protected_blocks, 1); // by the second one
    /// # cache.release(second);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn clone_lease(&mut self, lease: &Lease) -> Lease {
        self.store.lease(lease.at);
        Lease { touched: false, ..*lease }
    }

    /// Returns a weak handle, which can lease the prefix again without a lookup.
    pub fn downgrade(&self, lease: &Lease) -> WeakLease {
        let Lease { tree, at, len_tokens, .. } = *lease;
        WeakLease { tree, at, len_tokens, piece: self.store.piece_at(at) }
    }

    /// Leases the whole prefix without counting a use; `None` if it is empty, or one of its blocks
    /// was evicted, invalidated or detached (its namespace was cleared or dropped).
    pub fn upgrade(&mut self, weak: &WeakLease) -> Option<Lease> {
        let WeakLease { tree, at, len_tokens, piece } = *weak;
        let stands = piece.is_some() && self.store.piece_at(at) == piece;
        if !stands || self.store.is_dropped(tree) || self.store.is_hidden(at) {
            return None;
        }
        self.store.lease(at);
        Some(Lease { tree, at, len_tokens, touched: false })
    }

    /// Gives a lease back.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// # let (miss, blocks) = (cache.match_prefix(&[], &[1, 2, 3, 4]), cache.reserve(2)?);
    /// # let inserted = cache.insert(&miss.lease, &[1, 2, 3, 4], blocks).expect("two blocks");
    /// # [miss.lease, inserted.lease].map(|lease| cache.release(lease));
    /// // Cached are the tokens 1, 2, 3, 4 in blocks of two; nothing is leased.
    /// let hit = cache.match_prefix(&[], &[1, 2, 3, 4]);
    /// assert_eq!(cache.evict(2), 0);
    /// cache.release(hit.lease);
    /// assert_eq!(cache.evict(2), 2);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn release(&mut self, lease: Lease) {
        self.store.release(lease.at);
    }

    fn root_lease(&mut self, namespace: &[&str]) -> Lease {
        let owner = self.namespace_id(namespace);
        let key: Vec<String> = namespace.iter().map(|part| part.to_string()).collect();
        let of_bigrams = self.bigrams.contains(&key);
        let store = &mut self.store;
        let tree = *self.namespaces.entry(key).or_insert_with(|| store.plant(owner));
        if of_bigrams {
            self.bigram_trees.insert(tree);
        }
        let at = Place::Root(tree);
        self.store.lease(at);
        Lease { tree, at, len_tokens: 0, touched: false }
    }

    /// Follows `keys` from `at`. Returns the end of the longest cached path, and its length in
    /// blocks.
    pub(super) fn descend(&self, tree: TreeId, mut at: Place, keys: &[Token]) -> (Place, usize) {
        let mut blocks = 0;
        for keys in keys.chunks_exact(self.block_size * self.width(tree)) {
            let Some(block) = self.store.child(at, keys) else {
                break;
            };
            at = Place::After(block);
            blocks += 1;
        }
        (at, blocks)
    }

    /// Moves a lease to the end of the longest cached prefix of `tokens`.
    fn extend(&mut self, lease: Lease, tokens: &[Token]) -> PrefixMatch {
        assert!(tokens.len() >= self.matched_by(&lease), "the sequence must begin with the leased tokens");
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let (at, blocks) = self.descend(lease.tree, lease.at, &keys[lease.len_tokens * width..]);
        self.store.lease(at);
        self.store.release(lease.at);
        let len_tokens = lease.len_tokens + blocks * self.block_size;
        let lease = Lease { at, len_tokens, ..lease };
        PrefixMatch { lease, blocks: self.store.path(at) }
    }
}
