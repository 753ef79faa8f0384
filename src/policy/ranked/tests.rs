use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;

fn entry(serial: u64, group: usize) -> CandidateEntry {
    CandidateEntry { serial, group: group.checked_sub(1).map(QuotaGroup::at) }
}

fn used_at(last: u64) -> CandidateStats {
    CandidateStats { last, hits: 1, born: 0, level: 1, priority: 0, demoted: false }
}

/// In the chain and in the map, every candidate but the last has another one behind it.
fn check_followers(ranked: &Policy, order: &[((bool, u64), CandidateId)]) {
    let rank: HashMap<_, _> = order.iter().map(|(rank, candidate)| (*candidate, *rank)).collect();
    let mut distinct = HashSet::new();
    for (own, candidate) in order {
        let behind = [1, 2, 4].map(|places| ranked.behind(*candidate, places));
        let ranks = behind.iter().flatten().map(|other| rank[other]);
        assert!(std::iter::once(*own).chain(ranks).is_sorted_by(|one, other| one < other));
        distinct.extend(behind[0]);
    }
    assert!(distinct.len() + 2 >= order.len(), "two structures");
}

#[test]
fn equals_an_ordered_map_under_random_filing() {
    let mut ranked = Policy::by(|s, _| (s.last, 0), 0);
    let mut model = BTreeMap::new();
    let mut dice = fastrand::Rng::with_seed(1);
    for step in 0..20_000 {
        // File one of two after all others, as a use does.
        let latest = if dice.bool() { 1 << 14 } else { dice.u64(..1 << 14) };
        let (candidate, last) = (CandidateId::at(dice.usize(..300)), latest * 20_000 + step);
        let group = dice.usize(..3);
        if dice.u8(..4) == 0 {
            ranked.remove(candidate);
            model.remove(&candidate);
        } else {
            let demoted = dice.u8(..8) == 0;
            ranked.file(candidate, CandidateStats { demoted, ..used_at(last) }, entry(step, group));
            model.insert(candidate, ((!demoted, last), group));
        }
        let least = |of: &dyn Fn(usize) -> bool| {
            let members = model.iter().filter(|(_, (_, group))| of(*group));
            members.min_by_key(|(_, (rank, _))| *rank).map(|(candidate, _)| *candidate)
        };
        assert_eq!(ranked.choose(), least(&|_| true));
        for group in [1, 2] {
            assert_eq!(ranked.choose_of(QuotaGroup::at(group - 1)), least(&|of| of == group));
        }
        assert_eq!(ranked.len(), model.len());
        if step % 100 == 0 {
            let mut order: Vec<_> = model.iter().map(|(candidate, (rank, _))| (*rank, *candidate)).collect();
            order.sort_unstable();
            check_followers(&ranked, &order);
        }
    }
    assert!(ranked.is_sound());
}

// Holds: EV3.
#[test]
fn equal_keys_leave_by_their_serial_numbers() {
    let mut ranked = Policy::by(|_, _| (0, 0), 0);
    (0..50).for_each(|i| ranked.file(CandidateId::at(i * 7 % 50), used_at(0), entry(i as u64, 0)));
    for i in 0..50 {
        let candidate = ranked.choose().expect("not empty");
        assert_eq!(candidate, CandidateId::at(i * 7 % 50));
        ranked.remove(candidate);
    }
}

#[test]
fn what_is_discarded_in_slices_is_gone_in_the_end() {
    let mut ranked = Policy::by(|s, _| (s.last, 0), 0);
    let of = |i: usize| (CandidateId::at(i), used_at(i as u64), entry(i as u64, i % 3));
    (0..5_000).map(of).for_each(|(candidate, stats, entry)| ranked.file(candidate, stats, entry));
    let slices = (1..).find(|_| ranked.discard(100)).expect("it ends");
    assert!((33..100).contains(&slices), "{slices}");
    assert_eq!((ranked.len(), ranked.choose()), (0, None));
}
