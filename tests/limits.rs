//! The behaviour when a count reaches its limit or wraps around. `RUSTFLAGS="--cfg radixkv_tiny"`
//! makes every limit small (ci/faults.sh).
#![cfg(radixkv_tiny)]

use radixkv::{InsertErrorKind, Lease, Namespace, PrefixCache, Session, Token};

/// Leases that a prefix counts, and child runs that a branch takes, in such a build.
const LEASES: usize = 3;
const CHILDREN: u32 = 4;

const BLOCK_SIZE: usize = 4;
const CAPACITY: usize = 256;

struct Bench {
    session: Session,
    space: Namespace,
    cache: PrefixCache,
}

impl Bench {
    fn new() -> Self {
        let cache = PrefixCache::builder(BLOCK_SIZE, CAPACITY).build().expect("a sound setting");
        Self { session: cache.session(), space: cache.default_namespace(), cache }
    }

    fn lease(&self, tokens: &[Token]) -> Lease {
        self.session.match_prefix(&self.space, tokens).into_lease()
    }

    fn insert_from(&self, lease: &Lease, tokens: &[Token]) -> Result<Lease, InsertErrorKind> {
        let missing = (tokens.len() - lease.len_tokens()) / BLOCK_SIZE;
        let reservation = self.session.reserve(missing).expect("enough blocks");
        let inserted = self.session.insert(lease, tokens, reservation);
        inserted.map(|inserted| inserted.lease).map_err(|error| error.kind)
    }

    /// Match and insert; keeps nothing.
    fn serve(&self, tokens: &[Token]) -> Result<(), InsertErrorKind> {
        let lease = self.lease(tokens);
        self.insert_from(&lease, tokens).map(drop)
    }

    /// Everything was let go: all of it can be evicted.
    fn check_nothing_lost(&self) {
        self.cache.settle();
        self.cache.validate().expect("sound");
        self.cache.evict(usize::MAX);
        let stats = self.cache.stats();
        assert_eq!((stats.free_blocks, stats.runs, stats.points), (CAPACITY, 0, 0), "{stats:?}");
    }
}

fn sequence(key: u32, blocks: usize) -> Vec<Token> {
    (0..(blocks * BLOCK_SIZE) as u32).map(|i| key << 16 | i).collect()
}

// Holds: LE11.
#[test]
fn a_prefix_with_all_its_leases_matches_shorter() {
    let bench = Bench::new();
    let tokens = sequence(1, 3);
    bench.serve(&tokens).expect("it fits");
    let mut held: Vec<Lease> = Vec::new();
    for blocks in [3, 2, 1] {
        for _ in 0..LEASES {
            let found = bench.session.match_prefix(&bench.space, &tokens);
            assert_eq!((found.len_tokens(), found.blocks().len()), (blocks * BLOCK_SIZE, blocks));
            held.push(found.into_lease());
        }
    }
    assert_eq!(bench.lease(&tokens).len_tokens(), 0, "only the root is left");
    held.remove(0);
    assert_eq!(bench.lease(&tokens).len_tokens(), tokens.len(), "as soon as one goes there is room again");
    bench.cache.evict(usize::MAX);
    assert_eq!(bench.session.peek(&bench.space, &tokens), tokens.len(), "the leases protect it");
    drop(held);
    bench.check_nothing_lost();
}

// Holds: LE11.
#[test]
fn a_root_with_all_its_leases_gives_an_empty_match() {
    let bench = Bench::new();
    let held: Vec<Lease> = (0..LEASES).map(|_| bench.lease(&[])).collect();
    let empty = bench.lease(&[1, 2, 3, 4]);
    assert_eq!(empty.len_tokens(), 0);
    let refused = bench.insert_from(&empty, &[1, 2, 3, 4]).expect_err("it is of nothing");
    assert_eq!(refused, InsertErrorKind::NamespaceDropped);
    assert!(held[0].try_clone().is_err());
    drop(empty);
    drop(held);
    bench.serve(&sequence(1, 2)).expect("nothing was lost");
    bench.check_nothing_lost();
}

// Holds: IN9.
#[test]
fn an_insert_through_a_prefix_with_all_its_leases_is_refused() {
    let bench = Bench::new();
    let (tokens, longer) = (sequence(1, 2), sequence(1, 3));
    let root = bench.lease(&[]);
    bench.serve(&tokens).expect("it fits");
    let held: Vec<Lease> = (0..LEASES).map(|_| bench.lease(&tokens)).collect();
    // It comes by the whole prefix and cannot hold on to it.
    assert_eq!(bench.insert_from(&root, &longer).expect_err("no room"), InsertErrorKind::TooManyBranches);
    // Its own end is there already, and takes no further lease.
    assert_eq!(bench.insert_from(&root, &tokens).expect_err("no room"), InsertErrorKind::TooManyBranches);
    drop(held);
    drop(bench.insert_from(&root, &longer).expect("room again"));
    drop(root);
    bench.check_nothing_lost();
}

// Holds: LE11.
#[test]
fn resuming_into_a_prefix_with_all_its_leases_stays_where_it_was() {
    let bench = Bench::new();
    let tokens = sequence(1, 2);
    bench.serve(&tokens).expect("it fits");
    let first = bench.lease(&tokens[..BLOCK_SIZE]);
    let held: Vec<Lease> = (0..LEASES).map(|_| bench.lease(&tokens)).collect();
    let resumed = bench.session.resume(first, &tokens);
    assert_eq!(resumed.len_tokens(), BLOCK_SIZE);
    drop((resumed, held));
    bench.check_nothing_lost();
}

// Holds: IN9.
#[test]
fn a_branch_with_all_its_children_refuses_one_more() {
    for at in [0, 2, BLOCK_SIZE] {
        let bench = Bench::new();
        let stem = sequence(99, 2);
        let branch = |key: u32| [&stem[..at], &sequence(key, 2)[..2 * BLOCK_SIZE - at]].concat();
        if at > 0 {
            bench.serve(&stem).expect("the first");
        }
        let mut stored = (1..=2 * CHILDREN).take_while(|&key| bench.serve(&branch(key)).is_ok());
        let stored = stored.by_ref().count() as u32;
        // The root's permanent child counts as one.
        let expected = if at == 0 { CHILDREN - 1 } else { CHILDREN };
        assert_eq!(stored, expected, "branches after {at} tokens");
        assert_eq!(bench.serve(&branch(50)).expect_err("no room"), InsertErrorKind::TooManyBranches);
        bench.check_nothing_lost();
        bench.serve(&branch(50)).expect("room again");
    }
}

/// The version has two bits here: every fourth point made on a run wraps it.
#[test]
fn run_versions_wrap_and_nothing_happens() {
    let bench = Bench::new();
    let tokens = sequence(1, 40);
    bench.serve(&tokens).expect("it fits");
    for round in 0..10 {
        for blocks in (1..=39).rev() {
            assert_eq!(bench.lease(&tokens[..blocks * BLOCK_SIZE]).len_tokens(), blocks * BLOCK_SIZE);
        }
        let held = bench.lease(&tokens[..(20 - round) * BLOCK_SIZE]);
        bench.cache.evict(usize::MAX);
        assert_eq!(bench.session.peek(&bench.space, &tokens), held.len_tokens());
        bench.insert_from(&held, &tokens).expect("it fits");
    }
    bench.check_nothing_lost();
}

/// A refused insert releases what it leased on its way: a waiter may have found that leased.
#[cfg(feature = "async")]
#[test]
fn a_refused_insert_wakes_a_waiter() {
    use std::future::Future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::{Context, Wake, Waker};

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    let bench = Bench::new();
    (1..CHILDREN).for_each(|key| bench.serve(&sequence(key, 1)).expect("room"));
    let root = bench.lease(&[]);
    let (tokens, blocks) = (sequence(50, 1), bench.session.reserve(1).expect("free"));
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let mut waiting = Box::pin(bench.cache.reserve_async(CAPACITY));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let refused = bench.session.insert(&root, &tokens, blocks).expect_err("no room");
    assert_eq!(refused.kind, InsertErrorKind::TooManyBranches);
    assert!(woken.0.load(Relaxed), "before its blocks are given back");
    drop((refused, waiting, root));
    bench.check_nothing_lost();
}
