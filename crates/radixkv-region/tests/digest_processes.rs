//! Processes that share a region of digest-keyed blocks and are killed: this test program starts
//! itself as their workers.
#![cfg(not(radixkv_loom))]

mod common;
#[path = "common/worker.rs"]
mod worker;

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::Place;
use radixkv_region::{
    DigestBlocks, DigestKey, DigestLayout, DigestObserver, DigestPut, DigestRegion, Namespace, NamespaceError,
    OpenError, Presence,
};
use rustix::process::{Pid, Signal, kill_process};
use worker::{LIFE, kill, start, until_there};

const CAPACITY: u32 = 64;
/// A kill is to hit the middle of a copy now and then.
const BYTES: usize = 32 << 10;
const BLOCKS: u64 = 150;
const QUOTA: u64 = 20;
const KILLS: usize = 100;

fn open(place: &Path) -> Result<Arc<DigestRegion>, OpenError> {
    DigestRegion::open_or_create(place, &DigestLayout::new(BYTES, CAPACITY)).map(Arc::new)
}

/// Two namespaces: one with checksums and a quota, one without both.
fn namespaces(region: &Arc<DigestRegion>) -> Result<[DigestBlocks; 2], NamespaceError> {
    let checked = region.namespace(&Namespace::new("checked", 36, BYTES).model("m"))?;
    checked.set_quota(QUOTA);
    Ok([checked, region.namespace(&Namespace::new("unchecked", 32, BYTES).model("m").checksum(false))?])
}

fn key(space: usize, block: u64) -> DigestKey {
    let mut digest = vec![0; [36, 32][space]];
    digest[..8].copy_from_slice(&block.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    DigestKey::new(&digest).expect("a digest")
}

/// Every word follows from the block.
fn content(space: usize, block: u64) -> Vec<u8> {
    let word = |at: u64| (at << 32 | block << 1 | space as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..BYTES as u64 / 8).flat_map(word).collect()
}

/// Stores and loads random blocks of both namespaces; what is loaded is right. Returns the longest
/// batch.
fn turn_over(spaces: &[DigestBlocks; 2], until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    let mut buffers = vec![vec![0; BYTES]; 3];
    while Instant::now() < until {
        let (space, first) = (fastrand::usize(..2), fastrand::u64(..BLOCKS - 3));
        let blocks = &spaces[space];
        let keys: Vec<_> = (first..first + 3).map(|block| key(space, block)).collect();
        let contents: Vec<_> = (first..first + 3).map(|block| content(space, block)).collect();
        let began = Instant::now();
        if fastrand::bool() {
            let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            blocks.put_from(&keys, &slices, None).expect("a batch");
        } else {
            let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
            let gets = blocks.get_into(&keys, &mut slices).expect("a batch");
            for ((get, found), content) in gets.iter().zip(&buffers).zip(&contents) {
                assert!(!get.is_hit() || found == content, "wrong bytes of a block after {first} in {space}");
            }
        }
        longest = longest.max(began.elapsed());
    }
    longest
}

/// What a worker does; nothing in the program that starts them.
#[test]
fn worker() {
    let Some((place, task)) = worker::task() else { return };
    match task.as_str() {
        "turn over" => {
            println!("there");
            let until = Instant::now() + LIFE;
            while Instant::now() < until {
                let region = open(&place).expect("opened");
                turn_over(&namespaces(&region).expect("opened"), Instant::now() + Duration::from_millis(20));
            }
        }
        "reserve" => {
            let region = open(&place).expect("opened");
            let [checked, unchecked] = namespaces(&region).expect("opened").map(Arc::new);
            let _rooms = [checked.reserve(&key(0, 7), None), unchecked.reserve(&key(1, 7), None)];
            assert_eq!(checked.put_from(&[key(0, 8)], &[&content(0, 8)], None), Ok(vec![DigestPut::Stored]));
            println!("there");
            thread::sleep(LIFE);
        }
        task => panic!("no task {task}"),
    }
}

// Holds: RG11.
#[test]
fn two_processes_killed_a_hundred_times_leave_no_wrong_byte_and_no_leak() {
    let place = Place::new("digest-kills");
    let region = open(place.path()).expect("created");
    let spaces = namespaces(&region).expect("opened");
    let mut workers: Vec<_> = (0..2).map(|_| start("turn over", place.path())).collect();
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        let mut worker = workers.remove(0);
        until_there(&mut worker);
        longest = longest.max(turn_over(&spaces, Instant::now() + Duration::from_micros(fastrand::u64(..8_000))));
        kill(worker);
        longest = longest.max(turn_over(&spaces, Instant::now() + Duration::from_micros(500)));
        assert!(workers.iter_mut().all(|worker| worker.try_wait().expect("asked").is_none()), "a worker failed");
        workers.push(start("turn over", place.path()));
    }
    workers.into_iter().for_each(kill);
    println!("{KILLS} kills: {:?}; longest batch {longest:?}", region.stats());
    region.recover();
    let (stats, census) = (region.stats(), region.census());
    assert_eq!((stats.in_flight, stats.processes, census.processes.len()), (0, 1, 1));
    assert_eq!(region.verify().removed, 0);
    // Each process had a put in flight when blocks were counted again, by up to two at once.
    assert!(census.namespaces[0].blocks <= QUOTA as usize + 6, "{census:?}");
    // All room can be used, and what is there is right. Nothing is in flight when blocks are
    // counted for the last time.
    region.clear();
    let mut worker = start("reserve", place.path());
    until_there(&mut worker);
    kill(worker);
    assert_eq!((region.recover(), region.clear()), (2, 1));
    for block in 0..QUOTA {
        assert_eq!(spaces[0].put_from(&[key(0, block)], &[&content(0, block)], None), Ok(vec![DigestPut::Stored]));
    }
    for block in 0..u64::from(CAPACITY) - QUOTA {
        assert_eq!(spaces[1].put_from(&[key(1, block)], &[&content(1, block)], None), Ok(vec![DigestPut::Stored]));
    }
    assert_eq!((region.stats().blocks, region.stats().evicted), (CAPACITY as usize, stats.evicted));
}

/// A process that is stopped anywhere, and lives on, holds nobody up.
// Holds: RG21.
#[test]
fn nothing_waits_for_a_process_that_is_stopped() {
    let place = Place::new("digest-stopped");
    let region = open(place.path()).expect("created");
    let spaces = namespaces(&region).expect("opened");
    let mut worker = start("turn over", place.path());
    until_there(&mut worker);
    let pid = Pid::from_child(&worker);
    for round in 0..30 {
        thread::sleep(Duration::from_micros(fastrand::u64(..3_000)));
        kill_process(pid, Signal::STOP).expect("stopped");
        let longest = turn_over(&spaces, Instant::now() + Duration::from_millis(3));
        let more = region.namespace(&Namespace::new(format!("round {round}"), 16, BYTES)).expect("opened");
        let _ = (more.clear(), region.census(), region.recover());
        drop(open(place.path()).expect("opened"));
        assert!(longest < LIFE / 4, "{longest:?}");
        kill_process(pid, Signal::CONT).expect("continued");
    }
    assert!(worker.try_wait().expect("asked").is_none(), "the worker failed");
    kill(worker);
    region.recover();
    assert_eq!((region.stats().in_flight, region.stats().processes), (0, 1));
}

// Holds: RG21.
#[test]
fn what_one_process_stored_another_one_loads_and_what_it_reserved_is_given_back() {
    let place = Place::new("digest-reserved");
    let region = open(place.path()).expect("created");
    let [checked, unchecked] = namespaces(&region).expect("opened");
    let mut worker = start("reserve", place.path());
    until_there(&mut worker);
    let census = region.census();
    let other = census.processes.iter().find(|process| !process.is_own).expect("the worker");
    assert_eq!((other.pid, other.is_dead, other.in_flight, other.blocks), (worker.id(), false, 2, 1));
    assert_eq!(region.recover(), 0);
    kill(worker);
    let observed = DigestObserver::open(place.path()).expect("opened").census();
    assert_eq!(observed.processes.iter().filter(|process| process.is_dead && process.in_flight == 2).count(), 1);
    let census = region.census();
    assert_eq!((census.processes.len(), observed.processes.len(), region.stats().processes), (2, 2, 2));
    assert!(census.processes.iter().any(|process| !process.is_own && process.is_dead && process.in_flight == 2));
    // Nothing waits for the dead one, and nothing of it is read.
    assert_eq!(checked.exists(&[key(0, 7), key(0, 8)]), Ok(vec![Presence::BeingWritten, Presence::Stored]));
    assert_eq!(unchecked.put_from(&[key(1, 7)], &[&content(1, 7)], None), Ok(vec![DigestPut::InFlight]));
    assert_eq!((region.recover(), region.stats().processes), (2, 1));
    let mut found = vec![0; BYTES];
    assert!(checked.get_into(&[key(0, 8)], &mut [&mut found]).expect("a batch")[0].is_hit());
    assert_eq!(found, content(0, 8));
    assert_eq!(unchecked.put_from(&[key(1, 7)], &[&content(1, 7)], None), Ok(vec![DigestPut::Stored]));
    let census = region.census();
    assert_eq!((census.ownerless_blocks, census.processes[0].blocks), (1, 1));
}
