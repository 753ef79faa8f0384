//! Remote tiers that say nothing: they cost their own hits and puts, and no other tier's.

mod common;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use common::{Engine, Fault, Faulty, PATIENCE, SIZE, files, files_that_accept, folder, host, prompt};
use radixkv::PrefixCache;
use radixkv_host::{
    HostTier, RemoteWait, TierMode, WritePolicy,
    radixkv_tiers::{RemoteTier, Tier},
};

/// How long a tier that does not answer is left out the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

type Files = Arc<Faulty<Tier<Vec<u8>>>>;

/// A device and a host of two blocks each over two tiers of files, and the folders of these.
struct World {
    engine: Engine,
    host: HostTier,
    tiers: [Files; 2],
    _folders: [tempfile::TempDir; 2],
}

fn world(timeout: Duration) -> World {
    let folders = [(); 2].map(|()| folder());
    let tiers = folders.each_ref().map(|folder| Faulty::new(files(folder.path(), 64)));
    let host = host(2).remote(Arc::clone(&tiers[0])).remote(Arc::clone(&tiers[1]));
    let host = host.remote_timeout(timeout).build().expect("a tier");
    World { engine: Engine::new(2, &host, TierMode::Shared), host, tiers, _folders: folders }
}

impl World {
    fn serve(&self, number: u32) -> usize {
        self.engine.serve(&prompt(number, 2)).2
    }

    /// Serves a prompt on another thread, and calls `watch` over and over meanwhile.
    fn serve_and_watch(&self, number: u32, mut watch: impl FnMut()) {
        thread::scope(|scope| {
            let request = scope.spawn(|| self.serve(number));
            while !request.is_finished() {
                watch();
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

// Holds: HT20.
#[test]
fn a_silent_tier_takes_no_hit_and_no_put_of_another() {
    for silent in [0, 1] {
        let world = world(Duration::from_secs(3));
        let healthy = &world.tiers[1 - silent];
        (1..=2).for_each(|number| assert_eq!(world.serve(number), 0));
        // From now on, so that it is not left out yet when blocks leave the host.
        world.tiers[silent].set(Fault::IsSilent);
        assert_eq!(world.serve(3), 0);
        wait_until("the healthy tier is given what leaves the host", || healthy.stats().held_blocks >= 2);
        assert_eq!(world.serve(1), 8, "tier {silent} is silent");
        world.tiers[silent].set(Fault::None);
        assert!(world.host.settle_remote(PATIENCE), "every order ends and every buffer comes back");
        wait_until("every buffer comes back", || {
            let stats = world.host.remote_stats().expect("it has remote tiers");
            (stats.puts_in_flight, stats.gets_in_flight) == (0, 0)
        });
    }
}

// Holds: HT20.
#[test]
fn a_block_is_read_without_the_answer_of_a_tier_below() {
    // So long that a request that waits for the silent tier takes the test's whole patience.
    let world = world(4 * PATIENCE);
    (1..=3).for_each(|number| _ = world.serve(number));
    assert!(world.host.settle_remote(PATIENCE));
    world.tiers[1].set(Fault::IsSilent);
    let began = Instant::now();
    assert_eq!(world.serve(1), 8);
    assert!(began.elapsed() < PATIENCE / 2);
    world.tiers[1].set(Fault::None);
}

// Holds: HT20.
#[test]
fn a_block_that_a_tier_has_lost_is_read_from_the_next() {
    let world = world(PATIENCE);
    (1..=3).for_each(|number| _ = world.serve(number));
    assert!(world.host.settle_remote(PATIENCE));
    world.tiers[0].set(Fault::FailsGets);
    assert_eq!(world.serve(1), 8);
    assert_eq!(world.tiers.each_ref().map(|tier| tier.stats().hits), [2, 2]);
}

// Holds: HT19.
#[test]
fn a_tier_that_leaves_three_requests_unanswered_is_left_out_and_asked_again() {
    // A quarter of it is longer than a thread of the other tier is stopped.
    let world = world(Duration::from_secs(4));
    let silent = &world.tiers[1];
    silent.set(Fault::IsSilent);
    let is_left_out =
        || world.host.remote_stats().is_some_and(|stats| format!("{stats:?}").contains("left_out_tiers: 1"));
    // The last moment at which the pause had not begun.
    let (mut served, mut not_yet) = (0, Instant::now());
    while !is_left_out() && served < 4 {
        served += 1;
        world.serve_and_watch(served, || {
            let now = Instant::now();
            if !is_left_out() {
                not_yet = now;
            }
        });
    }
    assert!(is_left_out(), "after {served} requests");
    let asked = silent.asked.load(Relaxed);
    world.serve_and_watch(served + 1, || {
        let asked_now = silent.asked.load(Relaxed);
        assert!(asked_now == asked || not_yet.elapsed() >= FIRST_PAUSE, "it is asked in the pause");
    });
    silent.set(Fault::None);
    wait_until("it is asked again", || {
        world.serve(fastrand::u32(100..1_000_000));
        silent.stats().held_blocks > 0
    });
    assert!(world.host.settle_remote(PATIENCE));
}

// Holds: HT20.
#[test]
fn a_lookup_of_a_new_prompt_asks_each_tier_for_one_block() {
    let world = world(PATIENCE);
    let long = prompt(1, 300);
    let fetch = world.host.fetch(&world.engine.space().name(), &long, 0).expect("it has remote tiers");
    assert!(fetch.wait(RemoteWait::All));
    assert_eq!(world.tiers.each_ref().map(|tier| tier.asked.load(Relaxed)), [1, 1]);
}

/// The buffer of one read takes all the room of a tier that accepts one item at once.
// Holds: HT20.
#[test]
fn what_waits_for_room_in_a_silent_tier_goes_on_without_it() {
    let (timeout, folders) = (Duration::from_secs(12), [folder(), folder()]);
    let small = Faulty::new(files_that_accept(1, folders[0].path(), 64));
    let healthy = Arc::new(files(folders[1].path(), 64));
    let host = host(4).remote(Arc::clone(&small)).remote(Arc::clone(&healthy));
    let host = host.remote_write(WritePolicy::Through).remote_timeout(timeout).build().expect("a tier");
    let name = PrefixCache::builder(1, 1).build().expect("a cache").default_namespace().name();
    let bring = |number| assert_eq!(host.offload().reserve(&name, &prompt(number, 4), 0).publish(), 4);
    for number in 1..=2 {
        bring(number);
        assert!(host.settle_remote(PATIENCE));
    }
    assert_eq!([small.stats().held_blocks, healthy.stats().held_blocks], [8, 8]);
    small.set(Fault::KeepsReads);
    let fetch = host.fetch(&name, &prompt(1, 4), 0).expect("it has remote tiers");
    assert!(fetch.wait(RemoteWait::All));
    let late = host.remote_stats().expect("it has remote tiers").late_fetches;
    assert_eq!((fetch.arrived_tokens(), late), (4 * SIZE, 0));
    drop(fetch);
    bring(3);
    assert!(host.settle_remote(timeout / 4 * 3), "the put ends before its timeout");
    assert_eq!([small.stats().held_blocks, healthy.stats().held_blocks], [8, 12]);
    small.set(Fault::None);
    wait_until("every buffer comes back", || {
        let stats = host.remote_stats().expect("it has remote tiers");
        (stats.puts_in_flight, stats.gets_in_flight) == (0, 0)
    });
}

/// A read takes half of the room of the second tier while a put is given to the first one.
// Holds: HT20.
#[test]
fn a_put_uses_what_room_there_is() {
    let folders = [folder(), folder()];
    let first = Faulty::new(files(folders[0].path(), 64));
    let small = Faulty::new(files_that_accept(2, folders[1].path(), 64));
    let host = host(4).remote(Arc::clone(&first)).remote(Arc::clone(&small)).remote_write(WritePolicy::Through);
    let host = host.build().expect("a tier");
    let name = PrefixCache::builder(1, 1).build().expect("a cache").default_namespace().name();
    let bring = |number, blocks| {
        assert_eq!(host.offload().reserve(&name, &prompt(number, blocks), 0).publish(), blocks);
    };
    // Only the second tier gets it; how many that one accepts is known now.
    first.set(Fault::Refuses);
    bring(1, 4);
    assert!(host.settle_remote(PATIENCE));
    assert_eq!(small.stats().held_blocks, 4);
    first.set(Fault::KeepsPuts);
    small.set(Fault::KeepsReads);
    bring(2, 2);
    wait_until("the first tier is given the blocks", || first.stats().held_blocks == 2);
    let fetch = host.fetch(&name, &prompt(1, 1), 0).expect("it has remote tiers");
    wait_until("the second tier reads", || small.stats().hits == 1);
    first.set(Fault::None);
    wait_until("the second tier is given the blocks", || small.stats().held_blocks == 6);
    small.set(Fault::None);
    assert!(fetch.wait(RemoteWait::All) && host.settle_remote(PATIENCE));
    assert_eq!(host.remote_stats().expect("it has remote tiers").failed_puts, 4, "those that were refused");
}
