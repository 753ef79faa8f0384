use super::*;
use crate::policy::{CandidateEntry, CandidateStats, PolicyKind};

fn file(policy: &mut Policy, index: usize, last: u64) {
    let stats = CandidateStats { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false };
    policy.file(CandidateId::at(index), stats, CandidateEntry { serial: index as u64, group: None });
}

/// Removes the first `victims` candidates; `each` sees the ring after each of them, with its number.
fn follow(policy: &mut Policy, victims: usize, mut each: impl FnMut(usize, CandidateId, &Upcoming, &mut Policy)) {
    let mut upcoming = Upcoming::default();
    for number in 1..=victims {
        let victim = policy.choose().expect("a candidate");
        upcoming.go_to(victim, policy);
        each(number, victim, &upcoming, policy);
        policy.remove(victim);
    }
}

#[test]
fn the_ring_names_those_that_come_next() {
    let mut policy = PolicyKind::Lru.build();
    (0..100).for_each(|index| file(&mut policy, index, 10 * index as u64));
    follow(&mut policy, 100, |number, victim, upcoming, policy| {
        for ahead in (0..=FURTHEST).filter(|ahead| number > FURTHEST - ahead) {
            let named = if ahead == 0 { Some(victim) } else { policy.behind(victim, ahead) };
            assert_eq!(upcoming.at(ahead), named, "{victim:?}, {ahead}");
        }
    });
}

/// Candidates filed between others are in another structure, in which the policy counts places
/// apart.
#[test]
fn each_victim_was_named_although_it_comes_from_one_of_two_structures() {
    let mut policy = PolicyKind::Lru.build();
    (0..100).for_each(|index| file(&mut policy, index, 10 * index as u64));
    (100..200).for_each(|index| file(&mut policy, index, 10 * (index as u64 * 37 % 100) + 5));
    let mut named = std::collections::HashMap::new();
    follow(&mut policy, 200, |number, victim, upcoming, _| {
        if number > 2 * FURTHEST {
            let since = named.get(&victim).map(|since| number - since);
            assert!(since.is_some_and(|since| (FURTHEST..=2 * FURTHEST + 1).contains(&since)), "{since:?}");
        }
        upcoming.at(FURTHEST).into_iter().for_each(|new| _ = named.insert(new, number));
    });
}

/// A used candidate is filed at the end when its turn comes.
#[test]
fn the_ring_stays_right_while_every_second_candidate_is_filed_again() {
    let mut policy = PolicyKind::Lru.build();
    (0..100).for_each(|index| file(&mut policy, index, 10 * index as u64));
    let mut upcoming = Upcoming::default();
    for number in 1..=150 {
        let victim = policy.choose().expect("a candidate");
        upcoming.go_to(victim, &policy);
        if number > FURTHEST {
            assert_eq!(upcoming.at(0), Some(victim));
        }
        match number % 2 {
            0 => file(&mut policy, victim.index(), 10_000 + number as u64),
            _ => policy.remove(victim),
        }
    }
}
