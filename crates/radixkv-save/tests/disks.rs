//! Disks without room.

mod common;

use std::fs;

use common::{BYTES, Memory, Mounted, contents, layout, names, serve};
use radixkv::PrefixCache;
use radixkv_save::{Save, SaveError, Saved};

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
