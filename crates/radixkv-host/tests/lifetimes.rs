//! How long blocks may be found in each tier, and which come there at all.

mod common;

use std::{sync::Arc, thread, time::Duration};

use common::{Engine, Fault, Faulty, PATIENCE, files, folder, host, prompt};
use radixkv::PrefixCache;
use radixkv_host::{Admission, TierMode, WritePolicy, radixkv_tiers::RemoteTier};

/// Long enough that a test's steps are over before it ends, on any machine.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(40);

// Holds: HT25.
#[test]
fn a_time_to_live_ends_in_the_host() {
    let host = host(8).time_to_live(LONG).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    let (one, other) = (prompt(1, 2), prompt(2, 2));
    let name = engine.space().name();
    engine.serve(&one);
    engine.serve(&other);
    engine.evict_all();
    assert_eq!(host.peek(&name, &one, 0), 8);
    host.set_time_to_live(&name, Some(Duration::ZERO));
    // It is here, and no lookup finds it.
    assert_eq!((host.peek(&name, &one, 0), host.match_from(&name, &other, 4).len_tokens()), (0, 0));
    assert_eq!((host.stats().cached_blocks, host.stats().expired_blocks), (1, 3));
    assert_eq!((host.remove_expired(), host.stats().cached_blocks), (1, 0));
    host.validate().expect("a valid tier");
    // What comes in the place of an expired block is found.
    host.set_time_to_live(&name, None);
    engine.serve(&one);
    engine.evict_all();
    assert_eq!((host.peek(&name, &one, 0), host.remove_expired()), (8, 0));
}

// Holds: HT25.
#[test]
fn a_time_of_one_namespace_changes_no_others() {
    let host = host(8).time_to_live(Duration::ZERO).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    let (one, tenant) = (prompt(1, 2), engine.tiers.cache().namespace(&["tenant"]));
    host.set_time_to_live(&tenant.name(), None);
    engine.serve(&one);
    engine.serve_in(&engine.tiers.session(), &tenant, &one).expect("room");
    engine.evict_all();
    let found = [engine.space(), tenant].map(|space| host.peek(&space.name(), &one, 0));
    assert_eq!(found, [0, 8]);
}

// Holds: HT25.
#[test]
fn what_leaves_the_host_after_its_time_goes_nowhere() {
    let folder = folder();
    let files = Arc::new(files(folder.path(), 64));
    let host = host(2).remote(Arc::clone(&files)).time_to_live(Duration::ZERO).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    for number in [1, 2] {
        engine.serve(&prompt(number, 2));
        engine.evict_all();
    }
    assert!(host.settle_remote(PATIENCE));
    assert_eq!((host.stats().evicted_blocks, files.stats().stored_blocks), (2, 0));
    assert_eq!(host.remote_stats().expect("it has remote tiers").stale_puts, 0, "no remote tier is asked");
}

// Holds: HT25.
#[test]
fn a_block_whose_time_is_over_is_replaced_when_it_comes_again() {
    let host = host(8).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    let (one, name) = (prompt(1, 2), engine.space().name());
    engine.serve(&one);
    engine.evict_all();
    host.set_time_to_live(&name, Some(SHORT));
    while host.peek(&name, &one, 0) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
    engine.serve(&one);
    host.set_time_to_live(&name, Some(LONG));
    engine.evict_all();
    assert_eq!((host.peek(&name, &one, 0), host.stats().cached_blocks), (8, 2));
    host.validate().expect("a valid tier");
}

// Holds: RT6, HT25.
#[test]
fn a_time_to_live_ends_in_a_remote_tier() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let folder = folder();
        let files = Arc::new(files(folder.path(), 64));
        let host = host(2).remote(Arc::clone(&files)).remote_write(write).time_to_live(SHORT);
        let host = host.build().expect("a tier");
        let engine = Engine::new(2, &host, TierMode::Shared);
        engine.serve(&prompt(1, 2));
        engine.evict_all();
        // In the host they expire too; what leaves it after that is not put.
        engine.serve(&prompt(2, 2));
        engine.evict_all();
        assert!(host.settle_remote(PATIENCE));
        thread::sleep(2 * SHORT);
        assert_eq!(engine.serve(&prompt(1, 2)), (0, 0, 0), "{write:?}");
        assert!(host.settle_remote(PATIENCE));
        let stats = files.stats();
        assert_eq!(stats.hits, 0, "{write:?}: {stats:?}");
        if write == WritePolicy::Through {
            // They were put at once, so they were there when their time was over; and they are put
            // again.
            engine.evict_all();
            assert!(host.settle_remote(PATIENCE));
            assert_eq!((stats.stored_blocks, files.stats().stored_blocks), (4, 6), "{stats:?}");
        }
    }
}

// Holds: HT25.
#[test]
fn a_time_to_live_goes_on_while_a_block_waits_to_be_put() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let folder = folder();
        let files = Faulty::new(files(folder.path(), 64));
        let host = host(2).remote(Arc::clone(&files)).remote_write(write).time_to_live(LONG);
        let host = host.build().expect("a tier");
        let name = PrefixCache::builder(1, 1).build().expect("a cache").default_namespace().name();
        let bring = |number| host.offload().reserve(&name, &prompt(number, 2), 0).publish();
        host.set_time_to_live(&name, Some(SHORT));
        files.set(Fault::IsSilent);
        // Written back, the first ones leave for the second ones, unless their time is over by then.
        assert_eq!([bring(1), bring(2)], [2, 2]);
        thread::sleep(2 * SHORT);
        files.set(Fault::None);
        assert!(host.settle_remote(PATIENCE));
        assert_eq!(files.stats().stored_blocks, 0, "{write:?}");
        let stale = host.remote_stats().expect("it has remote tiers").stale_puts;
        assert!(stale == 4 || write == WritePolicy::Back, "{stale}");
        // A block without a time to live is put.
        host.set_time_to_live(&name, None);
        assert_eq!([bring(3), bring(4)], [2, 2]);
        assert!(host.settle_remote(PATIENCE));
        assert!(files.stats().stored_blocks >= 2, "{write:?}");
    }
}

// Holds: HT26.
#[test]
fn a_block_comes_to_the_host_when_it_is_brought_for_the_second_time() {
    let host = host(8).admission(Admission::SecondTouch { remembered: 4 }).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    let serve = |number| {
        let found = engine.serve(&prompt(number, 2));
        engine.evict_all();
        found
    };
    assert_eq!([serve(1), serve(1), serve(1)], [(0, 0, 0), (0, 0, 0), (0, 8, 0)]);
    assert_eq!(host.stats().not_admitted_blocks, 2);
    // Two others, of two blocks each, are remembered in place of the first.
    assert_eq!([serve(2), serve(3), serve(4), serve(2)], [(0, 0, 0); 4]);
    assert_eq!((serve(2), host.stats().cached_blocks), ((0, 0, 0), 4), "it was forgotten once");
    assert_eq!(serve(2), (0, 8, 0));
}

// Holds: HT26.
#[test]
fn what_comes_once_reaches_no_tier() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let folder = folder();
        let files = Arc::new(files(folder.path(), 64));
        let host = host(2).admission(Admission::SecondTouch { remembered: 64 }).remote(Arc::clone(&files));
        let host = host.remote_write(write).build().expect("a tier");
        let engine = Engine::new(2, &host, TierMode::Shared);
        for number in 0..4 {
            engine.serve(&prompt(number, 2));
        }
        engine.evict_all();
        assert!(host.settle_remote(PATIENCE));
        assert_eq!((host.stats().cached_blocks, files.stats().held_blocks), (0, 0), "{write:?}");
        for number in 0..4 {
            engine.serve(&prompt(number, 2));
        }
        engine.evict_all();
        assert!(host.settle_remote(PATIENCE));
        assert!(files.stats().held_blocks > 0, "{write:?}");
        // What comes back from a remote tier is admitted.
        assert_eq!(engine.serve(&prompt(0, 2)), (0, 0, 8), "{write:?}");
    }
}
