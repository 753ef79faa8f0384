//! A region that processes share, as a tier.

mod common;

use std::time::Duration;

use common::{ABSENT, Bytes, blocks, contained, get, get_all, layout, put, put_all};
use radixkv_tiers::{Layout, OpenError, Refusal, RegionTier, RemoteTier};

fn open(path: &std::path::Path, layout: Layout) -> RegionTier<Bytes> {
    RegionTier::open_or_create(path, layout, 64).unwrap()
}

// Holds: HT27.
#[test]
fn another_tier_over_the_same_region_finds_what_one_put() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 1000));
    let path = folder.path().join("region");
    let [one, other] = [(); 2].map(|()| open(&path, layout.clone()));
    let all = blocks(&layout, 20);
    put_all(&one, &all[..12], None);
    put_all(&one, &all[..2], Some(Duration::ZERO));
    put_all(&other, &all[2..4], None);
    assert_eq!(contained(&other, &all), [vec![false; 2], vec![true; 10], vec![false; 8]].concat());
    let got = get_all(&other, &all);
    assert!(got[..2].iter().all(|got| got.is_err()), "their time is over: {got:?}");
    assert_eq!(got[2..], [vec![Ok(()); 10], vec![ABSENT; 8]].concat());
    assert_eq!(other.stats().hits, 10);

    put_all(&one, &all[..2], None);
    assert_eq!(get_all(&other, &all[..2]), [Ok(()), Ok(())], "they were replaced");
    one.remove(all.iter().map(radixkv_tiers::Block::key).collect()).unwrap();
    assert_eq!(get_all(&other, &all), vec![ABSENT; 20]);
    drop((one, other));
}

// Holds: HT27.
#[test]
fn what_is_not_of_the_layout_is_refused() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 1000));
    let path = folder.path().join("region");
    let tier = open(&path, layout.clone());
    let other = Layout::new("other", "bf16", 4, 1000).unwrap();
    let refused: OpenError = RegionTier::<Bytes>::open_or_create(&path, other.clone(), 64).unwrap_err();
    assert!(refused.to_string().contains(r#"model is "model" in the region, "other" was requested"#), "{refused}");

    let (own, foreign) = (blocks(&layout, 1).remove(0), blocks(&other, 1).remove(0));
    let refused = tier.put_from(vec![put(&own, &layout, None), put(&foreign, &other, None)]).unwrap_err();
    assert_eq!((refused.reason, refused.batch.len()), (Refusal::OtherLayout { index: 1 }, 2));
    let mut short = get(&own, &layout);
    short.buffer.truncate(10);
    let refused = tier.get_into(vec![short]).unwrap_err();
    assert_eq!(refused.reason, Refusal::BufferBytes { index: 0, bytes: 10, block_bytes: 1000 });
    let many = tier.contains(vec![own.key(); 1025]).unwrap_err();
    assert_eq!(many.reason, Refusal::TooLarge { asked: 1025, max: 1024 });
    tier.contains(vec![own.key(); 1000]).unwrap();
    let full = tier.contains(vec![own.key(); 25]).unwrap_err();
    assert_eq!(full.reason, Refusal::Full { asked: 25, in_flight: 1000, max: 1024 });
    assert_eq!(tier.poll(&mut Vec::new(), Duration::MAX), 1000);
    assert_eq!((tier.stats().in_flight, tier.stats().refused_batches), (0, 4));
}
