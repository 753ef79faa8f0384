//! Many points on one run: the same answers as the reference, and no trim that looks at all of
//! them.

use fastrand::Rng;
use radixkv::{Lease, PolicyKind, Token};
use radixkv_reference::{self as reference, Reference};

use crate::{Bench, sequence};

const LEN: usize = 400;

/// A long sequence and branches from every depth of it, on the cache and on the reference.
struct Pair {
    bench: Bench,
    reference: Reference,
    held: Vec<(Lease, reference::Lease)>,
}

impl Pair {
    fn new(policy: PolicyKind) -> Self {
        let capacity = 2 * LEN + 8;
        Self {
            bench: Bench::with_policy(1, capacity, policy),
            reference: Reference::new(1, capacity, policy),
            held: Vec::new(),
        }
    }

    fn insert(&mut self, tokens: &[Token], hold: bool) {
        let lease = self.bench.matched(tokens);
        let literal = self.reference.match_prefix(&[], tokens).lease;
        let missing = tokens.len() - lease.len_tokens();
        let mut leases = (lease, literal);
        if let Ok(blocks) = self.bench.session.reserve(missing) {
            let literal_blocks = self.reference.reserve(missing).expect("as many blocks");
            let inserted = self.bench.session.insert(&leases.0, tokens, blocks).expect("it fits");
            let literal = self.reference.insert(&leases.1, tokens, literal_blocks).expect("it fits");
            self.reference.release(leases.1);
            leases = (inserted.lease, literal.lease);
        } else {
            assert!(self.reference.reserve(missing).is_err(), "the reference has blocks");
        }
        self.keep(leases, hold);
    }

    fn matched(&mut self, tokens: &[Token], hold: bool) {
        let leases = (self.bench.matched(tokens), self.reference.match_prefix(&[], tokens).lease);
        assert_eq!(leases.0.len_tokens(), self.reference.peek(&[], tokens));
        self.keep(leases, hold);
    }

    fn keep(&mut self, leases: (Lease, reference::Lease), hold: bool) {
        self.held.push(leases);
        if !hold {
            self.release(self.held.len() - 1);
        }
    }

    fn release(&mut self, at: usize) {
        self.reference.release(self.held.swap_remove(at).1);
    }

    fn compare(&mut self, sequences: &[Vec<Token>]) {
        for tokens in sequences {
            assert_eq!(self.bench.peek(tokens), self.reference.peek(&[], tokens));
        }
        let stats = self.reference.stats();
        let [free, _, evictable, protected] = self.bench.accounts();
        assert_eq!([free, evictable, protected], [stats.free_blocks, stats.evictable_blocks, stats.protected_blocks]);
    }
}

/// `depth` tokens of the long sequence and one of its own.
fn branch(depth: usize) -> Vec<Token> {
    let mut tokens = sequence(1, depth);
    tokens.push(2 << 16 | depth as u32);
    tokens
}

// Holds: EV9.
#[test]
fn a_run_of_many_points_answers_as_the_reference_does() {
    let sequences: Vec<_> = (1..LEN).map(branch).chain([sequence(1, LEN)]).collect();
    for (seed, policy) in
        [PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Filo, PolicyKind::Level].into_iter().enumerate()
    {
        let mut pair = Pair::new(policy);
        let mut rng = Rng::with_seed(seed as u64);
        for step in 0..2_500_u64 {
            pair.bench.cache.set_time(step);
            pair.reference.set_time(step);
            let depth = rng.usize(1..LEN);
            match rng.u8(..20) {
                0 => pair.insert(&sequence(1, LEN), rng.bool()),
                1..9 => pair.insert(&branch(depth), rng.u8(..4) == 0),
                9..13 => pair.matched(&sequence(1, depth), rng.bool()),
                13..18 if !pair.held.is_empty() => pair.release(rng.usize(..pair.held.len())),
                18 => {
                    // From time to time few points are left, and become many again.
                    let want = if rng.u8(..4) == 0 { rng.usize(..2 * LEN) } else { rng.usize(..40) };
                    assert_eq!(pair.bench.cache.evict(want), pair.reference.evict(want), "{policy}, step {step}");
                }
                _ => {}
            }
            if step % 100 == 99 {
                pair.compare(&sequences);
            }
        }
        while !pair.held.is_empty() {
            pair.release(0);
        }
        while pair.reference.evict(7) > 0 {
            assert!(pair.bench.cache.evict(7) > 0);
            pair.compare(&sequences[LEN - 50..]);
        }
        assert_eq!(pair.bench.accounts(), [2 * LEN + 8, 0, 0, 0]);
    }
}

/// Leases that are there before the points become many, and go afterwards, the deepest first.
// Holds: EV9.
#[test]
fn leases_protect_while_points_become_many_and_few_again() {
    let bench = Bench::new(1, 2 * LEN);
    let long = sequence(1, LEN);
    drop(bench.insert(&long));
    let mut held: Vec<_> = (1..10).map(|i| bench.matched(&long[..i * 10])).collect();
    (1..LEN).for_each(|depth| drop(bench.insert(&branch(depth))));
    // Each lease protects up to its depth.
    while let Some(lease) = held.pop() {
        let blocks = 2 * LEN - 1;
        assert_eq!(bench.accounts(), [1, 0, blocks - lease.len_tokens(), lease.len_tokens()]);
    }
    let held = bench.matched(&long[..20]);
    assert_eq!(bench.cache.evict(usize::MAX), 2 * LEN - 1 - 20);
    assert_eq!(bench.accounts(), [2 * LEN - 20, 0, 0, 20]);
    drop(held);
    assert_eq!(bench.accounts(), [2 * LEN - 20, 0, 20, 0]);
}
