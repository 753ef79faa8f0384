//! Bounds of turns, and of work in several turns: each does the work that was there when it began,
//! and no more than it is allowed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use super::super::{SLICE, Upkeep};
use crate::cache::eviction::background::Background;
use crate::cache::inner::STEP;
use crate::cache::turn::LockMode;
use crate::policy::{CandidateStats, Policy};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::thread;
use crate::{Clock, Eviction, Lease, Namespace, PrefixCache, Quota, Watermarks};

/// The background thread's interval depends on the shortest time.
// Holds: QU12.
#[test]
fn no_time_to_idle_outlives_its_namespace_or_its_change() {
    let cache = PrefixCache::builder(1, 8).build().expect("valid");
    let [a, b] = ["a", "b"].map(|name| cache.namespace(&[name]));
    let set = |space: &Namespace, seconds: Option<u64>| {
        let quota =
            seconds.map_or(Quota::default(), |seconds| Quota::default().time_to_idle(Duration::from_secs(seconds)));
        space.set_quota(quota);
        cache.inner.shortest_time_to_idle().map(|time| time.as_secs())
    };
    assert_eq!((set(&a, Some(9)), set(&b, Some(5)), set(&b, Some(7))), (Some(9), Some(5), Some(7)));
    assert_eq!((set(&b, Some(70)), set(&a, Some(80))), (Some(9), Some(70)));
    b.remove();
    cache.settings().set_time_to_idle(Some(Duration::from_secs(90)));
    assert_eq!(cache.inner.shortest_time_to_idle(), Some(Duration::from_secs(80)));
    assert_eq!(set(&a, None), Some(90));
    cache.settings().set_time_to_idle(None);
    assert_eq!(cache.inner.shortest_time_to_idle(), None);
}

thread_local! {
    /// The cache whose prefixes are leased and released whenever a candidate is filed, and how many
    /// times one was filed.
    static ENDLESS: RefCell<Option<(PrefixCache, usize)>> = const { RefCell::new(None) };
}

/// More candidates than one turn may file: a turn that files so many is endless.
const MANY: usize = 10_000;

/// Ranks as `lru` does, and makes new changes for each change that is taken in.
fn rank_endlessly(stats: CandidateStats, _: u32) -> (u64, u64) {
    let cache = ENDLESS.with_borrow_mut(|endless| {
        let (cache, filed) = endless.as_mut().expect("set while the policy is in force");
        *filed += 1;
        assert!(*filed < MANY, "a turn takes in changes made after it began");
        cache.clone()
    });
    for key in 0..KEYS {
        drop(cache.session().match_prefix(&cache.default_namespace(), &tokens(key)));
    }
    (stats.last, 0)
}

const KEYS: u32 = 20;

fn tokens(key: u32) -> [u32; 4] {
    [key, 1, 2, 3]
}

/// Caches `keys` sequences of one block each; returns a lease on each of them.
fn leases(cache: &PrefixCache, keys: u32) -> Vec<Lease> {
    let (session, space) = (cache.session(), cache.default_namespace());
    let one = |key| {
        let cold = session.match_prefix(&space, &tokens(key));
        session.insert(cold.lease(), &tokens(key), session.reserve(1).expect("room")).expect("fitting").lease
    };
    (0..keys).map(one).collect()
}

/// Runs `verb` under the endless policy, then sets a sound one again; returns how many times a
/// candidate was filed.
fn filed_by(verb: impl FnOnce(&PrefixCache)) -> usize {
    let cache = PrefixCache::builder(4, 64).clock(Clock::Logical).build().expect("sound");
    drop(leases(&cache, KEYS));
    ENDLESS.set(Some((cache.clone(), 0)));
    cache.inner.evicting(|evictor, _| evictor.ranking.policy = Policy::by(rank_endlessly, 0));
    verb(&cache);
    cache.inner.evicting(|evictor, _| evictor.ranking.policy = crate::PolicyKind::Lru.build());
    ENDLESS.take().expect("set above").1
}

// Holds: EV11.
#[test]
fn a_turn_ends_although_every_change_makes_another() {
    type Verb = fn(&PrefixCache);
    let verbs: [(&str, Verb); 8] = [
        ("stats", |cache| _ = cache.stats()),
        ("settle", PrefixCache::settle),
        ("run_once", |cache| _ = cache.run_once()),
        ("evict", |cache| _ = cache.evict(4)),
        ("clear", PrefixCache::clear),
        ("namespace_stats", |cache| _ = cache.default_namespace().stats()),
        ("a refused reserve", |cache| {
            let all = cache.session().reserve(60).expect("20 are evictable");
            assert!(cache.session().reserve(5).is_err());
            drop(all);
        }),
        ("a wait", |cache| {
            let all = cache.session().reserve(64).expect("all are evictable");
            assert!(cache.session().reserve(crate::BlockRequest::new(1).until(std::time::Instant::now())).is_err());
            drop(all);
        }),
    ];
    for (name, verb) in verbs {
        let filed = filed_by(verb);
        assert!(filed < 100 * KEYS as usize, "{name}: {filed} times");
    }
}

/// A request looks at as many first candidates as blocks are missing, up to 512. If these have
/// enough, it makes no pass over the leases, which would find the one on the last candidate.
#[test]
fn a_request_makes_a_pass_only_if_the_first_candidates_have_too_few_blocks() {
    let keys = 2000;
    for (missing, found) in [(32, 0), (33, 0), (512, 0), (513, 1), (1999, 1), (2000, 1)] {
        let cache = PrefixCache::builder(4, keys as usize).clock(Clock::Logical).build().expect("sound");
        drop(leases(&cache, keys));
        cache.settle();
        let held = cache.session().match_prefix(&cache.default_namespace(), &tokens(keys - 1));
        // Read without settling, which makes a pass.
        let protected = || cache.inner.stats().protected_blocks;
        assert_eq!(protected(), 0, "the lease is silent");
        assert_eq!(cache.session().reserve(missing).is_ok(), missing < 2000, "{missing}");
        assert_eq!(protected(), found, "{missing}");
        drop(held);
        assert_eq!(cache.validate(), Ok(()));
    }
}

/// No blocks are freed by a pass over the leases, so taking evicted ids makes none.
#[test]
fn taking_evicted_ids_makes_no_pass() {
    let cache = PrefixCache::builder(4, 8).external().build().expect("sound");
    let (session, space, pool) = (cache.session(), cache.default_namespace(), cache.external().expect("as built"));
    let insert = |key: u32, block| {
        let miss = session.match_prefix(&space, &tokens(key));
        drop(session.insert(miss.lease(), &tokens(key), pool.adopt(&[block]).expect("free")).expect("it fits"));
    };
    (0..2).for_each(|key| insert(key, key));
    cache.settle();
    let held = session.match_prefix(&space, &tokens(1));
    insert(2, 2);
    assert_eq!((cache.evict(1), pool.take_evicted(&mut Vec::new())), (1, 1));
    assert_eq!(cache.inner.stats().protected_blocks, 0, "the lease is silent");
    drop(held);
    assert_eq!(cache.validate(), Ok(()));
}

/// Each step takes in a bounded number of changes, with and without a time to idle.
// Holds: EV10.
#[test]
fn a_step_takes_in_a_bounded_number_of_changes() {
    for time_to_idle in [None, Some(std::time::Duration::from_nanos(5))] {
        let keys = 20 * STEP as u32;
        let builder = PrefixCache::builder(4, keys as usize).clock(Clock::Logical);
        let builder = time_to_idle.into_iter().fold(builder, |builder, duration| builder.time_to_idle(duration));
        let cache = builder.build().expect("sound");
        let held = leases(&cache, keys);
        cache.settle();
        cache.set_time(100);
        // Dropping leases runs no turn of the evictor.
        drop(held);
        // Read without settling.
        let protected = || cache.inner.stats().protected_blocks;
        let (mut before, mut steps) = (protected(), 0);
        assert_eq!(before, keys as usize);
        loop {
            let more = cache.run_once();
            let after = protected();
            assert!(before - after <= 2 * STEP, "{} in one step", before - after);
            (before, steps) = (after, steps + 1);
            if !more {
                break;
            }
        }
        assert_eq!(before, 0);
        assert!(steps >= keys as usize / STEP / 2, "{steps}");
    }
}

thread_local! {
    /// A cache, and how many blocks other threads have found in its accounts each time this thread
    /// filed a candidate.
    static FOUND: RefCell<Option<(PrefixCache, BTreeSet<u64>)>> = const { RefCell::new(None) };
}

/// Ranks as `lru` does, and looks at the accounts as another thread would.
fn rank_and_look(stats: CandidateStats, _: u32) -> (u64, u64) {
    FOUND.with_borrow_mut(|found| {
        if let Some((cache, found)) = found {
            found.insert(cache.inner.stats().inserted_blocks);
        }
    });
    (stats.last, 0)
}

/// A background evictor that never has to evict leaves the queue to a reservation. Between its
/// steps other threads find a part of the runs in the accounts.
#[test]
fn a_reservation_takes_in_the_queue_in_steps_beside_a_background_evictor() {
    let keys = 20 * STEP;
    let cache = PrefixCache::builder(4, keys).build().expect("sound");
    let idle = Background::start(|| ControlFlow::Continue(None)).expect("a thread");
    assert!(cache.inner.background.set(idle).is_ok(), "it has none");
    drop(leases(&cache, keys as u32));
    cache.inner.evicting(|evictor, _| evictor.ranking.policy = Policy::by(rank_and_look, 0));
    FOUND.set(Some((cache.clone(), BTreeSet::new())));
    assert_eq!(cache.session().reserve(1).map(|blocks| blocks.len()), Ok(1));
    let (_, found) = FOUND.take().expect("set above");
    assert!(found.len() >= keys / STEP / 2, "it took all in within {} holds of the lock", found.len());
    assert_eq!(cache.validate(), Ok(()));
}

/// The first of two namespaces exceeds its limit again after each slice: the second one is still
/// reached, and settling ends.
#[test]
fn settling_comes_to_every_namespace_that_is_beyond_its_limit() {
    let cache = PrefixCache::builder(4, 8 * SLICE).clock(Clock::Logical).build().expect("sound");
    let (session, names) = (cache.session(), [cache.namespace(&["first"]), cache.namespace(&["second"])]);
    let mut keys = 0..;
    let mut fill = |namespace| {
        for key in keys.by_ref().take(SLICE) {
            let cold = session.match_prefix(namespace, &tokens(key));
            drop(session.insert(cold.lease(), &tokens(key), session.reserve(1).expect("room")).expect("fitting"));
        }
    };
    names.iter().for_each(&mut fill);
    names.iter().for_each(|namespace| namespace.set_quota(Quota::default().cached_blocks(0)));
    cache.inner.settle_by(LockMode::Waits);
    let (mut work, mut slices) = (Upkeep::new(None), 0);
    // Under the lock, where an insert evicts nothing beyond a limit.
    while cache.inner.evicting(|evictor, resources| {
        let more = evictor.keep_up(&mut work, resources);
        fill(&names[0]);
        more
    }) {
        slices += 1;
        assert!(slices < 6, "settling does not end");
    }
    assert_eq!(names[1].stats().cached_blocks, 0);
    assert_eq!(cache.validate(), Ok(()));
}

/// No exchange was in progress when settling began.
#[test]
fn settling_leaves_an_exchange_that_begins_later_to_others() {
    let cache = PrefixCache::builder(4, 4 * SLICE).clock(Clock::Logical).build().expect("sound");
    drop(leases(&cache, 3 * SLICE as u32));
    cache.settle();
    let mut work = Upkeep::new(None);
    cache.inner.evicting(|evictor, resources| {
        assert!(!evictor.keep_up(&mut work, resources), "nothing is pending");
        evictor.begin_exchange(crate::PolicyKind::Lfu);
        assert!(!evictor.keep_up(&mut work, resources), "another thread's");
    });
    cache.settle();
    assert_eq!((cache.settings().policy(), cache.validate()), (crate::PolicyKind::Lfu, Ok(())));
}

/// While the first of two removals is in progress, the second must not return.
// Holds: NS6.
#[test]
fn the_second_drop_of_a_namespace_waits_for_the_first() {
    let cache = PrefixCache::builder(4, 8).build().expect("sound");
    let space = cache.namespace(&["tenant"]);
    let (first, second) = cache.inner.evicting(|_, _| {
        let dropping = || {
            let (_cache, space) = (cache.clone(), space.clone());
            thread::spawn(move || space.remove())
        };
        let (first, second) = (dropping(), dropping());
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(!first.is_finished() && !second.is_finished(), "lookups still find what is there");
        (first, second)
    });
    first.join().expect("dropped");
    second.join().expect("dropped");
    assert_eq!(cache.validate(), Ok(()));
}

/// There are many unused namespaces, and another thread is stopped with the names locked: a session
/// that evicts leaves the namespaces for later.
#[test]
fn a_reservation_does_not_wait_for_a_name_that_is_resolved() {
    let cache = PrefixCache::builder(4, 64).build().expect("sound");
    (0..200).for_each(|i| drop(cache.namespace(&[&i.to_string()])));
    cache.inner.namespaces.with_names_locked(|| {
        let (done, over) = std::sync::mpsc::channel();
        let user = cache.clone();
        thread::spawn(move || {
            let session = user.session();
            drop(leases(&user, 64));
            (0..100).for_each(|_| drop(session.reserve(1).expect("evicted")));
            done.send(()).expect("the test goes on");
        });
        over.recv_timeout(std::time::Duration::from_secs(60)).expect("a reservation waits");
        assert!(!cache.run_once(), "run_once leaves the names for later");
    });
    cache.settle();
    assert_eq!(cache.validate(), Ok(()));
}

/// A thread that lists everything needs the names while another thread is stopped with them locked:
/// other threads still evict.
#[test]
fn a_snapshot_that_waits_for_names_keeps_no_thread_from_evicting() {
    let cache = PrefixCache::builder(4, 64).build().expect("sound");
    drop(leases(&cache, 8));
    let (sender, listed) = std::sync::mpsc::channel();
    cache.inner.namespaces.with_names_locked(|| {
        let lister = cache.clone();
        thread::spawn(move || sender.send(lister.snapshot().events().count()));
        let (done, over) = std::sync::mpsc::channel();
        let user = cache.clone();
        thread::spawn(move || {
            while user.inner.evicting(|evictor, _| !evictor.is_listing()) {
                thread::yield_now();
            }
            let evicted = user.evict(1);
            user.default_namespace().clear();
            done.send(evicted).expect("the test goes on");
        });
        assert_eq!(over.recv_timeout(std::time::Duration::from_secs(60)), Ok(1));
    });
    assert_eq!(listed.recv(), Ok(8), "blocks evicted or cleared meanwhile are listed");
}

/// A run grows after a listing began, and is listed as it was.
#[test]
fn a_listing_has_nothing_of_what_was_appended_after_it_began() {
    let cache = PrefixCache::builder(4, 64).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let tokens: Vec<_> = (0..32).collect();
    let insert = |len: usize| {
        let start = session.acquire(&space, &tokens[..len], 0).expect("room");
        drop(session.insert(start.hit.lease(), &tokens[..len], start.blocks).expect("fits"));
        cache.settle();
    };
    (1..=4).for_each(|parts| insert(4 * parts));
    let id = cache.inner.evicting(|evictor, _| evictor.begin_listing());
    (5..=7).for_each(|parts| insert(4 * parts));
    assert!(cache.stats().runs < 7, "some parts were appended in place");
    let mut listing = cache.inner.evicting(|evictor, resources| {
        let root = space.0.root(resources.guard).expect("a root");
        let (runs, _) = super::super::runs_below(root, usize::MAX, resources.guard);
        evictor.list_slice(id, runs.into_iter(), resources);
        evictor.end_listing(id)
    });
    assert!(listing.runs.len() < 4, "under the lock there is one entry for each run");
    listing.list_pieces();
    let listed: u32 = listing.runs.iter().map(|part| part.at.len() as u32).sum();
    assert_eq!((listing.runs.len(), listed), (4, 16));
}

/// Policies that are abandoned or replaced are freed as fast as new ones are set.
// Holds: EV15.
#[test]
fn what_is_left_of_exchanges_does_not_pile_up() {
    let cache = PrefixCache::builder(4, 4_096).build().expect("sound");
    drop(leases(&cache, 4_000));
    cache.settle();
    for i in 0..60 {
        cache.settings().set_policy([crate::PolicyKind::Lfu, crate::PolicyKind::Fifo][i % 2]);
        // Then the policy is in force, or is abandoned halfway.
        (0..i % 20).for_each(|_| _ = cache.run_once());
        let spent = cache.inner.evicting(|evictor, _| evictor.ranking.exchange.spent());
        assert!(spent <= 4_000 + 4_000, "{spent} candidates of policies that are not in force, at exchange {i}");
    }
}

/// The evictor's numbers of free, evictable and protected blocks change at different moments, but
/// numbers that are read together add up.
// Holds: NU1.
#[test]
fn numbers_read_at_any_moment_add_up() {
    let builder = PrefixCache::builder(4, 256).eviction(Eviction::Background(Watermarks::new(64, 128)));
    let cache = builder.build().expect("sound");
    let over = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..2_u32 {
            let (cache, over) = (&cache, &over);
            scope.spawn(move || {
                let (session, space) = (cache.session(), cache.default_namespace());
                for key in (0..).take_while(|_| over.load(Relaxed) == 0) {
                    let tokens: Vec<u32> = (0..256).map(|i| (key % 50) << 10 | worker << 9 | i).collect();
                    let cold = session.match_prefix(&space, &tokens);
                    if let Ok(blocks) = session.reserve((tokens.len() - cold.len_tokens()) / 4) {
                        drop(session.insert(cold.lease(), &tokens, blocks).expect("fitting"));
                    }
                }
            });
        }
        for _ in 0..20_000 {
            let stats = cache.inner.stats();
            let blocks = [stats.free_blocks, stats.reserved_blocks, stats.evictable_blocks, stats.protected_blocks];
            if blocks.iter().sum::<usize>() != 256 {
                over.store(1, Relaxed);
                panic!("{stats:?}");
            }
        }
        over.store(1, Relaxed);
    });
}

// Holds: NU10.
#[test]
fn what_was_kept_of_slots_goes_in_slices() {
    let blocks = 10_000;
    let cache = PrefixCache::builder(1, blocks).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let has_spent = || cache.inner.evicting(|evictor, _| evictor.ranking.has_spent());
    for _ in 0..2 {
        for token in 0..blocks as u32 {
            let start = session.acquire(&space, &[token], 0).expect("a free block");
            drop(session.insert(start.hit.lease(), &[token], start.blocks).expect("it fits"));
        }
        assert_eq!((cache.evict(blocks), has_spent()), (blocks, true));
        let slices = (1..).find(|_| !cache.run_once()).expect("it ends");
        assert!(!has_spent() && slices > 2, "{slices}");
    }
}

/// A limit that is raised leaves a note, and so does a namespace that ends.
// Holds: EV10.
#[test]
fn a_step_looks_at_few_namespaces_and_removes_the_notes_of_those_within_their_limits() {
    let cache = PrefixCache::builder(4, 512).build().expect("sound");
    let spaces: Vec<_> = (0..3 * SLICE).map(|name| cache.namespace(&[name.to_string().as_str()])).collect();
    let session = cache.session();
    for space in &spaces {
        let cold = session.match_prefix(space, &tokens(0));
        drop(session.insert(cold.lease(), &tokens(0), session.reserve(1).expect("room")).expect("it fits"));
    }
    cache.settle();
    for space in &spaces {
        space.set_quota(Quota::default().cached_blocks(0));
        space.set_quota(Quota::default());
    }
    spaces[0].remove();
    let noted = || {
        cache.inner.evicting(|evictor, _| {
            let group = |space: &Namespace| space.0.account.group.get(&evictor.owner).expect("it had a limit");
            spaces.iter().filter(|space| evictor.common.listeners.quotas.is_noted(group(space))).count()
        })
    };
    let mut counts = vec![noted()];
    while cache.run_once() {
        counts.push(noted());
    }
    counts.push(noted());
    assert!(counts.windows(2).all(|counts| counts[0] - counts[1] <= SLICE), "{counts:?}");
    assert_eq!((counts.first(), counts.last()), (Some(&spaces.len()), Some(&0)));
    assert_eq!(cache.stats().evictable_blocks, spaces.len() - 1);
}
