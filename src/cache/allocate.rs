//! Taking blocks: from the pool, by evicting what is missing, or by waiting for them.

use std::time::Instant;

use super::fork::SharedBlocks;
use super::quota::QuotaCharge;
use super::strong_ref::StrongRef;
use super::wait_list::Waiter;
use super::{Inner, Reservation, ReserveError, Session};
use crate::block::BlockId;

/// How hard an attempt looks for blocks before it finds too few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// At what is there.
    Once,
    /// So that whoever makes blocks available later sees who waits for them (line.rs).
    Waiting,
}

impl Session {
    /// Takes `blocks` blocks, or nothing.
    ///
    /// If fewer are free it evicts exactly what is missing, in the policy's order. It does not stand in the line of
    /// those who wait ([`reserve_until`](Self::reserve_until)): a running request can grow while others wait to be
    /// admitted. Lock-free while enough are free.
    ///
    /// # Errors
    ///
    /// [`ReserveError::Exhausted`] if leases and reservations hold too much, [`ReserveError::TooLarge`] if the cache is
    /// smaller than that, [`ReserveError::External`] if the pool is the engine's.
    pub fn reserve(&self, blocks: usize) -> Result<Reservation, ReserveError> {
        self.strong_refs.inner().check_request(blocks)?;
        self.strong_refs.inner().take(blocks, &|| self.strong_refs.take(), Effort::Once)
    }

    /// Takes `blocks` blocks, and waits for them until `deadline` if leases and reservations hold too much.
    ///
    /// Those who wait are served in the order in which they came, `PrefixCache::reserve_async` (feature `async`)
    /// included: each takes all its blocks or nothing, and nobody overtakes him but [`reserve`](Self::reserve). Blocks
    /// come when leases and reservations are dropped; a lease that this thread holds itself does not go while it waits.
    ///
    /// # Errors
    ///
    /// [`ReserveError::TimedOut`] at the deadline; [`ReserveError::TooLarge`] and [`ReserveError::External`] at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use radixkv::{PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 8).build()?;
    /// let session = cache.session();
    /// let running = session.reserve(6)?;
    ///
    /// let soon = Instant::now() + Duration::from_millis(5);
    /// let refused = session.reserve_until(4, soon).unwrap_err();
    /// assert_eq!(refused, ReserveError::TimedOut { requested: 4, available: 2 });
    ///
    /// let waiting = std::thread::spawn({
    ///     let cache = cache.clone();
    ///     move || cache.session().reserve_until(4, Instant::now() + Duration::from_secs(60)).map(|r| r.len())
    /// });
    /// drop(running);
    /// assert_eq!(waiting.join().unwrap(), Ok(4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_until(&self, blocks: usize, deadline: Instant) -> Result<Reservation, ReserveError> {
        let inner = &**self.strong_refs.inner();
        inner.check_request(blocks)?;
        if !inner.wait_list.has_waiters() {
            if let Ok(reservation) = inner.take(blocks, &|| self.strong_refs.take(), Effort::Once) {
                return Ok(reservation);
            }
        }
        let cache = self.strong_refs.take();
        let waiter = Waiter::join(&cache);
        loop {
            let available = match inner.take_in_turn(blocks, &cache, &waiter) {
                Err(ReserveError::Exhausted { available, .. }) => available,
                served => return served,
            };
            // Nobody rings when a deadline of something retained has come.
            let retained_until = if waiter.is_first() { inner.retained_until() } else { None };
            let until = retained_until.map_or(deadline, |moment| moment.min(deadline));
            if !waiter.signal().wait_until(until) && Instant::now() >= deadline {
                return Err(ReserveError::TimedOut { requested: blocks, available });
            }
        }
    }
}

impl Inner {
    /// Refuses what can never be served.
    pub(super) fn check_request(&self, blocks: usize) -> Result<(), ReserveError> {
        let capacity = self.pool.capacity();
        if blocks > capacity {
            return Err(ReserveError::TooLarge { requested: blocks, capacity });
        }
        if self.returned.is_some() && blocks > 0 {
            return Err(ReserveError::External);
        }
        Ok(())
    }

    /// When the first of what is retained is let go, if nobody ends it earlier.
    fn retained_until(&self) -> Option<Instant> {
        let next = self.evicting(|evictor, _| evictor.retained.next());
        next.and_then(|deadline| self.time.moment(deadline))
    }

    /// Takes `n` blocks if `place` is the first of the line.
    pub(super) fn take_in_turn(
        &self,
        n: usize,
        cache: &StrongRef,
        waiter: &Waiter,
    ) -> Result<Reservation, ReserveError> {
        if waiter.is_first() {
            return self.take(n, &|| cache.clone(), Effort::Waiting);
        }
        // Those before are to be served first.
        let stats = self.gauges.read(self);
        Err(ReserveError::Exhausted { requested: n, available: stats.free_blocks + stats.evictable_blocks })
    }

    /// Takes `n` blocks, evicting what is missing.
    #[inline]
    pub(super) fn take(
        &self,
        n: usize,
        strong_ref: &dyn Fn() -> StrongRef,
        effort: Effort,
    ) -> Result<Reservation, ReserveError> {
        // First: blocks that were taken are in hands that give them back, whatever panics.
        let mut reservation = Reservation {
            blocks: Vec::new(),
            shared: SharedBlocks::default(),
            charge: QuotaCharge::default(),
            cache: strong_ref(),
        };
        if !self.pool.try_take(n, &mut reservation.blocks) {
            self.take_evicting(n, &mut reservation.blocks, effort)?;
        }
        if let Some(background) = self.background.get() {
            background.blocks_left(self.sink().free());
        }
        Ok(reservation)
    }

    /// Direct reclaim.
    #[cold]
    fn take_evicting(&self, n: usize, blocks: &mut Vec<BlockId>, effort: Effort) -> Result<(), ReserveError> {
        self.evicting(|evictor, resources| {
            let mut entries = usize::MAX;
            let mut settled = evictor.catch_up(resources);
            if effort == Effort::Waiting {
                evictor.settle_for_waiter(resources);
                settled = true;
            }
            loop {
                if self.pool.try_take(n, blocks) {
                    return Ok(());
                }
                let free = self.pool.free();
                let available = free + evictor.totals.evictable;
                let missing = n.saturating_sub(free);
                // A change that is not in the queue yet can make the accounts promise too much for a moment.
                if available < n || (missing > 0 && evictor.evict(missing, &mut entries, resources) == 0) {
                    if settled {
                        let available = available.min(n - 1);
                        return Err(ReserveError::Exhausted { requested: n, available });
                    }
                    evictor.settle(resources);
                    settled = true;
                }
            }
        })
    }
}
