use super::*;

fn layout() -> Layout {
    Layout::new("m", "bf16", 2, 32).unwrap()
}

// Holds: RT1.
#[test]
fn a_key_is_of_all_tokens_up_to_its_blocks_end() {
    let tokens = [1, 2, 3, 4, 5, 6];
    let blocks = layout().blocks("a", &tokens);
    assert_eq!(blocks.len(), 3);
    for (at, _) in tokens.iter().enumerate() {
        let mut other = tokens;
        other[at] ^= 1 << 31;
        for (index, (one, two)) in blocks.iter().zip(layout().blocks("a", &other)).enumerate() {
            assert_eq!(one.key() == two.key(), index < at / 2, "token {at}, block {index}");
        }
    }
    assert!(layout().blocks("b", &tokens).iter().all(|other| blocks.iter().all(|block| block.key() != other.key())));
    assert!(layout().blocks("a", &[1]).is_empty());
}

/// Pins the definition byte for byte, so that another program can compute the same keys.
// Holds: RT1.
#[test]
fn the_definition_is_pinned() {
    let mut seed = b"radixkv  scope 1".to_vec();
    let manifest = "radixkv-tiers format 1\nmodel: m\ndtype: bf16\nkv layout: \n\
                    tensor parallel: rank 0 of 1\nblock size: 2\nblock bytes: 32\n";
    seed.extend(Sha256::digest(manifest));
    seed.extend(b"a");
    let mut first = b"radixkv  block 1".to_vec();
    first.extend(Sha256::digest(seed));
    first.extend([1, 0, 0, 0, 2, 1, 0, 0]);
    let key: [u8; 32] = Sha256::digest(first).into();
    assert_eq!(layout().blocks("a", &[1, 258])[0].key(), BlockKey(key));
}

#[test]
fn blocks_of_any_size_are_hashed_whole() {
    for size in [1, 63, 64, 65, 200] {
        let layout = Layout::new("m", "bf16", size, 1).unwrap();
        let tokens: Vec<_> = (0..size as u32).collect();
        let whole = layout.blocks("", &tokens);
        for at in 0..size {
            let mut other = tokens.clone();
            other[at] += 1;
            assert_ne!(layout.blocks("", &other)[0].key(), whole[0].key(), "{at} of {size}");
        }
    }
}

#[test]
fn hex_is_read_back() {
    let key = layout().some_key();
    assert_eq!(BlockKey::from_hex(&key.to_string()), Some(key));
    for text in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
        assert_eq!(BlockKey::from_hex(text), None, "{text}");
    }
}
