//! Tiers in object stores: one in memory, and one that does what a test tells it to.

mod common;
#[path = "objects/faulty.rs"]
mod faulty;

use std::{sync::Arc, time::Duration};

use common::{
    ABSENT, Bytes, PATIENCE, blocks, checked, completions, contained, does_what_a_tier_does, get, get_all, layout,
    other_layouts, put, put_all,
};
use faulty::{Fault, Faulty};
use radixkv_tiers::{
    Failure, Layout, Miss, NotGot, ObjectTier, OpenError, Outcome, RemoteTier, Tier,
    object_store::{ObjectStore, ObjectStoreExt as _, memory::InMemory, path::Path},
};

fn open(store: &Arc<impl ObjectStore>, layout: &Layout, timeout: Duration) -> Result<Tier<Bytes>, OpenError> {
    ObjectTier::new(Arc::clone(store) as _, "a/b", layout.clone()).concurrency(4).timeout(timeout).open()
}

/// Waits on a runtime of the test's own.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn path(block: &radixkv_tiers::Block) -> Path {
    let key = block.key().to_string();
    Path::from(format!("a/b/{}/{}", &key[..2], &key[2..]))
}

#[test]
fn a_tier_in_an_object_store_does_what_a_tier_does() {
    for layout in [vec![layout(1, 1), layout(16, 5000), layout(16, 3_000_000)], other_layouts()].concat() {
        let store = Arc::new(InMemory::new());
        let tier = open(&store, &layout, PATIENCE).unwrap();
        does_what_a_tier_does(&tier);
        let all = blocks(&layout, 3);
        put_all(&tier, &all, None);
        drop(tier);
        assert_eq!(get_all(&open(&store, &layout, PATIENCE).unwrap(), &all), vec![Ok(()); 3]);
    }
}

#[test]
fn a_prefix_of_another_layout_is_refused_with_both_values() {
    let store = Arc::new(InMemory::new());
    drop(open(&store, &layout(16, 64), PATIENCE).unwrap());
    let error = open(&store, &layout(32, 64), PATIENCE).unwrap_err().to_string();
    let what = "holds blocks of block size \"16\", this layout has \"32\": open another place, or empty this one";
    assert_eq!(error, format!("InMemory a/b {what}"));
    let manifest = Path::from("a/b/manifest");
    for damaged in [&b""[..], b"text", &[b'x'; 100_000]] {
        now(store.put(&manifest, damaged.to_vec().into())).unwrap();
        let error = open(&store, &layout(16, 64), PATIENCE).unwrap_err();
        assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    }
}

/// The engine's own runtime is not entered twice.
#[test]
fn a_tier_may_be_opened_and_dropped_inside_a_runtime() {
    now(async {
        let (store, layout) = (Arc::new(InMemory::new()), layout(16, 64));
        let tier = open(&store, &layout, PATIENCE).unwrap();
        put_all(&tier, &blocks(&layout, 3), None);
    });
}

#[test]
fn what_others_wrote_is_a_miss() {
    let (store, layout) = (Arc::new(InMemory::new()), layout(16, 3000));
    let (tier, all) = (open(&store, &layout, PATIENCE).unwrap(), blocks(&layout, 5));
    put_all(&tier, &all[4..], None);
    let whole = now(async { store.get(&path(&all[4])).await.unwrap().bytes().await.unwrap() });
    let length = whole.len();
    let flipped: Vec<u8> =
        whole.iter().enumerate().map(|(at, byte)| if at == length / 2 { !byte } else { *byte }).collect();
    let contents: [Vec<u8>; 4] = [vec![], vec![7; 100_000], flipped, whole.to_vec()];
    for (block, content) in all.iter().zip(contents) {
        now(store.put(&path(block), content.into())).unwrap();
    }
    let torn = |bytes| Err(NotGot::Miss(Miss::Torn { bytes, expected: length }));
    // Of the flipped one the key is looked at after the checksum.
    let ends = [torn(0), torn(100_000), Err(Miss::WrongChecksum.into()), Err(Miss::WrongKey.into()), Ok(())];
    assert_eq!(get_all(&tier, &all), ends);
}

#[test]
fn faults_are_failures_by_kind() {
    let layout = layout(16, 3000);
    let all = blocks(&layout, 6);
    for (fault, failure) in [
        (Fault::Generic, Failure::Unreachable),
        (Fault::Denied, Failure::Denied),
        (Fault::Hang, Failure::TimedOut),
        (Fault::Panic, Failure::Panicked),
        (Fault::HalfBody, Failure::Unreachable),
    ] {
        let store = Arc::new(Faulty::new());
        let patient = open(&store, &layout, PATIENCE).unwrap();
        put_all(&patient, &all, None);
        let timeout = if fault == Fault::Hang { Duration::from_secs(1) } else { PATIENCE };
        let tier = open(&store, &layout, timeout).unwrap();
        store.becomes(Some(fault.clone()));
        let (mut gets, mut puts) = (0, 0);
        tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
        tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
        for end in completions(&tier, 12) {
            match &end.outcome {
                Outcome::Got(..) => {
                    assert_eq!(checked(end, &layout), Err(NotGot::Failed(failure)), "{fault:?}");
                    gets += 1;
                }
                // A body that stops is of gets alone.
                Outcome::Put(_, end) => {
                    assert_eq!(*end, if fault == Fault::HalfBody { Ok(()) } else { Err(failure) }, "{fault:?}");
                    puts += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((gets, puts), (6, 6));
        store.becomes(None);
        assert_eq!(get_all(&patient, &all), vec![Ok(()); 6], "{fault:?}");
    }
}

#[test]
fn another_object_or_one_of_another_length_is_a_miss() {
    let layout = layout(16, 3000);
    let (store, all) = (Arc::new(Faulty::new()), blocks(&layout, 3));
    let tier = open(&store, &layout, PATIENCE).unwrap();
    put_all(&tier, &all, None);
    store.becomes(Some(Fault::Other(path(&all[0]))));
    assert_eq!(get_all(&tier, &all), [Ok(()), Err(Miss::WrongKey.into()), Err(Miss::WrongKey.into())]);
    // What is not the block is removed.
    store.becomes(None);
    assert_eq!(get_all(&tier, &all), [Ok(()), ABSENT, ABSENT]);
    put_all(&tier, &all, None);
    store.becomes(Some(Fault::SizeLies));
    let expected = layout.object_bytes();
    assert_eq!(get_all(&tier, &all), vec![Err(Miss::Torn { bytes: expected - 1, expected }.into()); 3]);
    store.becomes(None);
    assert_eq!(get_all(&tier, &all), [ABSENT; 3]);
    put_all(&tier, &all, None);
    tier.remove(vec![all[0].key()]).unwrap();
    completions(&tier, 1);
    assert_eq!(get_all(&tier, &all), [ABSENT, Ok(()), Ok(())]);
}

/// A store that sends more than it announced: no more of it is read than shows that.
// Holds: RT2.
#[test]
fn a_body_that_does_not_end_is_not_read_to_its_end() {
    let layout = layout(16, 3000);
    let (store, all) = (Arc::new(Faulty::new()), blocks(&layout, 1));
    let tier = open(&store, &layout, PATIENCE).unwrap();
    put_all(&tier, &all, None);
    let expected = layout.object_bytes();
    store.becomes(Some(Fault::Endless));
    assert_eq!(contained(&tier, &all), [false]);
    assert_eq!(store.endless_bytes(), 1024, "a header is shorter");
    let bytes = expected.next_multiple_of(1024);
    assert_eq!(get_all(&tier, &all), [Err(Miss::Torn { bytes, expected }.into())]);
    assert_eq!(store.endless_bytes(), bytes);
    let error = open(&store, &layout, PATIENCE).unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert!(store.endless_bytes() < 1 << 20);
}

#[test]
fn a_store_that_fails_when_a_tier_is_opened() {
    for (fault, text) in [(Fault::Generic, "as told"), (Fault::Hang, "timed out"), (Fault::Panic, "the store panicked")]
    {
        let store = Arc::new(Faulty::new());
        store.becomes(Some(fault));
        let error = open(&store, &layout(16, 64), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }) && error.to_string().contains(text), "{error}");
    }
}

/// Dropped with work in flight over a store that never answers: it ends.
#[test]
fn dropping_a_tier_ends_what_hangs() {
    let layout = layout(16, 64);
    let store = Arc::new(Faulty::new());
    let tier = open(&store, &layout, Duration::from_secs(1)).unwrap();
    store.becomes(Some(Fault::Hang));
    tier.get_into(blocks(&layout, 100).iter().map(|block| get(block, &layout)).collect()).unwrap();
    drop(tier);
    // The thread and its tasks let go of the store.
    let began = std::time::Instant::now();
    while Arc::strong_count(&store) > 1 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

/// Both when it was looked at and when it was not: who asks before a put is told that the block is
/// not there.
// Holds: RT6.
#[test]
fn what_has_expired_or_is_damaged_does_not_count_as_there() {
    let (store, layout) = (Arc::new(InMemory::new()), layout(16, 3000));
    let (tier, all) = (open(&store, &layout, PATIENCE).unwrap(), blocks(&layout, 6));
    put_all(&tier, &all[..2], Some(Duration::ZERO));
    put_all(&tier, &all[2..], None);
    let whole = now(async { store.get(&path(&all[2])).await.unwrap().bytes().await.unwrap() });
    let flipped: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| if at == 200 { !byte } else { *byte }).collect();
    now(store.put(&path(&all[2]), flipped.into())).unwrap();
    now(store.put(&path(&all[3]), whole.slice(..100).into())).unwrap();
    now(store.put(&path(&all[4]), Vec::new().into())).unwrap();
    assert_eq!(contained(&tier, &all), [false, false, true, false, false, true]);
    assert!(get_all(&tier, &all[..5]).iter().all(Result::is_err));
    assert_eq!(contained(&tier, &all), [[false; 5].as_slice(), &[true]].concat());
    put_all(&tier, &all[..5], None);
    assert_eq!(get_all(&tier, &all), vec![Ok(()); 6]);
}
