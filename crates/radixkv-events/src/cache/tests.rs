//! Lists of everything that are several batches.

use std::iter;

use super::*;
use crate::{Follower, Verdict};

/// A list that exceeds a payload is several batches, which have numbers of their own, at first and
/// after losses. Snapshots are numbered accordingly.
// Holds: WE8.
#[test]
fn a_list_beyond_a_payload_is_several_batches() {
    let cache = PrefixCache::builder(2, 512).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let insert = |first: u32, blocks: usize| {
        let prompt = vec![first; 2 * blocks];
        let miss = session.match_prefix(&space, &prompt);
        drop(session.insert(miss.lease(), &prompt, session.reserve(blocks).expect("room")).expect("fitting"));
        // A snapshot ends a batch of the cache.
        drop(cache.snapshot());
    };
    insert(0, 100);
    insert(1, 3);
    let mut settings = CacheRecorder::builder(&cache, HashScheme::xxh3()).channel(1);
    settings.bounds = Bounds { events: 2, bytes: 1 << 20, hashes: 30 };
    let mut recorder = settings.build();
    let mut snapshots = recorder.snapshots();
    let mut restored = |next| {
        let (snapshot, mut follower) = (snapshots(), Follower::new());
        assert_eq!(snapshot.next, next);
        follower.restore(snapshot.next, snapshot.epoch, &snapshot.events).expect("of one block size");
        follower
    };
    // One follows from the beginning, the others from snapshots before each list.
    let mut followers = vec![Follower::new(), restored(1)];
    let mut blocks = 103;
    for round in 0..5 {
        let parts: Vec<Numbered> = iter::from_fn(|| recorder.next().expect("sound events")).collect();
        assert!(parts.len() > 2, "{} batches", parts.len());
        for numbered in &parts {
            assert!(numbered.batch.events.len() <= 2);
            for follower in &mut followers {
                while let Verdict::Gap { .. } = follower.take(numbered).expect("of one block size") {
                    follower.accept_gap(numbered.seq);
                }
            }
        }
        let next = parts.last().map(|last| last.seq + 1);
        for follower in &followers {
            assert_eq!((follower.next_seq(), follower.is_complete()), (next, true), "round {round}");
            assert_eq!((follower.holdings().len(), follower.holdings().unrooted()), (blocks, 0), "round {round}");
        }
        assert_eq!(recorder.resets(), round + 1);
        followers.push(restored(next.expect("there are batches")));
        // The channel holds one of these batches of the cache.
        for at in 0..2 + round as u32 {
            insert(10 * (round as u32 + 1) + at, 1);
            blocks += 1;
        }
    }
}

/// A queue that is shorter than the list gets one batch after the other, and none is lost.
#[test]
fn a_list_waits_for_room_in_the_queue() {
    let cache = PrefixCache::builder(1, 64).build().expect("valid");
    let (session, space, prompt) = (cache.session(), cache.default_namespace(), [1; 60]);
    let miss = session.match_prefix(&space, &prompt);
    drop(session.insert(miss.lease(), &prompt, session.reserve(60).expect("room")).expect("fitting"));
    let mut settings = CacheRecorder::builder(&cache, HashScheme::xxh3());
    settings.bounds = Bounds { events: 1, bytes: 1 << 20, hashes: 3 };
    let mut recorder = settings.build();
    let publisher = Publisher::builder("tcp://127.0.0.1:0").queue(1).build().expect("a free port");
    let mut sent = 0;
    // The clear, and twenty events of three blocks.
    while sent < 21 {
        sent += recorder.pump(&publisher).expect("sound events");
        std::thread::yield_now();
    }
    assert_eq!((sent, publisher.lost_batches(), recorder.resets()), (21, 0, 1));
}

/// Batches are lost at random, and followers begin from snapshots at random moments. Once they have
/// received the other batches, they hold what the cache holds.
// Holds: WE8.
#[test]
fn followers_from_snapshots_agree_whatever_is_lost() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cache = PrefixCache::builder(1, 64).build().expect("valid");
        let (session, space) = (cache.session(), cache.default_namespace());
        let mut settings = CacheRecorder::builder(&cache, HashScheme::xxh3()).channel(random.usize(1..5));
        settings.bounds = Bounds { events: random.usize(1..4), bytes: 1 << 20, hashes: random.usize(1..6) };
        let change = |random: &mut fastrand::Rng| {
            if random.usize(0..3) == 0 {
                cache.evict(random.usize(1..9));
            } else {
                let prompt: Vec<u32> = (0..random.u32(1..8)).map(|_| random.u32(0..3)).collect();
                let hit = session.match_prefix(&space, &prompt);
                let missing = prompt.len() - hit.blocks().len();
                drop(session.insert(hit.lease(), &prompt, session.reserve(missing).expect("room")).expect("fitting"));
            }
            drop(cache.snapshot());
        };
        (0..random.usize(0..9)).for_each(|_| change(&mut random));
        let mut recorder = settings.build();
        let mut snapshots = recorder.snapshots();
        let mut followers = vec![Follower::new()];
        let deliver = |followers: &mut Vec<Follower>, numbered: &Numbered| {
            for follower in followers {
                while let Verdict::Gap { .. } = follower.take(numbered).expect("of one block size") {
                    follower.accept_gap(numbered.seq);
                }
            }
        };
        let mut last = None;
        for _ in 0..random.usize(5..60) {
            match random.usize(0..8) {
                0 => {
                    let (snapshot, mut follower) = (snapshots(), Follower::new());
                    follower.restore(snapshot.next, snapshot.epoch, &snapshot.events).expect("of one block size");
                    followers.push(follower);
                }
                1..4 => change(&mut random),
                _ => {
                    let Some(numbered) = recorder.next().expect("sound events") else { continue };
                    assert!(last < Some(numbered.seq), "seed {seed}: {last:?}, then {}", numbered.seq);
                    if random.usize(0..6) == 0 {
                        // As `pump` does where the queue is full.
                        recorder.listed.clear();
                        recorder.next = None;
                    } else {
                        last = Some(numbered.seq);
                        deliver(&mut followers, &numbered);
                    }
                }
            }
        }
        while let Some(numbered) = recorder.next().expect("sound events") {
            deliver(&mut followers, &numbered);
        }
        let (snapshot, mut truth) = (snapshots(), Follower::new());
        truth.restore(snapshot.next, snapshot.epoch, &snapshot.events).expect("of one block size");
        let names = |follower: &Follower| follower.holdings().names().collect::<std::collections::HashSet<_>>();
        for follower in &followers {
            assert_eq!((follower.next_seq(), follower.is_complete()), (truth.next_seq(), true), "seed {seed}");
            assert_eq!((names(follower), follower.holdings().unrooted()), (names(&truth), 0), "seed {seed}");
        }
    }
}
