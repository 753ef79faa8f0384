//! The verbs: those that are called lock-free, which go on wherever another thread stands, and
//! those that take a lock, in which a thread may stand.

use std::time::Duration;

use fastrand::Rng;
use radixkv::{
    BlockId, BlockRequest, Lease, Namespace, PolicyKind, PrefixCache, Priority, Quota, Reservation, Session, Token,
};

pub const BLOCK_SIZE: usize = 4;
pub const CAPACITY: usize = 8192;
/// Prefixes that all threads use, and their blocks.
const SHARED: u32 = 16;
const BLOCKS: usize = 4;
/// Names of namespaces: with some of them the cache begins to look which can be forgotten.
const NAMESPACES: u32 = 4096;

/// One thread's own view of the cache.
pub struct User {
    cache: PrefixCache,
    session: Session,
    space: Namespace,
    dice: Rng,
    /// A lease on a shared prefix.
    held: Lease,
    /// The engine's blocks that this thread has; none if the cache owns its pool.
    stock: Vec<BlockId>,
    is_external: bool,
    /// Sequences of its own that it has inserted.
    fresh: u32,
    id: u32,
    /// Below so many free blocks it takes none: taking them may then need the evictor's lock.
    reserve: usize,
    pub taken: u64,
}

pub struct Verb {
    pub name: &'static str,
    pub run: fn(&mut User),
}

const fn verb(name: &'static str, run: fn(&mut User)) -> Verb {
    Verb { name, run }
}

/// What the documentation calls lock-free, or says never to wait.
pub const LOCK_FREE: [Verb; 19] = [
    verb("match_prefix", |user| drop(user.matched(BLOCKS))),
    verb("match_prefix inside a run", |user| {
        let blocks = user.dice.usize(1..BLOCKS);
        drop(user.matched(blocks));
    }),
    verb("match_prefix_untouched", |user| {
        let tokens = user.shared(BLOCKS);
        drop(user.session.match_prefix_untouched(&user.space, &tokens));
    }),
    verb("resume", |user| {
        let tokens = sequence(0, BLOCKS);
        let lease = user.session.match_prefix(&user.space, &tokens[..BLOCK_SIZE]).into_lease();
        drop(user.session.resume(lease, &tokens));
    }),
    verb("peek", |user| {
        let tokens = user.shared(BLOCKS);
        user.session.peek(&user.space, &tokens);
    }),
    verb("partial", |user| {
        let tokens = [sequence(0, BLOCKS), vec![7; 3]].concat();
        drop(user.session.match_partial(&user.held, &tokens, 1));
        let other = [&tokens[..BLOCK_SIZE + 2], &[9; BLOCK_SIZE]].concat();
        let lease = user.session.match_prefix_untouched(&user.space, &other).into_lease();
        drop(user.session.match_partial(&lease, &other, 1));
    }),
    verb("insert", |user| {
        user.fresh += 1;
        let key = user.id << 20 | user.fresh & 0xf_ffff;
        user.insert(&sequence(key, 2));
    }),
    verb("insert of what is there", |user| {
        let tokens = user.shared(BLOCKS);
        user.insert(&tokens);
    }),
    verb("clone and drop of a Lease", |user| drop(user.held.try_clone())),
    verb("prioritize", |user| {
        let ttl = Duration::from_micros(user.dice.u64(1..1000));
        let priority = Priority::new(user.dice.i64(..));
        user.session.prioritize(&user.held, priority.expiring_after(ttl));
    }),
    verb("demote", |user| user.session.demote(&user.held)),
    verb("retain", |user| _ = user.session.retain(&user.held, Duration::from_micros(100))),
    verb("retain of what is idle", |user| {
        let lease = user.matched(BLOCKS);
        _ = user.session.retain(&lease, Duration::from_micros(100));
    }),
    verb("reserve", |user| drop(user.reserve(3))),
    verb("reserve_in", |user| {
        if user.has_room() && !user.is_external {
            drop(user.session.reserve(BlockRequest::new(2).paid_by(&user.space)));
        }
    }),
    verb("fork, is_shared, make_unique", |user| {
        let Some((mut one, mut fresh)) = user.reserve(3).zip(user.reserve(1)) else { return };
        let mut two = one.fork();
        drop(two.make_unique(2, &mut fresh));
        assert!(one.is_shared(0) && !one.is_shared(2));
        user.give_back(one);
        user.give_back(two);
    }),
    verb("take_evicted", User::restock),
    verb("stats", |user| {
        user.cache.stats();
        user.space.stats();
    }),
    verb("session and its drop", |user| {
        let (one, two) = (user.cache.session(), user.cache.session());
        drop(one);
        drop(two);
    }),
];

/// What takes a lock: a thread that stands in it holds up those alone that take the same one.
pub const LOCKING: [Verb; 10] = [
    verb("evict", |user| _ = user.cache.evict(2)),
    verb("settle", |user| user.cache.settle()),
    verb("run_once", |user| _ = user.cache.run_once()),
    verb("validate", |user| _ = user.cache.validate()),
    verb("release_retained", |user| {
        _ = user.session.retain(&user.held, Duration::from_secs(1));
        user.session.release_retained(&user.held);
    }),
    verb("set_policy", |user| {
        let policy = user.dice.choice(PolicyKind::ALL.iter().copied()).expect("one of them");
        user.cache.settings().set_policy(policy);
    }),
    verb("set_quota", |user| {
        let mut quota = Quota::default();
        quota.cached_blocks = user.dice.bool().then_some(CAPACITY / 2);
        user.space.set_quota(quota);
    }),
    verb("clear_namespace", |user| user.space.clear()),
    verb("making a namespace", |user| {
        let name = user.dice.u32(..NAMESPACES).to_string();
        drop(user.cache.namespace(&[&name]));
    }),
    verb("drop_namespace", |user| {
        let name = user.dice.u32(..NAMESPACES).to_string();
        user.cache.namespace(&[&name]).remove();
    }),
];

/// Tokens that share a block with those of every fourth `key`.
fn sequence(key: u32, blocks: usize) -> Vec<Token> {
    (0..(blocks * BLOCK_SIZE) as u32).map(|i| if i < 4 { key % 4 } else { key << 6 | i }).collect()
}

impl User {
    /// `reserve` says how many free blocks it leaves alone.
    pub fn new(cache: &PrefixCache, id: u32, is_external: bool, reserve: usize) -> Self {
        let (session, space) = (cache.session(), cache.default_namespace());
        let held = session.match_prefix(&space, &[]).into_lease();
        let (cache, dice) = (cache.clone(), Rng::with_seed(u64::from(id)));
        let stock = Vec::new();
        let mut user = Self { cache, session, space, dice, held, stock, is_external, fresh: 0, id, reserve, taken: 0 };
        user.restock();
        (0..SHARED).for_each(|key| user.insert(&sequence(key, BLOCKS)));
        user.renew();
        user
    }

    /// Runs all verbs once: what a thread does a first time only is done then.
    pub fn warm_up(&mut self) {
        LOCK_FREE.iter().for_each(|verb| (verb.run)(self));
    }

    /// A lease in the tree as it is now: it may have been cleared.
    pub fn renew(&mut self) {
        let tokens = sequence(0, BLOCKS);
        self.held = self.session.match_prefix(&self.space, &tokens).into_lease();
        if self.held.len_tokens() < tokens.len() {
            self.insert(&tokens);
            self.held = self.session.match_prefix(&self.space, &tokens).into_lease();
        }
    }

    fn shared(&mut self, blocks: usize) -> Vec<Token> {
        sequence(self.dice.u32(..SHARED), blocks)
    }

    fn matched(&mut self, blocks: usize) -> Lease {
        let tokens = self.shared(blocks);
        self.session.match_prefix(&self.space, &tokens).into_lease()
    }

    /// Takes the engine's blocks back, and leaves what it has no use for to other threads.
    fn restock(&mut self) {
        if let Some(pool) = self.cache.external() {
            pool.take_evicted(&mut self.stock);
        }
        self.leave_stock(CAPACITY / 8);
    }

    fn leave_stock(&mut self, keep: usize) {
        if self.stock.len() > keep {
            let ids = self.stock.split_off(keep);
            drop(self.cache.external().expect("an external pool").adopt(&ids).expect("the thread's own"));
        }
    }

    fn has_room(&self) -> bool {
        self.cache.stats().free_blocks >= self.reserve
    }

    /// Blocks, if there are so many that no other thread's stop can keep them from it.
    fn reserve(&mut self, blocks: usize) -> Option<Reservation> {
        if self.is_external {
            let rest = self.stock.len().checked_sub(blocks)?;
            let ids = self.stock.split_off(rest);
            self.taken += 1;
            return Some(self.cache.external().expect("an external pool").adopt(&ids).expect("the thread's own"));
        }
        if !self.has_room() {
            return None;
        }
        let reservation = self.session.reserve(blocks).expect("enough are free");
        self.taken += 1;
        Some(reservation)
    }

    fn give_back(&mut self, reservation: Reservation) {
        if self.is_external {
            self.stock.extend(reservation.into_blocks());
        }
    }

    fn insert(&mut self, tokens: &[Token]) {
        let hit = self.session.match_prefix_untouched(&self.space, &tokens[..BLOCK_SIZE]);
        let missing = tokens.len() / BLOCK_SIZE - hit.blocks().len();
        let Some(reservation) = self.reserve(missing) else { return };
        match self.session.insert(hit.lease(), tokens, reservation) {
            Ok(inserted) => self.give_back(inserted.duplicates),
            // Cleared in between.
            Err(refused) => self.give_back(refused.reservation),
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.leave_stock(0);
    }
}
