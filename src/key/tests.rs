use super::*;

#[test]
fn finds_differences_of_long_sequences() {
    for len in [7_167, 7_168, 7_169, 20_001, 49_151, 49_152, 60_007] {
        let a: Vec<Token> = (0..len).collect();
        assert_eq!(common_prefix(&a, &a), a.len());
        for at in (0..300).chain((300..a.len()).step_by(997)).chain(a.len() - 300..a.len()) {
            let mut b = a.clone();
            b[at] ^= 1;
            assert_eq!(common_prefix(&a, &b), at);
        }
    }
}

// Holds: MA3.
#[test]
fn finds_every_first_difference() {
    for len in (0..70).chain([127, 128, 129, 255, 256, 300]) {
        let a: Vec<Token> = (0..len).collect();
        assert_eq!(common_prefix(&a, &a), a.len());
        for at in 0..a.len() {
            let mut b = a.clone();
            b[at] ^= 1 << 31;
            assert_eq!(common_prefix(&a, &b), at);
            assert_eq!(common_prefix_portable(&a, &b), at);
            assert_eq!(common_prefix(&a[..at], &b), at);
        }
    }
}
