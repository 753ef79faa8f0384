//! What putting and getting blocks costs, beside memcpy in the same process over as many bytes.
//!
//! `cargo run --release -p radixkv-region --example throughput [BLOCK_BYTES [BLOCKS [ROUNDS]]]`; 64
//! KiB, 4,096 and 7 where nothing is said. The region is in `/dev/shm` if there is such a folder.
//! Of all rounds the median is shown, and the extremes.

use std::{
    env,
    error::Error,
    hint::black_box,
    path::Path,
    time::{Duration, Instant},
};

use radixkv_region::{Key, Layout, Put, Region, Token};

/// Blocks that are copied from and to, so that they do not all come from a cache.
const SOURCES: usize = 256;
const BLOCK_SIZE: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let (block_bytes, blocks, rounds) = (next(64 << 10)?, next(4096)?, next(7)?);
    let layout = Layout::new(BLOCK_SIZE as u32, block_bytes, u32::try_from(blocks)?);
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { shm.to_owned() } else { env::temp_dir() };
    let path = folder.join(format!("radixkv-region-throughput-{}", std::process::id()));
    let region = Region::create(&path, &layout)?;
    // The mapping stays.
    std::fs::remove_file(&path)?;

    let tokens: Vec<Token> = (0..(2 * blocks * BLOCK_SIZE) as u32).collect();
    let (mut chain, mut keys) = (layout.chain(b"bench"), Vec::<Key>::new());
    let hashing = timed(|| keys = chain.keys(&tokens));
    let sources: Vec<u8> = (0..SOURCES * block_bytes).map(|at| (at * 31) as u8).collect();
    let mut plain = vec![1; blocks * block_bytes];
    let mut out = vec![1; SOURCES * block_bytes];
    let mut figures = [const { Vec::new() }; 5];
    println!("{blocks} blocks of {block_bytes} bytes, {} MiB, {rounds} rounds", (blocks * block_bytes) >> 20);
    for round in 0..rounds + 1 {
        // Blocks that are not there: from the second round on each evicts one.
        let from = round % 2 * blocks;
        let round_keys =
            || (from..from + blocks).map(|at| (&keys[at], &tokens[at * BLOCK_SIZE..][..BLOCK_SIZE], at % SOURCES));
        let copy_in = timed(|| {
            for (at, to) in plain.chunks_exact_mut(block_bytes).enumerate() {
                to.copy_from_slice(&sources[at % SOURCES * block_bytes..][..block_bytes]);
            }
            black_box(&mut plain);
        });
        let put = timed(|| {
            for (key, tokens, source) in round_keys() {
                let put = region.put(key, tokens, &sources[source * block_bytes..][..block_bytes]);
                assert!(matches!(put, Ok(Put::Stored)), "{put:?}");
            }
        });
        let copy_out = timed(|| {
            for (at, from) in plain.chunks_exact(block_bytes).enumerate() {
                out[at % SOURCES * block_bytes..][..block_bytes].copy_from_slice(from);
            }
            black_box(&mut out);
        });
        let get = timed(|| {
            let hits = round_keys().filter(|(key, tokens, to)| {
                let to = &mut out[to * block_bytes..][..block_bytes];
                region.get_into(key, tokens, to).is_ok_and(|get| get.is_hit())
            });
            assert_eq!(hits.count(), blocks);
        });
        let miss = timed(|| {
            let absent = (0..blocks).map(|at| (at + blocks + from) % (2 * blocks));
            let there = absent.filter(|at| region.contains(&keys[*at], &tokens[at * BLOCK_SIZE..][..BLOCK_SIZE]));
            assert_eq!(there.count(), 0);
        });
        // In the first round the memory is touched for the first time.
        if round > 0 {
            for (figures, time) in figures.iter_mut().zip([copy_in, put, copy_out, get, miss]) {
                figures.push(time);
            }
        }
    }
    let [copy_in, put, copy_out, get, miss] = figures.map(sorted);
    let bytes = (blocks * block_bytes) as f64;
    show("memcpy in", bytes, &copy_in, None);
    show("put", bytes, &put, Some(&copy_in));
    show("memcpy out", bytes, &copy_out, None);
    show("get", bytes, &get, Some(&copy_out));
    let both = |one: &[Duration], other: &[Duration]| {
        sorted(one.iter().zip(other).map(|(one, other)| *one + *other).collect())
    };
    show("put + get", 2.0 * bytes, &both(&put, &get), Some(&both(&copy_in, &copy_out)));
    println!("a block that is not there: {:.0} ns", miss[miss.len() / 2].as_secs_f64() * 1e9 / blocks as f64);
    println!("the key of a block of {BLOCK_SIZE} tokens: {:.0} ns", hashing.as_secs_f64() * 1e9 / keys.len() as f64);
    Ok(())
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort();
    times
}

/// Throughput, and as a share of memcpy's.
fn show(name: &str, bytes: f64, times: &[Duration], memcpy: Option<&[Duration]>) {
    let rate = |time: Duration| bytes / time.as_secs_f64() / 1e9;
    let [slowest, median, fastest] = [times.len() - 1, times.len() / 2, 0].map(|at| rate(times[at]));
    let share = memcpy.map(|memcpy| format!(", {:.0} % of memcpy", 100.0 * median / rate(memcpy[memcpy.len() / 2])));
    println!("{name:<10} {median:>6.2} GB/s ({slowest:.2} to {fastest:.2}){}", share.unwrap_or_default());
}
