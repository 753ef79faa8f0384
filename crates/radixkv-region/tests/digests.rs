//! Blocks whose keys are digests: every verb, every refusal, and random plans against a map.
#![cfg(not(radixkv_loom))]

mod common;

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Place, layout as token_layout};
use radixkv_region::{
    BatchError, DigestBlocks, DigestKey, DigestLayout, DigestObserver, DigestPut, DigestRegion, Get, Memory, Miss,
    Namespace, NamespaceError, OpenError, Presence, Region,
};

/// Bytes of an entry and of a block: no whole words.
const ENTRY: usize = 2011;
const BYTES: usize = 1021;

fn region(capacity: u32) -> Arc<DigestRegion> {
    let layout = DigestLayout::new(ENTRY, capacity);
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    Arc::new(DigestRegion::format(memory, &layout).expect("formatted"))
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name, 36, BYTES).model("a model").dtype("bf16").rank(0, 2).block_tokens(16).hash("sha256", "0")
}

fn open(region: &Arc<DigestRegion>, name: &str) -> DigestBlocks {
    region.namespace(&namespace(name)).expect("opened")
}

fn key(number: u64) -> DigestKey {
    let mut digest = [0; 36];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    digest[30] = 7;
    DigestKey::new(&digest).expect("a digest")
}

/// Bytes of a version of a block; no two share a word.
fn bytes(number: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number << 20 | version);
    (0..BYTES).map(|_| random.u8(..)).collect()
}

fn put(blocks: &DigestBlocks, number: u64) -> DigestPut {
    blocks.put_from(&[key(number)], &[&bytes(number, 0)], None).expect("a batch")[0]
}

/// Looks for a block; what is found is right.
fn get(blocks: &DigestBlocks, number: u64) -> Get {
    let mut found = vec![0; BYTES];
    let get = blocks.get_into(&[key(number)], &mut [&mut found]).expect("a batch")[0];
    assert!(!get.is_hit() || found == bytes(number, 0), "wrong bytes of block {number}");
    get
}

fn present(blocks: &DigestBlocks, numbers: impl IntoIterator<Item = u64>) -> usize {
    let keys: Vec<_> = numbers.into_iter().map(key).collect();
    blocks.exists(&keys).expect("keys").into_iter().filter(|is| *is == Presence::Stored).count()
}

#[test]
fn batches_are_stored_found_and_removed() {
    let region = region(64);
    let blocks = open(&region, "one");
    let keys: Vec<_> = (0..12).map(key).collect();
    let contents: Vec<_> = (0..8).map(|number| bytes(number, 0)).collect();
    let slices: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    assert_eq!(blocks.put_from(&keys[..8], &slices, None), Ok(vec![DigestPut::Stored; 8]));
    assert_eq!(blocks.put_from(&keys[..8], &slices, None), Ok(vec![DigestPut::Present; 8]));
    let expected = [vec![Presence::Stored; 8], vec![Presence::Absent; 4]].concat();
    assert_eq!((blocks.exists(&keys), blocks.prefix(&keys)), (Ok(expected), Ok(8)));
    let mut found = vec![vec![0; BYTES]; 12];
    let mut buffers: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
    let gets = blocks.get_into(&keys, &mut buffers).expect("a batch");
    assert_eq!(gets, [vec![Get::Hit; 8], vec![Get::Miss(Miss::Absent); 4]].concat());
    assert_eq!(found[..8], contents[..]);
    assert_eq!((blocks.remove(&keys[3..5]), blocks.prefix(&keys)), (Ok(2), Ok(3)));
    assert_eq!((blocks.clear(), region.stats().blocks), (6, 0));
    assert_eq!((blocks.put_from(&[], &[], None), blocks.prefix(&[])), (Ok(vec![]), Ok(0)));
}

// Holds: RG11.
#[test]
fn random_plans_find_what_a_map_finds() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..4 {
        let region = region(4096);
        let spaces = [open(&region, "one"), open(&region, "two")];
        let mut map: HashMap<(usize, u64), u64> = HashMap::new();
        for step in 0..4000 {
            let (space, number) = (random.usize(..2), random.u64(..200));
            let (blocks, keys) = (&spaces[space], [key(number)]);
            match random.u32(..10) {
                0..4 => {
                    let version = random.u64(..1 << 20);
                    let put = blocks.put_from(&keys, &[&bytes(number, version)], None).expect("a batch")[0];
                    let expected =
                        if map.contains_key(&(space, number)) { DigestPut::Present } else { DigestPut::Stored };
                    assert_eq!(put, expected, "round {round}, step {step}");
                    map.entry((space, number)).or_insert(version);
                }
                4..8 => {
                    let mut found = vec![0; BYTES];
                    let get = blocks.get_into(&keys, &mut [&mut found]).expect("a batch")[0];
                    let expected = map.get(&(space, number));
                    assert_eq!(get.is_hit(), expected.is_some(), "round {round}, step {step}");
                    assert!(expected.is_none_or(|version| found == bytes(number, *version)));
                }
                8 => assert_eq!(blocks.remove(&keys), Ok(usize::from(map.remove(&(space, number)).is_some()))),
                _ => assert_eq!(blocks.prefix(&keys), Ok(usize::from(map.contains_key(&(space, number))))),
            }
        }
        let census = region.census();
        let count = |space| map.keys().filter(|(other, _)| *other == space).count();
        let counted: Vec<_> = census.namespaces.iter().map(|namespace| namespace.blocks).collect();
        assert_eq!((counted, census.processes[0].blocks), (vec![count(0), count(1)], map.len()));
    }
}

/// What exactness rests on: the first block under a key is the block of the key.
// Holds: RG12.
#[test]
fn equal_digests_of_other_bytes_give_the_bytes_that_were_stored_first() {
    let blocks = open(&region(8), "one");
    let keys = [key(1)];
    assert_eq!(blocks.put_from(&keys, &[&bytes(1, 0)], None), Ok(vec![DigestPut::Stored]));
    assert_eq!(blocks.put_from(&keys, &[&bytes(1, 1)], None), Ok(vec![DigestPut::Present]));
    assert!(get(&blocks, 1).is_hit(), "the first bytes, which `get` compares");
    // Nor does a key meet the block of a digest that is a part of it, or of the same one in another
    // namespace.
    let short = Namespace::new("short", 16, BYTES);
    let other = blocks.region().namespace(&short).expect("opened");
    let part = DigestKey::new(&key(1).to_vec()[..16]).expect("a digest");
    assert_eq!(other.exists(&[part]), Ok(vec![Presence::Absent]));
}

// Holds: RG15.
#[test]
fn keys_and_buffers_of_other_lengths_are_refused_with_both_numbers() {
    let blocks = open(&region(8), "one");
    let mut short = vec![0; BYTES - 1];
    let mut whole = vec![0; BYTES];
    let keys = [key(1), DigestKey::new(&[1; 32]).expect("a digest")];
    let refused = Err(BatchError::KeyBytes { index: 1, got: 32, expected: 36 });
    assert_eq!(blocks.exists(&keys).map(drop), refused);
    assert_eq!(blocks.remove(&keys).map(drop), refused);
    assert_eq!(blocks.put_from(&keys, &[&whole, &whole], None).map(drop), refused);
    let refused = Err(BatchError::BufferBytes { index: 1, got: BYTES - 1, expected: BYTES });
    assert_eq!(blocks.put_from(&[key(1), key(2)], &[&whole, &short], None).map(drop), refused);
    assert_eq!(blocks.get_into(&[key(1), key(2)], &mut [&mut whole, &mut short]).map(drop), refused);
    assert_eq!(
        blocks.get_into(&[key(1)], &mut []).map_err(|error| error.to_string()),
        Err("0 buffers given for 1 keys".into())
    );
    assert_eq!(present(&blocks, 0..8), 0, "nothing of a refused batch is done");
    for len in [0, 15, 37, 64] {
        assert_eq!(DigestKey::new(&vec![1; len]).expect_err("no digest").got, len);
    }
}

// Holds: RG15.
#[test]
fn another_namespace_of_a_name_is_refused_with_both_values() {
    let region = region(8);
    let first = namespace("one");
    region.namespace(&first).expect("opened");
    let others = [
        ("model", first.clone().model("another model")),
        ("dtype", first.clone().dtype("fp8")),
        ("arrangement", first.clone().arrangement("NHD")),
        ("shard", first.clone().rank(1, 2)),
        ("hash scheme", first.clone().hash("xxhash", "0")),
        ("hash seed", first.clone().hash("sha256", "1")),
        ("block tokens", first.clone().block_tokens(32)),
        ("checksum", first.clone().checksum(false)),
    ];
    for (differs, other) in others {
        match region.namespace(&other) {
            Err(NamespaceError::Mismatch { field, region, expected }) => {
                assert!(field == differs && region != expected, "{field}: {region}, {expected}");
            }
            opened => panic!("{differs}: {opened:?}"),
        }
    }
    let refused = region.namespace(&first.clone().model("b")).unwrap_err().to_string();
    assert_eq!(refused, r#"model is "a model" in the region, "b" was requested: use another name for the namespace"#);
    assert_eq!(region.census().namespaces.len(), 1, "a refused one leaves nothing");
    let wrong = [Namespace::new("n", 15, BYTES), Namespace::new("n", 37, BYTES)]
        .map(|namespace| region.namespace(&namespace).err());
    assert_eq!(wrong, [15, 37].map(|got| Some(NamespaceError::KeyBytes { got })));
    let large = region.namespace(&Namespace::new("n", 32, ENTRY + 1)).err();
    assert_eq!(large, Some(NamespaceError::BlockBytes { got: ENTRY + 1, max: ENTRY }));
    let long = region.namespace(&Namespace::new("n", 32, 1).model("m".repeat(121))).err();
    assert_eq!(long, Some(NamespaceError::TextTooLong { field: "model", len: 121 }));
    for number in 1..256 {
        open(&region, &format!("namespace {number}"));
    }
    assert_eq!(region.namespace(&namespace("more")).err(), Some(NamespaceError::TooMany { max: 256 }));
    open(&region, "one");
}

// Holds: RG15.
#[test]
fn threads_that_open_one_name_agree_on_one_namespace() {
    for _ in 0..50 {
        let region = region(8);
        let models: Vec<_> = thread::scope(|scope| {
            let open = |model: usize| {
                let region = &region;
                scope.spawn(move || region.namespace(&namespace("one").model(format!("model {}", model % 2))).is_ok())
            };
            let threads: Vec<_> = (0..4).map(open).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(models == [true, false, true, false] || models == [false, true, false, true], "{models:?}");
        assert_eq!(region.census().namespaces.len(), 1);
    }
}

// Holds: RG15.
#[test]
fn regions_of_other_keys_sizes_and_versions_are_refused_with_both_values() {
    let place = Place::new("digests-refused");
    let layout = DigestLayout::new(ENTRY, 8);
    let blocks = open(&Arc::new(DigestRegion::create(place.path(), &layout).expect("created")), "one");
    assert_eq!(put(&blocks, 1), DigestPut::Stored);
    let mismatch = |opened: OpenError| match opened {
        OpenError::Mismatch { field, region, expected } => (field, region, expected),
        error => panic!("{error}"),
    };
    let with = |field, region: &str, expected: &str| (field, region.to_owned(), expected.to_owned());
    let other = |layout| mismatch(DigestRegion::open(place.path(), &layout).expect_err("refused"));
    assert_eq!(other(DigestLayout::new(ENTRY + 1, 8)), with("block_bytes", "2011", "2012"));
    assert_eq!(other(DigestLayout::new(ENTRY, 9)), with("capacity", "8", "9"));
    let tokens = mismatch(Region::open(place.path(), &token_layout(8)).expect_err("refused"));
    assert_eq!(tokens, with("kind of keys", "digests", "tokens"));
    drop(blocks);
    let existing = Arc::new(DigestRegion::open_existing(place.path()).expect("opened"));
    assert_eq!((existing.layout(), present(&open(&existing, "one"), 0..3)), (layout, 1));

    let mut content = fs::read(place.path()).expect("read");
    content[8] = 77;
    fs::write(place.path(), &content).expect("written");
    let newer = DigestRegion::open_existing(place.path()).expect_err("refused").to_string();
    assert_eq!(newer, "the region has format version 77, this program reads 3");

    let place = Place::new("digests-tokens");
    drop(Region::create(place.path(), &token_layout(8)).expect("created"));
    let refused = mismatch(DigestRegion::open_existing(place.path()).expect_err("refused"));
    assert_eq!(refused, with("kind of keys", "tokens", "digests"));
}

// Holds: RG13.
#[test]
fn a_flipped_bit_of_the_bytes_is_a_miss_and_is_stored_again() {
    let place = Place::new("digests-flipped");
    let layout = DigestLayout::new(ENTRY, 1);
    let region = Arc::new(DigestRegion::create(place.path(), &layout).expect("created"));
    let (checked, unchecked) =
        (open(&region, "one"), region.namespace(&namespace("two").checksum(false)).expect("opened"));
    let payload = layout.region_bytes().expect("a layout") - ENTRY.next_multiple_of(64);
    let flip = || {
        let mut content = fs::read(place.path()).expect("read");
        content[payload + 100] ^= 4;
        fs::write(place.path(), &content).expect("written");
    };
    assert_eq!((put(&checked, 1), region.verify().right), (DigestPut::Stored, 1));
    flip();
    assert_eq!(get(&checked, 1), Get::Miss(Miss::WrongChecksum));
    assert_eq!((region.stats().missed(Miss::WrongChecksum), put(&checked, 1)), (1, DigestPut::Stored));
    assert!(get(&checked, 1).is_hit());
    flip();
    let verified = region.verify();
    assert_eq!((verified.right, verified.removed, region.stats().blocks), (0, 1, 0));
    // Without a checksum nothing tells.
    assert_eq!(put(&unchecked, 1), DigestPut::Stored);
    flip();
    assert_eq!(unchecked.exists(&[key(1)]), Ok(vec![Presence::Stored]));
    assert_eq!((region.verify().without_checksum, region.verify().removed), (1, 0));
}

#[test]
fn a_full_region_evicts_what_was_not_used_for_long_and_what_has_expired() {
    let region = region(64);
    let blocks = open(&region, "one");
    let short = blocks.put_from(&[key(1000)], &[&bytes(1000, 0)], Some(Duration::from_millis(1)));
    assert_eq!(short, Ok(vec![DigestPut::Stored]));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(get(&blocks, 1000), Get::Miss(Miss::Expired));
    for number in 0..1000 {
        assert_eq!(put(&blocks, number), DigestPut::Stored);
        assert!(number < 8 || (0..8).all(|used| get(&blocks, used).is_hit()), "block {number}");
    }
    assert_eq!((region.stats().blocks, region.stats().expired), (64, 1));
}

#[test]
fn the_first_blocks_of_a_batch_are_evicted_last() {
    let region = region(16);
    let blocks = open(&region, "one");
    let (keys, content): (Vec<_>, Vec<_>) = (0..16).map(|number| (key(number), bytes(number, 0))).unzip();
    let slices: Vec<&[u8]> = content.iter().map(Vec::as_slice).collect();
    blocks.put_from(&keys, &slices, None).expect("a batch");
    (100..104).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
    assert_eq!(blocks.prefix(&keys), Ok(12));
}

/// The first blocks of a batch were last used later than the clock says: a use does not set that
/// back.
// Holds: RG9.
#[test]
fn the_first_blocks_of_a_batch_stay_when_they_are_used() {
    let region = region(16);
    let blocks = open(&region, "one");
    let (keys, content): (Vec<_>, Vec<_>) = (0..16).map(|number| (key(number), bytes(number, 0))).unzip();
    let slices: Vec<&[u8]> = content.iter().map(Vec::as_slice).collect();
    blocks.put_from(&keys, &slices, None).expect("a batch");
    assert!((0..8).all(|used| get(&blocks, used).is_hit()));
    (100..108).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
    assert_eq!(blocks.prefix(&keys), Ok(8));
}

// Holds: RG22.
#[test]
fn a_namespace_and_a_process_keep_their_quota() {
    for capacity in [200, 50_000] {
        let layout = DigestLayout::new(BYTES, capacity);
        let place = Place::new(&format!("digests-quota-{capacity}"));
        let region = Arc::new(DigestRegion::create(place.path(), &layout).expect("created"));
        let other = Arc::new(DigestRegion::open(place.path(), &layout).expect("opened"));
        let (bounded, free, elsewhere) = (open(&region, "bounded"), open(&region, "free"), open(&other, "bounded"));
        bounded.set_quota(10);
        for number in 0..100 {
            assert_eq!(put(&free, number), DigestPut::Stored);
            assert_eq!(put(&bounded, number), DigestPut::Stored, "block {number}");
            assert_eq!(present(&bounded, 0..100), 10.min(number as usize + 1));
            assert!(get(&bounded, number).is_hit(), "block {number}");
        }
        assert_eq!(present(&free, 0..100), 100);
        // It is of all processes.
        for number in 200..240 {
            assert!(matches!(put(&elsewhere, number), DigestPut::Stored | DigestPut::OverQuota));
        }
        assert_eq!(present(&bounded, 0..300), 10);
        let census = region.census();
        assert_eq!((census.namespaces[0].quota, census.namespaces[0].blocks), (Some(10), 10));

        // The first process has 100 and some blocks, and may have no more; the other one may.
        region.set_process_quota(20);
        bounded.set_quota(0);
        for number in 300..340 {
            assert!(matches!(put(&bounded, number), DigestPut::Stored | DigestPut::OverQuota));
            assert!(matches!(put(&elsewhere, number + 1000), DigestPut::Stored));
        }
        let census = region.census();
        let own = census.processes.iter().position(|process| process.is_own).expect("it is open");
        assert!(census.processes[own].blocks <= 110, "{census:?}");
        assert_eq!(present(&bounded, 1300..1340), 40);
    }
}

#[test]
fn room_is_filled_in_place_and_a_source_says_whether_it_was_overwritten() {
    let region = region(1);
    let blocks = Arc::new(open(&region, "one"));
    let mut room = blocks.reserve(&key(1), None).expect("a key").expect("room");
    assert_eq!(room.as_mut_ptr().addr() % 64, 0);
    assert_eq!(blocks.exists(&[key(1)]), Ok(vec![Presence::BeingWritten]));
    assert_eq!((put(&blocks, 1), put(&blocks, 2)), (DigestPut::InFlight, DigestPut::NoRoom));
    for (at, part) in bytes(1, 0).chunks(7).enumerate() {
        room.write(7 * at, part);
    }
    room.publish();
    assert!(get(&blocks, 1).is_hit());
    let source = blocks.locate(&key(1)).expect("a key").expect("it is there");
    assert!(source.is_intact() && source.as_ptr().addr() % 64 == 0 && source.entry() == 0);
    assert_eq!(put(&blocks, 2), DigestPut::Stored);
    assert!(!source.is_intact());
    drop(blocks.reserve(&key(3), None).expect("a key").expect("room"));
    let census = region.census();
    assert_eq!((region.stats().in_flight, census.free, census.namespaces[0].blocks), (0, 1, 0));
    let process = &census.processes[0];
    assert_eq!((process.stored, process.blocks, process.in_flight), (2, 0, 0));
}

#[test]
fn old_blocks_are_trimmed_from_the_namespace_that_is_meant() {
    let (old, hour) = (Duration::from_millis(200), Duration::from_secs(3600));
    // Again where the thread was stopped for so long that the newest block is old as well.
    let (region, one, two) = loop {
        let region = region(64);
        let [one, two] = ["one", "two"].map(|name| open(&region, name));
        let both = |number| (put(&one, number), put(&two, number));
        (0..5).for_each(|number| assert_eq!(both(number), (DigestPut::Stored, DigestPut::Stored)));
        thread::sleep(old);
        let began = Instant::now();
        put(&one, 7);
        assert_eq!((region.trim(old, Some("none")), region.trim(hour, None)), (0, 0));
        let trimmed = region.trim(old, Some("one"));
        if began.elapsed() < old / 2 {
            assert_eq!(trimmed, 5);
            break (region, one, two);
        }
    };
    assert_eq!((present(&one, 0..9), present(&two, 0..9)), (1, 5));
    assert_eq!(region.trim(Duration::ZERO, None), 6);
    let census = region.census();
    assert_eq!((census.free, census.capacity, census.ownerless_blocks), (64, 64, 0));
}

/// Random bytes anywhere but in the header: every verb ends, and what is found is right.
// Holds: RG13.
#[test]
fn damage_costs_blocks_and_no_bytes() {
    let (place, layout) = (Place::new("digests-damaged"), DigestLayout::new(BYTES, 16));
    let region = Arc::new(DigestRegion::create(place.path(), &layout).expect("created"));
    (0..16).for_each(|number| assert_eq!(put(&open(&region, "one"), number), DigestPut::Stored));
    drop(region);
    let whole = fs::read(place.path()).expect("read");
    let payloads = whole.len() - 16 * BYTES.next_multiple_of(64);
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..300 {
        let mut content = whole.clone();
        for _ in 0..1 << random.u32(..12) {
            let at = random.usize(if round % 2 == 0 { 4096..payloads } else { 4096..whole.len() });
            content[at] = if random.bool() { random.u8(..) } else { content[at] ^ 1 << random.u32(..8) };
        }
        fs::write(place.path(), &content).expect("written");
        let Ok(region) = DigestRegion::open(place.path(), &layout) else { continue };
        let region = Arc::new(region);
        for name in ["one", "two"] {
            let Ok(blocks) = region.namespace(&namespace(name)) else { continue };
            (0..20).for_each(|number| drop(format!("{:?}", (get(&blocks, number), put(&blocks, number)))));
            (0..20).for_each(|number| drop(format!("{:?}", (get(&blocks, number), blocks.remove(&[key(number)])))));
        }
        let (census, verified) = (region.census(), region.verify());
        assert!(verified.removed + verified.right <= 16 && census.free <= 16);
        region.recover();
        region.trim(Duration::ZERO, None);
    }
}

#[test]
fn blocks_of_a_process_that_closed_the_region_are_nobodys() {
    let (place, layout) = (Place::new("digests-closed"), DigestLayout::new(BYTES, 8));
    let own = |region: &DigestRegion| region.census().processes.into_iter().find(|process| process.is_own);
    for opened in 0..3 {
        let region = Arc::new(DigestRegion::open_or_create(place.path(), &layout).expect("opened"));
        assert_eq!((own(&region).map(|own| own.blocks), region.census().ownerless_blocks), (Some(0), opened));
        assert_eq!(put(&open(&region, "one"), opened as u64), DigestPut::Stored);
        assert_eq!(own(&region).map(|own| (own.blocks, own.stored)), Some((1, 1)));
    }
}

// Holds: RG11.
#[test]
fn threads_that_fight_over_one_entry_see_no_wrong_byte() {
    const LARGE: usize = 32 << 10;
    let layout = DigestLayout::new(LARGE, 1);
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    let region = Arc::new(DigestRegion::format(memory, &layout).expect("formatted"));
    let blocks = region.namespace(&Namespace::new("one", 36, LARGE).checksum(false)).expect("opened");
    // Until enough copies were overwritten while they were made, which a loaded machine may take
    // its time for.
    let (is_done, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(10));
    let overwrite = || {
        for round in (0_u64..).take_while(|_| !is_done.load(Relaxed)) {
            blocks.put_from(&[key(round % 2)], &[&[round as u8 % 2; LARGE]], None).expect("a batch");
        }
    };
    let read = || {
        let (mut found, mut overwritten) = (vec![0; LARGE], 0);
        while overwritten < 30 && Instant::now() < until {
            for number in 0..2 {
                let get = blocks.get_into(&[key(number)], &mut [&mut found]).expect("a batch")[0];
                assert!(!get.is_hit() || found.iter().all(|byte| *byte == number as u8), "bytes of both blocks");
                overwritten += usize::from(get == Get::Miss(Miss::Overwritten));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(overwrite);
        let ended = catch_unwind(AssertUnwindSafe(read));
        is_done.store(true, Relaxed);
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// An engine opens a namespace while an operator verifies the region.
// Holds: RG13.
#[test]
fn blocks_of_a_namespace_that_is_opened_while_all_are_verified_are_right() {
    let region = region(8192);
    let first = open(&region, "first");
    (0..8192).for_each(|number| _ = put(&first, number));
    let is_done = AtomicBool::new(false);
    let removed: usize = thread::scope(|scope| {
        let verify =
            || (0..).take_while(|_| !is_done.load(Relaxed)).map(|_: u32| region.verify().removed).sum::<usize>();
        let verified = scope.spawn(verify);
        for round in 0..200 {
            let blocks = open(&region, &format!("round {round}"));
            (0..64).for_each(|number| _ = put(&blocks, number));
        }
        is_done.store(true, Relaxed);
        verified.join().expect("no panic")
    });
    assert_eq!(removed, 0);
}

// Holds: RG22.
#[test]
fn a_quota_that_was_lowered_is_kept_after_some_puts() {
    let region = region(200);
    let blocks = open(&region, "one");
    (0..100).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
    blocks.set_quota(10);
    (100..200).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
    assert_eq!(region.census().namespaces[0].blocks, 10);
}

/// No block belongs to both the namespace and the process whose quotas were lowered.
// Holds: RG22.
#[test]
fn quotas_that_were_lowered_at_once_are_kept_after_some_puts() {
    let (place, layout) = (Place::new("digests-lowered"), DigestLayout::new(BYTES, 400));
    let region = Arc::new(DigestRegion::create(place.path(), &layout).expect("created"));
    let other = Arc::new(DigestRegion::open(place.path(), &layout).expect("opened"));
    let (one, two, of_other) = (open(&region, "one"), open(&region, "two"), open(&other, "two"));
    (0..100).for_each(|number| assert_eq!(put(&one, number), DigestPut::Stored));
    (0..50).for_each(|number| assert_eq!(put(&of_other, number), DigestPut::Stored));
    region.set_process_quota(20);
    two.set_quota(10);
    (100..300).for_each(|number| assert_eq!(put(&two, number), DigestPut::Stored));
    let census = region.census();
    let own = census.processes.iter().find(|process| process.is_own).expect("it is open");
    assert!(own.blocks <= 20 && census.namespaces[1].blocks <= 10, "{census:?}");
}

// Holds: RG22.
#[test]
fn threads_that_reach_a_quota_at_once_evict_one_block_for_each_that_they_store() {
    const THREADS: u64 = 4;
    for of_process in [false, true] {
        let region = region(200);
        let blocks = open(&region, "one");
        (0..50).for_each(|number| assert_eq!(put(&blocks, number), DigestPut::Stored));
        if of_process {
            region.set_process_quota(50)
        } else {
            blocks.set_quota(50)
        };
        for round in 1..500 {
            let at_once = Barrier::new(THREADS as usize);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (blocks, at_once) = (&blocks, &at_once);
                    scope.spawn(move || {
                        at_once.wait();
                        assert_eq!(put(blocks, 1000 * round + thread), DigestPut::Stored);
                    });
                }
            });
            assert_eq!(region.census().namespaces[0].blocks, 50, "round {round}");
        }
    }
}

/// The open file says who owns it, whatever its path leads to by now.
#[test]
fn the_owner_of_a_regions_file_is_that_of_the_open_file() {
    let (place, layout) = (Place::new("digest-owner"), DigestLayout::new(ENTRY, 8));
    let region = DigestRegion::create(place.path(), &layout).expect("created");
    let owner = fs::metadata(place.path()).expect("it is there").uid();
    assert_eq!(region.file_owner().expect("asked"), Some(owner));
    fs::remove_file(place.path()).expect("removed");
    assert_eq!(region.file_owner().expect("asked"), Some(owner));
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    assert_eq!(DigestRegion::format(memory, &layout).expect("formatted").file_owner().expect("asked"), None);
}

/// A header that was changed on purpose and has a right checksum.
// Holds: RG15.
#[test]
fn a_header_with_labels_of_another_size_is_refused() {
    let place = Place::new("digests-labels");
    drop(DigestRegion::create(place.path(), &DigestLayout::new(ENTRY, 8)).expect("created"));
    let mut content = fs::read(place.path()).expect("read");
    // Tokens of a block; with so few blocks the region's size stays.
    content[2 * 8] = 1;
    let word = |at: usize| u64::from_ne_bytes(content[8 * at..][..8].try_into().expect("a word"));
    let seal = (1..80).filter(|at| *at != 7).fold(u64::from_ne_bytes(*b"radixkvR"), |seal, at| {
        let mixed = (seal ^ word(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    });
    content[7 * 8..][..8].copy_from_slice(&seal.to_ne_bytes());
    fs::write(place.path(), &content).expect("written");
    for refused in [DigestRegion::open_existing(place.path()).err(), DigestObserver::open(place.path()).err()] {
        match refused {
            Some(OpenError::Mismatch { field, region, expected }) => {
                assert_eq!((field, region.as_str(), expected.as_str()), ("block_size", "1", "32"));
            }
            opened => panic!("{opened:?}"),
        }
    }
}
