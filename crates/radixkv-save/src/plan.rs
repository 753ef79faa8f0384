//! Chooses the blocks of a save that are restored if not all of them fit: those of the sequences
//! that were used last.

use crate::saved::SavedTree;

/// Returns, for each run, how many of its first blocks are restored if there is `room` for so many
/// in all.
///
/// A run is as recent as the most recently used sequence through it. Among equally recent runs,
/// those that are first in the save are first, so that a run comes after those that it follows.
pub(crate) fn plan(tree: &SavedTree, room: usize) -> Vec<usize> {
    let runs = &tree.runs;
    let mut last_used: Vec<u64> = runs.iter().map(|run| run.saved.last_used).collect();
    for number in (0..runs.len()).rev() {
        if let Some(parent) = runs[number].parent {
            last_used[parent] = last_used[parent].max(last_used[number]);
        }
    }
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|&number| (std::cmp::Reverse(last_used[number]), number));
    let (mut take, mut room) = (vec![0; runs.len()], room);
    for number in order {
        take[number] = runs[number].saved.blocks.len().min(room);
        room -= take[number];
    }
    take
}
