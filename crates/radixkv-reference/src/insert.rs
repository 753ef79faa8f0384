//! Reserving blocks, and inserting them into the cache once they are computed.

use radixkv::{InsertErrorKind, ReserveError, Token};

use super::Reference;
use super::outcome::{InsertError, Inserted, Lease, Reservation};
use super::store::{BlockId, NamespaceId, Place};

impl Reference {
    /// Reserves `blocks` blocks or none, and evicts exactly as many as are missing. They are
    /// charged to the default namespace if it has a limit on pinned blocks.
    ///
    /// # Errors
    ///
    /// [`ReserveError::TooLarge`] for more than the capacity, [`ReserveError::OverQuota`] beyond
    /// the default namespace's limit, [`ReserveError::Exhausted`] for more than the free and
    /// evictable blocks.
    pub fn reserve(&mut self, blocks: usize) -> Result<Reservation, ReserveError> {
        let default = self.namespace_id(&[]);
        if self.pinned_limits.contains_key(&default) {
            return self.reserve_in(&[], blocks);
        }
        self.take(blocks)
    }

    /// Refuses a reservation that cannot be served, before anything is evicted.
    fn check_available(&self, requested: usize) -> Result<(), ReserveError> {
        let (stats, capacity) = (self.stats(), self.store.capacity());
        if requested > capacity {
            return Err(ReserveError::TooLarge { requested, capacity });
        }
        let available = stats.free_blocks + stats.evictable_blocks;
        if available < requested {
            return Err(ReserveError::Exhausted { requested, available });
        }
        Ok(())
    }

    fn take(&mut self, requested: usize) -> Result<Reservation, ReserveError> {
        self.check_available(requested)?;
        let stats = self.stats();
        let missing = requested.saturating_sub(stats.free_blocks);
        assert_eq!(self.store.evict(missing), missing, "what is evictable can be evicted");
        let blocks: Vec<BlockId> = self.store.free.iter().copied().take(requested).collect();
        for block in &blocks {
            self.store.free.remove(block);
            self.store.reserved.insert(*block);
        }
        Ok(Reservation { blocks })
    }

    /// As [`reserve`](Self::reserve), but charges a namespace until the blocks are cached or given
    /// back.
    ///
    /// # Errors
    ///
    /// [`ReserveError::OverQuota`] beyond the namespace's limit; else as `reserve`.
    pub fn reserve_in(&mut self, namespace: &[&str], blocks: usize) -> Result<Reservation, ReserveError> {
        let (owner, requested) = (self.namespace_id(namespace), blocks);
        let pinned = self.store.pinned_by(owner);
        if let Some(&limit) = self.pinned_limits.get(&owner) {
            if requested <= self.store.capacity() && requested > limit.saturating_sub(pinned) {
                return Err(ReserveError::OverQuota { requested, pinned, limit });
            }
            self.check_available(requested)?;
            self.store.keep_to_limit(owner);
        }
        let reservation = self.take(blocks)?;
        self.store.charged.extend(reservation.blocks.iter().map(|block| (*block, owner)));
        Ok(reservation)
    }

    /// Gives a reservation back.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// let reservation = cache.reserve(3)?;
    /// cache.abort(reservation);
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn abort(&mut self, reservation: Reservation) {
        for block in reservation.blocks {
            assert!(self.store.reserved.remove(&block), "a reservation of this cache");
            self.store.charged.remove(&block);
            self.store.free.insert(block);
        }
    }

    /// Caches the whole blocks of `tokens` beyond the lease; the reservation has them in order.
    ///
    /// `tokens` is the whole sequence and begins with the leased tokens; a shorter one panics.
    ///
    /// # Errors
    ///
    /// See [`InsertErrorKind`]; the cache is unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut cache = radixkv_reference::Reference::new(2, 8, radixkv::PolicyKind::Lru);
    /// let miss = cache.match_prefix(&[], &[1, 2, 3]);
    /// let blocks = cache.reserve(1)?;
    /// let inserted = cache.insert(&miss.lease, &[1, 2, 3], blocks).expect("one whole block");
    /// assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (2, 1));
    /// # Ok::<_, radixkv::ReserveError>(())
    /// ```
    pub fn insert(
        &mut self,
        lease: &Lease,
        tokens: &[Token],
        reservation: Reservation,
    ) -> Result<Inserted, InsertError> {
        if let Some(kind) = self.refusal(lease, tokens, &reservation) {
            return Err(InsertError { reservation, kind });
        }
        let owner = self.store.namespace_of(lease.at);
        if self.pinned_limits.contains_key(&owner) && self.unpaid(owner, &reservation) > 0 {
            self.store.keep_to_limit(owner);
        }
        self.charge_rest(owner, &reservation);
        let (keys, width) = (self.keys(lease.tree, tokens), self.width(lease.tree));
        let (mut at, known) = self.descend(lease.tree, lease.at, &keys[lease.len_tokens * width..]);
        let fresh = keys.chunks(self.block_size * width).skip(lease.len_tokens / self.block_size + known);
        let mut level = None;
        self.store.begin_piece();
        for (block, keys) in reservation.blocks[known..].iter().zip(fresh) {
            // The first block may share tokens with cached blocks, so its tokens may differ in
            // level; later blocks have the level of its last token.
            let levels = level.map_or_else(|| self.store.levels(at, keys, width - 1), |level| vec![level; keys.len()]);
            level = levels.last().copied();
            self.store.add(at, keys, levels, *block, self.now);
            at = Place::After(*block);
        }
        self.store.lease(at);
        let path = self.store.path(at);
        for &block in &path {
            self.store.touch(block, self.now, false);
        }
        let limited = self.store.limits.iter().any(|(owner, limit)| {
            limit.is_some() && known < reservation.blocks.len() && *owner == self.store.namespace_of(at)
        });
        if limited {
            self.store.keep_to_limits();
        }
        let len_tokens = path.len() * self.block_size;
        Ok(Inserted {
            lease: Lease { tree: lease.tree, at, len_tokens, touched: true },
            blocks: path[lease.len_tokens / self.block_size..].to_vec(),
            duplicates: Reservation { blocks: reservation.blocks[..known].to_vec() },
            dropped_tokens: tokens.len() - len_tokens,
        })
    }

    fn refusal(&self, lease: &Lease, tokens: &[Token], reservation: &Reservation) -> Option<InsertErrorKind> {
        assert!(tokens.len() >= self.matched_by(lease), "the sequence must begin with the leased tokens");
        if self.store.is_dropped(lease.tree) {
            return Some(InsertErrorKind::NamespaceDropped);
        }
        let keys = self.keys(lease.tree, tokens).len() / self.width(lease.tree);
        let (needed, given) = ((keys - lease.len_tokens) / self.block_size, reservation.blocks.len());
        if needed != given {
            return Some(InsertErrorKind::BlockCount { needed, given });
        }
        if self.store.is_hidden(lease.at) {
            return Some(InsertErrorKind::Invalidated);
        }
        let owner = self.store.namespace_of(lease.at);
        let limit = *self.pinned_limits.get(&owner)?;
        let (requested, pinned) = (self.unpaid(owner, reservation), self.store.pinned_by(owner));
        let refused = requested > 0 && pinned + requested > limit;
        refused.then_some(InsertErrorKind::OverQuota { requested, pinned, limit })
    }

    /// Number of blocks of a reservation that are not charged to `owner`.
    fn unpaid(&self, owner: NamespaceId, reservation: &Reservation) -> usize {
        reservation.blocks.iter().filter(|block| self.store.charged.get(block) != Some(&owner)).count()
    }

    /// Charges the uncharged blocks of a reservation to a namespace with a limit on pinned blocks.
    fn charge_rest(&mut self, owner: NamespaceId, reservation: &Reservation) {
        if self.pinned_limits.contains_key(&owner) {
            reservation.blocks.iter().for_each(|block| _ = self.store.charged.entry(*block).or_insert(owner));
        }
    }
}
