use super::*;

fn prompts(seed: u64, count: usize) -> Vec<Vec<Token>> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut prompts: Vec<Vec<Token>> = vec![Vec::new()];
    for _ in 1..count {
        let parent = &prompts[draw(prompts.len() as u64) as usize];
        let mut prompt = parent[..draw(parent.len() as u64 + 1) as usize].to_vec();
        prompt.extend((0..draw(40)).map(|_| draw(3) as Token));
        prompts.push(prompt);
    }
    prompts
}

// Holds: AT17.
#[test]
fn every_pair_of_a_queue_shares_what_comparing_it_says() {
    for seed in 1..20 {
        let prompts = prompts(seed, 60);
        let prompts: Vec<&[Token]> = prompts.iter().map(Vec::as_slice).collect();
        let shared = SharedPrefixes::of(&prompts);
        for (a, x) in prompts.iter().enumerate() {
            for (b, y) in prompts.iter().enumerate() {
                assert_eq!(shared.tokens(a, b), key::common_prefix(x, y), "seed {seed}, {a} and {b}");
            }
        }
    }
}

#[test]
fn groups_are_the_prompts_that_share_enough() {
    for seed in 1..20 {
        let prompts = prompts(seed, 60);
        let prompts: Vec<&[Token]> = prompts.iter().map(Vec::as_slice).collect();
        let groups = SharedPrefixes::of(&prompts).groups(16);
        let mut grouped = vec![None; prompts.len()];
        for (index, group) in groups.iter().enumerate() {
            assert!(group.len() > 1);
            group.iter().for_each(|prompt| assert!(grouped[*prompt as usize].replace(index).is_none()));
        }
        for (a, x) in prompts.iter().enumerate() {
            for (b, y) in prompts.iter().enumerate().filter(|(b, _)| *b != a) {
                let together = grouped[a].is_some() && grouped[a] == grouped[b];
                assert_eq!(together, key::common_prefix(x, y) >= 16, "seed {seed}, {a} and {b}");
            }
        }
    }
}

// Holds: AT18.
#[test]
fn a_restored_block_with_one_wrong_token_is_found() {
    let held: Vec<Vec<Token>> = (0..100).map(|block| (block * 16..block * 16 + 16).collect()).collect();
    for at in [(0, 0), (57, 3), (99, 15)] {
        let mut restored = held.clone();
        restored[at.0][at.1] ^= 1;
        let pairs = |other: &Vec<Vec<Token>>| -> Option<(usize, usize)> {
            first_difference(held.iter().zip(other).map(|(held, other)| (&held[..], &other[..])))
        };
        assert_eq!((pairs(&held), pairs(&restored)), (None, Some(at)));
    }
    assert_eq!(first_difference([(&[1, 2][..], &[1, 2, 3][..])]), Some((0, 2)));
}
