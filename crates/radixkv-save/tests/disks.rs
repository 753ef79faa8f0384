//! Disks without room, and processes that may not open another file.

mod common;

use std::{
    env,
    fs::{self, File},
    process::Command,
};

use common::{BYTES, Memory, Mounted, contents, layout, names, serve};
use radixkv::PrefixCache;
use radixkv_save::{BlockBytes, Save, SaveError, Saved};

const FOLDER: &str = "RADIXKV_SAVE_FEW_FILES_IN";

// Holds: SV5.
#[test]
fn a_full_disk_is_said_and_the_old_save_stays() {
    let Some(disk) = Mounted::new("size=512K") else { return };
    let (folder, layout) = (disk.path().join("cache"), layout(1));
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

/// Memory that opens files until the process may not open another one.
struct Opening(Vec<File>);

impl BlockBytes for Opening {
    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn read(&mut self, _block: u32, bytes: &mut [u8]) -> bool {
        self.0.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        bytes.fill(2);
        true
    }

    fn write(&mut self, _block: u32, _bytes: &[u8]) -> bool {
        false
    }
}

/// The process that may open few files, and in all other runs nothing.
#[test]
fn the_process_that_may_open_few_files() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let (cache, memory) = (PrefixCache::builder(1, 8).build().unwrap(), Memory::new(8));
    assert!(serve(&cache, &cache.session(), &cache.default_namespace(), &memory, &[1, 2]));
    let mut opening = Opening(Vec::new());
    let refused = Save::new(&cache, &layout(1)).to(&folder, &mut opening).unwrap_err();
    assert!(matches!(refused, SaveError::Io { .. }) && !opening.0.is_empty(), "{refused}");
}

// Holds: SV5.
#[test]
fn a_folder_that_cannot_be_opened_for_its_sync_keeps_the_old_save() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(1));
    let (cache, memory) = (PrefixCache::builder(1, 8).build().unwrap(), Memory::new(8));
    assert!(serve(&cache, &cache.session(), &cache.default_namespace(), &memory, &[1, 2, 3]));
    Save::new(&cache, &layout).to(folder.path(), &mut memory.clone()).unwrap();
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" --exact the_process_that_may_open_few_files"])
        .arg(env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert_eq!(Saved::open(folder.path(), &layout).unwrap().blocks(), 3);
}
