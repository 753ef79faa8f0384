//! Chooses which blocks of a save are restored if not all of them fit: the blocks of the most
//! recently used sequences.

use crate::saved::SavedTree;

/// Returns, for each run, how many of its first blocks are restored into `room` blocks in all.
///
/// A run is as recent as the most recently used sequence through it. Equally recent runs keep the
/// order of the save, so that a run comes after its ancestors.
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
