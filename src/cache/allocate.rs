//! Taking blocks: from the pool, by evicting what is missing, or by waiting for them.

use std::time::Instant;

use super::evictor::{Evictor, Resources};
use super::inner::Inner;
use super::quota::QuotaCharge;
use super::reservation::{Reservation, ReserveError};
use super::session::Session;
use super::shared_blocks::SharedBlocks;
use super::strong_ref::StrongRef;
use super::waiter::Waiter;
use crate::block::BlockId;

/// Blocks that a reservation evicts in one turn: less than a millisecond's work.
const TURN: usize = 512;

/// How hard an attempt to take blocks looks before it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// It looks at the blocks that are there.
    Once,
    /// It looks in such a way that a thread that makes blocks available later sees the waiter (wait_list.rs).
    Waiting,
}

impl Session {
    /// Takes `blocks` blocks, or nothing.
    ///
    /// If fewer are free it evicts exactly the missing ones, in the policy's order. It passes the requests that wait
    /// ([`reserve_until`](Self::reserve_until)), so that a running request can grow while others wait to be admitted.
    /// Lock-free while enough are free.
    ///
    /// # Errors
    ///
    /// [`ReserveError::Exhausted`] if leases and reservations hold too many, [`ReserveError::TooLarge`] if the cache has
    /// fewer blocks, [`ReserveError::External`] if the engine owns the pool.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::{PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 8).build()?;
    /// let session = cache.session();
    /// let first = session.reserve(6)?;
    /// let refused = session.reserve(3).unwrap_err();
    /// assert_eq!(refused, ReserveError::Exhausted { requested: 3, available: 2 });
    /// # drop(first);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, blocks: usize) -> Result<Reservation, ReserveError> {
        self.strong_refs.inner().check_request(blocks)?;
        self.strong_refs.inner().take(blocks, &|| self.strong_refs.take(), Effort::Once)
    }

    /// Takes `blocks` blocks, and waits for them until `deadline` if leases and reservations hold too many.
    ///
    /// Requests that wait are served in the order in which they came, those of `PrefixCache::reserve_async` (feature
    /// `async`) included. Each takes all its blocks or nothing, and only [`reserve`](Self::reserve) passes them. Blocks
    /// become available when leases and reservations are dropped: do not wait for blocks that this thread itself leases.
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
            // The end of a retention wakes no thread: the first waiter wakes up by itself then.
            let retained_until = if waiter.is_first() { inner.retained_until() } else { None };
            let until = retained_until.map_or(deadline, |moment| moment.min(deadline));
            if !waiter.signal().wait_until(until) && Instant::now() >= deadline {
                return Err(ReserveError::TimedOut { requested: blocks, available });
            }
        }
    }
}

impl Inner {
    /// Refuses a request that can never be served.
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

    /// When the first retention ends, unless it is ended earlier.
    fn retained_until(&self) -> Option<Instant> {
        let next = self.evicting(|evictor, _| evictor.retained.next());
        next.and_then(|deadline| self.time.moment(deadline))
    }

    /// Takes `n` blocks if `waiter` is the first in the list.
    pub(super) fn take_in_turn(
        &self,
        n: usize,
        cache: &StrongRef<Inner>,
        waiter: &Waiter,
    ) -> Result<Reservation, ReserveError> {
        if waiter.is_first() {
            return self.take(n, &|| cache.clone(), Effort::Waiting);
        }
        // Earlier waiters are served first.
        let stats = self.stats();
        Err(ReserveError::Exhausted { requested: n, available: stats.free_blocks + stats.evictable_blocks })
    }

    /// Takes `n` blocks, and evicts the missing ones.
    #[inline]
    pub(super) fn take(
        &self,
        n: usize,
        strong_ref: &dyn Fn() -> StrongRef<Inner>,
        effort: Effort,
    ) -> Result<Reservation, ReserveError> {
        // First: blocks that were taken are in a reservation, which gives them back if anything panics.
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

    /// Takes `n` blocks, and evicts the missing ones on this thread: up to [`TURN`] in a turn. What it has freed in one may be
    /// taken by other threads before the next.
    #[cold]
    fn take_evicting(&self, n: usize, blocks: &mut Vec<BlockId>, effort: Effort) -> Result<(), ReserveError> {
        let in_background = self.background.get().is_some();
        // Under no lock.
        blocks.reserve(n);
        let mut turn = |evictor: &mut Evictor, resources: Resources<'_>| {
            // With a background evictor, a choice goes by the changes that it has taken in; otherwise by all.
            let mut settled = in_background && evictor.catch_up(resources);
            if effort == Effort::Waiting {
                evictor.settle_for_waiter(resources);
                settled = true;
            }
            self.take_in_one_turn(n, blocks, settled, evictor, resources)
        };
        let mut taken = if in_background { self.evicting(&mut turn) } else { self.settled(&mut turn) };
        loop {
            if let Some(taken) = taken {
                return taken;
            }
            taken = self.in_turn(&mut turn);
        }
    }

    /// Nothing if more turns are needed.
    fn take_in_one_turn(
        &self,
        n: usize,
        blocks: &mut Vec<BlockId>,
        mut settled: bool,
        evictor: &mut Evictor,
        resources: Resources<'_>,
    ) -> Option<Result<(), ReserveError>> {
        let (mut entries, mut left) = (usize::MAX, TURN);
        loop {
            if evictor.serve(n, blocks, resources) {
                return Some(Ok(()));
            }
            if left == 0 {
                return None;
            }
            let free = evictor.free(resources);
            let available = free + evictor.totals.evictable;
            let missing = n.saturating_sub(free);
            let want = missing.min(left);
            let freed = if available < n { 0 } else { evictor.evict(want, &mut entries, resources) };
            left -= freed;
            // A change that is not in the queue yet can make the counts too high for a moment.
            if missing > 0 && freed == 0 {
                if settled {
                    return Some(Err(ReserveError::Exhausted { requested: n, available: available.min(n - 1) }));
                }
                evictor.settle(resources);
                settled = true;
            }
        }
    }
}
