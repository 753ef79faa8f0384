//! Waiting requests that are polled only after a wake-up: the first request in line is served as
//! soon as its blocks are available, and every request is served in the end.
//!
//! One thread does random steps: requests arrive, are dropped, or are polled with other wakers;
//! blocks and leases are taken and dropped; quotas change. After each step, all woken requests are
//! polled, in any order, until none is woken. Then the test computes the order of
//! `docs/admission.md`, and no request that is first in it may still wait for blocks that are
//! available.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use fastrand::Rng;
use radixkv::{
    Acquired, Acquiring, BlockRequest, Lease, Namespace, PrefixCache, Quota, Reservation, Reserving, Session,
};

const BLOCKS: usize = 16;
const SEEDS: u64 = 3000;
/// Polls after one step: more would be waiters that wake each other.
const MANY: usize = 500;
/// Namespaces 0 and 1 have limits on what they pin.
const LIMITED: usize = 2;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

enum Request {
    Reserving(Pin<Box<Reserving>>),
    Acquiring(Pin<Box<Acquiring>>),
}

/// What a request got; dropped later.
#[allow(dead_code, reason = "held, and dropped")]
enum Held {
    Blocks(Reservation),
    Start(Acquired),
    Lease(Lease),
}

struct Waiting {
    request: Request,
    woken: Arc<Woken>,
    name: usize,
    blocks: usize,
    grows: bool,
    /// By arrival.
    number: usize,
}

impl Waiting {
    /// What it got, if it is served; an empty answer if it was refused.
    fn poll(&mut self) -> Poll<Option<Held>> {
        self.woken.0.store(false, Relaxed);
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        match &mut self.request {
            Request::Reserving(future) => future.as_mut().poll(&mut context).map(|got| got.ok().map(Held::Blocks)),
            Request::Acquiring(future) => future.as_mut().poll(&mut context).map(|got| got.ok().map(Held::Start)),
        }
    }
}

struct Bench {
    cache: PrefixCache,
    session: Session,
    names: [Namespace; 4],
    waiting: Vec<Waiting>,
    held: Vec<Held>,
    arrived: usize,
    dice: Rng,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let cache = PrefixCache::builder(1, BLOCKS).build().expect("valid");
        let names = ["a", "b", "c", "d"].map(|name| cache.namespace(&[name]));
        names[0].set_quota(Quota::default().pinned_blocks(6));
        names[1].set_quota(Quota::default().pinned_blocks(4).cached_blocks(4));
        let (waiting, held, dice) = (Vec::new(), Vec::new(), Rng::with_seed(seed));
        Self { session: cache.session(), cache, names, waiting, held, arrived: 0, dice }
    }

    fn tokens(&mut self) -> Vec<u32> {
        (0..self.dice.usize(..5)).map(|_| self.dice.u32(..2)).collect()
    }

    fn step(&mut self) {
        match self.dice.u8(..12) {
            0..=2 => self.reserve(),
            3 | 4 => self.acquire(),
            5 | 6 if !self.held.is_empty() => {
                let at = self.dice.usize(..self.held.len());
                drop(self.held.swap_remove(at));
            }
            7 if !self.waiting.is_empty() => {
                let at = self.dice.usize(..self.waiting.len());
                drop(self.waiting.remove(at));
            }
            8 => {
                let (name, tokens) = (self.dice.usize(LIMITED..4), self.tokens());
                self.held.push(Held::Lease(self.session.match_prefix(&self.names[name], &tokens).into_lease()));
            }
            9 => self.publish(),
            10 => {
                let (name, limit) = (self.dice.usize(..LIMITED), self.dice.usize(2..8));
                self.names[name].set_quota(Quota::default().pinned_blocks(limit));
            }
            _ => {
                let (name, blocks) = (self.dice.usize(..4), self.dice.usize(..4));
                self.held.extend(
                    self.session.reserve(BlockRequest::new(blocks).paid_by(&self.names[name])).map(Held::Blocks).ok(),
                );
            }
        }
        self.poll_what_was_woken();
    }

    fn reserve(&mut self) {
        let (name, blocks) = (self.dice.usize(..4), self.dice.usize(..7));
        let grows = self.dice.bool();
        let request = BlockRequest::new(blocks).paid_by(&self.names[name]);
        let future = self.cache.reserve_async(if grows { request.for_running_sequence() } else { request });
        self.arrive(Request::Reserving(Box::pin(future)), name, blocks, grows);
    }

    fn acquire(&mut self) {
        let (name, tokens, room) = (self.dice.usize(..4), self.tokens(), self.dice.usize(..4));
        let blocks = tokens.len() + room;
        let future = self.cache.acquire_async(&self.names[name], tokens, room);
        self.arrive(Request::Acquiring(Box::pin(future)), name, blocks, false);
    }

    fn arrive(&mut self, request: Request, name: usize, blocks: usize, grows: bool) {
        self.arrived += 1;
        let mut waiting = Waiting { request, woken: Arc::default(), name, blocks, grows, number: self.arrived };
        match waiting.poll() {
            Poll::Ready(got) => self.held.extend(got),
            Poll::Pending => self.waiting.push(waiting),
        }
    }

    /// Caches some of what was acquired.
    fn publish(&mut self) {
        let Some(at) = self.held.iter().position(|held| matches!(held, Held::Start(_))) else { return };
        let Held::Start(start) = self.held.swap_remove(at) else { return };
        let mut own = start.blocks;
        let whole = own.split(own.len().min(self.dice.usize(..3)));
        let leased = vec![0; start.hit.len_tokens()];
        let tokens: Vec<_> = leased.into_iter().chain((0..whole.len()).map(|_| self.dice.u32(..2))).collect();
        let inserted = self.session.insert(start.hit.lease(), &tokens, whole);
        self.held.extend(inserted.ok().map(|inserted| Held::Lease(inserted.lease)));
        self.held.push(Held::Blocks(own));
    }

    fn poll_what_was_woken(&mut self) {
        for _ in 0..MANY {
            let woken = self.waiting.iter().enumerate().filter(|(_, waiting)| waiting.woken.0.load(Relaxed));
            let woken: Vec<_> = woken.map(|(at, _)| at).collect();
            let Some(&at) = self.dice.choice(&woken) else { return };
            if self.dice.u8(..8) == 0 {
                self.waiting[at].woken = Arc::default();
            }
            if let Poll::Ready(got) = self.waiting[at].poll() {
                drop(self.waiting.remove(at));
                self.held.extend(got);
            }
        }
        panic!("the waiters wake each other");
    }

    /// Whether the quota of its namespace is in its way; unknown where a match could change the
    /// answer.
    fn is_over_quota(&self, waiting: &Waiting) -> Option<bool> {
        let stats = self.names[waiting.name].stats();
        let Some(limit) = stats.quota.pinned_blocks else { return Some(false) };
        let left = limit.saturating_sub(stats.protected_blocks + stats.reserved_blocks);
        match waiting.request {
            Request::Acquiring(_) if stats.cached_blocks > 0 && waiting.blocks > left => None,
            _ => Some(waiting.blocks > left),
        }
    }

    /// The first one in order of those whose quota allows them waits for blocks that are not there.
    fn check(&self) {
        self.cache.settle();
        let over: Option<Vec<_>> = self.waiting.iter().map(|waiting| self.is_over_quota(waiting)).collect();
        let Some(over) = over else { return };
        // By one of its own lane that came before it, or by growth.
        let is_before = |other: &Waiting, waiting: &Waiting| {
            let same_lane = other.grows == waiting.grows && other.number <= waiting.number;
            other.name == waiting.name && (same_lane || (other.grows && !waiting.grows))
        };
        let held_back =
            |waiting: &Waiting| self.waiting.iter().zip(&over).any(|(other, over)| *over && is_before(other, waiting));
        let in_turn = self.waiting.iter().filter(|waiting| !held_back(waiting));
        let Some(first) = in_turn.min_by_key(|waiting| (!waiting.grows, waiting.number)) else { return };
        let stats = self.cache.stats();
        let available = stats.free_blocks + stats.evictable_blocks;
        assert!(first.blocks > available, "number {} waits for {} of {available}", first.number, first.blocks);
    }

    /// Everything is dropped, and everyone served.
    fn finish(mut self) {
        while !self.held.is_empty() {
            let at = self.dice.usize(..self.held.len());
            drop(self.held.swap_remove(at));
            self.poll_what_was_woken();
        }
        assert_eq!(self.waiting.len(), 0, "nothing is held, and they wait");
        self.cache.settle();
        self.cache.validate().expect("sound");
        let stats = self.cache.stats();
        assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.waiting_requests), (0, 0, 0));
    }
}

// Holds: WA1.
#[test]
fn whoever_is_first_is_served_when_the_blocks_are_there_and_all_are_in_the_end() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut bench = Bench::new(seed);
        for _ in 0..bench.dice.usize(10..100) {
            bench.step();
            bench.check();
        }
        bench.finish();
    }
}
