//! Clears beside everything else: once a clear has returned, nothing that was computed before it is
//! found in either tier.
//!
//! `STRESS_SECONDS` says for how long the threads run; `ci/nightly.sh` runs a minute.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use radixkv::{Eviction, Namespace, NamespaceName, PrefixCache, Token, Watermarks};
use radixkv_host::{DeviceMemory, HostTier, TierMode, TieredCache, TieredSession, TieredStart, WritePolicy};

const SIZE: usize = 2;
const BYTES: usize = 8;
/// How long a thread looks for its first hit after its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device over a host, and which weights its engine computes with.
struct Engine {
    tiers: TieredCache,
    memory: Arc<DeviceMemory>,
    spaces: [Namespace; 2],
    weights: AtomicU64,
    /// The oldest weights of which each namespace may have blocks: those before were cleared.
    oldest: [AtomicU64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    mode: TierMode,
    write: WritePolicy,
    has_thread: bool,
}

impl Engine {
    fn new(plan: Plan) -> Self {
        let builder = PrefixCache::builder(SIZE, 24);
        let ahead = builder.clone().eviction(Eviction::Background(Watermarks::new(2, 6)));
        let cache = if plan.has_thread { ahead } else { builder }.build().expect("a cache");
        let memory = Arc::new(DeviceMemory::new(SIZE, BYTES, 24));
        let host = HostTier::builder(SIZE, 64).block_bytes(BYTES).build().expect("a tier");
        let tiers = TieredCache::builder(&cache, &host, Arc::clone(&memory)).mode(plan.mode).write_policy(plan.write);
        let tiers = if plan.has_thread { tiers.mover_thread(8) } else { tiers };
        let spaces = [cache.default_namespace(), cache.namespace(&["tenant"])];
        let (weights, oldest) = (AtomicU64::new(0), Default::default());
        Self { tiers: tiers.build().expect("they go together"), memory, spaces, weights, oldest }
    }

    /// New weights: what was computed with others is cleared.
    fn clear(&self, which: usize) {
        let weights = self.weights.fetch_add(1, SeqCst) + 1;
        if which == self.spaces.len() {
            self.tiers.clear();
            self.oldest.iter().for_each(|oldest| _ = oldest.fetch_max(weights, SeqCst));
        } else {
            self.tiers.clear_namespace(&self.spaces[which]);
            self.oldest[which].fetch_max(weights, SeqCst);
        }
    }

    fn weights_of(&self, block: u32) -> u64 {
        self.memory.read(block, |bytes| u64::from_le_bytes(bytes.try_into().expect("a number")))
    }

    /// Serves a prompt; whether any of it was found.
    fn serve(&self, session: &TieredSession, which: usize, prompt: &[Token]) -> bool {
        let (space, oldest) = (&self.spaces[which], self.oldest[which].load(SeqCst));
        let Ok(start) = session.acquire(space, prompt, 0) else { return false };
        // The lease is from before: what is computed with older weights than those that are read
        // here is not published.
        let weights = self.weights.load(SeqCst);
        let found = start.len_tokens() / SIZE;
        let TieredStart { lease, cached, blocks, .. } = start;
        let own = blocks.blocks();
        for &block in cached.iter().chain(own).take(found) {
            let computed = self.weights_of(block);
            assert!(computed >= oldest, "weights {computed} of {prompt:?}; those before {oldest} were cleared");
        }
        for &block in &own[found - cached.len()..] {
            self.memory.write(block, |bytes| bytes.copy_from_slice(&weights.to_le_bytes()));
        }
        // Refused if it was cleared meanwhile.
        drop(session.insert(space, &lease, prompt, blocks));
        found > 0
    }

    /// What one thread does, at least until it has found something; how often it did.
    fn work(&self, seed: u64, until: Instant) -> u64 {
        let (mut rng, mut hits) = (fastrand::Rng::with_seed(seed), 0);
        let session = self.tiers.session();
        while Instant::now() < until || (hits == 0 && Instant::now() < until + PATIENCE) {
            let which = rng.usize(0..2);
            let first = rng.u32(0..3) * 100;
            let prompt: Vec<Token> = (first..first + 2 * rng.u32(1..6)).collect();
            match rng.usize(0..100) {
                0..2 => self.clear(which),
                2 => self.clear(2),
                3..10 => _ = self.tiers.evict(rng.usize(1..8)),
                10..35 => _ = session.demote(&self.spaces[which], &prompt),
                35..45 => _ = session.prefetch(&self.spaces[which], &prompt),
                _ => hits += u64::from(self.serve(&session, which, &prompt)),
            }
        }
        hits
    }
}

// Holds: HT7.
#[test]
fn nothing_that_was_computed_before_a_clear_is_found_after_it() {
    let plans = [
        (TierMode::Exclusive, WritePolicy::Back),
        (TierMode::Shared, WritePolicy::Back),
        (TierMode::Shared, WritePolicy::Through),
    ];
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let share = Duration::from_secs_f64(seconds / 6.0);
    for has_thread in [false, true] {
        for (mode, write) in plans {
            let plan = Plan { mode, write, has_thread };
            let (engine, until, hits) = (Engine::new(plan), Instant::now() + share, AtomicU64::new(0));
            thread::scope(|scope| {
                for seed in 0..4 {
                    let (engine, hits) = (&engine, &hits);
                    scope.spawn(move || hits.fetch_add(engine.work(seed, until), Relaxed));
                }
            });
            assert!(hits.load(Relaxed) > 0, "{plan:?}: nothing was ever found");
            engine.tiers.host().validate().expect("a valid tier");
        }
    }
}

// Holds: HT7.
#[test]
fn what_is_kept_out_of_all_namespaces_comes_in_afterwards_alone() {
    let plan = Plan { mode: TierMode::Shared, write: WritePolicy::Back, has_thread: false };
    let engine = Engine::new(plan);
    let (session, host) = (engine.tiers.session(), engine.tiers.host());
    let in_host = || engine.spaces.each_ref().map(|space| host.peek(&space.name(), &[1, 2], 0));
    let evict_both = || {
        (0..2).for_each(|which| _ = engine.serve(&session, which, &[1, 2]));
        assert_eq!(engine.tiers.evict(24), 2);
    };
    evict_both();
    assert_eq!(in_host(), [2, 2]);
    let kept_out = host.keep_all_out();
    evict_both();
    assert_eq!(in_host(), [0, 0]);
    drop(kept_out);
    evict_both();
    assert_eq!(in_host(), [2, 2]);
}

#[test]
fn a_snapshot_pins_nothing_that_came_after_a_clear() {
    let cache = PrefixCache::builder(SIZE, 4).build().expect("a cache");
    let host = HostTier::builder(SIZE, 8).block_bytes(BYTES).build().expect("a tier");
    let [cleared, other] = ["cleared", "other"].map(|name| cache.namespace(&[name]).name());
    let clears: [&dyn Fn(); 2] = [&|| host.clear(), &|| drop(host.keep_out(&cleared))];
    for (clear, other_stays) in clears.into_iter().zip([false, true]) {
        let compute = || {
            for name in [&cleared, &other] {
                host.offload().reserve(name, &[1, 2], 0).publish();
            }
        };
        compute();
        let snapshot = host.snapshot();
        let pinned = |name: &NamespaceName| {
            let piece = snapshot.pieces().iter().position(|piece| piece.namespace == *name).expect("it was there");
            snapshot.pin(piece, &[1, 2], 0..1).blocks().len()
        };
        assert_eq!([pinned(&cleared), pinned(&other)], [1, 1]);
        clear();
        compute();
        assert_eq!([pinned(&cleared), pinned(&other)], [0, usize::from(other_stays)]);
        assert_eq!(host.peek(&cleared, &[1, 2], 0), 2);
    }
}
