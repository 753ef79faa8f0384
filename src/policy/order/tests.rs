use super::*;

/// Discards a chain of many sparse chunks: most members of each were filed again.
#[test]
fn what_is_discarded_leaves_no_chunk() {
    let mut order = Order::default();
    let mut key = 0;
    let mut file = |order: &mut Order, at: usize| {
        key += 1;
        order.file(CandidateId::at(at), RankKey { rank: ((key, 0), at as u64), demoted: false, group: None });
    };
    let mut filed: Vec<_> = (0..20_000).collect();
    filed.iter().for_each(|at| file(&mut order, *at));
    while filed.len() > 2_000 {
        let anew = filed.iter().enumerate().filter(|(place, _)| place % 13 > 1);
        filed = anew.map(|(_, at)| *at).collect();
        filed.iter().for_each(|at| file(&mut order, *at));
    }
    assert!(order.is_sound());
    while !order.discard(100) {}
    assert!(!order.chain.discard(0));
}

#[test]
fn a_wrong_place_is_noticed() {
    let mut order = Order::default();
    for at in 0..40 {
        order.file(CandidateId::at(at), RankKey { rank: ((at as u64, 0), 0), demoted: false, group: None });
    }
    assert!(order.is_sound());
    let [first, last] = [0, 39].map(|at| order.filed.get(at).expect("filed").place);
    order.filed.get_mut(0).expect("filed").place = last;
    assert!(!order.is_sound());
    order.filed.get_mut(0).expect("filed").place = first;
    order.chain.push(CandidateId::at(7));
    assert!(!order.is_sound());
}
