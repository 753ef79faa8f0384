//! Megabytes a second of saving and of opening and restoring a full cache, beside a file of the
//! same bytes that is written and synchronised, or read into the same memory; and the same for the
//! tree alone, in blocks a second.
//!
//! `cargo bench -p radixkv-save --bench save -- FOLDER`: the folder says which disk; `MIB` says how
//! many of them, 512 if it is not set. Before reads the system's page cache is emptied, where this
//! process may do that: otherwise they are from memory, and the column says so. Three rounds of
//! each, of which the median is shown, with the least and the most.

use std::{
    env,
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use radixkv::PrefixCache;
use radixkv_save::{BlockBytes, Layout, Save, Saved, TreeOnly};

const BLOCK_SIZE: usize = 16;
/// Blocks of a sequence; a quarter of them are in common with others.
const SEQUENCE: usize = 64;
const ROUNDS: usize = 3;

/// Blocks in one piece of memory.
struct Host {
    memory: Vec<u8>,
    block_bytes: usize,
}

impl Host {
    fn new(blocks: usize, block_bytes: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let mut memory = vec![0; blocks * block_bytes];
        random.fill(&mut memory);
        Self { memory, block_bytes }
    }
}

impl BlockBytes for Host {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
        bytes.copy_from_slice(&self.memory[block as usize * self.block_bytes..][..self.block_bytes]);
        true
    }

    fn write(&mut self, block: u32, bytes: &[u8]) -> bool {
        self.memory[block as usize * self.block_bytes..][..self.block_bytes].copy_from_slice(bytes);
        true
    }
}

/// A cache whose blocks are all cached.
fn full(blocks: usize) -> PrefixCache {
    let cache = PrefixCache::builder(BLOCK_SIZE, blocks).build().expect("a cache");
    let (session, space) = (cache.session(), cache.default_namespace());
    for number in 0.. {
        let tokens: Vec<u32> = (0..(SEQUENCE * BLOCK_SIZE) as u32)
            .map(|at| if (at as usize) < SEQUENCE * BLOCK_SIZE / 4 { number / 4 } else { number } ^ at << 20)
            .collect();
        let hit = session.match_prefix(&space, &tokens);
        let missing = (SEQUENCE - hit.blocks().len()).min(cache.stats().free_blocks);
        if missing == 0 {
            return cache;
        }
        let end = (hit.blocks().len() + missing) * BLOCK_SIZE;
        drop(session.insert(hit.lease(), &tokens[..end], session.reserve(missing).expect("free")).expect("inserted"));
    }
    unreachable!("the pool is full some time");
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let parent = arguments.first().map_or_else(env::temp_dir, PathBuf::from);
    let mib: usize = env::var("MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(512);
    println!("{mib} MiB, in {}", parent.display());
    for block_bytes in [64 << 10, 1 << 20] {
        let blocks = (mib << 20) / block_bytes;
        let folder = tempfile::tempdir_in(&parent).expect("a folder");
        bytes(folder.path(), blocks, block_bytes);
    }
    let folder = tempfile::tempdir_in(&parent).expect("a folder");
    tree(folder.path(), 1 << 18);
}

fn bytes(folder: &Path, blocks: usize, block_bytes: usize) {
    let layout = Layout::new("bench", "bf16", BLOCK_SIZE, block_bytes).expect("a layout");
    let (cache, mut host) = (full(blocks), Host::new(blocks, block_bytes));
    let (mut writes, mut saves, mut reads, mut restores) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut state = "";
    for _ in 0..ROUNDS {
        let plain = folder.join("plain");
        writes.push(timed(|| {
            let mut file = File::create(&plain).expect("a file");
            host.memory.chunks(1 << 20).for_each(|chunk| file.write_all(chunk).expect("room"));
            file.sync_all().expect("synchronised");
        }));
        saves.push(timed(|| {
            let report = Save::new(&cache, &layout).to(folder, &mut host).expect("saved");
            assert_eq!(report.blocks, blocks);
        }));
        let mut fresh = Host { memory: vec![0; host.memory.len()], block_bytes };
        state = empty_page_cache();
        reads.push(timed(|| {
            let mut file = File::open(&plain).expect("a file");
            fresh.memory.chunks_mut(1 << 20).for_each(|chunk| file.read_exact(chunk).expect("whole"));
        }));
        assert!(fresh.memory == host.memory);
        fs::remove_file(plain).expect("there");
        fresh.memory.fill(0);
        empty_page_cache();
        let new = PrefixCache::builder(BLOCK_SIZE, blocks).build().expect("a cache");
        restores.push(timed(|| {
            let restored = Saved::open(folder, &layout).expect("a save").restore(&new, &mut fresh).expect("restored");
            assert_eq!(restored.blocks, blocks);
        }));
    }
    let amount = (blocks * block_bytes) as f64 / 1e6;
    println!("blocks of {} KiB, MB/s, {state}:", block_bytes >> 10);
    for (name, times) in [("plain write", writes), ("save", saves), ("plain read", reads), ("open, restore", restores)]
    {
        show(name, amount, times);
    }
}

fn tree(folder: &Path, blocks: usize) {
    let layout = Layout::new("bench", "bf16", BLOCK_SIZE, 1 << 20).expect("a layout");
    let cache = full(blocks);
    let (mut saves, mut restores) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        saves.push(timed(|| _ = Save::new(&cache, &layout).to(folder, &mut TreeOnly).expect("saved")));
        let new = PrefixCache::builder(BLOCK_SIZE, blocks).build().expect("a cache");
        restores.push(timed(|| {
            let restored =
                Saved::open(folder, &layout).expect("a save").restore(&new, &mut TreeOnly).expect("restored");
            assert_eq!(restored.blocks, blocks);
        }));
    }
    println!("the tree alone, {blocks} blocks, million blocks/s:");
    show("save", blocks as f64 / 1e6, saves);
    show("open, restore", blocks as f64 / 1e6, restores);
}

fn timed(act: impl FnOnce()) -> Duration {
    let began = Instant::now();
    act();
    began.elapsed()
}

fn empty_page_cache() -> &'static str {
    rustix::fs::sync();
    if fs::write("/proc/sys/vm/drop_caches", "1").is_ok() { "cold" } else { "warm" }
}

fn show(name: &str, amount: f64, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [most, median, least] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| amount / times[at].as_secs_f64());
    println!("  {name:<14} {median:>9.2}  ({least:.2} to {most:.2})");
}
