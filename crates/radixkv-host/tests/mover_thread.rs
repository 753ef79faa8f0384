//! Copies on the mover's thread: what a clear stops, what a caller does not wait for, and a mover
//! that uses the tiers itself.

mod common;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Instant,
};

use common::{PATIENCE, gated::gated};
use radixkv::{Namespace, PrefixCache};
use radixkv_host::{
    HostTier, MoveError, Mover, NoCopies, TierMode, TieredBuildError, TieredBuilder, TieredCache, TieredStart,
    ToDevice, ToHost, WritePolicy,
};

const A: &[u32] = &[1, 2, 3, 4];
const B: &[u32] = &[11, 12, 13, 14];

/// A cache over a tier that other caches could share, of eight blocks of two tokens each, with a
/// mover's thread.
fn builder(mover: impl Mover + 'static) -> TieredBuilder {
    let cache = PrefixCache::builder(2, 8).build().expect("a cache");
    let host = HostTier::builder(2, 8).build().expect("a tier");
    TieredCache::builder(&cache, &host, mover).mode(TierMode::Shared).mover_thread(4)
}

fn serve(tiers: &TieredCache, namespace: &Namespace, prompt: &[u32]) -> (usize, usize) {
    let session = tiers.session();
    let TieredStart { lease, cached, mut blocks, device_tokens, host_tokens, .. } =
        session.acquire(namespace, prompt, 0).expect("room");
    let own = blocks.split(prompt.len() / 2 - cached.len());
    drop(session.insert(namespace, &lease, prompt, own).expect("it is inserted"));
    (device_tokens, host_tokens)
}

/// Waits for the copies that are under way.
fn settle(tiers: &TieredCache) {
    assert_eq!(tiers.evict(0), 0);
}

/// The device evicts the second half of a host block, then the first half, before the mover's thread
/// copies the second.
// Holds: HT1.
#[test]
fn a_host_block_whose_first_half_has_left_the_device_stays_out() {
    let cache = PrefixCache::builder(2, 8).build().expect("a cache");
    let host = HostTier::builder(4, 4).build().expect("a tier");
    let (mover, is_called, go) = gated();
    let tiers = TieredCache::builder(&cache, &host, mover).mode(TierMode::Shared).mover_thread(4);
    let (tiers, space) = (tiers.build().expect("they go together"), cache.default_namespace());
    serve(&tiers, &space, B);
    serve(&tiers, &space, A);
    assert_eq!(cache.evict(1), 1);
    is_called.recv().expect("the mover is busy with B, whose first half it leases");
    assert_eq!([cache.evict(1), cache.evict(1)], [1, 1], "both of A");
    // One more than it needs.
    (0..2).for_each(|_| go.send(()).expect("the mover waits"));
    settle(&tiers);
    assert_eq!([A, B].map(|prompt| host.peek(&space.name(), prompt, 0)), [0, 4]);
    assert_eq!(tiers.stats().incomplete_blocks, 1);
}

// Holds: HT7.
#[test]
fn a_demotion_before_a_clear_brings_nothing_after_it() {
    let (mover, is_called, go) = gated();
    let tiers = builder(mover).build().expect("they go together");
    let (session, space) = (tiers.session(), tiers.cache().default_namespace());
    serve(&tiers, &space, A);
    serve(&tiers, &space, B);
    assert_eq!(session.demote(&space, B), 4);
    is_called.recv().expect("the mover is busy");
    assert_eq!(session.demote(&space, A), 4);
    tiers.clear_namespace(&space);
    for _ in 0..2 {
        go.send(()).expect("the mover waits");
    }
    settle(&tiers);
    let found = [A, B].map(|prompt| tiers.host().peek(&space.name(), prompt, 0));
    assert_eq!(found, [0, 0], "both were computed before the clear");
    assert_eq!(serve(&tiers, &space, A), (0, 0));
}

// Holds: HT14.
#[test]
fn an_insert_that_is_written_through_does_not_wait_for_its_copy() {
    let (mover, is_called, go) = gated();
    let tiers = builder(mover).write_policy(WritePolicy::Through).build().expect("they go together");
    let space = tiers.cache().default_namespace();
    let (done, is_done) = mpsc::channel();
    let serving = thread::spawn({
        let (tiers, space) = (tiers.clone(), space.clone());
        move || done.send(serve(&tiers, &space, A)).expect("the test waits")
    });
    is_called.recv().expect("the copy began");
    let is_inserted = is_done.recv_timeout(PATIENCE).is_ok();
    let (leased, in_host) = (tiers.cache().evict(8), tiers.host().peek(&space.name(), A, 0));
    go.send(()).expect("the mover waits");
    serving.join().expect("no panic");
    assert!(is_inserted, "the insert waits for the mover");
    assert_eq!((leased, in_host), (0, 0), "the blocks stay for the copy");
    settle(&tiers);
    assert_eq!((tiers.host().peek(&space.name(), A, 0), tiers.cache().evict(8)), (4, 2));
}

#[test]
fn a_request_begins_when_what_is_evicted_for_it_was_copied() {
    let (mover, is_called, go) = gated();
    let tiers = builder(mover).build().expect("they go together");
    let space = tiers.cache().default_namespace();
    serve(&tiers, &space, A);
    let (began, has_begun) = mpsc::channel();
    let asking = thread::spawn({
        let (tiers, space) = (tiers.clone(), space.clone());
        move || {
            let start = tiers.session().acquire(&space, &[41; 16], 0).expect("room");
            began.send(start.blocks.len()).expect("the test waits");
        }
    });
    is_called.recv().expect("the copy began");
    assert!(has_begun.recv_timeout(PATIENCE / 60).is_err(), "the blocks are being copied");
    assert_eq!(tiers.cache().stats().evicted_blocks, 2);
    go.send(()).expect("the mover waits");
    assert_eq!(has_begun.recv_timeout(PATIENCE), Ok(8));
    asking.join().expect("no panic");
    assert_eq!((tiers.cache().stats().evicted_blocks, tiers.stats().bypassed_blocks), (2, 0));
}

// Holds: HT14.
#[test]
fn what_is_evicted_for_a_request_that_waits_is_copied() {
    let (mover, is_called, go) = gated();
    let tiers = builder(mover).mover_thread(1).build().expect("they go together");
    let space = tiers.cache().default_namespace();
    for prompt in [A, B, &[21, 22, 23, 24, 25, 26, 27, 28]] {
        serve(&tiers, &space, prompt);
    }
    let session = tiers.cache().session();
    let leases = [B, &[21, 22, 23, 24, 25, 26, 27, 28]].map(|prompt| session.match_prefix(&space, prompt));
    // The mover has no room for more.
    assert_eq!(tiers.cache().evict(1), 1);
    is_called.recv().expect("the copy began");
    let waiting = thread::spawn({
        let (tiers, space) = (tiers.clone(), space.clone());
        move || {
            tiers
                .session()
                .acquire_until(&space, &[41; 8], 0, Instant::now() + PATIENCE)
                .map(|start| start.blocks.len())
        }
    });
    while tiers.cache().stats().waiting_requests == 0 {
        thread::yield_now();
    }
    drop(leases);
    while tiers.cache().stats().evicted_blocks < 4 {
        thread::yield_now();
    }
    for _ in 0..4 {
        // The last may find nobody.
        let _ = go.send(());
    }
    assert_eq!(waiting.join().expect("no panic"), Ok(4));
    assert_eq!((tiers.stats().evicted_blocks, tiers.stats().dropped_blocks), (4, 0));
}

// Holds: HT14.
#[test]
fn another_tiered_cache_may_follow_while_copies_of_the_last_one_are_under_way() {
    let (mover, is_called, go) = gated();
    let tiers = builder(mover).build().expect("they go together");
    let (cache, host) = (tiers.cache().clone(), tiers.host().clone());
    serve(&tiers, &cache.default_namespace(), A);
    assert_eq!(cache.evict(2), 2);
    is_called.recv().expect("the copy began");
    let again = || TieredCache::builder(&cache, &host, NoCopies).mode(TierMode::Shared).build();
    let session = tiers.session();
    drop(tiers);
    assert_eq!(again().map(drop), Err(TieredBuildError::HasSink), "the session is a handle");
    drop(session);
    let next = again().expect("the last handle is gone");
    go.send(()).expect("the mover waits");
    assert_eq!(again().map(drop), Err(TieredBuildError::HasSink), "the copies' end does not remove the next one");
    drop(next);
}

/// A mover that makes room for itself the first time it is called.
#[derive(Default)]
struct Evicting {
    tiers: OnceLock<TieredCache>,
    did: AtomicBool,
}

impl Evicting {
    fn use_tiers(&self) {
        if self.did.swap(true, Relaxed) {
            return;
        }
        let tiers = self.tiers.get().expect("it was built");
        let space = tiers.cache().default_namespace();
        assert_eq!(tiers.evict(1), 1);
        // Evicts the rest for it, and brings what the host has.
        assert_eq!(serve(tiers, &space, &[21; 14]), (0, 0));
        assert!(tiers.session().acquire(&space, &[31; 14], 0).is_ok());
    }
}

impl Mover for Evicting {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        self.use_tiers();
        Ok(())
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        self.use_tiers();
        Ok(())
    }
}

// Holds: HT14.
#[test]
fn a_mover_that_evicts_and_inserts_does_not_wait_for_itself() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let mover = Arc::new(Evicting::default());
        let tiers = builder(Arc::clone(&mover)).write_policy(write).build().expect("they go together");
        let space = tiers.cache().default_namespace();
        mover.did.store(true, Relaxed);
        for prompt in [A, B] {
            serve(&tiers, &space, prompt);
        }
        settle(&tiers);
        mover.tiers.set(tiers.clone()).expect("once");
        mover.did.store(false, Relaxed);
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            if write == WritePolicy::Back {
                tiers.evict(1);
            } else {
                serve(&tiers, &space, &[41, 42]);
                settle(&tiers);
            }
            done.send(tiers.stats().failed_offload_blocks)
        });
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(0), "{write:?}");
    }
}

/// A mover whose panics have payloads that panic when they are dropped, this many times.
struct PanicsWhenDropped(u32);

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Self(self.0 - 1));
        }
    }
}

struct Panicking;

impl Mover for Panicking {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        std::panic::panic_any(PanicsWhenDropped(2))
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        Ok(())
    }
}

// Holds: HT14.
#[test]
fn no_payload_of_a_panic_ends_the_movers_thread() {
    let tiers = builder(Panicking).build().expect("they go together");
    let (session, space) = (tiers.session(), tiers.cache().default_namespace());
    for _ in 0..2 {
        serve(&tiers, &space, A);
        assert_eq!(session.demote(&space, A), 4);
        let (done, is_done) = mpsc::channel();
        let tiers = tiers.clone();
        thread::spawn(move || {
            settle(&tiers);
            done.send(())
        });
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(()));
    }
    assert_eq!((tiers.stats().failed_offload_blocks, tiers.host().stats().reserved_blocks), (4, 0));
}
