//! Every event that makes blocks available wakes a waiter. Each is tested separately, by counting
//! wake-ups instead of timing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use radixkv::{Clock, Lease, PrefixCache, ReserveError, Reserving, Session};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A request that waits, and how often it was woken.
struct Waiting {
    request: Pin<Box<Reserving>>,
    wakes: Arc<Wakes>,
}

impl Waiting {
    /// Waits for `blocks`; nothing if they were there.
    fn try_for(cache: &PrefixCache, blocks: usize) -> Option<Self> {
        let mut waiting = Self { request: Box::pin(cache.reserve_async(blocks)), wakes: Arc::default() };
        waiting.poll().is_pending().then_some(waiting)
    }

    fn for_blocks(cache: &PrefixCache, blocks: usize) -> Self {
        Self::try_for(cache, blocks).expect("too few are there")
    }

    fn poll(&mut self) -> Poll<Result<usize, ReserveError>> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let taken = self.request.as_mut().poll(&mut Context::from_waker(&waker));
        taken.map(|taken| taken.map(|blocks| blocks.len()))
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(SeqCst)
    }

    /// It was woken since the last look, and is served then.
    #[track_caller]
    fn check_served(mut self, blocks: usize) {
        assert_eq!(self.wakes(), 1, "woken");
        assert_eq!(self.poll(), Poll::Ready(Ok(blocks)));
    }
}

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(1, blocks).clock(Clock::Logical).build().expect("valid")
}

/// Caches a prefix of so many blocks; its lease.
fn insert(session: &Session, cache: &PrefixCache, blocks: u32) -> Lease {
    let tokens: Vec<u32> = (0..blocks).collect();
    let cold = session.match_prefix(&cache.default_namespace(), &tokens);
    session.insert(cold.lease(), &tokens, session.reserve(blocks as usize).expect("free")).expect("it fits").lease
}

/// A cache of two blocks, both of them retained for this time and not leased.
fn retained(cache: PrefixCache, duration: Duration) -> PrefixCache {
    let session = cache.session();
    let lease = insert(&session, &cache, 2);
    session.retain(&lease, duration).expect("cached");
    drop((lease, session));
    cache
}

const LONG: Duration = Duration::from_secs(1 << 20);

#[test]
fn a_reservation_that_goes_wakes() {
    let cache = cache(2);
    let held = cache.session().reserve(2).expect("free");
    let waiting = Waiting::for_blocks(&cache, 1);
    drop(held);
    waiting.check_served(1);
}

#[test]
fn a_lease_that_goes_wakes() {
    let cache = cache(2);
    let lease = insert(&cache.session(), &cache, 2);
    let waiting = Waiting::for_blocks(&cache, 1);
    drop(lease);
    waiting.check_served(1);
}

#[test]
fn the_last_fork_of_a_block_wakes() {
    let cache = cache(1);
    let mut one = cache.session().reserve(1).expect("free");
    let two = one.fork();
    drop(one);
    let waiting = Waiting::for_blocks(&cache, 1);
    drop(two);
    waiting.check_served(1);
}

#[test]
fn a_copy_that_is_done_wakes() {
    let cache = cache(2);
    let session = cache.session();
    let (mut one, mut fresh) = (session.reserve(1).expect("free"), session.reserve(1).expect("free"));
    let two = one.fork();
    let copy = one.make_unique(0, &mut fresh).expect("shared");
    drop((two, fresh));
    let waiting = Waiting::for_blocks(&cache, 1);
    drop(copy);
    waiting.check_served(1);
}

#[test]
fn duplicates_that_go_wake() {
    let cache = cache(2);
    let session = cache.session();
    let root = session.match_prefix(&cache.default_namespace(), &[]);
    let first = session.insert(root.lease(), &[1], session.reserve(1).expect("free")).expect("it fits");
    let second = session.insert(root.lease(), &[1], session.reserve(1).expect("free")).expect("it fits");
    let waiting = Waiting::for_blocks(&cache, 1);
    drop(second.duplicates);
    waiting.check_served(1);
    drop(first);
}

#[test]
fn a_retention_that_is_released_wakes() {
    let cache = retained(cache(2), LONG);
    let session = cache.session();
    let found = session.match_prefix(&cache.default_namespace(), &[0, 1]);
    let mut waiting = Waiting::for_blocks(&cache, 1);
    session.release_retained(found.lease());
    assert_eq!(waiting.wakes(), 1);
    assert!(waiting.poll().is_pending(), "still leased");
}

#[test]
fn a_clear_or_a_drop_that_ends_a_retention_wakes() {
    type Verb = fn(&PrefixCache, &radixkv::Namespace);
    let verbs: [Verb; 3] = [|_, space| space.clear(), |_, space| space.remove(), |cache, _| cache.clear()];
    for verb in verbs {
        let cache = retained(cache(2), LONG);
        let waiting = Waiting::for_blocks(&cache, 2);
        verb(&cache, &cache.default_namespace());
        waiting.check_served(2);
    }
}

#[test]
fn the_time_that_ends_a_retention_wakes() {
    let cache = retained(cache(2), Duration::from_nanos(5));
    let waiting = Waiting::for_blocks(&cache, 2);
    cache.set_time(5);
    waiting.check_served(2);
}

/// With the machine's clock the end of a retention wakes no thread: the next thread that runs the
/// evictor does.
#[test]
fn a_thread_that_evicts_after_the_end_of_a_retention_wakes() {
    type Verb = fn(&PrefixCache);
    let verbs: [Verb; 5] = [
        PrefixCache::settle,
        |cache| _ = cache.run_once(),
        |cache| _ = cache.stats(),
        |cache| _ = cache.evict(1),
        |cache| _ = cache.default_namespace().stats(),
    ];
    for verb in verbs {
        // On a slow machine it may be over before the waiter waits: then try a longer time.
        let (waiting, cache) = (3..)
            .find_map(|doublings| {
                let duration = Duration::from_millis(1 << doublings);
                let cache = retained(PrefixCache::builder(1, 2).build().expect("valid"), duration);
                let waiting = Waiting::try_for(&cache, 2)?;
                std::thread::sleep(duration);
                Some((waiting, cache))
            })
            .expect("some duration is long enough");
        verb(&cache);
        waiting.check_served(2);
    }
}

#[test]
fn a_request_that_leaves_the_line_wakes_the_next() {
    let cache = cache(2);
    let held = cache.session().reserve(1).expect("free");
    let first = Waiting::for_blocks(&cache, 2);
    let second = Waiting::for_blocks(&cache, 1);
    drop(first);
    second.check_served(1);
    drop(held);
}

/// There is room for it, and a request that came before it waits for more.
#[test]
fn a_late_first_poll_does_not_overtake() {
    let cache = cache(2);
    let held = cache.session().reserve(1).expect("free");
    let first = Waiting::for_blocks(&cache, 2);
    let late = Waiting::for_blocks(&cache, 1);
    drop(held);
    assert_eq!(late.wakes(), 0, "the first is woken first");
    first.check_served(2);
    late.check_served(1);
}
