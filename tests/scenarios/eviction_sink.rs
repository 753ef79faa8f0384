//! What an eviction sink receives, and what becomes of the blocks. Requests that wait beside it are in
//! `sink_waiters`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use radixkv::{
    BlockRequest, Builder, Clock, Evicted, EvictedBatch, Eviction, EvictionReason, EvictionSink, PrefixCache, Quota,
    ReserveError, SettingError, Token, Watermarks,
};

use crate::{Bench, sequence};

/// What takes longer does not come.
pub(super) const LONG: Duration = Duration::from_secs(60);

type Seen = Arc<Mutex<Vec<(Vec<Token>, usize, EvictionReason, bool)>>>;

pub(super) fn bench(builder: Builder) -> Bench {
    let cache = builder.clock(Clock::Logical).build().expect("a sound setting");
    Bench { session: cache.session(), space: cache.default_namespace(), cache }
}

/// A sink that notes what it is given and drops it.
fn noting() -> (Seen, impl EvictionSink) {
    let seen = Seen::default();
    let sink = {
        let seen = Arc::clone(&seen);
        move |batch: EvictedBatch| {
            let mut seen = seen.lock().expect("no panic");
            for Evicted { tokens, start, reason, blocks, .. } in &batch.pieces {
                assert_eq!((tokens.len() - start).div_ceil(4), blocks.len());
                seen.push((tokens.clone(), *start, *reason, batch.is_needed));
            }
        }
    };
    (seen, sink)
}

fn taken(seen: &Seen) -> Vec<(Vec<Token>, usize, EvictionReason, bool)> {
    std::mem::take(&mut seen.lock().expect("no panic"))
}

// Holds: RE3.
#[test]
fn it_receives_what_every_verb_evicts_and_nothing_else() {
    use EvictionReason::{Age, Capacity, Quota as OverQuota};
    let (seen, sink) = noting();
    let bench = bench(PrefixCache::builder(4, 8).eviction_sink(sink).time_to_idle(Duration::from_nanos(1_000)));
    for (now, key) in (1..=4).zip(1..) {
        bench.serve_at(now, &sequence(key, 8));
    }
    assert_eq!(taken(&seen), []);
    drop(bench.session.reserve(3).expect("three are evicted"));
    assert_eq!(
        taken(&seen),
        [(sequence(1, 8), 0, Capacity, true), (sequence(2, 8), 4, Capacity, true)],
        "in the order of eviction"
    );
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!(bench.space.evict(1), 1);
    assert_eq!(taken(&seen), [(sequence(2, 4), 0, Capacity, false), (sequence(3, 8), 4, Capacity, false)]);
    bench.space.set_quota(Quota::default().cached_blocks(2));
    bench.cache.settle();
    assert_eq!(taken(&seen), [(sequence(3, 4), 0, OverQuota, false)]);
    bench.space.set_quota(Quota::default());
    bench.cache.set_time(2_000);
    bench.cache.settle();
    assert_eq!(taken(&seen), [(sequence(4, 8), 0, Age, false)]);

    bench.serve_at(2_001, &sequence(5, 8));
    let mut evicted = Vec::new();
    assert_eq!(bench.cache.evict_into(1, &mut evicted), 1);
    bench.cache.invalidate_blocks(&[bench.matched_blocks(&sequence(5, 4))[0]]);
    bench.serve_at(2_002, &sequence(6, 8));
    bench.cache.clear();
    bench.cache.settle();
    assert_eq!(taken(&seen), [], "the caller has it, it is invalid, or it was cleared");
    drop(evicted);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

impl Bench {
    fn matched_blocks(&self, tokens: &[Token]) -> Vec<u32> {
        self.session.match_prefix(&self.space, tokens).blocks().to_vec()
    }
}

/// A sink that keeps what it is given until the test receives it, and counts what passes it by.
pub(super) struct Keeping {
    to: Mutex<Sender<EvictedBatch>>,
    passed_by: Arc<AtomicUsize>,
}

impl EvictionSink for Keeping {
    fn take(&self, batch: EvictedBatch) {
        self.to.lock().expect("no panic").send(batch).expect("the test is there");
    }

    fn passed_by(&self, blocks: usize) {
        self.passed_by.fetch_add(blocks, Relaxed);
    }
}

pub(super) fn keeping() -> (Receiver<EvictedBatch>, Arc<AtomicUsize>, Keeping) {
    let (to, from) = channel();
    let passed_by = Arc::new(AtomicUsize::new(0));
    (from, Arc::clone(&passed_by), Keeping { to: Mutex::new(to), passed_by })
}

// Holds: RE4.
#[test]
fn what_it_keeps_is_reserved_and_a_thread_in_need_evicts_others_past_it() {
    let (kept, passed_by, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 8).eviction_sink(sink));
    for key in 1..=4 {
        bench.serve_at(u64::from(key), &sequence(key, 8));
    }
    let blocks = bench.session.reserve(2).expect("others are evicted");
    let batch = kept.try_recv().expect("the first were offered");
    assert_eq!((batch.pieces.len(), batch.pieces[0].blocks.len(), batch.is_needed), (1, 2, true));
    assert_eq!((passed_by.load(Relaxed), bench.peek(&sequence(2, 8))), (2, 0));
    assert_eq!(bench.accounts(), [0, 4, 4, 0]);
    // Nobody waits: what it keeps does not come back in time, and the rest is too little.
    assert_eq!(
        bench.session.reserve(5).expect_err("four are cached"),
        ReserveError::Exhausted { requested: 5, available: 4 }
    );
    assert!(kept.try_recv().is_err(), "a refusal evicts nothing");
    drop(batch);
    assert_eq!(bench.accounts(), [2, 2, 4, 0]);
    drop(blocks);
    assert_eq!(bench.session.reserve(4).map(|blocks| blocks.len()), Ok(4), "they are free");
}

// Holds: RE4.
#[test]
fn the_background_thread_counts_on_what_it_keeps() {
    let (kept, _, sink) = keeping();
    let builder = PrefixCache::builder(4, 16).eviction_sink(sink);
    let bench = bench(builder.eviction(Eviction::Background(Watermarks::new(4, 8))));
    for key in 1..=7 {
        bench.serve_at(u64::from(key), &sequence(key, 8));
    }
    let mut held = Vec::new();
    let end = Instant::now() + LONG;
    while held.iter().flat_map(|batch: &EvictedBatch| &batch.pieces).map(|piece| piece.blocks.len()).sum::<usize>() < 6
    {
        held.extend(kept.recv_timeout(end - Instant::now()));
    }
    // It is called, and evicts no more: as many are on their way as are missing.
    for _ in 0..3 {
        bench.cache.run_once();
        thread::sleep(Duration::from_millis(5));
    }
    assert!(kept.try_recv().is_err());
    assert!(held.iter().all(|batch| !batch.is_needed));
    assert_eq!(bench.accounts(), [2, 6, 8, 0]);
    drop(held);
    assert_eq!(bench.accounts(), [8, 0, 8, 0]);
}

// Holds: RE5.
#[test]
fn a_panic_in_it_loses_no_block() {
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(|_: EvictedBatch| panic!("planned")));
    bench.serve_at(1, &sequence(1, 16));
    assert!(catch_unwind(AssertUnwindSafe(|| bench.session.reserve(3))).is_err());
    assert_eq!(bench.accounts(), [3, 0, 1, 0], "they were evicted, and are free");
    assert!(catch_unwind(AssertUnwindSafe(|| bench.cache.evict(1))).is_err());
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
}

/// A sink whose mark panics until it is told to stop.
struct BreakingMark {
    breaks: Arc<AtomicBool>,
    passed_by: Arc<AtomicUsize>,
}

impl EvictionSink for BreakingMark {
    fn take(&self, batch: EvictedBatch) {
        assert_eq!(batch.mark, 7);
    }

    fn mark(&self) -> u64 {
        assert!(!self.breaks.load(Relaxed), "planned");
        7
    }

    fn passed_by(&self, blocks: usize) {
        self.passed_by.fetch_add(blocks, Relaxed);
    }
}

// Holds: RE5.
#[test]
fn blocks_without_a_mark_pass_it_by() {
    let (breaks, passed_by) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let sink = BreakingMark { breaks: Arc::clone(&breaks), passed_by: Arc::clone(&passed_by) };
    let bench = bench(PrefixCache::builder(4, 8).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 16));
    bench.serve_at(2, &sequence(2, 16));
    assert_eq!(bench.session.reserve(3).map(|blocks| blocks.len()), Ok(3));
    assert_eq!((bench.accounts(), passed_by.load(Relaxed)), ([3, 0, 5, 0], 3));
    assert_eq!((bench.cache.evict(2), bench.accounts(), passed_by.load(Relaxed)), (2, [5, 0, 3, 0], 5));
    breaks.store(false, Relaxed);
    assert_eq!(bench.session.reserve(8).map(|blocks| blocks.len()), Ok(8));
    assert_eq!((bench.accounts(), passed_by.load(Relaxed)), ([8, 0, 0, 0], 5));
}

/// Uses a cache when it is dropped.
struct EvictsOnDrop(PrefixCache);

impl Drop for EvictsOnDrop {
    fn drop(&mut self) {
        assert_eq!(self.0.evict(1), 1);
        self.0.clear();
    }
}

#[test]
fn what_it_captures_may_use_the_cache_when_it_is_dropped() {
    let bench = Bench::new(4, 4);
    let sink = || {
        let last = EvictsOnDrop(bench.cache.clone());
        move |_: EvictedBatch| _ = &last
    };
    bench.serve_at(1, &sequence(1, 16));
    assert_eq!(bench.cache.settings().set_eviction_sink(sink()), Ok(()));
    bench.cache.settings().remove_eviction_sink();
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
    bench.serve_at(2, &sequence(2, 16));
    assert_eq!(bench.cache.settings().set_eviction_sink(|_: EvictedBatch| {}), Ok(()));
    assert_eq!(bench.cache.settings().set_eviction_sink(sink()), Err(SettingError::HasSink));
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
}

// Holds: RE6.
#[test]
fn ids_of_an_external_pool_come_back_once_it_has_dropped_them() {
    let (kept, _, sink) = keeping();
    let cache = PrefixCache::builder(4, 8).external().eviction_sink(sink).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let pool = cache.external().expect("external");
    let tokens = sequence(1, 12);
    let blocks = pool.adopt(&[6, 2, 4]).expect("the engine has them");
    drop(session.insert(session.match_prefix(&space, &tokens).lease(), &tokens, blocks).expect("it fits"));
    assert_eq!(cache.evict(2), 2);
    let mut ids = Vec::new();
    assert_eq!(pool.take_evicted(&mut ids), 0, "the sink has them");
    assert!(pool.adopt(&[2]).is_err());
    let batch = kept.recv().expect("two blocks");
    assert_eq!(batch.pieces.iter().map(|piece| piece.blocks.len()).sum::<usize>(), 2);
    drop(batch);
    assert_eq!((pool.take_evicted(&mut ids), pool.take_evicted(&mut ids)), (2, 0));
    ids.sort_unstable();
    assert_eq!((ids, cache.validate()), (vec![2, 4], Ok(())));
}

/// A thread that needs blocks comes to its end although it is left none.
// Holds: RE4.
#[test]
fn one_that_caches_them_again_keeps_no_thread_from_its_blocks() {
    let bench = bench(PrefixCache::builder(4, 4));
    bench.serve_at(1, &sequence(1, 4));
    cache_again(&bench);
    drop(bench.session.reserve(4).expect("past the sink at last"));
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
    // It has a handle of the cache, which would live for ever.
    bench.cache.settings().remove_eviction_sink();
}

/// Sets a sink that caches again what is evicted.
pub(super) fn cache_again(bench: &Bench) {
    cache_some_again(bench, usize::MAX);
}

/// Sets a sink that caches again the first `most` blocks that are evicted.
fn cache_some_again(bench: &Bench, most: usize) {
    let (cache, space, received) = (bench.cache.clone(), bench.space.clone(), AtomicUsize::new(0));
    let sink = move |batch: EvictedBatch| {
        for Evicted { tokens, start, blocks, .. } in batch.pieces {
            if received.fetch_add(blocks.len(), Relaxed) >= most {
                continue;
            }
            let session = cache.session();
            let below = session.match_prefix(&space, &tokens[..start]);
            drop(session.insert(below.lease(), &tokens, blocks));
        }
    };
    bench.cache.settings().set_eviction_sink(sink).expect("the first");
}

/// Each turn evicts as many blocks as it may.
// Holds: EV11.
#[test]
fn one_that_caches_them_again_keeps_no_eviction_from_its_end() {
    let blocks = 512;
    let bench = bench(PrefixCache::builder(4, blocks));
    (0..blocks as u32).for_each(|key| bench.serve_at(1, &sequence(key, 4)));
    // An eviction that does not end by itself ends when the sink caches nothing any more.
    cache_some_again(&bench, 10 * blocks);
    assert_eq!(bench.cache.evict(usize::MAX), blocks);
    assert_eq!(bench.space.evict(usize::MAX), blocks);
    assert_eq!(bench.cache.evict_into(usize::MAX, &mut Vec::new()), blocks);
    assert_eq!(bench.accounts(), [blocks, 0, 0, 0]);
    bench.cache.settings().remove_eviction_sink();
}

#[test]
fn it_is_set_and_removed_while_the_cache_runs() {
    let bench = Bench::new(4, 4);
    bench.serve_at(1, &sequence(1, 16));
    assert_eq!(bench.cache.evict(1), 1);
    let (seen, sink) = noting();
    let alive = Arc::downgrade(&seen);
    assert_eq!(bench.cache.settings().set_eviction_sink(sink), Ok(()));
    assert_eq!(bench.cache.settings().set_eviction_sink(|_: EvictedBatch| {}), Err(SettingError::HasSink));
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!(taken(&seen), [(sequence(1, 12), 8, EvictionReason::Capacity, false)]);
    bench.cache.settings().remove_eviction_sink();
    assert_eq!((bench.cache.evict(1), taken(&seen)), (1, vec![]));
    drop(seen);
    assert!(alive.upgrade().is_none(), "what was removed is dropped");
    assert_eq!(bench.accounts(), [3, 0, 1, 0]);
}

/// Marks the time of an eviction, as a sink does that must leave out what is from before a clear.
struct Marking {
    now: Arc<AtomicU64>,
    marks: Arc<Mutex<Vec<u64>>>,
}

impl EvictionSink for Marking {
    fn mark(&self) -> u64 {
        self.now.load(Relaxed)
    }

    fn take(&self, batch: EvictedBatch) {
        self.marks.lock().expect("no panic").push(batch.mark);
    }
}

// Holds: RE3.
#[test]
fn a_batch_has_the_mark_of_its_eviction() {
    let (now, marks) = (Arc::new(AtomicU64::new(7)), Arc::default());
    let sink = Marking { now: Arc::clone(&now), marks: Arc::clone(&marks) };
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 16));
    bench.cache.evict(1);
    now.store(8, Relaxed);
    bench.cache.evict(2);
    assert_eq!(*marks.lock().expect("no panic"), [7, 8]);
}

/// With one that drops what it is given, a cache does what it does without.
// Holds: RE3.
#[test]
fn it_changes_no_choice() {
    let (seen, sink) = noting();
    let [with, without] = [bench(PrefixCache::builder(4, 64).eviction_sink(sink)), Bench::new(4, 64)];
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    for now in 1..3_000 {
        let (key, len) = (draw(24) as u32, 4 * (1 + draw(8) as usize));
        let tokens = [sequence(100 + key % 3, 8), sequence(key, len)].concat();
        for bench in [&with, &without] {
            bench.serve_at(now, &tokens);
        }
        let [of_with, of_without] = [&with, &without].map(|bench| {
            let stats = bench.cache.stats();
            (stats.free_blocks, stats.evicted_blocks, (0..24).map(|key| bench.peek(&sequence(key, 4))).sum::<usize>())
        });
        assert_eq!(of_with, of_without, "{now}");
    }
    let evicted: usize = taken(&seen).iter().map(|(tokens, start, ..)| (tokens.len() - start) / 4).sum();
    assert_eq!(evicted as u64, with.stats().evicted_blocks);
    assert_eq!(with.accounts(), without.accounts());
}

/// Threads that reserve, insert and wait, beside one that returns what the sink keeps.
// Holds: RE5.
#[test]
fn threads_and_a_sink_that_keeps_for_a_while_lose_nothing() {
    let (kept, passed_by, sink) = keeping();
    let cache = PrefixCache::builder(4, 64).eviction_sink(sink).build().expect("sound");
    let returning = thread::spawn(move || {
        let (mut held, mut blocks) = (VecDeque::new(), 0);
        loop {
            match kept.recv_timeout(Duration::from_millis(1)) {
                Ok(batch) => {
                    blocks += batch.pieces.iter().map(|piece| piece.blocks.len()).sum::<usize>();
                    held.push_back(batch);
                    drop(if held.len() > 2 { held.pop_front() } else { None });
                }
                // The threads may wait for what is held.
                Err(RecvTimeoutError::Timeout) => held.clear(),
                Err(RecvTimeoutError::Disconnected) => return blocks,
            }
        }
    });
    let work = |thread: u32| {
        let (session, space) = (cache.session(), cache.default_namespace());
        for round in 0..2_000_u32 {
            let tokens = sequence(thread * 10_000 + round % 40, 4 * (1 + round as usize % 6));
            let hit = session.match_prefix(&space, &tokens);
            let missing = tokens.len() / 4 - hit.blocks().len();
            let request = BlockRequest::new(missing).until(Instant::now() + LONG);
            let blocks = if round % 3 == 0 { session.reserve(request) } else { session.reserve(missing) };
            let Ok(blocks) = blocks else { continue };
            drop(session.insert(hit.lease(), &tokens, blocks));
        }
    };
    thread::scope(|scope| (0..3).for_each(|thread| _ = scope.spawn(move || work(thread))));
    cache.settle();
    cache.settings().remove_eviction_sink();
    let offered = returning.join().expect("no panic");
    cache.settle();
    let stats = cache.stats();
    assert_eq!(stats.evicted_blocks as usize, offered + passed_by.load(Relaxed));
    assert_eq!((stats.reserved_blocks, stats.waiting_requests, cache.validate()), (0, 0, Ok(())));
}

/// Gives blocks back a little later, from another thread, and looks that nobody has written to them
/// until then.
// Holds: RE6.
#[test]
fn nobody_writes_to_a_block_that_it_has() {
    const BLOCKS: usize = 32;
    let memory: Arc<[AtomicU64; BLOCKS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    // Of all tokens up to a block's last.
    let content =
        |tokens: &[Token]| tokens.iter().fold(1, |hash: u64, &token| (hash ^ u64::from(token)).wrapping_mul(31));
    let check = {
        let memory = Arc::clone(&memory);
        move |batch: &EvictedBatch| {
            for Evicted { tokens, start, blocks, .. } in &batch.pieces {
                for (&block, end) in blocks.blocks().iter().zip((start + 4..).step_by(4)) {
                    assert_eq!(memory[block as usize].load(Relaxed), content(&tokens[..end]), "block {block}");
                }
            }
        }
    };
    let (kept, _, sink) = keeping();
    let cache = PrefixCache::builder(4, BLOCKS).eviction_sink(sink).build().expect("sound");
    let returning = thread::spawn(move || {
        for batch in kept {
            check(&batch);
            thread::yield_now();
            check(&batch);
        }
    });
    let work = |thread: u32| {
        let (session, space) = (cache.session(), cache.default_namespace());
        for round in 0..1_500_u32 {
            let tokens = sequence((thread + round) % 29, 4 * (1 + round as usize % 5));
            let deadline = Instant::now() + LONG;
            let start = session.acquire_until(&space, &tokens, 0, deadline).expect("nobody keeps them");
            let (hit, blocks) = (start.hit, start.blocks);
            for (&block, end) in hit.blocks().iter().chain(blocks.blocks()).zip((4..).step_by(4)) {
                let word = &memory[block as usize];
                if end > hit.len_tokens() {
                    word.store(content(&tokens[..end]), Relaxed);
                }
                assert_eq!(word.load(Relaxed), content(&tokens[..end]), "block {block}");
            }
            drop(session.insert(hit.lease(), &tokens, blocks));
        }
    };
    thread::scope(|scope| (0..3).for_each(|thread| _ = scope.spawn(move || work(thread))));
    cache.settings().remove_eviction_sink();
    returning.join().expect("no panic");
    cache.settle();
    assert_eq!((cache.stats().reserved_blocks, cache.validate()), (0, Ok(())));
}
