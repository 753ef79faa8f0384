//! Blocks that are named by digests, in files and in host memory.

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    ABSENT, Bytes, blocks, bytes_of, contained, digests, does_what_a_tier_does_in, get, get_all, put, put_all,
};
use radixkv_tiers::{
    DigestTier, Failure, FileTier, Layout, LayoutError, NotGot, OpenError, Outcome, Put, Refusal, RegionTier,
    RemoteTier, Tier,
    radixkv_region::{DigestBlocks, DigestLayout, DigestRegion, Memory, Presence},
};

/// A namespace of a region of this process alone.
fn memory(layout: &Layout, capacity: u32) -> Arc<DigestBlocks> {
    let sizes = DigestLayout::new(layout.block_bytes(), capacity);
    let memory = Memory::anonymous(sizes.region_bytes().unwrap()).unwrap();
    let region = Arc::new(DigestRegion::format(memory, &sizes).unwrap());
    Arc::new(region.namespace(&DigestTier::namespace("tests", layout)).unwrap())
}

fn open(blocks: &Arc<DigestBlocks>, layout: &Layout) -> Tier<Bytes> {
    DigestTier::new(Arc::clone(blocks), layout.clone()).unwrap().open().unwrap()
}

// Holds: RG16.
#[test]
fn tiers_of_digests_do_what_a_tier_does() {
    for bytes in [16, 32, 36] {
        let (folder, layout) = (tempfile::tempdir().unwrap(), digests(bytes, 5000));
        does_what_a_tier_does_in(&open(&memory(&layout, 64), &layout), layout.block_bytes());
        let files = FileTier::new(folder.path(), layout.clone(), 1 << 20).open().unwrap();
        does_what_a_tier_does_in(&files, layout.object_bytes());
        let all = blocks(&layout, 3);
        put_all(&files, &all, None);
        drop(files);
        let again = FileTier::new(folder.path(), layout.clone(), 1 << 20).open().unwrap();
        assert_eq!(get_all(&again, &all), vec![Ok(()); 3], "found again after a restart");
    }
}

// Holds: RG16.
#[test]
fn digests_of_other_lengths_and_stores_of_other_keys_are_refused_with_both_values() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), digests(36, 100));
    assert_eq!(layout.digest_block(&[1; 32]), Err(LayoutError::DigestBytes { bytes: 32, expected: 36 }));
    assert_eq!(common::layout(4, 100).digest_block(&[1; 32]), Err(LayoutError::DigestBytes { bytes: 32, expected: 0 }));
    for bytes in [15, 37] {
        let refused = common::layout(4, 100).digest_keys(bytes, "sha256", "0").unwrap_err();
        assert_eq!(refused, LayoutError::DigestLength { bytes });
    }
    let open = |layout: &Layout| FileTier::new(folder.path(), layout.clone(), 1 << 20).open::<Bytes>();
    drop(open(&layout).unwrap());
    let hashed = common::layout(16, 100).digest_keys(36, "xxhash", "0").unwrap();
    for (other, asked) in [(common::layout(16, 100), "tokens"), (hashed, "digests of 36 bytes, xxhash, seed 0")] {
        match open(&other) {
            Err(OpenError::OtherLayout { field: "keys", stored, asked: found, .. }) => {
                assert_eq!((stored.as_str(), found.as_str()), ("digests of 36 bytes, sha256, seed 0", asked));
            }
            opened => panic!("{opened:?}"),
        }
    }
    let region = RegionTier::<Bytes>::open_or_create(folder.path().join("region"), layout.clone(), 4);
    assert!(matches!(region, Err(OpenError::OtherLayout { field: "keys", .. })), "{region:?}");
    let blocks = memory(&layout, 4);
    for other in [common::layout(16, 100), digests(36, 101)] {
        let refused = DigestTier::new(Arc::clone(&blocks), other).unwrap_err();
        assert!(matches!(refused, OpenError::OtherLayout { field: "keys" | "block bytes", .. }), "{refused}");
    }
    let (tier, foreign) = (self::open(&blocks, &layout), common::blocks(&digests(32, 100), 1).remove(0));
    let refused = tier.put_from(vec![put(&foreign, &layout, None)]).unwrap_err();
    assert_eq!(refused.reason, Refusal::OtherLayout { index: 0 });
    let mut short = get(&common::blocks(&layout, 1)[0], &layout);
    short.buffer.truncate(10);
    let refused = tier.get_into(vec![short]).unwrap_err();
    assert_eq!(refused.reason, Refusal::BufferBytes { index: 0, bytes: 10, block_bytes: 100 });
}

/// What exactness rests on.
// Holds: RG16.
#[test]
fn equal_digests_of_other_bytes_are_one_block() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), digests(32, 100));
    let files = FileTier::new(folder.path(), layout.clone(), 1 << 20).open().unwrap();
    let block = layout.digest_block(&[3; 32]).unwrap();
    let [first, second] = [1, 2].map(|byte| vec![byte; 100]);
    // In memory the first bytes stay, in a file the last ones do; no read says that there were
    // others.
    for (tier, stays) in [(open(&memory(&layout, 4), &layout), &first), (files, &second)] {
        for bytes in [&first, &second] {
            tier.put_from(vec![Put { block: block.clone(), buffer: bytes.clone(), time_to_live: None }]).unwrap();
            assert!(matches!(common::completions(&tier, 1)[0].outcome, Outcome::Put(_, Ok(()))));
        }
        tier.get_into(vec![get(&block, &layout)]).unwrap();
        let Outcome::Got(got, Ok(())) = &common::completions(&tier, 1)[0].outcome else { panic!("it is there") };
        assert_eq!(&got.buffer, stays);
    }
}

// Holds: RG16.
#[test]
fn processes_that_share_a_region_find_each_others_blocks() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), digests(36, 1000).every_rank());
    let share = |layout: &Layout| {
        let sizes = DigestLayout::new(layout.block_bytes(), 64);
        let region = Arc::new(DigestRegion::open_or_create(folder.path().join("kv"), &sizes).unwrap());
        region.namespace(&DigestTier::namespace("tests", layout))
    };
    let [one, other] = [(); 2].map(|()| Arc::new(share(&layout).unwrap()));
    let refused = share(&digests(36, 1000)).unwrap_err().to_string();
    assert!(refused.starts_with(r#"shard is "every rank" in the region, "rank 0 of 1" was requested"#), "{refused}");
    let tiers = [open(&one, &layout), open(&other, &layout)];
    let all = blocks(&layout, 20);
    put_all(&tiers[0], &all[..12], None);
    assert_eq!(contained(&tiers[1], &all), [vec![true; 12], vec![false; 8]].concat());
    assert_eq!(get_all(&tiers[1], &all), [vec![Ok(()); 12], vec![ABSENT; 8]].concat());
    // A scheduler that needs an answer at once asks the region.
    let keys: Vec<_> = all.iter().map(|block| DigestTier::key(block.key())).collect();
    assert_eq!((other.prefix(&keys), other.exists(&keys[12..13])), (Ok(12), Ok(vec![Presence::Absent])));
}

#[test]
fn a_namespace_at_its_quota_says_that_there_is_no_room() {
    let layout = digests(32, 100);
    let blocks = memory(&layout, 8);
    blocks.set_quota(2);
    let tier = open(&blocks, &layout);
    put_all(&tier, &common::blocks(&layout, 2), None);
    // The blocks that could make room are being written.
    let all: Vec<_> = common::blocks(&layout, 4).iter().map(|block| DigestTier::key(block.key())).collect();
    blocks.remove(&all).unwrap();
    let _rooms = [blocks.reserve(&all[0], None).unwrap().unwrap(), blocks.reserve(&all[1], None).unwrap().unwrap()];
    let last = common::blocks(&layout, 4).remove(3);
    tier.put_from(vec![put(&last, &layout, None)]).unwrap();
    assert!(matches!(common::completions(&tier, 1)[0].outcome, Outcome::Put(_, Err(Failure::NoRoom))));
    assert_eq!((tier.stats().errors.no_room, tier.stats().stored_blocks), (1, 2));
}

#[test]
fn buffers_that_panic_fail_their_request_and_nothing_else() {
    #[derive(Debug)]
    struct Bad;
    impl AsRef<[u8]> for Bad {
        fn as_ref(&self) -> &[u8] {
            if std::thread::current().name().is_some_and(|name| name.starts_with("kv-")) {
                panic!("a bad buffer")
            }
            &[0; 100]
        }
    }
    impl AsMut<[u8]> for Bad {
        fn as_mut(&mut self) -> &mut [u8] {
            panic!("a bad buffer")
        }
    }
    let layout = digests(32, 100);
    let blocks = memory(&layout, 8);
    let bad = DigestTier::new(Arc::clone(&blocks), layout.clone()).unwrap().threads(1).open::<Bad>().unwrap();
    let block = layout.digest_block(&[1; 32]).unwrap();
    let mut done = Vec::new();
    bad.put_from(vec![Put { block: block.clone(), buffer: Bad, time_to_live: None }]).unwrap();
    while done.is_empty() {
        bad.poll(&mut done, Duration::from_secs(1));
    }
    assert!(matches!(done[0].outcome, Outcome::Put(_, Err(Failure::Buffer))));
    let tier = open(&blocks, &layout);
    let good = Put { block: block.clone(), buffer: bytes_of(block.key(), 100), time_to_live: None };
    tier.put_from(vec![good]).unwrap();
    common::completions(&tier, 1);
    bad.get_into(vec![radixkv_tiers::Get { block: block.clone(), buffer: Bad }]).unwrap();
    while done.len() < 2 {
        bad.poll(&mut done, Duration::from_secs(1));
    }
    assert!(matches!(done[1].outcome, Outcome::Got(_, Err(NotGot::Failed(Failure::Buffer)))));
    assert_eq!(get_all(&tier, &[block]), [Ok(())]);
}
