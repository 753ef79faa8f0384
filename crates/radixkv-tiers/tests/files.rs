//! Tiers of files: what is found again, what is refused, and what damaged files come to.

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use common::{ABSENT, Bytes, blocks, checked, completions, contained, get, get_all, layout, put, put_all};
use radixkv_tiers::{Failure, FileTier, Layout, Miss, NotGot, OpenError, Outcome, RemoteTier, Tier};

fn open(folder: &Path, layout: &Layout, capacity: u64) -> Tier<Bytes> {
    FileTier::new(folder, layout.clone(), capacity).threads(2).open().unwrap()
}

fn refused(folder: &Path, layout: &Layout, capacity: u64) -> OpenError {
    FileTier::new(folder, layout.clone(), capacity).open::<Bytes>().unwrap_err()
}

/// The object files of a folder.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("objects")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn a_tier_of_files_does_what_a_tier_does() {
    for direct in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let tier = FileTier::new(folder.path(), layout(16, 5000), 1 << 20).direct_io(direct).open().unwrap();
        common::does_what_a_tier_does(&tier);
        assert_eq!(objects(folder.path()).len(), 0);
        assert_eq!((tier.stats().held_blocks, tier.stats().held_bytes), (0, 0));
    }
}

#[test]
fn blocks_of_all_sizes_come_back() {
    for (block_size, block_bytes) in
        [(1, 1), (1, 4096), (16, 3900), (16, 3992), (7, 65_536), (4096, 100), (3, 1_000_001)]
    {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(block_size, block_bytes);
        let all = blocks(&layout, 3);
        put_all(&open(folder.path(), &layout, 1 << 24), &all, None);
        // Found again after a restart.
        let tier = open(folder.path(), &layout, 1 << 24);
        assert_eq!(tier.stats().held_blocks, 3);
        assert_eq!(get_all(&tier, &all), vec![Ok(()); 3], "{layout}");
        assert!(
            objects(folder.path()).iter().all(|file| file.metadata().unwrap().len() == layout.object_bytes() as u64)
        );
    }
}

// Holds: RT4.
#[test]
fn a_folder_of_another_layout_is_refused_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let (path, place) = (folder.path(), folder.path().display());
    drop(open(path, &layout(16, 64), 1 << 20));
    let what_to_do = ": open another place, or empty this one";
    let error = refused(path, &layout(32, 64), 1 << 20);
    let text = format!("{place} holds blocks of block size \"16\", this layout has \"32\"{what_to_do}");
    assert_eq!(error.to_string(), text);
    let error = refused(path, &Layout::new("other", "bf16", 16, 64).unwrap(), 1 << 20);
    assert_eq!(
        error.to_string(),
        format!("{place} holds blocks of model \"model\", this layout has \"other\"{what_to_do}")
    );
    let error = refused(path, &Layout::new("model", "fp8", 16, 64).unwrap(), 1 << 20);
    assert_eq!(
        error.to_string(),
        format!("{place} holds blocks of dtype \"bf16\", this layout has \"fp8\"{what_to_do}")
    );

    let manifest = path.join("manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("format 1", "format 7")).unwrap();
    let error = refused(path, &layout(16, 64), 1 << 20).to_string();
    assert_eq!(error, format!("{place} has format 7, this version of radixkv-tiers reads format 1"));
    for damaged in [&b""[..], b"radixkv-tiers format 1\n", &[0xFF; 100], &vec![b'a'; 1 << 20]] {
        fs::write(&manifest, damaged).unwrap();
        let error = refused(path, &layout(16, 64), 1 << 20);
        assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    }
}

// Holds: RT4.
#[test]
fn what_cannot_be_opened_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), &layout(16, 4096), 8191).to_string();
    assert_eq!(error, "capacity of 8191 bytes requested, one block needs 8192");
    let _tier = open(folder.path(), &layout(16, 4096), 8192);
    let error = refused(folder.path(), &layout(16, 4096), 8192).to_string();
    assert_eq!(error, format!("{} is already open, in this or another process", folder.path().display()));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = refused(&file, &layout(16, 4096), 8192);
    assert!(matches!(error, OpenError::Io { .. }) && error.to_string().contains("file"), "{error}");
}

/// A pipe without a writer has whoever opens it wait.
#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    for name in ["manifest", "lock"] {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join(name)).status().unwrap();
        assert!(made.success());
        let error = refused(folder.path(), &layout(16, 64), 1 << 20);
        assert!(matches!(error, OpenError::NotAStore { .. } | OpenError::Io { .. }), "{name}: {error}");
    }
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(16, 64));
    let (tier, block) = (open(folder.path(), &layout, 1 << 20), blocks(&layout, 1));
    tier.put_from(vec![put(&block[0], &layout, None)]).unwrap();
    completions(&tier, 1);
    let object = objects(folder.path()).remove(0);
    fs::remove_file(&object).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&object).status().unwrap().success());
    let got = get_all(&tier, &block);
    assert!(matches!(got[..], [Err(why)] if why != NotGot::Failed(Failure::TimedOut)), "{got:?}");
}

/// Files that were damaged while the tier was closed or open: each is a miss with its reason, and
/// is removed.
// Holds: RT2, RT6.
#[test]
fn damaged_files_are_misses_by_reason() {
    let layout = layout(16, 3000);
    let all = blocks(&layout, 8);
    let length = layout.object_bytes();
    for is_open in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut tier = open(folder.path(), &layout, 1 << 20);
        put_all(&tier, &all, None);
        let path = |index: usize| {
            let key = all[index].key().to_string();
            folder.path().join("objects").join(&key[..2]).join(&key[2..])
        };
        let bytes = |index| fs::read(path(index)).unwrap();
        let flipped = |mut bytes: Vec<u8>, at: usize| {
            bytes[at] ^= 1;
            bytes
        };
        fs::write(path(0), &bytes(0)[..length - 1]).unwrap();
        fs::write(path(1), [bytes(1), vec![0; 100_000]].concat()).unwrap();
        fs::write(path(2), flipped(bytes(2), length - 1)).unwrap();
        fs::write(path(3), flipped(bytes(3), 8)).unwrap();
        fs::write(path(4), b"").unwrap();
        fs::write(path(5), vec![0; length]).unwrap();
        fs::write(path(6), bytes(7)).unwrap();
        if !is_open {
            drop(tier);
            tier = open(folder.path(), &layout, 1 << 20);
        }
        let torn = |bytes| Err(NotGot::Miss(Miss::Torn { bytes, expected: length }));
        let expected = [
            torn(length - 1),
            torn(length + 1),
            Err(Miss::WrongChecksum.into()),
            Err(Miss::UnknownVersion { version: 0 }.into()),
            torn(0),
            Err(Miss::NotAnObject.into()),
            Err(Miss::WrongKey.into()),
            Ok(()),
        ];
        assert_eq!(get_all(&tier, &all), expected);
        // They are gone, at the latest when the tier's threads have ended.
        drop(tier);
        assert_eq!(objects(folder.path()), [path(7)]);
        let tier = open(folder.path(), &layout, 1 << 20);
        assert_eq!(get_all(&tier, &all)[..7], [ABSENT; 7]);
        put_all(&tier, &all, None);
        assert_eq!(get_all(&tier, &all), vec![Ok(()); 8]);
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(16, 64));
    drop(open(folder.path(), &layout, 1 << 20));
    let strange = ["objects/ab/readme", "objects/notes", "objects/ab/0", "more", "unfinished/notes"]
        .map(|name| folder.path().join(name));
    fs::create_dir_all(folder.path().join("objects/ab")).unwrap();
    strange.iter().for_each(|path| fs::write(path, "text").unwrap());
    fs::write(folder.path().join("unfinished/7"), "half").unwrap();
    // A folder with the name of an object.
    let key = blocks(&layout, 1)[0].key().to_string();
    fs::create_dir_all(folder.path().join("objects").join(&key[..2]).join(&key[2..])).unwrap();
    let tier = open(folder.path(), &layout, 1 << 20);
    assert_eq!(tier.stats().held_blocks, 0);
    assert_eq!(get_all(&tier, &blocks(&layout, 1)), [ABSENT]);
    tier.put_from(vec![put(&blocks(&layout, 1)[0], &layout, None)]).unwrap();
    let end = completions(&tier, 1).remove(0).outcome;
    assert!(matches!(end, Outcome::Put(_, Err(Failure::Io(_)))), "{end:?}");
    assert!(strange.iter().all(|path| path.exists()));
    assert_eq!(fs::read_dir(folder.path().join("unfinished")).unwrap().count(), 1);
}

// Holds: RT5.
#[test]
fn the_least_recently_used_files_go() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(16, 4000));
    // Each takes two blocks of the disk.
    let all = blocks(&layout, 10);
    let tier = FileTier::new(folder.path(), layout.clone(), 4 * 8192 + 8191).threads(1).open().unwrap();
    put_all(&tier, &all[..4], None);
    assert_eq!(get_all(&tier, &all[..1]), [Ok(())]);
    put_all(&tier, &all[4..6], None);
    let there = [true, false, false, true, true, true, false, false, false, false];
    assert_eq!(contained(&tier, &all), there);
    assert_eq!(tier.stats().evicted_blocks, 2);
    assert_eq!((tier.stats().held_blocks, tier.stats().held_bytes), (4, 4 * 8192));
    drop(tier);
    assert_eq!(objects(folder.path()).len(), 4);
    // A smaller capacity: what was written first goes.
    let tier = open(folder.path(), &layout, 8192);
    assert_eq!(contained(&tier, &all), [false, false, false, false, false, true, false, false, false, false]);
    assert_eq!((objects(folder.path()).len(), tier.stats().evicted_blocks), (1, 3));
}

/// Four callers and four threads over few files: no wrong byte, and the index is the folder. A
/// caller counts the batches that were accepted, and waits where the tier is full: so it goes as
/// far on a busy machine as on an idle one.
// Holds: RT5.
#[test]
fn stress() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 5000));
    let all = blocks(&layout, 40);
    let tier = FileTier::new(folder.path(), layout.clone(), 20 * 8192).max_in_flight(64).open::<Bytes>().unwrap();
    let caller = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut done = Vec::new();
        let mut accepted = 0;
        while accepted < 40 {
            let some = || all[seed as usize % 3..].iter().step_by(3);
            let is_accepted = match random.u8(..8) {
                0 => tier.remove(vec![all[random.usize(..40)].key()]).is_ok(),
                1 => tier.contains(all.iter().map(|block| block.key()).collect()).is_ok(),
                2..5 => tier.put_from(some().map(|block| put(block, &layout, None)).collect()).is_ok(),
                _ => tier.get_into(some().map(|block| get(block, &layout)).collect()).is_ok(),
            };
            accepted += usize::from(is_accepted);
            let wait = if is_accepted { Duration::from_micros(random.u64(..500)) } else { common::PATIENCE };
            tier.poll(&mut done, wait);
            for completion in done.drain(..) {
                match &completion.outcome {
                    Outcome::Got(..) => match checked(completion, &layout) {
                        Ok(()) | ABSENT => {}
                        other => panic!("{other:?}"),
                    },
                    Outcome::Put(_, Ok(())) | Outcome::Removed(_, Ok(())) | Outcome::Contained(_, Ok(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || caller(seed)))));
    while tier.stats().in_flight > 0 {
        tier.poll(&mut Vec::new(), common::PATIENCE);
    }
    let stats = tier.stats();
    assert!(stats.hits > 0 && stats.evicted_blocks > 0 && stats.misses.absent > 0, "{stats:?}");
    assert_eq!(stats.misses.total(), stats.misses.absent);
    assert_eq!(objects(folder.path()).len() as u64, stats.held_blocks);
    assert!(stats.held_blocks <= 20);
}

/// A block that expired is put again as soon as its miss is known: what removes the older file
/// leaves the newer.
#[test]
fn a_block_that_replaces_an_expired_one_stays() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let (tier, all) = (open(folder.path(), &layout, 1 << 20), blocks(&layout, 8));
    for _ in 0..100 {
        put_all(&tier, &all, Some(Duration::ZERO));
        assert!(get_all(&tier, &all).iter().all(|end| *end == Err(Miss::Expired.into())));
        put_all(&tier, &all, None);
        assert_eq!(get_all(&tier, &all), vec![Ok(()); 8]);
    }
}

/// The tokens of a sequence of blocks.
fn sequence(layout: &Layout, blocks: u32) -> Vec<radixkv_tiers::Block> {
    layout.blocks("n", &(0..blocks * layout.block_size() as u32).collect::<Vec<_>>())
}

// Holds: HT21.
#[test]
fn of_a_sequence_the_beginning_stays_whatever_the_order_of_puts_and_gets() {
    let layout = layout(16, 64);
    let all = sequence(&layout, 8);
    // From block to block, each piece in a batch.
    let pieces: [&[(usize, usize)]; 4] = [&[(0, 8)], &[(4, 8), (0, 4)], &[(0, 4), (4, 8)], &[(0, 3), (3, 6), (6, 8)]];
    for (threads, pieces) in pieces.into_iter().flat_map(|pieces| [(1, pieces), (4, pieces)]) {
        let folder = tempfile::tempdir().unwrap();
        let tier = FileTier::new(folder.path(), layout.clone(), 4 * 4096).threads(threads).open().unwrap();
        pieces.iter().for_each(|&(first, end)| put_all(&tier, &all[first..end], None));
        assert_eq!(contained(&tier, &all), [[true; 4], [false; 4]].concat(), "{threads} threads, {pieces:?}");
        // Also to another process.
        drop(tier);
        let tier = FileTier::new(folder.path(), layout.clone(), 3 * 4096).threads(threads).open::<Bytes>().unwrap();
        if pieces.len() == 1 {
            assert_eq!(contained(&tier, &all), [[true, true, true, false], [false; 4]].concat(), "{threads} threads");
        }
        drop(tier);
        let tier = FileTier::new(folder.path(), layout.clone(), 4 * 4096).threads(threads).open().unwrap();
        let is_there = contained(&tier, &all[..4]);
        let lacking: Vec<_> = all.iter().zip(is_there).filter(|(_, is_there)| !is_there).collect();
        lacking.into_iter().for_each(|(block, _)| put_all(&tier, std::slice::from_ref(block), None));
        // Read in a batch, and then others come.
        assert_eq!(get_all(&tier, &all[..4]), vec![Ok(()); 4], "{threads} threads, {pieces:?}");
        put_all(&tier, &blocks(&layout, 2), None);
        assert_eq!(contained(&tier, &all), [[true, true, false, false], [false; 4]].concat(), "{threads} threads");
    }
}

#[test]
fn the_end_of_a_sequence_that_is_read_is_a_use_of_its_beginning() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(16, 64));
    let (all, others) = (sequence(&layout, 3), blocks(&layout, 2));
    let tier = FileTier::new(folder.path(), layout.clone(), 5 * 4096).threads(1).open().unwrap();
    put_all(&tier, &all, None);
    put_all(&tier, &others, None);
    assert_eq!(get_all(&tier, &all[2..]), [Ok(())]);
    put_all(&tier, &blocks(&layout, 4)[2..], None);
    assert_eq!(contained(&tier, &all), [true; 3]);
    assert_eq!(contained(&tier, &others), [false; 2]);
}

// Holds: RT6.
#[test]
fn a_file_that_has_expired_is_not_contained() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let (tier, all) = (open(folder.path(), &layout, 1 << 20), blocks(&layout, 2));
    put_all(&tier, &all[..1], Some(Duration::ZERO));
    put_all(&tier, &all[1..], Some(Duration::from_secs(3600)));
    assert_eq!(contained(&tier, &all), [false, true]);
}

#[test]
fn a_folder_for_unfinished_files_that_was_removed_is_made_again() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let (tier, all) = (open(folder.path(), &layout, 1 << 20), blocks(&layout, 2));
    fs::remove_dir_all(folder.path().join("unfinished")).unwrap();
    put_all(&tier, &all, None);
    assert_eq!(get_all(&tier, &all), [Ok(()); 2]);
}

#[test]
fn a_manifest_is_not_written_through_a_link() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let (tier, other) = (folder.path().join("tier"), folder.path().join("other"));
    fs::create_dir(&tier).unwrap();
    fs::write(&other, "text").unwrap();
    std::os::unix::fs::symlink(&other, tier.join("manifest.new")).unwrap();
    drop(open(&tier, &layout, 1 << 20));
    assert_eq!(fs::read_to_string(&other).unwrap(), "text");
    assert!(fs::symlink_metadata(tier.join("manifest")).unwrap().is_file());
}

#[test]
fn a_lock_is_not_made_through_a_link() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let elsewhere = folder.path().join("elsewhere");
    let tier = folder.path().join("tier");
    fs::create_dir(&tier).unwrap();
    std::os::unix::fs::symlink(&elsewhere, tier.join("lock")).unwrap();
    let refused = FileTier::new(&tier, layout, 1 << 20).open::<Vec<u8>>().unwrap_err();
    assert!(refused.to_string().contains("tier/lock: "), "{refused}");
    assert!(!elsewhere.exists());
}
