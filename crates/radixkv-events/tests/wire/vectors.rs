//! Golden bytes, made with Python's msgspec.

use std::{fs, path::Path};

use radixkv_events::{
    Batch, BlockHash, Event, Group, Medium, Removed, Scope, Stored,
    wire::{self, Format},
};
use serde_json::Value;

const VECTORS: [(&str, Format); 4] = [
    ("vllm_map_ge_0_23", Format::Maps),
    ("vllm_map_ge_0_23_child_cpu_no_rank", Format::Maps),
    ("vllm_array_legacy", Format::Arrays),
    ("vllm_array_legacy_child_cpu_no_rank", Format::Arrays),
];

pub(crate) fn bytes(vectors: &Value, name: &str) -> Vec<u8> {
    let hex = vectors[name].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

pub(crate) fn own() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

fn hash(vectors: &Value, at: usize) -> BlockHash {
    BlockHash::Unsigned(vectors["rolling_hashes"][at].as_u64().unwrap())
}

/// What the vectors with a root say.
fn of_root(vectors: &Value) -> Batch {
    let group = Group { index: Some(0), kind: Some("full_attention".into()), sliding_window: None };
    let stored = Stored {
        hashes: vec![hash(vectors, 0), hash(vectors, 1)],
        tokens: (1..=8).collect(),
        block_size: 4,
        medium: Some(Medium::Gpu),
        extra_keys: Some(vec![None, None]),
        group,
        ..Stored::default()
    };
    let removed = Removed {
        hashes: vec![hash(vectors, 1)],
        medium: Some(Medium::Gpu),
        group: Group { index: Some(0), ..Group::default() },
        locality: None,
    };
    let events = vec![Event::Stored(stored), Event::Removed(removed), Event::Cleared];
    Batch { time: 1.5, events, rank: Some(0), epoch: None }
}

/// What the vectors with a child say.
fn of_child(vectors: &Value) -> Batch {
    let stored = Stored {
        hashes: vec![hash(vectors, 1)],
        parent: Some(hash(vectors, 0)),
        tokens: (5..=8).collect(),
        block_size: 4,
        medium: Some(Medium::Cpu),
        ..Stored::default()
    };
    Batch { time: 1.5, events: vec![Event::Stored(stored)], rank: None, epoch: None }
}

fn check(vectors: &Value) {
    for (name, format) in VECTORS {
        let golden = bytes(vectors, name);
        let decoded = wire::decode(&golden).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = if name.contains("child") { of_child(vectors) } else { of_root(vectors) };
        assert_eq!(decoded.batch, expected, "{name}");
        assert_eq!(decoded.skipped_events, 0);
        assert_eq!(wire::encode(&expected, format), golden, "{name}");
    }
    assert_eq!(bytes(vectors, "seq_frame_5"), 5_u64.to_be_bytes());
    assert_eq!(bytes(vectors, "end_seq"), wire::END);
}

// Holds: WE1.
#[test]
fn golden_bytes_are_read_and_written() {
    check(&own());
}

#[test]
fn the_shared_golden_bytes_are_read_and_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/kv_events.json");
    match fs::read_to_string(&path) {
        Ok(text) => check(&serde_json::from_str(&text).unwrap()),
        Err(_) => println!("skipped: the shared golden KV events are not there"),
    }
}

/// Everything that a map can carry comes back; arrays have no place for three fields.
// Holds: WE1.
#[test]
fn all_fields_travel() {
    use radixkv_events::{Digest, ExtraKey};
    let digest = BlockHash::Digest(Digest::new(&[7; 32]).unwrap());
    let picture = ExtraKey::List(vec![ExtraKey::Text("a picture".into()), ExtraKey::Signed(-3)]);
    let others = [ExtraKey::Nil, ExtraKey::Bool(true), ExtraKey::Unsigned(9), ExtraKey::Float(0.5)];
    let keys = [picture, ExtraKey::Bytes(vec![1, 2])].into_iter().chain(others).collect();
    let stored = Stored {
        hashes: vec![digest, BlockHash::Signed(-5)],
        parent: Some(BlockHash::Signed(i64::MIN)),
        tokens: vec![u32::MAX, 0, 1],
        bigrams: true,
        block_size: 1,
        medium: Some(Medium::Other("MOON".into())),
        scope: Scope { lora_id: Some(3), lora_name: Some("adapter".into()), cache_salt: Some("salt".into()) },
        extra_keys: Some(vec![Some(keys), None]),
        group: Group { index: Some(1), kind: Some("sliding_window".into()), sliding_window: Some(128) },
        locality: Some("REMOTE".into()),
        session_id: Some("session".into()),
    };
    let removed = Removed {
        hashes: vec![digest],
        medium: None,
        group: Group { index: Some(1), ..Group::default() },
        locality: Some("LOCAL".into()),
    };
    let events = vec![Event::Stored(stored.clone()), Event::Removed(removed)];
    let mut batch = Batch { time: 2.25, events, rank: Some(7), epoch: Some(u64::MAX) };
    assert_eq!(wire::decode(&wire::encode(&batch, Format::Maps)).unwrap().batch, batch);

    let scope = Scope { cache_salt: None, ..stored.scope.clone() };
    batch.events = vec![Event::Stored(Stored { scope, session_id: None, ..stored })];
    batch.epoch = None;
    assert_eq!(wire::decode(&wire::encode(&batch, Format::Arrays)).unwrap().batch, batch);
}
