//! Regions of digest-keyed blocks with damaged bookkeeping: a clear error, misses or wrong counts,
//! never a panic or a wrong byte.
#![cfg(not(radixkv_loom))]

mod common;

use std::{fs, ops::Range, path::Path, sync::Arc, time::Duration};

use common::Place;
use radixkv_region::{DigestKey, DigestLayout, DigestObserver, DigestPut, DigestRegion, Namespace};

const WORD: usize = 8;
const CAPACITY: u32 = 4;
const BYTES: usize = 61;
/// The first word of the process slots, of the clock, and of the table of namespaces.
const SLOTS: usize = 512;
const CLOCK: usize = 2 * 512;
const NAMESPACES: usize = CLOCK + 8;
/// Words of a namespace, and the first word after the table.
const NAMESPACE: usize = 128;
const CELLS: usize = NAMESPACES + 256 * NAMESPACE;
const NAMES: [&str; 2] = ["one", "two"];

fn layout() -> DigestLayout {
    DigestLayout::new(BYTES, CAPACITY)
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name, 32, BYTES).model("a model").dtype("bf16").hash("sha256", "0")
}

fn key(number: u8) -> DigestKey {
    DigestKey::new(&[number; 32]).expect("a digest")
}

/// A region with a block in each namespace, as its file is while a process has it open.
fn image(place: &Place) -> Vec<u8> {
    let region = Arc::new(DigestRegion::create(place.path(), &layout()).expect("created"));
    for (number, name) in (0..).zip(NAMES) {
        let blocks = region.namespace(&namespace(name)).expect("opened");
        assert_eq!(blocks.put_from(&[key(number)], &[&[number; BYTES]], None), Ok(vec![DigestPut::Stored]));
    }
    fs::read(place.path()).expect("read")
}

/// The words that are neither in the header, nor bytes of blocks, nor of unused slots and
/// namespaces.
fn used_words(image: &[u8]) -> Vec<usize> {
    let is_used = |place: &usize| image[place * WORD..][..WORD] != [0; WORD];
    let namespaces = (NAMESPACES..CELLS).step_by(NAMESPACE).filter(is_used);
    let namespaces = namespaces.flat_map(|start| start..start + NAMESPACE);
    let payloads = CAPACITY as usize * BYTES.next_multiple_of(64);
    let rest = CELLS..(layout().region_bytes().expect("a layout") - payloads) / WORD;
    // The rest of the last page is empty.
    let rest = rest.start..rest.end.min(CELLS + 512);
    (SLOTS..SLOTS + 16).chain(CLOCK..NAMESPACES).chain(namespaces).chain(rest).collect()
}

/// Opens a file of any content, counts its blocks, and uses every verb: what is found is right.
fn survives(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("written");
    let observed = DigestObserver::open(path).expect("opened").census();
    assert!(observed.namespaces.iter().map(|namespace| namespace.blocks).sum::<usize>() <= CAPACITY as usize);
    let region = Arc::new(DigestRegion::open(path, &layout()).expect("opened"));
    for name in NAMES {
        // A damaged namespace is refused.
        let Ok(blocks) = region.namespace(&namespace(name)) else { continue };
        for number in 0..6 {
            let mut found = [0; BYTES];
            let get = blocks.get_into(&[key(number)], &mut [&mut found]).expect("a batch")[0];
            assert!(!get.is_hit() || found == [number; BYTES], "wrong bytes of block {number}");
            let _ = blocks.put_from(&[key(number)], &[&[number; BYTES]], None).expect("a batch");
        }
        let _ = blocks.remove(&[key(1)]).expect("keys");
    }
    let (census, stats) = (region.census(), region.stats());
    assert!(census.free <= CAPACITY as usize && stats.blocks + stats.in_flight <= CAPACITY as usize);
    region.verify();
    region.recover();
    region.trim(Duration::from_secs(1), Some("one"));
    region.trim(Duration::MAX, None);
    region.clear();
}

fn fill(content: &mut [u8], words: Range<usize>) {
    content[words.start * WORD..words.end * WORD].fill(0xff);
}

// Holds: RG7.
#[test]
fn the_largest_number_in_any_word_of_the_bookkeeping_is_survived() {
    let (place, copy) = (Place::new("digest-words"), Place::new("digest-words-copy"));
    let whole = image(&place);
    let words = used_words(&whole);
    for word in &words {
        let mut content = whole.clone();
        fill(&mut content, *word..word + 1);
        survives(copy.path(), &content);
    }
    // All counters of a process, all numbers of a namespace, or everything.
    let parts = [SLOTS + 1..SLOTS + 8, CLOCK..NAMESPACES, NAMESPACES..CELLS, SLOTS..NAMESPACES, CELLS..CELLS + 512];
    for part in parts {
        let mut content = whole.clone();
        fill(&mut content, part);
        survives(copy.path(), &content);
    }
    let mut content = whole.clone();
    words.iter().for_each(|word| fill(&mut content, *word..word + 1));
    survives(copy.path(), &content);
}
