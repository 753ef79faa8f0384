//! What a listener knows of a cache.

use std::collections::HashMap;

use radixkv::{BlockId, CacheEvent, EventBatch, Keys, Namespace, NamespaceName, PrefixCache, Subscription, Token};

/// A block, by what comes before it and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    parent: Option<BlockId>,
    start: usize,
    tokens: Vec<Token>,
}

/// The blocks of one namespace, and how many each has behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Space {
    held: HashMap<BlockId, Held>,
    children: HashMap<BlockId, usize>,
}

/// The cache as a listener knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    block: usize,
    spaces: HashMap<NamespaceName, Space>,
}

impl Space {
    fn store(&mut self, parent: Option<BlockId>, start: usize, tokens: Vec<Token>, block: BlockId) {
        if let Some(parent) = parent {
            assert!(self.held.contains_key(&parent), "the block before {block} is there");
            *self.children.entry(parent).or_default() += 1;
        }
        let before = self.held.insert(block, Held { parent, start, tokens });
        assert_eq!(before, None, "{block} is stored once");
    }

    fn remove(&mut self, start: usize, block: BlockId) {
        let gone = self.held.remove(&block).expect("it was stored");
        assert_eq!(gone.start, start);
        assert!(!self.children.contains_key(&block), "what lies behind {block} goes first");
        if let Some(parent) = gone.parent {
            let children = self.children.get_mut(&parent).expect("this one");
            *children -= 1;
            if *children == 0 {
                self.children.remove(&parent);
            }
        }
    }
}

impl Log {
    pub fn new(block: usize) -> Self {
        Self { block, spaces: HashMap::new() }
    }

    /// What a snapshot holds: stores alone, one namespace after the other.
    pub fn of(block: usize, snapshot: &EventBatch) -> Self {
        let mut log = Self::new(block);
        let mut order: Vec<NamespaceName> = Vec::new();
        for event in snapshot.events() {
            let CacheEvent::Stored { namespace, .. } = &event else { panic!("not a store: {event:?}") };
            if order.last() != Some(*namespace) {
                assert!(!order.contains(namespace), "those of {namespace:?} come together");
                order.push((*namespace).clone());
            }
            log.apply(event);
        }
        log
    }

    pub fn take(&mut self, batch: &EventBatch) {
        batch.events().for_each(|event| self.apply(event));
        self.spaces.retain(|_, space| !space.held.is_empty());
    }

    /// Takes the batches before the one of this number, which are in the channel.
    pub fn take_until(&mut self, events: &mut Subscription, number: u64) {
        while events.next_number() < number {
            let expected = events.next_number();
            let batch = events.try_next().expect("published");
            assert_eq!(batch.number(), expected);
            self.take(&batch);
        }
    }

    /// Passes over the batches before the one of this number.
    pub fn skip_until(&mut self, events: &mut Subscription, number: u64) {
        while events.next_number() < number {
            events.try_next().expect("published");
        }
    }

    fn apply(&mut self, event: CacheEvent<'_>) {
        let block = self.block;
        match event {
            CacheEvent::Stored { namespace, parent, start, tokens, blocks, .. } => {
                let ahead = usize::from(namespace.keys() == Keys::Bigrams);
                assert_eq!(tokens.len(), blocks.len() * block + ahead, "{namespace:?}");
                assert!(!blocks.is_empty() && start % block == 0);
                let space = self.spaces.entry(namespace.clone()).or_default();
                let before = parent.map_or(0, |parent| space.held[&parent].start + block);
                assert_eq!(before, start, "{namespace:?}");
                let mut parent = parent;
                for (i, &id) in blocks.iter().enumerate() {
                    space.store(parent, start + i * block, tokens[i * block..][..block + ahead].to_vec(), id);
                    parent = Some(id);
                }
            }
            CacheEvent::Removed { namespace, start, blocks, .. } => {
                assert!(!blocks.is_empty());
                let space = self.spaces.get_mut(namespace).expect("it has blocks");
                for (i, id) in blocks.iter().enumerate().rev() {
                    space.remove(start + i * block, *id);
                }
            }
            CacheEvent::Cleared { namespace, .. } => _ = self.spaces.remove(namespace),
            other => panic!("unknown: {other:?}"),
        }
    }

    /// What walks see.
    pub fn walked(cache: &PrefixCache, namespaces: &[Namespace]) -> Self {
        let block = cache.block_size();
        let mut log = Self::new(block);
        for namespace in namespaces {
            let ahead = usize::from(namespace.keys() == Keys::Bigrams);
            let mut paths: Vec<(Vec<Token>, Vec<BlockId>)> = Vec::new();
            let mut space = Space::default();
            namespace.walk(|run| {
                assert_eq!(run.id, paths.len());
                let (mut tokens, mut blocks) = run.parent.map_or_else(Default::default, |parent| paths[parent].clone());
                tokens.truncate(run.start);
                blocks.truncate(run.start.saturating_sub(ahead) / block);
                tokens.extend(run.tokens);
                let first = blocks.len();
                blocks.extend(run.blocks);
                for i in first..blocks.len() {
                    let parent = i.checked_sub(1).map(|before| blocks[before]);
                    space.store(parent, i * block, tokens[i * block..][..block + ahead].to_vec(), blocks[i]);
                }
                paths.push((tokens, blocks));
            });
            if !space.held.is_empty() {
                log.spaces.insert(namespace.name(), space);
            }
        }
        log
    }
}
