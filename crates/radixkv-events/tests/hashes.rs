//! Names of blocks are those that independent producers make: `vectors.json` with Python's xxhash,
//! `hashes.json` with cbor2 and hashlib (`peers/goldens.py`).

use radixkv_events::{BlockHash, Digest, HashScheme, Scope};
use serde_json::Value;

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn tokens(golden: &Value) -> (Vec<u32>, usize) {
    let tokens = golden["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32);
    (tokens.collect(), golden["block_size"].as_u64().unwrap() as usize)
}

fn signed(list: &Value) -> Vec<BlockHash> {
    list.as_array().unwrap().iter().map(|hash| BlockHash::from_signed(hash.as_i64().unwrap())).collect()
}

// Holds: WE3.
#[test]
fn sha256_cbor_is_that_of_cbor2_and_hashlib() {
    let golden = read(include_str!("hashes.json"));
    let (tokens, block_size) = tokens(&golden);
    let text = |row: &Value, field: &str| row[field].as_str().map(str::to_owned);
    for row in golden["sha256_cbor"].as_array().unwrap() {
        let scheme = HashScheme::sha256_cbor(row["seed"].as_str().unwrap());
        let scope =
            Scope { lora_name: text(row, "lora_name"), cache_salt: text(row, "cache_salt"), ..Scope::default() };
        let bytes = row["hashes"].as_array().unwrap().iter().map(|hash| bytes(hash.as_str().unwrap()));
        let whole: Vec<_> = bytes.map(|bytes| BlockHash::Digest(Digest::new(&bytes).unwrap())).collect();
        assert_eq!(scheme.digests().chain(&scope, &tokens, block_size), whole, "{row}");
        let short: Vec<_> = whole.iter().map(|hash| BlockHash::Unsigned(hash.bits())).collect();
        assert_eq!(scheme.chain(&scope, &tokens, block_size), short, "{row}");
    }
}

// Holds: WE3.
#[test]
fn sglangs_chain_is_that_of_hashlib() {
    let golden = read(include_str!("hashes.json"));
    let (given, block_size) = tokens(&golden);
    let chain = HashScheme::sglang().chain(&Scope::default(), &given, block_size);
    assert_eq!(chain, signed(&golden["sglang"]));
    let golden = read(include_str!("vectors.json"));
    let (given, block_size) = tokens(&golden);
    let chain = HashScheme::sglang().chain(&Scope::default(), &given, block_size);
    assert_eq!(chain, signed(&golden["sglang_sha256_chain_int64"]));
}

// Holds: WE3.
#[test]
fn chains_of_64_bits_are_those_of_xxhash() {
    let golden = read(include_str!("vectors.json"));
    let (tokens, block_size) = tokens(&golden);
    let rolling = golden["rolling_hashes"].as_array().unwrap();
    let rolling: Vec<_> = rolling.iter().map(|hash| BlockHash::Unsigned(hash.as_u64().unwrap())).collect();
    assert_eq!(HashScheme::xxh3().chain(&Scope::default(), &tokens, block_size), rolling);
}

/// In every scheme, scopes that differ share no name. In vLLM's the first block of a salt has the
/// name of the first block of an adapter that is called the same.
// Holds: WE3.
#[test]
fn scopes_share_no_names() {
    let tokens: Vec<u32> = (0..12).collect();
    let both = Scope { lora_name: Some("a".into()), cache_salt: Some("a".into()), ..Scope::default() };
    let scopes = [Scope::default(), Scope::salted("a"), Scope::salted("b"), Scope::adapter("b"), both];
    for scheme in [HashScheme::xxh3(), HashScheme::sglang(), HashScheme::sha256_cbor("0")] {
        let mut names: Vec<_> = scopes.iter().flat_map(|scope| scheme.chain(scope, &tokens, 4)).collect();
        names.sort_unstable();
        names.dedup();
        let shared = usize::from(scheme == HashScheme::sha256_cbor("0"));
        assert_eq!(names.len(), 3 * scopes.len() - shared, "{scheme:?}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
