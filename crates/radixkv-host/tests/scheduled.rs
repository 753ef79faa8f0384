//! A scheduler that serves from tiers: what the host has is not computed again, and every byte is
//! the right one.

mod common;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use common::{Engine, Fault, Faulty, PATIENCE, SIZE, files, folder, host, prompt};
use radixkv::{Eviction, Namespace, PrefixCache, PrefixMatch, Reservation, Token, Watermarks};
use radixkv_host::{RemoteWait, TierMode};
use radixkv_scheduler::{Filled, Finish, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, WaitingQueue};

/// Output of each request.
const OUTPUT: usize = 3;
/// Fewer free blocks than these call the background thread.
const LOW: usize = 4;

struct Served {
    queue: WaitingQueue,
    scheduler: Scheduler,
    /// Tokens that were computed.
    computed: usize,
}

impl Served {
    fn new(engine: &Engine, config: SchedulerConfig) -> Self {
        let queue = WaitingQueue::new(engine.tiers.cache(), QueueConfig::default());
        let session = engine.tiers.session();
        let scheduler = Scheduler::new(&queue, config).expect("sound").above(move |space, tokens, hit, blocks| {
            let start = session.fill(space, tokens, hit, blocks);
            Filled { lease: start.lease, blocks: start.blocks }
        });
        Self { queue, scheduler, computed: 0 }
    }

    fn submit(&self, engine: &Engine, tokens: Vec<Token>) -> SequenceId {
        let request = Request::new(engine.space(), tokens, OUTPUT);
        self.queue.submit(request).expect("it can be served")
    }

    /// Serves all that was submitted; how many tokens were cached for each request.
    fn run(&mut self, engine: &Engine) -> HashMap<SequenceId, usize> {
        let mut cached = HashMap::new();
        while self.queue.unfinished_requests() > 0 {
            let step = self.scheduler.schedule();
            let space = engine.space();
            for scheduled in step.batch().sequences() {
                let tokens = step.sequence(scheduled.id).expect("it is served here").tokens();
                let block = |at: usize| scheduled.block_table[at / SIZE];
                (0..scheduled.start).for_each(|at| engine.check(&space, tokens, block(at), at));
                (scheduled.start..scheduled.context_len()).for_each(|at| engine.compute(&space, tokens, block(at), at));
                self.computed += scheduled.tokens.len();
            }
            let sampled: Vec<Token> = step.batch().sampling().map(|_| 7).collect();
            for id in step.complete(&sampled).expect("a token each") {
                let computed = self.scheduler.sequence(id).expect("it is served here").computed_len();
                let finished = self.scheduler.finish(id, Finish::keeping(computed)).expect("it is full");
                cached.insert(id, finished.cached_len);
            }
        }
        cached
    }
}

// Holds: SC17.
#[test]
fn what_the_host_has_is_not_computed_again() {
    for mode in [TierMode::Shared, TierMode::Exclusive] {
        let engine = Engine::new(10, &host(64).build().expect("a tier"), mode);
        let mut served = Served::new(&engine, SchedulerConfig::default().max_running(2).max_chunk_tokens(6));
        for number in 1..=6 {
            served.submit(&engine, prompt(number, 4));
        }
        assert!(served.run(&engine).values().all(|cached| *cached == 0));
        let computed = served.computed;
        let again: Vec<_> = (1..=6).map(|number| served.submit(&engine, prompt(number, 4))).collect();
        let cached = served.run(&engine);
        // All but the block of the last token of the prompt, which is computed for its logits.
        assert!(again.iter().all(|id| cached[id] >= 3 * SIZE), "{mode:?}: {cached:?}");
        assert!(served.computed - computed <= 6 * (SIZE + OUTPUT));
        assert_eq!(engine.tiers.cache().validate(), Ok(()));
    }
}

/// Waits until the background thread has enough free blocks, and none on its way to the host: a
/// request finds such a block nowhere.
fn rest(cache: &PrefixCache) {
    let began = Instant::now();
    loop {
        cache.settle();
        let stats = cache.stats();
        if stats.free_blocks >= LOW && stats.reserved_blocks == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{stats:?}");
        thread::yield_now();
    }
}

// Holds: SC17.
#[test]
fn the_background_thread_evicts_and_the_scheduler_finds_it_below() {
    let cache = PrefixCache::builder(SIZE, 12).eviction(Eviction::Background(Watermarks::new(LOW, 6)));
    let engine = Engine::over(
        cache.build().expect("a cache"),
        &host(64).build().expect("a tier"),
        TierMode::Shared,
        RemoteWait::All,
    );
    let mut served = Served::new(&engine, SchedulerConfig::default().max_running(1));
    for _ in 0..3 {
        for number in 1..=5 {
            served.submit(&engine, prompt(number, 4));
            served.run(&engine);
            rest(engine.tiers.cache());
        }
    }
    // Of three rounds two were cached.
    let all = 5 * 4 * SIZE;
    assert!(served.computed < all + 2 * 5 * (SIZE + OUTPUT) + 5 * OUTPUT, "{}", served.computed);
}

// Holds: SC17.
#[test]
fn remote_tiers_are_asked_through_the_host() {
    let folder = folder();
    let remote = Faulty::new(files(folder.path(), 64));
    let host = host(16).remote(Arc::clone(&remote)).build().expect("a tier");
    let engine = Engine::new(8, &host, TierMode::Shared);
    let mut served = Served::new(&engine, SchedulerConfig::default());
    (1..=8).for_each(|number| _ = served.submit(&engine, prompt(number, 4)));
    served.run(&engine);
    assert!(host.settle_remote(PATIENCE));
    let again = served.submit(&engine, prompt(1, 4));
    assert!(served.run(&engine)[&again] >= 3 * SIZE);
    // Nothing is found, and nothing is wrong.
    remote.set(Fault::Fails);
    let again = served.submit(&engine, prompt(2, 4));
    served.run(&engine).get(&again).expect("it is served");
}

/// The request waits on, and what it was given is free.
// Holds: SC17.
#[test]
fn a_tier_that_breaks_leaves_the_request_waiting() {
    let engine = Engine::new(8, &host(16).build().expect("a tier"), TierMode::Shared);
    let queue = WaitingQueue::new(engine.tiers.cache(), QueueConfig::default());
    let breaks = Arc::new(AtomicBool::new(true));
    let tier = {
        let breaks = Arc::clone(&breaks);
        move |_: &Namespace, _: &[Token], hit: PrefixMatch, blocks| {
            assert!(!breaks.load(Relaxed), "planned");
            Filled { lease: hit.into_lease(), blocks }
        }
    };
    let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default()).expect("sound").above(tier);
    queue.submit(Request::new(engine.space(), prompt(1, 3), OUTPUT)).expect("it can be served");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(scheduler.schedule()))).is_err());
    assert_eq!((engine.tiers.cache().stats().free_blocks, queue.len()), (8, 1));
    breaks.store(false, Relaxed);
    assert_eq!(scheduler.schedule().batch().tokens().len(), 3 * SIZE);
}

/// Of a match that does not belong to the sequence nothing is inserted: its blocks would hold what
/// others match.
#[test]
fn nothing_is_filled_after_a_match_of_something_else() {
    let engine = Engine::new(16, &host(64).build().expect("a tier"), TierMode::Shared);
    let (session, cache) = (engine.tiers.session(), engine.tiers.cache());
    let (space, other) = (engine.space(), cache.namespace(&["other"]));
    engine.serve(&prompt(1, 4));
    engine.evict_all();
    engine.serve(&prompt(2, 4));
    let device = session.device();
    for (named, tokens) in [(&space, prompt(1, 4)), (&other, prompt(2, 4))] {
        let hit = device.match_prefix(&space, &prompt(2, 4));
        let start = session.fill(named, &tokens, hit, device.reserve(4).expect("room"));
        assert_eq!((start.host_tokens, start.blocks.len()), (0, 4));
    }
    // What a clear has taken meanwhile.
    let hit = device.match_prefix(&space, &prompt(2, 4)[..8]);
    space.clear();
    let start = session.fill(&space, &prompt(2, 4), hit, device.reserve(2).expect("room"));
    assert_eq!((start.host_tokens, start.blocks.len()), (0, 2));
    drop(start);
    let two = device.match_prefix(&space, &prompt(2, 4));
    assert_eq!(two.len_tokens(), 0);
    // What a clear has taken, and another request has computed again.
    engine.serve(&prompt(3, 4));
    let hit = device.match_prefix(&space, &prompt(3, 4)[..8]);
    space.clear();
    engine.serve(&prompt(3, 4));
    let start = session.fill(&space, &prompt(3, 4), hit, device.reserve(2).expect("room"));
    assert_eq!((start.device_tokens, start.host_tokens, start.blocks.len()), (2 * SIZE, 0, 2));
    drop(start);
    // Too few blocks for what the host has.
    let start = session.fill(
        &space,
        &prompt(1, 4),
        device.match_prefix(&space, &prompt(1, 4)),
        device.reserve(2).expect("room"),
    );
    assert_eq!((start.host_tokens, start.lease.len_tokens(), start.blocks.len()), (2 * SIZE, 2 * SIZE, 0));
    (0..2 * SIZE).for_each(|at| engine.check(&space, &prompt(1, 4), start.cached[at / SIZE], at));
}

/// A scheduler over what keeps all blocks, gives foreign ones, or none.
#[test]
fn what_is_given_back_is_checked() {
    let engine = Engine::new(8, &host(16).build().expect("a tier"), TierMode::Shared);
    let cache = engine.tiers.cache().clone();
    let foreign = PrefixCache::builder(SIZE, 8).build().expect("a cache");
    let queue = WaitingQueue::new(&cache, QueueConfig::default());
    let gives = Arc::new(AtomicBool::new(true));
    let fill = {
        let (gives, foreign) = (Arc::clone(&gives), foreign.clone());
        move |_: &Namespace, _: &[Token], hit: PrefixMatch, mut blocks: Reservation| {
            if gives.load(Relaxed) {
                blocks = foreign.session().reserve(blocks.len()).expect("room");
            } else {
                drop(blocks.split(blocks.len()));
            }
            Filled { lease: hit.into_lease(), blocks }
        }
    };
    let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default()).expect("sound").above(fill);
    queue.submit(Request::new(engine.space(), prompt(1, 3), OUTPUT)).expect("it can be served");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(scheduler.schedule()))).is_err());
    assert_eq!((cache.stats().free_blocks, foreign.stats().free_blocks, queue.len()), (8, 8, 1));
    gives.store(false, Relaxed);
    let step = scheduler.schedule();
    let table = step.batch().sequence(0).block_table.to_vec();
    assert_eq!((step.batch().tokens().len(), table.len()), (3 * SIZE, 3));
    drop(step);
    let session = engine.tiers.session();
    let hit = session.device().match_prefix(&engine.space(), &prompt(1, 3));
    let given = foreign.session().reserve(2).expect("room");
    let filled = || drop(session.fill(&engine.space(), &prompt(1, 3), hit, given));
    assert!(catch_unwind(AssertUnwindSafe(filled)).is_err());
}
