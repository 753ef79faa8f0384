use super::*;

#[test]
fn marks_are_few_for_few_blocks_and_bounded() {
    assert_eq!(
        [0, 1, 16, 17, 1 << 14, usize::MAX].map(|blocks| GhostTable::new(blocks).0.len() * LINE),
        [64, 64, 64, 128, 1 << 16, 1 << 16]
    );
}

#[test]
fn few_of_many_marks_share_a_place() {
    let seen = GhostTable::new(1 << 14);
    let place = |fingerprint| &raw const seen.line(fingerprint)[way(fingerprint, 3)];
    let places: std::collections::HashSet<_> =
        (0..1 << 14).map(|i| place(fingerprint_of(&[7, i, 7, i / 3], 16))).collect();
    // Thrown at random, 16,384 balls fill 14,497 of 65,536 places.
    assert!(places.len() > 14_000, "{}", places.len());
}
