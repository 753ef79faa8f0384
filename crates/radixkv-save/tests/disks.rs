//! Disks without room.

mod common;

use std::{fs, process::Command};

use common::{BYTES, Memory, contents, layout, names, serve};
use radixkv::PrefixCache;
use radixkv_save::{Save, SaveError, Saved};

/// A file system in memory, or nothing where this process may not mount one.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: no tmpfs can be mounted here");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_said_and_the_old_save_stays() {
    let Some(disk) = Mounted::new("size=512K") else { return };
    let (folder, layout) = (disk.0.path().join("cache"), layout(1));
    let save = |blocks: u32| {
        let (cache, memory) = (PrefixCache::builder(1, 20_000).build().unwrap(), Memory::new(20_000));
        let tokens: Vec<u32> = (0..blocks).collect();
        assert!(serve(&cache, &cache.session(), &cache.default_namespace(), &memory, &tokens));
        Save::new(&cache, &layout).to(&folder, &mut memory.clone())
    };
    save(1000).unwrap();
    let refused = save(400_000 / BYTES as u32 * 2).unwrap_err();
    assert!(
        matches!(&refused, SaveError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{refused}"
    );
    assert!(!folder.join("save.new").exists() && fs::read_dir(&folder).unwrap().count() == 2);
    let (cache, mut memory) = (PrefixCache::builder(1, 1000).build().unwrap(), Memory::new(1000));
    assert_eq!(Saved::open(&folder, &layout).unwrap().restore(&cache, &mut memory).unwrap().blocks, 1000);
    contents(&cache, Some(&memory), &names(&cache));
    save(500).unwrap();
}
