//! One thread of a storm: what it holds, and the verbs that it draws.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use fastrand::Rng;
use radixkv::{
    BlockId, BlockRequest, Evicted, Keys, Lease, Namespace, NamespaceName, PartialHit, PolicyKind, PrefixCache,
    Priority, Quota, Reservation, Session, Subscription, Token, WeakLease,
};

/// Namespaces, the default one first.
pub const NAMES: [(&[&str], Keys); 5] = [
    (&[], Keys::Tokens),
    (&["a"], Keys::Tokens),
    (&["b"], Keys::Tokens),
    (&["a"], Keys::Bigrams),
    (&["b", "c"], Keys::Bigrams),
];

/// Of each kind of thing, how many a hand keeps.
const KEPT: usize = 4;
/// The longest sequence, in tokens.
const LONGEST: usize = 14;
/// The longest time, in units of the clock, which goes on by one now and then.
const LONG: u64 = 40;

pub fn namespace(cache: &PrefixCache, name: usize) -> Namespace {
    let (parts, keys) = NAMES[name];
    cache.namespace(NamespaceName::new(parts).with_keys(keys))
}

/// A lease, and tokens that begin with its prefix.
struct Held {
    space: Namespace,
    tokens: Vec<Token>,
    lease: Lease,
}

pub struct Hand {
    cache: PrefixCache,
    dice: Rng,
    session: Session,
    held: Vec<Held>,
    spaces: Vec<Namespace>,
    parts: Vec<PartialHit>,
    weak: Vec<WeakLease>,
    reserved: Vec<Reservation>,
    evicted: Vec<Evicted>,
    events: Vec<Subscription>,
}

impl Hand {
    pub fn new(cache: &PrefixCache, dice: Rng) -> Self {
        let (cache, session) = (cache.clone(), cache.session());
        let (held, spaces, parts, weak) = Default::default();
        let (reserved, evicted, events) = Default::default();
        Self { cache, dice, session, held, spaces, parts, weak, reserved, evicted, events }
    }

    /// Draws so many verbs, and lets all go but weak leases.
    pub fn run(mut self, steps: usize) -> Vec<WeakLease> {
        for _ in 0..steps {
            self.step();
            self.let_go();
        }
        self.weak
    }

    fn step(&mut self) {
        match self.dice.u8(..100) {
            0..28 => self.find(),
            28..52 => self.insert(),
            52..60 => self.go_on(),
            60..67 => self.ask(),
            67..73 => self.be_weak(),
            73..78 => self.reserve(),
            78..83 => self.evict(),
            83..89 => self.listen(),
            89..92 => self.walk(),
            92..95 => self.disturb(),
            _ => self.keep_up(),
        }
    }

    /// Drops one of what it has too many of; now and then, one of anything.
    fn let_go(&mut self) {
        let Self { dice, .. } = self;
        drop_one(&mut self.held, dice);
        drop_one(&mut self.spaces, dice);
        drop_one(&mut self.parts, dice);
        drop_one(&mut self.weak, dice);
        drop_one(&mut self.reserved, dice);
        drop_one(&mut self.evicted, dice);
        drop_one(&mut self.events, dice);
    }

    /// A handle that it has, which may be of a namespace that was dropped, or another one.
    fn space(&mut self) -> Namespace {
        match self.dice.choice(&self.spaces) {
            Some(space) if self.dice.bool() => space.clone(),
            _ => {
                let space = namespace(&self.cache, self.dice.usize(..NAMES.len()));
                self.spaces.push(space.clone());
                space
            }
        }
    }

    /// A sequence that parts from others at a few places.
    fn tokens(&mut self) -> Vec<Token> {
        let (len, parts, token) = (self.dice.usize(..=LONGEST), self.dice.usize(..=LONGEST), self.dice.u32(1..4));
        (0..len).map(|at| if at < parts { 0 } else { token }).collect()
    }

    fn one_held(&mut self) -> Option<Held> {
        let at = self.dice.usize(..self.held.len().max(1));
        (at < self.held.len()).then(|| self.held.swap_remove(at))
    }

    /// Blocks in so many tokens of a namespace.
    fn blocks(&self, space: &Namespace, tokens: usize) -> usize {
        tokens.saturating_sub(usize::from(space.keys() == Keys::Bigrams)) / self.cache.block_size()
    }

    fn find(&mut self) {
        let (space, tokens) = (self.space(), self.tokens());
        let lease = match self.dice.u8(..4) {
            0 => self.session.match_prefix_untouched(&space, &tokens).into_lease(),
            1 => match self.session.acquire(&space, &tokens, self.dice.usize(..3)) {
                Ok(acquired) => {
                    self.reserved.push(acquired.blocks);
                    acquired.hit.into_lease()
                }
                Err(_) => return,
            },
            2 => {
                self.session.peek(&space, &tokens);
                return;
            }
            _ => self.session.match_prefix(&space, &tokens).into_lease(),
        };
        self.held.push(Held { space, tokens, lease });
    }

    /// Inserts what is beyond a lease; the blocks may be refused, or the insert.
    fn insert(&mut self) {
        let Some(held) = self.one_held() else { return };
        let needed = self.blocks(&held.space, held.tokens.len()) - held.lease.len_tokens() / self.cache.block_size();
        let reserved = if self.dice.bool() {
            self.session.reserve(BlockRequest::new(needed).paid_by(&held.space))
        } else {
            self.session.reserve(needed)
        };
        let Ok(mut reserved) = reserved else { return };
        if self.dice.u8(..8) == 0 {
            self.reserved.push(reserved.fork());
        }
        if let Ok(inserted) = self.session.insert(&held.lease, &held.tokens, reserved) {
            self.reserved.push(inserted.duplicates);
            self.held.push(Held { lease: inserted.lease, ..held });
        }
    }

    /// Goes on from a lease: by a resume, which may be of more tokens, or a partial match.
    fn go_on(&mut self) {
        let Some(mut held) = self.one_held() else { return };
        if self.dice.bool() {
            held.tokens.extend(self.tokens());
            held.tokens.truncate(LONGEST.max(held.lease.len_tokens() + 1));
        }
        if self.dice.bool() {
            self.parts.extend(self.session.match_partial(&held.lease, &held.tokens, 1));
        } else {
            held.lease = self.session.resume(held.lease, &held.tokens).into_lease();
        }
        self.held.push(held);
    }

    /// Asks for something for a prefix.
    fn ask(&mut self) {
        let Some(Held { lease, .. }) = self.dice.choice(&self.held) else { return };
        let time = Duration::from_nanos(self.dice.u64(..LONG));
        match self.dice.u8(..7) {
            0 => self.session.prioritize(lease, Priority::new(self.dice.i64(..4)).expiring_after(time)),
            1 => self.session.prioritize(lease, Priority::new(self.dice.i64(..4))),
            2 => self.session.demote(lease),
            3 => self.session.release_retained(lease),
            4 => self.session.renew(lease),
            5 => self.session.count_use(lease),
            _ => _ = self.session.retain(lease, time),
        }
    }

    fn be_weak(&mut self) {
        if self.dice.bool() {
            let Some(Held { lease, .. }) = self.dice.choice(&self.held) else { return };
            self.weak.push(lease.downgrade());
        } else {
            let Some(weak) = self.dice.choice(&self.weak) else { return };
            drop(self.session.upgrade(weak));
        }
    }

    /// Takes blocks, and shares them.
    fn reserve(&mut self) {
        if let Ok(mut reserved) = self.session.reserve(self.dice.usize(..5)) {
            let mut forked = reserved.fork();
            if let (false, Ok(mut fresh)) = (reserved.is_empty(), self.session.reserve(1)) {
                drop(forked.make_unique(0, &mut fresh));
            }
            if self.dice.bool() {
                let more = reserved.split(self.dice.usize(..=reserved.len()));
                if forked.has_payer_of(&more) {
                    forked.append(more);
                }
            }
            self.reserved.extend([reserved, forked]);
        }
    }

    fn evict(&mut self) {
        let (blocks, space) = (self.dice.usize(..6), self.space());
        match self.dice.u8(..4) {
            0 => _ = self.cache.evict_into(blocks, &mut self.evicted),
            1 => _ = space.evict(blocks),
            2 => _ = space.evict_idle(Duration::from_nanos(self.dice.u64(..LONG))),
            _ => _ = self.cache.evict(blocks),
        }
    }

    /// Hears of what is stored and removed, or of what is there.
    fn listen(&mut self) {
        match self.dice.u8(..6) {
            0 => self.events.push(self.cache.subscribe(self.dice.usize(1..4))),
            1 => drop(self.cache.snapshot()),
            _ => {
                let at = self.dice.usize(..self.events.len().max(1));
                drop(self.events.get_mut(at).and_then(Subscription::try_next));
            }
        }
    }

    /// Visits what is cached; a visit may evict, and may panic.
    fn walk(&mut self) {
        let space = self.space();
        let Self { cache, dice, .. } = self;
        let walked = catch_unwind(AssertUnwindSafe(|| {
            space.walk(|_| match dice.u8(..8) {
                0 => _ = cache.evict(1),
                1 => resume_unwind(Box::new(())),
                _ => {}
            });
        }));
        drop(walked);
    }

    /// Takes away what others use.
    fn disturb(&mut self) {
        let space = self.space();
        match self.dice.u8(..8) {
            0 => self.cache.clear(),
            1 => space.clear(),
            2 => space.remove(),
            3 => _ = space.clear_if_unused(),
            4 | 5 => {
                let blocks = [(); 2].map(|()| self.dice.usize(..self.cache.capacity_blocks()) as BlockId);
                _ = self.cache.invalidate_blocks(&blocks);
            }
            _ => {
                let mut quota = Quota::default();
                quota.cached_blocks = self.dice.bool().then(|| self.dice.usize(..20));
                quota.pinned_blocks = self.dice.bool().then(|| self.dice.usize(..20));
                quota.time_to_idle = self.dice.bool().then(|| Duration::from_nanos(self.dice.u64(..LONG)));
                space.set_quota(quota);
            }
        }
    }

    fn keep_up(&mut self) {
        match self.dice.u8(..8) {
            0 => self
                .cache
                .settings()
                .set_policy(self.dice.choice(PolicyKind::ALL.iter().copied()).expect("one of them")),
            1 => self
                .cache
                .settings()
                .set_time_to_idle(self.dice.bool().then(|| Duration::from_nanos(self.dice.u64(1..LONG)))),
            2 => self.cache.settle(),
            3 => _ = self.cache.run_once(),
            4 => self.session = self.cache.session(),
            5 => {
                let space = self.space();
                _ = space.stats();
            }
            _ => self.cache.set_time(self.dice.u64(..4 * LONG)),
        }
    }
}

/// Drops one of `things` if they are too many, or by chance.
fn drop_one<T>(things: &mut Vec<T>, dice: &mut Rng) {
    if things.len() > KEPT || (!things.is_empty() && dice.u8(..8) == 0) {
        let at = dice.usize(..things.len());
        drop(things.swap_remove(at));
    }
}
