//! Forks: blocks that several reservations hold are counted once, copied before they are written
//! to, returned once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use radixkv::{InsertErrorKind, PrefixCache, Reservation, Session};

use crate::{Bench, sequence};

// Holds: RE14.
#[test]
fn a_forked_block_is_reserved_once_and_returned_once() {
    let bench = Bench::new(4, 8);
    let mut one = bench.session.reserve(3).expect("free blocks");
    let mut two = one.fork();
    let mut three = two.fork();
    assert_eq!((two.blocks(), three.blocks()), (one.blocks(), one.blocks()));
    assert!((0..3).all(|i| one.is_shared(i) && two.is_shared(i) && three.is_shared(i)));
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    drop(one);
    assert!(two.is_shared(0) && three.is_shared(0));
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    drop(three);
    assert!(!two.is_shared(0));
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    // Alone again, and forked once more.
    let again = two.fork();
    drop(two);
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    drop(again);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

// Holds: RE12.
#[test]
fn a_reservation_grows_by_another_whichever_was_forked() {
    for forked in 0..4 {
        let bench = Bench::new(4, 8);
        let mut front = bench.session.reserve(2).expect("free blocks");
        let mut behind = bench.session.reserve(2).expect("free blocks");
        let blocks = [front.blocks(), behind.blocks()].concat();
        let forks = [(forked & 1 > 0).then(|| front.fork()), (forked & 2 > 0).then(|| behind.fork())];
        front.append(behind);
        assert_eq!(front.blocks(), blocks);
        let shared: Vec<bool> = (0..4).map(|i| front.is_shared(i)).collect();
        assert_eq!(shared, [forked & 1 > 0, forked & 1 > 0, forked & 2 > 0, forked & 2 > 0]);
        assert_eq!(bench.accounts(), [4, 4, 0, 0]);
        drop(front.split(3));
        drop(front);
        let held = 2 * forks.iter().flatten().count();
        assert_eq!(bench.accounts(), [8 - held, held, 0, 0]);
        drop(forks);
        assert_eq!(bench.accounts(), [8, 0, 0, 0]);
    }
}

// Holds: RE13.
#[test]
#[should_panic(expected = "the reservation belongs to another cache")]
fn a_reservation_does_not_grow_by_another_caches() {
    let (one, other) = (Bench::new(4, 8), Bench::new(4, 8));
    let mut front = one.session.reserve(1).expect("free blocks");
    front.append(other.session.reserve(1).expect("free blocks"));
}

#[test]
fn a_reservation_that_was_not_forked_shares_nothing() {
    let bench = Bench::new(4, 8);
    let mut alone = bench.session.reserve(2).expect("free blocks");
    let mut fresh = bench.session.reserve(1).expect("free blocks");
    assert!(!alone.is_shared(0) && !alone.is_shared(1));
    assert!(alone.make_unique(1, &mut fresh).is_none());
    assert_eq!(fresh.len(), 1);
}

// Holds: RE15.
#[test]
fn the_last_block_is_copied_before_it_is_written_to() {
    let bench = Bench::new(4, 8);
    let mut one = bench.session.reserve(2).expect("free blocks");
    let mut two = one.fork();
    let mut fresh = bench.session.reserve(2).expect("free blocks");
    let (shared, expected) = (one.blocks()[1], fresh.blocks()[1]);
    let copy = two.make_unique(1, &mut fresh).expect("shared");
    assert_eq!((copy.source(), copy.destination()), (shared, expected));
    assert_eq!((two.blocks(), fresh.len()), (&[one.blocks()[0], expected][..], 1));
    // The source stays for the copy, though its other holder goes.
    drop(one);
    assert_eq!(bench.accounts(), [4, 4, 0, 0]);
    drop(copy);
    assert_eq!(bench.accounts(), [5, 3, 0, 0]);
    assert!(!two.is_shared(0) && !two.is_shared(1));
    drop((two, fresh));
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

// Holds: IN7.
#[test]
fn a_block_enters_the_tree_from_one_reservation_alone() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 12);
    let lease = bench.matched(&tokens);
    let mut one = bench.session.reserve(3).expect("free blocks");
    let two = one.fork();
    let mut rest = two;
    let front = rest.split(1);
    drop(front);
    let blocks = one.blocks().to_vec();
    // The first block is the first one's alone by now, the second is not.
    let error = bench.session.insert(&lease, &tokens, one).expect_err("shared");
    assert_eq!(error.kind, InsertErrorKind::SharedBlock { index: 1 });
    assert_eq!(
        (error.to_string(), error.reservation.blocks()),
        ("a fork also holds block 1 of the reservation: make it unique first".into(), &blocks[..])
    );
    assert_eq!((bench.accounts(), bench.peek(&tokens)), ([13, 3, 0, 0], 0));
    let mut one = error.reservation;
    let mut fresh = bench.session.reserve(2).expect("free blocks");
    drop((one.make_unique(1, &mut fresh), one.make_unique(2, &mut fresh)));
    let first = bench.session.insert(&lease, &tokens, one).expect("its own blocks");
    assert_eq!((first.lease.len_tokens(), first.blocks[0]), (12, blocks[0]));
    assert_eq!(bench.accounts(), [11, 2, 0, 3]);
    // The fork is alone with what is left, and goes in elsewhere.
    let other = sequence(2, 8);
    let lease = bench.matched(&other);
    let second = bench.session.insert(&lease, &other, rest).expect("alone");
    assert_eq!(second.blocks, blocks[1..]);
    drop((first, second, lease));
    assert_eq!(bench.accounts(), [11, 0, 5, 0]);
}

#[test]
fn a_fork_outlives_the_handles_of_its_cache() {
    let bench = Bench::new(4, 8);
    let mut one = bench.session.reserve(3).expect("free blocks");
    let two = one.fork();
    drop((bench, one));
    assert_eq!(two.len(), 3);
}

/// Threads that have forks of one reservation: a thread writes only to blocks that it has alone.
struct Forks {
    cache: PrefixCache,
    slots: Vec<AtomicU64>,
}

impl Forks {
    /// Writes to every block of a fork, after copying those that are shared, and sees that no other
    /// thread writes there.
    fn write(&self, session: &Session, mut fork: Reservation, author: u64, stamp: u64) {
        for i in 0..fork.len() {
            if fork.is_shared(i) {
                let Ok(mut fresh) = session.reserve(1) else { continue };
                if let Some(copy) = fork.make_unique(i, &mut fresh) {
                    let read = self.slots[copy.source() as usize].load(Relaxed);
                    assert_eq!(read, stamp + i as u64, "a shared block was written to");
                    self.slots[copy.destination() as usize].store(read, Relaxed);
                }
            }
            let slot = &self.slots[fork.blocks()[i] as usize];
            assert_eq!(slot.load(Relaxed), stamp + i as u64, "a block was written to by another fork");
            slot.store(author, Relaxed);
            std::thread::yield_now();
            assert_eq!(slot.load(Relaxed), author, "a block was recycled in a fork's hands");
            slot.store(stamp + i as u64, Relaxed);
        }
    }
}

// Holds: RE14, RE15.
#[test]
fn threads_that_fork_and_let_go_return_every_block_once() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 400;
    let cache = PrefixCache::builder(4, 40).build().expect("a sound setting");
    let slots = (0..40).map(|_| AtomicU64::new(0)).collect();
    let forks = Forks { cache, slots };
    for round in 1..=ROUNDS {
        let stamp = round << 20;
        let session = forks.cache.session();
        let mut first = session.reserve(1 + round as usize % 9).expect("everything was returned");
        for (i, &block) in first.blocks().iter().enumerate() {
            forks.slots[block as usize].store(stamp + i as u64, Relaxed);
        }
        let start = Barrier::new(THREADS as usize);
        let mut held: Vec<Reservation> = (1..THREADS).map(|_| first.fork()).collect();
        held.push(first);
        std::thread::scope(|scope| {
            for (author, fork) in held.into_iter().enumerate() {
                let (forks, start) = (&forks, &start);
                scope.spawn(move || {
                    let session = forks.cache.session();
                    start.wait();
                    if (author as u64 + round) % 3 == 0 {
                        drop(fork);
                    } else {
                        forks.write(&session, fork, author as u64 + 1, stamp);
                    }
                });
            }
        });
        assert_eq!(forks.cache.stats().free_blocks, 40, "round {round}");
    }
    forks.cache.validate().expect("sound");
}
