//! Regions in memory that the caller mapped.
#![cfg(not(radixkv_loom))]
#![allow(unsafe_code)]

mod common;

use std::{
    fs::{File, OpenOptions},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use common::{Blocks, Place, layout};
use memmap2::{MmapOptions, MmapRaw};
use radixkv_region::{Memory, OpenError, Region};

/// A mapping, and a note when it is dropped.
struct Mapping {
    _mapping: MmapRaw,
    dropped: Arc<AtomicBool>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.dropped.store(true, Relaxed);
    }
}

/// The whole of a file, as memory that is lent from byte `skipped` on.
fn lend(file: &File, skipped: usize, dropped: &Arc<AtomicBool>) -> Memory {
    let mapping = MmapOptions::new().map_raw(file).expect("mapped");
    let start = NonNull::new(mapping.as_mut_ptr().wrapping_add(skipped)).expect("an address");
    let bytes = mapping.len() - skipped;
    let keep = Mapping { _mapping: mapping, dropped: dropped.clone() };
    // SAFETY: the mapping is dropped with what keeps it, and only regions use it.
    unsafe { Memory::lent(start, bytes, keep) }
}

// Holds: RG10.
#[test]
fn memory_that_two_mappings_share_is_one_region() {
    let (place, blocks) = (Place::new("lent"), Blocks::new(8));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(place.path()).expect("made");
    file.set_len(layout(8).region_bytes().expect("a layout") as u64 + 64).expect("its size");
    let dropped = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let refused = Region::attach(lend(&file, 64, &dropped[0]), &layout(8)).expect_err("nothing is there");
    assert!(matches!(refused, OpenError::NotARegion { .. }) && dropped[0].load(Relaxed));
    let one = Region::format(lend(&file, 64, &dropped[1]), &layout(8)).expect("formatted");
    let other = Region::attach(lend(&file, 64, &dropped[2]), &layout(8)).expect("attached");
    blocks.put(&one, 0);
    blocks.put(&other, 1);
    assert!(blocks.get(&one, 1).is_hit() && blocks.get(&other, 0).is_hit());
    assert_eq!((one.recover(), one.stats().processes), (0, 2));
    drop(one);
    assert!(dropped[1].load(Relaxed) && !dropped[2].load(Relaxed));
    assert!(blocks.get(&other, 0).is_hit());
    // Formatted again, it is empty.
    drop(other);
    let again = Region::format(lend(&file, 64, &dropped[2]), &layout(8)).expect("formatted");
    assert_eq!((again.stats().blocks, again.stats().processes), (0, 1));
}

#[test]
fn memory_that_begins_inside_a_line_is_a_callers_fault() {
    let place = Place::new("misaligned");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(place.path()).expect("made");
    file.set_len(8192).expect("its size");
    let dropped = Arc::new(AtomicBool::new(false));
    assert!(catch_unwind(AssertUnwindSafe(|| lend(&file, 8, &dropped))).is_err());
    assert!(dropped.load(Relaxed));
}
