//! Sharing: counts how many leases of a set hold each block.

use std::collections::HashMap;

use super::lease::Lease;
use crate::cache::session::Session;
use crate::reclaim::{Link, Ref};
use crate::tree::Run;

/// Consecutive blocks of a lease that the same number of leases hold; made by
/// [`Session::shared_spans`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedSpan {
    /// Number of blocks in the span.
    pub blocks: usize,
    /// Number of leases of the set that hold each of these blocks, including the lease itself.
    pub leases: usize,
}

/// The runs of a path, from the root, each with the number of its blocks that the path holds.
type Path = Vec<(Link<Run>, usize)>;

impl Session {
    fn path_of(&self, lease: &Lease) -> Path {
        let layout = lease.layout(self.inner());
        let tip = lease.held().map(|held| held.point);
        let up = std::iter::successors(tip, |point| point.run().parent());
        let blocks = |run: Ref<'_, Run>, depth| (run.link(), run.blocks_to(depth, layout));
        let mut path: Path = up.map(|point| blocks(point.run(), point.depth())).filter(|(_, n)| *n > 0).collect();
        path.reverse();
        path
    }
}

fn spans(path: &[(Link<Run>, usize)], held: &HashMap<Link<Run>, Vec<usize>>) -> Vec<SharedSpan> {
    let mut spans: Vec<SharedSpan> = Vec::new();
    for (run, own) in path {
        let all = &held[run];
        let mut done = 0;
        while done < *own {
            // Leases that end before the next block of the run do not hold it.
            let gone = all.partition_point(|blocks| *blocks <= done);
            let (blocks, leases) = (all[gone] - done, all.len() - gone);
            done += blocks;
            match spans.last_mut() {
                Some(last) if last.leases == leases => last.blocks += blocks,
                _ => spans.push(SharedSpan { blocks, leases }),
            }
        }
    }
    spans
}

pub(in crate::cache) fn shared_spans(session: &Session, leases: &[&Lease]) -> Vec<Vec<SharedSpan>> {
    leases.iter().for_each(|lease| session.check_lease(lease));
    let paths: Vec<Path> = leases.iter().map(|lease| session.path_of(lease)).collect();
    // The number of blocks that each lease holds of a run, in ascending order.
    let mut held = HashMap::<Link<Run>, Vec<usize>>::new();
    for (run, blocks) in paths.iter().flatten() {
        held.entry(*run).or_default().push(*blocks);
    }
    held.values_mut().for_each(|blocks| blocks.sort_unstable());
    paths.iter().map(|path| spans(path, &held)).collect()
}
