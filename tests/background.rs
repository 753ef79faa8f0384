//! The background evictor: what wakes it, the watermarks that it maintains, and its behaviour in a
//! forked child process.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use radixkv::{
    BlockRequest, Clock, EvictedBatch, Eviction, Lease, PrefixCache, Quota, ReserveError, SettingError, Watermarks,
};

const BLOCK: usize = 4;
const MARKS: Watermarks = Watermarks::new(8, 16);

/// What takes longer does not come.
const LONG: Duration = Duration::from_secs(60);

fn tokens(key: u32) -> [u32; BLOCK] {
    [key, 1, 2, 3]
}

/// Fills the cache with sequences of one block, and leases all of them. With no namespace named
/// nothing is reserved there.
fn fill(cache: &PrefixCache) -> Vec<Lease> {
    let (session, space) = (cache.session(), cache.default_namespace());
    let one = |key: u32| {
        let cold = session.match_prefix(&space, &tokens(key));
        let block = session.reserve(1).or_else(|refused| match refused {
            ReserveError::External => {
                Ok(cache.external().expect("an external pool").adopt(&[key]).expect("the engine's"))
            }
            other => Err(other),
        });
        session.insert(cold.lease(), &tokens(key), block.expect("room")).expect("fitting").lease
    };
    (0..cache.capacity_blocks() as u32).map(one).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn free(cache: &PrefixCache) -> usize {
    cache.stats().free_blocks
}

/// No thread allocates any more: the only events are leases that end.
// Holds: BE2.
#[test]
fn leases_that_end_call_it_when_blocks_are_short() {
    for in_two_steps in [false, true] {
        let builder = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS));
        let cache = builder.build().expect("sound");
        let mut leases = fill(&cache);
        // It has looked, and found nothing to evict.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(free(&cache), 0);
        if in_two_steps {
            // Too few for the low watermark: it goes on waiting.
            leases.truncate(60);
            wait_until("four unleased blocks stay", || free(&cache) == 4);
        }
        leases.clear();
        wait_until("free blocks stay below the low watermark", || free(&cache) >= MARKS.low);
        assert_eq!(cache.validate(), Ok(()));
    }
}

/// The sink panics with the first batch, when most is still to be evicted. Nobody calls the thread
/// after that: reading the number of free blocks does not.
// Holds: BE1, BE6.
#[test]
fn it_finishes_its_work_after_a_sink_has_panicked() {
    let is_first = AtomicBool::new(true);
    let sink = move |_: EvictedBatch| assert!(!is_first.swap(false, SeqCst), "planned");
    let builder = PrefixCache::builder(BLOCK, 400).eviction(Eviction::Background(Watermarks::new(0, 0)));
    let cache = builder.eviction_sink(sink).build().expect("sound");
    drop(fill(&cache));
    cache.settle();
    cache.settings().set_watermarks(Watermarks::new(300, 300)).expect("valid");
    wait_until("it has stopped halfway", || cache.free_blocks() >= 300);
}

/// The marks fall when it has evicted one slice of many.
// Holds: QU11.
#[test]
fn new_watermarks_end_an_eviction_that_has_begun() {
    let (is_first, meeting) = (AtomicBool::new(true), Arc::new(Barrier::new(2)));
    let sink = {
        let meeting = Arc::clone(&meeting);
        move |_: EvictedBatch| {
            if is_first.swap(false, SeqCst) {
                meeting.wait();
                meeting.wait();
            }
        }
    };
    let builder = PrefixCache::builder(BLOCK, 1_000).eviction(Eviction::Background(Watermarks::new(0, 0)));
    let cache = builder.eviction_sink(sink).build().expect("sound");
    drop(fill(&cache));
    cache.settle();
    cache.settings().set_watermarks(Watermarks::new(1_000, 1_000)).expect("valid");
    meeting.wait();
    cache.settings().set_watermarks(Watermarks::new(0, 0)).expect("valid");
    meeting.wait();
    std::thread::sleep(Duration::from_millis(50));
    cache.settle();
    let evicted = cache.stats().evicted_blocks;
    assert!(evicted <= 500, "{evicted}: it goes by the old marks");
}

/// Up to the high watermark and no further.
// Holds: BE1.
#[test]
fn it_makes_room_between_the_watermarks() {
    let cache = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS)).build().expect("sound");
    let session = cache.session();
    let some: Vec<u32> = (0..(64 - MARKS.low + 1) as u32 * 4).collect();
    let cold = session.match_prefix(&cache.default_namespace(), &some);
    let blocks = session.reserve(some.len() / BLOCK).expect("free");
    drop(session.insert(cold.lease(), &some, blocks).expect("fitting"));
    wait_until("one block below the low watermark is free", || free(&cache) >= MARKS.high);
    cache.settle();
    std::thread::sleep(Duration::from_millis(20));
    let stats = cache.stats();
    assert_eq!((stats.free_blocks, stats.evicted_blocks), (MARKS.high, (MARKS.high - MARKS.low + 1) as u64));
}

/// The thread ends with the cache, wherever its last handle goes.
// Holds: LE6.
#[test]
fn a_cache_with_a_thread_goes_with_any_handle() {
    let cache = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS)).build().expect("sound");
    let leases = fill(&cache);
    drop(cache);
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(leases);
        done.send(()).expect("the test waits");
    });
    over.recv_timeout(LONG).expect("the last lease waits for the thread and ends it");
}

// Holds: BE2.
#[test]
fn dropped_reservations_and_cleared_namespaces_end_the_shortage() {
    let builder = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS));
    let cache = builder.build().expect("sound");
    let reserved = cache.session().reserve(60).expect("free");
    drop(reserved);
    wait_until("given back", || free(&cache) == 64);
    let leases = fill(&cache);
    cache.clear();
    drop(leases);
    wait_until("what was cleared while it was leased comes back", || free(&cache) == 64);
}

/// Evicted ids are kept in stock although the engine asks for none.
// Holds: BE4.
#[test]
fn leases_that_end_fill_the_stock_of_an_external_pool() {
    let builder = PrefixCache::builder(BLOCK, 64).external().eviction(Eviction::Background(MARKS));
    let cache = builder.build().expect("sound");
    drop(fill(&cache));
    // Looked at before it is asked for: asking calls the thread too.
    wait_until("the stock stays empty", || free(&cache) >= MARKS.low);
    let mut taken = Vec::new();
    cache.external().expect("an external pool").take_evicted(&mut taken);
    assert!(taken.len() >= MARKS.low, "{taken:?}");
}

/// On a logical clock time passes in one verb alone.
// Holds: BE3.
#[test]
fn the_end_of_a_retention_calls_it_on_a_logical_clock() {
    let builder = PrefixCache::builder(BLOCK, 64).clock(Clock::Logical).eviction(Eviction::Background(MARKS));
    let cache = builder.build().expect("sound");
    let session = cache.session();
    for lease in fill(&cache) {
        session.retain(&lease, Duration::from_nanos(10)).expect("cached");
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(free(&cache), 0);
    cache.set_time(10);
    wait_until("what is retained no longer stays", || free(&cache) >= MARKS.low);
}

/// Without `settle`, and with nothing cached.
// Holds: NS8.
#[test]
fn namespaces_without_a_handle_are_forgotten() {
    let cache = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS)).build().expect("sound");
    let few = cache.stats().index_bytes;
    for i in 0..20_000 {
        drop(cache.namespace(&[&format!("tenant {i}")]));
    }
    wait_until("empty namespaces pile up", || cache.stats().index_bytes < few + (1 << 16));
}

/// The same where no thread evicts: sessions that work for others forget them too.
// Holds: NS8.
#[test]
fn namespaces_without_a_handle_are_forgotten_by_sessions() {
    let cache = PrefixCache::builder(BLOCK, 64).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let few = cache.stats().index_bytes;
    for i in 0..20_000 {
        drop(cache.namespace(&[&format!("tenant {i}")]));
        (0..4).for_each(|_| drop(session.match_prefix(&space, &tokens(i))));
    }
    assert!(cache.stats().index_bytes < few + (1 << 18), "{} of {few}", cache.stats().index_bytes);
}

/// And where no session lives long enough to work for others, nor any settles: who makes new ones
/// does.
// Holds: NS8.
#[test]
fn namespaces_without_a_handle_are_forgotten_by_those_that_make_others() {
    let cache = PrefixCache::builder(BLOCK, 64).build().expect("sound");
    let few = cache.stats().index_bytes;
    for i in 0..20_000 {
        let session = cache.session();
        drop(session.match_prefix(&cache.namespace(&[&format!("tenant {i:05}")]), &tokens(i)));
    }
    assert!(cache.stats().index_bytes < few + (1 << 18), "{} of {few}", cache.stats().index_bytes);
}

/// Many come behind the place that a pass over them has come to.
#[test]
fn namespaces_that_come_behind_a_pass_are_forgotten_by_the_next_one() {
    let cache = PrefixCache::builder(BLOCK, 64).build().expect("sound");
    let few = cache.stats().index_bytes;
    let make = |letter: char, count: usize| {
        (0..count).for_each(|i| drop(cache.namespace(&[&format!("{letter}{i}")])));
    };
    make('m', 1_000);
    make('a', 10_000);
    while cache.run_once() {}
    // Forgets nothing, and frees what was forgotten.
    cache.clear();
    assert!(cache.stats().index_bytes < few + (1 << 17), "{} of {few}", cache.stats().index_bytes);
}

/// More is leased than the thread has heard of.
// Holds: QU4.
#[test]
fn a_limit_on_what_is_pinned_counts_leases_that_were_not_taken_in_yet() {
    let marks = Watermarks::new(0, 0);
    let cache = PrefixCache::builder(BLOCK, 4_000).eviction(Eviction::Background(marks)).build().expect("sound");
    let (tenant, others) = (cache.namespace(&["tenant"]), cache.default_namespace());
    let put = |space, keys: std::ops::Range<u32>| {
        for key in keys {
            let session = cache.session();
            let cold = session.match_prefix(space, &tokens(key));
            drop(session.insert(cold.lease(), &tokens(key), session.reserve(1).expect("room")).expect("fitting"));
        }
    };
    put(&tenant, 0..101);
    put(&others, 0..1_500);
    tenant.set_quota(Quota::default().pinned_blocks(100));
    cache.settle();
    // A session for each: none does enough to call the thread.
    let lease = |space, key| cache.session().match_prefix(space, &tokens(key)).into_lease();
    let mut leases: Vec<_> = (0..101).map(|key| lease(&tenant, key)).collect();
    leases.extend((0..1_500).map(|key| lease(&others, key)));
    let refused = cache.session().reserve(BlockRequest::new(50).paid_by(&tenant)).expect_err("101 are leased");
    assert_eq!(refused, ReserveError::OverQuota { requested: 50, pinned: 101, limit: 100 });
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod forked {
    use super::*;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn alarm(seconds: u32) -> u32;
        fn _exit(status: i32) -> !;
    }

    /// A child has the cache and not its thread.
    // Holds: BE7.
    #[test]
    fn a_child_process_may_drop_the_cache() {
        let cache = PrefixCache::builder(BLOCK, 64).eviction(Eviction::Background(MARKS)).build().expect("sound");
        // So that it sleeps when the process is forked.
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: the child drops the cache and ends; it takes no lock that another thread of ours
        // could hold, and the allocator is in order after a fork.
        let child = unsafe { fork() };
        if child == 0 {
            // SAFETY: ends the child where it stands still.
            unsafe { alarm(60) };
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(cache)));
            // SAFETY: the child's end.
            unsafe { _exit(i32::from(dropped.is_err())) };
        }
        let mut status = -1;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child panicked or stood still");
        drop(fill(&cache));
        assert_eq!(cache.validate(), Ok(()));
    }
}

/// More blocks are kept free, then fewer; a time to idle that is shorter takes hold without another
/// verb.
// Holds: QU11.
#[test]
fn settings_change_while_the_cache_runs() {
    let watermarks = Watermarks::new(2, 4);
    let builder = PrefixCache::builder(1, 64).eviction(Eviction::Background(watermarks));
    let cache = builder.time_to_idle(Duration::from_secs(3_600)).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    for token in 0..60 {
        let start = session.acquire(&space, &[token], 0).expect("room");
        drop(session.insert(start.hit.lease(), &[token], start.blocks).expect("fits"));
    }
    let until = |is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "{:?}", cache.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(cache.settings().watermarks(), Some(watermarks));
    cache.settings().set_watermarks(Watermarks::new(20, 30)).expect("valid");
    until(&|| cache.stats().free_blocks == 30);
    let refused = Err(SettingError::Watermarks { low: 9, high: 65, capacity: 64 });
    assert_eq!(cache.settings().set_watermarks(Watermarks::new(9, 65)), refused);
    assert_eq!(cache.settings().watermarks(), Some(Watermarks::new(20, 30)));
    assert_eq!(cache.stats().aged_blocks, 0);
    cache.settings().set_time_to_idle(Some(Duration::from_millis(1)));
    until(&|| cache.stats().free_blocks == 64);
    // The turn that has freed the blocks publishes its counts at its end.
    cache.settle();
    assert_eq!(cache.stats().aged_blocks, 34);
    let inline = PrefixCache::builder(1, 64).build().expect("valid");
    assert_eq!((inline.settings().watermarks(), inline.settings().time_to_idle()), (None, None));
    assert_eq!(inline.settings().set_watermarks(watermarks), Err(SettingError::NotBackground));
    inline.settings().set_time_to_idle(Some(Duration::ZERO));
    assert_eq!(inline.settings().time_to_idle(), Some(Duration::ZERO));
}
