//! Blocks that are encrypted at rest in a region.
#![cfg(not(radixkv_loom))]

mod common;

use std::{fs, sync::Arc, time::Duration};

use common::Place;
use radixkv_region::{
    BatchError, DigestBlocks, DigestKey, DigestLayout, DigestPut, DigestRegion, Get, Memory, Miss, Namespace,
    NamespaceError, Presence, SealKey,
};

const BYTES: usize = 5003;

fn namespace() -> Namespace {
    Namespace::new("tenant", 32, BYTES).model("a model")
}

fn memory(capacity: u32) -> Arc<DigestRegion> {
    let layout = DigestLayout::new(BYTES, capacity);
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    Arc::new(DigestRegion::format(memory, &layout).expect("formatted"))
}

fn sealed(region: &Arc<DigestRegion>, key: u8) -> DigestBlocks {
    region.sealed_namespace(&namespace(), SealKey::new(&[0xa0 + key; 32])).expect("opened")
}

fn key(number: u8) -> DigestKey {
    DigestKey::new(&[number; 32]).expect("a digest")
}

/// Text that is found wherever it is.
fn plain(number: u8) -> Vec<u8> {
    format!("keys and values of block {number:03}. ").into_bytes().into_iter().cycle().take(BYTES).collect()
}

fn put(blocks: &DigestBlocks, number: u8) -> DigestPut {
    blocks.put_from(&[key(number)], &[&plain(number)], None).expect("a batch")[0]
}

fn get(blocks: &DigestBlocks, number: u8) -> Get {
    let mut found = vec![0; BYTES];
    let get = blocks.get_into(&[key(number)], &mut [&mut found]).expect("a batch")[0];
    assert_eq!(get.is_hit(), found == plain(number), "block {number}: {get:?}");
    get
}

fn holds(content: &[u8], text: &[u8]) -> bool {
    content.windows(text.len()).any(|window| window == text)
}

// Holds: RG17.
#[test]
fn sealed_blocks_are_found_with_their_key_alone_and_nothing_of_them_is_in_the_region() {
    let place = Place::new("sealed");
    let region = Arc::new(DigestRegion::create(place.path(), &DigestLayout::new(BYTES, 8)).expect("created"));
    let blocks = sealed(&region, 1);
    (0..4).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
    (0..4).for_each(|number| assert_eq!(get(&blocks, number), Get::Hit));
    let content = fs::read(place.path()).expect("read");
    assert!(!holds(&content, b"keys and values") && !holds(&content, &[0xa1; 32]), "plaintext, or the key");
    let open = region.namespace(&Namespace::new("open", 32, BYTES)).expect("opened");
    assert_eq!(put(&open, 7), DigestPut::Stored);
    assert!(holds(&fs::read(place.path()).expect("read"), b"keys and values"), "the search finds plaintext");

    // Another key finds nothing, and takes nothing away.
    let others = sealed(&region, 2);
    (0..4).for_each(|number| assert_eq!(get(&others, number), Get::Miss(Miss::Undecryptable)));
    assert_eq!((region.stats().missed(Miss::Undecryptable), others.exists(&[key(0)])), (4, Ok(vec![Presence::Stored])));
    drop((blocks, others));
    let again = sealed(&region, 1);
    (0..4).for_each(|number| assert_eq!(get(&again, number), Get::Hit));
    assert_eq!((region.verify().right, region.verify().removed), (5, 0));
    assert_eq!(again.remove(&[key(0)]), Ok(1));
}

// Holds: RG17.
#[test]
fn blocks_that_are_swapped_or_changed_are_misses() {
    // Without checksums, which would find it too.
    for is_swapped in [true, false] {
        let place = Place::new("sealed-swapped");
        let layout = DigestLayout::new(BYTES, 2);
        let region = Arc::new(DigestRegion::create(place.path(), &layout).expect("created"));
        let namespace = namespace().checksum(false);
        let blocks = region.sealed_namespace(&namespace, SealKey::new(&[1; 32])).expect("opened");
        (0..2).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
        let mut content = fs::read(place.path()).expect("read");
        let stride = BYTES.next_multiple_of(64);
        let payloads = content.len() - 2 * stride;
        if is_swapped {
            let (first, second) = content[payloads..].split_at_mut(stride);
            first.swap_with_slice(second);
            // And the nonces and tags, of labels of 128 bytes: block 0 has the first entry.
            let is_label = |at: &usize| content[*at..*at + 32] == [1; 32];
            let other = (4096..payloads).step_by(8).find(is_label).expect("the label of block 1");
            let one = other - 128;
            for at in 64..96 {
                content.swap(one + at, other + at);
            }
        } else {
            content[payloads + 77] ^= 1;
            content[payloads + stride + 77] ^= 1;
        }
        fs::write(place.path(), &content).expect("written");
        for number in 0..2 {
            assert_eq!(get(&blocks, number), Get::Miss(Miss::Undecryptable), "swapped: {is_swapped}");
        }
    }
}

// Holds: RG17.
#[test]
fn a_key_that_may_seal_no_more_stores_nothing() {
    let region = memory(8);
    let used = SealKey::new(&[1; 32]).with_seals((1 << 32) - 2);
    let blocks = region.sealed_namespace(&namespace(), used).expect("opened");
    let puts: Vec<_> = (0..4).map(|number| put(&blocks, number)).collect();
    assert_eq!(puts, [[DigestPut::Stored; 2], [DigestPut::KeyExhausted; 2]].concat());
    let (stats, census) = (region.stats(), region.census());
    assert_eq!((stats.blocks, stats.in_flight, stats.stored), (2, 0, 2));
    assert_eq!((census.namespaces[0].blocks, census.processes[0].blocks), (2, 2));
    assert!(get(&blocks, 1).is_hit());
}

#[test]
fn sealed_and_open_namespaces_of_one_name_are_refused_with_both_values() {
    for is_sealed_first in [true, false] {
        let region = memory(8);
        let open = || region.namespace(&namespace()).map(drop);
        let seal = || region.sealed_namespace(&namespace(), SealKey::new(&[1; 32])).map(drop);
        let (first, second) = if is_sealed_first { (seal(), open()) } else { (open(), seal()) };
        let [region, expected] = if is_sealed_first { ["1", "0"] } else { ["0", "1"] }.map(str::to_owned);
        let mismatch = NamespaceError::Mismatch { field: "encryption", region, expected };
        assert_eq!((first, second), (Ok(()), Err(mismatch)));
    }
}

#[test]
fn sealed_blocks_have_no_place_for_devices() {
    let region = memory(8);
    let blocks = Arc::new(sealed(&region, 1));
    assert_eq!(put(&blocks, 1), DigestPut::Stored);
    assert_eq!(blocks.reserve(&key(2), None).map(drop), Err(BatchError::Encrypted));
    assert_eq!(blocks.locate(&key(1)).map(drop), Err(BatchError::Encrypted));
    let puts = blocks.put_from(&[key(3)], &[&plain(3)], Some(Duration::ZERO));
    assert_eq!((puts, get(&blocks, 3)), (Ok(vec![DigestPut::Stored]), Get::Miss(Miss::Expired)));
}

// Holds: RG17.
#[test]
fn what_a_census_says_of_a_sealed_namespace_does_not_open_it() {
    let region = memory(8);
    let blocks = sealed(&region, 1);
    assert_eq!(put(&blocks, 0), DigestPut::Stored);
    let said = region.census().namespaces.remove(0).namespace;
    let [region_has, expected] = ["1", "0"].map(str::to_owned);
    let mismatch = NamespaceError::Mismatch { field: "encryption", region: region_has, expected };
    assert_eq!(region.namespace(&said).map(drop), Err(mismatch));
    let again = region.sealed_namespace(&said, SealKey::new(&[0xa1; 32])).expect("the key opens it");
    assert_eq!(get(&again, 0), Get::Hit);
}

// Holds: RG17.
#[test]
fn a_key_that_may_seal_no_more_evicts_nothing() {
    let region = memory(32);
    let open = region.namespace(&Namespace::new("open", 32, BYTES)).expect("opened");
    (0..32).for_each(|number| assert_eq!(put(&open, number), DigestPut::Stored));
    let used = SealKey::new(&[1; 32]).with_seals(1 << 32);
    let blocks = region.sealed_namespace(&namespace(), used).expect("opened");
    (0..100).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::KeyExhausted));
    assert_eq!((region.stats().blocks, region.stats().evicted), (32, 0));
}
