//! Comparing token sequences on the device.

use fastrand::Rng;
use radixkv::compare::SharedPrefixes;
use radixkv::key::common_prefix;
use radixkv_cuda::{Compare, GpuError, TokenSequences};

use super::driver::driver;

/// Prompts with common prefixes: each begins with a prefix of an earlier one.
fn queue(random: &mut Rng, prompts: usize, longest: usize) -> Vec<Vec<u32>> {
    let mut queue: Vec<Vec<u32>> = vec![(0..random.usize(..longest)).map(|_| random.u32(..5)).collect()];
    while queue.len() < prompts {
        let parent = &queue[random.usize(..queue.len())];
        let mut prompt = parent[..random.usize(..=parent.len())].to_vec();
        prompt.extend((0..random.usize(..longest / 2)).map(|_| random.u32(..5)));
        queue.push(prompt);
    }
    queue
}

#[test]
fn a_queue_with_itself() {
    let Some(driver) = driver() else { return };
    let compare = Compare::new(&driver.open()).min_device_tokens(0);
    for seed in 1..12 {
        driver.schedule(seed as u32 % 4);
        let queue = queue(&mut Rng::with_seed(seed), 24, 700);
        let prompts: Vec<&[u32]> = queue.iter().map(Vec::as_slice).collect();
        let sequences = TokenSequences::new(prompts.iter().copied());
        let pairs: Vec<(u32, u32)> = (0..24).flat_map(|a| (0..24).map(move |b| (a, b))).collect();
        let launched = driver.launches();
        let lengths = compare.prefix_lengths(&sequences, &sequences, &pairs).expect("lengths");
        assert!(!driver.is_stand_in() || driver.launches() == launched + 1);
        let shared = SharedPrefixes::of(&prompts);
        for (&(a, b), length) in pairs.iter().zip(lengths) {
            let expected = common_prefix(prompts[a as usize], prompts[b as usize]);
            assert_eq!(length as usize, expected, "seed {seed}, {a} and {b}");
            assert_eq!(shared.tokens(a as usize, b as usize), expected, "seed {seed}, {a} and {b}");
        }
    }
}

// Holds: GP13.
#[test]
fn few_tokens_stay_on_the_processor() {
    let Some(driver) = driver() else { return };
    let compare = Compare::new(&driver.open());
    let sequences = TokenSequences::new([&[1, 2, 3][..], &[1, 2, 4, 5], &[]]);
    let launched = driver.launches();
    assert_eq!(compare.prefix_lengths(&sequences, &sequences, &[(0, 1), (1, 1), (2, 0)]), Ok(vec![2, 4, 0]));
    assert_eq!(driver.launches(), launched);
    assert_eq!(compare.prefix_lengths(&sequences, &sequences, &[]), Ok(Vec::new()));
}

// Holds: AT18.
#[test]
fn a_restored_block_with_one_wrong_token_is_found() {
    let Some(driver) = driver() else { return };
    let mut random = Rng::with_seed(3);
    let compare = Compare::new(&driver.open()).min_device_tokens(0);
    let held: Vec<Vec<u32>> = (0..200).map(|_| (0..16).map(|_| random.u32(..1000)).collect()).collect();
    let of = |blocks: &[Vec<u32>]| TokenSequences::new(blocks.iter().map(Vec::as_slice));
    assert_eq!(compare.first_difference(&of(&held), &of(&held)), Ok(None));
    for (block, token) in [(0, 0), (113, 7), (199, 15)] {
        let mut restored = held.clone();
        restored[block][token] ^= 1 << 31;
        assert_eq!(compare.first_difference(&of(&held), &of(&restored)), Ok(Some((block, token))));
    }
}

// Holds: GP8.
#[test]
fn sequences_belong_to_the_device_that_compared_them_first() {
    let Some(driver) = driver() else { return };
    let (one, other) = (driver.open(), driver.open());
    let sequences = TokenSequences::new([&[1, 2, 3][..]]);
    assert_eq!(Compare::new(&one).min_device_tokens(0).prefix_lengths(&sequences, &sequences, &[(0, 0)]), Ok(vec![3]));
    let asked = Compare::new(&other).min_device_tokens(0).prefix_lengths(&sequences, &sequences, &[(0, 0)]);
    assert_eq!(asked, Err(GpuError::WrongDevice));
    // A refusal copies nothing to a device.
    let fresh = TokenSequences::new([&[1, 2][..]]);
    let ask = |device| Compare::new(device).min_device_tokens(0).prefix_lengths(&fresh, &sequences, &[(0, 0)]);
    assert_eq!(ask(&other), Err(GpuError::WrongDevice));
    assert_eq!(ask(&one), Ok(vec![2]));
}
