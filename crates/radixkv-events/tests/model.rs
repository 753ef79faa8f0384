//! The event log against a model of what a cache holds: random stores, trims, moves between tiers
//! and clears.

use std::collections::{BTreeMap, HashSet};

use radixkv_events::{
    BlockId, Change, Event, Follower, HashScheme, Holdings, Medium, Numbered, Recorder, Scope, Tier, Token, Verdict,
    wire::{self, Format},
};

const BLOCK_SIZE: usize = 3;
const POOL: u32 = 400;

/// A block that the model holds: whose it is, and all tokens up to its end.
type Path = (Scope, Vec<Token>);

/// What a cache holds, as the most literal program: which path each block of each tier has.
#[derive(Default)]
struct Model {
    tiers: [BTreeMap<BlockId, Path>; 2],
}

impl Model {
    fn block(&self, tier: Tier, path: &Path) -> Option<BlockId> {
        self.tiers[tier].iter().find(|(_, held)| *held == path).map(|(block, _)| *block)
    }

    fn free(&self, tier: Tier) -> Option<BlockId> {
        (0..POOL).find(|block| !self.tiers[tier].contains_key(block))
    }

    fn paths(&self) -> HashSet<Path> {
        self.tiers.iter().flat_map(|tier| tier.values().cloned()).collect()
    }

    /// A block that no other block of its tier continues.
    fn leaf(&self, random: &mut fastrand::Rng, tier: Tier) -> Option<BlockId> {
        let held = &self.tiers[tier];
        let leaves = held.iter().filter(|(_, (scope, tokens))| {
            !held
                .values()
                .any(|(other, longer)| other == scope && longer.len() > tokens.len() && longer.starts_with(tokens))
        });
        random.choice(leaves.map(|(block, _)| *block).collect::<Vec<_>>())
    }
}

fn paths_of(holdings: &Holdings) -> HashSet<Path> {
    let path = |hash| holdings.tokens_to(hash).map(|(scope, tokens)| (scope.clone(), tokens));
    holdings.names().map(|name| path(name).expect("a path to every block")).collect()
}

struct Run {
    random: fastrand::Rng,
    model: Model,
    recorder: Recorder,
    scopes: Vec<Scope>,
    log: Vec<Numbered>,
    events: usize,
}

impl Run {
    fn new(seed: u64, scheme: HashScheme) -> Self {
        let media = vec![Medium::Gpu, Medium::Cpu];
        Self {
            random: fastrand::Rng::with_seed(seed),
            model: Model::default(),
            recorder: Recorder::builder(BLOCK_SIZE, scheme).media(media).rank(3).build(),
            scopes: vec![Scope::default(), Scope::salted("tenant"), Scope::adapter("adapter")],
            log: Vec::new(),
            events: 0,
        }
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..55 => self.store(),
            55..90 => self.trim(),
            90..97 => self.offload(),
            97..99 => self.clear_scope(),
            _ if self.random.u32(..20) == 0 => self.clear(),
            _ => {}
        }
        if self.random.u32(..8) == 0 {
            self.take();
        }
    }

    fn take(&mut self) {
        if let Some(numbered) = self.recorder.take(self.log.len() as f64) {
            self.events += numbered.batch.events.len();
            self.log.push(numbered);
        }
    }

    /// Stores a path of a few tokens, so that paths share their beginnings; what is held is not
    /// stored again.
    fn store(&mut self) {
        let scope = self.random.choice(self.scopes.clone()).unwrap();
        let blocks = self.random.usize(1..6);
        let tokens: Vec<Token> = (0..blocks * BLOCK_SIZE).map(|_| self.random.u32(..2)).collect();
        let held = (0..=blocks).rev().find(|blocks| {
            *blocks == 0 || self.model.block(0, &(scope.clone(), tokens[..blocks * BLOCK_SIZE].to_vec())).is_some()
        });
        let held = held.unwrap();
        let before = &tokens[..held * BLOCK_SIZE];
        let parent = (held > 0).then(|| (0, self.model.block(0, &(scope.clone(), before.to_vec())).unwrap()));
        let mut ids = Vec::new();
        for end in held + 1..=blocks {
            let Some(block) = self.model.free(0) else { break };
            self.model.tiers[0].insert(block, (scope.clone(), tokens[..end * BLOCK_SIZE].to_vec()));
            ids.push(block);
        }
        let tokens = &tokens[held * BLOCK_SIZE..(held + ids.len()) * BLOCK_SIZE];
        self.record(Change::Stored { tier: 0, scope: &scope, parent, blocks: &ids, tokens, bigrams: false });
    }

    /// Removes a leaf and some of the blocks before it, which become leaves.
    fn trim(&mut self) {
        let tier = self.random.usize(..2);
        let mut blocks = Vec::new();
        let mut leaf = self.model.leaf(&mut self.random, tier);
        for _ in 0..self.random.usize(1..4) {
            let Some(block) = leaf else { break };
            let (scope, tokens) = self.model.tiers[tier].remove(&block).unwrap();
            blocks.push(block);
            let parent = (scope, tokens[..tokens.len() - BLOCK_SIZE].to_vec());
            let held = &self.model.tiers[tier];
            let has_child = held.values().any(|(other, longer)| {
                *other == parent.0 && longer.len() > parent.1.len() && longer.starts_with(&parent.1)
            });
            leaf = if has_child { None } else { self.model.block(tier, &parent) };
        }
        self.record(Change::Removed { tier, blocks: &blocks });
    }

    /// Stores a path that is on the device on the host too, as far as it is not there.
    fn offload(&mut self) {
        let Some((scope, path)) = self.random.choice(self.model.tiers[0].values().cloned()) else { return };
        let (mut ids, mut parent, mut from) = (Vec::new(), None, path.len());
        for end in (BLOCK_SIZE..=path.len()).step_by(BLOCK_SIZE) {
            let key = (scope.clone(), path[..end].to_vec());
            if let Some(block) = self.model.block(1, &key) {
                assert!(ids.is_empty(), "the host holds whole paths");
                parent = Some((1, block));
                continue;
            }
            let Some(block) = self.model.free(1) else { break };
            from = from.min(end - BLOCK_SIZE);
            self.model.tiers[1].insert(block, key);
            ids.push(block);
        }
        let tokens = &path[from..from + ids.len() * BLOCK_SIZE];
        self.record(Change::Stored { tier: 1, scope: &scope, parent, blocks: &ids, tokens, bigrams: false });
    }

    fn clear_scope(&mut self) {
        let scope = self.random.choice(self.scopes.clone()).unwrap();
        self.model.tiers.iter_mut().for_each(|tier| tier.retain(|_, (other, _)| *other != scope));
        self.record(Change::ScopeCleared { scope: &scope, bigrams: false });
    }

    fn clear(&mut self) {
        self.model = Model::default();
        self.record(Change::Cleared);
    }

    fn record(&mut self, change: Change<'_>) {
        self.recorder.record(&change).unwrap_or_else(|error| panic!("{change:?}: {error}"));
    }
}

/// Applying the log to nothing gives the blocks of the model at every 1,000th event, and a snapshot
/// gives them at once.
// Holds: WE4.
#[test]
fn the_log_rebuilds_what_is_held_at_every_thousandth_event() {
    for (seed, scheme) in
        [(1, HashScheme::xxh3()), (2, HashScheme::sha256_cbor("0").digests()), (3, HashScheme::sglang())]
    {
        let mut run = Run::new(seed, scheme);
        let (mut follower, mut applied, mut checked) = (Follower::new(), 0, 0);
        while checked < 4 {
            run.step();
            if run.events < 1000 * (checked + 1) {
                continue;
            }
            run.take();
            for numbered in &run.log[applied..] {
                let payload = wire::encode(&numbered.batch, Format::Maps);
                assert_eq!(follower.receive(numbered.seq, &payload), Ok(Verdict::Applied));
            }
            applied = run.log.len();
            let expected = run.model.paths();
            assert_eq!(paths_of(follower.holdings()), expected, "seed {seed}, after {} events", run.events);
            assert_eq!(follower.holdings().unrooted(), 0);
            let by_tier = follower.holdings().by_medium();
            for (tier, medium) in [Medium::Gpu, Medium::Cpu].iter().enumerate() {
                let blocks = by_tier.iter().find(|(name, _)| name == medium).map_or(0, |(_, blocks)| *blocks);
                assert_eq!(blocks, run.model.tiers[tier].len());
            }
            check_snapshot(follower.holdings(), &expected);
            checked += 1;
        }
        assert!(follower.is_complete());
    }
}

/// Applied to nothing, a snapshot gives the same, and no block comes before the block that it
/// continues.
fn check_snapshot(holdings: &Holdings, expected: &HashSet<Path>) {
    let mut again = Holdings::default();
    for event in holdings.snapshot() {
        let Event::Stored(stored) = &event else { panic!("{event:?} in a snapshot") };
        assert!(stored.parent.is_none_or(|parent| again.contains(parent)), "a child before its parent");
        again.apply(&event).unwrap();
    }
    assert_eq!(&paths_of(&again), expected);
    let in_order = |holdings: &Holdings| {
        let mut by_medium = holdings.by_medium();
        by_medium.retain(|(_, blocks)| *blocks > 0);
        by_medium.sort();
        by_medium
    };
    assert_eq!(in_order(&again), in_order(holdings));
}

/// Whatever batches are lost, the follower says so, and a snapshot makes it whole.
// Holds: WE11.
#[test]
fn lost_batches_are_noticed() {
    let mut run = Run::new(9, HashScheme::xxh3());
    while run.log.len() < 300 {
        run.step();
    }
    let (mut random, mut follower, mut truth) = (fastrand::Rng::with_seed(10), Follower::new(), Follower::new());
    let mut lost = 0;
    for numbered in &run.log {
        assert_eq!(truth.take(numbered), Ok(Verdict::Applied));
        if random.u32(..10) == 0 {
            lost += 1;
            continue;
        }
        match follower.take(numbered).unwrap() {
            Verdict::Applied => {}
            Verdict::Gap { missing } => {
                assert_eq!(missing.end, numbered.seq);
                assert_eq!(follower.next_seq().unwrap_or(0), missing.start);
                if random.bool() {
                    let next = numbered.seq + 1;
                    follower.restore(next, numbered.batch.epoch, &truth.holdings().snapshot()).unwrap();
                    assert_eq!(paths_of(follower.holdings()), paths_of(truth.holdings()));
                    assert!(follower.is_complete());
                } else {
                    follower.accept_gap(numbered.seq);
                    assert!(!follower.is_complete());
                    assert_eq!(follower.take(numbered), Ok(Verdict::Applied));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 10 && follower.counts().gaps > 10 && follower.counts().snapshots > 5, "{:?}", follower.counts());
}
