//! Compares the reference implementation with golden replays of real and adversarial traces: every
//! match of every request.
//!
//! The traces and golden files are in `../shared`, beside the repository; without them the tests
//! print that they are skipped. A replay serves one request at a time, in the order of the
//! timestamps: match, reserve the missing blocks, insert, release. A request larger than the cache
//! is bypassed.

use std::fs;
use std::path::PathBuf;

use radixkv::{PolicyKind, Token};
use radixkv_reference::Reference;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// First hash ids of tokens that only one request has.
const UNIQUE_PROMPT: u64 = 1 << 31;
const UNIQUE_OUTPUT: u64 = 3 << 30;
/// The digest's entry for a bypassed request.
const BYPASSED: u32 = u32::MAX;

/// One row of a trace: its prompt and its output as tokens.
struct Request {
    timestamp: u64,
    prompt: Vec<Token>,
    output: Vec<Token>,
}

/// The results that a golden run compares.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    hit_tokens: usize,
    evicted_blocks: usize,
    match_digest: String,
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    block_size: usize,
    capacity: usize,
    policy: PolicyKind,
    outputs: bool,
}

fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if !path.exists() {
        println!("skipped: no {}", path.display());
        return None;
    }
    Some(path)
}

fn golden(file: &str) -> Option<Value> {
    let text = fs::read_to_string(shared(&format!("oracle/{file}"))?).expect("readable");
    Some(serde_json::from_str(&text).expect("JSON"))
}

/// Token `j` of hash id `h`, as the golden files define it: ids below 2^32 differ already in their
/// first token.
fn token(h: u64, j: u64) -> Token {
    if j == 0 {
        return h as Token;
    }
    let mut z = (h << 20 | j).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as Token
}

fn trace(name: &str, unit: u64) -> Option<Vec<Request>> {
    let file = fs::File::open(shared(&format!("traces/{name}.jsonl.zst"))?).expect("readable");
    let text = zstd::decode_all(file).expect("zstd");
    let text = String::from_utf8(text).expect("UTF-8");
    let rows = text.lines().filter(|line| !line.trim().is_empty());
    let mut requests: Vec<Request> = rows.zip(0..).map(|(row, i)| request(row, i, unit)).collect();
    requests.sort_by_key(|request| request.timestamp);
    Some(requests)
}

fn request(row: &str, i: u64, unit: u64) -> Request {
    let row: Value = serde_json::from_str(row).expect("a row of JSON");
    let number = |key: &str| row[key].as_u64().expect("a number");
    let mut left = number("input_length");
    let mut prompt = Vec::new();
    for id in row["hash_ids"].as_array().expect("an array") {
        let id = id.as_u64().expect("a hash id");
        let tokens = unit.min(left);
        prompt.extend((0..tokens).map(|j| token(id, j)));
        left -= tokens;
    }
    prompt.extend((0..left).map(|j| token(UNIQUE_PROMPT + i, j)));
    let output = 0..number("output_length");
    Request { timestamp: number("timestamp"), prompt, output: output.map(|j| token(UNIQUE_OUTPUT + i, j)).collect() }
}

fn replay(requests: &[Request], setting: Setting) -> Outcome {
    let Setting { block_size, capacity, policy, outputs } = setting;
    let mut cache = Reference::new(block_size, capacity, policy);
    let (mut hit_tokens, mut inserted_blocks) = (0, 0);
    let mut digest = Sha256::new();
    for (request, now) in requests.iter().zip(1..) {
        let mut tokens = request.prompt.clone();
        if outputs {
            tokens.extend(&request.output);
        }
        let blocks = tokens.len() / block_size;
        if blocks > capacity {
            digest.update(BYPASSED.to_le_bytes());
            continue;
        }
        cache.set_time(now);
        let matched = serve(&mut cache, &tokens, blocks);
        digest.update(u32::try_from(matched).expect("blocks").to_le_bytes());
        hit_tokens += matched * block_size;
        inserted_blocks += blocks - matched;
    }
    cache.validate().expect("sound after a replay");
    let evicted_blocks = inserted_blocks - cache.stats().evictable_blocks;
    let digest = digest.finalize();
    let match_digest = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Outcome { hit_tokens, evicted_blocks, match_digest }
}

/// Serves one request; returns the number of blocks that matched.
fn serve(cache: &mut Reference, tokens: &[Token], blocks: usize) -> usize {
    let found = cache.match_prefix(&[], tokens);
    let matched = found.blocks.len();
    let reservation = cache.reserve(blocks - matched).expect("only this request holds anything");
    let inserted = cache.insert(&found.lease, tokens, reservation).expect("a fitting reservation");
    cache.abort(inserted.duplicates);
    cache.release(inserted.lease);
    cache.release(found.lease);
    matched
}

fn policy(name: &Value) -> Option<PolicyKind> {
    name.as_str()?.parse().ok()
}

/// Replays the golden runs that `wanted` selects and compares the results; returns the number of
/// runs.
fn check(name: &str, unit: u64, runs: &[&Value], wanted: impl Fn(Setting) -> bool) -> usize {
    let Some(requests) = trace(name, unit) else {
        return 0;
    };
    let number = |run: &Value, key: &str| run[key].as_u64().expect("a number") as usize;
    let mut checked = 0;
    for run in runs {
        let Some(policy) = policy(&run["policy"]) else {
            continue;
        };
        let setting = Setting {
            block_size: number(run, "block_size"),
            capacity: number(run, "capacity"),
            policy,
            outputs: run["outputs"] == true,
        };
        if !wanted(setting) {
            continue;
        }
        let expected = Outcome {
            hit_tokens: number(run, "hit_tokens"),
            evicted_blocks: number(run, "evicted_blocks"),
            match_digest: run["match_digest"].as_str().expect("a digest").to_owned(),
        };
        assert_eq!(replay(&requests, setting), expected, "{name} {setting:?}");
        checked += 1;
    }
    checked
}

fn check_adversarial(name: &str, wanted: impl Fn(Setting) -> bool) -> usize {
    let Some(golden) = golden("golden_adversarial.json") else {
        return 0;
    };
    let runs = golden.as_array().expect("an array").iter();
    let runs: Vec<&Value> = runs.filter(|run| run["trace"] == name).collect();
    check(name, 16, &runs, wanted)
}

fn check_taubench(wanted: impl Fn(Setting) -> bool) -> usize {
    let name = "taubench_airline_b16";
    let Some(golden) = golden("golden.json") else {
        return 0;
    };
    let runs = golden["traces"][name]["runs"].as_array().expect("an array").iter();
    let literal = |run: &&Value| run["granularity"] == "block" && run["flavor"] == "strict" && run["capacity"].is_u64();
    let runs: Vec<&Value> = runs.filter(literal).collect();
    check(name, 16, &runs, wanted)
}

#[test]
fn adversarial_traces_at_every_block_size_and_policy() {
    // Blocks of one token take the most time, so there only three policies are replayed.
    let three = [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Mru];
    let first = |s: Setting| {
        let affordable = s.block_size > 1 || three.contains(&s.policy);
        affordable && !s.outputs && s.capacity * s.block_size < 3_000
    };
    println!("adversarial_0: {} runs", check_adversarial("adversarial_0", first));
    let second = |s: Setting| s.block_size >= 10 && s.capacity * s.block_size < 3_000;
    println!("adversarial_1: {} runs", check_adversarial("adversarial_1", second));
}

#[test]
#[ignore = "minutes without optimisation; run by ci/nightly.sh"]
fn adversarial_traces_in_full() {
    for name in ["adversarial_0", "adversarial_1"] {
        println!("{name}: {} runs", check_adversarial(name, |_| true));
    }
}

#[test]
fn taubench_in_small_caches() {
    println!("taubench: {} runs", check_taubench(|s| s.capacity < 1_000));
}

#[test]
#[ignore = "minutes without optimisation; run by ci/nightly.sh"]
fn taubench_in_full() {
    println!("taubench: {} runs", check_taubench(|_| true));
}
