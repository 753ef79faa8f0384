//! Batches that are lost, in the cache's channel and in the publisher's queue; and a recorder that
//! comes late.

use std::{iter, sync::mpsc, thread, time::Duration};

use fastrand::Rng;
use radixkv::{Keys, NamespaceName, PrefixCache};
use radixkv_events::{
    CacheRecorder, Event, Follower, HashScheme, Medium, Numbered, Publisher, Scope, Stored, Subscriber, Verdict,
};

use super::truth::{BLOCK, feed, of_cache, of_follower};
use super::verbs::verb;

const ANY: &str = "tcp://127.0.0.1:0";

fn cache() -> PrefixCache {
    PrefixCache::builder(BLOCK, 96).build().expect("valid")
}

/// Runs verbs; in a cache that has a channel of one batch, more than it holds.
fn run(cache: &PrefixCache, seed: u64, verbs: usize) {
    let (session, mut dice) = (cache.session(), Rng::with_seed(seed));
    (0..verbs).for_each(|_| verb(cache, &session, &mut dice));
    cache.settle();
}

fn drain(recorder: &mut CacheRecorder) -> impl Iterator<Item = Numbered> {
    iter::from_fn(|| recorder.next().expect("events that follow from one another"))
}

/// A follower that can ask nothing and one that takes snapshots are both right again.
// Holds: WE8.
#[test]
fn a_channel_of_one_batch_loses_batches_and_nothing_stays_wrong() {
    let cache = cache();
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::xxh3()).channel(1).build();
    let (mut snapshots, mut deaf, mut asking) = (recorder.snapshots(), Follower::new(), Follower::new());
    let (mut last, mut gaps) = (None, 0);
    for round in 0..30 {
        // In every third round nothing is lost.
        run(&cache, round, if round % 3 == 0 { 5 } else { 1_000 });
        let mut batches: Vec<Numbered> = drain(&mut recorder).collect();
        // A loss is seen with the batch after it: one more change at the end.
        cache.namespace(&["unused"]).clear();
        batches.extend(drain(&mut recorder));
        for numbered in batches {
            assert!(last < Some(numbered.seq), "numbers grow");
            last = Some(numbered.seq);
            if let Verdict::Gap { .. } = feed(&mut asking, &numbered) {
                let snapshot = snapshots();
                asking.restore(snapshot.next, snapshot.epoch, &snapshot.events).expect("of one block size");
                assert!(matches!(feed(&mut asking, &numbered), Verdict::Applied | Verdict::Duplicate));
            }
            if let Verdict::Gap { .. } = feed(&mut deaf, &numbered) {
                gaps += 1;
                deaf.accept_gap(numbered.seq);
                assert!(!deaf.is_complete());
                assert_eq!(feed(&mut deaf, &numbered), Verdict::Applied);
            }
            assert!(deaf.is_complete(), "a batch after a gap says everything");
        }
        let truth = of_cache(&cache);
        assert_eq!(of_follower(deaf.holdings()), truth, "round {round}");
        assert_eq!(of_follower(asking.holdings()), truth, "round {round}");
    }
    assert!(gaps > 10 && recorder.lost_batches() > gaps, "{gaps} gaps");
    assert_eq!(recorder.resets(), gaps + 1);
}

/// The publisher's queue is full while its thread makes snapshots: subscribers recover by
/// themselves.
// Holds: WE8.
#[test]
fn a_subscriber_is_right_again_after_batches_were_lost_in_the_queue() {
    let cache = cache();
    run(&cache, 1, 300);
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::sglang()).rank(2).build();
    let publisher = Publisher::builder(ANY).replay(ANY).ring(4, 1 << 20).snapshot(recorder.snapshots());
    let publisher = publisher.queue(1).build().expect("free ports");
    let replay = publisher.replay_endpoint().expect("it has one");
    let subscriber = Subscriber::builder(publisher.endpoint()).replay(replay).start().expect("an endpoint");
    for round in 0.. {
        run(&cache, round, 500);
        recorder.pump(&publisher).expect("events that follow from one another");
        if round > 20 && publisher.lost_batches() > 0 {
            break;
        }
    }
    let truth = of_cache(&cache);
    // One more batch, so that a gap at the end is seen.
    let is_right = (0..2_000).any(|round| {
        if round % 100 == 0 {
            cache.namespace(&["unused"]).clear();
            recorder.pump(&publisher).expect("events that follow from one another");
        }
        thread::sleep(Duration::from_millis(5));
        subscriber.with(|follower| follower.is_complete() && of_follower(follower.holdings()) == truth)
    });
    assert!(is_right, "{} batches were lost", publisher.lost_batches());
    assert_eq!(subscriber.with(|follower| follower.epoch()), Some(recorder.epoch()));
}

/// The same with a subscriber that can ask nobody: the publisher says everything anew.
// Holds: WE8.
#[test]
fn a_subscriber_that_cannot_ask_is_right_again_after_a_loss_in_the_queue() {
    let cache = cache();
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::xxh3()).build();
    let publisher = Publisher::builder(ANY).queue(1).build().expect("a free port");
    let subscriber = Subscriber::builder(publisher.endpoint()).start().expect("an endpoint");
    let mut pump = || recorder.pump(&publisher).expect("events that follow from one another");
    for round in 0..2_000 {
        run(&cache, round, 500);
        pump();
        if round > 20 && publisher.lost_batches() > 0 {
            break;
        }
    }
    assert!(publisher.lost_batches() > 0);
    let truth = of_cache(&cache);
    // What is said anew is one batch: nothing else is stored or removed any more.
    let is_right = (0..2_000).any(|_| {
        pump();
        thread::sleep(Duration::from_millis(5));
        subscriber.with(|follower| follower.is_complete() && of_follower(follower.holdings()) == truth)
    });
    assert!(is_right, "{} batches were lost", publisher.lost_batches());
    assert!(recorder.resets() > 1);
}

/// While the publisher's queue is full nothing is said anew: it takes long, and would be in vain.
#[test]
fn a_full_queue_is_told_nothing() {
    let cache = cache();
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::xxh3()).build();
    let (entered, at_snapshot) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let publisher = Publisher::builder(ANY).replay(ANY).queue(1).snapshot(move || {
        entered.send(()).expect("the test waits for it");
        let _ = left.recv();
        Default::default()
    });
    // The publisher's thread stands still while it makes a snapshot.
    let publisher = publisher.build().expect("free ports");
    let replay = publisher.replay_endpoint().expect("it has one").to_owned();
    let subscriber = Subscriber::builder(publisher.endpoint()).replay(replay).start().expect("an endpoint");
    at_snapshot.recv().expect("it is asked");
    while publisher.lost_batches() == 0 {
        run(&cache, publisher.lost_batches(), 500);
        recorder.pump(&publisher).expect("events that follow from one another");
    }
    let resets = recorder.resets();
    for round in 0..10 {
        run(&cache, round, 500);
        assert_eq!(recorder.pump(&publisher), Ok(0));
    }
    assert_eq!((recorder.resets(), publisher.lost_batches()), (resets, 1));
    drop(leave);
    drop(subscriber);
}

// Holds: WE8.
#[test]
fn a_recorder_that_comes_late_begins_with_everything() {
    let cache = cache();
    let first = CacheRecorder::builder(&cache, HashScheme::xxh3()).build();
    run(&cache, 7, 500);
    drop(first);
    let mut late = CacheRecorder::builder(&cache, HashScheme::xxh3()).medium(Medium::CpuTier1).build();
    let numbered = late.next().expect("stores").expect("at first there is always one");
    assert_eq!(numbered.batch.events.first(), Some(&Event::Cleared));
    let mut follower = Follower::new();
    assert_eq!(feed(&mut follower, &numbered), Verdict::Applied);
    assert_eq!(of_follower(follower.holdings()), of_cache(&cache));
    assert_eq!(follower.holdings().by_medium(), [(Medium::CpuTier1, follower.holdings().len())]);
    assert_eq!((late.next(), follower.is_complete()), (Ok(None), true));
}

/// A caller's own scopes; blocks of pairs say so, and have hashes of their own.
// Holds: WE9.
#[test]
fn namespaces_are_scopes_and_pairs_are_pairs() {
    let cache = PrefixCache::builder(2, 16).build().expect("valid");
    let adapters = |name: &radixkv::NamespaceName| name.parts().next().map_or_else(Scope::default, Scope::adapter);
    let mut recorder = CacheRecorder::builder(&cache, HashScheme::sglang()).scopes(adapters).build();
    recorder.next().expect("nothing yet");
    let session = cache.session();
    for keys in [Keys::Tokens, Keys::Bigrams] {
        let namespace = cache.namespace(NamespaceName::new(&["lora-7"]).with_keys(keys));
        let miss = session.match_prefix(&namespace, &[1, 2, 3, 4, 5]);
        drop(session.insert(miss.lease(), &[1, 2, 3, 4, 5], session.reserve(2).expect("room")).expect("fitting"));
    }
    let events = recorder.next().expect("stores").expect("two of them").batch.events;
    let [Event::Stored(tokens), Event::Stored(pairs)] = events.as_slice() else { panic!("{events:?}") };
    let told = |stored: &Stored| (stored.scope.clone(), stored.bigrams, stored.tokens.clone(), stored.hashes.len());
    assert_eq!(told(tokens), (Scope::adapter("lora-7"), false, vec![1, 2, 3, 4], 2));
    assert_eq!(told(pairs), (Scope::adapter("lora-7"), true, vec![1, 2, 3, 4, 5], 2));
    assert!(tokens.hashes.iter().all(|hash| !pairs.hashes.contains(hash)));
    // SGLang hashes both tokens of each pair.
    assert_eq!(pairs.hashes, HashScheme::sglang().chain(&pairs.scope, &[1, 2, 2, 3, 3, 4, 4, 5], 4));
    cache.namespace(&["lora-7"]).remove();
    let events = recorder.next().expect("removals").expect("of the tokens").batch.events;
    let [Event::Removed(removed)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(removed.hashes.iter().rev().collect::<Vec<_>>(), tokens.hashes.iter().collect::<Vec<_>>());
}
