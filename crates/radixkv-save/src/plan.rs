//! Which blocks of a save are restored where not all of them fit: those of the sequences that were used last.

use crate::saved::SavedTree;

/// How many blocks of each run are restored, from its first one on.
///
/// A run is worth as much as the last of the sequences through it. Of runs that are worth the same those that come first in the
/// save come first: so a run comes after those before it.
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
