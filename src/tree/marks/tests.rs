use super::*;

fn pairs(pairs: &[(i64, Option<u64>)]) -> Marked {
    let marked = pairs.iter().map(|&(priority, expiry)| Marked::priority(priority, expiry));
    marked.fold(Marked::NONE, Marked::joined)
}

#[test]
fn the_highest_priority_that_has_not_expired_counts() {
    assert_eq!(Marked::NONE.priority_at(0), None);
    let two = pairs(&[(20, None), (80, Some(10))]);
    assert_eq!(two.priority_at(9), Some((80, Some(10))));
    assert_eq!(two.priority_at(10), Some((20, None)));
    assert_eq!(pairs(&[(0, Some(5))]).priority_at(4), Some((0, Some(5))));
    assert_eq!(pairs(&[(0, Some(5))]).priority_at(5), None);
    assert_eq!(pairs(&[(7, None)]).priority_at(u64::MAX), Some((7, None)));
    let unix_nanoseconds = 1_800_000_000_000_000_000;
    let late = pairs(&[(7, Some(unix_nanoseconds))]);
    assert_eq!(late.priority_at(unix_nanoseconds - 1), Some((7, Some(unix_nanoseconds))));
    assert_eq!(late.priority_at(unix_nanoseconds), None);
}

// Holds: PR6.
#[test]
fn of_three_pairs_the_one_in_between_is_dropped_in_any_order() {
    let [high, middle, long] = [(90, Some(10)), (60, Some(100)), (40, Some(200))];
    let kept = pairs(&[high, long]);
    for order in [[high, middle, long], [middle, long, high], [long, high, middle], [long, middle, high]] {
        assert_eq!(pairs(&order), kept);
    }
    assert_eq!(kept.priority_at(50), Some((40, Some(200))));
}

// Holds: PR11.
#[test]
fn a_use_or_a_retention_undoes_a_demotion() {
    for time in [0, 5, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1] {
        let demotions = Demotions::default();
        assert_eq!(demotions.undone(), Marked::NONE, "nothing to undo");
        let demoted = demotions.demote(time);
        assert!(demoted.is_demoted(0) && demoted.is_demoted(time) && !demoted.is_demoted(time + 1));
        assert!(demotions.may_hide(time) && !demotions.may_hide(time + 1));
        let kept = demotions.undone();
        assert!(!demoted.joined(kept).is_demoted(time), "the last word counts at one time too");
        let again = demotions.demote(time);
        assert!(kept.joined(again).is_demoted(time) && demoted.joined(kept).joined(again).is_demoted(time));
    }
    assert!(!Marked::NONE.is_demoted(0));
}
