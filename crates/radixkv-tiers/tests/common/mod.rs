//! What the tests of all tiers share: blocks whose bytes follow from their keys, and what any tier
//! must do.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{collections::HashSet, time::Duration};

use radixkv_tiers::{Block, BlockKey, Completion, Get, Layout, Miss, NotGot, Outcome, Put, RemoteTier, Token};

pub(crate) type Bytes = Vec<u8>;
/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn layout(block_size: usize, block_bytes: usize) -> Layout {
    Layout::new("model", "bf16", block_size, block_bytes).unwrap()
}

/// A layout of blocks that are named by digests.
pub(crate) fn digests(bytes: usize, block_bytes: usize) -> Layout {
    layout(16, block_bytes).digest_keys(bytes, "sha256", "0").unwrap()
}

/// Layouts with other kinds of keys, and encrypted ones where there are such.
pub(crate) fn other_layouts() -> Vec<Layout> {
    let digests = digests(36, 5000);
    #[cfg(feature = "encryption")]
    let encrypted = digests.clone().encrypted(radixkv_tiers::SealKey::new(&[1; 32]));
    vec![
        digests,
        #[cfg(feature = "encryption")]
        encrypted,
    ]
}

/// Blocks of sequences of one block each, or of digests.
pub(crate) fn blocks(layout: &Layout, count: usize) -> Vec<Block> {
    let digest = |first: Token| {
        // The first length that the layout has.
        let digests = (16..=36).map(|bytes| first.to_le_bytes().into_iter().cycle().take(bytes).collect::<Vec<_>>());
        digests.into_iter().find_map(|digest| layout.digest_block(&digest).ok())
    };
    let tokens = |first| layout.blocks("n", &vec![first; layout.block_size()]).remove(0);
    (0..count as Token).map(|first| digest(first).unwrap_or_else(|| tokens(first))).collect()
}

/// The bytes of a block: no two blocks share eight of them at one place.
pub(crate) fn bytes_of(key: BlockKey, length: usize) -> Bytes {
    let seed = u64::from_le_bytes(key.as_bytes()[..8].try_into().unwrap());
    let words = (0_u64..).flat_map(|word| (seed ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes());
    words.take(length).collect()
}

/// Polls until `count` completions are there; in the order of their batches.
pub(crate) fn completions(tier: &dyn RemoteTier<Bytes>, count: usize) -> Vec<Completion<Bytes>> {
    let mut done = Vec::new();
    while done.len() < count {
        assert!(tier.poll(&mut done, PATIENCE) > 0, "{} of {count}", done.len());
    }
    done.sort_by_key(|completion| (completion.ticket, completion.index));
    assert_eq!(done.len(), count);
    done
}

pub(crate) fn put(block: &Block, layout: &Layout, time_to_live: Option<Duration>) -> Put<Bytes> {
    Put { block: block.clone(), buffer: bytes_of(block.key(), layout.block_bytes()), time_to_live }
}

/// What a buffer holds where nothing was copied into it.
pub(crate) const UNTOUCHED: u8 = 0xA5;

pub(crate) fn get(block: &Block, layout: &Layout) -> Get<Bytes> {
    Get { block: block.clone(), buffer: vec![UNTOUCHED; layout.block_bytes()] }
}

/// Puts blocks; all must be taken.
pub(crate) fn put_all(tier: &dyn RemoteTier<Bytes>, blocks: &[Block], time_to_live: Option<Duration>) {
    let layout = tier.layout().clone();
    tier.put_from(blocks.iter().map(|block| put(block, &layout, time_to_live)).collect()).unwrap();
    for completion in completions(tier, blocks.len()) {
        assert!(matches!(&completion.outcome, Outcome::Put(_, Ok(()))), "{:?}", completion.outcome);
    }
}

/// The end of a get. Whatever it is, the bytes are the block's, or the buffer is as it was.
pub(crate) fn checked(completion: Completion<Bytes>, layout: &Layout) -> Result<(), NotGot> {
    let Outcome::Got(get, got) = completion.outcome else { panic!("no end of a get: {completion:?}") };
    match got {
        Ok(()) => assert!(get.buffer == bytes_of(get.block.key(), layout.block_bytes()), "wrong bytes"),
        Err(_) => assert!(get.buffer.iter().all(|&byte| byte == UNTOUCHED), "a buffer was touched"),
    }
    got
}

/// Gets blocks, each checked.
pub(crate) fn get_all(tier: &dyn RemoteTier<Bytes>, blocks: &[Block]) -> Vec<Result<(), NotGot>> {
    let layout = tier.layout().clone();
    tier.get_into(blocks.iter().map(|block| get(block, &layout)).collect()).unwrap();
    completions(tier, blocks.len()).into_iter().map(|completion| checked(completion, &layout)).collect()
}

pub(crate) fn contained(tier: &dyn RemoteTier<Bytes>, blocks: &[Block]) -> Vec<bool> {
    tier.contains(blocks.iter().map(Block::key).collect()).unwrap();
    let ends = completions(tier, blocks.len()).into_iter().map(|completion| match completion.outcome {
        Outcome::Contained(_, Ok(is_there)) => is_there,
        other => panic!("{other:?}"),
    });
    ends.collect()
}

pub(crate) const ABSENT: Result<(), NotGot> = Err(NotGot::Miss(Miss::Absent));

/// What every tier does.
pub(crate) fn does_what_a_tier_does(tier: &dyn RemoteTier<Bytes>) {
    does_what_a_tier_does_in(tier, tier.layout().object_bytes());
}

/// What every tier does, of which a stored block counts for so many bytes.
pub(crate) fn does_what_a_tier_does_in(tier: &dyn RemoteTier<Bytes>, bytes: usize) {
    let layout = tier.layout().clone();
    let (before, all) = (tier.stats(), blocks(&layout, 20));
    let (held, absent) = all.split_at(12);
    put_all(tier, held, None);
    assert_eq!(get_all(tier, held), vec![Ok(()); 12]);
    assert_eq!(get_all(tier, absent), vec![ABSENT; 8]);
    assert_eq!(contained(tier, &all), [vec![true; 12], vec![false; 8]].concat());

    // Again, with a time to live that is over when it is read: long ago in the store's eyes, and at
    // no time of a clock's.
    put_all(tier, &held[..2], Some(Duration::ZERO));
    for end in get_all(tier, &held[..2]) {
        assert!(matches!(end, Err(NotGot::Miss(Miss::Expired | Miss::Absent))), "{end:?}");
    }
    put_all(tier, &held[..2], Some(Duration::from_secs(3600)));
    assert_eq!(get_all(tier, &held[..2]), vec![Ok(()); 2]);
    put_all(tier, &held[..1], Some(Duration::MAX));
    assert_eq!(get_all(tier, &held[..1]), vec![Ok(()); 1]);

    tier.remove(all.iter().map(Block::key).collect()).unwrap();
    let removed = completions(tier, 20);
    assert!(removed.iter().all(|end| matches!(end.outcome, Outcome::Removed(_, Ok(())))), "{removed:?}");
    let keys: HashSet<_> = removed.iter().map(|end| (end.ticket, end.index)).collect();
    assert_eq!(keys.len(), 20);
    assert_eq!(get_all(tier, held), vec![ABSENT; 12]);
    assert_eq!(contained(tier, &all), vec![false; 20]);

    let stats = tier.stats();
    assert_eq!(stats.hits - before.hits, 15);
    assert_eq!(stats.misses.total() - before.misses.total(), 8 + 2 + 12);
    assert_eq!(stats.stored_blocks - before.stored_blocks, 17);
    assert_eq!(stats.removed_blocks - before.removed_blocks, 20);
    assert_eq!(stats.read_bytes - before.read_bytes, 15 * bytes as u64);
    assert_eq!(stats.written_bytes - before.written_bytes, 17 * bytes as u64);
    assert_eq!((stats.in_flight, stats.errors.total()), (0, before.errors.total()));
}
