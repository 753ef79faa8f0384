//! The spans of the feature `tracing`: only operations off the hot path open them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, PrefixCache};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, subscriber::with_default};

/// Remembers the names of the spans that were opened, and how many were closed.
#[derive(Default)]
struct Names {
    opened: Mutex<Vec<&'static str>>,
    closed: AtomicU64,
}

impl Subscriber for &'static Names {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "radixkv"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut opened = self.opened.lock().expect("no panic");
        opened.push(span.metadata().name());
        Id::from_u64(opened.len() as u64)
    }

    fn try_close(&self, _: Id) -> bool {
        self.closed.fetch_add(1, Relaxed);
        true
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The spans that `work` opens; each of them is closed.
fn spans(work: impl FnOnce()) -> Vec<&'static str> {
    let names: &'static Names = Box::leak(Box::default());
    with_default(names, work);
    let opened = names.opened.lock().expect("no panic").clone();
    assert_eq!(names.closed.load(Relaxed), opened.len() as u64, "{opened:?}");
    opened
}

#[test]
fn what_is_off_the_hot_path_opens_spans() {
    let cache = PrefixCache::builder(2, 8).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let hot = spans(|| {
        let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
        let inserted = session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2).expect("free")).expect("it fits");
        drop((session.resume(inserted.lease, &[1, 2, 3, 4]), session.peek(&space, &[1, 2])));
    });
    assert_eq!(hot, [""; 0]);
    assert_eq!(spans(|| cache.settle()), ["settle"]);
    assert_eq!(spans(|| drop(session.reserve(7))), ["evict"], "a reservation that evicts");
    assert_eq!(spans(|| _ = cache.evict(1)), ["evict"]);
    assert_eq!(spans(|| _ = cache.run_once()), ["step"]);
    assert_eq!(spans(|| cache.clear()), ["clear"]);
    let held = session.reserve(6).expect("free");
    let soon = Instant::now() + Duration::from_millis(2);
    let waiting = spans(|| _ = session.reserve(BlockRequest::new(3).until(soon)).unwrap_err());
    assert!(waiting.contains(&"wait") && waiting.iter().all(|name| ["wait", "evict"].contains(name)), "{waiting:?}");
    drop(held);
}

/// Uses a cache in each of its methods, but not for the spans that this opens.
struct Evicts {
    cache: PrefixCache,
    is_inside: AtomicBool,
}

impl Evicts {
    fn evict(&self) {
        if !self.is_inside.swap(true, Relaxed) {
            self.cache.evict(1);
            self.is_inside.store(false, Relaxed);
        }
    }
}

impl Subscriber for Evicts {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "radixkv"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.evict();
        Id::from_u64(1)
    }

    fn try_close(&self, _: Id) -> bool {
        self.evict();
        true
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.evict();
    }

    fn exit(&self, _: &Id) {
        self.evict();
    }
}

/// A span that was opened under the evictor's lock would never return here.
#[test]
fn a_subscriber_may_use_the_cache() {
    let cache = PrefixCache::builder(1, 4).build().expect("valid");
    with_default(Evicts { cache: cache.clone(), is_inside: AtomicBool::new(false) }, || {
        cache.settle();
        while cache.run_once() {}
        let held = cache.session().reserve(4).expect("free");
        let soon = Instant::now() + Duration::from_millis(2);
        assert!(cache.session().reserve(BlockRequest::new(1).until(soon)).is_err());
        drop(held);
        assert_eq!(cache.evict(1), 0);
        cache.clear();
    });
}
