//! Disks without room, and file systems that do not know direct input and output.

mod common;

use std::{fs, path::Path, process::Command};

use common::{Bytes, blocks, completions, get_all, layout, put, put_all};
use radixkv_tiers::{Failure, FileTier, Outcome, RemoteTier, Tier};

/// A file system in memory, or nothing where this process may not mount one.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(kind: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, kind]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: no {kind} can be mounted here");
        }
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[test]
fn a_full_disk_is_said_and_breaks_nothing() {
    [false, true].into_iter().for_each(full);
}

/// Puts fail by their kind, what is there stays, and puts go on when there is room.
fn full(direct: bool) {
    let Some(disk) = Mounted::new("tmpfs", "size=1M") else { return };
    let layout = layout(16, 60_000);
    let all = blocks(&layout, 30);
    // The tier may take more than there is.
    let folder = disk.path().join("tier");
    let tier: Tier<Bytes> = FileTier::new(&folder, layout.clone(), 1 << 30).direct_io(direct).open().unwrap();
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    let (mut stored, mut full) = (Vec::new(), 0);
    for end in completions(&tier, all.len()) {
        match end.outcome {
            Outcome::Put(put, Ok(())) => stored.push(put.block),
            Outcome::Put(_, Err(Failure::NoRoom)) => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(stored.len() >= 8 && full >= 8, "{} stored, {full} full", stored.len());
    assert_eq!(get_all(&tier, &stored), vec![Ok(()); stored.len()]);
    let stats = tier.stats();
    assert_eq!((stats.errors.no_room, stats.held_blocks), (full, stored.len() as u64));
    assert_eq!(fs::read_dir(folder.join("unfinished")).unwrap().count(), 0);

    tier.remove(stored.iter().map(|block| block.key()).collect()).unwrap();
    completions(&tier, stored.len());
    put_all(&tier, &all[..8], None);
    assert_eq!(get_all(&tier, &all[..8]), vec![Ok(()); 8]);
}

#[test]
fn a_file_system_without_direct_io_is_used_without_it() {
    let Some(disk) = Mounted::new("ramfs", "mode=0700") else { return };
    let tier: Tier<Bytes> = FileTier::new(disk.path(), layout(16, 60_000), 1 << 30).open().unwrap();
    common::does_what_a_tier_does(&tier);
}
