//! How many of a set of leases hold each block.

use std::collections::HashMap;

use super::lease::Lease;
use super::refusals::LeaseError;
use super::session::Session;
use crate::reclaim::{Link, Ref};
use crate::tree::Run;

/// Blocks that follow each other in a lease, and how many leases of a set hold them; made by [`Session::shared_spans`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedSpan {
    /// Blocks of the span.
    pub blocks: usize,
    /// Leases of the set that hold each of them, the lease itself among them.
    pub leases: usize,
}

/// The runs of a path, from the root on, each with the number of its blocks that the path holds.
type Path = Vec<(Link<Run>, usize)>;

impl Session {
    /// For each lease, how many of these leases hold each of its blocks, as spans from its beginning on: what a batch can
    /// compute once, and the prefix that all of it shares.
    ///
    /// Blocks are counted by their place in the tree: no id is read. Allocates the result; time linear in the runs of the paths and
    /// in the spans. Lock-free.
    ///
    /// # Errors
    ///
    /// [`LeaseError::ForeignLease`] if one is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// let mut leases = Vec::new();
    /// for prompt in [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [1, 2, 9, 9, 9, 9]] {
    ///     let start = session.acquire(&space, &prompt, 0)?;
    ///     leases.push(session.insert(start.hit.lease(), &prompt, start.blocks)?.lease);
    /// }
    /// let spans = session.shared_spans(&leases.iter().collect::<Vec<_>>())?;
    /// let of_first: Vec<_> = spans[0].iter().map(|span| (span.blocks, span.leases)).collect();
    /// assert_eq!(of_first, [(1, 3), (1, 2), (1, 1)]);
    /// // What all of them share:
    /// let common: usize = spans[0].iter().take_while(|span| span.leases == 3).map(|span| span.blocks).sum();
    /// assert_eq!(common, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared_spans(&self, leases: &[&Lease]) -> Result<Vec<Vec<SharedSpan>>, LeaseError> {
        if leases.iter().any(|lease| !self.is_ours(lease.cache())) {
            return Err(LeaseError::ForeignLease);
        }
        let paths: Vec<Path> = leases.iter().map(|lease| self.path_of(lease)).collect();
        // How many blocks of a run each lease holds, in ascending order.
        let mut held = HashMap::<Link<Run>, Vec<usize>>::new();
        for (run, blocks) in paths.iter().flatten() {
            held.entry(*run).or_default().push(*blocks);
        }
        held.values_mut().for_each(|blocks| blocks.sort_unstable());
        Ok(paths.iter().map(|path| spans(path, &held)).collect())
    }

    fn path_of(&self, lease: &Lease) -> Path {
        let grid = lease.grid(self.inner());
        let tip = lease.held().map(|held| held.point);
        let up = std::iter::successors(tip, |point| point.run().parent());
        let blocks = |run: Ref<'_, Run>, depth| (run.link(), run.blocks_to(depth, grid));
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
            // Those that end before the next block of the run hold none of it.
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
