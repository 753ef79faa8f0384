//! Saving and restoring while other threads work.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Memory, contents, count, layout, load, names, serve};
use radixkv::{BlockRequest, NamespaceName, PolicyKind, PrefixCache, Quota};
use radixkv_save::{BlockBytes, Restored, Save, Saved};

/// Memory beside which, before each block is read, everything is evicted that can be, and its room
/// is used anew.
struct Meddling<'a> {
    cache: &'a PrefixCache,
    memory: Memory,
    reads: u32,
}

impl BlockBytes for Meddling<'_> {
    fn block_bytes(&self) -> usize {
        self.memory.block_bytes()
    }

    fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        self.cache.evict(self.cache.capacity_blocks());
        let room = self.cache.stats().free_blocks as u32;
        let tokens: Vec<u32> = (0..room * 2).map(|at| self.reads << 16 | at).collect();
        assert!(serve(self.cache, &self.cache.session(), &self.cache.default_namespace(), &self.memory, &tokens));
        self.memory.read(block, bytes)
    }

    fn write(&mut self, _block: u32, _bytes: &[u8]) -> bool {
        false
    }
}

// Holds: SV4.
#[test]
fn what_is_leased_while_it_is_copied_has_no_wrong_byte() {
    let (cache, memory, layout) = (PrefixCache::builder(2, 60).build().unwrap(), Memory::new(60), layout(2));
    load(&cache, &memory, &mut fastrand::Rng::with_seed(6), 100, 24);
    let (folder, mut meddling) = (tempfile::tempdir().unwrap(), Meddling { cache: &cache, memory, reads: 0 });
    let report = Save::new(&cache, &layout).to(folder.path(), &mut meddling).unwrap();
    assert!(report.blocks > 0 && report.evicted_blocks > 0, "{report:?}");
    let (new, mut fresh) = (PrefixCache::builder(2, 60).build().unwrap(), Memory::new(60));
    let restored = Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
    assert_eq!((restored.blocks, count(&contents(&new, Some(&fresh), &names(&new)))), (report.blocks, report.blocks));
}

/// Runs `body` while four threads serve requests that keep the pool full.
fn beside_load(cache: &PrefixCache, memory: &Memory, body: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Relaxed) {
                    load(cache, memory, &mut random, 20, 24);
                }
            });
        }
        // Also when `body` panics.
        let _stop = Stop(&stop);
        body();
    });
}

// Holds: SV4.
#[test]
fn what_is_saved_beside_four_threads_has_no_wrong_byte() {
    let (cache, memory, layout) = (PrefixCache::builder(2, 300).build().unwrap(), Memory::new(300), layout(2));
    let folder = tempfile::tempdir().unwrap();
    load(&cache, &memory, &mut fastrand::Rng::with_seed(9), 300, 24);
    beside_load(&cache, &memory, || {
        let mut saved_blocks = 0;
        for _ in 0..12 {
            let report = Save::new(&cache, &layout).to(folder.path(), &mut memory.clone()).unwrap();
            assert!(report.blocks + report.evicted_blocks <= 300 && report.unreadable_blocks == 0, "{report:?}");
            let (new, mut fresh) = (PrefixCache::builder(2, 300).build().unwrap(), Memory::new(300));
            let restored = Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
            assert_eq!((restored.blocks, restored.damaged_blocks), (report.blocks, 0));
            let found = contents(&new, Some(&fresh), &names(&new));
            assert_eq!(count(&found), report.blocks);
            saved_blocks += report.blocks;
        }
        assert!(saved_blocks > 0);
    });
    assert_eq!(cache.validate(), Ok(()));
}

// Holds: SV4.
#[test]
fn what_is_restored_beside_four_threads_has_no_wrong_byte() {
    let layout = layout(2);
    let folder = tempfile::tempdir().unwrap();
    let (old, memory) = (PrefixCache::builder(2, 600).build().unwrap(), Memory::new(600));
    load(&old, &memory, &mut fastrand::Rng::with_seed(4), 300, 24);
    Save::new(&old, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    for _ in 0..8 {
        let (new, fresh) = (PrefixCache::builder(2, 600).build().unwrap(), Memory::new(600));
        beside_load(&new, &fresh, || {
            let saved = Saved::open(folder.path(), &layout).unwrap();
            let restored = saved.restore(&new, &mut fresh.clone()).unwrap();
            let Restored { blocks, known_blocks, no_room_blocks, refused_blocks, damaged_blocks, .. } = restored;
            assert_eq!(blocks + known_blocks + no_room_blocks + refused_blocks + damaged_blocks, saved.blocks());
            assert_eq!(damaged_blocks, 0);
        });
        contents(&new, Some(&fresh), &names(&new));
        assert_eq!(new.validate(), Ok(()));
    }
}

// Holds: SV4.
#[test]
fn a_cache_that_grows_while_it_is_saved_is_saved_as_it_was() {
    let (cache, memory) = (PrefixCache::builder(2, 4).growable_to(8).build().unwrap(), Memory::new(8));
    let (session, space) = (cache.session(), cache.default_namespace());
    assert!(serve(&cache, &session, &space, &memory, &[1, 2, 3, 4]));
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(2));
    let grow = |_: &NamespaceName| {
        cache.grow(4).unwrap();
        // Four blocks, of which the last two are new.
        assert!(serve(&cache, &session, &space, &memory, &[5, 6, 7, 8, 9, 10, 11, 12]));
        assert!(serve(&cache, &session, &space, &memory, &[1, 2, 13, 14]));
        true
    };
    let report = Save::new(&cache, &layout).keep(grow).to(folder.path(), &mut memory.clone()).unwrap();
    assert_eq!((report.blocks, report.evicted_blocks, report.unreadable_blocks), (2, 0, 0));
    let (new, mut fresh) = (PrefixCache::builder(2, 8).build().unwrap(), Memory::new(8));
    Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
    let found = contents(&new, Some(&fresh), &names(&new));
    assert_eq!(found[&new.default_namespace().name()], [vec![1, 2], vec![1, 2, 3, 4]].into());
}

/// Memory beside which anything happens to a cache before each block is read or written.
struct Unruly<'a> {
    cache: &'a PrefixCache,
    memory: Memory,
    random: fastrand::Rng,
}

impl Unruly<'_> {
    fn interfere(&mut self) {
        let Self { cache, memory, random } = self;
        let name = random.choice(&names(cache)).unwrap().clone();
        let space = cache.namespace(NamespaceName::new(&name.parts().collect::<Vec<_>>()).with_keys(name.keys()));
        match random.u8(..24) {
            0 => cache.clear(),
            1 => space.clear(),
            2 => space.remove(),
            3 => _ = cache.invalidate_blocks(&[random.u32(..cache.capacity_blocks() as u32)]),
            4 => _ = cache.evict(random.usize(..20)),
            5 => _ = space.evict(random.usize(..9)),
            6 => _ = cache.grow(random.usize(..4)),
            7 => {
                space.set_quota(Quota::default().pinned_blocks(random.usize(..30)).cached_blocks(random.usize(30..60)))
            }
            8 => space.set_quota(Quota::default()),
            9 => cache.settings().set_policy(*random.choice(PolicyKind::ALL).unwrap()),
            10 => load(cache, memory, random, 4, 20),
            _ => {}
        }
    }
}

impl BlockBytes for Unruly<'_> {
    fn block_bytes(&self) -> usize {
        self.memory.block_bytes()
    }

    fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
        self.interfere();
        self.random.u8(..60) > 0 && self.memory.read(block, bytes)
    }

    fn write(&mut self, block: u32, bytes: &[u8]) -> bool {
        self.interfere();
        self.random.u8(..60) > 0 && self.memory.write(block, bytes)
    }
}

// Holds: SV4.
#[test]
fn whatever_a_cache_does_while_it_is_saved_and_restored_no_byte_is_wrong() {
    let cache = |size, blocks| PrefixCache::builder(size, blocks).growable_to(400).build().unwrap();
    let at_rest = |cache: &PrefixCache, memory: &Memory| {
        assert_eq!(cache.validate(), Ok(()));
        let stats = cache.stats();
        assert_eq!((stats.reserved_blocks, stats.protected_blocks), (0, 0));
        contents(cache, Some(memory), &names(cache));
    };
    let (mut saved_blocks, mut restored_blocks) = (0, 0);
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (size, blocks) = (random.usize(1..4), random.usize(20..150));
        let (old, new) = (cache(size, blocks), cache(size, random.usize(20..300)));
        let (folder, layout, memory) = (tempfile::tempdir().unwrap(), layout(size), Memory::new(400));
        load(&old, &memory, &mut random, 60, 12 * size);
        let mut unruly = Unruly { cache: &old, memory: memory.clone(), random: random.fork() };
        saved_blocks += Save::new(&old, &layout).to(folder.path(), &mut unruly).unwrap().blocks;
        at_rest(&old, &memory);
        let (saved, fresh) = (Saved::open(folder.path(), &layout).unwrap(), Memory::new(400));
        let mut unruly = Unruly { cache: &new, memory: fresh.clone(), random };
        let restored = saved.restore(&new, &mut unruly).unwrap();
        let Restored { blocks, known_blocks, no_room_blocks, refused_blocks, damaged_blocks, .. } = restored;
        assert_eq!(blocks + known_blocks + no_room_blocks + refused_blocks + damaged_blocks, saved.blocks());
        restored_blocks += blocks;
        at_rest(&new, &fresh);
    }
    assert!(saved_blocks > 500 && restored_blocks > 200, "{saved_blocks} saved, {restored_blocks} restored");
}

/// Memory of which each block says with which weights it was computed; before a given read
/// everything is cleared and computed again.
struct Weights<'a> {
    cache: &'a PrefixCache,
    sequences: &'a [&'a [u32]],
    of_block: Vec<u8>,
    reads: u32,
    clear_at: u32,
}

impl Weights<'_> {
    fn compute(&mut self, weights: u8) {
        let (session, space) = (self.cache.session(), self.cache.default_namespace());
        for tokens in self.sequences {
            let hit = session.match_prefix(&space, tokens);
            let blocks = session.reserve(tokens.len() - hit.blocks().len()).unwrap();
            blocks.blocks().iter().for_each(|&block| self.of_block[block as usize] = weights);
            drop(session.insert(hit.lease(), tokens, blocks).unwrap());
        }
    }
}

impl BlockBytes for Weights<'_> {
    fn block_bytes(&self) -> usize {
        common::BYTES
    }

    fn read(&mut self, block: u32, bytes: &mut [u8]) -> bool {
        if self.reads == self.clear_at {
            self.cache.default_namespace().clear();
            self.compute(2);
        }
        self.reads += 1;
        bytes.fill(self.of_block[block as usize]);
        true
    }

    fn write(&mut self, block: u32, bytes: &[u8]) -> bool {
        self.of_block[block as usize] = bytes[0];
        true
    }
}

// Holds: SV4.
#[test]
fn no_sequence_is_put_together_from_before_and_after_a_clear() {
    let sequences: [&[u32]; 4] = [&[1, 2, 3, 4], &[1, 2, 5, 6], &[1, 7, 8], &[9, 9, 9]];
    for clear_at in 0..11 {
        let of_block = vec![0; 24];
        let cache = PrefixCache::builder(1, 24).build().unwrap();
        let mut memory = Weights { cache: &cache, sequences: &sequences, of_block, reads: 0, clear_at };
        memory.compute(1);
        let (folder, layout) = (tempfile::tempdir().unwrap(), layout(1));
        let report = Save::new(&cache, &layout).to(folder.path(), &mut memory).unwrap();
        assert!(report.blocks > clear_at as usize && report.blocks + report.evicted_blocks == 11, "{report:?}");
        let new = PrefixCache::builder(1, 24).build().unwrap();
        let mut fresh = Weights { cache: &new, sequences: &[], of_block: vec![0; 24], reads: 0, clear_at: u32::MAX };
        Saved::open(folder.path(), &layout).unwrap().restore(&new, &mut fresh).unwrap();
        for tokens in sequences {
            let hit = new.session().match_prefix(&new.default_namespace(), tokens);
            let weights: Vec<u8> = hit.blocks().iter().map(|&block| fresh.of_block[block as usize]).collect();
            assert!(weights.iter().all(|&weights| weights == 1), "{weights:?}, cleared at read {clear_at}");
        }
    }
}

/// Memory that clears a cache before a given write.
struct Clearing<'a> {
    cache: &'a PrefixCache,
    writes: u32,
    clear_at: u32,
}

impl BlockBytes for Clearing<'_> {
    fn block_bytes(&self) -> usize {
        common::BYTES
    }

    fn read(&mut self, _block: u32, bytes: &mut [u8]) -> bool {
        bytes.fill(0);
        true
    }

    fn write(&mut self, _block: u32, _bytes: &[u8]) -> bool {
        if self.writes == self.clear_at {
            self.cache.clear();
            // Computed with other weights: the beginning of a saved sequence.
            let (session, space) = (self.cache.session(), self.cache.default_namespace());
            let start = session.match_prefix(&space, &[1]);
            if let Ok(blocks) = session.reserve(BlockRequest::new(1).paid_by(&space)) {
                drop(session.insert(start.lease(), &[1], blocks).unwrap());
            }
        }
        self.writes += 1;
        true
    }
}

// Holds: SV4.
#[test]
fn nothing_is_restored_after_a_clear() {
    let sequences: [&[u32]; 4] = [&[1, 2, 3, 4], &[1, 2, 5, 6], &[1, 7, 8], &[9, 9, 9]];
    let (old, layout, folder) = (PrefixCache::builder(1, 24).build().unwrap(), layout(1), tempfile::tempdir().unwrap());
    Weights { cache: &old, sequences: &sequences, of_block: vec![0; 24], reads: 0, clear_at: u32::MAX }.compute(1);
    let mut memory = Clearing { cache: &old, writes: 0, clear_at: u32::MAX };
    assert_eq!(Save::new(&old, &layout).to(folder.path(), &mut memory).unwrap().blocks, 11);
    let saved = Saved::open(folder.path(), &layout).unwrap();
    // With the small quota, the restore drops its leases.
    let quotas = [Quota::default(), Quota::default().pinned_blocks(5)];
    for (quota, clear_at) in quotas.into_iter().flat_map(|quota| (0..11).map(move |at| (quota, at))) {
        let new = PrefixCache::builder(1, 24).build().unwrap();
        let space = new.default_namespace();
        space.set_quota(quota);
        let mut memory = Clearing { cache: &new, writes: 0, clear_at };
        let restored = saved.restore(&new, &mut memory).unwrap();
        let Restored { blocks, known_blocks, no_room_blocks, refused_blocks, damaged_blocks, .. } = restored;
        assert_eq!(blocks + known_blocks + no_room_blocks + refused_blocks + damaged_blocks, 11);
        assert!(memory.writes > clear_at, "{quota:?}: {restored:?}");
        let found = sequences.map(|tokens| new.session().peek(&space, tokens));
        assert!(found.iter().all(|&tokens| tokens <= 1) && found[3] == 0, "cleared at write {clear_at}: {found:?}");
        assert_eq!(new.validate(), Ok(()));
    }
}
