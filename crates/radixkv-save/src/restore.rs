//! Inserting what was saved.
//!
//! First every sequence is inserted, depth first; then the uses are given again, in the order of the last ones: so the order of
//! eviction does not depend on that of inserting. A lease on each run makes the second step short, and keeps the first one's work.

use std::time::Duration;

use radixkv::{
    BlockId, BlockRequest, Lease, Namespace, NamespaceName, PrefixCache, Priority, Reservation, ReserveError, Session,
    Token,
};

use crate::block_bytes::BlockBytes;
use crate::format::entry::{SavedPriority, extra_tokens};
use crate::order::depth_first;
use crate::plan::plan;
use crate::save::since_1970;
use crate::saved::{LinkedRun, Saved};

/// Uses of a run that are given again at most: more of them tell no more about what is wanted often.
const MAX_USES: u64 = 256;

/// The result of restoring a cache. The numbers of blocks add up to what was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Restored {
    /// Blocks that are cached now.
    pub blocks: usize,
    /// Blocks whose tokens were already cached.
    pub known_blocks: usize,
    /// Blocks that were left out because no blocks were free: those of the least recently used
    /// sequences.
    pub no_room_blocks: usize,
    /// Blocks that a quota or the engine's memory refused, and the blocks after them.
    pub refused_blocks: usize,
    /// Blocks that were damaged or could not be read, and the blocks after them.
    pub damaged_blocks: usize,
}

/// Where blocks come from.
pub(crate) enum Source<'a> {
    /// The cache's pool.
    Cache,
    /// Ids that the engine has free.
    Engine(&'a mut Vec<BlockId>),
}

/// Why a run, or its end, is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    NoRoom,
    Refused,
    Damaged,
}

/// A restoring in progress.
struct Restoring<'a, B: ?Sized> {
    saved: &'a Saved,
    cache: &'a PrefixCache,
    session: Session,
    memory: &'a mut B,
    source: Source<'a>,
    namespaces: Vec<Namespace>,
    runs: Vec<RestoredRun>,
    /// Of each namespace, the runs that are leased.
    leased: Vec<Vec<usize>>,
    buffer: Vec<u8>,
    report: Restored,
}

/// What became of a run.
#[derive(Debug, Default)]
struct RestoredRun {
    /// Blocks of it that are cached.
    blocks: usize,
    /// Whether some of them were not cached before.
    is_new: bool,
    lease: Option<Lease>,
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
    let mut restoring = Restoring {
        saved,
        cache,
        session: cache.session(),
        memory,
        source,
        namespaces: tree.namespaces.iter().map(handle).collect(),
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
                // For the reason for which what is before it is not there.
                run.parent.and_then(|parent| self.runs[parent].cut)
            };
            let no_room = || (take[number] < run.saved.blocks.len()).then_some(Cut::NoRoom);
            self.runs[number].cut = cut.or_else(no_room);
        }
    }

    /// Inserts the first blocks of a run, and why it inserts no more. `tokens`: the sequence up to the run's end.
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
        self.runs[number] = RestoredRun { blocks: count, is_new: count > known, lease: Some(inserted.lease), cut };
        cut
    }

    /// A lease on what a run follows; nothing if that is cached no more.
    fn lease_before(&self, run: &LinkedRun, tokens: &[Token]) -> Option<Lease> {
        let lease = run.parent.and_then(|parent| self.runs[parent].lease.as_ref());
        let at_its_end =
            lease.filter(|lease| lease.len_tokens() == run.saved.start).and_then(|lease| lease.try_clone().ok());
        at_its_end.or_else(|| {
            let hit = self.session.match_prefix_untouched(&self.namespaces[run.namespace], tokens);
            (hit.len_tokens() == run.saved.start).then(|| hit.into_lease())
        })
    }

    /// Blocks to be filled.
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
                // Its own leases count against the quota: they are not needed, only useful.
                for held in self.leased[run.namespace].drain(..) {
                    self.runs[held].lease = None;
                }
                self.session.reserve(BlockRequest::new(count).paid_by(space)).map_err(|_| Cut::Refused)
            }
            Err(ReserveError::Exhausted { .. } | ReserveError::TooLarge { .. }) => Err(Cut::NoRoom),
            reserved => reserved.map_err(|_| Cut::Refused),
        }
    }

    /// Writes the run's first blocks; how many, and why no more.
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

    /// Gives the uses again, the oldest first, and the priorities.
    fn use_all(&mut self) {
        let runs = &self.saved.tree.runs;
        let mut order: Vec<usize> = (0..runs.len()).filter(|&number| self.runs[number].is_new).collect();
        order.sort_by_key(|&number| runs[number].saved.last_used);
        let now = since_1970();
        for number in order {
            let saved = &runs[number].saved;
            let Some(lease) = self.runs[number].lease.take().or_else(|| self.lease_again(number)) else { continue };
            self.session.renew(&lease);
            (1..saved.uses.min(MAX_USES)).for_each(|_| self.session.count_use(&lease));
            if let Some(priority) = saved.priority.and_then(|saved| priority_at(saved, now)) {
                self.session.prioritize(&lease, priority);
            }
            self.runs[number].lease = Some(lease);
        }
    }

    /// A lease on a run that was let go; nothing if it was evicted.
    fn lease_again(&self, number: usize) -> Option<Lease> {
        let runs = &self.saved.tree.runs;
        let end = self.end_of(number);
        let mut path = vec![number];
        while let Some(parent) = path.last().and_then(|&run| runs[run].parent) {
            path.push(parent);
        }
        let mut tokens = Vec::new();
        for run in path.into_iter().rev() {
            tokens.truncate(runs[run].saved.start);
            tokens.extend(&runs[run].saved.tokens);
        }
        tokens.truncate(end + self.extra_tokens(&runs[number]));
        let hit = self.session.match_prefix_untouched(&self.namespaces[runs[number].namespace], &tokens);
        (hit.len_tokens() == end).then(|| hit.into_lease())
    }

    /// Tokens up to the end of what is cached of a run.
    fn end_of(&self, number: usize) -> usize {
        self.saved.tree.runs[number].saved.start + self.runs[number].blocks * self.cache.block_size()
    }

    fn extra_tokens(&self, run: &LinkedRun) -> usize {
        extra_tokens(self.saved.tree.namespaces[run.namespace].keys).unwrap_or_default()
    }

    /// Counts what is not there by its reason.
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
        // Those of runs whose records are damaged.
        let told: usize = self.saved.tree.runs.iter().map(|run| run.saved.blocks.len()).sum();
        report.damaged_blocks += self.saved.blocks().saturating_sub(told);
        report
    }
}

/// What is left of a priority, if it still counts.
fn priority_at(saved: SavedPriority, now: Duration) -> Option<Priority> {
    let priority = Priority::new(saved.level);
    let Some(until) = saved.until.map(Duration::from_millis) else { return Some(priority) };
    let left = until.checked_sub(now).filter(|left| !left.is_zero())?;
    Some(priority.expiring_after(left))
}
