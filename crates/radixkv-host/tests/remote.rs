//! Remote tiers below the host: what goes there, what comes back, what must not, and what a tier
//! that fails costs.

mod common;

use std::{
    fs,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::{Engine, Fault, Faulty, PATIENCE, SIZE, files, folder, host, layout, prompt, remote_blocks};
use radixkv::PrefixCache;
use radixkv_host::{
    HostTier, MoveError, Mover, NoCopies, RemoteStats, RemoteWait, TierMode, TieredCache, ToDevice, ToHost,
    WritePolicy,
    radixkv_tiers::{FileTier, Layout, RegionTier, RemoteTier, Tier},
};

type Files = Arc<Faulty<Tier<Vec<u8>>>>;

/// A device of two blocks over a host of two, over files.
fn engine(folder: &Path, mode: TierMode) -> (Engine, HostTier, Files) {
    let files = Faulty::new(files(folder, 64));
    let host = host(2).remote(Arc::clone(&files)).build().expect("a tier");
    (Engine::new(2, &host, mode), host, files)
}

fn settle(host: &HostTier) -> RemoteStats {
    assert!(host.settle_remote(PATIENCE), "{:?}", host.remote_stats());
    host.remote_stats().expect("it has remote tiers")
}

/// Three prompts, of which two fit the host, and one the device.
fn prompts() -> [Vec<u32>; 3] {
    [1, 2, 3].map(|number| prompt(number, 2))
}

fn serve_all(engine: &Engine, prompts: &[Vec<u32>]) {
    prompts.iter().for_each(|prompt| _ = engine.serve(prompt));
}

/// Objects that lie in a folder.
fn objects(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.map(|path| if path.is_dir() { objects(&path) } else { usize::from(is_object(&path)) }).sum()
}

fn is_object(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.len() >= 60)
}

// Holds: HT17.
#[test]
fn what_leaves_the_host_is_found_in_a_remote_tier() {
    for mode in [TierMode::Exclusive, TierMode::Shared] {
        let folder = folder();
        let (engine, host, files) = engine(folder.path(), mode);
        let prompts = prompts();
        assert_eq!(prompts.each_ref().map(|prompt| engine.serve(prompt)), [(0, 0, 0); 3]);
        assert_eq!((settle(&host).put_blocks, files.stats().held_blocks), (2, 2), "the first one left the host");
        assert_eq!(engine.serve(&prompts[0]), (0, 0, 8), "{mode:?}");
        assert_eq!(engine.serve(&prompts[0]), (8, 0, 0));
        assert_eq!(engine.tiers.stats().remote_tokens, 8);
        let stats = settle(&host);
        assert_eq!((stats.fetched_blocks, stats.failed_blocks, stats.missed_blocks), (2, 0, 0));
        host.validate().expect("a valid tier");
    }
}

// Holds: HT17.
#[test]
fn a_prompt_is_put_together_from_all_tiers() {
    let folder = folder();
    let files = files(folder.path(), 64);
    // With room for what comes while the host's own blocks are read.
    let host = host(2).staging(1).remote(files).build().expect("a tier");
    let engine = Engine::new(4, &host, TierMode::Shared);
    let prompt = prompt(1, 4);
    engine.serve(&prompt);
    engine.tiers.evict(2); // The end goes to the host,
    engine.tiers.evict(1); // and the block before it; the last one leaves the host.
    settle(&host);
    assert_eq!(engine.serve(&prompt), (4, 8, 4));
}

// Holds: HT17.
#[test]
fn written_through_a_block_is_in_the_remote_tier_before_it_leaves() {
    let folder = folder();
    let tier = Arc::new(files(folder.path(), 64));
    let host = host(8).remote(Arc::clone(&tier)).remote_write(WritePolicy::Through).build().expect("a tier");
    let cache = PrefixCache::builder(SIZE, 4).build().expect("a cache");
    let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(TierMode::Shared);
    let tiers = tiers.write_policy(WritePolicy::Through).build().expect("they go together");
    let (session, space, prompt) = (tiers.session(), cache.default_namespace(), prompt(1, 3));
    for expected in [(3, 0), (3, 0)] {
        let start = session.acquire(&space, &prompt, 0).expect("room");
        drop(session.insert(&space, &start.lease, &prompt, start.blocks).expect("inserted"));
        let stats = settle(&host);
        assert_eq!((stats.put_blocks, stats.present_blocks), expected, "a block comes once");
    }
    assert_eq!(tier.stats().held_blocks, 3);
    assert_eq!((tiers.evict(3), settle(&host).put_blocks), (3, 3));
}

// Holds: HT17.
#[test]
fn another_process_or_a_restart_finds_what_was_left() {
    let folder = folder();
    let prompts = prompts();
    for expected in [[(0, 0, 0); 3], [(0, 0, 8), (0, 0, 0), (0, 0, 0)]] {
        let (engine, host, files) = engine(folder.path(), TierMode::Exclusive);
        assert_eq!(prompts.each_ref().map(|prompt| engine.serve(prompt)), expected);
        settle(&host);
        // The device's and the host's blocks are lost; the remote tier's are not. The last handle
        // closes it.
        drop((engine, host, files));
    }
}

#[test]
fn a_block_goes_to_each_tier_and_comes_from_the_first_that_has_it() {
    let folders = [(); 2].map(|()| folder());
    let [near, far] = folders.each_ref().map(|folder| Faulty::new(files(folder.path(), 64)));
    let host = host(2).remote(Arc::clone(&near)).remote(Arc::clone(&far)).build().expect("a tier");
    let engine = Engine::new(2, &host, TierMode::Shared);
    let prompts = prompts();
    serve_all(&engine, &prompts);
    settle(&host);
    assert_eq!([&near, &far].map(|tier| tier.stats().held_blocks), [2, 2]);
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 8));
    assert_eq!([&near, &far].map(|tier| tier.stats().hits), [2, 0]);
    near.set(Fault::Fails);
    settle(&host);
    engine.evict_all();
    host.clear();
    // What was put before a clear is not found after it.
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 0));
    serve_all(&engine, &prompts[1..]);
    settle(&host);
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 8), "the far one has it");
    assert_eq!(far.stats().hits, 2);
}

// Holds: HT19.
#[test]
fn a_tier_that_fails_costs_hits_and_nothing_else() {
    for fault in [Fault::Refuses, Fault::Fails, Fault::FailsGets, Fault::Panics] {
        let folder = folder();
        let (engine, host, files) = engine(folder.path(), TierMode::Shared);
        let prompts = prompts();
        serve_all(&engine, &prompts);
        settle(&host);
        files.set(fault);
        assert_eq!(engine.serve(&prompts[0]), (0, 0, 0), "{fault:?}");
        let stats = settle(&host);
        assert!(stats.failed_blocks > 0, "{fault:?}: {stats:?}");
        files.set(Fault::None);
        serve_all(&engine, &prompts[1..]);
        settle(&host);
        assert_eq!(engine.serve(&prompts[0]), (0, 0, 8), "{fault:?} is over");
        host.validate().expect("a valid tier");
    }
}

// Holds: HT19.
#[test]
fn files_that_were_changed_are_misses() {
    let folder = folder();
    let (engine, host, files) = engine(folder.path(), TierMode::Shared);
    let prompts = prompts();
    serve_all(&engine, &prompts);
    settle(&host);
    let damage = |path: &Path| {
        let mut bytes = fs::read(path).expect("a file");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(path, bytes).expect("written");
    };
    fn each(folder: &Path, act: &dyn Fn(&Path)) {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            match path.is_dir() {
                true => each(&path, act),
                false if is_object(&path) => act(&path),
                false => {}
            }
        }
    }
    each(folder.path(), &damage);
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 0));
    assert_eq!((settle(&host).missed_blocks, files.stats().misses.wrong_checksum), (2, 2));
}

// Holds: HT19.
#[test]
fn a_block_that_is_damaged_ends_what_is_found() {
    let folder = folder();
    let files = Arc::new(files(folder.path(), 64));
    let host = host(4).staging(4).remote(Arc::clone(&files)).build().expect("a tier");
    let engine = Engine::new(4, &host, TierMode::Shared);
    let prompts = [1, 2, 3].map(|number| prompt(number, 4));
    serve_all(&engine, &prompts);
    settle(&host);
    let key = remote_blocks(&prompts[0])[1].key().to_string();
    let path = folder.path().join("objects").join(&key[..2]).join(&key[2..]);
    let mut bytes = fs::read(&path).expect("it left the host");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&path, bytes).expect("written");
    // The blocks after it are there; every byte is compared.
    assert_eq!(engine.serve(&prompts[0]), (0, 0, SIZE));
    assert_eq!((settle(&host).missed_blocks, files.stats().hits), (1, 3));
}

/// Copies nothing up.
struct NoWayUp;

impl Mover for NoWayUp {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        Ok(())
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        Err(MoveError::new("planned"))
    }
}

// Holds: HT13.
#[test]
fn a_mover_that_fails_brings_nothing_from_a_remote_tier() {
    let folder = folder();
    let host = host(2).staging(4).remote(files(folder.path(), 64)).build().expect("a tier");
    let cache = PrefixCache::builder(SIZE, 2).build().expect("a cache");
    let tiers = TieredCache::builder(&cache, &host, NoWayUp).mode(TierMode::Shared).remote_wait(RemoteWait::All);
    let tiers = tiers.build().expect("they go together");
    let (session, space, prompts) = (tiers.session(), cache.default_namespace(), prompts());
    for prompt in &prompts {
        let start = session.acquire(&space, prompt, 0).expect("room");
        drop(session.insert(&space, &start.lease, prompt, start.blocks).expect("it is inserted"));
    }
    settle(&host);
    let start = session.acquire(&space, &prompts[0], 0).expect("room");
    assert_eq!((start.device_tokens, start.host_tokens, start.remote_tokens), (0, 0, 0));
    assert_eq!((settle(&host).fetched_blocks, tiers.stats().failed_onboard_tokens), (2, 8), "they came to the host");
    assert_eq!(tiers.stats().remote_tokens, 0);
}

// Holds: HT23.
#[test]
fn a_put_is_not_given_when_a_clear_came_while_the_tier_was_asked() {
    let folder = folder();
    let files = Faulty::new(files(folder.path(), 64));
    let host = host(2).remote(Arc::clone(&files)).build().expect("a tier");
    let engine = Engine::waiting(2, &host, TierMode::Shared, RemoteWait::BestEffort);
    files.set(Fault::IsSilent);
    serve_all(&engine, &prompts());
    assert_eq!(host.remote_stats().map(|stats| stats.puts_in_flight), Some(2));
    // The tier is asked meanwhile which of the blocks it has.
    thread::sleep(Duration::from_millis(30));
    host.clear();
    files.set(Fault::None);
    assert_eq!((settle(&host).put_blocks, files.stats().stored_blocks), (0, 0));
}

// Holds: HT19.
#[test]
fn a_tier_that_says_nothing_costs_a_request_no_more_than_its_bound() {
    let folder = folder();
    let files = Faulty::new(files(folder.path(), 64));
    let host = host(2).remote(Arc::clone(&files)).remote_timeout(Duration::from_millis(400));
    let host = host.build().expect("a tier");
    let prompts = prompts();
    let engine = Engine::new(2, &host, TierMode::Shared);
    serve_all(&engine, &prompts);
    settle(&host);
    files.set(Fault::IsSilent);
    let began = Instant::now();
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 0));
    assert!(began.elapsed() < PATIENCE / 2);
    assert!(settle(&host).failed_blocks >= 1);
    files.set(Fault::None);
    serve_all(&engine, &prompts[1..]);
    settle(&host);
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 8), "its buffers came back");
}

// Holds: HT22.
#[test]
fn a_request_that_does_not_wait_starts_from_what_has_come() {
    let folder = folder();
    let files = Faulty::new(files(folder.path(), 64));
    let host = host(2).staging(2).remote(Arc::clone(&files)).build().expect("a tier");
    let cache = PrefixCache::builder(SIZE, 4).build().expect("a cache");
    let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(TierMode::Shared);
    let tiers = tiers.remote_wait(RemoteWait::BestEffort).build().expect("they go together");
    let (session, space) = (tiers.session(), cache.default_namespace());
    let prompts = [1, 2].map(|number| prompt(number, 2));
    for prompt in &prompts {
        let start = session.acquire(&space, prompt, 0).expect("room");
        drop(session.insert(&space, &start.lease, prompt, start.blocks).expect("inserted"));
        tiers.evict(2);
    }
    settle(&host);

    files.set(Fault::IsSilent);
    let found = session.match_prefix(&space, &prompts[0]);
    let start = session.begin(&space, &prompts[0], 0, found).expect("room").wait();
    assert_eq!((start.len_tokens(), start.remote_tokens), (0, 0), "nothing has come");
    drop(start);
    let found = session.match_prefix(&space, &prompts[0]);
    files.set(Fault::None);
    let fetch = found.remote().expect("it asked");
    assert!(fetch.wait(RemoteWait::All));
    // The first fetch of these blocks pins them for a moment, too.
    settle(&host);
    assert_eq!((fetch.found_tokens(), fetch.arrived_tokens()), (8, 8));
    assert_eq!(host.stats().pinned_blocks, 2, "what came is held until the request has it");
    let start = session.begin(&space, &prompts[0], 0, found).expect("room").wait();
    assert_eq!((start.remote_tokens, start.lease.len_tokens()), (8, 8));
    assert_eq!(host.stats().pinned_blocks, 0);
}

#[test]
fn a_prompt_that_will_come_is_fetched_ahead() {
    let folder = folder();
    let (engine, host, _files) = engine(folder.path(), TierMode::Shared);
    let prompts = prompts();
    serve_all(&engine, &prompts);
    settle(&host);
    engine.evict_all();
    let (session, space) = (engine.tiers.session(), engine.space());
    assert!(!session.prefetch(&space, &prompts[0]), "the host does not have it yet");
    settle(&host);
    assert!(session.prefetch(&space, &prompts[0]));
    assert_eq!(engine.serve(&prompts[0]), (8, 0, 0));
}

// Holds: HT22.
#[test]
fn what_is_on_its_way_is_bounded() {
    let folder = folder();
    let files = Faulty::new(files(folder.path(), 64));
    let host = host(1).remote(Arc::clone(&files)).remote_in_flight(1).build().expect("a tier");
    let engine = Engine::waiting(4, &host, TierMode::Shared, RemoteWait::BestEffort);
    files.set(Fault::IsSilent);
    let prompt = prompt(1, 4);
    engine.serve(&prompt);
    (0..4).for_each(|_| _ = engine.tiers.evict(1));
    let stats = host.remote_stats().expect("it has remote tiers");
    assert_eq!(stats.full_puts, 2, "four came, one is left, one is on its way");
    let ask = || host.fetch(&engine.space().name(), &prompt, 0);
    assert!(ask().is_none(), "the request's own fetch is under way");
    assert_eq!(host.remote_stats().expect("it has remote tiers").full_fetches, 1);
    files.set(Fault::None);
    settle(&host);
    assert!(ask().is_some_and(|fetch| fetch.wait(RemoteWait::All)));
}

// Holds: HT23.
#[test]
fn what_was_put_before_a_clear_is_not_found_after_it() {
    let folder = folder();
    let (engine, host, _files) = engine(folder.path(), TierMode::Exclusive);
    let prompts = prompts();
    serve_all(&engine, &prompts);
    settle(&host);
    engine.tiers.clear_namespace(&engine.space());
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 0));
    // And later blocks are.
    serve_all(&engine, &prompts[1..]);
    settle(&host);
    assert_eq!(engine.serve(&prompts[0]), (0, 0, 8));
}

// Holds: HT23.
#[test]
fn what_must_not_be_stored_reaches_no_tier() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let folder = folder();
        let host = host(2).remote(files(folder.path(), 64)).remote_write(write).build().expect("a tier");
        let engine = Engine::new(2, &host, TierMode::Shared);
        let kept_out = host.keep_out(&engine.space().name());
        for number in 0..4 {
            assert_eq!(engine.serve(&prompt(number, 2)), (0, 0, 0));
        }
        engine.evict_all();
        settle(&host);
        assert_eq!((host.stats().cached_blocks, objects(folder.path())), (0, 0), "{write:?}");
        drop(kept_out);
        (0..4).for_each(|number| _ = engine.serve(&prompt(number, 2)));
        settle(&host);
        assert!(objects(folder.path()) > 0, "{write:?}");
    }
}

// Holds: HT23.
#[test]
fn a_put_that_a_clear_overtakes_is_taken_back() {
    let folder = folder();
    let files = Faulty::new(files(folder.path(), 64));
    let host = host(2).remote(Arc::clone(&files)).build().expect("a tier");
    let engine = Engine::waiting(2, &host, TierMode::Exclusive, RemoteWait::BestEffort);
    files.set(Fault::IsSilent);
    let prompts = prompts();
    serve_all(&engine, &prompts);
    // The tier was asked, or is about to be, and has said nothing.
    drop(host.keep_out(&engine.space().name()));
    files.set(Fault::None);
    settle(&host);
    assert_eq!((files.stats().held_blocks, objects(folder.path())), (0, 0));
}

// Holds: HT24.
#[test]
fn a_remote_tier_of_other_blocks_is_refused_with_both_values() {
    let refused = |other: Layout| {
        let folder = folder();
        let tiers = [layout(), other].map(|layout| {
            let folder = folder.path().join(layout.to_string().replace(['/', ' '], "_"));
            FileTier::new(folder, layout, 1 << 20).open().expect("opened")
        });
        let [one, other] = tiers;
        host(2).remote(one).remote(other).build().expect_err("refused").to_string()
    };
    let sizes = refused(Layout::new("model", "bf16", 2 * SIZE, 64).expect("a layout"));
    assert_eq!(sizes, "the host tier's block size is 4, remote tier 1 has 8: open both with one layout");
    let bytes = refused(Layout::new("model", "bf16", SIZE, 128).expect("a layout"));
    assert_eq!(bytes, "the host tier's block bytes is 64, remote tier 1 has 128: open both with one layout");
    let model = refused(Layout::new("other", "bf16", SIZE, 64).expect("a layout"));
    assert_eq!(model, "the host tier's model is model, remote tier 1 has other: open both with one layout");
    let keys = refused(layout().digest_keys(32, "sha256", "0").expect("a layout"));
    assert_eq!(keys, "the host tier's keys is tokens, remote tier 1 has digests: open both with one layout");
    let none = host(2).remote_in_flight(0).build().expect_err("refused").to_string();
    assert!(none.starts_with("0 remote blocks in flight"));
}

/// Two host tiers over one region stand for two processes.
// Holds: HT23.
#[test]
fn a_clear_ends_what_a_process_shares_with_others_and_takes_nothing_from_them() {
    let folder = folder();
    let over_region = || {
        let region = RegionTier::open_or_create(folder.path().join("region"), layout(), 64).expect("a region");
        let host = host(2).remote(region).build().expect("a tier");
        (Engine::new(2, &host, TierMode::Shared), host)
    };
    let leave = |(engine, host): &(Engine, HostTier), prompts: &[Vec<u32>]| {
        serve_all(engine, prompts);
        settle(host);
    };
    let (ours, other) = (over_region(), over_region());
    leave(&other, &prompts());
    assert_eq!(ours.0.serve(&prompts()[0]), (0, 0, 8), "they share a store");
    ours.0.tiers.clear_namespace(&ours.0.space());
    let all = prompts().each_ref().map(|prompt| ours.0.serve(prompt).2);
    assert_eq!(all, [0; 3], "neither what it put nor what others did");
    settle(&ours.1);
    assert_eq!(ours.0.serve(&prompts()[0]), (0, 0, 8), "what it put since");
    // What others have stays theirs, and what they put is theirs alone.
    assert_eq!(other.0.serve(&prompts()[0]), (0, 0, 8));
    leave(&other, &[7, 8, 9].map(|number| prompt(number, 2)));
    assert_eq!(ours.0.serve(&prompt(7, 2)), (0, 0, 0));
}

/// A prompt is matched on the device, its rest is fetched, and then everything is cleared and
/// computed again.
// Holds: HT7.
#[test]
fn no_prompt_is_put_together_from_before_and_after_a_clear() {
    let (folder, long) = (folder(), prompt(1, 3));
    let host = host(8).remote(files(folder.path(), 64)).build().expect("a tier");
    let engine = Engine::new(16, &host, TierMode::Exclusive);
    // The second one displaces the first one from the host.
    for prompt in [&long, &prompt(2, 8)] {
        engine.serve(prompt);
        engine.evict_all();
    }
    settle(&host);
    let (session, space) = (engine.tiers.session(), engine.space());
    engine.serve(&long[..SIZE]);
    let found = session.match_prefix(&space, &long);
    assert!(found.remote().is_some_and(|fetch| fetch.wait(RemoteWait::All) && fetch.arrived_tokens() > 0));
    engine.tiers.clear();
    engine.serve(&long);
    engine.evict_all();
    assert!(host.peek(&space.name(), &long, SIZE) > 0, "newer blocks are in the host");
    let start = session.begin(&space, &long, 0, found).expect("room").wait();
    assert_eq!((start.device_tokens, start.host_tokens, start.remote_tokens), (SIZE, 0, 0));
}
