//! Disks without room, and file systems that do not know direct input and output.

mod common;

use std::{fs, path::Path, process::Command};

use common::{Bytes, blocks, completions, contained, get_all, layout, put, put_all};
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

// Holds: RT7.
#[test]
fn a_full_disk_is_said_and_breaks_nothing() {
    [false, true].into_iter().for_each(full);
}

/// Of more blocks than there is room for the last ones stay; a put fails where another program has
/// all of the room.
fn full(direct: bool) {
    let Some(disk) = Mounted::new("tmpfs", "size=1M") else { return };
    let layout = layout(16, 60_000);
    let all = blocks(&layout, 30);
    // The tier may take more than there is.
    let folder = disk.path().join("tier");
    let tier: Tier<Bytes> =
        FileTier::new(&folder, layout.clone(), 1 << 30).threads(1).direct_io(direct).open().unwrap();
    all.chunks(3).for_each(|some| put_all(&tier, some, None));
    let held = contained(&tier, &all);
    assert_eq!((&held[..8], &held[22..]), (&[false; 8][..], &[true; 8][..]), "{held:?}");
    assert_eq!(get_all(&tier, &all[22..]), vec![Ok(()); 8]);
    let stats = tier.stats();
    assert_eq!(stats.held_blocks + stats.evicted_blocks, 30);
    assert_eq!(fs::read_dir(folder.join("unfinished")).unwrap().count(), 0);

    tier.remove(all.iter().map(|block| block.key()).collect()).unwrap();
    completions(&tier, all.len());
    let other = disk.path().join("other");
    assert!(fs::write(&other, vec![1; 1 << 20]).is_err());
    tier.put_from(vec![put(&all[0], &layout, None)]).unwrap();
    let end = completions(&tier, 1).remove(0).outcome;
    assert!(matches!(end, Outcome::Put(_, Err(Failure::NoRoom))), "{end:?}");
    fs::remove_file(&other).unwrap();
    put_all(&tier, &all[..8], None);
    assert_eq!(get_all(&tier, &all[..8]), vec![Ok(()); 8]);
}

#[test]
fn a_file_system_without_direct_io_is_used_without_it() {
    let Some(disk) = Mounted::new("ramfs", "mode=0700") else { return };
    let tier: Tier<Bytes> = FileTier::new(disk.path(), layout(16, 60_000), 1 << 30).open().unwrap();
    common::does_what_a_tier_does(&tier);
}
