use super::*;

#[test]
fn a_digest_is_read_back_and_any_other_is_told_apart() {
    let mut state = 4_u32;
    let mut below = move |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % bound
    };
    for _ in 0..300 {
        let bytes = LEAST_DIGEST + below(24);
        let digest: Vec<u8> = (0..bytes).map(|_| below(256) as u8).collect();
        let mut span = vec![7; tokens_needed(bytes) + below(30)];
        write_digest(&mut span, &digest).expect("it fits");
        assert!(span.iter().all(|token| *token >= MARK));
        assert_eq!(read_digest(&span, bytes).as_deref(), Some(&digest[..]));
        let (mut other, at) = (digest.clone(), below(bytes * 8));
        other[at / 8] ^= 1 << (at % 8);
        assert!(has_digest(&span, &digest) && !has_digest(&span, &other));
        let text = below(span.len());
        span[text] = below(1 << 20) as Token;
        assert_eq!((read_digest(&span, bytes), has_digest(&span, &digest)), (None, false));
    }
}

#[test]
fn what_is_too_short_is_refused_and_stays() {
    assert_eq!((tokens_needed(16), tokens_needed(32), tokens_needed(0)), (5, 9, 0));
    let mut span = [7; 4];
    let refused = write_digest(&mut span, &[1; 16]).unwrap_err();
    assert_eq!(refused, DigestError::SpanTooShort { tokens: 4, needed: 5 });
    assert_eq!(write_digest(&mut span, &[1; 15]).unwrap_err(), DigestError::DigestTooShort { bytes: 15 });
    assert_eq!((span, read_digest(&span, 16), has_digest(&span, &[])), ([7; 4], None, false));
}
