//! Awaiting blocks on a multi-threaded runtime: order, cancellation, and no lost wake-ups.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Eviction, Namespace, PrefixCache, Quota, Reservation, ReserveError, Watermarks};

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(4, blocks).build().expect("valid")
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn what_is_free_is_ready_and_what_never_fits_is_refused() {
    let cache = cache(4);
    let mut context = Context::from_waker(Waker::noop());
    let all = pin!(cache.reserve_async(4)).poll(&mut context);
    assert!(matches!(&all, Poll::Ready(Ok(blocks)) if blocks.len() == 4));
    let refused = pin!(cache.reserve_async(5)).poll(&mut context);
    assert!(matches!(refused, Poll::Ready(Err(ReserveError::TooLarge { requested: 5, capacity: 4 }))));
}

// Holds: WA1.
#[test]
fn the_first_is_woken_and_served_first_and_then_the_next() {
    let cache = cache(4);
    let held = cache.session().reserve(4).expect("free");
    let (first, second) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let (one, two) = (Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second)));
    let mut large = Box::pin(cache.reserve_async(4));
    let mut small = Box::pin(cache.reserve_async(1));
    assert!(large.as_mut().poll(&mut Context::from_waker(&one)).is_pending());
    assert!(small.as_mut().poll(&mut Context::from_waker(&two)).is_pending());
    drop(held);
    assert_eq!((first.0.load(SeqCst), second.0.load(SeqCst)), (1, 0));
    assert!(
        small.as_mut().poll(&mut Context::from_waker(&two)).is_pending(),
        "there is room, but another waiter is first"
    );
    let Poll::Ready(Ok(all)) = large.as_mut().poll(&mut Context::from_waker(&one)) else {
        panic!("it is the first waiter, and enough is free");
    };
    assert_eq!((all.len(), second.0.load(SeqCst)), (4, 1), "a waiter that leaves wakes the next");
    assert!(small.as_mut().poll(&mut Context::from_waker(&two)).is_pending());
    drop(all);
    assert_eq!(second.0.load(SeqCst), 2);
    assert!(small.as_mut().poll(&mut Context::from_waker(&two)).is_ready());
}

// Holds: WA5.
#[test]
fn a_waiter_that_gives_up_after_its_wake_up_passes_it_on() {
    let cache = cache(2);
    let held = cache.session().reserve(2).expect("free");
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut first = Box::pin(cache.reserve_async(2));
    let mut second = Box::pin(cache.reserve_async(2));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    drop(first);
    assert_eq!(bell.0.load(SeqCst), 1);
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

// Holds: WA7.
#[test]
fn a_task_takes_a_new_waker_with_each_poll() {
    let cache = cache(1);
    let held = cache.session().reserve(1).expect("free");
    let (old, new) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let mut waiting = Box::pin(cache.reserve_async(1));
    for bell in [&old, &new] {
        let waker = Waker::from(Arc::clone(bell));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(held);
    assert_eq!((old.0.load(SeqCst), new.0.load(SeqCst)), (0, 1));
}

/// A waiter is not passed over, however long its future is not polled. Dropping it helps.
// Holds: WA6.
#[test]
fn a_future_that_does_not_answer_holds_the_line_up_until_it_is_dropped() {
    let cache = cache(4);
    let held = cache.session().reserve(4).expect("free");
    let mut context = Context::from_waker(Waker::noop());
    let mut silent = Box::pin(cache.reserve_async(1));
    let mut next = Box::pin(cache.reserve_async(1));
    assert!(silent.as_mut().poll(&mut context).is_pending());
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(held);
    let late = Instant::now() + Duration::from_millis(5);
    assert!(next.as_mut().poll(&mut context).is_pending());
    let refused = cache.session().reserve(BlockRequest::new(1).until(late)).map(drop);
    assert!(matches!(refused, Err(ReserveError::TimedOut { requested: 1, .. })), "{refused:?}");
    assert_eq!(cache.session().reserve(1).map(|blocks| blocks.len()), Ok(1), "a plain one does not join the wait list");
    drop(silent);
    assert!(next.as_mut().poll(&mut context).is_ready());
    // One that was never polled has no place.
    let never_polled = cache.reserve_async(4);
    assert!(pin!(cache.reserve_async(1)).poll(&mut context).is_ready());
    drop(never_polled);
}

/// Tells that it was woken.
struct Told(Sender<()>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        // Once all are served, the receiver may be gone.
        let _ = self.0.send(());
    }
}

/// No other thread runs when the retention ends: the future is polled only when it is woken.
// Holds: WA11, BE3.
#[test]
fn the_end_of_a_retention_wakes_a_waiter_where_a_thread_evicts() {
    let builder = PrefixCache::builder(4, 4).eviction(Eviction::Background(Watermarks::new(0, 0)));
    let cache = builder.build().expect("valid");
    let session = cache.session();
    let space = cache.default_namespace();
    let tokens: Vec<u32> = (0..16).collect();
    let cold = session.match_prefix(&space, &tokens);
    let blocks = session.reserve(4).expect("free");
    let inserted = session.insert(cold.lease(), &tokens, blocks).expect("it fits");
    session.retain(&inserted.lease, Duration::from_millis(20)).expect("cached");
    drop((cold, inserted));
    let (told, woken) = channel();
    let waker = Waker::from(Arc::new(Told(told)));
    let mut waiting = Box::pin(cache.reserve_async(4));
    let served = loop {
        match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(served) => break served,
            Poll::Pending => woken.recv_timeout(Duration::from_secs(60)).expect("woken"),
        }
    };
    assert_eq!(served.expect("it fits").len(), 4);
}

/// Tasks and threads in one wait list, deadlines that end some, leases that come and go: every
/// waiter that stays is served.
// Holds: WA3.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starves_and_nothing_is_lost() {
    let cache = cache(10);
    let threads: Vec<_> = (0..2)
        .map(|i| {
            let cache = cache.clone();
            std::thread::spawn(move || {
                let session = cache.session();
                for n in 0..500 {
                    let far = Instant::now() + Duration::from_secs(60);
                    let blocks = session.reserve(BlockRequest::new(1 + (n + i) % 7).until(far)).expect("served");
                    std::thread::yield_now();
                    drop(blocks);
                }
            })
        })
        .collect();
    let tasks: Vec<_> = (0..6)
        .map(|i| {
            let cache = cache.clone();
            tokio::spawn(async move {
                let mut cut = 0;
                for n in 0..500 {
                    let waiting = cache.reserve_async(1 + (n * 3 + i) % 9);
                    if n % 5 == 0 {
                        match tokio::time::timeout(Duration::from_micros(200), waiting).await {
                            Ok(blocks) => drop(blocks.expect("fits")),
                            Err(_) => cut += 1,
                        }
                    } else {
                        let blocks = waiting.await.expect("fits");
                        tokio::task::yield_now().await;
                        drop(blocks);
                    }
                }
                cut
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    assert_eq!(cache.stats().free_blocks, 10);
    assert_eq!(cache.validate(), Ok(()));
}

/// A request that is polled by hand.
struct Polled {
    bell: Arc<Bell>,
    waiting: std::pin::Pin<Box<radixkv::Reserving>>,
}

impl Polled {
    /// Asks, and looks once.
    fn new(cache: &PrefixCache, request: BlockRequest<'_>) -> Self {
        let mut polled = Self { bell: Arc::default(), waiting: Box::pin(cache.reserve_async(request)) };
        assert!(polled.poll().is_pending(), "it has to wait");
        polled
    }

    fn poll(&mut self) -> Poll<Result<Reservation, ReserveError>> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.waiting.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Looks if it was woken since the last look; what it got.
    fn woken(&mut self) -> Option<Result<Reservation, ReserveError>> {
        let was_woken = self.bell.0.swap(0, SeqCst) > 0;
        match if was_woken { self.poll() } else { Poll::Pending } {
            Poll::Ready(served) => Some(served),
            Poll::Pending => None,
        }
    }

    /// It was woken, and is served.
    fn served(&mut self) -> Reservation {
        self.woken().expect("woken and served").expect("no refusal")
    }
}

fn limited(cache: &PrefixCache, name: &str, limit: usize) -> Namespace {
    let tenant = cache.namespace(&[name]);
    tenant.set_quota(Quota::default().pinned_blocks(limit));
    tenant
}

/// What the admission waits for comes when a sequence that runs ends, and that grows first.
// Holds: QU9.
#[test]
fn growth_goes_on_beside_an_overdue_admission_that_does_not_fit() {
    let cache = cache(8);
    let running = cache.session().reserve(4).expect("free");
    let mut admission = Polled::new(&cache, BlockRequest::new(8));
    let mut grown = Vec::new();
    for i in 0..200 {
        let mut growth = cache.reserve_async(BlockRequest::new(1).for_running_sequence());
        let Poll::Ready(block) = std::pin::Pin::new(&mut growth).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the growth of number {i} waits");
        };
        grown.push(block.expect("no refusal"));
        grown.truncate(3);
        assert!(admission.woken().is_none());
    }
    // A growth that is given up passes nobody.
    drop((running, grown));
    assert_eq!(admission.served().len(), 8);
}

// Holds: QU9.
#[test]
fn growth_passes_an_admission_that_its_own_quota_holds_back() {
    let cache = cache(64);
    let tenant = limited(&cache, "tenant", 8);
    let running = cache.session().reserve(BlockRequest::new(6).paid_by(&tenant)).expect("within");
    let mut admission = Polled::new(&cache, BlockRequest::new(4).paid_by(&tenant));
    let in_a_minute = Instant::now() + Duration::from_secs(60);
    let two = cache
        .session()
        .reserve(BlockRequest::new(2).paid_by(&tenant).for_running_sequence().until(in_a_minute))
        .expect("8 of 8");
    let mut growth = Polled::new(&cache, BlockRequest::new(1).paid_by(&tenant).for_running_sequence());
    // One of the two that wait may have it, and the quota allows no more.
    drop(two);
    let grown = growth.served();
    assert!(admission.woken().is_none(), "7 and 4 are more than 8");
    // An admission that came after a growth that is held back follows it.
    let mut second = Polled::new(&cache, BlockRequest::new(2).paid_by(&tenant).for_running_sequence());
    let mut later = Polled::new(&cache, BlockRequest::new(1).paid_by(&tenant));
    drop(grown);
    assert_eq!(second.served().len(), 2);
    drop(running);
    assert_eq!((admission.served().len(), later.served().len()), (4, 1));
}

// Holds: RE10.
#[test]
fn a_future_of_no_block_is_ready_whoever_waits() {
    let cache = cache(4);
    let all = cache.session().reserve(4).expect("free");
    let other = Polled::new(&cache, BlockRequest::new(1));
    let mut context = Context::from_waker(Waker::noop());
    let none = pin!(cache.reserve_async(0)).poll(&mut context);
    assert!(matches!(&none, Poll::Ready(Ok(none)) if none.is_empty()), "{none:?}");
    let empty = pin!(cache.acquire_async(&cache.default_namespace(), &[][..], 0)).poll(&mut context);
    assert!(matches!(&empty, Poll::Ready(Ok(empty)) if empty.blocks.is_empty()), "{empty:?}");
    drop((all, other));
}

/// Whoever waits before it.
// Holds: QU17.
#[test]
fn what_a_quota_can_never_allow_is_refused_at_once() {
    let cache = cache(8);
    let tenant = limited(&cache, "tenant", 4);
    let all = cache.session().reserve(8).expect("free");
    let other = Polled::new(&cache, BlockRequest::new(1));
    let refused = Err(ReserveError::OverQuota { requested: 5, pinned: 0, limit: 4 });
    let mut never = Box::pin(cache.reserve_async(BlockRequest::new(5).paid_by(&tenant)));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(never.as_mut().poll(&mut context).map_ok(|_| ()), Poll::Ready(refused));
    let mut never = Box::pin(cache.acquire_async(&tenant, &[7; 17][..], 0));
    assert_eq!(never.as_mut().poll(&mut context).map_ok(|_| ()), Poll::Ready(refused));
    drop((all, other));
}

// Holds: QU17.
#[test]
fn a_request_whose_namespace_comes_to_its_limit_lets_others_pass() {
    let cache = cache(16);
    let (session, tenant) = (cache.session(), limited(&cache, "tenant", 7));
    let others = session.reserve(11).expect("free");
    let mut first = Polled::new(&cache, BlockRequest::new(6).paid_by(&tenant));
    let mut second = Polled::new(&cache, BlockRequest::new(2));
    let more = session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect("within");
    assert!(first.woken().is_none());
    assert_eq!(second.served().len(), 2);
    drop((others, more));
}

// Holds: QU7.
#[test]
fn a_tenant_at_its_limit_waits_in_its_own_line_and_is_in_no_other_ones_way() {
    let cache = cache(16);
    let [tenant, other] = ["tenant", "other"].map(|name| limited(&cache, name, 4));
    let full = cache.session().reserve(BlockRequest::new(4).paid_by(&tenant)).expect("within");
    let mut first = Polled::new(&cache, BlockRequest::new(3).paid_by(&tenant));
    let mut second = Polled::new(&cache, BlockRequest::new(1).paid_by(&tenant));
    for request in
        [BlockRequest::new(3), BlockRequest::new(4).paid_by(&other), BlockRequest::new(1).for_running_sequence()]
    {
        let mut others = Box::pin(cache.reserve_async(request));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(others.as_mut().poll(&mut context), Poll::Ready(Ok(_))), "{request:?} is behind nobody");
    }
    assert!(first.woken().is_none() && second.woken().is_none());
    drop(full);
    assert!(second.woken().is_none(), "the first of its line comes first");
    let three = first.served();
    let one = second.served();
    assert_eq!((three.len(), one.len(), tenant.stats().reserved_blocks), (3, 1, 4));
}

// Holds: QU7.
#[test]
fn a_request_that_its_quota_allows_again_has_its_old_place() {
    let cache = cache(8);
    let tenant = limited(&cache, "tenant", 4);
    let (full, mut rest) =
        (cache.session().reserve(BlockRequest::new(4).paid_by(&tenant)), cache.session().reserve(4).expect("free"));
    let mut first = Polled::new(&cache, BlockRequest::new(3).paid_by(&tenant));
    let mut second = Polled::new(&cache, BlockRequest::new(2));
    let mut third = Polled::new(&cache, BlockRequest::new(1).paid_by(&tenant));
    // Its quota allows three blocks when one is left, but only two are free: it waits for the
    // third, before all others.
    let mut full = full.expect("within");
    let mut taken = full.split(3);
    drop(taken.split(1));
    assert!(first.woken().is_none());
    rest.append(cache.session().reserve(1).expect("free"));
    drop(taken);
    assert!(first.woken().is_none() && second.woken().is_none() && third.woken().is_none());
    drop(rest.split(1));
    assert!(second.woken().is_none());
    assert_eq!(first.served().len(), 3);
    assert_eq!(second.served().len(), 2);
    assert_eq!(third.served().len(), 1);
    drop((rest, full));
}

// Holds: QU7.
#[test]
fn a_quota_that_is_raised_or_ends_wakes_and_one_that_is_too_low_refuses() {
    let cache = cache(16);
    let tenant = limited(&cache, "tenant", 4);
    let refused = |requested, limit| ReserveError::OverQuota { requested, pinned: 3, limit };
    let held = cache.session().reserve(BlockRequest::new(3).paid_by(&tenant)).expect("within");
    let mut waiting = Box::pin(cache.reserve_async(BlockRequest::new(5).paid_by(&tenant)));
    let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(error)) if error == refused(5, 4)), "it would wait for ever");
    let mut waiting = Polled::new(&cache, BlockRequest::new(2).paid_by(&tenant));
    let mut more = Polled::new(&cache, BlockRequest::new(4).paid_by(&tenant));
    tenant.set_quota(Quota::default().pinned_blocks(5));
    let two = waiting.served();
    assert!(more.woken().is_none());
    tenant.set_quota(Quota::default().pinned_blocks(3));
    assert!(matches!(more.woken(), Some(Err(ReserveError::OverQuota { requested: 4, pinned: 5, limit: 3 }))));
    let mut last = Polled::new(&cache, BlockRequest::new(3).paid_by(&tenant));
    tenant.remove();
    assert_eq!(last.served().len(), 3);
    drop((held, two));
}

// Holds: QU9.
#[test]
fn growth_goes_first_until_an_admission_has_waited_long_enough() {
    let cache = cache(2);
    let mut held = Some(cache.session().reserve(2).expect("free"));
    let mut admission = Polled::new(&cache, BlockRequest::new(2));
    for passed in 0..64 {
        let mut growth = Polled::new(&cache, BlockRequest::new(2).for_running_sequence());
        assert!(admission.woken().is_none());
        drop(held.take());
        held = Some(growth.served());
        assert!(admission.woken().is_none(), "{passed} have passed it");
    }
    let mut growth = Polled::new(&cache, BlockRequest::new(1).for_running_sequence());
    drop(held);
    assert!(growth.woken().is_none());
    let admitted = admission.served();
    assert_eq!(admitted.len(), 2);
    drop(admitted);
    assert_eq!(growth.served().len(), 1);
}

/// Held back, in its lane or served: whatever a request is when it is given up, the next ones are
/// served.
// Holds: QU7.
#[test]
fn requests_of_tenants_that_are_given_up_anywhere_keep_none_waiting() {
    let cache = cache(6);
    let tenants = ["one", "two"].map(|name| limited(&cache, name, 3));
    let mut dice = fastrand::Rng::with_seed(3);
    for _ in 0..300 {
        let mut held: Vec<_> =
            tenants.iter().map(|tenant| cache.session().reserve(BlockRequest::new(3).paid_by(tenant)).ok()).collect();
        let mut waiting: Vec<_> = (0..dice.usize(1..8))
            .map(|_| {
                let request = BlockRequest::new(dice.usize(1..=3));
                let request = if dice.bool() { request.for_running_sequence() } else { request };
                let request = if dice.u8(..4) > 0 { request.paid_by(&tenants[dice.usize(..2)]) } else { request };
                Some(Polled::new(&cache, request))
            })
            .collect();
        held.remove(dice.usize(..2));
        let given_up = dice.usize(..waiting.len());
        waiting[given_up] = None;
        drop(held);
        while waiting.iter().any(Option::is_some) {
            let served = waiting.iter_mut().find_map(|place| {
                let served = place.as_mut()?.woken()?;
                *place = None;
                Some(served)
            });
            drop(served.expect("a waiting request was woken").expect("no refusal"));
        }
        assert_eq!((cache.stats().free_blocks, cache.stats().waiting_requests), (6, 0));
    }
}

/// Nothing wakes the task then: the deadline counts when it is polled.
#[test]
fn a_future_that_is_polled_after_its_deadline_has_timed_out() {
    let cache = cache(8);
    let running = cache.session().reserve(6).expect("free blocks");
    let mut context = Context::from_waker(Waker::noop());
    let mut polled = |moment| {
        let mut waiting = cache.reserve_async(BlockRequest::new(4).until(moment));
        Future::poll(std::pin::Pin::new(&mut waiting), &mut context).map(|ready| ready.map(drop))
    };
    let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(600));
    let refused = ReserveError::TimedOut { requested: 4, available: 2 };
    assert_eq!(polled(past), Poll::Ready(Err(refused)));
    assert!(polled(future).is_pending());
    drop(running);
    assert_eq!(polled(past), Poll::Ready(Ok(())), "enough are free");
}
