//! Turns of one shard: a reservation evicts runs of its session's shard, under only that shard's
//! lock.
//!
//! It files and evicts candidates with the functions of a turn of all, as long as only its shard is
//! concerned. It *defers* to the next turn of all
//!
//! - an entry or a victim whose leases are in the accounts, or must enter them: they protect blocks
//!   up to the root, also on runs of other shards;
//! - a root, a point in a detached space, a point in a namespace whose leases must all be in the
//!   accounts (a limit on pinned blocks, an undecided clear), and a point to retain.
//!
//! A deferred point stays `QUEUED`, is not filed, and is in a list of its shard. A turn of all is
//! needed when [`DEFERRED`] points are in that list, at once when one of them came from the queue
//! idle or with a retention (`Shard::needs_all`), when [`MOST_ENTRIES`] leave a rest, or when the
//! shard has too few candidates. It is always needed
//!
//! - under a policy other than `lru` and `fifo`, and once a time to idle was set;
//! - while there is a subscriber, a sink, a listing, a hidden block, a detached space, a retention
//!   or a request for one (its point may be deferred already, and is then not pushed again), a
//!   limit on cached blocks, a waiter, or an exchange or sorting of candidates
//!   ([`Evictor::may_work_alone`]);
//! - with a background evictor, for a payer with a limit on pinned blocks, for more blocks than a
//!   turn may evict, and while a pass over the namespaces is due (`blocks::allocate`).
//!
//! A turn of one reports one change to another shard: a point has lost its last child. It removes
//! the child and marks the point as queued, even if silent, in one read-modify-write, and pushes
//! the point to that shard's queue.
//!
//! # Order
//!
//! A shard evicts its own candidates in the policy's order. Every [`LOOKS_AROUND`]th turn compares
//! the shard's first candidate with those of the others, and evicts from the shard that has the
//! oldest if that is older by the time of eight victims, or by three quarters of the own age if
//! that is less. Then each turn compares, until none is older. Time is counted in victims because
//! after a pause all ages are large.
//!
//! The comparison needs the first candidate of every shard. A shard with queued changes and no
//! noted candidate belongs to a session that has evicted nothing so far: the thread first takes its
//! changes in. After every [`VISITS`]th turn of a shard, its thread takes in the changes of another
//! shard, in rotation.

use super::{Evictor, Resources};
use crate::block::BlockId;
use crate::cache::listening::events::EvictionReason;
use crate::policy::PolicyKind;
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Relaxed as WordRelaxed;
use crate::sync::gauge::{AtomicU64, Relaxed};
use crate::sync::model_size;
use crate::tree::{Point, Queues, ShardCount, ShardId};

/// How many turns of a shard pass between two looks at the other shards.
const LOOKS_AROUND: u32 = model_size(4, 1) as u32;
/// With this many deferred points a turn of all is needed.
const DEFERRED: usize = model_size(64, 1);
/// The most entries that a turn of one takes out of the backlog; turns of all take out the rest.
const MOST_ENTRIES: usize = 1024;
/// How many turns of a shard pass between two visits to other shards.
const VISITS: u32 = model_size(128, 2) as u32;

/// About when each shard's first candidate was last used: to choose the shard to evict from.
#[derive(Debug)]
pub(in crate::cache) struct Heads {
    lines: Box<[HeadLine]>,
    shards: ShardCount,
}

/// Shards whose heads share a cache line, because all heads are read more often than one changes.
const TOGETHER: usize = 8;

/// The heads of [`TOGETHER`] shards; those beyond the last shard are not used.
#[derive(Debug)]
#[repr(align(64))]
struct HeadLine([AtomicU64; TOGETHER]);

impl Heads {
    pub(in crate::cache) fn new(shards: ShardCount) -> Self {
        let line = |_| HeadLine(std::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        Self { lines: (0..shards.get().div_ceil(TOGETHER)).map(line).collect(), shards }
    }

    fn note(&self, shard: ShardId, first: u64) {
        // Relaxed, all: a heuristic.
        self.lines[shard.index() / TOGETHER].0[shard.index() % TOGETHER].store(first, Relaxed);
    }

    fn all(&self) -> impl Iterator<Item = (ShardId, u64)> {
        self.shards
            .all()
            .zip(self.lines.iter().flat_map(|line| &line.0))
            .map(|(shard, head)| (shard, head.load(Relaxed)))
    }

    /// The shard `places` after `shard`, in rotation.
    fn after(&self, shard: ShardId, places: u32) -> ShardId {
        ShardId::at((shard.index() + places as usize) % self.shards.get())
    }

    /// The shard whose first candidate is oldest, and the candidate's last use.
    fn oldest(&self) -> (ShardId, u64) {
        self.all().min_by_key(|(_, last)| *last).expect("there is a shard")
    }

    /// A shard without a noted candidate for which changes are queued.
    fn unknown(&self, queues: &Queues) -> Option<ShardId> {
        self.all().find(|(shard, last)| *last == u64::MAX && !queues.of(*shard).is_empty()).map(|(shard, _)| shard)
    }
}

/// The outcome of a turn of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Alone {
    /// The request has its blocks.
    Served,
    /// The request has its blocks; next, take in the changes of this shard.
    Visits(ShardId),
    /// Evicted nothing: evict from this shard, whose first candidate is older.
    Elsewhere(ShardId),
    /// Evicted nothing: take in the changes of this shard first, and look again.
    Unknown(ShardId),
    /// Only a turn of all can serve the request.
    NeedsAll,
}

/// A request for blocks in a turn of one shard.
#[derive(Debug)]
pub(in crate::cache) struct Request<'a> {
    pub(in crate::cache) blocks: &'a mut Vec<BlockId>,
    pub(in crate::cache) wanted: usize,
    /// Whether to look for a shard with older candidates.
    pub(in crate::cache) looks_around: bool,
    /// The stamp of a use at this moment.
    pub(in crate::cache) now: u64,
    /// Number of requests to retain so far.
    pub(in crate::cache) retentions: usize,
    pub(in crate::cache) heads: &'a Heads,
}

impl Evictor<'_> {
    /// Whether turns of one shard may evict in the present state of the cache.
    fn may_work_alone(&self, retentions: usize, resources: Resources<'_>) -> bool {
        let common = &*self.common;
        matches!(self.ranking.kind, PolicyKind::Lru | PolicyKind::Fifo)
            && !resources.is_awaited
            && common.listeners.let_shards_alone()
            && common.retained.next().is_none()
            && common.retained.taken == retentions
            && common.detached.is_empty()
            && self.ranking.aging.order().is_none()
            && !self.has_upkeep()
    }

    /// Takes the blocks of a request from the pool, and evicts the missing ones from this shard.
    /// Evicts nothing unless its first candidates have enough.
    pub(in crate::cache) fn serve_alone(&mut self, request: Request<'_>, resources: Resources<'_>) -> Alone {
        let Request { blocks, wanted, looks_around, now, retentions, heads } = request;
        self.turns_alone = self.turns_alone.wrapping_add(u32::from(looks_around));
        if !self.may_work_alone(retentions, resources) {
            return Alone::NeedsAll;
        }
        self.take_in_alone(resources);
        if self.needs_all || self.deferred.len() >= DEFERRED || !self.backlog.is_empty() {
            return Alone::NeedsAll;
        }
        let visited =
            (looks_around && self.turns_alone % VISITS == 0).then(|| heads.after(self.id, self.turns_alone / VISITS));
        if looks_around && (self.turns_alone % LOOKS_AROUND == 0 || self.is_young) {
            self.note_head(heads, now, resources);
            if let Some(unknown) = heads.unknown(resources.queues) {
                self.is_young = true;
                return Alone::Unknown(unknown);
            }
            let older = self.older_shard(heads, now, resources);
            self.is_young = older.is_some();
            if let Some(older) = older {
                return visited.map_or(Alone::Elsewhere(older), Alone::Unknown);
            }
        }
        let missing = wanted.saturating_sub(blocks.len() + self.free(resources));
        if missing > 0 && !self.first_can_free(missing, resources) {
            // What other shards see must not send them here again.
            self.noted_head = self.first_use(resources);
            heads.note(self.id, self.noted_head);
            return Alone::NeedsAll;
        }
        while !self.serve(wanted - blocks.len(), blocks, resources) {
            let missing = wanted.saturating_sub(blocks.len() + self.free(resources)).max(1);
            if !self.evict_alone(missing, resources) {
                return Alone::NeedsAll;
            }
        }
        self.note_head(heads, now, resources);
        visited.map_or(Alone::Served, Alone::Visits)
    }

    /// Notes the first candidates of all shards.
    pub(in crate::cache) fn note_heads(&mut self, heads: &Heads, now: u64, resources: Resources<'_>) {
        for place in 0..self.len() {
            self.work_on(place);
            self.note_head(heads, now, resources);
        }
    }

    /// Notes this shard's first candidate if it has moved by half of the margin: other threads read
    /// the table.
    fn note_head(&mut self, heads: &Heads, now: u64, resources: Resources<'_>) {
        let first = self.first_use(resources);
        if first.abs_diff(self.noted_head) > self.margin(first, now) / 2 {
            self.noted_head = first;
            heads.note(self.id, first);
        }
    }

    /// The shard whose first candidate is oldest, if that precedes this shard's.
    fn older_shard(&self, heads: &Heads, now: u64, resources: Resources<'_>) -> Option<ShardId> {
        let ((oldest, last), first) = (heads.oldest(), self.first_use(resources));
        (oldest != self.id && last < first.saturating_sub(self.margin(first, now))).then_some(oldest)
    }

    /// How much earlier than this shard's first candidate, last used at `first`, another shard's
    /// must have been used to precede it.
    fn margin(&self, first: u64, now: u64) -> u64 {
        // A shard with few candidates would wait too long for eight victims.
        let age = now.saturating_sub(first);
        self.span.min(age - age / 4)
    }

    /// When this shard's first candidate was last used.
    fn first_use(&self, resources: Resources<'_>) -> u64 {
        let first = self.ranking.policy.choose().and_then(|slot| self.ranking.at(slot));
        first.map_or(u64::MAX, |point| point.get(resources.guard).statistics.last())
    }

    /// Takes in the changes of this shard's runs; defers those that need a turn of all.
    fn take_in_alone(&mut self, resources: Resources<'_>) {
        self.now = self.now.max(resources.now);
        self.take_backlog_in_alone(resources);
        let queue = resources.queues.of(self.id);
        if self.backlog.is_empty() && !queue.is_empty() {
            self.backlog.receive(queue.drain());
            self.take_backlog_in_alone(resources);
        }
    }

    fn take_backlog_in_alone(&mut self, resources: Resources<'_>) {
        let mut turns = MOST_ENTRIES;
        for _ in 0..MOST_ENTRIES {
            let Some(point) = self.backlog.next(&mut turns, resources.guard) else { break };
            if self.is_plain(point, resources) {
                self.look_into_backlog(resources);
                self.take_out(point, resources);
            } else {
                // An idle prefix waits for no lease, and a retention for no other turn.
                let is_leased = point.word.load(WordRelaxed).leases() > 0;
                self.needs_all |= !is_leased || point.marks.asked(resources.guard).is_some();
                self.deferred.push(point.link());
            }
        }
    }

    /// Whether an entry concerns only this shard.
    fn is_plain(&self, point: Ref<'_, Point>, resources: Resources<'_>) -> bool {
        // Relaxed: only turns of this shard and of all write the bits read here.
        let word = point.word.load(WordRelaxed);
        if word.is_dead() {
            return true;
        }
        let run = point.run();
        !run.is_trunk()
            && (word.is_silent() || self.may_be_silent(point, true, resources))
            && !run.space().is_detached()
            && !run.space().account.must_be_told()
            && !point.account.get(&self.owner).is_active()
            && run.account.with(&self.owner, |account| account.protected) == 0
            && point.marks.asked(resources.guard).is_none()
    }

    /// Leaves a live point to the next turn of all.
    pub(super) fn defer(&mut self, point: Ref<'_, Point>) {
        self.unfile(point);
        if point.word.defer() {
            self.deferred.push(point.link());
        }
    }

    /// Counts a victim in `Shard::span`.
    fn count_victim(&mut self, victim: Ref<'_, Point>) {
        let last = victim.statistics.last();
        let advance = if self.last_victim == 0 { 0 } else { last.saturating_sub(self.last_victim) };
        self.span = (self.span - self.span / 8).saturating_add(advance);
        self.last_victim = self.last_victim.max(last);
    }

    /// Evicts from this shard's candidates until `want` blocks are freed; false if it has too few.
    fn evict_alone(&mut self, want: usize, resources: Resources<'_>) -> bool {
        let mut freed = 0;
        while freed < want {
            let Some(victim) = self.choose().filter(|_| !self.needs_turn()) else { return false };
            let victim = victim.get(resources.guard);
            self.look_ahead(victim, resources);
            let (run, word) = (victim.run(), victim.word.look());
            let is_end = word.children() == 0 && run.word().len() == victim.depth();
            if word.leases() > 0 || run.account.with(&self.owner, |account| account.protected) > 0 {
                self.stale_left -= 1;
                self.defer(victim);
            } else if !is_end || !self.is_filed_as_it_is(victim, resources) {
                self.stale_left -= 1;
                self.place(victim, resources);
                self.visit_again(resources);
            } else {
                self.count_victim(victim);
                freed += self.evict_victim(victim, want - freed, EvictionReason::Capacity, resources);
                self.take_in_alone(resources);
            }
        }
        true
    }
}
