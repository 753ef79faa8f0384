//! A process that writes files and is killed at any moment: the next one finds whole blocks or
//! none.

mod common;

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{ABSENT, Bytes, blocks, checked, get_all, layout, put};
use radixkv_tiers::{FileTier, RemoteTier, Tier};

const FOLDER: &str = "RADIXKV_TIERS_KILLED_IN";
const BLOCKS: usize = 60;
/// Fewer fit than there are, so files are removed all the time.
const CAPACITY: u64 = 40 * 69_632;

fn open(folder: &Path) -> Tier<Bytes> {
    FileTier::new(folder, layout(16, 65_536), CAPACITY).open().unwrap()
}

/// The process that is killed, and in all other runs nothing.
#[test]
fn the_process_that_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let tier = open(folder.as_ref());
    let (layout, all) = (tier.layout().clone(), blocks(tier.layout(), BLOCKS));
    println!("open");
    let mut random = fastrand::Rng::new();
    let mut done = Vec::new();
    for _ in 0..100_000 {
        let block = random.choice(&all).unwrap();
        match random.u8(..10) {
            0 => drop(tier.remove(vec![block.key()])),
            1 | 2 => drop(tier.get_into(vec![common::get(block, &layout)])),
            _ => drop(tier.put_from(vec![put(block, &layout, None)])),
        }
        let wait = if tier.stats().in_flight > 8 { common::PATIENCE } else { Duration::ZERO };
        tier.poll(&mut done, wait);
        done.drain(..).filter(|end| matches!(end.outcome, radixkv_tiers::Outcome::Got(..))).for_each(|end| {
            let _ = checked(end, &layout);
        });
    }
}

// Holds: RT3.
#[test]
fn fifty_killed_processes_leave_whole_blocks_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = 0;
    for round in 0..50 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_open = said.map_while(Result::ok).any(|line| line.ends_with("open"));
        assert!(is_open, "the process ended");
        thread::sleep(Duration::from_micros(fastrand::u64(..30_000)));
        child.kill().unwrap();
        child.wait().unwrap();

        let tier = open(folder.path());
        let all = blocks(tier.layout(), BLOCKS);
        let ends = get_all(&tier, &all);
        assert!(ends.iter().all(|end| matches!(*end, Ok(()) | ABSENT)), "round {round}: {ends:?}");
        let stats = tier.stats();
        assert_eq!(stats.hits, stats.held_blocks);
        assert!(stats.held_bytes <= CAPACITY && stats.misses.total() == stats.misses.absent);
        assert_eq!(fs::read_dir(folder.path().join("unfinished")).unwrap().count(), 0);
        found += stats.hits as usize;
    }
    assert!(found > 0);
}
