use super::*;
use crate::policy::{CandidateEntry, CandidateStats, PolicyKind};

/// A policy with 100 candidates filed in order, and 100 filed between them.
fn filed() -> Policy {
    let mut policy = PolicyKind::Lru.build();
    (0..100).for_each(|index| file(&mut policy, index, 10 * index as u64));
    (100..200).for_each(|index| file(&mut policy, index, 10 * (index as u64 * 37 % 100) + 5));
    policy
}

fn file(policy: &mut Policy, index: usize, last: u64) {
    let stats = CandidateStats { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false };
    policy.file(CandidateId::at(index), stats, CandidateEntry { serial: index as u64, group: None });
}

#[test]
fn a_line_names_those_that_come_after_its_victim() {
    let mut policy = filed();
    let mut upcoming = Upcoming::default();
    while let Some(victim) = policy.choose() {
        let line = *upcoming.go_to(victim, &policy);
        for ahead in 0..=FURTHEST {
            let named = if ahead == 0 { Some(victim) } else { policy.behind(victim, ahead) };
            assert_eq!(line.at(ahead), named, "{victim:?}, {ahead}");
        }
        policy.remove(victim);
    }
}

/// Beginning a line costs a query for each candidate that it names.
#[test]
fn a_line_is_followed_although_some_are_used_and_some_come() {
    let mut policy = filed();
    let mut upcoming = Upcoming::default();
    let (mut begun, mut victims) = (0, 0);
    while let Some(victim) = policy.choose().filter(|_| victims < 180) {
        let mut lines = upcoming.lines;
        begun += usize::from(!lines.iter_mut().any(|line| line.go_to(victim, &policy)));
        let line = *upcoming.go_to(victim, &policy);
        policy.remove(victim);
        victims += 1;
        if victims % 7 == 0 {
            // The next candidate is used, and is filed at the end; or one is filed before all
            // others.
            match line.at(1).filter(|_| victims % 2 == 0) {
                Some(next) => file(&mut policy, next.index(), 10_000 + victims),
                None => file(&mut policy, victim.index(), 0),
            }
        }
    }
    assert!(begun <= 2, "{begun} of {victims}");
}
