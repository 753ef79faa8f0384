//! Tenants on several threads that try everything: no way to blocks goes past a quota, and none
//! takes another one's share.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{BlockRequest, Lease, Namespace, PrefixCache, Quota, Reservation, Session};

use crate::sequence;

const SIZE: usize = 4;
const THREADS: usize = 4;
/// Blocks that a tenant may have cached, and as many pinned.
const LIMIT: usize = 8;
const TENANTS: usize = 4;
const ROUNDS: usize = 200;
/// Enough for the shares of all.
const CAPACITY: usize = TENANTS * 2 * LIMIT;

struct Tenant<'a> {
    cache: &'a PrefixCache,
    session: Session,
    spaces: &'a [Namespace],
    dice: Rng,
    round: usize,
    filling: Vec<Reservation>,
    leases: Vec<Lease>,
}

impl Tenant<'_> {
    fn any_space(&mut self) -> &Namespace {
        &self.spaces[self.dice.usize(..self.spaces.len())]
    }

    fn take_filling(&mut self) -> Option<Reservation> {
        (!self.filling.is_empty()).then(|| self.filling.swap_remove(self.dice.usize(..self.filling.len())))
    }

    fn reserve(&mut self) {
        let blocks = self.dice.usize(..=LIMIT);
        let (by_default, grows, form) = (self.dice.u8(..4) == 0, self.dice.bool(), self.dice.u8(..3));
        let payer = self.any_space().clone();
        let request = BlockRequest::new(blocks);
        let request = if by_default { request } else { request.paid_by(&payer) };
        let request = if grows { request.for_running_sequence() } else { request };
        let soon = || Instant::now() + Duration::from_micros(50);
        let reserved = match form {
            0 => self.session.reserve(request).ok(),
            1 => self.session.reserve(request.until(soon())).ok(),
            _ => match pin!(self.cache.reserve_async(request)).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(reserved) => reserved.ok(),
                Poll::Pending => None,
            },
        };
        self.filling.extend(reserved);
    }

    fn insert(&mut self) {
        let Some(reservation) = self.take_filling() else { return };
        // All of them into one namespace, and then into the next.
        let (key, space) = (self.dice.u32(..200), self.spaces[self.round / 10 % TENANTS].clone());
        let root = self.session.match_prefix(&space, &[]);
        let inserted = self.session.insert(root.lease(), &sequence(key, SIZE * reservation.len()), reservation);
        match inserted {
            Ok(inserted) if self.dice.u8(..8) > 0 => self.leases.push(inserted.lease),
            Ok(_) => {}
            Err(refused) => self.filling.push(refused.reservation),
        }
    }

    fn look_up(&mut self) {
        let (key, len) = (self.dice.u32(..12), self.dice.usize(..SIZE * LIMIT));
        let space = self.any_space().clone();
        self.leases.push(self.session.match_prefix(&space, &sequence(key, len)).into_lease());
    }

    fn share(&mut self) {
        let Some(mut one) = self.take_filling() else { return };
        let mut other = one.fork();
        if let Some(mut fresh) = self.take_filling() {
            if !fresh.is_empty() && !fresh.is_shared(fresh.len() - 1) && !one.is_empty() {
                let at = self.dice.usize(..one.len());
                drop(other.make_unique(at, &mut fresh));
            }
            self.filling.push(fresh);
        }
        let part = one.split(self.dice.usize(..=one.len()));
        self.filling.extend([one, other, part]);
    }

    fn act(&mut self) {
        match self.dice.u8(..9) {
            0..3 => self.reserve(),
            3..5 => self.insert(),
            5 => self.look_up(),
            6 => self.share(),
            7 => drop(self.take_filling()),
            _ if self.leases.is_empty() || self.dice.bool() => {}
            _ => drop(self.leases.swap_remove(self.dice.usize(..self.leases.len()))),
        }
        if self.filling.len() > 6 {
            self.filling.clear();
        }
        if self.leases.len() > 20 {
            self.leases.clear();
        }
    }
}

/// At a moment at which no thread acts.
fn check(cache: &PrefixCache, spaces: &[Namespace]) {
    cache.settle();
    cache.validate().expect("sound");
    let session = cache.session();
    let reserved: usize = spaces.iter().map(|space| space.stats().reserved_blocks).sum();
    assert_eq!(reserved, cache.stats().reserved_blocks, "each reserved block is paid for once");
    for space in spaces {
        let stats = space.stats();
        let pinned = stats.protected_blocks + stats.reserved_blocks;
        assert!(pinned <= 2 * LIMIT, "{space:?}: {stats:?}");
        assert!(stats.cached_blocks <= LIMIT.max(stats.protected_blocks), "{space:?}: {stats:?}");
        let own_share = LIMIT.saturating_sub(pinned);
        let reserved = session.reserve(BlockRequest::new(own_share).paid_by(space));
        assert!(own_share == 0 || reserved.is_ok(), "{space:?}: {own_share} of {stats:?}: {reserved:?}");
    }
}

#[test]
fn no_way_to_blocks_goes_past_a_quota() {
    let cache = PrefixCache::builder(SIZE, CAPACITY).build().expect("valid");
    let mut spaces = vec![cache.default_namespace()];
    spaces.extend((1..TENANTS).map(|i| cache.namespace(&[&format!("tenant-{i}")])));
    spaces.iter().for_each(|space| {
        space.set_quota(Quota::default().cached_blocks(LIMIT).pinned_blocks(LIMIT));
    });
    let tenant = |thread| Tenant {
        cache: &cache,
        session: cache.session(),
        spaces: &spaces,
        dice: Rng::with_seed(thread),
        round: 0,
        filling: Vec::new(),
        leases: Vec::new(),
    };
    let mut held = Vec::from_iter((0..THREADS).map(|_| (Vec::new(), Vec::new())));
    for round in 0..ROUNDS {
        // A round's threads end before it is checked; what they hold is handed on.
        std::thread::scope(|scope| {
            let act = |thread: usize, (filling, leases)| {
                let seed = (round * THREADS + thread) as u64;
                let mut tenant = Tenant { round, filling, leases, ..tenant(seed) };
                (0..50).for_each(|_| tenant.act());
                (tenant.filling, tenant.leases)
            };
            let threads = held.drain(..).enumerate().map(|(thread, held)| scope.spawn(move || act(thread, held)));
            let threads: Vec<_> = threads.collect();
            held.extend(threads.into_iter().map(|thread| thread.join().expect("no panic")));
        });
        check(&cache, &spaces);
    }
    drop(held);
    check(&cache, &spaces);
    assert_eq!((cache.stats().reserved_blocks, cache.stats().protected_blocks), (0, 0));
}
