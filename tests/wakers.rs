//! Wakers are the caller's code: when the cache clones, wakes or drops them, they poll, panic, use
//! the cache, or hold leases. The cache must not block because of this, and nothing may be lost.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use radixkv::{Eviction, Lease, PrefixCache, Reservation, ReserveError, Reserving, Session, Watermarks};

const BLOCK: usize = 4;

/// A test that stands still for so long has found a deadlock.
const HANG: Duration = Duration::from_secs(60);

/// Runs `test` on a thread of its own, and fails where it does not come back.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(test));
        // If this is late, the receiver is gone.
        let _ = done.send(());
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(over.recv_timeout(HANG).is_ok(), "it stands still");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What a waker of these tests panics with; the hook says nothing of it.
const ON_PURPOSE: &str = "a waker's panic";

fn quietly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let payload = panic.payload();
            if payload.downcast_ref::<&str>() != Some(&ON_PURPOSE) && !payload.is::<Bomb>() {
                hook(panic);
            }
        }));
    });
}

/// A waker that does this when it is woken.
struct Does<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(does: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Does(does)))
}

/// A waker that does nothing and holds on to something.
struct Holds<T>(#[allow(dead_code)] T);

impl<T: Send + Sync + 'static> Wake for Holds<T> {
    fn wake(self: Arc<Self>) {}
}

fn tokens(key: u32, blocks: usize) -> Vec<u32> {
    (0..(blocks * BLOCK) as u32).map(|i| key << 16 | i).collect()
}

/// Caches a sequence of its own and leases it.
fn insert(cache: &PrefixCache, session: &Session, key: u32, blocks: usize) -> Lease {
    let (space, tokens) = (cache.default_namespace(), tokens(key, blocks));
    let cold = session.match_prefix(&space, &tokens);
    let reservation = session.reserve(blocks).expect("room");
    session.insert(cold.lease(), &tokens, reservation).expect("fitting").lease
}

fn cache(blocks: usize) -> PrefixCache {
    quietly();
    PrefixCache::builder(BLOCK, blocks).build().expect("sound")
}

fn poll(future: Pin<&mut Reserving>, waker: &Waker) -> Poll<Result<Reservation, ReserveError>> {
    future.poll(&mut Context::from_waker(waker))
}

/// Nothing is held: all blocks can be had.
fn check_all_there(cache: &PrefixCache, blocks: usize) {
    cache.settle();
    cache.evict(blocks);
    assert_eq!((cache.stats().free_blocks, cache.stats().waiting_requests), (blocks, 0), "{:?}", cache.stats());
    assert_eq!(cache.validate(), Ok(()));
}

/// Dropped in the poll that replaces it, the old waker releases what the waiters wait for.
// Holds: WA8.
#[test]
fn a_waker_that_is_replaced_may_hold_the_last_lease() {
    in_time(|| {
        let cache = cache(2);
        let lease = insert(&cache, &cache.session(), 1, 2);
        let mut waiting = Box::pin(cache.reserve_async(2));
        let holds = Waker::from(Arc::new(Holds(lease)));
        assert!(poll(waiting.as_mut(), &holds).is_pending());
        drop(holds);
        let woken = Arc::new(AtomicUsize::new(0));
        let counts = waker({
            let woken = Arc::clone(&woken);
            move || _ = woken.fetch_add(1, SeqCst)
        });
        // The lease goes in here: after it the look at the blocks finds them, or the new waker is
        // woken.
        let first = poll(waiting.as_mut(), &counts);
        let served = if first.is_ready() { first } else { poll(waiting.as_mut(), &counts) };
        assert!(matches!(served, Poll::Ready(Ok(blocks)) if blocks.len() == 2));
        check_all_there(&cache, 2);
    });
}

/// The same when the future goes, and with it the waker.
#[test]
fn a_waker_that_goes_with_its_future_may_hold_a_lease_that_another_waits_for() {
    in_time(|| {
        let cache = cache(2);
        let lease = insert(&cache, &cache.session(), 1, 2);
        let (mut first, mut second) = (Box::pin(cache.reserve_async(2)), Box::pin(cache.reserve_async(2)));
        assert!(poll(first.as_mut(), &Waker::from(Arc::new(Holds(lease)))).is_pending());
        assert!(poll(second.as_mut(), Waker::noop()).is_pending());
        drop(first);
        assert!(matches!(poll(second.as_mut(), Waker::noop()), Poll::Ready(Ok(blocks)) if blocks.len() == 2));
        drop(second);
        check_all_there(&cache, 2);
    });
}

type Shared = Arc<Mutex<Option<Pin<Box<Reserving>>>>>;

/// A waker that polls its future at once, on the thread that wakes it, as an executor of one thread
/// may do; and what it gets.
fn polls_inline(future: &Shared) -> (Waker, mpsc::Receiver<Reservation>) {
    let (future, (sender, served)) = (Arc::clone(future), mpsc::channel());
    let polls = waker(move || {
        let Some(mut waiting) = future.lock().expect("sound").take() else { return };
        match poll(waiting.as_mut(), Waker::noop()) {
            // If this future was given up, the receiver may be gone.
            Poll::Ready(blocks) => _ = sender.send(blocks.expect("they fit")),
            Poll::Pending => *future.lock().expect("sound") = Some(waiting),
        }
    });
    (polls, served)
}

/// A cache whose blocks are all retained for a moment, and a future that waits for them.
struct Retained<T> {
    cache: PrefixCache,
    waiting: Shared,
    moment: Duration,
    /// What was made with the future's waker.
    rest: T,
}

/// Builds a cache and makes a waker. If this thread is stopped until the moment is over, the future
/// may be woken before it is in its place: then it is given up, and a longer moment is tried.
fn waits_for_the_retained<T>(build: impl Fn() -> PrefixCache, make: impl Fn(&Shared) -> (Waker, T)) -> Retained<T> {
    let wait = |moment: Duration| {
        let cache = build();
        let (blocks, session) = (cache.capacity_blocks(), cache.session());
        let lease = insert(&cache, &session, 1, blocks);
        let began = Instant::now();
        session.retain(&lease, moment).expect("cached");
        drop(lease);
        let waiting = Arc::new(Mutex::new(Some(Box::pin(cache.reserve_async(blocks)))));
        let (waker, rest) = make(&waiting);
        let mut future = waiting.lock().expect("sound").take().expect("just made");
        let is_pending = poll(future.as_mut(), &waker).is_pending();
        *waiting.lock().expect("sound") = Some(future).filter(|_| is_pending);
        if began.elapsed() < moment {
            assert!(is_pending);
            return Some(Retained { cache, waiting, moment, rest });
        }
        let given_up = waiting.lock().expect("sound").take();
        drop(given_up);
        None
    };
    (0..).find_map(|doublings| wait(Duration::from_millis(20 << doublings))).expect("some moment is long enough")
}

/// Woken by the thread that evicts, when a retention has ended: not under the evictor's lock.
// Holds: WA8.
#[test]
fn a_waker_may_poll_at_once_whatever_verb_wakes_it() {
    let verbs: [fn(&PrefixCache); 6] = [
        PrefixCache::settle,
        |cache| _ = cache.stats(),
        |cache| _ = cache.run_once(),
        |cache| _ = cache.evict(1),
        |cache| _ = cache.settings().policy(),
        |cache| _ = cache.default_namespace().stats(),
    ];
    for verb in verbs {
        in_time(move || {
            let Retained { cache, waiting, moment, rest: served } = waits_for_the_retained(|| cache(2), polls_inline);
            std::thread::sleep(moment);
            let end = Instant::now() + HANG;
            let blocks = loop {
                verb(&cache);
                match served.try_recv() {
                    Ok(blocks) => break blocks,
                    // `policy` takes in no change: another verb must.
                    Err(_) if Instant::now() < end => cache.settle(),
                    Err(_) => panic!("not woken"),
                }
            };
            assert_eq!(blocks.len(), 2);
            drop((blocks, waiting));
            check_all_there(&cache, 2);
        });
    }
}

#[test]
fn a_waker_may_poll_at_once_on_the_evictors_own_thread() {
    in_time(|| {
        quietly();
        let build = || {
            let builder = PrefixCache::builder(BLOCK, 4).eviction(Eviction::Background(Watermarks::new(0, 0)));
            builder.build().expect("sound")
        };
        let Retained { cache, waiting, rest: served, .. } = waits_for_the_retained(build, polls_inline);
        assert_eq!(served.recv_timeout(HANG).expect("woken").len(), 4);
        drop(waiting);
        check_all_there(&cache, 4);
    });
}

/// It is another thread's: what wakes it loses nothing and does not panic.
// Holds: WA10.
#[test]
fn a_waker_that_panics_costs_the_thread_that_wakes_it_nothing() {
    in_time(|| {
        let panics = || waker(|| std::panic::panic_any(ON_PURPOSE));
        let Retained { cache, waiting, moment, .. } = waits_for_the_retained(|| cache(4), |_| (panics(), ()));
        std::thread::sleep(moment);
        // Evicts what was retained, and wakes the waiter.
        let blocks = cache.session().reserve(3).expect("over");
        assert_eq!(blocks.len(), 3);
        drop(blocks);
        drop(waiting);
        check_all_there(&cache, 4);
    });
}

/// Dropping a lease or a reservation wakes too, in a panic as well.
#[test]
fn a_waker_that_panics_does_not_abort_a_panicking_holder() {
    in_time(|| {
        let cache = cache(2);
        let lease = insert(&cache, &cache.session(), 1, 2);
        let mut waiting = Box::pin(cache.reserve_async(2));
        assert!(poll(waiting.as_mut(), &waker(|| std::panic::panic_any(ON_PURPOSE))).is_pending());
        let holder = catch_unwind(AssertUnwindSafe(move || {
            let _held = lease;
            std::panic::panic_any(ON_PURPOSE);
        }));
        assert!(holder.is_err());
        assert!(poll(waiting.as_mut(), Waker::noop()).is_ready());
        drop(waiting);
        check_all_there(&cache, 2);
    });
}

/// Panics when it is dropped, on whatever thread, and with it what it panicked with.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(ON_PURPOSE);
        }
    }
}

#[test]
fn what_a_waker_panics_with_may_panic_too() {
    in_time(|| {
        let cache = cache(2);
        let held = cache.session().reserve(2).expect("free");
        let mut waiting = Box::pin(cache.reserve_async(2));
        assert!(poll(waiting.as_mut(), &waker(|| std::panic::panic_any(Bomb))).is_pending());
        drop(held);
        assert!(poll(waiting.as_mut(), Waker::noop()).is_ready());
        drop(waiting);
        check_all_there(&cache, 2);
    });
}

// Holds: WA10, BE6.
#[test]
fn a_panic_of_a_waker_does_not_end_the_evictors_thread() {
    in_time(|| {
        quietly();
        let marks = Watermarks::new(2, 4);
        let build = || PrefixCache::builder(BLOCK, 8).eviction(Eviction::Background(marks)).build().expect("sound");
        let Retained { cache, waiting, rest: panicked, .. } = waits_for_the_retained(build, |_| {
            let (woken, panicked) = mpsc::channel();
            let panics = waker(move || {
                // If this future was given up, the receiver may be gone.
                _ = woken.send(());
                std::panic::panic_any(ON_PURPOSE);
            });
            (panics, panicked)
        });
        panicked.recv_timeout(HANG).expect("woken by the thread");
        drop(waiting);
        let end = Instant::now() + HANG;
        for round in 0..20 {
            let session = cache.session();
            while cache.stats().free_blocks < marks.low {
                assert!(Instant::now() < end, "no thread evicts in round {round}");
                std::thread::yield_now();
            }
            drop(insert(&cache, &session, 10 + round, marks.low));
        }
    });
}

/// A waker whose clone panics.
mod clones {
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| std::panic::panic_any(super::ON_PURPOSE), |_| (), |_| (), |_| ());

    #[allow(unsafe_code)]
    pub fn panicking() -> Waker {
        // SAFETY: the functions look at no data, and may be called from any thread.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
    }
}

// Holds: WA10.
#[test]
fn a_waker_whose_clone_panics_leaves_the_line_as_it_was() {
    in_time(|| {
        let cache = cache(2);
        let held = cache.session().reserve(2).expect("free");
        let (mut first, mut second) = (Box::pin(cache.reserve_async(2)), Box::pin(cache.reserve_async(1)));
        let panicked = catch_unwind(AssertUnwindSafe(|| _ = poll(first.as_mut(), &clones::panicking())));
        assert!(panicked.is_err());
        assert!(poll(second.as_mut(), Waker::noop()).is_pending());
        drop(first);
        drop(held);
        assert!(matches!(poll(second.as_mut(), Waker::noop()), Poll::Ready(Ok(_))));
        drop(second);
        check_all_there(&cache, 2);
    });
}

/// Woken under no lock, a waker may use every verb.
// Holds: WA8.
#[test]
fn a_waker_may_use_the_cache() {
    in_time(|| {
        let cache = cache(4);
        let held = cache.session().reserve(4).expect("free");
        let mut waiting = Box::pin(cache.reserve_async(4));
        let ran = Arc::new(AtomicUsize::new(0));
        let uses = waker({
            let (cache, ran) = (cache.clone(), Arc::clone(&ran));
            move || {
                let session = cache.session();
                let space = cache.default_namespace();
                drop(session.match_prefix(&space, &tokens(1, 1)));
                assert_eq!(session.reserve(1).map(|blocks| blocks.len()), Ok(1));
                cache.settle();
                cache.clear();
                cache.evict(1);
                assert_eq!(cache.stats().waiting_requests, 1);
                drop(cache.reserve_async(1));
                cache.settings().set_policy(radixkv::PolicyKind::Lfu);
                ran.fetch_add(1, SeqCst);
            }
        });
        assert!(poll(waiting.as_mut(), &uses).is_pending());
        drop(held);
        assert!(ran.load(SeqCst) >= 1);
        assert!(poll(waiting.as_mut(), Waker::noop()).is_ready());
        drop(waiting);
        check_all_there(&cache, 4);
    });
}

/// A request that comes while others wait does not look at the blocks before them.
// Holds: WA2.
#[test]
fn a_first_poll_does_not_overtake_waiters() {
    let cache = cache(4);
    let held = cache.session().reserve(3).expect("free");
    let mut large = pin!(cache.reserve_async(2));
    assert!(poll(large.as_mut(), Waker::noop()).is_pending());
    let mut late = pin!(cache.reserve_async(1));
    assert!(poll(late.as_mut(), Waker::noop()).is_pending(), "one block is free, and another waits for two");
    drop(held);
    assert!(poll(late.as_mut(), Waker::noop()).is_pending());
    assert!(poll(large.as_mut(), Waker::noop()).is_ready());
    assert!(poll(late.as_mut(), Waker::noop()).is_ready());
}

/// Leaving is O(log n): however many wait, in whatever order they go.
#[test]
fn many_waiters_may_leave_in_any_order() {
    let cache = cache(1);
    let held = cache.session().reserve(1).expect("free");
    let mut waiting: Vec<_> = (0..2_000).map(|_| Box::pin(cache.reserve_async(1))).collect();
    waiting.iter_mut().for_each(|future| assert!(poll(future.as_mut(), Waker::noop()).is_pending()));
    let mut dice = fastrand::Rng::with_seed(3);
    dice.shuffle(&mut waiting);
    waiting.truncate(1);
    assert_eq!(cache.stats().waiting_requests, 1);
    drop(held);
    assert!(poll(waiting[0].as_mut(), Waker::noop()).is_ready());
}

/// A future that its waker polls at once, on the thread that makes blocks available.
struct AtOnce(Mutex<Option<Pin<Box<Reserving>>>>);

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut waiting = self.0.lock().expect("no panic");
        let served = waiting.as_mut().is_some_and(|future| {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            polled.is_ready()
        });
        if served {
            let done = waiting.take();
            drop(waiting);
            drop(done);
        }
    }
}

/// Each gives its block back, which serves the next: not one inside the other.
// Holds: QU18.
#[test]
fn any_number_of_wakers_may_poll_at_once() {
    in_time(|| {
        let cache = PrefixCache::builder(BLOCK, 4).build().expect("valid");
        let all = cache.session().reserve(4).expect("free");
        let waiting: Vec<_> = (0..20_000)
            .map(|_| {
                let waiting = Arc::new(AtOnce(Mutex::new(Some(Box::pin(cache.reserve_async(1))))));
                let waker = Waker::from(Arc::clone(&waiting));
                let mut future = waiting.0.lock().expect("no panic");
                let polled = future.as_mut().expect("it waits").as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                drop(future);
                waiting
            })
            .collect();
        drop(all);
        assert!(waiting.iter().all(|waiting| waiting.0.lock().expect("no panic").is_none()), "all were served");
        assert_eq!(cache.stats().free_blocks, 4);
    });
}
