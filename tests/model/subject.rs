//! What the driver drives: the real cache, or a second reference to try the driver itself on.

use radixkv::reference::{self, Reference};
use radixkv::{
    Clock, InsertErrorKind, Lease, Namespace, PolicyKind, PrefixCache, PrefixMatch, Reservation, ReserveError, Session,
    Token,
};

/// The namespaces of the model, by parts that would collide if they were joined.
pub const SPACES: [&[&str]; 3] = [&["bc", "a"], &["c", "ab"], &["abc"]];

/// Size and policy of a cache under test.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub block_size: usize,
    pub capacity: usize,
    pub policy: reference::Policy,
}

/// A match: its length, its blocks from the root, its lease.
pub struct Found<L> {
    pub len_tokens: usize,
    pub blocks: Vec<u32>,
    pub lease: L,
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

    fn new(setting: Setting) -> Self;
    fn set_time(&mut self, now: u64);
    fn match_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease>;
    fn lease_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease>;
    fn resume(&mut self, lease: Self::Lease, tokens: &[Token]) -> Found<Self::Lease>;
    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize;
    fn reserve(&mut self, blocks: usize) -> Result<Self::Reservation, Refusal>;
    fn blocks(&self, reservation: &Self::Reservation) -> Vec<u32>;
    fn split(&mut self, reservation: &mut Self::Reservation, n: usize) -> Self::Reservation;
    #[allow(clippy::type_complexity)]
    fn insert(
        &mut self,
        lease: &Self::Lease,
        tokens: &[Token],
        reservation: Self::Reservation,
    ) -> Result<Stored<Self::Lease, Self::Reservation>, (Refusal, Self::Reservation)>;
    fn clone_lease(&mut self, lease: &Self::Lease) -> Self::Lease;
    fn release(&mut self, lease: Self::Lease);
    fn abort(&mut self, reservation: Self::Reservation);
    fn evict(&mut self, blocks: usize) -> usize;
    fn settle(&mut self);
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

    fn new(setting: Setting) -> Self {
        Reference::new(setting.block_size, setting.capacity, setting.policy)
    }

    fn set_time(&mut self, now: u64) {
        Reference::set_time(self, now);
    }

    fn match_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::match_prefix(self, SPACES[space], tokens))
    }

    fn lease_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::lease_prefix(self, SPACES[space], tokens))
    }

    fn resume(&mut self, lease: Self::Lease, tokens: &[Token]) -> Found<Self::Lease> {
        found(Reference::resume(self, lease, tokens))
    }

    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize {
        Reference::peek(self, SPACES[space], tokens)
    }

    fn reserve(&mut self, blocks: usize) -> Result<Self::Reservation, Refusal> {
        Reference::reserve(self, blocks).map_err(refusal)
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

    fn settle(&mut self) {}

    fn clear(&mut self) {
        Reference::clear(self);
    }

    fn drop_namespace(&mut self, space: usize) {
        Reference::drop_namespace(self, SPACES[space]);
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

/// The real cache, one session, its namespaces resolved once and again after a drop.
pub struct Real {
    session: Session,
    cache: PrefixCache,
    spaces: Vec<Namespace>,
    /// Whether the next match goes through `match_prefix_into`.
    into: bool,
}

impl Subject for Real {
    type Lease = Lease;
    type Reservation = Reservation;

    fn new(setting: Setting) -> Self {
        let policy = policy_kind(setting.policy);
        let cache = PrefixCache::builder(setting.block_size, setting.capacity);
        let cache = cache.policy(policy).clock(Clock::Logical).build().expect("a sound setting");
        let spaces = SPACES.iter().map(|parts| cache.namespace(parts)).collect();
        Self { session: cache.session(), cache, spaces, into: false }
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

    fn lease_prefix(&mut self, space: usize, tokens: &[Token]) -> Found<Lease> {
        real_found(self.session.lease_prefix(&self.spaces[space], tokens))
    }

    fn resume(&mut self, lease: Lease, tokens: &[Token]) -> Found<Lease> {
        real_found(self.session.resume(lease, tokens))
    }

    fn peek(&mut self, space: usize, tokens: &[Token]) -> usize {
        self.session.peek(&self.spaces[space], tokens)
    }

    fn reserve(&mut self, blocks: usize) -> Result<Reservation, Refusal> {
        self.session.reserve(blocks).map_err(|error| match error {
            ReserveError::Exhausted { requested, available } => {
                refusal(reference::ReserveError::Exhausted { requested, available })
            }
            ReserveError::TooLarge { requested, capacity } => {
                refusal(reference::ReserveError::TooLarge { requested, capacity })
            }
            other => refusal(other),
        })
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
            Err(error) => Err((insert_refusal(error.kind), error.reservation)),
        }
    }

    fn clone_lease(&mut self, lease: &Lease) -> Lease {
        lease.clone()
    }

    fn release(&mut self, lease: Lease) {
        drop(lease);
    }

    fn abort(&mut self, reservation: Reservation) {
        drop(reservation);
    }

    fn evict(&mut self, blocks: usize) -> usize {
        self.cache.evict(blocks)
    }

    fn settle(&mut self) {
        self.cache.settle();
    }

    fn clear(&mut self) {
        self.cache.clear();
    }

    fn drop_namespace(&mut self, space: usize) {
        self.cache.drop_namespace(&self.spaces[space]);
        self.spaces[space] = self.cache.namespace(SPACES[space]);
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

fn policy_kind(policy: reference::Policy) -> PolicyKind {
    match policy {
        reference::Policy::Lru => PolicyKind::Lru,
        reference::Policy::Lfu => PolicyKind::Lfu,
        reference::Policy::Fifo => PolicyKind::Fifo,
        reference::Policy::Mru => PolicyKind::Mru,
        reference::Policy::Filo => PolicyKind::Filo,
        reference::Policy::Slru => PolicyKind::Slru,
    }
}

fn insert_refusal(kind: InsertErrorKind) -> Refusal {
    use reference::InsertErrorKind as Kind;
    match kind {
        InsertErrorKind::BlockCount { needed, given } => refusal(Kind::BlockCount { needed, given }),
        InsertErrorKind::TokensTooShort { leased, given } => refusal(Kind::TokensTooShort { leased, given }),
        InsertErrorKind::NamespaceDropped => refusal(Kind::NamespaceDropped),
        other => refusal(other),
    }
}
