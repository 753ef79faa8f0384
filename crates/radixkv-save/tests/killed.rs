//! A process that saves and is killed at any moment: the next one finds a whole save.

mod common;

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{Memory, contents, layout, serve};
use radixkv::PrefixCache;
use radixkv_save::{Save, Saved};

const FOLDER: &str = "RADIXKV_SAVE_KILLED_IN";
const BLOCKS: usize = 4000;

/// A cache whose only sequence begins with the generation's number, in a namespace of its name.
fn generation(number: u32) -> (PrefixCache, Memory) {
    let (cache, memory) = (PrefixCache::builder(1, BLOCKS).build().unwrap(), Memory::new(BLOCKS));
    let tokens: Vec<u32> = (0..BLOCKS as u32).map(|at| number ^ at << 8).collect();
    assert!(serve(&cache, &cache.session(), &cache.namespace(&["generation"]), &memory, &tokens));
    (cache, memory)
}

/// The process that is killed, and in all other runs nothing.
#[test]
fn the_process_that_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let layout = layout(1);
    for number in 0..100_000 {
        let (cache, mut memory) = generation(number % 256);
        Save::new(&cache, &layout).to(&folder, &mut memory).unwrap();
        println!("saved");
    }
}

fn kill_processes(rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open: the process is to be killed, not to find that no one listens.
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let has_saved = said.by_ref().map_while(Result::ok).any(|line| line.ends_with("saved"));
        assert!(has_saved, "the process ended");
        thread::sleep(Duration::from_micros(fastrand::u64(..60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        check_whole(folder.path(), round);
    }
}

fn check_whole(folder: &Path, round: usize) {
    let saved = Saved::open(folder, &layout(1)).unwrap();
    let (cache, mut memory) = (PrefixCache::builder(1, BLOCKS).build().unwrap(), Memory::new(BLOCKS));
    let restored = saved.restore(&cache, &mut memory).unwrap();
    assert_eq!(restored.blocks, BLOCKS, "round {round}: {restored:?}");
    let space = cache.namespace(&["generation"]);
    let found = contents(&cache, Some(&memory), &[space.name()]);
    let first = found[&space.name()].iter().next().unwrap()[0];
    let all: Vec<u32> = (0..BLOCKS as u32).map(|at| first ^ at << 8).collect();
    assert_eq!(cache.session().peek(&space, &all), BLOCKS, "of one generation");
}

// Holds: SV5.
#[test]
fn four_killed_processes_leave_whole_saves() {
    kill_processes(4);
}

#[test]
#[ignore = "kills fifty processes, in some seconds; run by ci/nightly.sh"]
fn fifty_killed_processes_leave_whole_saves() {
    kill_processes(50);
}
