//! Operations whose instructions are counted. Each is prepared for [`MOST`] calls, however many are
//! made, so that the difference between two runs with different numbers of calls is the cost of the
//! calls. All use one thread, a logical clock and the same tokens every time.

use std::collections::VecDeque;
use std::hint::black_box;

use radixkv::{Clock, Lease, Namespace, PrefixCache, Reservation, Session, Token};

use super::common::{Aligned, fill_with_leaves, insert, sequence};

/// The most calls of an operation in one process.
pub const MOST: usize = 2_000;

const BLOCK: usize = 16;
/// Tokens of a hot prefix.
const HOT: usize = 2_496;
/// Tokens of a long prefix.
const LONG: usize = 32_768;
/// Tokens of a cold prompt.
const COLD: usize = 160;
const COLD_PROMPTS: usize = 10_000;
/// Tokens that are inserted.
const FRESH: usize = 256;
const LEAVES: usize = 10_000;
/// Step between two visited prompts, so that they are visited in a scattered order.
const STRIDE: usize = 7_919;

/// An operation, ready to be called.
pub type Operation = Box<dyn FnMut()>;
/// The name of an operation, and the function that prepares it.
pub type Row = (&'static str, fn() -> Operation);

pub const ROWS: [Row; 15] = [
    ("match-hot", || match_run(HOT)),
    ("match-8-branches", || match_past_branches(HOT, 8)),
    ("match-long", || match_run(LONG)),
    ("match-64-branches", || match_past_branches(LONG, 64)),
    ("match-64-turns", match_turns),
    ("match-cold", match_cold),
    ("insert", insert_tail),
    ("reserve", reserve),
    ("reserve-full", reserve_full),
    ("evict", evict),
    ("append", append),
    ("append-full", append_full),
    ("turnover", turn_over),
    ("session", session),
    ("lease-clone", lease_clone),
];

struct Bench {
    cache: PrefixCache,
    session: Session,
    space: Namespace,
    now: u64,
}

impl Bench {
    fn new(blocks: usize) -> Self {
        let cache = PrefixCache::builder(BLOCK, blocks).clock(Clock::Logical).build().expect("a sound configuration");
        Self { session: cache.session(), space: cache.default_namespace(), cache, now: 1 << 32 }
    }

    /// A cache full of sequences of one block each.
    fn of_leaves() -> Self {
        let bench = Self::new(LEAVES);
        fill_with_leaves(&bench.cache, LEAVES);
        bench
    }

    fn insert(&self, tokens: &[Token]) -> Lease {
        insert(&self.session, &self.space, &self.cache, tokens)
    }

    fn tick(&mut self) {
        self.now += 1;
        self.cache.set_time(self.now);
    }

    fn reserve(&self, blocks: usize) -> Reservation {
        self.session.reserve(blocks).expect("blocks can be evicted")
    }

    /// Matches, leases, takes block ids and releases; all of `tokens` is cached.
    fn look_up(&mut self, tokens: &[Token], blocks: &mut Vec<u32>) {
        self.tick();
        let lease = self.session.match_prefix_into(&self.space, black_box(tokens), blocks);
        assert_eq!((lease.len_tokens(), blocks.len()), (tokens.len(), tokens.len() / BLOCK));
    }
}

/// Looks up the same prompt in each call, while the leases in `keep` are held.
fn look_up_again(mut bench: Bench, prompt: Aligned, keep: Vec<Lease>) -> Operation {
    let mut blocks = Vec::new();
    Box::new(move || {
        let _ = &keep;
        bench.look_up(prompt.tokens(), &mut blocks);
    })
}

fn match_run(len: usize) -> Operation {
    let (bench, prompt) = (Bench::new(len / BLOCK), Aligned::new(&sequence(1, len)));
    let held = bench.insert(prompt.tokens());
    look_up_again(bench, prompt, vec![held])
}

fn match_past_branches(len: usize, branches: usize) -> Operation {
    let (bench, prompt) = (Bench::new((len + 2 * FRESH * branches) / BLOCK), Aligned::new(&sequence(1, len)));
    let mut keep = vec![bench.insert(prompt.tokens())];
    for branch in 0..branches {
        let at = (branch + 1) * len / (branches + 1) + branch % 3;
        keep.push(bench.insert(&[&prompt.tokens()[..at], &sequence(100 + branch as u32, FRESH)].concat()));
    }
    look_up_again(bench, prompt, keep)
}

fn match_turns() -> Operation {
    let (bench, prompt) = (Bench::new(LONG / BLOCK), Aligned::new(&sequence(1, LONG)));
    for turn in 1..=64 {
        drop(bench.insert(&prompt.tokens()[..LONG * turn / 64]));
    }
    look_up_again(bench, prompt, Vec::new())
}

fn match_cold() -> Operation {
    let mut bench = Bench::new(COLD_PROMPTS * COLD / BLOCK);
    let prompts: Vec<_> = (0..COLD_PROMPTS as u32).map(|seed| sequence(seed, COLD)).collect();
    prompts.iter().for_each(|prompt| drop(bench.insert(prompt)));
    bench.cache.settle();
    let (mut at, mut blocks) = (0, Vec::new());
    Box::new(move || {
        at = (at + STRIDE) % COLD_PROMPTS;
        bench.look_up(&prompts[at], &mut blocks);
    })
}

/// Inserts a tail after a leased prefix, with blocks that were reserved before.
fn insert_tail() -> Operation {
    let mut bench = Bench::new((HOT + MOST * FRESH) / BLOCK);
    let prefix = sequence(1, HOT);
    let held = bench.insert(&prefix);
    let tail = |seed| [&prefix[..], &sequence(seed, FRESH)].concat();
    let mut tails: VecDeque<_> = (0..MOST as u32).map(|at| (tail(7 + at), bench.reserve(FRESH / BLOCK))).collect();
    Box::new(move || {
        bench.tick();
        let (tokens, blocks) = tails.pop_front().expect("one for each call");
        let inserted = bench.session.insert(&held, &tokens, blocks).expect("it fits");
        assert_eq!(inserted.lease.len_tokens(), tokens.len());
        // Freeing the tokens is not part of the operation.
        std::mem::forget(tokens);
    })
}

/// Reserves free blocks and returns them.
fn reserve() -> Operation {
    let bench = Bench::new(4_096);
    Box::new(move || assert_eq!(black_box(bench.reserve(FRESH / BLOCK)).blocks().len(), FRESH / BLOCK))
}

/// Reserves a block in a full pool and keeps it.
fn reserve_full() -> Operation {
    let bench = Bench::of_leaves();
    let mut kept = Vec::with_capacity(MOST);
    Box::new(move || kept.push(bench.reserve(1)))
}

fn evict() -> Operation {
    let bench = Bench::of_leaves();
    Box::new(move || assert_eq!(bench.cache.evict(1), 1))
}

/// Appends a block to a chain.
fn append() -> Operation {
    let mut bench = Bench::new(MOST);
    let (tokens, mut len) = (sequence(1, MOST * BLOCK), 0);
    let mut lease = bench.session.match_prefix(&bench.space, &[]).into_lease();
    Box::new(move || {
        bench.tick();
        len += BLOCK;
        lease = bench.session.insert(&lease, &tokens[..len], bench.reserve(1)).expect("it fits").lease;
        assert_eq!(lease.len_tokens(), len);
    })
}

/// As [`append`], in a pool that is full of long sequences: each block is evicted from the end of
/// one.
fn append_full() -> Operation {
    const OLD: usize = 256;
    let mut bench = Bench::new((MOST / OLD + 2) * OLD);
    for seed in 2..(MOST / OLD + 4) as u32 {
        bench.tick();
        drop(bench.insert(&sequence(seed, OLD * BLOCK)));
    }
    bench.cache.settle();
    let (tokens, mut len) = (sequence(1, MOST * BLOCK), 0);
    let mut lease = bench.session.match_prefix(&bench.space, &[]).into_lease();
    Box::new(move || {
        bench.tick();
        len += BLOCK;
        lease = bench.session.insert(&lease, &tokens[..len], bench.reserve(1)).expect("it fits").lease;
        assert_eq!(lease.len_tokens(), len);
    })
}

/// Inserts a new prompt in a full pool.
fn turn_over() -> Operation {
    let prompts: Vec<_> = (0..2 * MOST as u32).map(|seed| sequence(seed, FRESH)).collect();
    let mut bench = Bench::new(MOST * FRESH / BLOCK);
    for prompt in &prompts[..MOST] {
        bench.tick();
        drop(bench.insert(prompt));
    }
    bench.cache.settle();
    let mut at = MOST;
    Box::new(move || {
        bench.tick();
        assert_eq!(bench.insert(&prompts[at]).len_tokens(), FRESH);
        at += 1;
    })
}

fn session() -> Operation {
    let bench = Bench::new(64);
    Box::new(move || drop(black_box(bench.cache.session())))
}

fn lease_clone() -> Operation {
    let bench = Bench::new(HOT / BLOCK);
    let held = bench.insert(&sequence(1, HOT));
    Box::new(move || assert_eq!(black_box(held.try_clone().expect("few leases")).len_tokens(), HOT))
}
