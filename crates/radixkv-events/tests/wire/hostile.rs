//! Bytes that no well-meaning publisher sends.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use radixkv_events::{
    BlockHash, Event, Holdings, Medium, Stored,
    wire::{self, DecodeError, Format},
};

use super::vectors::{bytes, own};

/// The system's allocator; it notes the largest request of each thread.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static NOTING: Noting = Noting;

// SAFETY: every request goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What a payload decodes to, and the largest request for memory on the way.
fn decoded(payload: &[u8]) -> (Result<wire::Decoded, DecodeError>, usize) {
    LARGEST.set(0);
    let decoded = wire::decode(payload);
    (decoded, LARGEST.get())
}

/// Bytes that a list asks for before its first element is read.
const ROOM: usize = 64 << 10;

fn check(payload: &[u8]) {
    let (decoded, largest) = decoded(payload);
    // A hash of one byte takes 40, and a list doubles as it grows.
    let limit = ROOM + 128 * payload.len();
    assert!(largest <= limit, "{largest} bytes at once for a payload of {}", payload.len());
    if let Ok(decoded) = decoded {
        let again = wire::decode(&wire::encode(&decoded.batch, Format::Maps)).unwrap();
        // NaN is no equal of itself.
        assert_eq!(again.batch.events.len(), decoded.batch.events.len());
    }
}

#[test]
fn every_cut_of_a_golden_batch_is_an_error() {
    for name in ["vllm_map_ge_0_23", "vllm_array_legacy", "vllm_array_legacy_child_cpu_no_rank"] {
        let golden = bytes(&own(), name);
        for length in 0..golden.len() {
            wire::decode(&golden[..length]).expect_err("a part of a batch");
            check(&golden[..length]);
        }
        let longer = [golden.as_slice(), &[0]].concat();
        assert_eq!(wire::decode(&longer), Err(DecodeError::Trailing { bytes: 1 }));
    }
}

// Holds: WE2.
#[test]
fn any_bytes_are_a_batch_or_an_error() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let length = random.usize(..200);
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        check(&bytes);
        // The same as the events of a batch.
        let mut batch = vec![0x93, 0, 0x91];
        batch.append(&mut bytes);
        check(&batch);
    }
}

// Holds: WE2.
#[test]
fn golden_batches_with_other_bytes_are_batches_or_errors() {
    let mut random = fastrand::Rng::with_seed(8);
    for name in ["vllm_map_ge_0_23", "vllm_array_legacy"] {
        let golden = bytes(&own(), name);
        for _ in 0..20_000 {
            let mut bytes = golden.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            check(&bytes);
        }
    }
}

// Holds: WE2.
#[test]
fn announced_sizes_are_not_believed() {
    let extra_keys: &[u8] = b"\x93\x00\x91\x81\xaaextra_keys";
    let tokens: &[u8] = b"\x93\x00\x91\x81\xa9token_ids";
    let befores = [&[][..], &[0x93, 0], &[0x93, 0, 0x91], &[0x93, 0, 0x91, 0x81, 0xa1, b'x'], extra_keys, tokens];
    // Lists, maps, texts and bytes of 2^32 - 1 at each place where one may stand, and lists that
    // have bytes enough, all of them no value.
    for marker in [0xdd_u8, 0xdf, 0xdb, 0xc6, 0xc9] {
        for before in befores {
            let endless = [before, &[marker, 0xff, 0xff, 0xff, 0xff, 0]].concat();
            let senseless = [before, &[0xdd, 0, 0x0f, 0, 0], &vec![0xc1; 1 << 20]].concat();
            for bytes in [endless, senseless] {
                let (decoded, largest) = decoded(&bytes);
                assert!(decoded.is_err() && largest <= ROOM, "{before:x?}, {marker:x}: {decoded:?}, {largest} bytes");
            }
        }
    }
}

#[test]
fn payloads_and_lists_of_hashes_have_a_longest() {
    let bytes = wire::MAX_PAYLOAD + 1;
    assert_eq!(wire::decode(&vec![0; bytes]), Err(DecodeError::TooLong { bytes }));
    let batch = |hashes: usize| {
        let before = b"\x93\x00\x91\x93\xacBlockRemoved\xdd";
        [&before[..], &(hashes as u32).to_be_bytes(), &vec![7; hashes], &[0xc0, 0xc0]].concat()
    };
    assert!(wire::decode(&batch(wire::MAX_HASHES)).is_ok());
    let hashes = wire::MAX_HASHES + 1;
    assert_eq!(wire::decode(&batch(hashes)), Err(DecodeError::TooManyHashes { hashes }));
}

#[test]
fn what_is_nested_deeply_is_refused() {
    let mut bytes = vec![0x93, 0, 0x91, 0x82, 0xa4, b't', b'y', b'p', b'e', 0xa1, b'x', 0xa1, b'y'];
    bytes.extend([0x91; 100_000]);
    assert!(matches!(wire::decode(&bytes), Err(DecodeError::TooDeep { .. })));
}

/// A type that is not known is skipped, whatever its fields hold, and counted.
// Holds: WE2.
#[test]
fn unknown_events_are_skipped_and_counted() {
    // [0, [{"type": "New", "block_size": []}, ["New", {}], ["AllBlocksCleared", 5]], nil]
    let mut bytes = vec![0x93, 0, 0x93, 0x82];
    bytes.extend(b"\xa4type\xa3New\xaablock_size\x90");
    bytes.extend(b"\x92\xa3New\x80");
    bytes.extend(b"\x92\xb0AllBlocksCleared\x05");
    bytes.push(0xc0);
    let decoded = wire::decode(&bytes).unwrap();
    assert_eq!((decoded.skipped_events, decoded.batch.events.len()), (2, 1));
}

/// Other shapes that publishers send: a batch that is a map, pairs of tokens, a salt in the place
/// of an adapter.
#[test]
fn other_shapes_are_read() {
    let mut bytes = b"\x83\xa2ts\x01\xa6events\x91".to_vec();
    bytes.extend(b"\x98\xabBlockStored\x91\x07\xc0\x92\x92\x01\x02\x92\x02\x03\x02\xc0\xa3GPU\x81\xaacache_salt\xa1s");
    bytes.extend(b"\xb2data_parallel_rank\x03");
    let batch = wire::decode(&bytes).unwrap().batch;
    assert_eq!((batch.time, batch.rank), (1.0, Some(3)));
    let radixkv_events::Event::Stored(stored) = &batch.events[0] else { panic!("{batch:?}") };
    assert_eq!((stored.tokens.as_slice(), stored.bigrams), (&[1, 2, 3][..], true));
    assert_eq!(stored.scope.cache_salt.as_deref(), Some("s"));
}

/// A block of another number of tokens than the event says is refused, with all three numbers.
#[test]
fn tokens_that_do_not_fill_the_blocks_are_refused() {
    let mut bytes = vec![0x93, 0, 0x91];
    bytes.extend(b"\x95\xabBlockStored\x92\x07\x08\xc0\x93\x01\x02\x03\x02\xc0");
    let error = wire::decode(&bytes).unwrap_err();
    assert_eq!(error, DecodeError::Tokens { tokens: 3, blocks: 2, block_size: 2 });
    assert_eq!(error.to_string(), "3 tokens do not match 2 blocks of 2");
}

/// vLLM's offloading connector names the blocks that it copied to the host, with placeholders for
/// their tokens and size. The other events of the batch count as well.
// Holds: WE2.
#[test]
fn offloaded_blocks_have_placeholders() {
    // Empty and zero as vLLM sends them, and nil.
    for placeholders in [b"\x90\x00", b"\xc0\xc0"] {
        let mut bytes = vec![0x93, 0, 0x92];
        bytes.extend(b"\x97\xabBlockStored\x92\x07\x08\xc0");
        bytes.extend(placeholders);
        bytes.extend(b"\xc0\xa3CPU\x91\xb0AllBlocksCleared\xc0");
        let batch = wire::decode(&bytes).unwrap().batch;
        let [Event::Stored(stored), Event::Cleared] = &batch.events[..] else { panic!("{batch:?}") };
        assert_eq!((stored.hashes.len(), stored.tokens.len(), stored.block_size), (2, 0, 0));
        assert_eq!(stored.medium, Some(Medium::Cpu));

        // The next event with tokens decides about the size of blocks.
        let mut holdings = Holdings::default();
        holdings.apply(&batch.events[0]).unwrap();
        assert_eq!((holdings.len(), holdings.block_size()), (2, None));
        let (hashes, tokens) = (vec![BlockHash::Unsigned(7)], vec![1, 2]);
        holdings.apply(&Event::Stored(Stored { hashes, tokens, block_size: 2, ..Stored::default() })).unwrap();
        assert_eq!((holdings.len(), holdings.unrooted(), holdings.block_size()), (2, 1, Some(2)));
    }
}

/// Groups with a window leave blocks out in between: their events are skipped and counted, and the
/// batch is read.
// Holds: WE2.
#[test]
fn events_of_a_group_with_a_window_are_skipped() {
    let mut bytes = vec![0x93, 0, 0x92];
    bytes.extend(b"\x9b\xabBlockStored\x92\x07\x08\xc0\x93\x01\x02\x03\x01\xc0\xa3GPU\xc0\xc0\x01\xaesliding_window");
    bytes.extend(b"\x91\xb0AllBlocksCleared\xc0");
    let decoded = wire::decode(&bytes).unwrap();
    assert_eq!((decoded.skipped_events, decoded.batch.events), (1, vec![radixkv_events::Event::Cleared]));
}
