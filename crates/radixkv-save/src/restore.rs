//! Restoring a save into a cache ([`Saved::restore`]).
//!
//! First every sequence is inserted, depth first. Then the saved uses are counted again, the run
//! with the oldest last use first, so that the eviction order does not depend on the order of
//! insertion. A lease on each run protects it until then, and saves the second step a lookup.

use std::time::Duration;

use radixkv::{
    BlockId, BlockRequest, Lease, Namespace, NamespaceName, PrefixCache, Priority, Reservation, ReserveError, Session,
    Token, WeakLease,
};

use crate::block_bytes::BlockBytes;
use crate::format::entry::{SavedPriority, extra_tokens};
use crate::order::depth_first;
use crate::plan::plan;
use crate::save::since_1970;
use crate::saved::{LinkedRun, Saved};

/// The maximum number of uses that are counted again for a run: more would not tell frequently used
/// runs apart better.
const MAX_USES: u64 = 256;

/// The result of restoring a cache. The numbers add up to the number of saved blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Restored {
    /// Number of restored blocks, which are cached now.
    pub blocks: usize,
    /// Number of blocks whose tokens were already cached.
    pub known_blocks: usize,
    /// Number of blocks of the least recently used sequences that were left out because no blocks
    /// were free.
    pub no_room_blocks: usize,
    /// Number of blocks that a quota or the engine's memory refused, including the blocks after
    /// them.
    pub refused_blocks: usize,
    /// Number of blocks that were damaged or could not be read, including the blocks after them.
    pub damaged_blocks: usize,
}

/// The source of free blocks.
pub(crate) enum Source<'a> {
    /// The cache's pool.
    Cache,
    /// Ids that the engine has free.
    Engine(&'a mut Vec<BlockId>),
}

/// Why a run, or its end, was not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    NoRoom,
    Refused,
    Damaged,
}

/// The state of one restore.
struct Restoring<'a, B: ?Sized> {
    saved: &'a Saved,
    cache: &'a PrefixCache,
    session: Session,
    memory: &'a mut B,
    source: Source<'a>,
    namespaces: Vec<Namespace>,
    /// For each namespace, a lease on its empty prefix, from before the first insert.
    roots: Vec<Lease>,
    runs: Vec<RestoredRun>,
    /// For each namespace, the runs that are leased.
    leased: Vec<Vec<usize>>,
    buffer: Vec<u8>,
    report: Restored,
}

/// The result for one run.
#[derive(Debug, Default)]
struct RestoredRun {
    /// Number of its blocks that are cached.
    blocks: usize,
    /// Whether some of them were not cached before.
    is_new: bool,
    lease: Option<Lease>,
    /// Set when its lease was dropped.
    unleased: Option<WeakLease>,
    cut: Option<Cut>,
}

pub(crate) fn restore<B: BlockBytes + ?Sized>(
    saved: &Saved,
    cache: &PrefixCache,
    memory: &mut B,
    source: Source<'_>,
) -> Restored {
    let room = match &source {
        Source::Cache => cache.stats().free_blocks,
        Source::Engine(free) => free.len(),
    };
    let tree = &saved.tree;
    let handle = |name: &crate::format::entry::SavedNamespace| {
        cache.namespace(NamespaceName::new(&name.parts).with_keys(name.keys))
    };
    let (session, namespaces) = (cache.session(), tree.namespaces.iter().map(handle).collect::<Vec<_>>());
    let root = |space| session.match_prefix_untouched(space, &[]).into_lease();
    let mut restoring = Restoring {
        saved,
        cache,
        roots: namespaces.iter().map(root).collect(),
        session,
        memory,
        source,
        namespaces,
        runs: tree.runs.iter().map(|_| RestoredRun::default()).collect(),
        leased: vec![Vec::new(); tree.namespaces.len()],
        buffer: vec![0; saved.blocks.block_bytes()],
        report: Restored::default(),
    };
    restoring.insert_all(&plan(tree, room));
    restoring.use_all();
    restoring.report()
}

impl<B: BlockBytes + ?Sized> Restoring<'_, B> {
    fn insert_all(&mut self, take: &[usize]) {
        let runs = &self.saved.tree.runs;
        let places: Vec<_> = runs.iter().map(|run| (run.parent, run.saved.start)).collect();
        let mut tokens = Vec::new();
        for number in depth_first(&places) {
            let run = &runs[number];
            let is_reached = run.parent.is_none_or(|parent| self.end_of(parent) >= run.saved.start);
            let cut = if is_reached {
                tokens.truncate(run.saved.start);
                tokens.extend(&run.saved.tokens);
                self.insert(number, &tokens, take[number])
            } else {
                // For the same reason as the missing end of its parent.
                run.parent.and_then(|parent| self.runs[parent].cut)
            };
            let no_room = || (take[number] < run.saved.blocks.len()).then_some(Cut::NoRoom);
            self.runs[number].cut = cut.or_else(no_room);
        }
    }

    /// Inserts the first `take` blocks of a run; returns why it inserts fewer. `tokens` is the
    /// sequence up to the run's end.
    fn insert(&mut self, number: usize, tokens: &[Token], take: usize) -> Option<Cut> {
        if take == 0 {
            return None;
        }
        let run = &self.saved.tree.runs[number];
        let extra = self.extra_tokens(run);
        let Some(from) = self.lease_before(run, &tokens[..run.saved.start + extra]) else { return Some(Cut::Refused) };
        let mut blocks = match self.reserve(run, take) {
            Ok(blocks) => blocks,
            Err(cut) => return Some(cut),
        };
        let (whole, mut cut) = self.fill(run, blocks.blocks());
        let whole = blocks.split(whole);
        if whole.is_empty() {
            return cut;
        }
        let (count, end) = (whole.len(), run.saved.start + whole.len() * self.cache.block_size() + extra);
        let inserted = match self.session.insert(&from, &tokens[..end], whole) {
            Ok(inserted) => inserted,
            Err(_) => return Some(Cut::Refused),
        };
        let known = inserted.duplicates.len();
        self.report.known_blocks += known;
        self.report.blocks += count - known;
        self.leased[run.namespace].push(number);
        if count == run.saved.blocks.len() {
            cut = None;
        }
        self.runs[number] =
            RestoredRun { blocks: count, is_new: count > known, lease: Some(inserted.lease), unleased: None, cut };
        cut
    }

    /// A lease on the sequence before a run, in the tree of the restore's beginning: after a clear,
    /// inserts beyond it are refused. `None` if the sequence is not cached any more.
    fn lease_before(&self, run: &LinkedRun, tokens: &[Token]) -> Option<Lease> {
        let Some(parent) = run.parent else { return self.roots[run.namespace].try_clone().ok() };
        let parent = self.lease_of(&self.runs[parent])?;
        if parent.len_tokens() == run.saved.start {
            return Some(parent);
        }
        let hit = self.session.match_prefix_untouched(&self.namespaces[run.namespace], tokens);
        // Checked after the match: a parent that is found then was not cleared before the match.
        self.session.upgrade(&parent.downgrade())?;
        (hit.len_tokens() == run.saved.start).then(|| hit.into_lease())
    }

    /// A lease on a restored run; `None` if it is not cached any more.
    fn lease_of(&self, run: &RestoredRun) -> Option<Lease> {
        match &run.lease {
            Some(lease) => lease.try_clone().ok(),
            None => self.session.upgrade(run.unleased.as_ref()?),
        }
    }

    /// Reserves blocks to be filled, from the pool or from the engine's free ids.
    fn reserve(&mut self, run: &LinkedRun, count: usize) -> Result<Reservation, Cut> {
        let space = &self.namespaces[run.namespace];
        if let Source::Engine(free) = &mut self.source {
            let first = free.len().checked_sub(count).ok_or(Cut::NoRoom)?;
            let adopted =
                self.cache.external().expect("an external pool").adopt(&free[first..]).map_err(|_| Cut::Refused)?;
            free.truncate(first);
            return Ok(adopted);
        }
        match self.session.reserve(BlockRequest::new(count).paid_by(space)) {
            Err(ReserveError::OverQuota { .. }) => {
                // The restore's own leases count against the quota, and are only an optimization.
                for held in self.leased[run.namespace].drain(..) {
                    let run = &mut self.runs[held];
                    run.unleased = run.lease.take().map(|lease| lease.downgrade());
                }
                self.session.reserve(BlockRequest::new(count).paid_by(space)).map_err(|_| Cut::Refused)
            }
            Err(ReserveError::Exhausted { .. } | ReserveError::TooLarge { .. }) => Err(Cut::NoRoom),
            reserved => reserved.map_err(|_| Cut::Refused),
        }
    }

    /// Writes the bytes of the run's first blocks; returns how many, and why not all.
    fn fill(&mut self, run: &LinkedRun, blocks: &[BlockId]) -> (usize, Option<Cut>) {
        for (index, (&block, &place)) in blocks.iter().zip(&run.saved.blocks).enumerate() {
            if self.buffer.is_empty() {
                continue;
            }
            if !self.saved.blocks.read(place, &mut self.buffer) {
                return (index, Some(Cut::Damaged));
            }
            if !self.memory.write(block, &self.buffer) {
                return (index, Some(Cut::Refused));
            }
        }
        (blocks.len(), None)
    }

    /// Counts the uses again, the run with the oldest last use first, and sets the priorities.
    fn use_all(&mut self) {
        let runs = &self.saved.tree.runs;
        let mut order: Vec<usize> = (0..runs.len()).filter(|&number| self.runs[number].is_new).collect();
        order.sort_by_key(|&number| runs[number].saved.last_used);
        let now = since_1970();
        for number in order {
            let saved = &runs[number].saved;
            let (run, session) = (&mut self.runs[number], &self.session);
            let lease_again = || session.upgrade(run.unleased.as_ref()?);
            let Some(lease) = run.lease.take().or_else(lease_again) else { continue };
            self.session.renew(&lease);
            (1..saved.uses.min(MAX_USES)).for_each(|_| self.session.count_use(&lease));
            if let Some(priority) = saved.priority.and_then(|saved| priority_at(saved, now)) {
                self.session.prioritize(&lease, priority);
            }
            self.runs[number].lease = Some(lease);
        }
    }

    /// Number of tokens up to the end of the cached part of a run.
    fn end_of(&self, number: usize) -> usize {
        self.saved.tree.runs[number].saved.start + self.runs[number].blocks * self.cache.block_size()
    }

    fn extra_tokens(&self, run: &LinkedRun) -> usize {
        extra_tokens(self.saved.tree.namespaces[run.namespace].keys).unwrap_or_default()
    }

    /// Counts the blocks that were not restored, by reason.
    fn report(self) -> Restored {
        let mut report = self.report;
        for (run, restored) in self.saved.tree.runs.iter().zip(&self.runs) {
            let missing = run.saved.blocks.len() - restored.blocks;
            match restored.cut {
                Some(Cut::NoRoom) => report.no_room_blocks += missing,
                Some(Cut::Refused) => report.refused_blocks += missing,
                Some(Cut::Damaged) => report.damaged_blocks += missing,
                None => {}
            }
        }
        // Blocks of runs whose records are damaged.
        let told: usize = self.saved.tree.runs.iter().map(|run| run.saved.blocks.len()).sum();
        report.damaged_blocks += self.saved.blocks().saturating_sub(told);
        report
    }
}

/// A saved priority with the time that it has left; `None` if it has expired.
fn priority_at(saved: SavedPriority, now: Duration) -> Option<Priority> {
    let priority = Priority::new(saved.level);
    let Some(until) = saved.until.map(Duration::from_millis) else { return Some(priority) };
    let left = until.checked_sub(now).filter(|left| !left.is_zero())?;
    Some(priority.expiring_after(left))
}
