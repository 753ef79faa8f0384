use super::*;

fn layout() -> Layout {
    Layout::new("m", "bf16", 4, 32).unwrap()
}

// Holds: RT1.
#[test]
fn a_manifest_is_of_its_layout_alone() {
    let layout = layout();
    assert_eq!(layout.compare(layout.manifest().as_bytes()), Ok(()));
    let others = [
        ("model", Layout::new("n", "bf16", 4, 32)),
        ("dtype", Layout::new("m", "fp8", 4, 32)),
        ("kv layout", layout.clone().kv_layout("NHD")),
        ("tensor parallel", layout.clone().tensor_parallel(0, 2)),
        ("tensor parallel", Ok(layout.clone().every_rank())),
        ("keys", layout.clone().digest_keys(32, "sha256", "0")),
        ("block size", Layout::new("m", "bf16", 5, 32)),
        ("block bytes", Layout::new("m", "bf16", 4, 33)),
    ];
    for (differs, other) in others {
        let other = other.unwrap();
        match layout.compare(other.manifest().as_bytes()) {
            Err(Difference::Field { field, stored, asked }) => assert!(field == differs && stored != asked),
            found => panic!("{differs}: {found:?}"),
        }
        assert_ne!(layout.digest(), other.digest());
        assert_ne!(layout.some_key(), other.some_key());
    }
    let digests = layout.clone().digest_keys(32, "sha256", "0").unwrap();
    assert_eq!(digests.compare(digests.manifest().as_bytes()), Ok(()));
    let others = [
        layout.clone(),
        layout.clone().digest_keys(36, "sha256", "0").unwrap(),
        layout.clone().digest_keys(32, "xxhash", "0").unwrap(),
        layout.digest_keys(32, "sha256", "1").unwrap(),
    ];
    for other in others {
        match digests.compare(other.manifest().as_bytes()) {
            Err(Difference::Field { field: "keys", stored, asked }) => assert_ne!(stored, asked),
            found => panic!("{other}: {found:?}"),
        }
        assert!(
            other.digest_block(&[1; 32]).map(|block| block.key())
                != digests.digest_block(&[1; 32]).map(|block| block.key())
        );
    }
}

// Holds: RT1.
#[test]
fn a_hash_scheme_and_its_seed_are_not_confused() {
    let keyed = |scheme: &str, seed: &str| layout().digest_keys(32, scheme, seed).unwrap();
    // The two of each pair have one text if the parts are only joined, or if only commas are escaped.
    let pairs = [
        [("a, seed b", "c"), ("a", "b, seed c")],
        [(r"a\, seed b", "c"), (r"a\", "b, seed c")],
        [("a, seed b", "c"), (r"a\", "b, seed c")],
        [(", seed ", ""), ("", ", seed ")],
    ];
    for [one, other] in pairs {
        let [one, other] = [one, other].map(|(scheme, seed)| keyed(scheme, seed));
        match one.compare(other.manifest().as_bytes()) {
            Err(Difference::Field { field: "keys", stored, asked }) => assert_ne!(stored, asked),
            found => panic!("{one} and {other}: {found:?}"),
        }
        let [one, other] = [one, other].map(|layout| layout.digest_block(&[1; 32]).unwrap().key());
        assert_ne!(one, other);
    }
    assert_eq!(keyed("sha256", "a, seed b").keys().unwrap(), "digests of 32 bytes, sha256, seed a, seed b");
}

#[test]
fn any_bytes_are_compared() {
    let (layout, text) = (layout(), layout().manifest());
    let mut random = fastrand::Rng::with_seed(7);
    for cut in 0..text.len() - 1 {
        assert_eq!(layout.compare(&text.as_bytes()[..cut]).is_err(), cut + 1 < text.len(), "{cut}");
        let mut bytes = text.clone().into_bytes();
        bytes[cut] = random.u8(..);
        let _ = layout.compare(&bytes);
    }
    let newer = text.replace("format 1", "format 2");
    assert_eq!(layout.compare(newer.as_bytes()), Err(Difference::Version(2)));
    assert_eq!(layout.compare((text + "more: 1\n").as_bytes()), Err(Difference::NotAManifest));
    assert_eq!(layout.compare(b""), Err(Difference::NotAManifest));
}

#[test]
fn bounds_are_said() {
    let error = |layout: Result<Layout, LayoutError>| layout.unwrap_err().to_string();
    assert_eq!(error(Layout::new("m", "x", 0, 1)), "the block size is 0, it must be from 1 to 1048576");
    assert_eq!(error(Layout::new("m", "x", 1, 0)), "the block bytes is 0, it must be from 1 to 268435456");
    assert_eq!(error(Layout::new("m", "x", 1, usize::MAX)).split(',').count(), 2);
    assert_eq!(error(Layout::new("m\n", "x", 1, 1)), "the model has a control character at byte 1");
    assert_eq!(error(Layout::new("m", "x".repeat(1025), 1, 1)), "the dtype has 1025 bytes, at most 1024 are allowed");
    let ranks = "rank 2 is out of range: the 2 ranks count from 0";
    assert_eq!(error(layout().tensor_parallel(2, 2)), ranks);
}
