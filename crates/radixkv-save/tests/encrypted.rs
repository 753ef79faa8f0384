//! Saves that are encrypted.

mod common;

use std::{fs, path::Path};

use common::{BYTES, Memory, contents, count, layout, load, names, serve};
use radixkv::{NamespaceName, PrefixCache};
use radixkv_host::HostTier;
use radixkv_save::{
    BlockBytes, HostSave, Layout, OpenError, Restored, Save, SaveError, Saved, SavedHost, SealKey, TreeOnly,
};

const SIZE: usize = 2;

fn with_key(key: u8) -> Layout {
    layout(SIZE).encrypted(SealKey::new(&[key; 32]))
}

fn cache(blocks: usize) -> PrefixCache {
    PrefixCache::builder(SIZE, blocks).build().unwrap()
}

/// A cache with content, and its memory.
fn loaded(seed: u64) -> (PrefixCache, Memory) {
    let (cache, memory) = (cache(64), Memory::new(64));
    load(&cache, &memory, &mut fastrand::Rng::with_seed(seed), 40, 16);
    (cache, memory)
}

fn file(folder: &Path) -> std::path::PathBuf {
    let mut files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.find(|path| path.metadata().unwrap().len() > 8192).expect("a save")
}

fn restore(folder: &Path, layout: &Layout) -> Result<(Restored, usize), OpenError> {
    let (restarted, mut memory) = (cache(64), Memory::new(64));
    let restored = Saved::open(folder, layout)?.restore(&restarted, &mut memory).unwrap();
    let names = names(&restarted);
    let found = contents(&restarted, Some(&memory), &names);
    assert_eq!(count(&found), restored.blocks, "what is restored has its own bytes");
    Ok((restored, restored.blocks))
}

// Holds: RG20.
#[test]
fn an_encrypted_save_is_restored_with_its_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, mut memory) = loaded(1);
    let expected = count(&contents(&cache, Some(&memory), &names(&cache)));
    let report = Save::new(&cache, &with_key(1)).to(folder.path(), &mut memory).unwrap();
    assert_eq!((report.blocks, report.bytes), (expected, file(folder.path()).metadata().unwrap().len()));
    let (restored, blocks) = restore(folder.path(), &with_key(1)).unwrap();
    assert_eq!((blocks, restored.damaged_blocks), (expected, 0));
    assert!(matches!(restore(folder.path(), &with_key(2)), Err(OpenError::OtherKey { .. })));
    match restore(folder.path(), &layout(SIZE)) {
        Err(OpenError::OtherLayout { field, stored, asked, .. }) => {
            assert_eq!((field.as_str(), stored.as_str(), asked.as_str()), ("encryption", "AES-256-GCM", "none"));
        }
        opened => panic!("{opened:?}"),
    }
    Save::new(&cache, &layout(SIZE)).to(folder.path(), &mut memory).unwrap();
    let refused = restore(folder.path(), &with_key(1));
    assert!(matches!(refused, Err(OpenError::OtherLayout { .. })), "{refused:?}");
}

// Holds: RG20.
#[test]
fn no_token_name_or_byte_of_a_block_is_in_the_file() {
    /// Every block has the same text.
    struct Text;
    impl BlockBytes for Text {
        fn block_bytes(&self) -> usize {
            BYTES
        }
        fn read(&mut self, _: u32, bytes: &mut [u8]) -> bool {
            bytes.fill(b'p');
            true
        }
        fn write(&mut self, _: u32, _: &[u8]) -> bool {
            true
        }
    }
    for (layout, is_plain) in [(with_key(1), false), (layout(SIZE), true)] {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(8);
        let space = cache.namespace(NamespaceName::new(&["a tenant's name"]));
        let tokens = [0x6f74_6f74_u32; 4];
        assert!(serve(&cache, &cache.session(), &space, &Memory::new(8), &tokens));
        Save::new(&cache, &layout).to(folder.path(), &mut Text).unwrap();
        let content = fs::read(file(folder.path())).unwrap();
        let holds = |text: &[u8]| content.windows(text.len()).any(|window| window == text);
        for text in [&[b'p'; 16][..], b"a tenant's name", b"totototo"] {
            assert_eq!(holds(text), is_plain, "{}", String::from_utf8_lossy(text));
        }
    }
}

// Holds: RG20.
#[test]
fn what_was_changed_or_swapped_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, mut memory) = loaded(2);
    let report = Save::new(&cache, &with_key(1)).to(folder.path(), &mut memory).unwrap();
    let path = file(folder.path());
    let whole = fs::read(&path).unwrap();
    let stride = BYTES + 28;
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let mut content = whole.clone();
        if random.bool() {
            let at = random.usize(8192..content.len() - 48);
            content[at] ^= 1 << random.u32(..8);
        } else {
            let [one, other] = [(); 2].map(|()| 8192 + stride * random.usize(..report.blocks));
            for at in 0..stride {
                content.swap(one + at, other + at);
            }
        }
        fs::write(&path, content).unwrap();
        // Compares all bytes that it restores.
        if let Ok((restored, blocks)) = restore(folder.path(), &with_key(1)) {
            assert_eq!(blocks + restored.damaged_blocks, report.blocks);
        }
    }
}

// Holds: RG20.
#[test]
fn a_key_that_may_encrypt_no_more_saves_nothing_and_keeps_the_old_save() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, mut memory) = loaded(4);
    let blocks = Save::new(&cache, &with_key(1)).to(folder.path(), &mut memory).unwrap().blocks;
    let used = layout(SIZE).encrypted(SealKey::new(&[1; 32]).with_seals((1 << 32) - 3));
    let refused = Save::new(&cache, &used).to(folder.path(), &mut memory).unwrap_err();
    assert!(matches!(&refused, SaveError::Io { .. }) && refused.to_string().contains("use a new key"), "{refused}");
    assert_eq!(restore(folder.path(), &with_key(1)).unwrap().1, blocks);
}

// Holds: RG20.
#[test]
fn an_encrypted_host_tier_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let tier = |blocks| HostTier::builder(SIZE, blocks).block_bytes(BYTES).build().unwrap();
    let (held, cache) = (tier(8), cache(8));
    let name = cache.namespace(NamespaceName::new(&["tenant"])).name();
    let offload = held.offload();
    let mut arrival = offload.reserve(&name, &[1, 2, 3, 4, 5, 6], 0);
    for (number, bytes) in arrival.blocks_mut() {
        bytes.fill(number as u8 + 1);
    }
    arrival.publish();
    assert_eq!(HostSave::new(&held, &with_key(1)).to(folder.path()).unwrap().blocks, 3);
    assert!(matches!(SavedHost::open(folder.path(), &with_key(2)), Err(OpenError::OtherKey { .. })));
    let restarted = tier(8);
    SavedHost::open(folder.path(), &with_key(1)).unwrap().restore(&restarted, &cache).unwrap();
    let found = restarted.match_from(&name, &[1, 2, 3, 4, 5, 6], 0);
    assert_eq!(
        (0..3).map(|block| found.bytes(block).to_vec()).collect::<Vec<_>>(),
        [1, 2, 3].map(|byte| vec![byte; BYTES])
    );
}

// Holds: RG20.
#[test]
fn an_encrypted_save_without_bytes_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (old, _) = loaded(5);
    let report = Save::new(&old, &with_key(1)).to(folder.path(), &mut TreeOnly).unwrap();
    assert_eq!(report.bytes, file(folder.path()).metadata().unwrap().len());
    assert!(matches!(Saved::open(folder.path(), &with_key(2)), Err(OpenError::OtherKey { .. })));
    let saved = Saved::open(folder.path(), &with_key(1)).unwrap();
    let restored = saved.restore(&cache(64), &mut TreeOnly).unwrap();
    assert_eq!((restored.blocks, restored.damaged_blocks), (report.blocks, 0));

    let folder = tempfile::tempdir().unwrap();
    let tier = || HostTier::builder(SIZE, 8).build().unwrap();
    let (held, cache) = (tier(), cache(8));
    held.offload().reserve(&cache.default_namespace().name(), &[1, 2, 3, 4], 0).publish();
    HostSave::new(&held, &with_key(1)).to(folder.path()).unwrap();
    let saved = SavedHost::open(folder.path(), &with_key(1)).unwrap();
    assert_eq!(saved.restore(&tier(), &cache).unwrap().blocks, 2);
}
