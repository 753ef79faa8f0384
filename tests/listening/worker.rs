//! A thread that uses every verb, and what it asked for.

use std::time::Duration;

use fastrand::Rng;
use radixkv::{
    BlockRequest, Evicted, Keys, Lease, Namespace, NamespaceName, PolicyKind, PrefixCache, Priority, Quota,
    Reservation, Session, Subscription, Token, WeakLease,
};

/// Names of tokens and of pairs; those beside the default namespace are dropped and made again.
pub fn spaces(cache: &PrefixCache) -> Vec<Namespace> {
    let named = ["a", "b", "c"].map(|name| cache.namespace(&[name]));
    [cache.default_namespace(), cache.namespace(NamespaceName::new(&["a"]).with_keys(Keys::Bigrams))]
        .into_iter()
        .chain(named)
        .collect()
}

/// What lookups that count asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    lookups: u64,
    tokens: u64,
    /// Those of them that lie in whole blocks.
    whole: u64,
    found: u64,
}

impl Asked {
    pub fn and(self, other: Self) -> Self {
        Self {
            lookups: self.lookups + other.lookups,
            tokens: self.tokens + other.tokens,
            whole: self.whole + other.whole,
            found: self.found + other.found,
        }
    }

    /// What was found and what was missed is what was asked for, in all and by namespaces.
    pub fn check(&self, cache: &PrefixCache, seed: u64) {
        let stats = cache.stats();
        let missed = stats.missed_evicted_tokens
            + stats.missed_diverged_tokens
            + stats.missed_elsewhere_tokens
            + stats.missed_new_tokens;
        let counted = [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.hit_tokens + missed];
        assert_eq!(counted, [self.lookups, self.tokens, self.found, self.whole], "seed {seed}");
        let each = cache.lookups_by_namespace();
        let sum = |count: fn(&radixkv::LookupStats) -> u64| each.iter().map(|of| count(&of.lookups)).sum::<u64>();
        assert_eq!(sum(|of| of.lookups), stats.lookups);
        assert_eq!(sum(|of| of.resumed_tokens), stats.resumed_tokens);
        assert_eq!(sum(|of| of.missed_evicted_tokens), stats.missed_evicted_tokens);
        assert_eq!(sum(|of| of.missed_new_tokens), stats.missed_new_tokens);
    }
}

pub struct Worker<'c> {
    cache: &'c PrefixCache,
    session: Session,
    dice: Rng,
    leases: Vec<(Lease, Vec<Token>)>,
    weak: Vec<WeakLease>,
    reserved: Vec<Reservation>,
    listening: Vec<Subscription>,
    pub asked: Asked,
}

impl<'c> Worker<'c> {
    pub fn new(cache: &'c PrefixCache, dice: Rng) -> Self {
        let (leases, weak, reserved, listening) = Default::default();
        Self { cache, session: cache.session(), dice, leases, weak, reserved, listening, asked: Asked::default() }
    }

    fn space(&mut self) -> Namespace {
        let spaces = spaces(self.cache);
        spaces[self.dice.usize(..spaces.len())].clone()
    }

    /// Few tokens, so that sequences part inside blocks, and at many depths; with long blocks, at
    /// few.
    fn prompt(&mut self) -> Vec<Token> {
        let block = self.cache.block_size();
        let len = self.dice.usize(..(12 * block.max(3)).min(9 * block + 30));
        let rare = (len / 4).max(8);
        (0..len).map(|_| u32::from(self.dice.usize(..rare) == 0)).collect()
    }

    fn note(&mut self, space: &Namespace, len: usize, found: usize) {
        let ahead = usize::from(space.keys() == Keys::Bigrams);
        let block = self.cache.block_size();
        let whole = len.saturating_sub(ahead) / block * block;
        assert!(found <= whole && found % block == 0);
        self.asked = self.asked.and(Asked { lookups: 1, tokens: len as u64, whole: whole as u64, found: found as u64 });
    }

    fn insert(&mut self, lease: &Lease, tokens: Vec<Token>, blocks: Reservation) {
        if let Ok(inserted) = self.session.insert(lease, &tokens, blocks) {
            if inserted.lease.len_tokens() > 0 && self.dice.u32(..6) == 0 && self.leases.len() < 4 {
                self.leases.push((inserted.lease, tokens));
            }
        }
    }

    fn serve(&mut self) {
        let (space, tokens) = (self.space(), self.prompt());
        let whole = tokens.len().saturating_sub(usize::from(space.keys() == Keys::Bigrams)) / self.cache.block_size();
        match self.dice.u32(..4) {
            0 => {
                let Ok(mut start) = self.session.acquire(&space, &tokens, 0) else { return };
                self.note(&space, tokens.len(), start.hit.len_tokens());
                let blocks = start.blocks.split(whole - start.hit.blocks().len());
                self.insert(start.hit.lease(), tokens, blocks);
            }
            1 => {
                let mut blocks = Vec::new();
                let lease = self.session.match_prefix_into(&space, &tokens, &mut blocks);
                self.note(&space, tokens.len(), lease.len_tokens());
                _ = self.session.match_partial(&lease, &tokens, 1);
                let Ok(reserved) = self.session.reserve(whole - blocks.len()) else { return };
                self.insert(&lease, tokens, reserved);
            }
            2 => {
                // Never dropped: a lease of nothing is not resumed.
                let space = self.cache.default_namespace();
                let kept = self.session.match_prefix_untouched(&space, &tokens).into_lease();
                let hit = self.session.resume(kept, &tokens);
                self.note(&space, tokens.len(), hit.len_tokens());
                let missing = tokens.len() / self.cache.block_size() - hit.blocks().len();
                let Ok(reserved) = self.session.reserve(BlockRequest::new(missing).paid_by(&space)) else { return };
                self.insert(hit.lease(), tokens, reserved);
            }
            _ => {
                let hit = self.session.match_prefix(&space, &tokens);
                self.note(&space, tokens.len(), hit.len_tokens());
                let Ok(reserved) = self.session.reserve(whole - hit.blocks().len()) else { return };
                self.insert(hit.lease(), tokens, reserved);
            }
        }
    }

    /// Blocks that are evicted for it, some of which it inserts again.
    fn evict_into(&mut self) {
        let mut evicted = Vec::new();
        let count = self.cache.evict_into(self.dice.usize(..12), &mut evicted);
        assert_eq!(evicted.iter().map(|victim| victim.blocks.len()).sum::<usize>(), count);
        for Evicted { namespace, start, tokens, blocks, .. } in evicted {
            let parts: Vec<&str> = namespace.parts().collect();
            let space = self.cache.namespace(NamespaceName::new(&parts).with_keys(namespace.keys()));
            let ahead = usize::from(namespace.keys() == Keys::Bigrams);
            assert_eq!(tokens.len(), start + blocks.len() * self.cache.block_size() + ahead);
            if self.dice.bool() {
                let found = self.session.match_prefix(&space, &tokens);
                self.note(&space, tokens.len(), found.len_tokens());
                drop(self.session.insert(found.lease(), &tokens, blocks));
            }
        }
    }

    /// A lease that it holds: what can be done with one.
    fn hold(&mut self) {
        let Some((lease, tokens)) = self.leases.pop() else { return };
        let (session, dice) = (&self.session, &mut self.dice);
        match dice.u32(..9) {
            0 => _ = session.retain(&lease, Duration::from_nanos(dice.u64(1..200))),
            1 => session.release_retained(&lease),
            2 => session.demote(&lease),
            3 => session.prioritize(&lease, Priority::new(dice.i64(..5)).expiring_after(Duration::from_nanos(50))),
            4 => self.weak.push(lease.downgrade()),
            5 => return drop(lease),
            6 => {
                let more = [&tokens[..], &[0; 40]].concat();
                let hit = session.resume(lease, &more);
                return self.leases.push((hit.into_lease(), tokens));
            }
            7 => self.cache.session().count_use(&lease),
            _ => _ = session.shared_spans(&[&lease]),
        }
        self.leases.push((lease, tokens));
    }

    fn listen(&mut self) {
        match self.dice.u32(..4) {
            0 => self.listening.clear(),
            1 => std::mem::forget(self.cache.subscribe(2)),
            2 => self.listening.push(self.cache.subscribe(1 + self.dice.usize(..3))),
            _ => {
                let (number, dice) = (self.dice.usize(..5), &mut self.dice);
                for events in &mut self.listening {
                    let before = (events.next_number(), events.lost_batches());
                    let read = (0..number).map_while(|_| events.try_next()).count() as u64;
                    let now = (events.next_number(), events.lost_batches());
                    assert_eq!(now.0 - before.0, read + now.1 - before.1);
                }
                if dice.bool() {
                    self.listening.pop();
                }
            }
        }
    }

    /// What changes the whole cache, or a namespace of it.
    fn govern(&mut self) {
        let (cache, space) = (self.cache, self.space());
        let dice = &mut self.dice;
        match dice.u32(..20) {
            0 => space.clear(),
            1 => space.remove(),
            2 => _ = space.clear_if_unused(),
            3 => cache.clear(),
            4 | 5 => space.set_quota(Quota::default().cached_blocks(dice.usize(4..40))),
            6 => space.set_quota(Quota::default().time_to_idle(Duration::from_nanos(dice.u64(1..500)))),
            7 => cache.settings().set_policy(PolicyKind::ALL[dice.usize(..PolicyKind::ALL.len())]),
            8 => _ = space.evict_idle(Duration::from_nanos(dice.u64(..100))),
            9 => _ = space.evict(dice.usize(..8)),
            10 | 11 => _ = cache.evict(dice.usize(..20)),
            12 | 13 => _ = cache.invalidate_blocks(&[dice.u32(..200), dice.u32(..200)]),
            14 => cache.settle(),
            15 => _ = cache.run_once(),
            16 => cache.set_time(dice.u64(..10_000)),
            17 => _ = cache.snapshot().events().len(),
            18 => space.walk(|run| assert!(run.parent.is_none_or(|parent| parent < run.id))),
            _ => cache.settings().set_time_to_idle(dice.bool().then(|| Duration::from_nanos(400))),
        }
    }

    fn reserve(&mut self) {
        match self.dice.u32(..4) {
            0 => self.reserved.clear(),
            1 => self.reserved.extend(self.session.reserve(self.dice.usize(..4)).ok()),
            2 => {
                let forks: Vec<_> = self.reserved.iter_mut().take(1).map(Reservation::fork).collect();
                self.reserved.extend(forks);
            }
            _ => {
                let weak = std::mem::take(&mut self.weak);
                weak.iter().for_each(|weak| drop(self.session.upgrade(weak)));
            }
        }
        self.reserved.truncate(4);
    }

    pub fn step(&mut self) {
        match self.dice.u32(..100) {
            0..60 => self.serve(),
            60..66 => self.evict_into(),
            66..80 => self.hold(),
            80..84 => self.listen(),
            84..92 => self.govern(),
            92..96 => self.reserve(),
            _ => {
                let (space, tokens) = (self.space(), self.prompt());
                assert!(self.session.peek(&space, &tokens) <= tokens.len());
            }
        }
    }
}
