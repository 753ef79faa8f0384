//! Visiting every cached run of a namespace: for dumps, pictures and debuggers.

use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::block::BlockId;
use crate::cache::evictor::Listed;
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::prefix_cache::PrefixCache;
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{HotPoints, Run, Tally};

/// Consecutive cached tokens of one insert, with their blocks.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// for prompt in [[1, 2, 3, 4], [1, 2, 5, 6]] {
///     let hit = session.match_prefix(&space, &prompt);
///     let missing = session.reserve(2 - hit.blocks().len())?;
///     drop(session.insert(hit.lease(), &prompt, missing)?);
/// }
/// let mut seen = Vec::new();
/// space.walk(|run| seen.push((run.start, run.tokens.to_vec(), run.leases)));
/// assert_eq!(seen, [(0, vec![1, 2, 3, 4], 0), (2, vec![5, 6], 0)]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedRun<'a> {
    /// Its number in this walk. Runs are numbered from 0 in the order of the visits, so a parent
    /// comes before its children.
    pub id: usize,
    /// The run that it follows; `None` at the beginning of the namespace's sequences.
    pub parent: Option<usize>,
    /// Number of tokens before it, from the beginning of its sequences. It may branch off before
    /// its parent's end, and inside a block: its whole sequence is the first `start` tokens of the
    /// parent's sequence, then `tokens`.
    pub start: usize,
    /// Its tokens.
    pub tokens: &'a [Token],
    /// The blocks whose last token is among them.
    pub blocks: &'a [BlockId],
    /// Leases that end on it, not those that end on a run beyond it. A lease that protects no block
    /// may be counted.
    pub leases: u64,
    /// Time of its last use that did not extend beyond it, in units of the cache's clock; 0 if
    /// there was none.
    pub last_used: u64,
    /// Number of requests that inserted it, or whose match ended on it.
    pub uses: u64,
}

/// Collects the statistics of the points on one part of a run.
fn numbers_of<'g>(hot: &HotPoints, run: Ref<'g, Run>, at: Range<u32>, guard: &'g Guard<'_>) -> CachedRun<'g> {
    let (mut leases, mut seen) = (0, Tally::NONE);
    run.as_ref().points.for_each(guard, &mut |point| {
        // Relaxed: numbers for statistics.
        let is_dead = point.word.load(Relaxed).is_dead();
        if !is_dead && point.depth() > at.start && point.depth() <= at.end {
            let (held, tally) = hot.numbers(point, guard);
            leases += held;
            // A use that was extended to a deeper point is subtracted here.
            seen = seen.joined(tally);
        }
    });
    // A resume from an insert that found its tokens cached subtracts a use that was not counted.
    let uses = seen.hits.max(0) as u64;
    CachedRun { id: 0, parent: None, start: 0, tokens: &[], blocks: &[], leases, last_used: seen.last, uses }
}

pub(in crate::cache) fn walk(cache: &PrefixCache, namespace: &Namespace, mut visit: impl FnMut(CachedRun<'_>)) {
    // Pinned throughout: the listed runs stay readable.
    let participant = cache.inner.participant();
    let guard = participant.pin();
    let listing = cache.inner.list(Some(namespace), &guard);
    let mut here: HashMap<_, SmallVec<[_; 1]>> = HashMap::new();
    for (id, Listed { run, piece, at, .. }) in listing.runs.iter().enumerate() {
        let (run, link) = (run.get(&guard), *run);
        // A piece follows the one before it on its run; the first piece of a run follows the piece
        // with the run's parent point.
        let above = match run.parent() {
            _ if at.start > 0 => Some((link, at.start)),
            parent => parent.map(|parent| (parent.run().link(), parent.depth())),
        };
        let parts = above.and_then(|(run, depth)| here.get(&run).map(|parts| (parts, depth)));
        let parent = parts.and_then(|(parts, depth)| parts.iter().rev().find(|(start, _)| *start < depth));
        let (parent, start) = (parent.map(|(_, id)| *id), run.start() + at.start as usize);
        let tokens = listing.paths.tokens(*piece, at.clone(), &guard);
        let blocks = listing.paths.blocks(*piece, at.clone(), &guard);
        here.entry(link).or_default().push((at.start, id));
        visit(CachedRun { id, parent, start, tokens, blocks, ..numbers_of(&cache.inner.hot, run, at.clone(), &guard) });
    }
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
