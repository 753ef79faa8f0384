//! Processes that share a region and are killed: this test program starts itself as their workers.
#![cfg(not(radixkv_loom))]
#![allow(unsafe_code)]

mod common;
#[path = "common/worker.rs"]
mod worker;

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use common::{Blocks, Place, layout};
use radixkv_region::{Get, Layout, Miss, OpenError, Put, PutError, Region, Reserve};
use worker::{LIFE, kill, start, until_there};

const CAPACITY: usize = 32;
const BLOCKS: usize = 100;
/// A kill is to hit the middle of a copy now and then.
const BYTES: usize = 64 << 10;

/// Blocks of 64 KiB, whose every word follows from their tokens.
struct Large {
    layout: Layout,
    blocks: Blocks,
    contents: Vec<Vec<u8>>,
}

impl Large {
    fn new() -> Self {
        let word = |block: u64, at: u64| (at << 32 | block).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let content = |block| (0..BYTES as u64 / 8).flat_map(|at| word(block, at)).collect();
        let layout = Layout::new(4, BYTES, CAPACITY as u32).model("killed");
        Self { layout, blocks: Blocks::new(BLOCKS), contents: (0..BLOCKS as u64).map(content).collect() }
    }

    fn content(&self, block: usize) -> &[u8] {
        &self.contents[block]
    }

    fn get(&self, region: &Region, block: usize, bytes: &mut [u8]) -> Get {
        let key = self.blocks.key(block);
        let got = region.get_into(&key, self.blocks.tokens(block), bytes).expect("one block");
        assert!(!got.is_hit() || bytes == self.content(block), "wrong bytes of block {block}");
        got
    }

    fn put(&self, region: &Region, block: usize) -> Put {
        let content = self.content(block);
        region.put(&self.blocks.key(block), self.blocks.tokens(block), content).expect("room")
    }
}

/// What a worker does; nothing in the program that starts them.
#[test]
fn worker() {
    let Some((place, task)) = worker::task() else { return };
    let large = Large::new();
    match task.as_str() {
        "turn over" => turn_over(&place, &large),
        "fill" => {
            let region = Region::open(&place, &large.layout).expect("opened");
            let Ok(Reserve::Room(mut room)) = region.reserve(&large.blocks.key(0), large.blocks.tokens(0), None) else {
                panic!("there is room")
            };
            room.write(0, &large.content(1)[..BYTES / 2]);
            println!("there");
            thread::sleep(LIFE);
        }
        "hold" => {
            let region = Region::open(&place, &large.layout).expect("opened");
            large.put(&region, 7);
            println!("there");
            thread::sleep(LIFE);
        }
        "create" => {
            println!("there");
            let until = Instant::now() + LIFE;
            while Instant::now() < until {
                let _ = fs::remove_file(&place);
                drop(Region::create(&place, &large.layout));
            }
        }
        "fork" => fork(&place, &large),
        "replace itself" => {
            let region = Region::open(&place, &large.layout).expect("opened");
            std::mem::forget(region.reserve(&large.blocks.key(0), large.blocks.tokens(0), None).expect("room"));
            let mut command = worker::command("count", &place);
            panic!("not replaced: {}", command.stdout(Stdio::inherit()).exec());
        }
        "count" => {
            let region = Region::open(&place, &large.layout).expect("opened");
            let stats = region.stats();
            println!("{} in flight, {} processes are there", stats.in_flight, stats.processes);
        }
        task => panic!("no task {task}"),
    }
}

/// Forks in the middle of filling an entry. The child finds blocks, and can neither put nor lose
/// any; it lives on.
fn fork(place: &Path, large: &Large) {
    let [region, closed] = [(); 2].map(|()| Region::open(place, &large.layout).expect("opened"));
    let reserve = |block: usize| region.reserve(&large.blocks.key(block), large.blocks.tokens(block), None);
    let Ok(Reserve::Room(mut room)) = reserve(0) else { panic!("there is room") };
    large.put(&region, 1);
    let done = place.with_extension("forked");
    // SAFETY: the child's other threads are gone; it needs none of their locks but the allocator's,
    // which survives a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let found = large.get(&region, 1, &mut vec![0; BYTES]).is_hit();
        let refused = matches!(reserve(2), Err(PutError::Forked { opener, process }) if opener != process);
        let lost = region.remove(&large.blocks.key(1)) || region.clear() + region.recover() > 0;
        // Neither goes back to the region: they are the parent's.
        room.write(0, large.content(3));
        room.publish();
        drop(closed);
        let is_well = found && refused && !lost && fs::write(&done, "").is_ok();
        thread::sleep(if is_well { LIFE } else { Duration::ZERO });
        // SAFETY: nothing of the child has to be torn down.
        unsafe { libc::_exit(0) };
    }
    let until = Instant::now() + LIFE / 4;
    while !done.exists() {
        assert!(Instant::now() < until, "the child is not well");
        thread::yield_now();
    }
    let _ = fs::remove_file(done);
    assert_eq!((region.stats().in_flight, region.stats().blocks, closed.stats().processes), (1, 1, 3));
    println!("{child} is there");
    thread::sleep(LIFE);
}

/// Opens the region again and again, and puts and gets blocks.
fn turn_over(place: &Path, large: &Large) {
    println!("there");
    let (until, mut bytes) = (Instant::now() + LIFE, vec![0; BYTES]);
    while Instant::now() < until {
        let region = Region::open(place, &large.layout).expect("opened");
        for _ in 0..200 {
            let block = fastrand::usize(..BLOCKS);
            let put_or_found = match fastrand::u32(..10) {
                0..5 => large.put(&region, block) == Put::Stored,
                5..9 => large.get(&region, block, &mut bytes).is_hit(),
                _ => region.remove(&large.blocks.key(block)),
            };
            std::hint::black_box(put_or_found);
        }
    }
}

/// Nothing of a dead process is left: all room can be used.
fn check(region: &Region, large: &Large) {
    let mut bytes = vec![0; BYTES];
    for block in 0..BLOCKS {
        let _ = large.get(region, block, &mut bytes);
    }
    region.clear();
    (0..BLOCKS).for_each(|block| assert_eq!(large.put(region, block), Put::Stored));
    let stats = region.stats();
    assert_eq!((stats.blocks, stats.in_flight), (CAPACITY, 0));
}

/// The longest verb of those that are done for some time.
fn longest(region: &Region, large: &Large, time: Duration, bytes: &mut [u8]) -> Duration {
    let (until, mut longest) = (Instant::now() + time, Duration::ZERO);
    while Instant::now() < until {
        let block = fastrand::usize(..BLOCKS);
        let (key, tokens) = (large.blocks.key(block), large.blocks.tokens(block));
        let began = Instant::now();
        let is_hit = region.get_into(&key, tokens, bytes).expect("one block").is_hit();
        longest = longest.max(began.elapsed());
        assert!(!is_hit || bytes == large.content(block), "wrong bytes of block {block}");
        let began = Instant::now();
        drop(region.reserve(&key, tokens, None).expect("room"));
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Kills workers at random moments, beside others that go on.
fn kill_at_random(kills: usize, test: &str) {
    let (place, large) = (Place::new(test), Large::new());
    let region = Region::create(place.path(), &large.layout).expect("created");
    let mut workers: Vec<_> = (0..3).map(|_| start("turn over", place.path())).collect();
    let (mut bytes, mut control, mut window) = (vec![0; BYTES], Duration::ZERO, Duration::ZERO);
    for killed in 0..kills {
        let mut worker = workers.remove(0);
        until_there(&mut worker);
        let time = Duration::from_micros(fastrand::u64(..20_000));
        control = control.max(longest(&region, &large, time, &mut bytes));
        kill(worker);
        window = window.max(longest(&region, &large, time, &mut bytes));
        assert!(workers.iter_mut().all(|worker| worker.try_wait().expect("asked").is_none()), "a worker failed");
        if killed + 3 <= kills {
            workers.push(start("turn over", place.path()));
        }
    }
    workers.into_iter().for_each(kill);
    // Opened anew, as after the end of all.
    let hits = region.stats().hits;
    let recovered = region.stats().recovered;
    drop(region);
    let region = Region::open(place.path(), &large.layout).expect("opened");
    let stats = region.stats();
    assert_eq!((stats.in_flight, stats.processes), (0, 1));
    println!(
        "{kills} kills: {hits} hits, {} blocks left, {} entries given back",
        stats.blocks,
        recovered + stats.recovered
    );
    println!("longest verb: {control:?} before a kill, {window:?} after one");
    check(&region, &large);
}

// Holds: RG1.
#[test]
fn processes_killed_at_random_leave_no_wrong_byte_and_no_leak() {
    let kills = env::var("REGION_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5);
    kill_at_random(kills, "kills");
}

#[test]
#[ignore = "kills fifty processes, in some seconds; run by ci/nightly.sh"]
fn fifty_processes_killed_at_random_leave_no_wrong_byte_and_no_leak() {
    kill_at_random(50, "fifty");
}

// Holds: RG3.
#[test]
fn what_a_killed_process_was_filling_is_given_back() {
    let (place, large) = (Place::new("filling"), Large::new());
    let region = Region::create(place.path(), &large.layout).expect("created");
    let mut worker = start("fill", place.path());
    until_there(&mut worker);
    let mut bytes = vec![0; BYTES];
    assert_eq!(large.get(&region, 0, &mut bytes), Get::Miss(Miss::BeingWritten));
    assert_eq!((large.put(&region, 0), region.recover()), (Put::InFlight, 0));
    assert_eq!((region.stats().in_flight, region.stats().processes), (1, 2));
    kill(worker);
    // A put of the same block notices by itself.
    assert_eq!(large.put(&region, 0), Put::Stored);
    let stats = region.stats();
    assert_eq!((stats.recovered, stats.in_flight, stats.processes), (1, 0, 1));
    assert!(large.get(&region, 0, &mut bytes).is_hit());
    check(&region, &large);
}

// Holds: RG8.
#[test]
fn a_forked_child_reads_and_what_its_parent_held_is_given_back_when_both_are_gone() {
    let (place, large) = (Place::new("fork"), Large::new());
    let region = Region::create(place.path(), &large.layout).expect("created");
    let mut worker = start("fork", place.path());
    let said = until_there(&mut worker);
    let child: i32 = said.split_whitespace().find_map(|word| word.parse().ok()).expect("the child's pid");
    kill(worker);
    // The child has the mapping still: what it could write to is not given to another process.
    assert_eq!((region.recover(), large.put(&region, 0), region.stats().in_flight), (0, Put::InFlight, 1));
    // SAFETY: a signal to a process of this test's own.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    let until = Instant::now() + LIFE;
    while region.recover() == 0 {
        assert!(Instant::now() < until, "nothing is given back");
        thread::yield_now();
    }
    assert_eq!((large.put(&region, 0), region.stats().in_flight, region.stats().processes), (Put::Stored, 0, 1));
    check(&region, &large);
}

// Holds: RG4.
#[test]
fn blocks_outlive_the_process_that_put_them() {
    let (place, large) = (Place::new("outlive"), Large::new());
    let region = Region::create(place.path(), &large.layout).expect("created");
    let mut worker = start("hold", place.path());
    until_there(&mut worker);
    kill(worker);
    let mut bytes = vec![0; BYTES];
    assert!(large.get(&region, 7, &mut bytes).is_hit());
    drop(region);
    let region = Region::open(place.path(), &large.layout).expect("opened");
    assert!(large.get(&region, 7, &mut bytes).is_hit());
    assert_eq!(region.stats().processes, 1);
}

// Holds: RG3.
#[test]
fn slots_of_killed_processes_are_used_again() {
    let (place, large) = (Place::new("slots"), Large::new());
    let region = Region::create(place.path(), &large.layout).expect("created");
    let mut more = vec![];
    let refused = loop {
        match Region::open(place.path(), &large.layout) {
            Ok(another) => more.push(another),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, OpenError::TooManyProcesses { slots: 64 }) && more.len() == 63, "{refused}");
    more.pop();
    let mut worker = start("hold", place.path());
    until_there(&mut worker);
    assert!(Region::open(place.path(), &large.layout).is_err());
    kill(worker);
    more.push(Region::open(place.path(), &large.layout).expect("the slot of the killed process"));
    assert_eq!(region.stats().processes, 64);
    drop(more);
    assert_eq!(region.stats().processes, 1);
}

/// A process that replaces itself keeps its id, and its old slot is recovered all the same.
// Holds: RG3.
#[test]
fn what_a_process_held_before_it_replaced_itself_is_given_back() {
    let (place, large) = (Place::new("exec"), Large::new());
    drop(Region::create(place.path(), &large.layout).expect("created"));
    let mut worker = start("replace itself", place.path());
    let said = until_there(&mut worker);
    assert!(worker.wait().expect("waited for").success());
    assert!(said.ends_with("0 in flight, 1 processes are there"), "{said}");
}

// Holds: RG5.
#[test]
fn a_region_that_is_made_when_its_maker_is_killed_is_whole_or_not_there() {
    let (place, large) = (Place::new("making"), Large::new());
    let name = place.path().file_name().expect("a name").to_str().expect("ASCII").to_owned();
    let unfinished = || {
        let files = fs::read_dir(place.path().parent().expect("a folder")).expect("listed").flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!(".{name}"))).count()
    };
    for _ in 0..4 {
        let mut worker = start("create", place.path());
        until_there(&mut worker);
        thread::sleep(Duration::from_micros(fastrand::u64(..10_000)));
        kill(worker);
        drop(Region::open_or_create(place.path(), &large.layout).expect("whole, or made"));
    }
    // What a killed maker left goes when the next one begins.
    let _ = fs::remove_file(place.path());
    check(&Region::create(place.path(), &large.layout).expect("made"), &large);
    assert_eq!(unfinished(), 0);
}

// Holds: RG5.
#[test]
fn many_processes_that_make_one_region_share_it() {
    let (place, layout) = (Place::new("race"), layout(8));
    let regions: Vec<_> = thread::scope(|scope| {
        let make = |_| scope.spawn(|| Region::open_or_create(place.path(), &layout).expect("opened or made"));
        let threads: Vec<_> = (0..8).map(make).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(regions.iter().all(|region| region.stats().processes == 8));
}
