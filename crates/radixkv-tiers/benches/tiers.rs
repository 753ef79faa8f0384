//! Megabytes a second into and out of each tier, with 32 blocks in flight, beside a copy of the
//! same bytes; and the longest that a call kept its caller.
//!
//! `cargo bench -p radixkv-tiers --bench tiers --all-features -- FOLDER [REDIS URL]`: the folder
//! says which disk. Before reads the system's page cache is emptied, where this process may do
//! that: otherwise they are from memory, and the column says so. Every block that is read is
//! compared.

use std::{
    env,
    hint::black_box,
    path::PathBuf,
    time::{Duration, Instant},
};

use radixkv_tiers::{Block, Completion, FileTier, Get, Layout, Outcome, Put, RemoteTier};

type Tier = dyn RemoteTier<Vec<u8>>;

const IN_FLIGHT: u64 = 32;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let folder = arguments.first().map_or_else(env::temp_dir, PathBuf::from);
    let mib: usize = env::var("MIB").ok().and_then(|mib| mib.parse().ok()).unwrap_or(512);
    println!("{mib} MiB, in {}", folder.display());
    println!("{:<28} {:>9} {:>9} {:>9} {:>12}", "tier", "block", "put MB/s", "get MB/s", "longest call");
    for block_bytes in [64 << 10, 1 << 20, 8 << 20] {
        let layout = Layout::new("bench", "bf16", 16, block_bytes).expect("a layout");
        let tokens: Vec<u32> = (0..16 * (mib << 20).div_ceil(block_bytes) as u32).collect();
        let blocks = layout.blocks("", &tokens);
        copy(&blocks, block_bytes);
        for direct in [false, true] {
            let folder = tempfile::tempdir_in(&folder).expect("a folder");
            let tier = FileTier::new(folder.path(), layout.clone(), u64::MAX).direct_io(direct).open().expect("a tier");
            measure(if direct { "files, direct" } else { "files, page cache" }, &tier, &blocks);
        }
        #[cfg(feature = "object-store")]
        {
            let store = std::sync::Arc::new(radixkv_tiers::object_store::memory::InMemory::new());
            let tier = radixkv_tiers::ObjectTier::new(store, "bench", layout.clone()).open().expect("a tier");
            measure("object store, in memory", &tier, &blocks);
        }
        #[cfg(feature = "redis")]
        if let Some(url) = arguments.get(1) {
            let prefix = format!("bench:{block_bytes}");
            let tier =
                radixkv_tiers::RedisTier::new(url, prefix, layout.clone()).timeout(PATIENCE).open().expect("a tier");
            measure("redis", &tier, &blocks);
            tier.remove(blocks.iter().map(Block::key).take(1024).collect()).expect("room");
            tier.poll(&mut Vec::new(), PATIENCE);
        }
    }
}

fn copy(blocks: &[Block], block_bytes: usize) {
    let source: Vec<Vec<u8>> = (0..IN_FLIGHT).map(|number| vec![number as u8; block_bytes]).collect();
    let mut target = source.clone();
    let began = Instant::now();
    for round in 0..blocks.len() {
        target[round % source.len()].copy_from_slice(black_box(&source[round % source.len()]));
    }
    black_box(&target);
    println!("{:<28} {:>9} {:>9.0}", "memcpy", block_bytes, rate(blocks, block_bytes, began.elapsed()));
}

fn rate(blocks: &[Block], block_bytes: usize, time: Duration) -> f64 {
    (blocks.len() * block_bytes) as f64 / 1e6 / time.as_secs_f64()
}

/// Bytes of a block that no other block has.
fn fill(block: &Block, buffer: &mut [u8]) {
    buffer.chunks_mut(64).for_each(|chunk| chunk[..1].copy_from_slice(&block.key().as_bytes()[..1]));
}

fn measure(name: &str, tier: &Tier, blocks: &[Block]) {
    let block_bytes = tier.layout().block_bytes();
    let mut spare: Vec<_> = (0..IN_FLIGHT).map(|_| vec![0; block_bytes]).collect();
    let mut longest = Duration::ZERO;
    let put = |block: &Block, mut buffer: Vec<u8>, longest: &mut Duration| {
        fill(block, &mut buffer);
        let put = vec![Put { block: block.clone(), buffer, time_to_live: None }];
        let began = Instant::now();
        tier.put_from(put).expect("room");
        *longest = began.elapsed().max(*longest);
    };
    let puts = run(tier, blocks, &mut spare, |block, buffer| put(block, buffer, &mut longest));
    rustix::fs::sync();
    let state = if std::fs::write("/proc/sys/vm/drop_caches", "1").is_ok() { "cold" } else { "warm" };
    let get = |block: &Block, buffer: Vec<u8>, longest: &mut Duration| {
        let get = vec![Get { block: block.clone(), buffer }];
        let began = Instant::now();
        tier.get_into(get).expect("room");
        *longest = began.elapsed().max(*longest);
    };
    let gets = run(tier, blocks, &mut spare, |block, buffer| get(block, buffer, &mut longest));
    let [puts, gets] = [puts, gets].map(|time| rate(blocks, block_bytes, time));
    println!("{name:<28} {block_bytes:>9} {puts:>9.0} {gets:>9.0} {longest:>12.1?}  {state}");
}

/// Submits all blocks, with as many in flight as there are spare buffers.
fn run(tier: &Tier, blocks: &[Block], spare: &mut Vec<Vec<u8>>, mut submit: impl FnMut(&Block, Vec<u8>)) -> Duration {
    let began = Instant::now();
    let mut done = Vec::new();
    for block in blocks {
        while spare.is_empty() {
            tier.poll(&mut done, PATIENCE);
            spare.extend(done.drain(..).map(buffer));
        }
        submit(block, spare.pop().expect("one is spare"));
    }
    while (spare.len() as u64) < IN_FLIGHT {
        tier.poll(&mut done, PATIENCE);
        spare.extend(done.drain(..).map(buffer));
    }
    began.elapsed()
}

fn buffer(completion: Completion<Vec<u8>>) -> Vec<u8> {
    match completion.outcome {
        Outcome::Put(put, Ok(())) => put.buffer,
        Outcome::Got(get, Ok(())) => {
            assert_eq!(get.buffer[0], get.block.key().as_bytes()[0], "another block's bytes");
            get.buffer
        }
        other => panic!("{other:?}"),
    }
}
