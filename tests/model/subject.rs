//! What the driver drives: the real cache, or a second reference to try the driver itself on.

use std::time::Duration;

use radixkv::{
    BlockRequest, Clock, Keys, Lease, Namespace, NamespaceName, PartialHit, PolicyKind, PrefixCache, PrefixMatch,
    Priority, Quota, Reservation, ReserveError, Session, Token, WeakLease,
};
use radixkv_reference::{self as reference, Reference};

/// The namespaces of the model, by parts that would collide if they were joined; the last ones
/// compare bigrams, one of them under the name of the first.
pub const SPACES: [&[&str]; 5] = [&["bc", "a"], &["c", "ab"], &["abc"], &["bc", "a"], &["bigrams"]];

/// The same for the reference, which knows namespaces by their names alone.
const REFERENCE_SPACES: [&[&str]; 5] = [SPACES[0], SPACES[1], SPACES[2], &["bc", "a", "bigrams"], SPACES[4]];

/// Tokens that a key of this namespace needs beyond its first.
pub fn offset(space: usize) -> usize {
    usize::from(space >= 3)
}

fn keys(space: usize) -> Keys {
    if offset(space) == 0 { Keys::Tokens } else { Keys::Bigrams }
}

/// Blocks that a cache may grow by.
pub const GROWTH: usize = 8;

/// Size and policy of a cache under test.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub block_size: usize,
    pub capacity: usize,
    pub policy: PolicyKind,
    /// What was not used for so long is dropped.
    pub time_to_idle: Option<u64>,
    /// The time at the beginning.
    pub start: u64,
    /// Time goes by with `Wait` alone, so that many verbs have one time; else each verb has its
    /// own.
    pub stands: bool,
}

/// A match: its length, its blocks from the root, its lease.
pub struct Found<L> {
    pub len_tokens: usize,
    pub blocks: Vec<u32>,
    pub lease: L,
}

/// A partial hit.
pub struct Agreeing<S> {
    pub block: u32,
    pub tokens: usize,
    pub source: S,
}

/// A finished insert.
pub struct Stored<L, R> {
    pub len_tokens: usize,
    pub blocks: Vec<u32>,
    pub dropped_tokens: usize,
    pub lease: L,
    pub duplicates: R,
}

/// Why a reservation or an insert was refused, in words that both sides share.
pub type Refusal = String;

/// A cache as the driver sees it.
pub trait Subject {
    type Lease;
    type Reservation;
    /// The lease of a partial hit.
    type Source;
    /// What can be leased again without looking it up.
    type Weak;
    /// Whether reservations count with a namespace; an engine's own blocks do not.
    const CLAIMS: bool = true;

    fn new(setting: Setting) -> Self;
    fn set_time(&mut self, now: u64);
    fn match_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease>;
    fn match_prefix_untouched(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease>;
    fn resume(&mut self, lease: Self::Lease, tokens: &[Token]) -> Found<Self::Lease>;
    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize;
    fn reserve(&mut self, space: Option<usize>, blocks: usize) -> Result<Self::Reservation, Refusal>;
    fn blocks(&self, reservation: &Self::Reservation) -> Vec<u32>;
    fn split(&mut self, reservation: &mut Self::Reservation, n: usize) -> Self::Reservation;
    #[allow(clippy::type_complexity)]
    fn insert(
        &mut self,
        lease: &Self::Lease,
        tokens: &[Token],
        reservation: Self::Reservation,
    ) -> Result<Stored<Self::Lease, Self::Reservation>, (Refusal, Self::Reservation)>;
    fn match_partial(&mut self, lease: &Self::Lease, tokens: &[Token], least: usize) -> Option<Agreeing<Self::Source>>;
    fn let_go(&mut self, source: Self::Source);
    fn clone_lease(&mut self, lease: &Self::Lease) -> Self::Lease;
    fn release(&mut self, lease: Self::Lease);
    fn abort(&mut self, reservation: Self::Reservation);
    fn evict(&mut self, blocks: usize) -> usize;
    fn evict_of(&mut self, space: usize, blocks: usize) -> usize;
    fn evict_into(&mut self, blocks: usize) -> usize {
        self.evict(blocks)
    }
    fn evict_idle(&mut self, space: usize, idle: u64) -> usize;
    fn invalidate(&mut self, block: u32) -> usize;
    fn downgrade(&mut self, lease: &Self::Lease) -> Self::Weak;
    fn upgrade(&mut self, weak: &Self::Weak) -> Option<Self::Lease>;
    /// Adds blocks; no more than [`GROWTH`] in all.
    fn grow(&mut self, blocks: usize);
    fn prioritize(&mut self, lease: &Self::Lease, priority: i64, ttl: Option<u64>);
    /// Whether the lease's namespace stands.
    fn retain(&mut self, lease: &Self::Lease, duration: u64) -> bool;
    fn release_retained(&mut self, lease: &Self::Lease);
    fn demote(&mut self, lease: &Self::Lease);
    fn renew(&mut self, lease: &Self::Lease);
    fn count_use(&mut self, lease: &Self::Lease);
    fn settle(&mut self);
    fn set_policy(&mut self, policy: PolicyKind);
    fn set_quota(&mut self, space: usize, cached: Option<usize>, pinned: Option<usize>, time: Option<u64>);
    fn clear(&mut self);
    fn drop_namespace(&mut self, space: usize);
    /// Free, reserved, evictable, protected.
    fn accounts(&mut self) -> [usize; 4];
    fn validate(&mut self) -> Result<(), String>;
}

fn refusal(reason: impl std::fmt::Debug) -> Refusal {
    format!("{reason:?}")
}

impl Subject for Reference {
    type Lease = reference::Lease;
    type Reservation = reference::Reservation;
    type Source = reference::Lease;
    type Weak = reference::WeakLease;

    fn new(setting: Setting) -> Self {
        let mut reference = Reference::new(setting.block_size, setting.capacity, setting.policy);
        let bigrams = (0..SPACES.len()).filter(|&space| offset(space) > 0);
        bigrams.for_each(|space| reference.set_bigrams(REFERENCE_SPACES[space]));
        match setting.time_to_idle {
            Some(duration) => reference.time_to_idle(duration),
            None => reference,
        }
    }

    fn set_time(&mut self, now: u64) {
        Reference::set_time(self, now);
    }

    fn match_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::match_prefix(self, REFERENCE_SPACES[space], tokens))
    }

    fn match_prefix_untouched(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::match_prefix_untouched(self, REFERENCE_SPACES[space], tokens))
    }

    fn resume(&mut self, lease: Self::Lease, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::resume(self, lease, tokens))
    }

    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize {
        Reference::peek(self, REFERENCE_SPACES[space], tokens)
    }

    fn reserve(&mut self, space: Option<usize>, blocks: usize) -> Result<Self::Reservation, Refusal> {
        match space {
            Some(space) => Reference::reserve_in(self, REFERENCE_SPACES[space], blocks).map_err(refusal),
            None => Reference::reserve(self, blocks).map_err(refusal),
        }
    }

    fn blocks(&self, reservation: &Self::Reservation) -> Vec<u32> {
        reservation.blocks().to_vec()
    }

    fn split(&mut self, reservation: &mut Self::Reservation, n: usize) -> Self::Reservation {
        reservation.split(n)
    }

    fn insert(
        &mut self,
        lease: &Self::Lease,
        tokens: &[Token],
        reservation: Self::Reservation,
    ) -> Result<Stored<Self::Lease, Self::Reservation>, (Refusal, Self::Reservation)> {
        match Reference::insert(self, lease, tokens, reservation) {
            Ok(inserted) => Ok(Stored {
                len_tokens: inserted.lease.len_tokens(),
                blocks: inserted.blocks,
                dropped_tokens: inserted.dropped_tokens,
                lease: inserted.lease,
                duplicates: inserted.duplicates,
            }),
            Err(error) => Err((refusal(error.kind), error.reservation)),
        }
    }

    fn match_partial(&mut self, lease: &Self::Lease, tokens: &[Token], least: usize) -> Option<Agreeing<Self::Source>> {
        let (tokens, blocks) = Reference::match_partial(self, lease, tokens, least)?;
        // Not the first: which one is not promised.
        let block = *blocks.last().expect("the longest are not none");
        Some(Agreeing { block, tokens, source: self.lease_block(lease, block) })
    }

    fn let_go(&mut self, source: Self::Source) {
        Reference::release(self, source);
    }

    fn clone_lease(&mut self, lease: &Self::Lease) -> Self::Lease {
        Reference::clone_lease(self, lease)
    }

    fn release(&mut self, lease: Self::Lease) {
        Reference::release(self, lease);
    }

    fn abort(&mut self, reservation: Self::Reservation) {
        Reference::abort(self, reservation);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        Reference::evict(self, blocks)
    }

    fn evict_of(&mut self, space: usize, blocks: usize) -> usize {
        Reference::evict_namespace(self, REFERENCE_SPACES[space], blocks)
    }

    fn evict_idle(&mut self, space: usize, idle: u64) -> usize {
        Reference::evict_idle(self, REFERENCE_SPACES[space], idle)
    }

    fn invalidate(&mut self, block: u32) -> usize {
        self.invalidate_blocks(&[block])
    }

    fn downgrade(&mut self, lease: &Self::Lease) -> Self::Weak {
        Reference::downgrade(self, lease)
    }

    fn upgrade(&mut self, weak: &Self::Weak) -> Option<Self::Lease> {
        Reference::upgrade(self, weak)
    }

    fn grow(&mut self, blocks: usize) {
        Reference::grow(self, blocks);
    }

    fn prioritize(&mut self, lease: &Self::Lease, priority: i64, ttl: Option<u64>) {
        Reference::prioritize(self, lease, priority, ttl);
    }

    fn retain(&mut self, lease: &Self::Lease, duration: u64) -> bool {
        Reference::retain(self, lease, duration)
    }

    fn release_retained(&mut self, lease: &Self::Lease) {
        Reference::release_retained(self, lease);
    }

    fn demote(&mut self, lease: &Self::Lease) {
        Reference::demote(self, lease);
    }

    fn renew(&mut self, lease: &Self::Lease) {
        Reference::renew(self, lease);
    }

    fn count_use(&mut self, lease: &Self::Lease) {
        Reference::count_use(self, lease);
    }

    fn settle(&mut self) {
        Reference::settle(self);
    }

    fn set_policy(&mut self, policy: PolicyKind) {
        Reference::set_policy(self, policy);
    }

    fn set_quota(&mut self, space: usize, cached: Option<usize>, pinned: Option<usize>, time: Option<u64>) {
        Reference::set_quota(self, REFERENCE_SPACES[space], cached, pinned);
        self.set_time_to_idle(REFERENCE_SPACES[space], time);
    }

    fn clear(&mut self) {
        Reference::clear(self);
    }

    fn drop_namespace(&mut self, space: usize) {
        Reference::drop_namespace(self, REFERENCE_SPACES[space]);
    }

    fn accounts(&mut self) -> [usize; 4] {
        let stats = self.stats();
        let cached = [stats.evictable_blocks, stats.protected_blocks];
        [stats.free_blocks, stats.reserved_blocks, cached[0], cached[1]]
    }

    fn validate(&mut self) -> Result<(), String> {
        Reference::validate(self).map_err(|violation| violation.to_string())
    }
}

fn found(found: reference::PrefixMatch) -> Found<reference::Lease> {
    let (len_tokens, blocks, lease) = (found.lease.len_tokens(), found.blocks, found.lease);
    Found { len_tokens, blocks, lease }
}

/// The real cache with a pool of its own.
pub type Real = Cache<false>;
/// The real cache with the pool of an engine, which takes back what it needs before it asks for
/// anything.
pub type External = Cache<true>;

/// The real cache, one session, its namespaces resolved once and again after a drop.
pub struct Cache<const EXTERNAL: bool> {
    session: Session,
    cache: PrefixCache,
    spaces: Vec<Namespace>,
    /// Whether the next match goes through `match_prefix_into`.
    into: bool,
    /// The engine's free blocks, if the pool is its own.
    engine: Vec<u32>,
}

impl<const EXTERNAL: bool> Cache<EXTERNAL> {
    /// What an engine with an allocator of its own does for `blocks` blocks.
    fn adopt(&mut self, blocks: usize) -> Result<Reservation, Refusal> {
        let stats = self.cache.stats();
        let (requested, capacity) = (blocks, stats.capacity_blocks);
        if requested > capacity {
            return Err(refusal(ReserveError::TooLarge { requested, capacity }));
        }
        let available = stats.free_blocks + stats.evictable_blocks;
        if requested > available {
            return Err(refusal(ReserveError::Exhausted { requested, available }));
        }
        self.cache.external().expect("an external pool").take_evicted(&mut self.engine);
        assert_eq!(self.engine.len(), stats.free_blocks, "what is free is in the engine's hands");
        let missing = requested.saturating_sub(self.engine.len());
        assert_eq!(
            (
                self.cache.evict(missing),
                self.cache.external().expect("an external pool").take_evicted(&mut self.engine)
            ),
            (missing, missing)
        );
        let ids = self.engine.split_off(self.engine.len() - requested);
        assert!(
            ids.first().is_none_or(|&id| self.cache.external().expect("an external pool").adopt(&[id, id]).is_err()),
            "an id was taken in twice"
        );
        self.cache.external().expect("an external pool").adopt(&ids).map_err(refusal)
    }
}

impl<const EXTERNAL: bool> Subject for Cache<EXTERNAL> {
    type Lease = Lease;
    type Reservation = Reservation;
    type Source = PartialHit;
    type Weak = WeakLease;
    const CLAIMS: bool = !EXTERNAL;

    fn new(setting: Setting) -> Self {
        let policy = setting.policy;
        let cache = PrefixCache::builder(setting.block_size, setting.capacity).growable_to(setting.capacity + GROWTH);
        let cache = if EXTERNAL { cache.external() } else { cache };
        let mut builder = cache.policy(policy).clock(Clock::Logical);
        if let Some(duration) = setting.time_to_idle {
            builder = builder.time_to_idle(Duration::from_nanos(duration));
        }
        let cache = builder.build().expect("a sound setting");
        let engine = if EXTERNAL { (0..setting.capacity as u32).collect() } else { Vec::new() };
        let spaces = (0..SPACES.len())
            .map(|space| cache.namespace(NamespaceName::new(SPACES[space]).with_keys(keys(space))))
            .collect();
        Self { session: cache.session(), cache, spaces, into: false, engine }
    }

    fn set_time(&mut self, now: u64) {
        self.cache.set_time(now);
    }

    fn match_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Lease> {
        self.into = !self.into;
        if !self.into {
            return real_found(self.session.match_prefix(&self.spaces[space], tokens));
        }
        let mut blocks = vec![u32::MAX];
        let lease = self.session.match_prefix_into(&self.spaces[space], tokens, &mut blocks);
        Found { len_tokens: lease.len_tokens(), blocks, lease }
    }

    fn match_prefix_untouched(&mut self, space: usize, tokens: &[Token]) -> Found<Lease> {
        real_found(self.session.match_prefix_untouched(&self.spaces[space], tokens))
    }

    fn resume(&mut self, lease: Lease, tokens: &[Token]) -> Found<Lease> {
        real_found(self.session.resume(lease, tokens))
    }

    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize {
        self.session.peek(&self.spaces[space], tokens)
    }

    fn reserve(&mut self, space: Option<usize>, blocks: usize) -> Result<Reservation, Refusal> {
        if EXTERNAL {
            return self.adopt(blocks);
        }
        let reserved = match space {
            Some(space) => self.session.reserve(BlockRequest::new(blocks).paid_by(&self.spaces[space])),
            None => self.session.reserve(blocks),
        };
        reserved.map_err(refusal)
    }

    fn blocks(&self, reservation: &Reservation) -> Vec<u32> {
        reservation.blocks().to_vec()
    }

    fn split(&mut self, reservation: &mut Reservation, n: usize) -> Reservation {
        reservation.split(n)
    }

    fn insert(
        &mut self,
        lease: &Lease,
        tokens: &[Token],
        reservation: Reservation,
    ) -> Result<Stored<Lease, Reservation>, (Refusal, Reservation)> {
        match self.session.insert(lease, tokens, reservation) {
            Ok(inserted) => Ok(Stored {
                len_tokens: inserted.lease.len_tokens(),
                blocks: inserted.blocks,
                dropped_tokens: inserted.dropped_tokens,
                lease: inserted.lease,
                duplicates: inserted.duplicates,
            }),
            Err(error) => Err((refusal(error.kind), error.reservation)),
        }
    }

    fn match_partial(&mut self, lease: &Lease, tokens: &[Token], least: usize) -> Option<Agreeing<PartialHit>> {
        let hit = self.session.match_partial(lease, tokens, least)?;
        Some(Agreeing { block: hit.block(), tokens: hit.len_tokens(), source: hit })
    }

    fn let_go(&mut self, source: PartialHit) {
        drop(source);
    }

    fn clone_lease(&mut self, lease: &Lease) -> Lease {
        lease.try_clone().expect("few leases")
    }

    fn release(&mut self, lease: Lease) {
        drop(lease);
    }

    fn abort(&mut self, reservation: Reservation) {
        if EXTERNAL && reservation.len() % 2 == 0 {
            self.engine.extend(reservation.into_blocks());
        } else {
            drop(reservation);
        }
    }

    fn evict(&mut self, blocks: usize) -> usize {
        self.cache.evict(blocks)
    }

    fn evict_of(&mut self, space: usize, blocks: usize) -> usize {
        self.spaces[space].evict(blocks)
    }

    fn evict_into(&mut self, blocks: usize) -> usize {
        let mut evicted = Vec::new();
        let freed = self.cache.evict_into(blocks, &mut evicted);
        assert_eq!(evicted.iter().map(|evicted| evicted.blocks.len()).sum::<usize>(), freed);
        freed
    }

    fn evict_idle(&mut self, space: usize, idle: u64) -> usize {
        self.spaces[space].evict_idle(Duration::from_nanos(idle))
    }

    fn invalidate(&mut self, block: u32) -> usize {
        self.cache.invalidate_blocks(&[block])
    }

    fn downgrade(&mut self, lease: &Lease) -> WeakLease {
        lease.downgrade()
    }

    fn upgrade(&mut self, weak: &WeakLease) -> Option<Lease> {
        self.session.upgrade(weak)
    }

    fn grow(&mut self, blocks: usize) {
        let added = self.cache.grow(blocks).expect("within the limit");
        if EXTERNAL {
            self.engine.extend(added);
        }
    }

    fn prioritize(&mut self, lease: &Lease, priority: i64, ttl: Option<u64>) {
        let priority = Priority::new(priority);
        let priority = ttl.map_or(priority, |ttl| priority.expiring_after(Duration::from_nanos(ttl)));
        self.session.prioritize(lease, priority);
    }

    fn retain(&mut self, lease: &Lease, duration: u64) -> bool {
        self.session.retain(lease, Duration::from_nanos(duration)).is_ok()
    }

    fn release_retained(&mut self, lease: &Lease) {
        self.session.release_retained(lease);
    }

    fn demote(&mut self, lease: &Lease) {
        self.session.demote(lease);
    }

    fn renew(&mut self, lease: &Lease) {
        self.session.renew(lease);
    }

    fn count_use(&mut self, lease: &Lease) {
        self.session.count_use(lease);
    }

    fn settle(&mut self) {
        self.cache.settle();
    }

    fn set_policy(&mut self, policy: PolicyKind) {
        self.cache.settings().set_policy(policy);
    }

    fn set_quota(&mut self, space: usize, cached: Option<usize>, pinned: Option<usize>, time: Option<u64>) {
        let mut quota = Quota::default();
        (quota.cached_blocks, quota.pinned_blocks) = (cached, pinned);
        quota.time_to_idle = time.map(Duration::from_nanos);
        self.spaces[space].set_quota(quota);
    }

    fn clear(&mut self) {
        self.cache.clear();
    }

    fn drop_namespace(&mut self, space: usize) {
        self.spaces[space].remove();
        self.spaces[space] = self.cache.namespace(NamespaceName::new(SPACES[space]).with_keys(keys(space)));
    }

    fn accounts(&mut self) -> [usize; 4] {
        let stats = self.cache.stats();
        let cached = [stats.evictable_blocks, stats.protected_blocks];
        [stats.free_blocks, stats.reserved_blocks, cached[0], cached[1]]
    }

    fn validate(&mut self) -> Result<(), String> {
        self.cache.validate().map_err(|violation| violation.to_string())
    }
}

fn real_found(found: PrefixMatch) -> Found<Lease> {
    let (len_tokens, blocks) = (found.len_tokens(), found.blocks().to_vec());
    Found { len_tokens, blocks, lease: found.into_lease() }
}
