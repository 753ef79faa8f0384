//! Files that are no region, or a damaged one: a clear error or misses, never a panic, a wrong
//! byte, or a verb that does not end.
#![cfg(not(radixkv_loom))]

mod common;

use std::{fs, path::Path};

use common::{BLOCK_BYTES, BLOCK_SIZE, Blocks, Place, layout};
use radixkv_region::{Layout, Memory, OpenError, Put, PutError, Region, Reserve};

const CAPACITY: usize = 4;
const BLOCKS: usize = 8;
const WORD: usize = 8;
/// Words of the header's page, and of the page of process slots.
const PAGE: usize = 512;
/// The first word of the records: header, slots, clock, two buckets of cells.
const RECORDS: usize = 2 * PAGE + 8 + 16;

/// A region with three blocks of four, as its file is when all processes have closed it.
fn image(place: &Place, blocks: &Blocks) -> Vec<u8> {
    let region = Region::create(place.path(), &layout(CAPACITY)).expect("created");
    for block in 0..3 {
        assert_eq!(blocks.put(&region, block), Put::Stored);
    }
    drop(region);
    fs::read(place.path()).expect("read")
}

/// Words that are not bytes of blocks.
fn bookkeeping() -> usize {
    let payloads = CAPACITY * BLOCK_BYTES.next_multiple_of(64);
    let region = layout(CAPACITY).region_bytes().expect("a layout");
    (region - payloads) / WORD
}

/// Opens a file of any content and uses every verb: what is found is right. Whether it could be
/// opened.
fn survives(path: &Path, content: &[u8], blocks: &Blocks) -> bool {
    fs::write(path, content).expect("written");
    let Ok(region) = Region::open(path, &layout(CAPACITY)) else { return false };
    for block in 0..BLOCKS {
        let _ = blocks.get(&region, block);
        region.contains(&blocks.key(block), blocks.tokens(block));
    }
    for block in 0..BLOCKS {
        let content = blocks.content(block);
        match region.put(&blocks.key(block), blocks.tokens(block), content) {
            Ok(_) | Err(PutError::Full { .. }) => {}
            Err(refused) => panic!("{refused}"),
        }
        let _ = blocks.get(&region, block);
    }
    region.remove(&blocks.key(2));
    region.recover();
    region.clear_namespace(b"tests");
    let stats = region.stats();
    assert!(stats.blocks + stats.in_flight <= CAPACITY);
    true
}

// Holds: RG6.
#[test]
fn a_flipped_bit_anywhere_in_the_header_is_refused() {
    let (place, blocks) = (Place::new("header"), Blocks::new(BLOCKS));
    let whole = image(&place, &blocks);
    let mut random = fastrand::Rng::with_seed(1);
    let words: Vec<_> = (0..PAGE).filter(|word| *word < 80 || word % 37 == 0).collect();
    for word in words {
        let bits: Vec<_> = if word < 8 { (0..64).collect() } else { vec![random.usize(..64), random.usize(..64)] };
        for bit in bits {
            let mut content = whole.clone();
            content[word * WORD + bit / 8] ^= 1 << (bit % 8);
            let opened = survives(place.path(), &content, &blocks);
            assert_eq!(opened, word >= 80, "word {word}, bit {bit}");
        }
    }
}

// Holds: RG7.
#[test]
fn a_flipped_bit_in_slots_cells_records_or_tokens_costs_blocks_and_no_bytes() {
    let (place, blocks) = (Place::new("flips"), Blocks::new(BLOCKS));
    let whole = image(&place, &blocks);
    let mut random = fastrand::Rng::with_seed(2);
    for word in PAGE..bookkeeping() {
        // Slots are alike, and empty; in the rest every word counts.
        let flips = if word < 2 * PAGE { usize::from(word % 8 == 0) } else { 16 };
        for _ in 0..flips {
            let mut content = whole.clone();
            content[word * WORD + random.usize(..8)] ^= 1 << random.u32(..8);
            assert!(survives(place.path(), &content, &blocks), "word {word}");
        }
    }
}

// Holds: RG7.
#[test]
fn random_bytes_in_place_of_slots_cells_records_and_tokens_are_survived() {
    let (place, blocks) = (Place::new("random"), Blocks::new(BLOCKS));
    let whole = image(&place, &blocks);
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..300 {
        let mut content = whole.clone();
        let (from, to) = match round % 3 {
            // Everything, or what is not a process slot, or a part of that.
            0 => (PAGE * WORD, bookkeeping() * WORD),
            1 => (2 * PAGE * WORD, bookkeeping() * WORD),
            _ => {
                let from = random.usize(2 * PAGE * WORD..bookkeeping() * WORD);
                (from, random.usize(from..=bookkeeping() * WORD))
            }
        };
        content[from..to].fill_with(|| random.u8(..));
        let opened = survives(place.path(), &content, &blocks);
        assert!(opened || round % 3 == 0, "slots that no process can be seen to have left may be all taken");
    }
}

// Holds: RG7.
#[test]
fn cells_that_lead_to_other_entries_are_survived() {
    let (place, blocks) = (Place::new("cells"), Blocks::new(BLOCKS));
    let whole = image(&place, &blocks);
    let cells = 2 * PAGE + 8..RECORDS;
    let word = |at: usize| u64::from_ne_bytes(whole[at * WORD..][..WORD].try_into().expect("a word"));
    let tags: Vec<_> = cells.clone().map(word).filter(|cell| *cell != 0).map(|cell| cell >> 32).collect();
    assert_eq!(tags.len(), 3);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..300 {
        let mut content = whole.clone();
        for cell in cells.clone() {
            let led = tags[random.usize(..3)] << 32 | random.u64(..2 * CAPACITY as u64);
            content[cell * WORD..][..WORD].copy_from_slice(&led.to_ne_bytes());
        }
        assert!(survives(place.path(), &content, &blocks));
    }
}

// Holds: RG7.
#[test]
fn an_entry_that_was_being_written_is_not_read_whatever_its_state_says() {
    let (place, blocks) = (Place::new("half"), Blocks::new(BLOCKS));
    let region = Region::create(place.path(), &layout(CAPACITY)).expect("created");
    // The room of another block, half full of this one.
    blocks.put(&region, 1);
    region.remove(&blocks.key(1));
    let rooms: Vec<_> = (0..CAPACITY).map(|_| region.reserve(&blocks.key(0), blocks.tokens(0), None)).collect();
    for room in rooms.into_iter().rev() {
        let Ok(Reserve::Room(mut room)) = room else { continue };
        room.write(0, &blocks.content(0)[..BLOCK_BYTES / 2]);
        let mut content = fs::read(place.path()).expect("read");
        for entry in 0..CAPACITY {
            let word = &mut content[(RECORDS + entry * 8) * WORD..][..WORD];
            let state = u64::from_le_bytes(word.try_into().expect("a word"));
            if state & 3 == 1 {
                // The kind stands there three times.
                let kinds = |kind: u64| kind | kind << 10 | kind << 20;
                word.copy_from_slice(&(state & !kinds(3) | kinds(2)).to_le_bytes());
            }
        }
        let copy = Place::new("half-copy");
        assert!(survives(copy.path(), &content, &blocks));
    }
}

// Holds: RG6.
#[test]
fn what_is_no_region_is_refused_and_left_as_it_is() {
    let place = Place::new("no-region");
    let mut random = fastrand::Rng::with_seed(4);
    for len in [0, 1, 7, 8, 4095, 4096, 4097, 65_536, 1 << 20] {
        let content: Vec<_> = (0..len).map(|_| random.u8(..)).collect();
        fs::write(place.path(), &content).expect("written");
        let refused = Region::open(place.path(), &layout(CAPACITY)).expect_err("no region");
        assert!(!refused.to_string().is_empty());
        assert!(Region::open_or_create(place.path(), &layout(CAPACITY)).is_err());
        assert_eq!(fs::read(place.path()).expect("read"), content);
    }
    assert!(matches!(Region::open("/", &layout(CAPACITY)), Err(OpenError::Io(_))));
    assert!(matches!(Region::create("/", &layout(CAPACITY)), Err(OpenError::Io(_))));
    assert!(matches!(Region::create("/nowhere/at/all", &layout(CAPACITY)), Err(OpenError::Io(_))));
    assert!(matches!(Region::open("/dev/null", &layout(CAPACITY)), Err(OpenError::Io(_) | OpenError::TooShort { .. })));
}

// Holds: RG6.
#[test]
fn a_region_that_was_cut_is_refused() {
    let (place, blocks) = (Place::new("cut"), Blocks::new(BLOCKS));
    let whole = image(&place, &blocks);
    for len in [1, 8, 640, 4096, 8192, whole.len() / 2, whole.len() - 1] {
        fs::write(place.path(), &whole[..len]).expect("written");
        let refused = Region::open(place.path(), &layout(CAPACITY)).expect_err("cut");
        assert!(matches!(refused, OpenError::TooShort { expected, .. } if expected == whole.len()), "{len}: {refused}");
    }
}

// Holds: RG6.
#[test]
fn another_layout_is_refused_with_both_values() {
    let place = Place::new("mismatch");
    let made = || Layout::new(16, 4096, 8).model("Qwen3").dtype("bf16").arrangement("layer").shard("0 of 2");
    drop(Region::create(place.path(), &made()).expect("created"));
    assert!(Region::open(place.path(), &made()).is_ok());
    let sizes = |block_size, block_bytes, capacity| {
        Layout::new(block_size, block_bytes, capacity).model("Qwen3").dtype("bf16").arrangement("layer").shard("0 of 2")
    };
    for (other, text) in [
        (made().model("Llama"), r#"model is "Qwen3" in the region, "Llama" was requested"#),
        (made().dtype("fp8"), r#"dtype is "bf16" in the region, "fp8" was requested"#),
        (made().arrangement("head"), r#"arrangement is "layer" in the region, "head" was requested"#),
        (made().shard("1 of 2"), r#"shard is "0 of 2" in the region, "1 of 2" was requested"#),
        (sizes(32, 4096, 8), "block_size is 16 in the region, 32 was requested"),
        (sizes(16, 8192, 8), "block_bytes is 4096 in the region, 8192 was requested"),
        (sizes(16, 4096, 9), "capacity is 8 in the region, 9 was requested"),
    ] {
        let refused = Region::open(place.path(), &other).expect_err("another layout").to_string();
        assert!(refused.starts_with(text), "{refused}");
        // And the keys differ, all but those of another capacity.
        let same = other.chain(b"").next(&vec![1; other.block_size()]) == made().chain(b"").next(&[1; 16]);
        assert_eq!(same, other.capacity() == 9);
    }
    // A version that this program does not know names itself.
    let mut content = fs::read(place.path()).expect("read");
    content[8] = 2;
    fs::write(place.path(), content).expect("written");
    let refused = Region::open(place.path(), &made()).expect_err("another version");
    assert_eq!(refused.to_string(), "the region has format version 2, this program reads 3");
}

// Holds: RG4.
#[test]
fn blocks_of_before_a_restart_of_the_machine_are_misses() {
    // The records carry the life of the machine in their checksum: one that does not fit is a miss,
    // and makes room.
    let (place, blocks) = (Place::new("restart"), Blocks::new(BLOCKS));
    let mut content = image(&place, &blocks);
    for entry in 0..CAPACITY {
        content[(RECORDS + entry * 8 + 7) * WORD] ^= 1;
    }
    fs::write(place.path(), &content).expect("written");
    let region = Region::open(place.path(), &layout(CAPACITY)).expect("opened");
    assert!((0..3).all(|block| !blocks.get(&region, block).is_hit()));
    assert_eq!((region.stats().missed(radixkv_region::Miss::Damaged), region.stats().blocks), (3, 0));
    (0..CAPACITY).for_each(|block| assert_eq!(blocks.put(&region, block), Put::Stored));
    assert_eq!(region.stats().evicted, 0);
}

#[test]
fn entries_that_no_process_owns_are_given_back_when_their_slot_is_taken() {
    let (place, blocks) = (Place::new("unowned"), Blocks::new(BLOCKS));
    let mut content = image(&place, &blocks);
    for entry in 0..CAPACITY {
        // Written by the process of slot 0, which is free.
        let word = &mut content[(RECORDS + entry * 8) * WORD..][..WORD];
        let state = u64::from_le_bytes(word.try_into().expect("a word"));
        // Kind and slot stand there three times.
        word.copy_from_slice(&(state >> 30 << 30 | 1 << 20 | 1 << 10 | 1).to_le_bytes());
    }
    fs::write(place.path(), &content).expect("written");
    let region = Region::open(place.path(), &layout(CAPACITY)).expect("opened");
    assert_eq!((region.stats().in_flight, region.stats().blocks), (0, 0));
    (0..CAPACITY).for_each(|block| assert_eq!(blocks.put(&region, block), Put::Stored));
}

#[test]
fn a_panic_in_the_middle_of_filling_gives_the_room_back() {
    let (region, blocks) = (common::region(1), Blocks::new(2));
    let filling = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let Ok(Reserve::Room(mut room)) = region.reserve(&blocks.key(0), blocks.tokens(0), None) else { return };
        // One byte too many.
        room.write(1, blocks.content(0));
    }));
    assert!(filling.is_err());
    assert_eq!((region.stats().in_flight, region.stats().blocks), (0, 0));
    assert_eq!(blocks.put(&region, 1), Put::Stored);
}

#[test]
fn memory_that_is_too_small_is_refused_and_left_as_it_is() {
    let layout = layout(CAPACITY);
    let bytes = layout.region_bytes().expect("a layout");
    for small in [1, WORD, bytes - 1] {
        let refused = Region::format(Memory::anonymous(small).expect("memory"), &layout).expect_err("too small");
        assert!(matches!(refused, OpenError::TooShort { .. }), "{refused}");
    }
    let refused = Region::attach(Memory::anonymous(bytes).expect("memory"), &layout).expect_err("not formatted");
    assert!(matches!(refused, OpenError::NotARegion { found: 0, .. }), "{refused}");
}

// Holds: RG5.
#[test]
fn a_region_that_was_linked_and_not_finished_is_left_alone() {
    // Its maker was killed after it had linked the file to its path; then the path was removed,
    // beside a process that has it open.
    let (place, blocks) = (Place::new("linked"), Blocks::new(BLOCKS));
    let unfinished =
        place.path().with_file_name(format!(".{}.new", place.path().file_name().expect("a name").to_string_lossy()));
    let old = Region::create(place.path(), &layout(CAPACITY)).expect("created");
    blocks.put(&old, 0);
    fs::hard_link(place.path(), &unfinished).expect("linked");
    let refused = Region::create(place.path(), &layout(CAPACITY)).expect_err("it exists");
    assert!(matches!(refused, OpenError::Io(error) if error.kind() == std::io::ErrorKind::AlreadyExists));
    drop(old);
    let old = Region::open_or_create(place.path(), &layout(CAPACITY)).expect("opened");
    assert!(blocks.get(&old, 0).is_hit());
    fs::remove_file(place.path()).expect("removed");
    let new = Region::open_or_create(place.path(), &layout(CAPACITY)).expect("made");
    assert!(!blocks.get(&new, 0).is_hit() && blocks.get(&old, 0).is_hit() && !unfinished.exists());
}

#[test]
fn disk_that_is_full_is_said_at_creation() {
    // A file larger than any file system here has room for, and small enough for the address space.
    let place = Place::new("full");
    let layout = Layout::new(BLOCK_SIZE as u32, 1 << 30, 1 << 14);
    let refused = Region::create(place.path(), &layout).expect_err("16 TiB");
    assert!(matches!(refused, OpenError::Io(_)), "{refused}");
    assert!(!place.path().exists());
    let folder = place.path().parent().expect("a folder");
    let name = format!(".{}", place.path().file_name().expect("a name").to_string_lossy());
    let left = fs::read_dir(folder)
        .expect("listed")
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().starts_with(&name));
    assert_eq!(left.count(), 0);
}
