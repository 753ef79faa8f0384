//! The order in which runs are saved and restored: depth first, so that one buffer holds the tokens
//! before each of them.
//!
//! Of the children of a run, the one that branches off last comes first: the tokens that it writes
//! into the buffer are behind the offset where the next one branches off. Children with the same
//! start keep their order: it decides which of them a cache attaches to which if they diverge
//! inside a block.

/// Returns the numbers of the runs in that order. `runs` has, for each run, the number of its
/// parent, which is smaller than its own, and its start.
pub(crate) fn depth_first(runs: &[(Option<usize>, usize)]) -> Vec<usize> {
    let mut children = vec![Vec::new(); runs.len()];
    let mut open = Vec::new();
    for (run, &(parent, _)) in runs.iter().enumerate() {
        parent.map_or(&mut open, |parent| &mut children[parent]).push(run);
    }
    // The last one is popped first.
    open.reverse();
    let mut order = Vec::with_capacity(runs.len());
    while let Some(run) = open.pop() {
        order.push(run);
        let next = &mut children[run];
        next.reverse();
        next.sort_by_key(|&child| runs[child].1);
        open.append(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_leave_last_come_first_and_equals_in_order() {
        let runs = [(None, 0), (Some(0), 2), (Some(0), 4), (None, 0), (Some(0), 4), (Some(2), 6), (Some(1), 3)];
        assert_eq!(depth_first(&runs), [0, 2, 5, 4, 1, 6, 3]);
        assert_eq!(depth_first(&[]), []);
    }
}
