//! Flat combining: threads that wait for the evictor's lock publish requests, which the lock holder
//! serves.
//!
//! Property: a request is served once, or withdrawn. The lock holder sees the thread's writes
//! before it published the request, and the thread sees the lock holder's writes. All accesses of a
//! record's previous user happen before its next use.
//!
//! Edges: E24, E25.
//!
//! Seeded bugs: a request is published, accepted or served Relaxed; the thread checks for its
//! result Relaxed; a withdrawn request is served; a request's blocks are given back although its
//! thread has them.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{Actor, World, explore_less, explore_more, spawn};
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use radixkv::PrefixCache;
use radixkv::internals::{Requests, exploring_apart, publishing};

/// The list of requests, the evictor's lock, and memory for each thread, which the serving thread
/// may write meanwhile.
struct Crowd {
    requests: Requests,
    lock: Mutex<()>,
    memory: [UnsafeCell<u32>; 2],
}

// SAFETY: loom tracks the accesses of the cells.
unsafe impl Sync for Crowd {}
// SAFETY: as above.
unsafe impl Send for Crowd {}

impl Crowd {
    fn new() -> Arc<Self> {
        Arc::new(exploring_apart(|| Self {
            requests: Requests::default(),
            lock: Mutex::new(()),
            memory: std::array::from_fn(|_| UnsafeCell::new(0)),
        }))
    }

    fn write(&self, thread: usize) {
        // SAFETY: loom reports an access that is not ordered; the value is plain.
        self.memory[thread].with_mut(|uses| unsafe { *uses += 1 });
    }

    /// Makes a request for thread `thread`. Either the other thread serves it, or this thread takes
    /// the lock and serves the other one.
    fn ask(&self, thread: usize, near: usize) {
        self.write(thread);
        let Some(request) = self.requests.publish(near, thread + 1) else { return };
        let mut served = request.is_served().then(|| request.withdraw().expect("it was served"));
        if served.is_none() {
            let held = self.lock.lock().unwrap();
            served = request.withdraw();
            self.requests.serve(|n| {
                let other = n - 1;
                assert_ne!(other, thread, "it was taken back");
                self.write(other);
                vec![n as u32; n]
            });
            drop(held);
        }
        if let Some(blocks) = served {
            assert_eq!(blocks, vec![thread as u32 + 1; thread + 1]);
        }
        self.write(thread);
    }
}

#[test]
fn two_that_serve_each_other() {
    explore_more("publish, serve vs the same", || {
        let crowd = Crowd::new();
        let other = spawn({
            let crowd = crowd.clone();
            move || crowd.ask(1, 1)
        });
        crowd.ask(0, 0);
        other.join().unwrap();
        assert_eq!(crowd.requests.free(), 0, "who is served takes the blocks");
    });
}

/// The second thread publishes in a record that the first has freed, or finds no record.
#[test]
fn two_in_one_record() {
    explore_more("publish, serve vs the same record", || {
        let crowd = Crowd::new();
        let other = spawn({
            let crowd = crowd.clone();
            move || crowd.ask(1, 0)
        });
        crowd.ask(0, 0);
        other.join().unwrap();
    });
}

/// A thread that panics while it waits gives its blocks back, at any step of the serving thread.
#[test]
fn a_request_that_is_dropped_beside_its_server() {
    explore_more("publish, drop vs serve", || {
        let crowd = Crowd::new();
        let server = spawn({
            let crowd = crowd.clone();
            move || {
                let held = crowd.lock.lock().unwrap();
                let mut served = 0;
                crowd.requests.serve(|n| {
                    served += n;
                    vec![3; n]
                });
                drop(held);
                served
            }
        });
        drop(crowd.requests.publish(0, 1).expect("a free record"));
        let served = server.join().unwrap();
        assert_eq!(crowd.requests.free(), served);
    });
}

/// A cache in which each thread publishes its requests, with three sequences: 1 is evicted first, 3
/// last.
fn world() -> Arc<World> {
    let world = World::filled(publishing(PrefixCache::builder(1, 3)), 3, &[&[1], &[2], &[3]]);
    world.cache.set_time(5);
    world
}

/// A thread uses prefix 2 and then requests a block: the thread that evicts for it sees the use.
#[test]
fn a_use_before_a_request() {
    explore_less("use, reserve vs reserve", || {
        let world = exploring_apart(world);
        let user = spawn({
            let world = world.clone();
            move || {
                let actor = Actor::new(&world);
                assert_eq!(actor.find(&[2]).len_tokens(), 1);
                actor.session.reserve(1).expect("two are evictable")
            }
        });
        let mine = world.beside(|world| world.cache.session().reserve(1).expect("three are evictable"));
        let other = user.join().unwrap();
        assert_ne!(mine.blocks(), other.blocks());
        assert_eq!(world.cache.session().peek(&world.space, &[2]), 1, "1 and 3 went");
        drop((mine, other));
        world.close();
    });
}
