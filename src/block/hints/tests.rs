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
