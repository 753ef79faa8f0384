//! Drives a subject and the reference through the same steps and compares all they say after each.

#[path = "driver/insert.rs"]
mod insert;
#[path = "driver/retention.rs"]
mod retention;

use std::collections::HashMap;

use radixkv::Token;
use radixkv_reference::{self as reference, Reference};

use crate::step::{Sequence, Step};
use crate::subject::{Found, GROWTH, Setting, Subject, offset};

/// Leases, and reservations, held at once; with more of them the oldest goes.
const MOST_HELD: usize = 8;

/// Partial hits held at once.
const MOST_SOURCES: usize = 2;

struct HeldLease<L> {
    expected: reference::Lease,
    actual: L,
    space: usize,
    tokens: Vec<Token>,
    /// Whether its tree was cleared or dropped.
    detached: bool,
}

/// A partial hit that is being copied from.
struct HeldSource<L> {
    expected: reference::Lease,
    actual: L,
}

struct HeldReservation<R> {
    expected: reference::Reservation,
    actual: R,
}

/// A subject, the reference, and what is held of both.
pub struct Driver<S: Subject> {
    setting: Setting,
    /// Whether every step is settled; else only what must be exact without it is compared in
    /// between.
    eager: bool,
    reference: Reference,
    subject: S,
    now: u64,
    leases: Vec<HeldLease<S::Lease>>,
    reservations: Vec<HeldReservation<S::Reservation>>,
    sources: Vec<HeldSource<S::Source>>,
    weak: Vec<(reference::WeakLease, S::Weak)>,
    /// Blocks of the cache, which grows.
    capacity: usize,
    /// Whether leases may protect blocks that were invalidated.
    hides: bool,
    /// The subject's block for each of the reference's that is not free.
    blocks: HashMap<u32, u32>,
}

/// What differed, in words.
pub type Difference = String;

/// Tokens that a lease of so many was matched by.
fn matched_by(space: usize, len_tokens: usize) -> usize {
    if len_tokens == 0 { 0 } else { len_tokens + offset(space) }
}

/// Fails with both values unless they are equal.
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<(), Difference> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what}: {actual:?}, the reference says {expected:?}"))
}

impl<S: Subject> Driver<S> {
    pub fn new(setting: Setting, eager: bool, subject: S) -> Self {
        Self {
            setting,
            eager,
            reference: <Reference as Subject>::new(setting),
            subject,
            now: setting.start,
            leases: Vec::new(),
            reservations: Vec::new(),
            sources: Vec::new(),
            weak: Vec::new(),
            capacity: setting.capacity,
            hides: false,
            blocks: HashMap::new(),
        }
    }

    /// Runs all steps, then lets go of everything and empties both caches.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Difference> {
        for (i, step) in steps.iter().enumerate() {
            self.step(step).map_err(|difference| format!("step {i}, {step:?}: {difference}"))?;
        }
        self.finish().map_err(|difference| format!("at the end: {difference}"))
    }

    fn step(&mut self, step: &Step) -> Result<(), Difference> {
        self.tick();
        let size = self.setting.block_size;
        match step {
            Step::Match(space, sequence) => self.match_prefix(*space, sequence.tokens(size))?,
            Step::Lease(space, sequence) => self.match_prefix_untouched(*space, sequence.tokens(size))?,
            Step::Peek(space, sequence) => self.peek(*space, &sequence.tokens(size))?,
            Step::Resume(at, sequence) => self.resume(*at, sequence)?,
            Step::Partial(at, sequence, least) => self.match_partial(*at, sequence, *least)?,
            Step::Clone(at) => self.clone_lease(*at),
            Step::Release(at) => self.release(*at),
            Step::Reserve(blocks) => self.reserve(None, *blocks).map(drop)?,
            Step::Abort(at) => self.abort(*at),
            Step::Insert(at, sequence) => self.insert(*at, sequence)?,
            Step::InsertFrom(at, sequence, from) => self.insert_from(*at, sequence, *from)?,
            Step::Append(at, blocks, token) => self.append(*at, *blocks, *token)?,
            Step::InsertWrong(at, sequence, fault) => self.insert_wrong(*at, sequence, *fault)?,
            Step::Serve(space, sequence) => self.serve(*space, sequence)?,
            Step::Evict(blocks) => self.evict(*blocks)?,
            Step::EvictOf(space, blocks) => self.evict_of(*space, *blocks)?,
            Step::EvictInto(blocks) => self.evict_into(*blocks)?,
            Step::EvictIdle(space, idle) => self.evict_idle(*space, *idle)?,
            Step::Invalidate(at) => self.invalidate(*at)?,
            Step::Downgrade(at) => self.downgrade(*at),
            Step::Upgrade(at) => self.upgrade(*at)?,
            Step::Grow(blocks) => self.grow(*blocks),
            Step::Prioritize(at, priority, ttl) => self.prioritize(*at, *priority, *ttl),
            Step::Retain(at, duration) => self.retain(*at, *duration)?,
            Step::ReleaseRetained(at) => self.release_retained(*at),
            Step::Demote(at) => self.demote(*at),
            Step::Renew(at) => self.renew(*at),
            Step::CountUse(at) => self.count_use(*at),
            Step::Wait(units) => self.wait(u64::from(*units)),
            Step::Settle => {}
            Step::SetPolicy(policy) => {
                Subject::set_policy(&mut self.reference, *policy);
                self.subject.set_policy(*policy);
            }
            Step::SetQuota(space, cached, pinned, time) => {
                let (pinned, time) = (pinned.filter(|_| S::CLAIMS), time.map(u64::from));
                Subject::set_quota(&mut self.reference, *space, *cached, pinned, time);
                self.subject.set_quota(*space, *cached, pinned, time);
            }
            Step::Clear => self.clear(),
            Step::DropNamespace(space) => self.drop_namespace(*space),
        }
        self.bound_held();
        if self.eager || matches!(step, Step::Settle) { self.compare_settled() } else { Ok(()) }
    }

    /// Gives the next verb that stamps a time of its own, unless the clock stands.
    fn tick(&mut self) {
        self.wait(u64::from(!self.setting.stands));
    }

    fn wait(&mut self, units: u64) {
        self.now += units;
        self.reference.set_time(self.now);
        self.subject.set_time(self.now);
    }

    fn settle(&mut self) {
        Subject::settle(&mut self.reference);
        self.subject.settle();
    }

    fn compare_settled(&mut self) -> Result<(), Difference> {
        self.settle();
        let expected = self.reference.accounts();
        equal("free, reserved, evictable, protected", self.subject.accounts(), expected)?;
        equal("capacity", expected.iter().sum(), self.capacity)?;
        equal("validate", self.subject.validate(), Ok(()))?;
        equal("the reference's own validate", Subject::validate(&mut self.reference), Ok(()))
    }

    fn finish(&mut self) -> Result<(), Difference> {
        while !self.sources.is_empty() {
            self.let_go_of_source();
        }
        while !self.leases.is_empty() {
            self.release(0);
        }
        while !self.reservations.is_empty() {
            self.abort(0);
        }
        self.compare_settled()?;
        // Longer than anything is retained.
        self.wait(u64::from(u8::MAX));
        self.compare_settled()?;
        self.evict(self.capacity)?;
        self.compare_settled()?;
        equal("all free", self.subject.accounts()[0], self.capacity)
    }

    fn bound_held(&mut self) {
        if self.leases.len() > MOST_HELD {
            self.release(0);
        }
        if self.reservations.len() > MOST_HELD {
            self.abort(0);
        }
        if self.sources.len() > MOST_SOURCES {
            self.let_go_of_source();
        }
    }

    fn match_prefix(&mut self, space: usize, tokens: Vec<Token>) -> Result<(), Difference> {
        let expected = Subject::match_prefix(&mut self.reference, space, &tokens);
        let actual = self.subject.match_prefix(space, &tokens);
        self.hold_found(expected, actual, space, tokens)
    }

    fn match_prefix_untouched(&mut self, space: usize, tokens: Vec<Token>) -> Result<(), Difference> {
        let expected = Subject::match_prefix_untouched(&mut self.reference, space, &tokens);
        let actual = self.subject.match_prefix_untouched(space, &tokens);
        self.hold_found(expected, actual, space, tokens)
    }

    fn peek(&mut self, space: usize, tokens: &[Token]) -> Result<(), Difference> {
        let expected = Subject::peek(&mut self.reference, space, tokens);
        equal("peek", self.subject.peek(space, tokens), expected)
    }

    fn resume(&mut self, at: usize, sequence: &Sequence) -> Result<(), Difference> {
        let Some(held) = self.take_lease(at) else {
            return Ok(());
        };
        let tokens = self.continued(&held.tokens, sequence);
        let expected = Subject::resume(&mut self.reference, held.expected, &tokens);
        let actual = self.subject.resume(held.actual, &tokens);
        self.hold_found(expected, actual, held.space, tokens)?;
        self.leases.last_mut().expect("just pushed").detached = held.detached;
        Ok(())
    }

    fn hold_found(
        &mut self,
        expected: Found<reference::Lease>,
        actual: Found<S::Lease>,
        space: usize,
        mut tokens: Vec<Token>,
    ) -> Result<(), Difference> {
        equal("matched tokens", actual.len_tokens, expected.len_tokens)?;
        equal("matched blocks", actual.blocks, self.named(&expected.blocks))?;
        tokens.truncate(matched_by(space, expected.len_tokens));
        let (expected, actual) = (expected.lease, actual.lease);
        self.leases.push(HeldLease { expected, actual, space, tokens, detached: false });
        Ok(())
    }

    /// The subject's names of the reference's blocks.
    fn named(&self, blocks: &[u32]) -> Vec<u32> {
        blocks.iter().map(|block| self.blocks[block]).collect()
    }

    /// Tokens that begin with a leased prefix and go on as `sequence` does.
    fn continued(&self, leased: &[Token], sequence: &Sequence) -> Vec<Token> {
        let tokens = sequence.tokens(self.setting.block_size);
        let rest = tokens.into_iter().skip(leased.len());
        leased.iter().copied().chain(rest).collect()
    }

    fn take_lease(&mut self, at: usize) -> Option<HeldLease<S::Lease>> {
        let held = self.leases.len();
        (held > 0).then(|| self.leases.remove(at % held))
    }

    fn match_partial(&mut self, at: usize, sequence: &Sequence, least: usize) -> Result<(), Difference> {
        let Some(at) = at.checked_rem(self.leases.len()) else {
            return Ok(());
        };
        let held = &self.leases[at];
        let tokens = self.continued(&held.tokens, sequence);
        let expected = self.reference.match_partial(&held.expected, &tokens, least);
        let Some(actual) = self.subject.match_partial(&held.actual, &tokens, least) else {
            return equal("partial hit", None, expected);
        };
        let Some((agreed, best)) = expected else {
            return equal("partial hit", Some(actual.tokens), None);
        };
        equal("tokens of a partial hit", actual.tokens, agreed)?;
        let chosen = best.iter().copied().find(|block| self.blocks.get(block) == Some(&actual.block));
        let block = chosen.ok_or(format!("block {} of a partial hit: not one of {best:?}", actual.block))?;
        let expected = self.reference.lease_block(&self.leases[at].expected, block);
        self.sources.push(HeldSource { expected, actual: actual.source });
        Ok(())
    }

    /// The oldest of the partial hits was copied.
    fn let_go_of_source(&mut self) {
        let HeldSource { expected, actual } = self.sources.remove(0);
        Subject::let_go(&mut self.reference, expected);
        self.subject.let_go(actual);
        // In a detached tree its block is free at once for the reference, for the subject once it
        // is settled.
        self.settle();
    }

    fn clone_lease(&mut self, at: usize) {
        if self.leases.is_empty() {
            return;
        }
        let held = &self.leases[at % self.leases.len()];
        let (space, tokens, detached) = (held.space, held.tokens.clone(), held.detached);
        let expected = Subject::clone_lease(&mut self.reference, &held.expected);
        let actual = self.subject.clone_lease(&held.actual);
        self.leases.push(HeldLease { expected, actual, space, tokens, detached });
    }

    fn release(&mut self, at: usize) {
        if let Some(held) = self.take_lease(at) {
            Subject::release(&mut self.reference, held.expected);
            self.subject.release(held.actual);
            if held.detached || self.hides {
                self.settle();
            }
        }
    }

    /// The reference names one of the blocks in use, cached or not.
    fn invalidate(&mut self, at: usize) -> Result<(), Difference> {
        let in_use: Vec<u32> = self.reference.blocks_in_use().into_iter().collect();
        let Some(at) = at.checked_rem(in_use.len()) else { return Ok(()) };
        let block = in_use[at];
        let expected = Subject::invalidate(&mut self.reference, block);
        equal("invalidated blocks", self.subject.invalidate(self.blocks[&block]), expected)?;
        self.hides = true;
        // Freed at once for the reference.
        self.settle();
        Ok(())
    }

    fn downgrade(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.leases.len()) else { return };
        let held = &self.leases[at];
        let weak = (self.reference.downgrade(&held.expected), self.subject.downgrade(&held.actual));
        self.weak.truncate(MOST_HELD - 1);
        self.weak.insert(0, weak);
    }

    fn upgrade(&mut self, at: usize) -> Result<(), Difference> {
        let Some(at) = at.checked_rem(self.weak.len()) else { return Ok(()) };
        let (expected, actual) = &self.weak[at];
        let (expected, actual) = (self.reference.upgrade(expected), self.subject.upgrade(actual));
        equal("upgraded", actual.is_some(), expected.is_some())?;
        if let (Some(expected), Some(actual)) = (expected, actual) {
            Subject::release(&mut self.reference, expected);
            self.subject.release(actual);
        }
        Ok(())
    }

    fn grow(&mut self, blocks: usize) {
        let blocks = blocks.min(self.setting.capacity + GROWTH - self.capacity);
        self.capacity += blocks;
        Subject::grow(&mut self.reference, blocks);
        self.subject.grow(blocks);
    }

    fn clear(&mut self) {
        Subject::clear(&mut self.reference);
        self.subject.clear();
        self.leases.iter_mut().for_each(|held| held.detached = true);
        // Detached blocks are free at once for the reference, for the subject once it is settled.
        self.settle();
    }

    fn drop_namespace(&mut self, space: usize) {
        Subject::drop_namespace(&mut self.reference, space);
        self.subject.drop_namespace(space);
        let of_it = self.leases.iter_mut().filter(|held| held.space == space);
        of_it.for_each(|held| held.detached = true);
        self.settle();
    }

    /// Reserves on both sides, for a namespace or for none; whether they got it.
    fn reserve(&mut self, space: Option<usize>, blocks: usize) -> Result<bool, Difference> {
        let space = space.filter(|_| S::CLAIMS);
        let expected = Subject::reserve(&mut self.reference, space, blocks);
        let actual = self.subject.reserve(space, blocks);
        match (expected, actual) {
            (Ok(expected), Ok(actual)) => {
                let (ours, theirs) = (expected.blocks(), self.subject.blocks(&actual));
                equal("reserved blocks", theirs.len(), ours.len())?;
                self.blocks.extend(ours.iter().copied().zip(theirs));
                self.reservations.push(HeldReservation { expected, actual });
                self.no_block_twice().map(|()| true)
            }
            (Err(expected), Err(actual)) => equal("refusal", actual, expected).map(|()| false),
            (expected, actual) => {
                let (expected, actual) = (expected.map(drop), actual.map(drop));
                equal("reservation", actual, expected).map(|()| false)
            }
        }
    }

    /// No block was given out that the reference has in use: so the same ones were evicted.
    fn no_block_twice(&mut self) -> Result<(), Difference> {
        let in_use = self.reference.blocks_in_use();
        self.blocks.retain(|block, _| in_use.contains(block));
        let mut theirs: Vec<u32> = self.blocks.values().copied().collect();
        theirs.sort_unstable();
        theirs.dedup();
        equal("distinct blocks in use (was another one evicted?)", theirs.len(), in_use.len())
    }

    fn take_reservation(&mut self, at: usize) -> Option<HeldReservation<S::Reservation>> {
        let held = self.reservations.len();
        (held > 0).then(|| self.reservations.remove(at % held))
    }

    fn abort(&mut self, at: usize) {
        if let Some(held) = self.take_reservation(at) {
            Subject::abort(&mut self.reference, held.expected);
            self.subject.abort(held.actual);
        }
    }

    fn evict(&mut self, blocks: usize) -> Result<(), Difference> {
        let expected = Subject::evict(&mut self.reference, blocks);
        equal("evicted blocks", self.subject.evict(blocks), expected)
    }

    fn evict_into(&mut self, blocks: usize) -> Result<(), Difference> {
        let expected = Subject::evict(&mut self.reference, blocks);
        equal("evicted blocks", self.subject.evict_into(blocks), expected)
    }

    fn evict_idle(&mut self, space: usize, idle: u8) -> Result<(), Difference> {
        let expected = Subject::evict_idle(&mut self.reference, space, idle.into());
        equal("idle blocks", self.subject.evict_idle(space, idle.into()), expected)
    }

    fn evict_of(&mut self, space: usize, blocks: usize) -> Result<(), Difference> {
        let expected = Subject::evict_of(&mut self.reference, space, blocks);
        equal("evicted blocks of a namespace", self.subject.evict_of(space, blocks), expected)
    }
}
