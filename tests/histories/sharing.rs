//! Threads that match, insert, let go, evict and clear.

use fastrand::Rng;
use radixkv::{Lease, Namespace, PolicyKind, PrefixCache, Session, Token};

use crate::record::{Event, Recorder, record};
use crate::tree::{Call, DEPTH, Inserted, LeaseId, Path, Step};

const CALLS: usize = 7;

/// More than all threads together can ask for: no reservation has to evict.
const CAPACITY: usize = 4 * CALLS * DEPTH + 8;

/// What a thread records: a call, and for `evict` how many blocks it was asked for and has freed.
#[derive(Debug, Clone, Copy)]
pub enum Asked {
    Call(Call),
    Evict { want: usize, freed: usize },
}

/// What the threads of one history share.
struct Shared {
    cache: PrefixCache,
    space: Namespace,
    seed: u64,
}

/// Records one history. Every other one clears; every other two, blocks are of two tokens, of which
/// the first is always the same: sequences then part inside a block.
pub fn history(seed: u64) -> Vec<Event<Step>> {
    let policy = PolicyKind::ALL[(seed / 4) as usize % PolicyKind::ALL.len()];
    let cache = PrefixCache::builder(block_size(seed), CAPACITY).policy(policy).build().expect("a sound setting");
    let shared = Shared { space: cache.default_namespace(), cache, seed };
    let threads = 3 + (seed / 2 % 2) as usize;
    let events = record(threads, shared, |shared, thread, recorder| {
        Worker::new(shared, thread).run(recorder);
    });
    in_terms_of_the_tree(&events)
}

fn block_size(seed: u64) -> usize {
    1 + (seed / 2 % 2) as usize
}

/// A thread and its leases.
struct Worker<'s> {
    shared: &'s Shared,
    session: Session,
    dice: Rng,
    held: Vec<(LeaseId, Path, Lease)>,
    next: LeaseId,
}

impl<'s> Worker<'s> {
    fn new(shared: &'s Shared, thread: usize) -> Self {
        let session = shared.cache.session();
        let dice = Rng::with_seed(shared.seed ^ (thread as u64) << 32);
        Self { shared, session, dice, held: Vec::new(), next: thread * 1000 }
    }

    fn run(mut self, recorder: &mut Recorder<'_, Asked>) {
        for _ in 0..CALLS {
            match self.dice.u8(..100) {
                0..15 => self.peek(recorder),
                15..50 if !self.held.is_empty() => self.insert(recorder),
                50..65 if !self.held.is_empty() => self.release(recorder),
                65..85 => self.evict(recorder),
                85..92 if self.shared.seed % 2 == 0 => self.clear(recorder),
                _ => self.look_up(recorder),
            }
        }
        while !self.held.is_empty() {
            self.release(recorder);
        }
    }

    fn name_lease(&mut self) -> LeaseId {
        self.next += 1;
        self.next
    }

    fn path(&mut self) -> Path {
        Path::new(&[]).extended(self.dice.usize(1..=DEPTH), self.dice.usize(..1 << DEPTH))
    }

    fn tokens(&self, path: Path) -> Vec<Token> {
        let block = |i| match block_size(self.shared.seed) {
            1 => vec![path.block(i) as Token],
            _ => vec![7, path.block(i) as Token],
        };
        (0..path.len()).flat_map(block).collect()
    }

    fn look_up(&mut self, recorder: &mut Recorder<'_, Asked>) {
        let (path, name) = (self.path(), self.name_lease());
        let tokens = self.tokens(path);
        let lease = recorder.record(|| {
            let lease = self.session.match_prefix(&self.shared.space, &tokens).into_lease();
            let found = lease.len_tokens() / self.shared.cache.block_size();
            (Asked::Call(Call::Match { path, found, lease: name }), lease)
        });
        let found = lease.len_tokens() / self.shared.cache.block_size();
        self.held.push((name, path.prefix(found), lease));
    }

    fn peek(&mut self, recorder: &mut Recorder<'_, Asked>) {
        let path = self.path();
        let tokens = self.tokens(path);
        recorder.record(|| {
            let found = self.session.peek(&self.shared.space, &tokens) / self.shared.cache.block_size();
            (Asked::Call(Call::Peek { path, found }), ())
        });
    }

    fn insert(&mut self, recorder: &mut Recorder<'_, Asked>) {
        let name = self.name_lease();
        let (from, leased, lease) = &self.held[self.dice.usize(..self.held.len())];
        let len = self.dice.usize(leased.len()..=DEPTH);
        let path = leased.extended(len, self.dice.usize(..1 << DEPTH));
        let tokens = self.tokens(path);
        let reservation = self.session.reserve(len - leased.len()).expect("enough blocks");
        let inserted = recorder.record(|| {
            let inserted = self.session.insert(lease, &tokens, reservation).ok();
            let answer = inserted.as_ref().map(|done| Inserted { duplicates: done.duplicates.len(), lease: name });
            (Asked::Call(Call::Insert { from: *from, path, inserted: answer }), inserted)
        });
        self.held.extend(inserted.map(|inserted| (name, path, inserted.lease)));
    }

    fn release(&mut self, recorder: &mut Recorder<'_, Asked>) {
        let (name, _, lease) = self.held.swap_remove(self.dice.usize(..self.held.len()));
        recorder.record(|| (Asked::Call(Call::Release { lease: name }), drop(lease)));
    }

    fn evict(&mut self, recorder: &mut Recorder<'_, Asked>) {
        let want = self.dice.usize(1..=3);
        recorder.record(|| (Asked::Evict { want, freed: self.shared.cache.evict(want) }, ()));
    }

    fn clear(&mut self, recorder: &mut Recorder<'_, Asked>) {
        recorder.record(|| (Asked::Call(Call::Clear), self.shared.space.clear()));
    }
}

/// Takes each `evict` apart into what it did to single blocks, and marks what may have been
/// mistaken.
fn in_terms_of_the_tree(events: &[Event<Asked>]) -> Vec<Event<Step>> {
    let mut steps = Vec::new();
    for event in events {
        let beside = |disturbs: fn(&Asked) -> bool| {
            let others = events.iter().filter(|other| other.thread != event.thread && other.overlaps(event));
            others.into_iter().any(|other| disturbs(&other.what))
        };
        let mut step = |call, lenient| {
            let Event { thread, called, returned, .. } = *event;
            steps.push(Event { thread, called, returned, what: Step { call, lenient } });
        };
        match event.what {
            Asked::Call(call) => step(call, beside(is_clear)),
            Asked::Evict { want, freed } => {
                let cleared = events.iter().any(|other| is_clear(&other.what) && other.called < event.returned);
                (0..freed).for_each(|_| step(Call::Trim, cleared && beside(|_| true)));
                if freed < want {
                    step(Call::Dry, beside(|_| true));
                }
            }
        }
    }
    steps
}

fn is_clear(asked: &Asked) -> bool {
    matches!(asked, Asked::Call(Call::Clear))
}
