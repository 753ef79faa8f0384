use super::*;

fn layout() -> Layout {
    Layout::new("m", "bf16", 3, 40).unwrap()
}

fn block(tokens: [Token; 3]) -> Block {
    layout().blocks("", &tokens).remove(0)
}

fn object(block: &Block, expires: u64) -> Vec<u8> {
    let mut out = vec![0; layout().object_bytes()];
    encode(&layout(), block, expires, &[9; 40], &mut out).unwrap();
    out
}

fn found(object: &[u8], now: u64) -> Result<Vec<u8>, Miss> {
    verify(object, &layout(), &block([1, 2, 3]), now).map(Cow::into_owned)
}

/// The object with other bytes at an offset, and a checksum that matches them.
fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut object = object(&block([1, 2, 3]), 0);
    object[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = checksum(&object[..CHECKSUM_AT], &object[104..116], &object[116..]);
    object[CHECKSUM_AT..104].copy_from_slice(&sum.to_le_bytes());
    object
}

#[test]
fn what_was_written_is_read_until_it_expires() {
    let (forever, brief) = (object(&block([1, 2, 3]), 0), object(&block([1, 2, 3]), 1000));
    assert_eq!(found(&forever, u64::MAX), Ok(vec![9; 40]));
    assert_eq!(found(&brief, 999), Ok(vec![9; 40]));
    assert_eq!(found(&brief, 1000), Err(Miss::Expired));
}

// Holds: RT2.
#[test]
fn each_mismatch_has_its_name() {
    assert_eq!(found(&forged(0, b"RADIXKVB"), 0), Err(Miss::NotAnObject));
    assert_eq!(found(&forged(8, &7_u32.to_le_bytes()), 0), Err(Miss::UnknownVersion { version: 7 }));
    assert_eq!(found(&forged(16, &[1; 32]), 0), Err(Miss::WrongLayout));
    assert_eq!(found(&forged(48, &[1; 32]), 0), Err(Miss::WrongKey));
    assert_eq!(found(&forged(104, &[1, 0, 0, 0, 3, 0, 0, 0]), 0), Err(Miss::WrongTokens));
    assert_eq!(found(&object(&block([1, 2, 4]), 0), 0), Err(Miss::WrongKey));
    let torn = Err(Miss::Torn { bytes: 156, expected: 156 });
    for at in [12, 80] {
        assert_eq!(found(&forged(at, &u32::MAX.to_le_bytes()), 0), torn);
        assert_eq!(found(&forged(at, &[0, 0, 0, 0]), 0), torn);
    }
}

/// Each length of an object, and each flipped bit.
// Holds: RT2.
#[test]
fn no_cut_and_no_flipped_bit_passes() {
    let object = object(&block([1, 2, 3]), 0);
    for cut in 0..object.len() {
        assert_eq!(found(&object[..cut], 0), Err(Miss::Torn { bytes: cut, expected: 156 }));
        for bit in 0..8 {
            let mut flipped = object.clone();
            flipped[cut] ^= 1 << bit;
            assert!(found(&flipped, 0).is_err(), "bit {bit} of byte {cut}");
        }
    }
    let longer = [object, vec![0]].concat();
    assert_eq!(found(&longer, 0), Err(Miss::Torn { bytes: 157, expected: 156 }));
}

// Holds: RT2.
#[test]
fn any_bytes_are_a_miss() {
    let mut random = fastrand::Rng::with_seed(3);
    let whole = object(&block([1, 2, 3]), 0);
    for length in 0..400 {
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        assert!(found(&bytes, 0).is_err());
        // A valid beginning, and anything after it.
        let known = random.usize(..=length.min(whole.len()));
        bytes[..known].copy_from_slice(&whole[..known]);
        assert_eq!(found(&bytes, 0).is_ok(), bytes == whole);
    }
}
