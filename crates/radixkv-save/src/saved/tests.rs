//! Saves with correct checksums and invalid content.

use std::fs;

use radixkv::{Keys, PrefixCache};
use radixkv_tiers::Layout;

use super::*;
use crate::format::entry::{Place, SavedPriority};
use crate::format::record::Records;
use crate::{Restored, TreeOnly};

fn layout() -> Layout {
    Layout::new("m", "x", 2, 8).unwrap()
}

/// A file of these records and of `blocks` blocks, whose trailer claims `claimed` blocks.
fn file(records: &[Vec<u8>], block_bytes: usize, blocks: u64, claimed: u64) -> Vec<u8> {
    let (header, mut bytes) = header::write(header::CACHE, &layout(), block_bytes, 1);
    for number in 0..blocks {
        bytes.extend(vec![number as u8; block_bytes]);
    }
    let records_at = bytes.len() as u64;
    let mut written = Records::new(Vec::new(), Sealing::new(&layout(), header.seed));
    records.iter().for_each(|record| _ = written.write(record.clone()).unwrap());
    let records_bytes = written.bytes;
    bytes.extend(written.into_inner());
    bytes.extend(Trailer { records_at, records_bytes, blocks: claimed, saved_at: u64::MAX }.write(&header));
    bytes
}

fn run() -> SavedRun {
    SavedRun {
        namespace: 0,
        parent: None,
        start: 0,
        last_used: 0,
        uses: 1,
        priority: None,
        blocks: vec![Place { number: 0, sum: 0 }; 2],
        tokens: vec![1, 2, 3, 4],
    }
}

fn restored(bytes: &[u8], memory: &mut dyn BlockBytes) -> Restored {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(folder::CACHE), bytes).unwrap();
    let saved = Saved::open(folder.path(), &layout()).unwrap();
    let _ = (saved.saved_at(), format!("{saved:?}"));
    let cache = PrefixCache::builder(2, 8).build().unwrap();
    let restored = saved.restore(&cache, memory).unwrap();
    assert_eq!(cache.validate(), Ok(()));
    restored
}

fn space() -> Vec<u8> {
    SavedNamespace { parts: Vec::new(), keys: Keys::Tokens }.write()
}

// Holds: SV6.
#[test]
fn runs_that_cannot_be_are_left_out() {
    let tree = |records: &[Vec<u8>]| restored(&file(records, 0, 0, 2), &mut TreeOnly);
    assert_eq!(tree(&[space(), run().write()]).blocks, 2);
    let pairs = SavedNamespace { parts: Vec::new(), keys: Keys::Bigrams }.write();
    let cannot_be = [
        vec![run().write()],
        vec![pairs, run().write()],
        vec![space(), SavedRun { namespace: 1, ..run() }.write()],
        vec![space(), SavedRun { namespace: usize::MAX, ..run() }.write()],
        vec![space(), SavedRun { parent: Some(0), ..run() }.write()],
        vec![space(), SavedRun { parent: Some(1), ..run() }.write()],
        vec![space(), SavedRun { parent: Some(usize::MAX - 1), ..run() }.write()],
        vec![space(), SavedRun { start: 2, ..run() }.write()],
        vec![space(), SavedRun { start: usize::MAX, ..run() }.write()],
        vec![space(), SavedRun { tokens: vec![1, 2, 3], ..run() }.write()],
        vec![space(), SavedRun { blocks: Vec::new(), tokens: Vec::new(), ..run() }.write()],
        vec![space(), Vec::new()],
        vec![space(), vec![2; 20]],
    ];
    for records in cannot_be {
        let restored = tree(&records);
        assert_eq!((restored.blocks, restored.damaged_blocks), (0, 2), "{records:?}");
    }
}

#[test]
fn runs_follow_what_is_there_alone() {
    let after = |start| SavedRun { parent: Some(1), start, ..run() }.write();
    for (start, blocks) in [(2, 4), (4, 4), (0, 2), (1, 2), (6, 2), (usize::MAX - 1, 2)] {
        let restored = restored(&file(&[space(), run().write(), after(start)], 0, 0, 4), &mut TreeOnly);
        // The second run has the tokens of the first one, at another place.
        assert_eq!((restored.blocks, restored.damaged_blocks), (blocks, 4 - blocks), "{start}");
    }
    // The second run is in another namespace than the one before it.
    let other = SavedNamespace { parts: vec!["a".into()], keys: Keys::Tokens }.write();
    let records =
        [space(), run().write(), other, SavedRun { namespace: 2, parent: Some(1), start: 2, ..run() }.write()];
    assert_eq!(restored(&file(&records, 0, 0, 4), &mut TreeOnly).blocks, 2);
}

// Holds: SV6.
#[test]
fn numbers_at_their_limits_change_nothing() {
    let priority = |level, until| Some(SavedPriority { level, until });
    for odd in [
        SavedRun { last_used: u64::MAX, uses: u64::MAX, priority: priority(i64::MIN, Some(0)), ..run() },
        SavedRun { uses: 0, priority: priority(100, Some(u64::MAX - 1)), ..run() },
        SavedRun { priority: priority(i64::MAX, None), ..run() },
    ] {
        assert_eq!(restored(&file(&[space(), odd.write()], 0, 0, u64::MAX), &mut TreeOnly).blocks, 2);
    }
    // Twice the same tokens.
    let twice = restored(&file(&[space(), run().write(), run().write()], 0, 0, 1), &mut TreeOnly);
    assert_eq!((twice.blocks, twice.known_blocks), (2, 2));
}

/// Memory that must be neither read nor written.
struct Nothing;

impl BlockBytes for Nothing {
    fn block_bytes(&self) -> usize {
        8
    }

    fn read(&mut self, _block: BlockId, _bytes: &mut [u8]) -> bool {
        unreachable!("nothing is saved")
    }

    fn write(&mut self, _block: BlockId, _bytes: &[u8]) -> bool {
        unreachable!("no block fits its checksum")
    }
}

// Holds: SV6.
#[test]
fn blocks_that_are_not_in_the_file_are_damaged() {
    for number in [0, 1, 2, u64::MAX / 8, u64::MAX] {
        let run = SavedRun { blocks: vec![Place { number, sum: 7 }; 2], ..run() };
        let restored = restored(&file(&[space(), run.write()], 8, 2, 2), &mut Nothing);
        assert_eq!((restored.blocks, restored.damaged_blocks), (0, 2), "{number}");
    }
}
