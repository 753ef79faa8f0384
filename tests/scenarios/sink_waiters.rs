//! Requests that wait beside an eviction sink: they count on what it keeps, and are woken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
#[cfg(feature = "async")]
use std::sync::{
    Mutex,
    mpsc::{Sender, channel},
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(feature = "async")]
use radixkv::EvictionSink;
use radixkv::{BlockRequest, EvictedBatch, PrefixCache, ReserveError};

#[cfg(feature = "async")]
use crate::eviction_sink::Keeping;
use crate::eviction_sink::{LONG, bench, cache_again, keeping};
use crate::{Bench, sequence};

/// A thread that waits for two blocks.
fn waiter_for_two(bench: &Bench) -> JoinHandle<Result<usize, ReserveError>> {
    let session = bench.cache.session();
    thread::spawn(move || {
        let request = BlockRequest::new(2).until(Instant::now() + LONG);
        session.reserve(request).map(|blocks| blocks.len())
    })
}

fn wait_until_one_waits(bench: &Bench) {
    while bench.cache.stats().waiting_requests == 0 {
        thread::yield_now();
    }
}

// Holds: RE4.
#[test]
fn who_waits_counts_on_what_it_keeps_and_is_woken_by_its_return() {
    let (kept, passed_by, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    assert_eq!(bench.cache.evict(2), 2);
    let held = kept.recv().expect("the first run");
    let lease = bench.matched(&sequence(2, 8));
    let waiter = waiter_for_two(&bench);
    wait_until_one_waits(&bench);
    // It is woken, and leaves this run where it is.
    drop(lease);
    thread::sleep(Duration::from_millis(20));
    drop(held);
    assert_eq!(waiter.join().expect("no panic"), Ok(2));
    assert_eq!((passed_by.load(Relaxed), bench.peek(&sequence(2, 8))), (0, 8), "the other run stays");
}

/// The sink never gives back the blocks that it keeps. After the sink is removed, the request evicts
/// the other run.
// Holds: RE4.
#[test]
fn who_waits_for_what_it_keeps_evicts_others_once_it_is_removed() {
    let (kept, passed_by, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    let waiter = waiter_for_two(&bench);
    let held = kept.recv().expect("the first run");
    wait_until_one_waits(&bench);
    // It sleeps.
    thread::sleep(Duration::from_millis(50));
    bench.cache.settings().remove_eviction_sink();
    assert_eq!(waiter.join().expect("no panic"), Ok(2));
    assert_eq!((passed_by.load(Relaxed), held.pieces.len()), (0, 1));
}

/// A sink that keeps all blocks and panics when it is dropped.
#[cfg(feature = "async")]
struct BreakingDrop(Keeping);

#[cfg(feature = "async")]
impl EvictionSink for BreakingDrop {
    fn take(&self, batch: EvictedBatch) {
        self.0.take(batch);
    }
}

#[cfg(feature = "async")]
impl Drop for BreakingDrop {
    fn drop(&mut self) {
        panic!("planned");
    }
}

// Holds: RE5.
#[cfg(feature = "async")]
#[test]
fn one_that_breaks_when_it_is_removed_leaves_no_task_waiting() {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    let (kept, _, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(BreakingDrop(sink)));
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    let (woken, mut waiting) = (Arc::new(Woken::default()), bench.cache.reserve_async(2));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
    let held = kept.recv().expect("the first run");
    woken.0.store(false, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| bench.cache.settings().remove_eviction_sink())).is_err());
    assert!(woken.0.load(Relaxed), "it may evict the other run now");
    assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_ready());
    drop(held);
}

/// What it has offered comes back, so it evicts nothing past the sink before it joins the line.
#[test]
fn a_request_that_may_wait_evicts_nothing_past_it() {
    let (kept, passed_by, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(2, 8));
    let waiter = waiter_for_two(&bench);
    let batch = kept.recv().expect("the first run");
    while bench.cache.stats().waiting_requests == 0 && !waiter.is_finished() {
        thread::yield_now();
    }
    assert_eq!(batch.pieces.iter().map(|piece| piece.blocks.len()).sum::<usize>(), 2);
    drop(batch);
    assert_eq!(waiter.join().expect("no panic"), Ok(2));
    assert_eq!((passed_by.load(Relaxed), bench.peek(&sequence(2, 8))), (0, 8), "the other run stays");
}

/// The only blocks are those that it evicts itself, which another thread returns.
#[test]
fn a_waiter_is_served_what_it_has_evicted_itself() {
    let (kept, _, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 2).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    let returning = thread::spawn(move || kept.into_iter().take(1).for_each(drop));
    let request = BlockRequest::new(2).until(Instant::now() + LONG);
    assert_eq!(bench.session.reserve(request).map(|blocks| blocks.len()), Ok(2));
    returning.join().expect("no panic");
}

#[cfg(feature = "async")]
#[test]
fn a_task_is_served_what_it_keeps() {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    let (kept, _, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 2).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    let mut waiting = bench.cache.reserve_async(2);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
    drop(kept.recv().expect("both blocks"));
    let Poll::Ready(Ok(blocks)) = Pin::new(&mut waiting).poll(&mut context) else { panic!("they are free") };
    assert_eq!(blocks.len(), 2);
}

/// The first in the list evicts, and breaks; the one behind it is served.
// Holds: RE5.
#[test]
fn a_waiter_that_it_breaks_leaves_the_list() {
    let breaks = Arc::new(AtomicBool::new(true));
    let sink = move |_: EvictedBatch| assert!(!breaks.swap(false, Relaxed), "planned");
    let bench = bench(PrefixCache::builder(4, 4).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 16));
    let lease = bench.matched(&sequence(1, 16));
    let wait = || {
        let session = bench.cache.session();
        let request = || BlockRequest::new(2).until(Instant::now() + LONG);
        thread::spawn(move || catch_unwind(AssertUnwindSafe(|| session.reserve(request()).map(|blocks| blocks.len()))))
    };
    let waiters = [wait(), wait()];
    while bench.cache.stats().waiting_requests < 2 {
        thread::yield_now();
    }
    drop(lease);
    let served = waiters.map(|waiter| waiter.join().expect("it caught the panic").ok());
    assert!(served == [None, Some(Ok(2))] || served == [Some(Ok(2)), None], "{served:?}");
    assert_eq!((bench.cache.stats().waiting_requests, bench.accounts()), (0, [2, 0, 2, 0]));
}

// Holds: RE4.
#[test]
fn it_is_told_that_one_that_waits_needs_the_blocks() {
    let (kept, _, sink) = keeping();
    let bench = bench(PrefixCache::builder(4, 2).eviction_sink(sink));
    bench.serve_at(1, &sequence(1, 8));
    let lease = bench.matched(&sequence(1, 8));
    let waiter = waiter_for_two(&bench);
    wait_until_one_waits(&bench);
    drop(lease);
    let batch = kept.recv().expect("both blocks");
    assert!(batch.is_needed);
    drop(batch);
    assert_eq!(waiter.join().expect("no panic"), Ok(2));
}

/// The sink waits for a thread that copies, and the task's executor parks between two polls: both
/// by the same thread's token.
// Holds: RE4.
#[cfg(feature = "async")]
#[test]
fn a_sink_that_parks_takes_no_wake_up_from_a_task() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Barrier;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unparks(thread::Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let (to_copy, copies) = channel::<(EvictedBatch, Sender<()>)>();
    thread::spawn(move || {
        for (batch, done) in copies {
            drop(batch);
            // The sink's thread has been woken for that, and parks again.
            thread::sleep(Duration::from_millis(50));
            done.send(()).expect("the sink waits");
        }
    });
    let to_copy = Mutex::new(to_copy);
    let bench = bench(PrefixCache::builder(4, 2).eviction_sink(move |batch: EvictedBatch| {
        let (done, is_done) = channel();
        to_copy.lock().expect("no panic").send((batch, done)).expect("it runs");
        is_done.recv().expect("it was copied");
    }));
    bench.serve_at(1, &sequence(1, 8));
    let lease = bench.matched(&sequence(1, 8));
    let (cache, joined) = (bench.cache.clone(), Arc::new(Barrier::new(2)));
    let (served, is_served) = channel();
    thread::spawn({
        let joined = Arc::clone(&joined);
        move || {
            let mut waiting = pin!(cache.reserve_async(2));
            let waker = Waker::from(Arc::new(Unparks(thread::current())));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            joined.wait();
            loop {
                match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(blocks) => return served.send(blocks.map(|blocks| blocks.len())).expect("it waits"),
                    Poll::Pending => thread::park(),
                }
            }
        }
    });
    joined.wait();
    drop(lease);
    assert_eq!(is_served.recv_timeout(LONG), Ok(Ok(2)));
}

/// Every look of the request evicts blocks, and the sink wakes it by caching them again; a large
/// request needs several turns for a look.
// Holds: WA4.
#[test]
fn one_that_caches_them_again_keeps_no_waiter_past_its_deadline() {
    for blocks in [4, 1_200] {
        let bench = bench(PrefixCache::builder(4, blocks));
        (0..blocks as u32).for_each(|key| bench.serve_at(1, &sequence(key, 4)));
        cache_again(&bench);
        let soon = || Instant::now() + Duration::from_millis(20);
        let refused = bench.session.reserve(BlockRequest::new(blocks).until(soon()));
        assert!(matches!(refused, Err(ReserveError::TimedOut { .. })), "{refused:?}");
        let tokens = sequence(u32::MAX, 4 * blocks);
        let refused = bench.session.acquire_until(&bench.space, &tokens, 0, soon());
        assert!(matches!(refused, Err(ReserveError::TimedOut { .. })), "{:?}", refused.err());
        assert_eq!(bench.cache.stats().waiting_requests, 0);
        bench.cache.settings().remove_eviction_sink();
    }
}
