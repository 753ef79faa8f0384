use super::*;

// Holds: RP8.
#[test]
fn the_published_examples_hold() {
    let examples = [
        (0, 0, 0),
        (0, 1, 2_298_633_409),
        (1, 0, 1),
        (1, 1, 3_271_458_679),
        (46, 511, 2_211_684_443),
        (182_789, 17, 468_490_157),
        (UNIQUE_PROMPT + 5, 0, 2_147_483_653),
        (UNIQUE_PROMPT + 5, 3, 565_840_089),
        (UNIQUE_OUTPUT + 7, 2, 1_067_733_639),
        (LARGE - 1, 0, u32::MAX),
        (LARGE - 1, 1, 1_107_950_444),
    ];
    for (id, at, token) in examples {
        assert_eq!(token_id(id, at), token, "token {at} of {id}");
    }
}

#[test]
fn every_bit_of_an_id_counts() {
    let tokens = |id: u64| [0, 1, 2, 3].map(|at| token_id(id, at));
    let ids: Vec<u64> = (0..64).flat_map(|bit| [5, 1 << 43].map(|id| id ^ 1 << bit)).chain([5, 1 << 43]).collect();
    for (at, &a) in ids.iter().enumerate() {
        for &b in ids[..at].iter().filter(|&&b| b != a) {
            assert_ne!(tokens(a)[1..], tokens(b)[1..], "{a:#x} and {b:#x}");
        }
    }
}

/// A large id whose scrambled form is the seed of a small id's first token: all seeds that
/// follow are also equal.
#[test]
fn a_seed_in_common_gives_other_tokens() {
    for small in [1, 46, LARGE - 1] {
        let large = unscrambled(small << 20);
        assert!(large >= LARGE);
        for at in 1..100 {
            assert_ne!(token_id(large, at), token_id(small, at), "token {at} of {small}");
        }
    }
}

/// The state from which splitmix64 makes `z`.
fn unscrambled(z: u64) -> u64 {
    let unshifted = |z: u64, by: u32| (0..64 / by).fold(z, |known, _| z ^ known >> by);
    let z = unshifted(z, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let z = unshifted(z, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    unshifted(z, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn filling_equals_asking_one_by_one() {
    for id in [0, 1, 46, UNIQUE_PROMPT + 5, LARGE - 1, LARGE, u64::MAX] {
        let mut tokens = [0; 601];
        fill(id, &mut tokens);
        for (at, token) in tokens.iter().enumerate() {
            assert_eq!(*token, token_id(id, at as u64));
        }
    }
    fill(3, &mut []);
}
