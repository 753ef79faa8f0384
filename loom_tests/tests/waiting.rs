//! Waiting for blocks: threads take blocks, give them back, and wait for them.
//!
//! Property: each block is given to one taker. Everything that makes enough blocks available wakes
//! a waiter: dropping a reservation, the last lease on a prefix, or a lease on a stripe. A waiter
//! that leaves passes the wake-up on. A lost wake-up is a deadlock, which loom reports.
//!
//! Tasks are woken like threads, as is a background evictor that has found nothing to evict. A
//! waiter whose namespace is at its limit is woken by every change after which the quota may admit
//! it, and does not block other waiters.
//!
//! Edges: E15, E16, E17, E18, E21, E28, E29.
//!
//! Seeded bugs. No wake-up: after a release or a return; for the next waiter; after a refused
//! attempt; after the end of a sink's count; for waiters at their quota; by such a waiter for
//! another one; by an acquisition that releases its lease. Memory orders: `push`, `give_back`,
//! `leave`, or a late `enter`, without Acquire; an empty queue, or a sink's count, read without a
//! read-modify-write. Order of steps: the signal is read before the place is taken; a task's waker
//! is stored after its attempt; a background evictor does not check again after it has announced
//! that it waits; a background evictor, or a waiter at its quota, checks without the
//! read-modify-writes; a charge ends after its blocks were given back, or, after a refusal, without
//! the read-modify-write.
#![cfg(radixkv_loom)]

mod common;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Actor, World, explore, explore_less, explore_more, spawn};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::sync::{Condvar, Mutex};
use radixkv::internals::{Background, HotWord, SinkBlocks, at_rest, hot_points, inflate, waiting};
use radixkv::{BlockRequest, EvictedBatch, PrefixCache, PrefixMatch, Quota, Reservation, Token, Watermarks};

/// A world in which threads may wait and `sequences` are cached.
fn world(capacity: usize, sequences: &[&[Token]]) -> Arc<World> {
    World::filled(waiting(hot_points(PrefixCache::builder(1, capacity), 1)), capacity, sequences)
}

/// Waits for `n` blocks and takes them. No model can reach the deadline.
fn wait_for(world: &World, n: usize) -> Reservation {
    let far = Instant::now() + Duration::from_secs(3600);
    let blocks = world.cache.session().reserve(BlockRequest::new(n).until(far)).expect("they come");
    world.write(&[7, 8][..n], 0, &blocks);
    blocks
}

// Holds: WA3.
#[test]
fn a_reservation_returned_to_a_waiter() {
    explore("reserve 1, return vs wait for 1", || {
        let world = world(1, &[]);
        let held = world.cache.session().reserve(1).unwrap();
        world.write(&[1], 0, &held);
        let returner = spawn(move || drop(held));
        drop(world.beside(|world| wait_for(world, 1)));
        returner.join().unwrap();
        world.close();
    });
}

/// The leaseholder of the only block reads and releases it; a waiter gets it.
fn release_to_a_waiter(world: Arc<World>, held: PrefixMatch) {
    let holder = spawn({
        let world = world.clone();
        move || {
            world.check(&[1], 0, held.blocks());
            drop(held);
        }
    });
    drop(world.beside(|world| wait_for(world, 1)));
    holder.join().unwrap();
    world.close();
}

// Holds: WA3.
#[test]
fn a_lease_released_to_a_waiter() {
    explore("release vs wait for 1", || {
        let world = world(1, &[&[1]]);
        let held = Actor::new(&world).find(&[1]);
        release_to_a_waiter(world, held);
    });
}

/// One point is released twice. The last release may find the point marked as queued by the other
/// thread, which has not pushed it yet.
#[test]
fn two_leases_released_to_a_waiter() {
    explore_less("find, release vs release vs wait for 1", || {
        let world = world(1, &[&[1]]);
        let held = Actor::new(&world).find(&[1]);
        let finder = spawn({
            let world = world.clone();
            move || drop(Actor::new(&world).find(&[1]))
        });
        let holder = spawn(move || drop(held));
        drop(world.beside(|world| wait_for(world, 1)));
        holder.join().unwrap();
        finder.join().unwrap();
        world.close();
    });
}

/// Another thread's turn adds a leased run to the accounts after the waiter has counted the run's
/// block as reserved.
#[test]
fn a_new_run_released_to_a_waiter_beside_a_drain() {
    explore_less("insert 1, release vs wait for 1 vs drain", || {
        let world = world(1, &[]);
        let actor = Actor::new(&world);
        let (root, blocks) = (actor.find(&[1]), actor.session.reserve(1).unwrap());
        actor.fill(&[1], 0, &blocks);
        // The lease on the root is released later, because that would also wake the waiter.
        let holder = spawn(move || {
            let (actor, root) = (actor, root);
            drop(actor.session.insert(root.lease(), &[1], blocks).expect("the namespace stands"));
            root
        });
        let drainer = spawn({
            let world = world.clone();
            move || world.cache.run_once()
        });
        drop(world.beside(|world| wait_for(world, 1)));
        drop(holder.join().unwrap());
        drainer.join().unwrap();
        world.close();
    });
}

/// The batch that an eviction sink received, until it is dropped.
type Kept = Arc<(Mutex<Option<EvictedBatch>>, Condvar)>;

/// A world with one cached block, and a sink that keeps evicted blocks.
fn world_with_a_sink() -> (Arc<World>, Kept) {
    let kept = Kept::new((Mutex::new(None), Condvar::new()));
    let sink = {
        let kept = Arc::clone(&kept);
        move |batch: EvictedBatch| {
            *kept.0.lock().unwrap() = Some(batch);
            kept.1.notify_one();
        }
    };
    let builder = waiting(hot_points(PrefixCache::builder(1, 1), 1)).eviction_sink(sink);
    (World::filled(builder, 1, &[&[1]]), kept)
}

fn drop_kept(kept: &Kept) {
    let mut batch = kept.0.lock().unwrap();
    while batch.is_none() {
        batch = kept.1.wait(batch).unwrap();
    }
    let batch = batch.take();
    drop(batch);
}

#[test]
fn a_block_of_a_sink_dropped_to_a_waiter() {
    explore("a sink drops 1 vs wait for 1", || {
        let (world, kept) = world_with_a_sink();
        at_rest(|| assert_eq!(world.cache.evict(1), 1));
        let sink = spawn(move || drop_kept(&kept));
        drop(world.beside(|world| wait_for(world, 1)));
        sink.join().unwrap();
        world.close();
    });
}

/// The waiter's first attempt evicts the block, so the sink has it when the waiter starts to wait.
#[test]
fn a_block_that_a_waiter_evicts_itself() {
    explore("a sink drops what it is given vs wait for 1, evict 1", || {
        let (world, kept) = world_with_a_sink();
        let sink = spawn(move || drop_kept(&kept));
        drop(world.beside(|world| wait_for(world, 1)));
        sink.join().unwrap();
        world.close();
    });
}

/// Only the sink's count orders the two threads: there is no queue, no pool and no pinned thread.
#[test]
fn a_count_of_a_sink_that_a_waiter_has_looked_at() {
    explore_more("the end of a sink's count, look for waiters vs wait, look", || {
        let (kept, waiting) = (Arc::new(SinkBlocks::default()), Arc::new(AtomicUsize::new(0)));
        kept.begin(1);
        let sink = spawn({
            let (kept, waiting) = (kept.clone(), waiting.clone());
            move || {
                kept.end(1);
                waiting.load(Relaxed) == 1
            }
        });
        waiting.fetch_add(1, Relaxed);
        let counts_on_it = kept.for_waiter() == 1;
        assert!(!counts_on_it || sink.join().unwrap(), "a lost wake-up");
    });
}

/// The sink moves the block out of its batch, so only the end of the sink's count can wake the
/// waiter.
// Holds: RE4.
#[test]
fn a_block_that_a_sink_caches_again_released_to_a_waiter() {
    explore_less("a sink inserts 1 vs wait for 1", || {
        let (world, kept) = world_with_a_sink();
        at_rest(|| assert_eq!(world.cache.evict(1), 1));
        let sink = spawn({
            let world = world.clone();
            move || {
                let batch = kept.0.lock().unwrap().take().expect("it has the block");
                batch.pieces.into_iter().for_each(|piece| {
                    let session = world.cache.session();
                    let root = session.match_prefix(&world.space, &[]);
                    drop(session.insert(root.lease(), &piece.tokens, piece.blocks));
                });
                // The waiter evicts the block.
                drop_kept(&kept);
            }
        });
        drop(world.beside(|world| wait_for(world, 1)));
        sink.join().unwrap();
        world.close();
    });
}

// Holds: WA3.
#[test]
fn a_lease_on_a_stripe_released_to_a_waiter() {
    explore("release on a hot point vs wait for 1", || {
        let world = world(1, &[&[1]]);
        let actor = Actor::new(&world);
        assert!(inflate(actor.find(&[1]).lease()));
        let held = actor.find(&[1]);
        drop(actor);
        release_to_a_waiter(world, held);
    });
}

/// A thread that comes too late for a stripe is counted there briefly, and the waiter's sum may
/// include it. Then the slot stays, the lease in the word is released without a queued change, and
/// the thread can see the waiter only through the stripe.
// Holds: WA3.
#[test]
fn a_use_too_late_for_its_stripe_sees_the_waiter() {
    explore_more("use of a hot word, look for waiters vs wait, deflate", || {
        let (word, waiting) = (Arc::new(HotWord::default()), Arc::new(AtomicUsize::new(0)));
        let user = spawn({
            let (word, waiting) = (word.clone(), waiting.clone());
            move || (word.use_once(), waiting.load(Relaxed) == 1)
        });
        waiting.fetch_add(1, Relaxed);
        let idle = word.deflate();
        let (step, saw) = user.join().unwrap();
        assert!(idle || step || saw, "a lost wake-up");
    });
}

/// One return has enough blocks for two waiters: the first waiter wakes the second.
#[test]
fn one_return_for_two_waiters() {
    explore_less("return 2 vs wait for 1 vs wait for 1", || {
        let world = world(2, &[]);
        let held = world.cache.session().reserve(2).unwrap();
        let waiter = spawn({
            let world = world.clone();
            move || wait_for(&world, 1)
        });
        let returner = spawn(move || drop(held));
        let mine = world.beside(|world| wait_for(world, 1));
        returner.join().unwrap();
        drop((mine, waiter.join().unwrap()));
        world.close();
    });
}

/// A world in which the namespace can pin one block.
fn limited(capacity: usize, sequences: &[&[Token]]) -> Arc<World> {
    let world = world(capacity, sequences);
    world.space.set_quota(Quota::default().pinned_blocks(1));
    world
}

/// Takes a block that counts against the quota of the world's namespace; waits for it.
fn wait_at_the_limit(world: &World) -> Reservation {
    let far = Instant::now() + Duration::from_secs(3600);
    let request = BlockRequest::new(1).paid_by(&world.space);
    world.cache.session().reserve(request.until(far)).expect("it comes")
}

fn unlimited(world: &World) {
    world.space.set_quota(Quota::default());
}

/// The namespace's only charge ends; free blocks are always available.
// Holds: QU7.
#[test]
fn a_charge_returned_to_a_waiter() {
    explore("reserve 1 of 1, return vs wait for 1 of 1", || {
        let world = limited(2, &[]);
        let held = world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).unwrap();
        let returner = spawn(move || drop(held));
        drop(world.beside(|world| wait_at_the_limit(world)));
        returner.join().unwrap();
        unlimited(&world);
        world.close();
    });
}

/// The namespace's only lease is released.
#[test]
fn a_lease_released_to_a_waiter_at_its_limit() {
    explore_less("release vs wait for 1 of 1", || {
        let world = limited(2, &[&[1]]);
        let held = Actor::new(&world).find(&[1]);
        let holder = spawn(move || drop(held));
        drop(world.beside(|world| wait_at_the_limit(world)));
        holder.join().unwrap();
        unlimited(&world);
        world.close();
    });
}

/// A failing attempt briefly charges the namespace, which may hold back a waiter.
#[test]
fn a_refused_attempt_beside_a_waiter_at_its_limit() {
    explore_less("reserve 1 of 1, in vain or not vs return 1 vs wait for 1 of 1", || {
        let world = limited(1, &[]);
        let held =
            world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.cache.namespace(&["other"]))).unwrap();
        let taker = spawn({
            let world = world.clone();
            move || drop(world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)))
        });
        let returner = spawn(move || drop(held));
        drop(world.beside(|world| wait_at_the_limit(world)));
        (taker.join().unwrap(), returner.join().unwrap());
        unlimited(&world);
        world.close();
    });
}

/// The attempt is charged while its namespace has no limit. Then a limit is set, which the charge
/// exceeds.
// Holds: QU7.
#[test]
fn a_limit_set_beside_a_refused_attempt() {
    explore_less("reserve 2 in vain vs limit 1, wait for 1 of 1", || {
        let world = world(2, &[]);
        let held = world.cache.session().reserve(1).unwrap();
        let taker = spawn({
            let world = world.clone();
            move || drop(world.cache.session().reserve(BlockRequest::new(2).paid_by(&world.space)))
        });
        world.space.set_quota(Quota::default().pinned_blocks(1));
        drop(world.beside(|world| wait_at_the_limit(world)));
        taker.join().unwrap();
        unlimited(&world);
        drop(held);
        world.close();
    });
}

/// A waiter at its quota lets another waiter pass, which nothing else wakes.
// Holds: QU7.
#[test]
fn a_waiter_at_its_limit_lets_another_one_pass() {
    explore_less("wait for 1 of 1 vs wait for 1 vs return 1", || {
        let world = limited(2, &[]);
        let other = world.cache.namespace(&["other"]);
        let charged = world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).unwrap();
        let held = world.cache.session().reserve(BlockRequest::new(1).paid_by(&other)).unwrap();
        let tenant = spawn({
            let world = world.clone();
            move || wait_at_the_limit(&world)
        });
        let returner = spawn(move || drop(held));
        let far = Instant::now() + Duration::from_secs(3600);
        let request = BlockRequest::new(1).paid_by(&other);
        drop(world.cache.session().reserve(request.until(far)).expect("it comes"));
        drop(charged);
        returner.join().unwrap();
        drop(tenant.join().unwrap());
        unlimited(&world);
        world.close();
    });
}

/// An admission that its namespace's quota holds back does not block a growing sequence of that
/// namespace. When the earlier charge ends, the admission is also served.
// Holds: QU9.
#[test]
fn a_growth_past_an_admission_of_its_namespace() {
    explore_less("wait for 2 of 2, 1 charged vs wait to grow by 1", || {
        let world = world(3, &[]);
        world.space.set_quota(Quota::default().pinned_blocks(2));
        let charged = world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.space)).unwrap();
        let far = || Instant::now() + Duration::from_secs(3600);
        let admission = spawn({
            let world = world.clone();
            move || {
                let request = BlockRequest::new(2).paid_by(&world.space);
                drop(world.cache.session().reserve(request.until(far())).expect("it comes"));
            }
        });
        let request = BlockRequest::new(1).paid_by(&world.space).for_running_sequence();
        drop(world.cache.session().reserve(request.until(far())).expect("it comes"));
        drop(charged);
        admission.join().unwrap();
        unlimited(&world);
        world.close();
    });
}

/// An admission that tries first and finds too few blocks lets a growing sequence pass.
// Holds: QU9.
#[test]
fn an_overdue_admission_that_does_not_fit_beside_growth() {
    explore_less("wait for 2 of 2, 1 held vs wait to grow by 1", || {
        let world = world(2, &[]);
        let held = world.cache.session().reserve(1).unwrap();
        let admission = spawn({
            let world = world.clone();
            move || drop(wait_for(&world, 2))
        });
        let far = Instant::now() + Duration::from_secs(3600);
        let request = BlockRequest::new(1).for_running_sequence();
        drop(world.cache.session().reserve(request.until(far)).expect("it comes"));
        drop(held);
        admission.join().unwrap();
        world.close();
    });
}

/// During its attempt, an acquisition leases the only evictable block, which a growing sequence
/// needs. When it releases the lease, it must wake that sequence; nothing else does.
// Holds: QU8.
#[test]
fn an_acquisition_in_vain_beside_growth() {
    explore_less("acquire 1 8 vs wait to grow by 1", || {
        let world = world(2, &[&[1]]);
        let held = world.cache.session().reserve(1).unwrap();
        let far = || Instant::now() + Duration::from_secs(3600);
        let grower = spawn({
            let world = world.clone();
            move || {
                drop(
                    world
                        .cache
                        .session()
                        .reserve(BlockRequest::new(1).for_running_sequence().until(far()))
                        .expect("it comes"),
                )
            }
        });
        let acquirer = spawn({
            let world = world.clone();
            move || drop(world.cache.session().acquire_until(&world.space, &[1, 8], 0, far()).expect("it comes"))
        });
        grower.join().unwrap();
        drop(held);
        acquirer.join().unwrap();
        world.close();
    });
}

/// The acquisition's lease counts against its namespace's quota, so the growing sequence may be
/// refused by the quota during the acquisition's attempt.
// Holds: QU9.
#[test]
fn a_growth_beside_an_acquisition_of_its_namespace() {
    explore_less("acquire 1 2 8 vs wait to grow by 2, 3 of 3", || {
        let world = world(3, &[&[1, 2]]);
        world.space.set_quota(Quota::default().pinned_blocks(3));
        let held =
            world.cache.session().reserve(BlockRequest::new(1).paid_by(&world.cache.namespace(&["other"]))).unwrap();
        let far = || Instant::now() + Duration::from_secs(3600);
        let acquirer = spawn({
            let world = world.clone();
            move || drop(world.cache.session().acquire_until(&world.space, &[1, 2, 8], 0, far()).expect("it comes"))
        });
        let request = BlockRequest::new(2).paid_by(&world.space).for_running_sequence();
        drop(world.cache.session().reserve(request.until(far())).expect("it comes"));
        drop(held);
        acquirer.join().unwrap();
        unlimited(&world);
        world.close();
    });
}

/// Two threads take the only block without waiting: one gets it.
#[test]
fn two_takers_and_one_block() {
    explore("reserve 1 vs reserve 1", || {
        let world = world(1, &[&[1]]);
        let taker = |world: &Arc<World>| {
            let world = world.clone();
            spawn(move || world.cache.session().reserve(1).ok())
        };
        let takers = [taker(&world), taker(&world)];
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_eq!(taken.iter().flatten().count(), 1);
        drop(taken);
        world.close();
    });
}

/// A task's waker, on which the task's thread sleeps.
#[derive(Default)]
struct Woken {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Woken {
    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Polls until the request is ready, and sleeps between polls. After a lost wake-up it would sleep
/// forever.
fn await_one(world: &World) -> Reservation {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut waiting = Box::pin(world.cache.reserve_async(1));
    loop {
        if let Poll::Ready(blocks) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            return blocks.expect("it fits");
        }
        woken.sleep();
    }
}

#[test]
fn a_reservation_returned_to_a_task() {
    explore("reserve 1, return vs await 1", || {
        let world = world(1, &[]);
        let held = world.cache.session().reserve(1).unwrap();
        let returner = spawn(move || drop(held));
        drop(world.beside(|world| await_one(world)));
        returner.join().unwrap();
        world.close();
    });
}

/// The background evictor needs blocks, and all blocks become evictable while it checks: it finds
/// them, or it is woken.
fn release_to_the_background(world: Arc<World>, held: PrefixMatch) {
    let evictor = Background::of(&world.cache, Watermarks::new(1, 1));
    let holder = spawn(move || drop(held));
    let evictor = world.beside(move |_| {
        evictor.look();
        evictor
    });
    holder.join().unwrap();
    let free = || world.cache.stats().free_blocks;
    if free() == 0 {
        evictor.sleep();
        evictor.look();
    }
    assert_eq!(free(), 1);
    drop(evictor);
    world.close();
}

#[test]
fn a_lease_released_to_the_background_evictor() {
    explore("release vs a look of the background evictor", || {
        let world = world(1, &[&[1]]);
        let held = Actor::new(&world).find(&[1]);
        release_to_the_background(world, held);
    });
}

#[test]
fn a_lease_on_a_stripe_released_to_the_background_evictor() {
    explore("release on a hot point vs a look of the background evictor", || {
        let world = world(1, &[&[1]]);
        let actor = Actor::new(&world);
        assert!(inflate(actor.find(&[1]).lease()));
        let held = actor.find(&[1]);
        drop(actor);
        release_to_the_background(world, held);
    });
}
