//! Routers that follow the KV events of vLLM and SGLang, given ours: dynamo-kv-router decodes the
//! bytes, kv-index and dynamo's tree hold what they say, and each answers every prompt as the
//! events' own reader does.

use std::collections::HashSet;

use dynamo_kv_router::{
    RadixTree,
    protocols::{BlockHashOptions, WorkerWithDpRank, compute_block_hash_for_seq},
    zmq_wire::{RawKvEvent, ZmqEventNormalizer, decode_event_batch},
};
use kv_index::{ChainBlockMap, ChainIndex, SequenceHash, StoredBlock, compute_request_content_hashes};
use radixkv::PrefixCache;
use radixkv_events::{
    BlockId, CacheRecorder, Change, Event, Follower, HashScheme, Holdings, Recorder, Scope, Token, Verdict, Workers,
    wire::{self, Format},
};
use radixkv_replay::workload::CLASSES;

const BLOCK_SIZE: usize = 4;
const WORKER: u64 = 7;
const POOL: u32 = 300;
/// Requests of the trace, and blocks of the cache that serves it.
const REQUESTS: usize = 400;
const CAPACITY: usize = 3_000;

/// Random numbers that are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A worker that stores and trims paths of few different tokens.
struct Worker {
    random: Random,
    recorder: Recorder,
    scopes: Vec<Scope>,
    /// What is held: scope, tokens to the block's end, block.
    held: Vec<(usize, Vec<Token>, BlockId)>,
    free: Vec<BlockId>,
}

impl Worker {
    fn new(scheme: HashScheme, scopes: Vec<Scope>) -> Self {
        let recorder = Recorder::builder(BLOCK_SIZE, scheme).rank(0).build();
        Self { random: Random(5), recorder, scopes, held: Vec::new(), free: (0..POOL).collect() }
    }

    fn prompt(&mut self) -> (usize, Vec<Token>) {
        let scope = self.random.below(self.scopes.len());
        let length = (1 + self.random.below(5)) * BLOCK_SIZE;
        (scope, (0..length).map(|_| self.random.below(2) as Token).collect())
    }

    fn block(&self, scope: usize, tokens: &[Token]) -> Option<BlockId> {
        self.held.iter().find(|(of, path, _)| *of == scope && path == tokens).map(|(.., block)| *block)
    }

    fn store(&mut self) {
        let (scope, tokens) = self.prompt();
        let mut parent = None;
        for end in (BLOCK_SIZE..=tokens.len()).step_by(BLOCK_SIZE) {
            if let Some(block) = self.block(scope, &tokens[..end]) {
                parent = Some((0, block));
                continue;
            }
            let Some(block) = self.free.pop() else { return };
            let of = self.scopes[scope].clone();
            let tokens_of_block = &tokens[end - BLOCK_SIZE..end];
            let change = Change::Stored {
                tier: 0,
                scope: &of,
                parent,
                blocks: &[block],
                tokens: tokens_of_block,
                bigrams: false,
            };
            self.recorder.record(&change).expect("a change that can be");
            self.held.push((scope, tokens[..end].to_vec(), block));
            parent = Some((0, block));
        }
    }

    /// Removes a block that no other continues.
    fn trim(&mut self) {
        let is_leaf = |(scope, path, _): &(usize, Vec<Token>, BlockId)| {
            !self.held.iter().any(|(of, other, _)| of == scope && other.len() > path.len() && other.starts_with(path))
        };
        let leaves: Vec<_> = (0..self.held.len()).filter(|&at| is_leaf(&self.held[at])).collect();
        if leaves.is_empty() {
            return;
        }
        let leaf = leaves[self.random.below(leaves.len())];
        let (.., block) = self.held.swap_remove(leaf);
        self.recorder.record(&Change::Removed { tier: 0, blocks: &[block] }).expect("a block that is held");
        self.free.push(block);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..50 => self.store(),
            50..99 => self.trim(),
            _ if self.random.below(20) == 0 => {
                self.recorder.record(&Change::Cleared).expect("it always can");
                self.free.extend(self.held.drain(..).map(|(.., block)| block));
            }
            _ => {}
        }
    }
}

/// Whole blocks of a prompt that are held, one after the other from the first.
fn counted(holdings: &Holdings, scope: &Scope, prompt: &[Token]) -> usize {
    let paths: HashSet<_> = holdings.names().filter_map(|name| holdings.tokens_to(name)).collect();
    let ends = (BLOCK_SIZE..=prompt.len()).step_by(BLOCK_SIZE);
    ends.take_while(|&end| paths.contains(&(scope, prompt[..end].to_vec()))).count()
}

/// dynamo-kv-router, from the bytes on.
struct Dynamo {
    normalizer: ZmqEventNormalizer,
    tree: RadixTree,
    events: u64,
}

impl Dynamo {
    fn take(&mut self, payload: &[u8]) {
        let worker = WorkerWithDpRank::new(WORKER, 0);
        for raw in decode_event_batch(payload).expect("a batch").events {
            assert!(!matches!(raw, RawKvEvent::Ignored));
            let placed = self.normalizer.normalize(raw, self.events, worker).expect("an event that counts");
            let event = placed.into_router_event().expect("an event of a worker");
            self.tree.apply_event(event).expect("an event that follows from those before");
            self.events += 1;
        }
    }

    fn depth(&self, scope: &Scope, prompt: &[Token]) -> usize {
        let options = BlockHashOptions {
            lora_name: scope.lora_name.as_deref(),
            cache_namespace: scope.cache_salt.as_deref(),
            ..Default::default()
        };
        let sequence = compute_block_hash_for_seq(prompt, BLOCK_SIZE as u32, options);
        self.tree.find_matches(sequence, false).scores.values().copied().max().unwrap_or(0) as usize
    }
}

/// kv-index, from the decoded events on; it knows no scopes.
struct Chains {
    index: ChainIndex,
    worker: u32,
    map: ChainBlockMap,
}

impl Chains {
    fn take(&mut self, event: &Event) {
        let key = |hash: &radixkv_events::BlockHash| SequenceHash(hash.bits());
        match event {
            Event::Stored(stored) => {
                let contents = compute_request_content_hashes(&stored.tokens, BLOCK_SIZE);
                let blocks = stored.hashes.iter().zip(contents);
                let blocks: Vec<_> =
                    blocks.map(|(hash, content_hash)| StoredBlock { seq_hash: key(hash), content_hash }).collect();
                let parent = stored.parent.as_ref().map(key);
                self.index.apply_stored(self.worker, &blocks, parent, &mut self.map).expect("the parent is stored");
            }
            Event::Removed(removed) => {
                let keys: Vec<_> = removed.hashes.iter().map(key).collect();
                self.index.apply_removed(self.worker, &keys, &mut self.map);
            }
            Event::Cleared => self.index.apply_cleared(self.worker, &mut self.map),
        }
    }

    fn depth(&self, prompt: &[Token]) -> usize {
        let (contents, mut depth) = (compute_request_content_hashes(prompt, BLOCK_SIZE), 0);
        self.index.score_into(&contents, |content| content.0, false, |_, score| depth = depth.max(score));
        depth as usize
    }
}

/// Random stores, trims and clears in bytes of both formats; then every reader says the same of
/// every prompt.
fn agree(scheme: HashScheme, format: Format, scopes: Vec<Scope>) {
    let is_plain = scopes.len() == 1;
    let mut worker = Worker::new(scheme, scopes);
    let normalizer = ZmqEventNormalizer::new(BLOCK_SIZE as u32);
    let mut dynamo = Dynamo { normalizer, tree: RadixTree::new(), events: 0 };
    let index = ChainIndex::new();
    let mut chains = Chains { worker: index.intern_worker("w").expect("one worker"), index, map: ChainBlockMap::new() };
    let (mut follower, mut workers) = (Follower::new(), Workers::new(BLOCK_SIZE));
    let mut prompts = 0;
    for _ in 0..400 {
        (0..10).for_each(|_| worker.step());
        let Some(numbered) = worker.recorder.take(1.0) else { continue };
        let payload = wire::encode(&numbered.batch, format);
        dynamo.take(&payload);
        assert_eq!(follower.receive(numbered.seq, &payload), Ok(Verdict::Applied));
        for event in &numbered.batch.events {
            workers.update("w", radixkv_events::Update::Applied(event)).expect("one block size");
            if is_plain {
                chains.take(event);
            }
        }
        for _ in 0..5 {
            let (scope, prompt) = worker.prompt();
            let scope = worker.scopes[scope].clone();
            let expected = counted(follower.holdings(), &scope, &prompt);
            assert_eq!(dynamo.depth(&scope, &prompt), expected, "dynamo-kv-router, {scope:?}, {prompt:?}");
            let own = workers.matches(&scope, &prompt).first().map_or(0, |(_, blocks)| *blocks);
            assert_eq!(own, expected, "smg-radix-tree, {scope:?}, {prompt:?}");
            if is_plain {
                assert_eq!(chains.depth(&prompt), expected, "kv-index, {prompt:?}");
            }
            prompts += usize::from(expected > 0);
        }
    }
    assert!(prompts > 500 && dynamo.events > 1_000, "{prompts} prompts with blocks, {} events", dynamo.events);
}

#[test]
fn routers_answer_as_the_events_say() {
    agree(HashScheme::xxh3(), Format::Maps, vec![Scope::default()]);
    agree(HashScheme::sglang(), Format::Arrays, vec![Scope::default()]);
}

/// The routers that follow a cache's own events, and how far they were asked.
struct Routers {
    recorder: CacheRecorder,
    dynamo: Dynamo,
    chains: Chains,
    workers: Workers,
    removals: usize,
    hits: usize,
}

impl Routers {
    fn of(cache: &PrefixCache) -> Self {
        let normalizer = ZmqEventNormalizer::new(BLOCK_SIZE as u32);
        let index = ChainIndex::new();
        Self {
            recorder: CacheRecorder::builder(cache, HashScheme::sha256_cbor("0")).rank(0).build(),
            dynamo: Dynamo { normalizer, tree: RadixTree::new(), events: 0 },
            chains: Chains { worker: index.intern_worker("w").expect("one worker"), index, map: ChainBlockMap::new() },
            workers: Workers::new(BLOCK_SIZE),
            removals: 0,
            hits: 0,
        }
    }

    fn catch_up(&mut self) {
        while let Some(numbered) = self.recorder.next().expect("events that follow from one another") {
            self.dynamo.take(&wire::encode(&numbered.batch, Format::Maps));
            for event in &numbered.batch.events {
                self.chains.take(event);
                self.workers.update("w", radixkv_events::Update::Applied(event)).expect("one block size");
                self.removals += usize::from(matches!(event, Event::Removed(_)));
            }
        }
    }

    fn agree(&mut self, cache: &PrefixCache, prompt: &[Token]) {
        let expected = cache.session().peek(&cache.default_namespace(), prompt) / BLOCK_SIZE;
        let plain = &Scope::default();
        assert_eq!(self.dynamo.depth(plain, prompt), expected, "dynamo-kv-router");
        assert_eq!(self.chains.depth(prompt), expected, "kv-index");
        let own = self.workers.matches(plain, prompt).first().map_or(0, |(_, blocks)| *blocks);
        assert_eq!(own, expected, "smg-radix-tree");
        self.hits += usize::from(expected > 0);
    }
}

/// A trace is served from a cache that evicts: routers that get its events answer every prompt as
/// the cache does.
#[test]
fn routers_answer_as_the_cache_does() {
    let class = CLASSES.iter().find(|class| class.name == "multi-turn").expect("a class");
    let trace = class.trace(0);
    let requests = &trace.requests()[..REQUESTS];
    let prompt = |number: usize| {
        let mut tokens = vec![0; requests[number].prompt_tokens()];
        trace.fill(&requests[number], &mut tokens);
        tokens
    };
    let cache = PrefixCache::builder(BLOCK_SIZE, CAPACITY).build().expect("a cache");
    let (session, space, mut routers) = (cache.session(), cache.default_namespace(), Routers::of(&cache));
    for number in 0..REQUESTS {
        let tokens = prompt(number);
        let hit = session.match_prefix(&space, &tokens);
        let missing = tokens.len() / BLOCK_SIZE - hit.len_tokens() / BLOCK_SIZE;
        let blocks = session.reserve(missing).expect("no other lease is held");
        drop(session.insert(hit.lease(), &tokens, blocks).expect("blocks for the rest"));
        routers.catch_up();
        // The request that was served, one of those before it, and the next one.
        for asked in [number, number / 2, (number + 1).min(REQUESTS - 1)] {
            routers.agree(&cache, &prompt(asked));
        }
    }
    let evicted = cache.stats().evicted_blocks;
    println!("{evicted} blocks evicted in {} events, {} answers with blocks", routers.removals, routers.hits);
    assert!(evicted > 10 * CAPACITY as u64 && routers.removals > 300 && routers.hits > REQUESTS);
}

/// Adapters and salts keep equal tokens apart, for dynamo-kv-router too.
#[test]
fn routers_keep_scopes_apart() {
    let scopes = vec![Scope::default(), Scope::adapter("an adapter"), Scope::salted("a tenant")];
    agree(HashScheme::sha256_cbor("0"), Format::Maps, scopes);
}
