//! Threads append to the ends of the same cached sequences, with equal and with different tokens,
//! while other threads evict, invalidate and clear. Every leased block must have the content of its
//! tokens, the events that listeners got must agree with the cached blocks, and no block may be
//! lost or given to two owners.
#![cfg(not(any(radixkv_loom, radixkv_shuttle)))]

use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use fastrand::Rng;
use parking_lot::Mutex;
use radixkv::{
    BlockId, CacheEvent, Clock, EventBatch, Lease, Namespace, PolicyKind, PrefixCache, Session, Subscription, Token,
};

/// Rounds of each test; a sanitizer's build takes long for one.
const ROUNDS: u64 = if cfg!(radixkv_tsan) { 15 } else { 90 };
const CAPACITY: usize = 64;
/// Tips that threads share.
const TIPS: usize = 6;

/// A leased sequence.
struct Tip {
    lease: Lease,
    tokens: Vec<Token>,
}

impl Clone for Tip {
    fn clone(&self) -> Self {
        Self { lease: self.lease.try_clone().expect("few leases"), tokens: self.tokens.clone() }
    }
}

/// One cache, and what was written to its blocks.
struct Field {
    cache: PrefixCache,
    space: Namespace,
    size: usize,
    /// Of each block, a hash of its sequence up to its end.
    written: Vec<AtomicU64>,
    tips: Mutex<Vec<Tip>>,
    /// Whether blocks are invalidated or cleared, so that what is leased may not be found.
    hides: bool,
}

/// A hash of tokens that is never zero.
fn hash(tokens: &[Token]) -> u64 {
    tokens.iter().fold(tokens.len() as u64 + 1, |hash, &token| {
        (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    })
}

impl Field {
    fn new(size: usize, policy: PolicyKind, hides: bool) -> Self {
        let cache = PrefixCache::builder(size, CAPACITY).policy(policy).clock(Clock::Logical).build().expect("valid");
        let space = cache.default_namespace();
        let written = (0..CAPACITY).map(|_| AtomicU64::new(0)).collect();
        Self { cache, space, size, written, tips: Mutex::new(Vec::new()), hides }
    }

    fn root(&self, session: &Session) -> Tip {
        Tip { lease: session.match_prefix(&self.space, &[]).into_lease(), tokens: Vec::new() }
    }

    /// Appends tokens to a tip; the new one, unless there is no room or the tip was invalidated.
    fn append(&self, session: &Session, tip: &Tip, more: impl Iterator<Item = Token>) -> Option<Tip> {
        let tokens: Vec<Token> = tip.tokens.iter().copied().chain(more).collect();
        let from = tip.tokens.len() / self.size;
        let fresh = session.reserve(tokens.len() / self.size - from).ok()?;
        for (i, &block) in fresh.blocks().iter().enumerate() {
            self.written[block as usize].store(hash(&tokens[..(from + i + 1) * self.size]), Relaxed);
        }
        let inserted = session.insert(&tip.lease, &tokens, fresh).ok()?;
        assert_eq!(inserted.lease.len_tokens(), tokens.len());
        self.check(&inserted.blocks, from, &tokens);
        Some(Tip { lease: inserted.lease, tokens })
    }

    /// Checks the blocks of `tokens` from the one with this number on.
    fn check(&self, blocks: &[BlockId], from: usize, tokens: &[Token]) {
        for (i, &block) in blocks.iter().enumerate() {
            let end = (from + i + 1) * self.size;
            assert_eq!(self.written[block as usize].load(Relaxed), hash(&tokens[..end]), "block {block} of {tokens:?}");
        }
    }

    /// Looks a tip up that is leased.
    fn find(&self, session: &Session, tip: &Tip) {
        let hit = session.match_prefix(&self.space, &tip.tokens);
        assert!(self.hides || hit.len_tokens() == tip.tokens.len(), "{:?} is leased", tip.tokens);
        self.check(hit.blocks(), 0, &tip.tokens);
    }

    fn any_tip(&self, session: &Session, dice: &mut Rng) -> Tip {
        let tips = self.tips.lock();
        if tips.is_empty() { self.root(session) } else { tips[dice.usize(..tips.len())].clone() }
    }

    /// Puts a tip where others find it, in the place of another one.
    fn offer(&self, tip: Tip, dice: &mut Rng) {
        let mut tips = self.tips.lock();
        let gone = if tips.len() < TIPS { None } else { Some(tips.swap_remove(dice.usize(..TIPS))) };
        tips.push(tip);
        drop(tips);
        drop(gone);
    }

    fn work(&self, mut dice: Rng, steps: usize) {
        let session = self.cache.session();
        for _ in 0..steps {
            let tip = self.any_tip(&session, &mut dice);
            match dice.u32(..20) {
                0..12 => {
                    let (blocks, token) = (dice.usize(1..3), dice.u32(..2));
                    let more = std::iter::repeat_n(token, blocks * self.size);
                    match self.append(&session, &tip, more) {
                        Some(tip) => {
                            self.find(&session, &tip);
                            self.offer(tip, &mut dice);
                        }
                        None => self.tips.lock().clear(),
                    }
                }
                12..15 => self.find(&session, &tip),
                15 => self.tips.lock().clear(),
                _ => self.disturb(&mut dice),
            }
        }
    }

    fn disturb(&self, dice: &mut Rng) {
        match dice.u32(..8) {
            0..4 => _ = self.cache.evict(dice.usize(..8)),
            4 => self.cache.settle(),
            5 => _ = self.cache.snapshot(),
            6 if self.hides => _ = self.cache.invalidate_blocks(&[dice.u32(..CAPACITY as u32)]),
            7 if self.hides && dice.u32(..8) == 0 => self.cache.clear(),
            _ => {
                let mut evicted = Vec::new();
                self.cache.evict_into(dice.usize(..4), &mut evicted);
                for victim in evicted {
                    let from = victim.start / self.size;
                    self.check(victim.blocks.blocks(), from, &victim.tokens);
                }
            }
        }
    }

    /// Checks what is cached while nobody is at work: of each block its sequence.
    fn at_rest(&self, log: &mut Log) {
        self.cache.settle();
        assert_eq!(self.cache.validate(), Ok(()));
        let mut cached = BTreeMap::new();
        let mut paths: Vec<Vec<Token>> = Vec::new();
        self.space.walk(|run| {
            let mut tokens = run.parent.map_or_else(Vec::new, |parent| paths[parent].clone());
            tokens.truncate(run.start);
            tokens.extend(run.tokens);
            let first = tokens.len() / self.size - run.blocks.len();
            self.check(run.blocks, first, &tokens);
            for (i, &block) in run.blocks.iter().enumerate() {
                let twice = cached.insert(block, tokens[..(first + i + 1) * self.size].to_vec());
                assert_eq!(twice, None, "block {block} is cached twice");
            }
            paths.push(tokens);
        });
        log.read();
        assert_eq!(log.held, cached);
        let mut copy = BTreeMap::new();
        take(&self.cache.snapshot(), &mut copy);
        assert_eq!(copy, cached);
        let stats = self.cache.stats();
        let held = stats.free_blocks + stats.reserved_blocks + stats.evictable_blocks + stats.protected_blocks;
        assert_eq!((held, stats.reserved_blocks), (CAPACITY, 0));
        if !self.hides {
            assert_eq!(stats.evictable_blocks + stats.protected_blocks, cached.len());
        }
    }
}

/// What a listener knows: of each block its sequence.
struct Log {
    events: Subscription,
    held: BTreeMap<BlockId, Vec<Token>>,
}

impl Log {
    fn read(&mut self) {
        while let Some(batch) = self.events.try_next() {
            take(&batch, &mut self.held);
        }
        assert_eq!(self.events.lost_batches(), 0);
    }
}

fn take(batch: &EventBatch, held: &mut BTreeMap<BlockId, Vec<Token>>) {
    for event in batch.events() {
        match event {
            CacheEvent::Stored { parent, start, tokens, blocks, .. } => {
                let mut path = parent.map_or_else(Vec::new, |parent| held[&parent].clone());
                assert_eq!(path.len(), start, "{event:?}");
                for (&block, tokens) in blocks.iter().zip(tokens.chunks(tokens.len() / blocks.len())) {
                    path.extend(tokens);
                    assert_eq!(held.insert(block, path.clone()), None, "{event:?}");
                }
            }
            CacheEvent::Removed { start, blocks, .. } => {
                let gone: HashMap<_, _> = blocks.iter().map(|block| (block, held.remove(block))).collect();
                assert!(gone.values().flatten().all(|path| path.len() > start), "{event:?}");
                assert!(gone.values().all(Option::is_some), "{event:?}");
            }
            CacheEvent::Cleared { .. } => held.clear(),
            other => panic!("unknown: {other:?}"),
        }
    }
}

fn mixed(hides: bool) {
    for round in 0..ROUNDS {
        let policy = PolicyKind::ALL[round as usize % PolicyKind::ALL.len()];
        let field = Field::new([1, 2, 4][round as usize % 3], policy, hides);
        let mut log = Log { events: field.cache.subscribe(1 << 20), held: BTreeMap::new() };
        let threads = 2 + round % 3;
        for part in 0..3 {
            thread::scope(|scope| {
                let start = |worker| {
                    let (field, dice) = (&field, Rng::with_seed(round * 16 + part * 4 + worker));
                    scope.spawn(move || field.work(dice, 200))
                };
                let workers: Vec<_> = (0..threads).map(start).collect();
                // By themselves: ThreadSanitizer does not see how a scope waits.
                workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
            });
            field.at_rest(&mut log);
        }
        field.tips.lock().clear();
        field.at_rest(&mut log);
        field.cache.evict(CAPACITY);
        assert_eq!(field.cache.stats().free_blocks, CAPACITY, "round {round}");
    }
}

// Holds: IN4.
#[test]
fn appended_blocks_are_found_and_told_of() {
    mixed(false);
}

// Holds: IN4.
#[test]
fn appended_blocks_are_told_of_while_others_are_invalidated_and_cleared() {
    mixed(true);
}

/// All threads append to one tip at the same moment: the same token, tokens of their own, or some
/// of them the same; one evicts what its predecessors left.
// Holds: IN4.
#[test]
fn one_of_many_that_append_to_one_tip_is_first() {
    for round in 0..4 * ROUNDS {
        let field = Field::new([1, 2][round as usize % 2], PolicyKind::Lru, false);
        let mut log = Log { events: field.cache.subscribe(1 << 20), held: BTreeMap::new() };
        let start = Barrier::new(4);
        let is_over = AtomicBool::new(false);
        let session = field.cache.session();
        let base = field.append(&session, &field.root(&session), std::iter::repeat_n(7, 2 * field.size));
        let mut tip = field.append(&session, &base.expect("room"), std::iter::repeat_n(8, field.size)).expect("room");
        for turn in 0..6 {
            let new: Vec<Tip> = thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|at| {
                        let (field, tip, start) = (&field, &tip, &start);
                        scope.spawn(move || {
                            let session = field.cache.session();
                            let token = [0, at, at / 2][(round % 3) as usize];
                            start.wait();
                            let more = std::iter::repeat_n(token, (1 + at as usize % 2) * field.size);
                            field.append(&session, tip, more).expect("room")
                        })
                    })
                    .collect();
                let (field, start, is_over) = (&field, &start, &is_over);
                let evictor = scope.spawn(move || {
                    start.wait();
                    (0..20).take_while(|_| !is_over.load(Relaxed)).for_each(|at| _ = field.cache.evict(at % 2));
                });
                let new = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
                is_over.store(true, Relaxed);
                evictor.join().expect("no panic");
                new
            });
            is_over.store(false, Relaxed);
            new.iter().for_each(|tip| field.find(&session, tip));
            field.at_rest(&mut log);
            tip = new[turn % 3].clone();
        }
        drop(tip);
    }
}

/// A run has room for fewer pieces than tokens: what comes after the last one hangs behind it.
// Holds: IN4.
#[test]
fn a_conversation_of_many_short_turns_is_found_whole() {
    let cache = PrefixCache::builder(1, 2_000).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens: Vec<Token> = (0..2_000).collect();
    let mut tip = session.match_prefix(&space, &[]).into_lease();
    for end in 1..=tokens.len() {
        tip = session.insert(&tip, &tokens[..end], session.reserve(1).expect("room")).expect("fitting").lease;
    }
    assert_eq!((session.peek(&space, &tokens), cache.validate()), (2_000, Ok(())));
    drop(tip);
    assert_eq!((cache.evict(2_000), cache.validate()), (2_000, Ok(())));
}
