//! What is restored is what was saved.

mod common;

use common::{BYTES, Memory, bytes_of, contents, count, layout, load, names, serve};
use radixkv::{Evicted, Keys, NamespaceName, PolicyKind, PrefixCache, Priority, Quota, Token};
use radixkv_save::{BlockBytes, Layout, OpenError, RestoreError, Restored, Save, SaveError, Saved, TreeOnly};

fn cache(block_size: usize, blocks: usize) -> PrefixCache {
    PrefixCache::builder(block_size, blocks).build().unwrap()
}

/// Saves, opens and restores into a cache of so many blocks.
fn restarted(cache: &PrefixCache, memory: &Memory, blocks: usize) -> (PrefixCache, Memory, Restored) {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(cache.block_size()));
    let report = Save::new(cache, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    assert_eq!((report.evicted_blocks, report.unreadable_blocks), (0, 0));
    let saved = Saved::open(folder.path(), &layout).unwrap();
    assert_eq!((saved.blocks(), saved.has_bytes()), (report.blocks, true));
    assert_eq!(std::fs::metadata(folder.path().join("save")).unwrap().len(), report.bytes);
    let (again, mut fresh) = (
        PrefixCache::builder(cache.block_size(), blocks).policy(cache.settings().policy()).build().unwrap(),
        Memory::new(blocks),
    );
    let restored = saved.restore(&again, &mut fresh).unwrap();
    assert_eq!(again.validate(), Ok(()));
    (again, fresh, restored)
}

// Holds: SV1.
#[test]
fn random_trees_of_many_namespaces_come_back_equal() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (size, blocks) = (random.usize(1..6), random.usize(20..400));
        let (cache, memory) = (cache(size, blocks), Memory::new(blocks));
        load(&cache, &memory, &mut random, 200, 12 * size);
        let before = contents(&cache, Some(&memory), &names(&cache));
        let (again, fresh, restored) = restarted(&cache, &memory, blocks);
        assert_eq!(restored.blocks, count(&before), "{restored:?}");
        assert_eq!(contents(&again, Some(&fresh), &names(&again)), before, "seed {seed}");
        // Saving left everything as it was.
        assert_eq!(contents(&cache, Some(&memory), &names(&cache)), before);
        assert_eq!(cache.validate(), Ok(()));
    }
}

/// A run as `walk` shows it: its place, its parent's whole sequence, its tokens, how many blocks it
/// has.
type Seen = (usize, Option<Vec<Token>>, Vec<Token>, usize);

/// The runs of each namespace, in an order that does not depend on what was cached first.
fn runs(cache: &PrefixCache) -> Vec<Vec<Seen>> {
    let mut all = Vec::new();
    for name in names(cache) {
        let (parts, mut runs) = (name.parts().collect::<Vec<_>>(), Vec::<Seen>::new());
        let mut sequences: Vec<Vec<Token>> = Vec::new();
        cache.namespace(NamespaceName::new(&parts).with_keys(name.keys())).walk(|run| {
            let parent = run.parent.map(|parent| sequences[parent].clone());
            let before = parent.as_ref().map_or(&[][..], |parent| &parent[..run.start]);
            sequences.push([before, run.tokens].concat());
            runs.push((run.start, parent, run.tokens.to_vec(), run.blocks.len()));
        });
        runs.sort();
        all.push(runs);
    }
    all
}

/// Evictions leave places behind that say nothing of what is cached; without them each run comes
/// back as it was.
#[test]
fn where_nothing_was_evicted_every_run_comes_back() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (cache, memory) = (cache(random.usize(1..6), 4000), Memory::new(4000));
        load(&cache, &memory, &mut random, 100, 60);
        let (again, _, _) = restarted(&cache, &memory, 4000);
        let (before, after) = (runs(&cache), runs(&again));
        assert!(before == after, "seed {seed}");
        assert!(before.iter().map(Vec::len).sum::<usize>() > 50);
    }
}

/// What goes first when one block after the other is evicted.
fn order_of_eviction(cache: &PrefixCache) -> Vec<(String, Vec<Token>)> {
    let mut order = Vec::new();
    loop {
        let mut evicted = Vec::new();
        if cache.evict_into(1, &mut evicted) == 0 {
            return order;
        }
        order.extend(evicted.into_iter().map(|Evicted { namespace, tokens, .. }| (format!("{namespace:?}"), tokens)));
    }
}

/// Chats, in which each turn goes on where the last one ended, and prompts that are asked again
/// whole.
// Holds: SV2.
#[test]
fn what_was_used_last_is_evicted_last() {
    for policy in [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Mru] {
        for seed in 0..10 {
            let mut random = fastrand::Rng::with_seed(seed);
            let cache = PrefixCache::builder(2, 400).policy(policy).build().unwrap();
            let (session, memory) = (cache.session(), Memory::new(400));
            let spaces = [cache.default_namespace(), cache.namespace(&["a"])];
            let mut chats: Vec<Vec<Token>> = (0..12).map(|number| vec![number, 1]).collect();
            for _ in 0..60 {
                let number = random.usize(..chats.len());
                let space = &spaces[number % 2];
                if random.bool() && chats[number].len() < 24 {
                    chats[number].extend([(); 2].map(|()| random.u32(..9)));
                }
                serve(&cache, &session, space, &memory, &chats[number]);
            }
            let (again, _, _) = restarted(&cache, &memory, 400);
            assert_eq!(order_of_eviction(&again), order_of_eviction(&cache), "{policy:?}, seed {seed}");
        }
    }
}

// Holds: SV3.
#[test]
fn a_smaller_pool_keeps_what_was_used_last() {
    let (cache, memory) = (cache(2, 64), Memory::new(64));
    let (session, space) = (cache.session(), cache.default_namespace());
    // Ten sequences of a block in common and two of their own; the last one is the first one again.
    let sequences: Vec<Vec<Token>> = (0..10).map(|number| vec![7, 7, number, 1, number, 2]).collect();
    for tokens in sequences.iter().chain([&sequences[0]]) {
        assert!(serve(&cache, &session, &space, &memory, tokens));
    }
    for (room, whole) in [(21, 10), (20, 9), (7, 3), (3, 1), (2, 0), (1, 0)] {
        let (again, fresh, restored) = restarted(&cache, &memory, room);
        assert_eq!((restored.blocks, restored.no_room_blocks), (room, 21 - room));
        contents(&again, Some(&fresh), &names(&again));
        let found: Vec<_> =
            sequences.iter().map(|tokens| again.session().peek(&again.default_namespace(), tokens)).collect();
        assert_eq!(found.iter().filter(|&&tokens| tokens == 6).count(), whole, "{found:?}");
        assert_eq!(found[0], (2 * room).min(6));
        assert!(found[1..].is_sorted(), "{found:?}");
    }
}

// Holds: SV3.
#[test]
fn what_is_cached_is_neither_evicted_nor_stored_twice() {
    let (old, memory) = (cache(2, 8), Memory::new(8));
    let tokens = [[1, 2, 3, 4], [1, 2, 5, 6]];
    for tokens in &tokens {
        assert!(serve(&old, &old.session(), &old.default_namespace(), &memory, tokens));
    }
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    Save::new(&old, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    let (new, mut fresh) = (cache(2, 4), Memory::new(4));
    for tokens in [&tokens[0][..], &[9, 9]] {
        assert!(serve(&new, &new.session(), &new.default_namespace(), &fresh, tokens));
    }
    let restored = Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
    // One block was free.
    assert_eq!((restored.blocks + restored.known_blocks, restored.no_room_blocks), (1, 2), "{restored:?}");
    assert_eq!(new.session().peek(&new.default_namespace(), &[9, 9]), 2);
    contents(&new, Some(&fresh), &names(&new));
}

// Holds: SV1.
#[test]
fn an_external_pool_takes_the_engines_ids() {
    let (old, memory) = (cache(2, 32), Memory::new(32));
    load(&old, &memory, &mut fastrand::Rng::with_seed(3), 60, 20);
    let before = contents(&old, Some(&memory), &names(&old));
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    let report = Save::new(&old, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    let saved = Saved::open(folder.path(), &layout).unwrap();
    let new = PrefixCache::builder(2, 40).external().build().unwrap();
    let (mut free, mut fresh) = ((0..40).collect::<Vec<_>>(), Memory::new(40));
    assert_eq!(saved.restore(&new, &mut fresh), Err(RestoreError::External));
    assert_eq!(saved.restore_external(&old, &mut free, &mut fresh), Err(RestoreError::NotExternal));
    let restored = saved.restore_external(&new, &mut free, &mut fresh).unwrap();
    assert_eq!((restored.blocks, free.len()), (report.blocks, 40 - report.blocks));
    assert_eq!(contents(&new, Some(&fresh), &names(&new)), before);
    assert_eq!(new.external().expect("an external pool").take_evicted(&mut free), 0);
}

// Holds: SV3.
#[test]
fn quotas_hold_and_what_they_refuse_is_counted() {
    let (old, memory) = (cache(2, 64), Memory::new(64));
    let (session, space) = (old.session(), old.namespace(&["tenant"]));
    for number in 0..10 {
        assert!(serve(&old, &session, &space, &memory, &[number, 1, number, 2, number, 3]));
    }
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    Save::new(&old, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    let saved = Saved::open(folder.path(), &layout).unwrap();
    for (quota, cached) in [
        (Quota::default().pinned_blocks(4), 30),
        (Quota::default().cached_blocks(9), 9),
        (Quota::default().pinned_blocks(2), 0),
    ] {
        let (new, mut fresh) = (cache(2, 64), Memory::new(64));
        let space = new.namespace(&["tenant"]);
        space.set_quota(quota);
        let restored = saved.restore(&new, &mut fresh).unwrap();
        new.settle();
        assert_eq!(space.stats().cached_blocks, cached, "{quota:?}, {restored:?}");
        assert_eq!(restored.blocks + restored.refused_blocks, 30);
        contents(&new, Some(&fresh), &[space.name()]);
        // With leases let go, too, the sequences that were used last are the last to go.
        if quota.pinned_blocks == Some(4) {
            let order: Vec<_> = order_of_eviction(&new).into_iter().map(|(_, tokens)| tokens[0]).collect();
            assert!(order.is_sorted(), "{order:?}");
        }
    }
}

// Holds: SV2.
#[test]
fn priorities_are_given_again_until_they_expire() {
    let (old, memory) = (cache(2, 16), Memory::new(16));
    for number in 0..4 {
        assert!(serve(&old, &old.session(), &old.default_namespace(), &memory, &[number, number]));
    }
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    let level = Priority::new;
    let of = |tokens: &[Token]| match tokens[0] {
        0 => Some(level(90)),
        1 => Some(level(80).expiring_after(std::time::Duration::from_secs(3600))),
        2 => Some(level(100).expiring_after(std::time::Duration::ZERO)),
        _ => None,
    };
    Save::new(&old, &layout).priorities(|_, tokens| of(tokens)).to(folder.path(), &mut memory.clone()).unwrap();
    let new = PrefixCache::builder(2, 16).policy(PolicyKind::Priority).build().unwrap();
    Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut Memory::new(16)).unwrap();
    let order: Vec<_> = order_of_eviction(&new).into_iter().map(|(_, tokens)| tokens[0]).collect();
    assert_eq!(order, [2, 3, 1, 0]);
}

// Holds: SV8.
#[test]
fn namespaces_that_may_not_be_stored_are_not() {
    let (old, memory) = (cache(2, 400), Memory::new(400));
    load(&old, &memory, &mut fastrand::Rng::with_seed(8), 60, 20);
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    let secret = old.namespace(&["secret name"]);
    assert!(serve(&old, &old.session(), &secret, &memory, &[77_777, 77_778]));
    let keep = |name: &radixkv::NamespaceName| name.keys() == Keys::Tokens && name.parts().next() == Some("a");
    Save::new(&old, &layout).keep(keep).to(folder.path(), &mut memory.clone()).unwrap();
    let new = cache(2, 400);
    Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut Memory::new(400)).unwrap();
    let mut before = contents(&old, None, &names(&old));
    before.retain(|name, _| keep(name));
    assert_eq!((contents(&new, None, &names(&new)), before.len()), (before.clone(), 2));
    let file = std::fs::read(folder.path().join("save")).unwrap();
    let has = |bytes: &[u8]| file.windows(bytes.len()).any(|window| window == bytes);
    assert!(!has(b"secret") && !has(&77_777_u32.to_le_bytes()) && !has(&bytes_of(&secret.name(), &[77_777, 77_778])));
}

// Holds: SV1.
#[test]
fn a_tree_alone_has_no_bytes() {
    let (old, memory) = (cache(3, 100), Memory::new(100));
    load(&old, &memory, &mut fastrand::Rng::with_seed(5), 80, 30);
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(3));
    Save::new(&old, &layout).to(folder.path(), &mut TreeOnly).unwrap();
    let (saved, new) = (Saved::open(folder.path(), &layout).unwrap(), cache(3, 100));
    assert!(!saved.has_bytes());
    let refused = saved.restore(&new, &mut Memory::new(100)).unwrap_err();
    assert_eq!(refused.to_string(), "blocks differ: 48 bytes in the memory, 0 in the save");
    saved.restore(&new, &mut TreeOnly).unwrap();
    assert_eq!(contents(&new, None, &names(&new)), contents(&old, None, &names(&old)));
}

// Holds: SV7.
#[test]
fn another_layout_is_refused_with_both_values() {
    let (old, folder, right) = (cache(2, 8), tempfile::tempdir().unwrap(), layout(2));
    assert!(matches!(Saved::open(folder.path(), &right), Err(OpenError::NothingSaved { .. })));
    Save::new(&old, &right).to(folder.path(), &mut Memory::new(8)).unwrap();
    let asked = [
        (Layout::new("other", "bf16", 2, BYTES), r#"model "model", this layout has "other""#),
        (Layout::new("model", "fp8", 2, BYTES), r#"dtype "bf16", this layout has "fp8""#),
        (Layout::new("model", "bf16", 3, BYTES), r#"block size "2", this layout has "3""#),
        (Layout::new("model", "bf16", 2, 64), r#"block bytes "48", this layout has "64""#),
        (right.clone().kv_layout("HND"), r#"kv layout "", this layout has "HND""#),
        (right.clone().tensor_parallel(1, 2), r#"tensor parallel "rank 0 of 1", this layout has "rank 1 of 2""#),
    ];
    for (layout, values) in asked {
        let refused = Saved::open(folder.path(), &layout.unwrap()).unwrap_err();
        assert!(matches!(refused, OpenError::OtherLayout { .. }) && refused.to_string().contains(values), "{refused}");
    }
    let saved = Saved::open(folder.path(), &right).unwrap();
    let refused = saved.restore(&cache(3, 8), &mut Memory::new(8)).unwrap_err();
    assert_eq!(refused.to_string(), "blocks differ: 3 tokens in the cache, 2 in the save");
    let refused = Save::new(&old, &layout(3)).to(folder.path(), &mut Memory::new(8)).unwrap_err();
    assert_eq!(refused.to_string(), "blocks differ: 2 tokens in the cache, 3 in the layout");
    let refused =
        Save::new(&old, &Layout::new("m", "x", 2, 64).unwrap()).to(folder.path(), &mut Memory::new(8)).unwrap_err();
    assert_eq!(refused.to_string(), "blocks differ: 48 bytes in the memory, 64 in the layout");
}

/// Memory that does something else at some block.
struct Odd<'a> {
    memory: Memory,
    at: usize,
    reads: usize,
    act: Box<dyn FnMut() -> bool + 'a>,
}

impl BlockBytes for Odd<'_> {
    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        let is_had = if self.reads == self.at { (self.act)() } else { true };
        is_had && self.memory.read(block, bytes)
    }

    fn write(&mut self, block: u32, bytes: &[u8]) -> bool {
        self.reads += 1;
        let is_taken = if self.reads == self.at { (self.act)() } else { true };
        is_taken && self.memory.write(block, bytes)
    }
}

// Holds: SV3.
#[test]
fn blocks_that_memory_refuses_are_left_out_with_what_follows() {
    let (old, memory) = (cache(2, 32), Memory::new(32));
    for tokens in [[1, 2, 3, 4, 5, 6], [1, 2, 9, 9, 9, 9]] {
        assert!(serve(&old, &old.session(), &old.default_namespace(), &memory, &tokens));
    }
    let layout = layout(2);
    for at in 1..=6 {
        let folder = tempfile::tempdir().unwrap();
        let odd = || Odd { memory: memory.clone(), at, reads: 0, act: Box::new(|| false) };
        let report = Save::new(&old, &layout).to(folder.path(), &mut odd()).unwrap();
        assert_eq!((report.blocks + report.unreadable_blocks, report.evicted_blocks), (5, 0), "{at}: {report:?}");
        let (new, mut fresh) = (cache(2, 32), Memory::new(32));
        let restored = Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
        assert_eq!((restored.blocks, restored.damaged_blocks), (report.blocks, 0));
        contents(&new, Some(&fresh), &names(&new));

        Save::new(&old, &layout).to(folder.path(), &mut memory.clone()).unwrap();
        let (new, fresh) = (cache(2, 32), Memory::new(32));
        let mut odd = Odd { memory: fresh.clone(), at, reads: 0, act: Box::new(|| false) };
        let restored = Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut odd).unwrap();
        assert_eq!(restored.blocks + restored.refused_blocks, 5, "{restored:?}");
        assert_eq!(restored.refused_blocks > 0, at < 6);
        contents(&new, Some(&fresh), &names(&new));
        assert_eq!(new.validate(), Ok(()));
    }
}

// Holds: SV5.
#[test]
fn a_second_save_at_once_is_refused_and_a_panic_leaves_the_old_one() {
    let (cache, memory, layout) = (cache(2, 8), Memory::new(8), layout(2));
    assert!(serve(&cache, &cache.session(), &cache.default_namespace(), &memory, &[1, 2]));
    let folder = tempfile::tempdir().unwrap();
    let mut second = None;
    let act = Box::new(|| {
        second = Some(Save::new(&cache, &layout).to(folder.path(), &mut memory.clone()).unwrap_err());
        true
    });
    Save::new(&cache, &layout).to(folder.path(), &mut Odd { memory: memory.clone(), at: 1, reads: 0, act }).unwrap();
    assert!(matches!(second, Some(SaveError::InUse { .. })));
    let before = std::fs::read(folder.path().join("save")).unwrap();
    let act = Box::new(|| panic!("on purpose"));
    let mut odd = Odd { memory: memory.clone(), at: 1, reads: 0, act };
    let save = || Save::new(&cache, &layout).to(folder.path(), &mut odd);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(save)).is_err());
    assert_eq!(std::fs::read(folder.path().join("save")).unwrap(), before);
    assert!(!folder.path().join("save.new").exists());
    assert_eq!((cache.validate(), cache.evict(8)), (Ok(()), 1));
    Save::new(&cache, &layout).to(folder.path(), &mut memory.clone()).unwrap();
}
