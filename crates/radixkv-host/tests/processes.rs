//! Engine processes over one region: what one evicts another finds, also after the first was
//! killed. This test program starts itself as their workers.

mod common;
#[path = "../../radixkv-region/tests/common/worker.rs"]
mod worker;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use common::{Engine, Found, PATIENCE, folder, host, layout, prompt};
use radixkv_host::{HostTier, TierMode, radixkv_tiers::RegionTier};
use worker::{LIFE, kill, start, until_there};

/// Blocks of the region.
const BLOCKS: u32 = 64;

/// An engine process: a device of two blocks, a host of two, and the region.
fn engine(place: &Path) -> (Engine, HostTier) {
    let region = RegionTier::open_or_create(place, layout(), BLOCKS).expect("a region");
    let host = host(2).remote(region).build().expect("a tier");
    (Engine::new(2, &host, TierMode::Exclusive), host)
}

/// Serves prompts, each of which pushes the ones before it out; every byte that is found is
/// checked.
fn serve(engine: &Engine, host: &HostTier, numbers: impl IntoIterator<Item = u32>) -> Vec<Found> {
    let found = numbers.into_iter().map(|number| engine.serve(&prompt(number, 2))).collect();
    engine.evict_all();
    assert!(host.settle_remote(PATIENCE));
    found
}

/// What a worker does; nothing in the program that starts them.
#[test]
fn worker() {
    let Some((place, task)) = worker::task() else { return };
    let (engine, host) = engine(&place);
    let until = Instant::now() + LIFE;
    match task.as_str() {
        "leave" => {
            serve(&engine, &host, 0..8);
            println!("there");
            thread::sleep(LIFE);
        }
        "turn over" => {
            println!("there");
            let mut rng = fastrand::Rng::new();
            while Instant::now() < until {
                engine.serve(&prompt(rng.u32(0..60), 2));
            }
        }
        task => panic!("no task {task}"),
    }
}

// Holds: HT27.
#[test]
fn a_process_finds_what_another_one_evicted_before_and_after_it_is_killed() {
    let folder = folder();
    let place = folder.path().join("region");
    let mut first = start("leave", &place);
    until_there(&mut first);
    let (second, host) = engine(&place);
    assert_eq!(serve(&second, &host, 0..3), [(0, 0, 8); 3], "it lives");
    kill(first);
    assert_eq!(serve(&second, &host, 3..6), [(0, 0, 8); 3], "it was killed");
    // A process of later.
    drop((second, host));
    let (third, host) = engine(&place);
    assert_eq!(serve(&third, &host, 0..4), [(0, 0, 8); 4]);
    assert_eq!(host.remote_stats().expect("it has one").failed_blocks, 0);
}

// Holds: HT27.
#[test]
fn processes_that_are_killed_leave_no_wrong_byte() {
    let folder = folder();
    let place = folder.path().join("region");
    let (engine, host) = engine(&place);
    let mut rng = fastrand::Rng::with_seed(5);
    let mut from_others = 0;
    for round in 0..6 {
        let mut workers = [start("turn over", &place), start("turn over", &place)];
        workers.iter_mut().for_each(|worker| _ = until_there(worker));
        let until = Instant::now() + Duration::from_millis(rng.u64(20..80));
        // Longer until the first hit.
        while Instant::now() < until || (from_others == 0 && Instant::now() < until + PATIENCE / 2) {
            let number = rng.u32(0..60);
            from_others += engine.serve(&prompt(number, 2)).2;
        }
        workers.into_iter().for_each(kill);
        from_others += serve(&engine, &host, 10 * round..10 * round + 10).iter().map(|found| found.2).sum::<usize>();
    }
    assert!(from_others > 0);
    assert_eq!(host.stats().reserved_blocks + host.stats().pinned_blocks, 0);
    host.validate().expect("a valid tier");
}
