//! Reserving blocks: from the pool, by evicting the missing ones, or by waiting for them.
//!
//! `Session::reserve` and `acquire` call this module. An attempt first takes blocks from the pool.
//! If those are too few, it evicts under the evictor's lock, in bounded turns. If several threads
//! wait for that lock, a small request is published, and the lock holder may serve it
//! (`line::publications`).

use super::block_request::{Ask, BlockRequest};
use super::reservation::{Reservation, ReserveError};
use crate::block::BlockId;
use crate::cache::evictor::{
    Alone, Beneficiary, Evictor, LOOKS, LeasePass, Request as EvictionRequest, Resources, SortGoal,
};
use crate::cache::inner::{Inner, STEP};
use crate::cache::leases::strong_ref::StrongRef;
use crate::cache::line::in_line::{Request, serve_by};
use crate::cache::line::publications::Publication;
use crate::cache::line::wait_list::{Lane, QueuePosition};
use crate::cache::line::waiter::Waiter;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::cache::session::{Near, Session};
use crate::cache::spans::within_span;
use crate::cache::turn::LockMode;
use crate::sync::Arc;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::tree::{NamespaceAccount, ShardId};

/// The most victims, and the most blocks, that a reservation evicts in one turn: less than a
/// millisecond's work.
const VICTIMS: usize = 512;
const BLOCKS: usize = 1 << 14;

/// How hard an attempt to take blocks looks before it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Effort {
    /// The request does not wait.
    Once,
    /// The first look of a request that joins the line if there are too few blocks. It evicts no
    /// block without offering it to the eviction sink.
    BeforeWaiting,
    /// The look of a waiter: a thread that makes blocks available afterwards sees the waiter
    /// (wait_list.rs).
    Waiting,
}

/// Wakes a waiter if this thread panics after another thread has served its request: the blocks
/// then return to the pool.
struct RingsIfBroken<'a>(&'a Inner);

impl Drop for RingsIfBroken<'_> {
    fn drop(&mut self) {
        if crate::sync::thread::panicking() {
            self.0.ring();
        }
    }
}

/// Whether the accounts can be trusted: they count blocks under silent leases as evictable until a
/// pass over the candidates has counted those leases. Nothing is evicted before that, so a refusal
/// evicts nothing unless leases are taken meanwhile.
#[derive(Debug, Default)]
struct Certainty {
    is_reached: bool,
    /// How often certainty was lost because other threads had made changes.
    losses: usize,
    /// A pass over all candidates, made if the first few have too few blocks.
    pass: Option<LeasePass>,
}

impl Certainty {
    /// Whether the accounts are right about whether `missing` blocks can be evicted; if not,
    /// another turn is needed.
    #[inline]
    fn reached(&mut self, missing: usize, evictor: &mut Evictor<'_>, resources: Resources<'_>) -> bool {
        self.is_reached |= missing == 0 || evictor.ascertain(missing, &mut self.pass, resources);
        self.is_reached
    }

    /// Takes in the changes of other threads. They end the certainty, but at most [`LOOKS`] times,
    /// so that an attempt ends even if the changes do not.
    fn settle(&mut self, evictor: &mut Evictor<'_>, resources: Resources<'_>) {
        if !evictor.is_caught_up(resources) && self.losses < LOOKS {
            self.losses += 1;
            self.is_reached = false;
        }
        evictor.settle(resources);
    }
}

/// What an attempt to take blocks keeps between its turns.
struct Attempt {
    effort: Effort,
    certainty: Certainty,
    /// Whether blocks that a turn has freed are kept for the next turn if they are too few. If not,
    /// other threads may take them between the two turns.
    keeps: bool,
    /// Turns that have offered blocks to the eviction sink.
    offers: usize,
    /// Number of the offered blocks that the sink still has.
    kept: Option<Arc<AtomicUsize>>,
}

impl Attempt {
    fn new(effort: Effort) -> Self {
        Self { effort, certainty: Certainty::default(), keeps: true, offers: 0, kept: None }
    }

    /// Whether the request waits in the line, because it may not evict without offering to the
    /// sink. A waiter looks again when it is woken, unless its deadline has passed.
    #[cold]
    fn waits_for_sink(&self, n: usize) -> bool {
        // Relaxed: only a heuristic.
        let keeps = || self.kept.as_ref().is_some_and(|kept| kept.load(Relaxed) > 0);
        match self.effort {
            Effort::Once => false,
            Effort::BeforeWaiting => self.has_offered_enough(n) || keeps(),
            Effort::Waiting => self.has_offered_enough(n),
        }
    }

    /// Whether the attempt has offered blocks often enough. If they are still missing, the sink
    /// caches them again each time, or other threads take them.
    fn has_offered_enough(&self, n: usize) -> bool {
        self.offers > LOOKS + n / VICTIMS
    }

    /// An attempt in a turn of another thread: it takes all blocks in that turn, or none.
    fn in_one_turn() -> Self {
        Self { keeps: false, ..Self::new(Effort::Once) }
    }
}

/// A request for blocks, which may wait.
pub(in crate::cache) struct ReserveRequest<'a> {
    pub(in crate::cache) near: Near<'a>,
    pub(in crate::cache) ask: Ask<'a>,
    pub(in crate::cache) inner: &'a Inner,
    pub(in crate::cache) strong_ref: &'a dyn Fn() -> StrongRef<Inner>,
}

impl Request for ReserveRequest<'_> {
    type Served = Reservation;

    fn inner(&self) -> &Inner {
        self.inner
    }

    fn is_empty(&self) -> bool {
        self.ask.blocks == 0
    }

    fn look(&self) -> Result<Reservation, ReserveError> {
        self.inner.take(self.near, self.ask, self.strong_ref, Effort::BeforeWaiting)
    }

    fn join(&self) -> Waiter {
        Waiter::join(&(self.strong_ref)(), self.ask)
    }

    fn look_in_turn(&self, waiter: &Waiter) -> Result<Reservation, ReserveError> {
        self.inner.reserve_if_first(self, waiter)
    }
}

#[inline(always)]
pub(in crate::cache) fn reserve<'a>(
    session: &Session,
    request: impl Into<BlockRequest<'a>>,
) -> Result<Reservation, ReserveError> {
    let (inner, request) = (&**session.strong_refs.inner(), request.into());
    let ask = Ask::new(request, inner);
    inner.check_request(ask.blocks)?;
    let taken = match request.deadline {
        None => inner.take(session.near(), ask, &|| session.strong_refs.take(), Effort::Once),
        Some(deadline) => {
            let strong_ref = &|| session.strong_refs.take();
            serve_by(&ReserveRequest { near: session.near(), ask, inner, strong_ref }, deadline)
        }
    };
    session.count_reserved(&taken);
    taken
}

impl Inner {
    /// Refuses a request that can never be served.
    pub(in crate::cache) fn check_request(&self, blocks: usize) -> Result<(), ReserveError> {
        let capacity = self.pool.capacity();
        if blocks > capacity {
            return Err(ReserveError::TooLarge { requested: blocks, capacity });
        }
        if self.returned.is_some() && blocks > 0 {
            return Err(ReserveError::External);
        }
        Ok(())
    }

    /// Takes the blocks if `waiter` is the first in the list.
    fn reserve_if_first(&self, taking: &ReserveRequest<'_>, waiter: &Waiter) -> Result<Reservation, ReserveError> {
        let ask = taking.ask;
        if let Some(account) = ask.charged(self) {
            account.check_limit(ask.blocks)?;
        }
        if waiter.position() == QueuePosition::HeldBack {
            if let Some(account) = ask.charged(self) {
                self.look_at_quota(account, ask.blocks)?;
            }
            waiter.pass();
        }
        if waiter.position() != QueuePosition::First {
            return Err(self.behind(ask.blocks));
        }
        let taken = self.take(taking.near, ask, taking.strong_ref, Effort::Waiting);
        match &taken {
            Ok(_) => waiter.count_served(),
            Err(ReserveError::OverQuota { .. }) => waiter.hold_back(),
            Err(_) if ask.lane == Lane::Admission => waiter.wake_another(),
            Err(_) => {}
        }
        taken
    }

    /// The error for a waiter that is not the first: earlier waiters are served first.
    pub(in crate::cache) fn behind(&self, requested: usize) -> ReserveError {
        let stats = self.stats();
        ReserveError::Exhausted { requested, available: stats.free_blocks + stats.evictable_blocks }
    }

    /// Takes the blocks, evicts the missing ones, and charges them to the namespace that pays.
    /// `near` is the slot in which the search for an idle participant starts.
    #[inline]
    pub(in crate::cache) fn take(
        &self,
        near: Near<'_>,
        ask: Ask<'_>,
        strong_ref: &dyn Fn() -> StrongRef<Inner>,
        effort: Effort,
    ) -> Result<Reservation, ReserveError> {
        match ask.charged(self) {
            None => self.reserve_charged(near, ask.blocks, QuotaCharge::default(), strong_ref, effort),
            Some(account) if account.pinned_limit().is_none() => {
                let charge = QuotaCharge::of(account, ask.blocks);
                crate::sync::failpoint!("quota::charged");
                self.reserve_charged(near, ask.blocks, charge, strong_ref, effort)
            }
            Some(account) => self.reserve_with_quota(ask.blocks, account, strong_ref, effort),
        }
    }

    /// As `take`, for a namespace with a limit: the limit and the available blocks are checked in
    /// one turn, so that a refused attempt is never charged.
    #[cold]
    fn reserve_with_quota(
        &self,
        n: usize,
        account: &Arc<NamespaceAccount>,
        strong_ref: &dyn Fn() -> StrongRef<Inner>,
        effort: Effort,
    ) -> Result<Reservation, ReserveError> {
        let mut reservation = Reservation::of(Vec::with_capacity(n), QuotaCharge::default(), strong_ref());
        let (mut attempt, mut sorting) = (Attempt::new(effort), SortGoal::default());
        let mut turn = |evictor: &mut Evictor<'_>, resources: Resources<'_>| -> Result<bool, ReserveError> {
            if effort == Effort::Waiting {
                evictor.settle_for_waiter(resources);
            }
            let has = reservation.blocks.len();
            if !attempt.certainty.reached(n.saturating_sub(has + evictor.free(resources)), evictor, resources) {
                return Ok(false);
            }
            // Before `may_charge`, which may evict for the limit on cached blocks: a refusal evicts
            // nothing.
            evictor.look_again(resources, |evictor| {
                account.check_charge(n)?;
                let available = has + evictor.free(resources) + evictor.evictable();
                if available < n { Err(ReserveError::Exhausted { requested: n, available }) } else { Ok(()) }
            })?;
            if !evictor.may_charge(account, n, &mut sorting, resources)? {
                return Ok(false);
            }
            let taken = self.try_reserve_in_turn(n, &mut reservation.blocks, true, &mut attempt, evictor, resources);
            taken.transpose()?;
            if taken.is_some() {
                reservation.charge = QuotaCharge::of(account, n);
            }
            Ok(taken.is_some())
        };
        // A lease whose change is still queued would not count against the limit.
        let mut taken = if effort == Effort::Waiting { self.evicting(&mut turn) } else { self.settled(&mut turn) };
        while !taken? {
            taken = self.in_turn(&mut turn);
        }
        self.note_blocks_left();
        // The first waiter may be of this namespace, and at its limit now: it must look again, to
        // let others pass. `ring` sees it, because it joined the list before it looked.
        if effort != Effort::Waiting {
            self.ring();
        }
        Ok(reservation)
    }

    #[inline]
    fn reserve_charged(
        &self,
        near: Near<'_>,
        n: usize,
        charge: QuotaCharge,
        strong_ref: &dyn Fn() -> StrongRef<Inner>,
        effort: Effort,
    ) -> Result<Reservation, ReserveError> {
        // Made first, so that blocks are in a reservation as soon as they are taken: it gives them
        // back after a panic.
        let mut reservation = Reservation::of(Vec::with_capacity(n), charge, strong_ref());
        if !self.pool.try_take(n, &mut reservation.blocks) {
            self.reserve_evicting(near, n, &mut reservation.blocks, effort)?;
        }
        self.note_blocks_left();
        Ok(reservation)
    }

    /// Takes `n` blocks and evicts the missing ones.
    #[cold]
    fn reserve_evicting(
        &self,
        near: Near<'_>,
        n: usize,
        blocks: &mut Vec<BlockId>,
        effort: Effort,
    ) -> Result<(), ReserveError> {
        within_span!("evict");
        if self.shards.get() > 1 && effort != Effort::Waiting && self.reserve_in_one_shard(near, n, blocks) {
            return Ok(());
        }
        if effort != Effort::Waiting && self.publications.should_combine(self.evictor.are_awaited()) {
            let _rings = RingsIfBroken(self);
            if let Some(publication) = self.publications.publish(near.slot, n, &self.pool) {
                return self.reserve_published(near, n, blocks, effort, &publication);
            }
        }
        self.reserve_in_turns(near, n, blocks, effort, LockMode::Waits, |_| false)
    }

    /// Takes the blocks in turns of one shard; false if that is not possible.
    fn reserve_in_one_shard(&self, near: Near<'_>, n: usize, blocks: &mut Vec<BlockId>) -> bool {
        if n > BLOCKS || self.background.get().is_some() || self.namespaces.is_behind() {
            return false;
        }
        let (mut shard, mut looks_around, mut visits) = (near.shard, true, self.shards.get());
        loop {
            let request = self.eviction_request(blocks, n, looks_around);
            match self.serve_alone(near, shard, request) {
                Alone::Served => return true,
                Alone::Visits(other) => {
                    self.visit(near, other);
                    return true;
                }
                Alone::Elsewhere(older) => (shard, looks_around) = (older, false),
                Alone::Unknown(other) => {
                    visits -= 1;
                    looks_around = visits > 0;
                    self.visit(near, other);
                }
                Alone::NeedsAll => return false,
            }
        }
    }

    /// Takes in the changes of a shard whose session may be idle; if that needs a turn of all, up to
    /// [`STEP`] changes of all shards.
    #[cold]
    fn visit(&self, near: Near<'_>, shard: ShardId) {
        let mut none = Vec::new();
        let request = self.eviction_request(&mut none, 0, false);
        let visited = self.serve_alone(near, shard, request);
        if visited == Alone::NeedsAll {
            self.in_turn_near(near, |evictor, resources| _ = evictor.drain(&mut { STEP }, resources));
        }
    }

    /// Runs a turn of one shard.
    fn serve_alone(&self, near: Near<'_>, shard: ShardId, request: EvictionRequest<'_>) -> Alone {
        let work = |evictor: &mut Evictor<'_>, resources: Resources<'_>| evictor.serve_alone(request, resources);
        self.turn(near, LockMode::One(shard), work, |_| false).expect("it waited for the lock")
    }

    /// A request of a turn of one shard.
    fn eviction_request<'a>(
        &'a self,
        blocks: &'a mut Vec<BlockId>,
        wanted: usize,
        looks_around: bool,
    ) -> EvictionRequest<'a> {
        // Relaxed: a thread sees its own requests to retain at once, and those of others soon.
        let (now, retentions) = (self.time.now(), self.retentions.load(Relaxed));
        EvictionRequest { blocks, wanted, looks_around, now, retentions, heads: &self.heads }
    }

    #[cold]
    fn reserve_published(
        &self,
        near: Near<'_>,
        n: usize,
        blocks: &mut Vec<BlockId>,
        effort: Effort,
        publication: &Publication<'_>,
    ) -> Result<(), ReserveError> {
        let take_served =
            |blocks: &mut Vec<BlockId>| publication.withdraw().map(|served| blocks.extend(served)).is_some();
        self.reserve_in_turns(near, n, blocks, effort, LockMode::Publishes(publication), take_served)
    }

    /// Takes `n` blocks in turns of this thread, which evict up to [`VICTIMS`] and [`BLOCKS`] each.
    /// What a turn has freed is moved to `blocks` before the next one, so that small requests of
    /// other threads cannot starve a large one. `take_served` appends the blocks if the lock holder
    /// has served the request meanwhile.
    #[inline(always)]
    fn reserve_in_turns(
        &self,
        near: Near<'_>,
        n: usize,
        blocks: &mut Vec<BlockId>,
        effort: Effort,
        mode: LockMode<'_>,
        take_served: impl Fn(&mut Vec<BlockId>) -> bool,
    ) -> Result<(), ReserveError> {
        let mut attempt = Attempt::new(effort);
        let mut turn = |evictor: &mut Evictor<'_>, resources: Resources<'_>| {
            if take_served(blocks) {
                return Some(Ok(()));
            }
            let settled = effort == Effort::Waiting;
            if settled {
                evictor.settle_for_waiter(resources);
            }
            let taken = self.try_reserve_in_turn(n, blocks, settled, &mut attempt, evictor, resources);
            if evictor.has_upkeep() || self.namespaces.is_behind() {
                evictor.keep_upkeep_up(resources);
                self.namespaces.tidy(evictor, resources);
            }
            // With a sink, evicted blocks become available only after this turn.
            if effort != Effort::Waiting && self.publications.has_any() && !evictor.has_sink() {
                self.serve_others(evictor, resources);
            }
            taken
        };
        let Some(mut taken) = self.settled_near(near, mode, &mut turn) else {
            let is_served = take_served(blocks);
            assert!(is_served, "else it waits for the lock");
            return Ok(());
        };
        loop {
            if let Some(taken) = taken {
                return taken;
            }
            taken = self.in_turn_near(near, &mut turn);
        }
    }

    /// Serves the requests that other threads have published while they wait for the lock.
    #[cold]
    fn serve_others(&self, evictor: &mut Evictor<'_>, resources: Resources<'_>) {
        let mut entries = STEP;
        self.publications.serve(|n, blocks| {
            // A request must see all changes that its thread made before. If they are too many for
            // this turn, the thread serves itself in a turn of its own.
            evictor.drain(&mut entries, resources)
                && matches!(
                    self.try_reserve_in_turn(n, blocks, true, &mut Attempt::in_one_turn(), evictor, resources),
                    Some(Ok(()))
                )
        });
    }

    /// Takes the blocks, if one turn is enough; `None` if more turns are needed.
    #[inline(always)]
    fn try_reserve_in_turn(
        &self,
        n: usize,
        blocks: &mut Vec<BlockId>,
        settled: bool,
        attempt: &mut Attempt,
        evictor: &mut Evictor<'_>,
        resources: Resources<'_>,
    ) -> Option<Result<(), ReserveError>> {
        if evictor.has_sink() && attempt.waits_for_sink(n) {
            return Some(Err(ReserveError::Exhausted { requested: n, available: n - 1 }));
        }
        let kept = if evictor.has_sink() { self.begin_offering(n, attempt, evictor) } else { 0 };
        let taken = try_reserve(n, blocks, settled, attempt, kept, evictor, resources);
        attempt.offers += usize::from(evictor.offered() > 0);
        taken
    }

    /// Sets for whom this turn evicts. Returns the number of blocks that the sink has and a waiter
    /// may expect back.
    #[cold]
    fn begin_offering(&self, n: usize, attempt: &mut Attempt, evictor: &mut Evictor<'_>) -> usize {
        let (beneficiary, on_their_way) = if attempt.effort == Effort::Waiting {
            (Beneficiary::Waiter, self.kept.for_waiter())
        } else if attempt.has_offered_enough(n) {
            (Beneficiary::PastSink, 0)
        } else {
            (Beneficiary::Thread(Arc::clone(attempt.kept.get_or_insert_default())), 0)
        };
        evictor.common.listeners.sinking.beneficiary = beneficiary;
        on_their_way
    }
}

/// Takes `n` blocks and evicts the missing ones; `None` if more turns are needed. `kept` is the
/// number of blocks that are expected back from the sink.
#[inline(always)]
fn try_reserve(
    n: usize,
    blocks: &mut Vec<BlockId>,
    mut settled: bool,
    Attempt { effort, certainty, keeps, .. }: &mut Attempt,
    kept: usize,
    evictor: &mut Evictor<'_>,
    resources: Resources<'_>,
) -> Option<Result<(), ReserveError>> {
    let (mut entries, mut victims, mut left, mut looks) = (usize::MAX, VICTIMS, BLOCKS, LOOKS);
    loop {
        if evictor.serve(n - blocks.len(), blocks, resources) {
            return Some(Ok(()));
        }
        let free = blocks.len() + evictor.free(resources) + evictor.offered() + kept;
        let missing = n.saturating_sub(free);
        if left == 0 || victims == 0 || evictor.needs_turn() || !certainty.reached(missing, evictor, resources) {
            if *keeps {
                evictor.keep_freed(n, blocks);
            }
            return None;
        }
        if missing == 0 && free > blocks.len() + evictor.free(resources) {
            // The sink has the missing blocks. It returns them before the next turn if the request
            // does not wait; if it waits, it is woken when they return.
            return match effort {
                Effort::Once | Effort::BeforeWaiting => None,
                Effort::Waiting => Some(Err(ReserveError::Exhausted { requested: n, available: n - 1 })),
            };
        }
        let available = free + evictor.evictable();
        let want = missing.min(left);
        let freed = if available < n { 0 } else { evictor.evict_of_few(want, &mut victims, &mut entries, resources) };
        left -= freed;
        // A change that is not in the queue yet can make the counts too high for a moment.
        if missing > 0 && freed == 0 && victims > 0 && !evictor.needs_turn() {
            // Blocks that were free at the last settling may have been cached and become evictable
            // since.
            if settled && (looks == 0 || resources.queues.are_empty()) {
                return Some(Err(ReserveError::Exhausted { requested: n, available: available.min(n - 1) }));
            }
            certainty.settle(evictor, resources);
            settled = true;
            looks -= usize::from(looks > 0);
        }
    }
}
