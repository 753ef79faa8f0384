use std::{thread, time::Duration};

use super::*;
use crate::{
    Block,
    layout::Layout,
    queue::{Before, Request},
};

/// Another thread writes the file again between a read and the removal of the block that was
/// read.
#[test]
fn a_file_that_was_written_again_is_not_discarded() {
    let (path, layout) = (tempfile::tempdir().unwrap(), Layout::new("m", "bf16", 1, 8).unwrap());
    let folder = Folder::open(path.path(), &layout).unwrap();
    let files = Arc::new(Files::new(folder, Vec::new(), 4, layout.object_bytes(), false));
    let counters = Arc::new(Counters::default());
    let [mut reader, mut writer] = [(); 2].map(|()| FileStore::new(Arc::clone(&files), Arc::clone(&counters)));
    let (block, used) = (layout.blocks("", &[0]).remove(0), Use { batch: 0, number: 0, parent: None, before: None });
    let key = block.key();
    let write = || Step::Store { key, used, object: Aligned::new(layout.object_bytes()), expires: 0 };
    let read = || Step::Fetch(block.clone(), used);
    let mut nothing = |_: usize, _: Reply<'_>| {};
    writer.carry_out(&[write()], &mut nothing);
    reader.carry_out(&[read()], &mut nothing);
    writer.carry_out(&[write()], &mut nothing);
    reader.discard(key, Miss::Expired);
    assert!(files.lock().contains(key) && files.folder.object(key).exists());
    reader.carry_out(&[read()], &mut nothing);
    reader.discard(key, Miss::Expired);
    assert!(!files.lock().contains(key) && !files.folder.object(key).exists());
}

/// A tier for `max_files` blocks, without threads.
struct Fixture {
    files: Arc<Files>,
    counters: Arc<Counters>,
    layout: Layout,
    _path: tempfile::TempDir,
}

impl Fixture {
    fn new(max_files: usize) -> Self {
        let (path, layout) = (tempfile::tempdir().unwrap(), Layout::new("m", "bf16", 1, 8).unwrap());
        let folder = Folder::open(path.path(), &layout).unwrap();
        let files = Arc::new(Files::new(folder, Vec::new(), max_files, layout.object_bytes(), false));
        Self { files, counters: Arc::default(), layout, _path: path }
    }

    /// Takes a put, and reserves room for it if there is any.
    fn begin(&self, used: Use, block: &Block) -> (Begun, bool) {
        let put = Begun::new(&self.files, &mut self.files.lock(), (block.key(), used));
        let has_room = self.files.reserve(&put, &self.counters).unwrap().is_some();
        (put, has_room)
    }

    fn store(&self, used: Use, block: &Block) {
        let object = Aligned::new(self.layout.object_bytes());
        let step = Step::Store { key: block.key(), used, object, expires: 0 };
        let mut writer = FileStore::new(Arc::clone(&self.files), Arc::clone(&self.counters));
        writer.carry_out(&[step], &mut |_, reply| assert!(matches!(reply, Reply::Done), "{reply:?}"));
    }

    fn contains(&self, blocks: &[Block]) -> Vec<bool> {
        blocks.iter().map(|block| self.files.lock().contains(block.key())).collect()
    }

    fn has_room(&self, put: &Begun) -> bool {
        self.files.lock().has_room(put.id)
    }
}

/// The only put of a batch.
fn alone(batch: u64, block: &Block) -> Use {
    Use { before: Before::of(block), ..with_its_beginning(batch, block) }
}

/// A put of a batch that also puts all blocks before it.
fn with_its_beginning(batch: u64, block: &Block) -> Use {
    Use { batch, number: block.number(), parent: block.parent(), before: None }
}

/// The blocks of a sequence that was evicted are put again, by two threads.
#[test]
fn a_block_is_written_while_the_block_before_it_is_being_written() {
    for is_begun in [true, false] {
        let tier = Fixture::new(2);
        let [one, other] = ["one", "other"].map(|name| tier.layout.blocks(name, &[0, 1]));
        for (batch, block) in [(0, &one[0]), (0, &one[1]), (1, &other[0]), (1, &other[1])] {
            tier.store(with_its_beginning(batch, block), block);
        }
        assert_eq!(tier.contains(&one), [false, false]);
        let begun = is_begun.then(|| tier.begin(with_its_beginning(2, &one[0]), &one[0]));
        tier.store(with_its_beginning(2, &one[1]), &one[1]);
        assert_eq!(tier.contains(&one), [false, true], "the first block is begun: {is_begun}");
        assert!(begun.is_none_or(|(put, has_room)| has_room && tier.has_room(&put)));
        tier.store(with_its_beginning(2, &one[0]), &one[0]);
        assert_eq!(tier.contains(&one), [true, true]);
    }
}

#[test]
fn a_later_batch_takes_no_room_from_the_block_that_it_follows() {
    let tier = Fixture::new(2);
    let (one, other) = (tier.layout.blocks("one", &[0, 1, 2]), tier.layout.blocks("other", &[0]));
    let (first, has_room) = tier.begin(alone(0, &one[0]), &one[0]);
    assert!(has_room);
    tier.store(alone(1, &other[0]), &other[0]);
    tier.store(alone(2, &one[1]), &one[1]);
    assert!(tier.has_room(&first), "the other sequence is older than the last use of the first block");
    assert_eq!((tier.contains(&one[1..2]), tier.contains(&other)), (vec![true], vec![false]));
    // Of one sequence the deepest gives its room, which this one would be.
    assert!(!tier.begin(alone(2, &one[2]), &one[2]).1 && tier.has_room(&first));
}

#[test]
fn a_put_whose_room_was_taken_writes_no_file_and_is_missing() {
    let tier = Fixture::new(1);
    let (one, other) = (tier.layout.blocks("one", &[0, 1]), tier.layout.blocks("other", &[0]));
    let (first, has_room) = tier.begin(alone(0, &one[0]), &one[0]);
    assert!(has_room);
    tier.store(alone(1, &other[0]), &other[0]);
    assert!(!tier.has_room(&first));
    assert_eq!(tier.contains(&other), [true]);
    // Already before its thread has found that.
    assert!(!tier.begin(alone(2, &one[1]), &one[1]).1);
    let unfinished = tier.files.folder.unfinished().join("0");
    fs::write(&unfinished, "an object").unwrap();
    tier.files.publish(&first, &unfinished, 0, &tier.counters).unwrap();
    assert_eq!(tier.contains(&one), [false, false]);
    assert!(unfinished.exists() && !tier.files.folder.object(first.key).exists());
    drop(first);
    assert!(!tier.begin(alone(2, &one[1]), &one[1]).1);
    let index = tier.files.lock();
    assert_eq!((index.files(), index.taken()), (1, 1));
}

#[test]
fn a_file_that_is_replaced_in_a_full_tier_gives_its_own_room() {
    let tier = Fixture::new(2);
    let all = tier.layout.blocks("one", &[0, 1]);
    all.iter().for_each(|block| tier.store(alone(0, block), block));
    for block in &all {
        let written = tier.files.lock().written(block.key());
        tier.store(alone(0, block), block);
        assert_ne!(tier.files.lock().written(block.key()), written);
        assert_eq!(tier.contains(&all), [true, true]);
    }
    assert_eq!(tier.counters.read(0).evicted_blocks, 0);
}

/// The file whose room a put took is gone, although nothing was written in its place.
#[test]
fn a_put_that_fails_after_it_took_room_shows_what_is_left() {
    for replaces in [true, false] {
        let tier = Fixture::new(2);
        let (all, other) = (tier.layout.blocks("one", &[0, 1]), tier.layout.blocks("other", &[0]));
        all.iter().for_each(|block| tier.store(alone(0, block), block));
        let shown = || tier.counters.read(0).held_blocks as usize;
        assert_eq!((shown(), tier.files.lock().files()), (2, 2));
        // No object can be written.
        fs::remove_dir(tier.files.folder.unfinished()).unwrap();
        fs::write(tier.files.folder.unfinished(), "a file").unwrap();
        let block = if replaces { &all[0] } else { &other[0] };
        let object = Aligned::new(tier.layout.object_bytes());
        let step = Step::Store { key: block.key(), used: alone(1, block), object, expires: 0 };
        let mut writer = FileStore::new(Arc::clone(&tier.files), Arc::clone(&tier.counters));
        writer.carry_out(&[step], &mut |_, reply| assert!(matches!(reply, Reply::Failed(_)), "{reply:?}"));
        assert_eq!((shown(), tier.files.lock().files()), (1, 1), "replaces: {replaces}");
    }
}

/// Otherwise another thread could take a later put and reserve room for it before this one is in the
/// index.
#[test]
fn a_thread_takes_a_job_only_under_the_lock_of_the_index() {
    let tier = Fixture::new(2);
    let queue = Queue::<Vec<u8>>::new(2, Duration::from_secs(60));
    let block = tier.layout.blocks("one", &[0]).remove(0);
    queue.submit(vec![block.key()], Request::Remove).unwrap();
    let mut store = FileStore::new(Arc::clone(&tier.files), Arc::clone(&tier.counters));
    let index = tier.files.lock();
    let begins = AtomicBool::new(false);
    thread::scope(|scope| {
        let taken = scope.spawn(|| {
            begins.store(true, Relaxed);
            store.take(&queue)
        });
        while !begins.load(Relaxed) {
            thread::yield_now();
        }
        // Time to do it wrong.
        (0..10_000).for_each(|_| thread::yield_now());
        let left = queue.try_take(1).flatten();
        drop(queue.close());
        drop(index);
        assert_eq!(left.map(|jobs| jobs.len()), Some(1));
        assert!(taken.join().unwrap().is_none());
    });
}
