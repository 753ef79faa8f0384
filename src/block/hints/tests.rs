use super::*;

#[test]
fn the_next_hint_is_found_over_four_decades() {
    for words in [1, 2, 63, 64, 65, 4_095, 4_096, 4_097, 300_000] {
        let hints = Hints::new(words, 0);
        assert_eq!(hints.after(0), None);
        let set: Vec<usize> = [0, 1, words / 3, words / 2, words - 1].into_iter().filter(|at| *at < words).collect();
        for (i, &at) in set.iter().enumerate() {
            hints.set(at);
            let mut known = set[..=i].to_vec();
            known.sort_unstable();
            for from in [0, at.saturating_sub(1), at, words - 1] {
                let next = known.iter().find(|hint| **hint > from).or(known.first());
                assert_eq!(hints.after(from), next.copied(), "{words} words, after {from}");
            }
        }
        set.iter().for_each(|&at| hints.clear(at));
        assert_eq!(hints.after(words / 2), None, "{words} words");
    }
}

#[test]
fn all_hints_are_set_where_all_is_free() {
    for words in [1, 64, 65, 5_000] {
        let hints = Hints::new(words, words);
        (0..words).for_each(|at| assert_eq!(hints.after(at), Some((at + 1) % words)));
    }
}

/// Threads that give and take at once can leave a bit set without one below it. A search clears it
/// and finds the others.
#[test]
fn a_bit_that_leads_nowhere_hides_no_other() {
    let hints = Hints::new(300_000, 0);
    hints.set_from(1, 3);
    hints.set_from(2, 5);
    hints.set(299_999);
    assert_eq!(hints.after(0), Some(299_999));
    hints.clear(299_999);
    assert!(hints.levels.iter().flatten().all(|word| word.load(Relaxed) == 0));
}

/// However threads set and clear bits at once, each bit left has all bits above it.
#[test]
fn a_hint_that_is_left_can_be_found() {
    let hints = Hints::new(BITS * BITS, 0);
    for round in 0..2_000 {
        let at = round % (BITS * BITS);
        std::thread::scope(|scope| {
            scope.spawn(|| hints.clear(at ^ 1));
            scope.spawn(|| hints.set(at));
            hints.set(at ^ 1);
        });
        assert_eq!(hints.from(at), Some(at), "round {round}");
        hints.clear(at);
        hints.clear(at ^ 1);
    }
}
