//! Blocks that are encrypted at rest in files; tests of object stores and Redis have such layouts
//! as well.

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::{ABSENT, Bytes, blocks, completions, digests, does_what_a_tier_does, get, get_all, layout, put, put_all};
use radixkv_tiers::{Failure, FileTier, Layout, Miss, NotGot, OpenError, Outcome, Put, RemoteTier, SealKey, Tier};

const UNDECRYPTABLE: Result<(), NotGot> = Err(NotGot::Miss(Miss::Undecryptable));

fn with_key(layout: Layout, key: u8) -> Layout {
    layout.encrypted(SealKey::new(&[key; 32]))
}

fn open(folder: &Path, layout: &Layout) -> Result<Tier<Bytes>, OpenError> {
    FileTier::new(folder, layout.clone(), 1 << 20).threads(1).open()
}

/// The object files of a folder, in the order of their names.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("objects")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

// Holds: RG18.
#[test]
fn encrypted_tiers_do_what_a_tier_does() {
    for layout in [layout(16, 5000), layout(1, 1), digests(36, 5000)] {
        let folder = tempfile::tempdir().unwrap();
        let layout = with_key(layout, 1);
        let tier = open(folder.path(), &layout).unwrap();
        does_what_a_tier_does(&tier);
        let all = blocks(&layout, 3);
        put_all(&tier, &all, None);
        drop(tier);
        assert_eq!(get_all(&open(folder.path(), &layout).unwrap(), &all), vec![Ok(()); 3], "after a restart");
    }
}

// Holds: RG18.
#[test]
fn no_plaintext_is_in_the_files_and_another_key_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = b"keys and values. ".repeat(60);
    // Four tokens that are text, too.
    let tokens: Vec<u32> =
        b"tokens of a text".chunks(4).map(|token| u32::from_le_bytes(token.try_into().unwrap())).collect();
    let plain = Layout::new("model", "bf16", 4, text.len()).unwrap();
    let holds = |folder: &Path, text: &[u8]| {
        let files = objects(folder).into_iter().map(|file| fs::read(file).unwrap());
        files.flat_map(|file| file.windows(text.len()).map(|window| window == text).collect::<Vec<_>>()).any(|is| is)
    };
    for (layout, is_plain) in [(with_key(plain.clone(), 1), false), (plain.clone(), true)] {
        let folder = folder.path().join(is_plain.to_string());
        let tier = open(&folder, &layout).unwrap();
        let block = layout.blocks("", &tokens).remove(0);
        tier.put_from(vec![Put { block: block.clone(), buffer: text.clone(), time_to_live: None }]).unwrap();
        completions(&tier, 1);
        for text in [&b"keys and values"[..], b"tokens of a text"] {
            assert_eq!(holds(&folder, text), is_plain, "{}", String::from_utf8_lossy(text));
        }
        assert!(!holds(&folder, &[1; 32]), "the key");
    }

    let folder = folder.path().join("keys");
    let [mine, other] = [1, 2].map(|key| with_key(layout(4, 1000), key));
    let all = blocks(&mine, 4);
    put_all(&open(&folder, &mine).unwrap(), &all, None);
    let tier = open(&folder, &other).unwrap();
    assert_eq!(get_all(&tier, &all), vec![UNDECRYPTABLE; 4]);
    assert_eq!((tier.stats().misses.undecryptable, tier.stats().hits, objects(&folder).len()), (4, 0, 4));
    drop(tier);
    assert_eq!(get_all(&open(&folder, &mine).unwrap(), &all), vec![Ok(()); 4], "what it could not read stays");
}

// Holds: RG18.
#[test]
fn objects_that_are_swapped_or_changed_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    let layout = with_key(layout(4, 1000), 1);
    let all = blocks(&layout, 3);
    put_all(&open(folder.path(), &layout).unwrap(), &all, None);
    let files = objects(folder.path());
    // One object has the sealed bytes, nonce and tag of another one, and a checksum that fits;
    // header: 104 bytes.
    let [mut first, second] = [0, 1].map(|file: usize| fs::read(&files[file]).unwrap());
    first[104..].copy_from_slice(&second[104..]);
    let of_bytes = twox_hash::XxHash3_64::oneshot(&first[104..]);
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(of_bytes, &[]);
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(sum, &first[..96]);
    first[96..104].copy_from_slice(&sum.to_le_bytes());
    fs::write(&files[0], first).unwrap();
    let mut third = fs::read(&files[2]).unwrap();
    third[200] ^= 1;
    fs::write(&files[2], third).unwrap();
    let mut got = get_all(&open(folder.path(), &layout).unwrap(), &all);
    got.sort_by_key(|got| format!("{got:?}"));
    assert_eq!(got, [UNDECRYPTABLE, Err(NotGot::Miss(Miss::WrongChecksum)), Ok(())]);
}

// Holds: RG18.
#[test]
fn a_key_that_may_encrypt_no_more_fails_puts_and_reads_on() {
    let folder = tempfile::tempdir().unwrap();
    let used = SealKey::new(&[1; 32]).with_seals((1 << 32) - 2);
    let layout = layout(4, 100).encrypted(used.clone());
    let (tier, all) = (open(folder.path(), &layout).unwrap(), blocks(&layout, 4));
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    let ends = completions(&tier, 4).into_iter().map(|completion| match completion.outcome {
        Outcome::Put(_, end) => end,
        other => panic!("{other:?}"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), [[Ok(()); 2], [Err(Failure::KeyExhausted); 2]].concat());
    assert_eq!((tier.stats().errors.key_exhausted, used.seals(), objects(folder.path()).len()), (2, 1 << 32, 2));
    assert_eq!(get_all(&tier, &all), [vec![Ok(()); 2], vec![ABSENT; 2]].concat());
}

// Holds: RG18.
#[test]
fn encrypted_and_other_stores_are_refused_with_both_values() {
    let (folder, plain) = (tempfile::tempdir().unwrap(), layout(4, 100));
    let encrypted = with_key(plain.clone(), 1);
    for (number, (first, second)) in [(&plain, &encrypted), (&encrypted, &plain)].into_iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        drop(open(&folder, first).unwrap());
        match open(&folder, second) {
            Err(OpenError::OtherLayout { field: "encryption", stored, asked, .. }) => {
                let values = [stored, asked];
                assert!(
                    values.contains(&"none".to_owned()) && values.contains(&"AES-256-GCM".to_owned()),
                    "{values:?}"
                );
            }
            opened => panic!("{opened:?}"),
        }
    }
    let tier = open(folder.path(), &encrypted).unwrap();
    let foreign = blocks(&plain, 1).remove(0);
    assert!(tier.get_into(vec![get(&foreign, &plain)]).is_err(), "its key is of another layout");
}
