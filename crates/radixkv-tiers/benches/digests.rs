//! What digest-keyed blocks in host memory cost: the scheduler's calls beside a thread that stores
//! and loads, and copies beside memcpy.
//!
//! `cargo bench -p radixkv-tiers --features region,encryption --bench digests [-- calls | copies]`.
//! `BLOCKS` is how many blocks of 4 KiB the region has (10^6), `CALLS` how often each call is made
//! (20,000), `MIB` how much is copied for each size (256). The region is in the folder `FOLDER`; by
//! default in `/dev/shm`, or in the folder for temporary files if there is no `/dev/shm`. Times of
//! calls are processor time of the calling thread.
//!
//! Encrypted copies have two baselines: AES-GCM in place, which reads and writes only one buffer, and
//! AES-GCM of a copy, which reads the source and writes the target as storing and loading do.

use std::{
    env,
    hint::black_box,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use radixkv_tiers::{
    Completion, DigestTier, Get, Layout, Outcome, Put, RemoteTier, Tier,
    radixkv_region::{DigestBlocks, DigestKey, DigestLayout, DigestPut, DigestRegion, Namespace},
};
use rustix::time::{ClockId, clock_gettime};

/// Keys of one look-up: a prompt of 4,096 tokens in blocks of 16.
const LOOKUP: usize = 256;
/// Blocks of one request for a copy.
const COPY: usize = 32;
const SMALL: usize = 4096;

fn main() {
    let asked: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_asked = |part: &str| asked.is_empty() || asked.iter().any(|other| other == part);
    if is_asked("calls") {
        calls(number("BLOCKS", 1_000_000), number("CALLS", 20_000));
    }
    if is_asked("copies") {
        copies(number("MIB", 256) << 20);
    }
}

fn number(name: &str, default: usize) -> usize {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn region(entry_bytes: usize, capacity: usize) -> Arc<DigestRegion> {
    let shm = Path::new("/dev/shm");
    let default = || if shm.is_dir() { shm.to_owned() } else { env::temp_dir() };
    let folder = env::var_os("FOLDER").map_or_else(default, PathBuf::from);
    let path = folder.join(format!("radixkv-digests-{}", std::process::id()));
    let layout = DigestLayout::new(entry_bytes, capacity as u32);
    let region = DigestRegion::create(&path, &layout).expect("created");
    // The mapping stays.
    std::fs::remove_file(&path).expect("removed");
    Arc::new(region)
}

// --- the scheduler's calls

/// The processor time of the thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn timed<T>(times: &mut Vec<Duration>, call: impl FnOnce() -> T) -> T {
    let began = cpu();
    let result = call();
    times.push(cpu() - began);
    result
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let longest = at(1.0);
    println!("{name:<36} {:>10.1?} {:>10.1?} {:>10.1?} {longest:>10.1?}", at(0.5), at(0.99), at(0.999));
}

fn calls(blocks: usize, calls: usize) {
    println!(
        "{blocks} blocks of {SMALL} bytes, beside one thread that stores and loads; processor time of {calls} calls"
    );
    println!("{:<36} {:>10} {:>10} {:>10} {:>10}", "call", "median", "p99", "p99.9", "longest");
    let layout = Layout::new("bench", "bf16", 16, SMALL).and_then(|layout| layout.digest_keys(36, "sha256", "0"));
    let layout = layout.expect("a layout");
    let region = region(SMALL, blocks);
    let space = Arc::new(region.namespace(&DigestTier::namespace("bench", &layout)).expect("opened"));
    let named = |number: u64| {
        let mut digest = [0; 36];
        digest[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        layout.digest_block(&digest).expect("a digest")
    };
    let names: Vec<_> = (0..blocks as u64).map(named).collect();
    let keys: Vec<_> = names.iter().map(|block| DigestTier::key(block.key())).collect();
    keys.chunks(COPY)
        .for_each(|keys| drop(space.put_from(keys, &vec![&[1; SMALL][..]; keys.len()], None).expect("a batch")));

    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| store_and_load(&space, blocks as u64, &ends));
        let tier: Tier<Vec<u8>> = DigestTier::new(Arc::clone(&space), layout.clone())
            .and_then(|tier| tier.threads(1).open())
            .expect("a tier");
        let mut times = [const { Vec::new() }; 5];
        let mut done: Vec<Completion<Vec<u8>>> = Vec::new();
        let mut spare: Vec<Vec<u8>> = (0..8 * COPY).map(|_| vec![1; SMALL]).collect();
        for call in 0..calls {
            let first = fastrand::usize(..blocks - LOOKUP);
            let found = timed(&mut times[0], || space.exists(&keys[first..first + LOOKUP]).expect("keys"));
            black_box(found);
            black_box(timed(&mut times[1], || space.prefix(&keys[first..first + 1]).expect("a key")));
            if spare.len() >= COPY {
                let buffers = spare.drain(spare.len() - COPY..);
                let items = names[first..first + COPY].iter().cloned().zip(buffers);
                if call % 2 == 0 {
                    let gets = items.map(|(block, buffer)| Get { block, buffer }).collect();
                    timed(&mut times[2], || tier.get_into(gets)).expect("room");
                } else {
                    let puts = items.map(|(block, buffer)| Put { block, buffer, time_to_live: None }).collect();
                    timed(&mut times[3], || tier.put_from(puts)).expect("room");
                }
            }
            timed(&mut times[4], || tier.poll(&mut done, Duration::ZERO));
            spare.extend(done.drain(..).map(|completion| match completion.outcome {
                Outcome::Got(get, _) => get.buffer,
                Outcome::Put(put, _) => put.buffer,
                other => panic!("{other:?}"),
            }));
        }
        let names = ["exists, 256 keys", "prefix, 1 key", "submit loads, 32", "submit stores, 32", "poll"];
        names.into_iter().zip(times).filter(|(_, times)| !times.is_empty()).for_each(|(name, times)| show(name, times));
        // Relaxed: the thread looks again.
        ends.store(true, Relaxed);
    });
}

/// What another thread of the process does meanwhile: half of its stores evict.
fn store_and_load(space: &DigestBlocks, blocks: u64, ends: &AtomicBool) {
    let mut buffer = vec![2; SMALL];
    while !ends.load(Relaxed) {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&fastrand::u64(..2 * blocks).to_le_bytes());
        let keys = [DigestKey::new(&key).expect("a digest")];
        if fastrand::bool() {
            black_box(space.put_from(&keys, &[&buffer], None).expect("a batch"));
        } else {
            black_box(space.get_into(&keys, &mut [&mut buffer]).expect("a batch"));
        }
    }
}

// --- copies

fn copies(bytes: usize) {
    println!(
        "copies of {} MiB, GB/s; the median of 7 rounds; base: memcpy, or AES-GCM in place or of a copy",
        bytes >> 20
    );
    println!("{:<12} {:>8} {:>8} {:>22} {:>22}", "block", "", "base", "store", "load");
    for block_bytes in [64 << 10, 256 << 10, 1 << 20, 2 << 20] {
        let count = bytes / block_bytes;
        let region = region(block_bytes, count);
        // More than the caches hold.
        let sources: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; block_bytes]).collect();
        let mut targets = vec![vec![0_u8; block_bytes]; count];
        let memcpy = median(|| {
            for (target, source) in targets.iter_mut().zip(&sources) {
                target.copy_from_slice(source);
            }
            black_box(&mut targets);
        });
        for has_checksums in [false, true] {
            let name = if has_checksums { "checksum" } else { "none" };
            let space =
                region.namespace(&Namespace::new(name, 32, block_bytes).checksum(has_checksums)).expect("opened");
            let [store, load] = store_and_load_all(&space, &sources, &mut targets);
            show_copies(name, &sources, memcpy, [store, load]);
        }
        #[cfg(feature = "encryption")]
        {
            let key = radixkv_tiers::SealKey::new(&[7; 32]);
            // In place, which is all that the processor has to do.
            let ciphering = median(|| {
                for target in &mut targets {
                    black_box(key.seal(&[], target).expect("sealed"));
                }
            });
            // What a caller does who keeps the source, block after block.
            let ciphering_copies = median(|| {
                for (target, source) in targets.iter_mut().zip(&sources) {
                    target.copy_from_slice(source);
                    black_box(key.seal(&[], target).expect("sealed"));
                }
            });
            let namespace = Namespace::new("sealed", 32, block_bytes).checksum(false);
            let space = region.sealed_namespace(&namespace, key).expect("opened");
            let times = store_and_load_all(&space, &sources, &mut targets);
            show_copies("in place", &sources, ciphering, times);
            show_copies("a copy", &sources, ciphering_copies, times);
        }
    }
}

/// The median times of storing all blocks and of loading them.
fn store_and_load_all(space: &DigestBlocks, sources: &[Vec<u8>], targets: &mut [Vec<u8>]) -> [Duration; 2] {
    let key = |at: usize| DigestKey::new(&[(at % 251) as u8, (at / 251) as u8].repeat(16)).expect("a digest");
    let keys: Vec<_> = (0..sources.len()).map(key).collect();
    let store = median_after(&|| assert!(space.region().clear() <= sources.len()), || {
        for (key, source) in keys.iter().zip(sources) {
            assert_eq!(space.put_from(&[*key], &[source], None).expect("a batch"), [DigestPut::Stored]);
        }
    });
    let load = median(|| {
        for (key, target) in keys.iter().zip(&mut *targets) {
            assert!(space.get_into(&[*key], &mut [target]).expect("a batch")[0].is_hit());
        }
    });
    assert!(targets == sources, "wrong bytes");
    [store, load]
}

/// Rates, and their shares of the rate of what they are compared with: memcpy, or AES-GCM.
fn show_copies(name: &str, sources: &[Vec<u8>], base: Duration, [store, load]: [Duration; 2]) {
    let bytes = sources.iter().map(Vec::len).sum::<usize>() as f64;
    let rate = |time: Duration| bytes / 1e9 / time.as_secs_f64();
    let share = |time: Duration| format!("{:.2} ({:.0} %)", rate(time), 100.0 * rate(time) / rate(base));
    println!("{:<12} {name:>8} {:>8.2} {:>22} {:>22}", sources[0].len(), rate(base), share(store), share(load));
}

fn median(work: impl FnMut()) -> Duration {
    median_after(&|| {}, work)
}

/// The median of seven rounds, before each of which something is done that is not timed.
fn median_after(before: &dyn Fn(), mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..8)
        .map(|_| {
            before();
            let began = Instant::now();
            work();
            began.elapsed()
        })
        // In the first round the memory is touched for the first time.
        .skip(1)
        .collect();
    times.sort();
    times[times.len() / 2]
}
