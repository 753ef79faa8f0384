//! A point: a place on a run where a lease, a branch or a statistic holds on.

use crate::policy::CandidateId;
use crate::reclaim::{Canary, Guard, Link, Node, Own, Ref};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{HandedOver, OwnerCell};

use super::map::{Keyed, Map};
use super::marks::{Marked, Marks};
use super::run::Run;
use super::word::Word;

/// A point; its run and depth are fixed for life.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) word: Word,
    /// The next entry of the queue's chain; belongs to whoever set `QUEUED` (word.rs, E4).
    pub(crate) link: HandedOver<Point>,
    pub(crate) statistics: Statistics,
    /// Runs that branch off here, by their first token.
    pub(crate) children: Map<Run>,
    /// The run keeps its points; a point that left it is not asked for its run any more.
    run: Link<Run>,
    depth: u32,
    /// What the evictor knows of the point.
    pub(crate) account: OwnerCell<PointAccount>,
    canary: Canary,
}

/// What the evictor knows of a point.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointAccount {
    /// Child runs that are accounted active.
    pub(crate) active_children: u32,
    /// Where it stands in the ranking.
    pub(crate) candidate: Option<CandidateId>,
    /// It stands in its run's list.
    pub(crate) known: bool,
    /// Its word had a lease when its entry was last taken out.
    pub(crate) leased: bool,
}

// A leaf costs one cache line and a word for its end.
#[cfg(not(any(radixkv_loom, radixkv_shuttle, radixkv_chaos)))]
const _: () = assert!(size_of::<Point>() <= 72);

impl PointAccount {
    pub(crate) fn is_active(&self) -> bool {
        self.leased || self.active_children > 0
    }
}

impl Point {
    pub(crate) fn new<'g>(
        run: Link<Run>,
        depth: u32,
        word: Word,
        statistics: Statistics,
        guard: &'g Guard<'g>,
    ) -> Own<'g, Self> {
        Own::new(
            Self {
                word,
                link: HandedOver::null(),
                statistics,
                children: Map::new(),
                run,
                depth,
                account: OwnerCell::new(PointAccount::default()),
                canary: Canary::new(),
            },
            guard,
        )
    }

    /// Depth on its own run, in tokens.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }
}

impl<'g> Ref<'g, Point> {
    /// The run, protected by what protects the point.
    #[inline]
    pub(crate) fn run(self) -> Ref<'g, Run> {
        let point = self.as_ref();
        point.run.get(point)
    }

    /// Depth from the namespace's root, in tokens.
    #[inline]
    pub(crate) fn end(self) -> usize {
        self.run().start() + self.depth() as usize
    }
}

#[allow(unsafe_code)]
// SAFETY: a point is a `Box`; dropping it frees its map's branches and its marks and follows no other pointer.
unsafe impl Node for Point {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.children.branch_bytes() + self.statistics.marks.bytes()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

impl Keyed for Point {
    fn key(&self) -> u32 {
        self.depth
    }
}

/// What policies rank by. Everything starts at one hit: the insert's.
#[derive(Debug)]
pub(crate) struct Statistics {
    last: AtomicU64,
    hits: AtomicU64,
    pub(crate) marks: Marks,
}

/// Statistics at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) last: u64,
    pub(crate) hits: u64,
    pub(crate) marked: Marked,
}

impl Tally {
    /// What a point without a history adds to another: nothing.
    pub(crate) const NONE: Self = Self { last: 0, hits: 1, marked: Marked::NONE };

    /// What both say together once one has flowed into the other.
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            last: self.last.max(other.last),
            hits: self.hits.wrapping_add(other.hits).wrapping_sub(1),
            marked: self.marked.joined(other.marked),
        }
    }
}

impl Statistics {
    pub(crate) fn stamped(now: u64) -> Self {
        Self { last: AtomicU64::new(now), hits: AtomicU64::new(1), marks: Marks::none() }
    }

    /// One request more passed here.
    #[inline]
    pub(crate) fn touch(&self, now: u64) {
        self.stamp(now);
        // Relaxed: a count; the release of the lease publishes it to the evictor (word.rs, E3).
        self.hits.fetch_add(1, Relaxed);
    }

    /// The time alone; written only if it changes.
    #[inline]
    pub(crate) fn stamp(&self, now: u64) {
        // Relaxed: as the count. Two stamps at once differ by no more than the clock between two instructions.
        if self.last.load(Relaxed) < now {
            self.last.store(now, Relaxed);
        }
    }

    /// The request that was counted here has gone on to a deeper point.
    pub(crate) fn move_on(&self) {
        // Relaxed: as the count.
        self.hits.fetch_sub(1, Relaxed);
    }

    /// Takes in what flows down from a point that has gone.
    pub(crate) fn take_in(&self, tally: Tally, guard: &Guard<'_>) {
        // Relaxed: the evictor alone lets statistics flow and ranks by them; touches race with it as with each other.
        if tally.last > self.last.load(Relaxed) {
            self.last.fetch_max(tally.last, Relaxed);
        }
        if tally.hits != 1 {
            self.hits.fetch_add(tally.hits.wrapping_sub(1), Relaxed);
        }
        self.marks.join(tally.marked, guard);
    }

    /// Takes away what was counted here, which is all there is on a stripe; nobody counts meanwhile.
    pub(crate) fn take_out(&self) -> Tally {
        // Marks are made at the point itself.
        let tally = Tally { last: self.last(), hits: self.hits.load(Relaxed), marked: Marked::NONE };
        self.last.store(Tally::NONE.last, Relaxed);
        self.hits.store(Tally::NONE.hits, Relaxed);
        tally
    }

    pub(crate) fn read(&self, guard: &Guard<'_>) -> Tally {
        Tally { last: self.last(), hits: self.hits.load(Relaxed), marked: self.marks.read(guard) }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }
}
