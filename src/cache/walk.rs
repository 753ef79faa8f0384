//! Walking what is cached: for dumps, pictures and debuggers.

use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use crate::block::BlockId;
use crate::key::Token;
use crate::reclaim::{Guard, Ref};
use crate::sync::atomic::Ordering::Relaxed;
use crate::tree::{Point, Run};

/// A piece of cached sequences: tokens that follow one another without a branch from elsewhere, with their blocks.
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
/// cache.walk(&space, |run| seen.push((run.start, run.tokens.to_vec(), run.leases)));
/// assert_eq!(seen, [(0, vec![1, 2, 3, 4], 0), (2, vec![5, 6], 0)]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedRun<'a> {
    /// Its number in this walk: parents have smaller ones than their children.
    pub id: usize,
    /// The run that it follows; none at the beginning of the namespace's sequences.
    pub parent: Option<usize>,
    /// Tokens before it, counted from the beginning of its sequences: it may leave its parent before the parent's end.
    pub start: usize,
    /// Its tokens.
    pub tokens: &'a [Token],
    /// The blocks whose last token is among them.
    pub blocks: &'a [BlockId],
    /// Leases on places of it; those on what follows it are not among them. A lease that keeps no block may be counted.
    pub leases: u64,
    /// The last use of it and of nothing beyond it, in units of the cache's clock; 0 if there was none.
    pub last_used: u64,
    /// Requests that inserted it or matched up to a place of it and no further.
    pub uses: u64,
}

impl PrefixCache {
    /// Visits what is cached in a namespace: each run after the one that it follows.
    ///
    /// The runs are listed first, while nothing is evicted because this has the evictor's lock; `visit` runs under no lock, and
    /// may call any verb. What other threads insert, lease or release meanwhile may be seen or not. Linear in runs, points and
    /// branches; allocates a list of the runs. Nothing is visited in a namespace that was dropped.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    pub fn walk(&self, namespace: &Namespace, mut visit: impl FnMut(CachedRun<'_>)) {
        self.inner.namespaces.check(namespace);
        // Pinned before the lock and after it: what was seen stays readable while the caller's code runs under no lock.
        let participant = self.inner.participant();
        let guard = participant.pin();
        let runs = self.inner.evicting(|_, resources| {
            let Some(root) = namespace.0.root(&guard) else { return Vec::new() };
            let (mut found, mut at, mut runs) = (Vec::new(), 0, Vec::new());
            add_below(root, None, &mut found, &guard);
            while let Some(&(run, parent)) = found.get(at) {
                at += 1;
                let (len, id) = (run.word().len().min(run.shown(&guard)), runs.len());
                // On a dead run nothing hangs.
                if len > 0 {
                    let seen = visit_points(run, &guard, &mut |point| add_below(point, Some(id), &mut found, &guard));
                    let blocks = &run.block_ids(&guard)[..run.blocks_to(len, resources.grid_of(run))];
                    runs.push(CachedRun { id, parent, start: run.start(), tokens: run.tokens(&guard), blocks, ..seen });
                }
            }
            runs
        });
        runs.into_iter().for_each(&mut visit);
    }
}

/// Adds the runs that hang on a point of the run `parent`.
fn add_below<'g>(
    below: Ref<'g, Point>,
    parent: Option<usize>,
    found: &mut Vec<(Ref<'g, Run>, Option<usize>)>,
    guard: &'g Guard<'_>,
) {
    below.as_ref().children.for_each(guard, &mut |run| found.push((run, parent)));
}

/// What the points of a run say of it; `visit` is called with each.
fn visit_points<'g>(run: Ref<'g, Run>, guard: &'g Guard<'_>, visit: &mut dyn FnMut(Ref<'g, Point>)) -> CachedRun<'g> {
    let mut seen =
        CachedRun { id: 0, parent: None, start: 0, tokens: &[], blocks: &[], leases: 0, last_used: 0, uses: 1 };
    run.as_ref().points.for_each(guard, &mut |point| {
        // Relaxed: numbers to look at.
        let word = point.word.load(Relaxed);
        if !word.is_dead() {
            let tally = point.statistics.read(guard);
            seen.leases += word.leases();
            seen.last_used = seen.last_used.max(tally.last);
            seen.uses += tally.hits.wrapping_sub(1);
            visit(point);
        }
    });
    seen
}
