//! Saving and restoring while other threads work.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Memory, contents, count, layout, load, names, serve};
use radixkv::PrefixCache;
use radixkv_save::{BlockBytes, Restored, Save, Saved};

/// Memory beside which, before each block is read, everything is evicted that can be, and its room is used anew.
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
