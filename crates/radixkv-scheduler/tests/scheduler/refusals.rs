//! Bad input is refused with a typed error and its numbers; nothing changes, and what was given
//! comes back.

use radixkv::{Keys, NamespaceName, PrefixCache};
use radixkv_scheduler::{
    ConfigError, Finish, FinishError, ForkError, Order, QueueConfig, Request, Scheduler, SchedulerConfig,
    SubmitErrorKind, WaitingQueue,
};

use crate::engine::{World, sequence};

// Holds: SC1.
#[test]
fn requests_that_ask_for_nothing_or_too_much_come_back() {
    let config = QueueConfig::default().max_blocks(6);
    let world = World::with(PrefixCache::builder(4, 8), config);
    let refused = |len, new_tokens, kind| {
        let request = Request::new(world.space.clone(), sequence(1, len), new_tokens);
        assert_eq!(world.queue.check(&request), Err(kind));
        let error = world.queue.submit(request).expect_err("to be refused");
        assert_eq!((error.kind, &error.request.tokens), (kind, &sequence(1, len)));
        error.to_string()
    };
    assert_eq!(refused(0, 1, SubmitErrorKind::EmptyPrompt), "the prompt is empty");
    assert_eq!(refused(1, 0, SubmitErrorKind::NoNewTokens), "0 new tokens requested: at least 1 is needed");
    let too_long = refused(33, 1, SubmitErrorKind::ExceedsPool { requested: 9, capacity: 8 });
    assert_eq!(too_long, "prompt and output need 9 blocks, the pool has 8");
    refused(10, 24, SubmitErrorKind::ExceedsPool { requested: 9, capacity: 8 });
    refused(1, usize::MAX, SubmitErrorKind::ExceedsPool { requested: usize::MAX.div_ceil(4), capacity: 8 });
    let too_wide = refused(20, 6, SubmitErrorKind::ExceedsSlot { requested: 7, max_blocks: 6 });
    assert_eq!(too_wide, "prompt and output need 7 blocks, a request may have 6");
    assert_eq!(world.rest(), 0);
    // The last token is sampled and never computed: it needs no slot.
    let fits = world.submit(&sequence(1, 20), 5);
    assert_eq!(world.finish_all(&mut world.scheduler(1, 32))[&fits].tokens.len(), 25);
    world.rest();
    let pairs = world.cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams));
    let error = world.queue.submit(Request::new(pairs, sequence(1, 9), 1)).expect_err("to be refused");
    assert_eq!((error.kind, error.request.tokens.len()), (SubmitErrorKind::BigramNamespace, 9));
}

/// The cache has no blocks of its own to serve a request with, however long that waits.
// Holds: SC1.
#[test]
fn a_cache_over_the_engines_pool_serves_no_request() {
    let world = World::with(PrefixCache::builder(4, 8).external(), QueueConfig::default());
    let error = world.queue.submit(Request::new(world.space.clone(), sequence(1, 4), 1)).expect_err("to be refused");
    assert_eq!((error.kind, error.request.tokens.len()), (SubmitErrorKind::ExternalPool, 4));
    assert!(world.queue.is_empty());
}

// Holds: SC1.
#[test]
#[should_panic(expected = "belongs to another cache")]
fn a_namespace_of_another_cache_is_the_callers_fault() {
    let (world, other) = (World::new(4, 8), World::new(4, 8));
    let _ = world.queue.submit(Request::new(other.space.clone(), sequence(1, 4), 1));
}

// Holds: SC2.
#[test]
fn a_scheduler_that_could_serve_no_request_is_not_made() {
    let world = World::new(4, 8);
    let refused = |max_running, max_batch_tokens, max_chunk_tokens| {
        let config = SchedulerConfig::default()
            .max_running(max_running)
            .max_batch_tokens(max_batch_tokens)
            .max_chunk_tokens(max_chunk_tokens);
        Scheduler::new(&world.queue, config).expect_err("to be refused")
    };
    assert_eq!(refused(0, 1, 1), ConfigError::NoSlots);
    assert_eq!(refused(1, 1, 0), ConfigError::EmptyChunk);
    assert_eq!(refused(5, 4, 1), ConfigError::BatchTooSmall { max_batch_tokens: 4, max_running: 5 });
    let many = refused(u32::MAX, usize::MAX, 1);
    assert_eq!(many, ConfigError::TooManySlots { max_running: u32::MAX, most: 65_536 });
    assert_eq!(many.to_string(), "4294967295 request slots requested, the cache can serve at most 65536");
}

// Holds: SC10.
#[test]
fn only_what_is_computed_is_kept() {
    let world = World::new(4, 32);
    let mut scheduler = world.scheduler(1, 8);
    let id = world.submit(&sequence(1, 20), 4);
    assert_eq!(scheduler.finish(id, Finish::keeping(0)), Err(FinishError::NotServed));
    world.step(&mut scheduler, &mut Vec::new());
    let refused = scheduler.finish(id, Finish::keeping(9)).expect_err("eight are computed");
    assert_eq!(refused, FinishError::NotComputed { committed: 9, computed: 8 });
    assert_eq!(world.finish_all(&mut scheduler)[&id].tokens.len(), 24);
    assert_eq!(scheduler.finish(id, Finish::keeping(0)), Err(FinishError::NotServed));
    world.rest();
}

// Holds: SC15.
#[test]
fn forks_are_made_all_or_none() {
    let world = World::new(4, 8);
    let mut scheduler = world.scheduler(4, 32);
    let id = world.submit(&sequence(1, 18), 4);
    assert_eq!(scheduler.fork(id, 1, 1), Err(ForkError::NotServed));
    world.step(&mut scheduler, &mut Vec::new());
    assert_eq!(scheduler.fork(id, 0, 1), Err(ForkError::BadLength { len: 0, tokens: 19 }));
    assert_eq!(scheduler.fork(id, 20, 1), Err(ForkError::BadLength { len: 20, tokens: 19 }));
    assert_eq!(scheduler.fork(id, 19, 4), Err(ForkError::NoSlots { requested: 4, free: 3 }));
    let _rest = world.cache.session().reserve(2).expect("five of eight are in use");
    assert!(matches!(scheduler.fork(id, 19, 2), Err(ForkError::NoBlocks(_))));
    assert_eq!((scheduler.free_slots(), world.queue.unfinished_requests()), (3, 1));
    assert_eq!(scheduler.fork(id, 19, 1).expect("one block is left").len(), 1);
    drop(_rest);
    assert_eq!(world.finish_all(&mut scheduler).len(), 2);
    world.rest();
}

// Holds: SC3.
#[test]
fn a_queue_may_be_shared() {
    fn is_shared<T: Send + Sync + Clone + 'static>() {}
    is_shared::<WaitingQueue>();
}

/// Every extreme of a configuration is refused with its numbers, or serves.
// Holds: SC2.
#[test]
fn extremes_of_a_configuration_are_refused_or_serve() {
    for max_running in [1, 64, 65_536, 65_537, u32::MAX] {
        for tokens in [(usize::MAX, usize::MAX), (usize::MAX, 1), (1 << 17, usize::MAX)] {
            for min_copied_tokens in [None, Some(0), Some(usize::MAX)] {
                for age_bound in [0, 1, u64::MAX] {
                    for order in [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority] {
                        let config = QueueConfig::default().order(order).age_bound(age_bound).max_blocks(usize::MAX);
                        let world = World::with(PrefixCache::builder(4, 8), config);
                        let (max_batch_tokens, max_chunk_tokens) = tokens;
                        let config = SchedulerConfig::default()
                            .max_running(max_running)
                            .max_batch_tokens(max_batch_tokens)
                            .max_chunk_tokens(max_chunk_tokens)
                            .min_copied_tokens(min_copied_tokens);
                        let Ok(mut scheduler) = Scheduler::new(&world.queue, config) else {
                            assert!(max_running > 65_536);
                            continue;
                        };
                        world.submit(&sequence(1, 9), 3);
                        world.submit(&sequence(1, 10), 3);
                        assert_eq!(world.finish_all(&mut scheduler).len(), 2);
                        world.rest();
                    }
                }
            }
        }
    }
}
