//! An index of several workers' blocks, for routers: how many blocks of a prompt each worker holds.

use std::collections::HashMap;

use radix_tree::{BlockKey, Config, ContentHash, HolderId, Overlap, OverlapScratch, RadixTree, StoreError};

use crate::{
    event::{Event, Medium, Removed, Scope, Stored, Token},
    follower::Update,
    hash::{of_first, of_tokens},
    holdings::{HoldError, media_bit},
};

/// Maximum number of blocks in a sequence; longer ones are left out of the index.
const LONGEST: u32 = 1 << 20;

/// An index of the blocks of several workers: for a prompt, how many of its first blocks each
/// worker holds.
///
/// The index is [`smg-radix-tree`](https://docs.rs/smg-radix-tree), which stores blocks that
/// several workers hold once. It compares 64-bit hashes of each block's tokens. A collision can
/// only send a request to a worse worker. A block counts in any medium. Only the first group of
/// layers that covers whole prefixes counts. Blocks of pairs ([`Stored::bigrams`]) are left out.
///
/// # Examples
///
/// ```
/// use radixkv_events::{Event, HashScheme, Scope, Stored, Update, Workers};
///
/// let tokens: Vec<u32> = (0..8).collect();
/// let hashes = HashScheme::xxh3().chain(&Scope::default(), &tokens, 4);
/// let stored = Event::Stored(Stored { hashes, tokens: tokens.clone(), block_size: 4, ..Stored::default() });
///
/// let mut workers = Workers::new(4);
/// workers.update("worker 0", Update::Applied(&stored))?;
/// let matches = workers.matches(&Scope::default(), &[tokens, vec![1; 8]].concat());
/// assert_eq!(matches, [("worker 0".to_owned(), 2)]);
/// # Ok::<_, radixkv_events::HoldError>(())
/// ```
pub struct Workers {
    block_size: usize,
    tree: RadixTree,
    holders: HashMap<String, Holder>,
    scratch: OverlapScratch,
    overlaps: Vec<Overlap>,
}

/// A worker.
struct Holder {
    id: HolderId,
    media: Vec<Medium>,
    /// The group of layers whose blocks count: the first that covers whole prefixes.
    group: Option<u32>,
    /// Its blocks, with one bit for each medium that holds the block; also blocks that the index
    /// leaves out, whose place may become known later.
    blocks: HashMap<BlockKey, u16>,
    left_out: u64,
}

impl Workers {
    /// Creates an empty index for workers with blocks of this size.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero.
    pub fn new(block_size: usize) -> Self {
        assert!(block_size > 0, "a block size of 0");
        Self {
            block_size,
            tree: RadixTree::new(Config { max_chain_len: LONGEST }),
            holders: HashMap::new(),
            scratch: OverlapScratch::default(),
            overlaps: Vec::new(),
        }
    }

    /// Applies a change of a worker's holdings; an unknown worker is added.
    ///
    /// # Errors
    ///
    /// [`HoldError`], for blocks of another size.
    pub fn update(&mut self, worker: &str, update: Update<'_>) -> Result<(), HoldError> {
        if !self.holders.contains_key(worker) {
            let id = self.tree.create_holder(worker);
            let holder = Holder { id, media: Vec::new(), group: None, blocks: HashMap::new(), left_out: 0 };
            self.holders.insert(worker.to_owned(), holder);
        }
        let holder = self.holders.get_mut(worker).expect("added above");
        match update {
            Update::Applied(Event::Stored(stored)) => holder.store(&mut self.tree, self.block_size, stored)?,
            Update::Applied(Event::Removed(removed)) => holder.remove(&mut self.tree, removed)?,
            Update::Applied(Event::Cleared) | Update::Forgotten => {
                self.tree.clear(holder.id);
                holder.blocks.clear();
            }
        }
        Ok(())
    }

    /// Forgets a worker.
    pub fn remove(&mut self, worker: &str) {
        if let Some(holder) = self.holders.remove(worker) {
            self.tree.retire_holder(holder.id);
        }
    }

    /// For each worker, the number of whole blocks that it holds from the start of a prompt. The
    /// best worker is first; workers without such blocks are omitted.
    pub fn matches(&mut self, scope: &Scope, tokens: &[Token]) -> Vec<(String, usize)> {
        let contents: Vec<_> = contents(scope, true, tokens, self.block_size).collect();
        self.tree.overlap(&contents, &mut self.scratch, &mut self.overlaps);
        let named = self.overlaps.iter().filter_map(|overlap| {
            let worker = self.tree.holder_name(overlap.holder)?;
            Some((worker.to_owned(), overlap.depth as usize))
        });
        let mut matches: Vec<_> = named.filter(|(_, blocks)| *blocks > 0).collect();
        matches.sort_unstable_by(|(a, more), (b, blocks)| blocks.cmp(more).then_with(|| a.cmp(b)));
        matches
    }

    /// The number of a worker's blocks in the index.
    pub fn blocks(&self, worker: &str) -> u64 {
        self.holders.get(worker).map_or(0, |holder| self.tree.holder_blocks(holder.id))
    }

    /// The number of a worker's stored blocks that the index left out so far: their parents or
    /// tokens are unknown, they hold pairs, or their sequence is longer than 2^20 blocks.
    pub fn left_out(&self, worker: &str) -> u64 {
        self.holders.get(worker).map_or(0, |holder| holder.left_out)
    }
}

impl Holder {
    fn store(&mut self, tree: &mut RadixTree, block_size: usize, stored: &Stored) -> Result<(), HoldError> {
        let index = stored.group.index.unwrap_or(0);
        if !stored.group.covers_prefixes() || *self.group.get_or_insert(index) != index {
            return Ok(());
        }
        let bit = media_bit(&mut self.media, stored.medium.as_ref().unwrap_or(&Medium::Gpu))?;
        let keys = stored.hashes.iter().map(|hash| hash.bits());
        if stored.tokens.is_empty() {
            // Known blocks are now in one more medium. The tokens of other blocks are unknown.
            for key in keys {
                self.left_out += u64::from(tree.position_of(self.id, key).is_none());
                *self.blocks.entry(key).or_default() |= bit;
            }
            return Ok(());
        }
        if stored.block_size as usize != block_size {
            return Err(HoldError::BlockSize { expected: block_size as u32, got: stored.block_size });
        }
        let contents = contents(&stored.scope, stored.parent.is_none(), &stored.tokens, block_size);
        let blocks: Vec<(BlockKey, ContentHash)> = keys.zip(contents).collect();
        let parent = stored.parent.map(|parent| parent.bits());
        let added = if stored.bigrams { Err(StoreError::ParentNotFound) } else { tree.store(self.id, parent, &blocks) };
        if added.is_err() {
            self.left_out += blocks.len() as u64;
        }
        blocks.iter().for_each(|(key, _)| *self.blocks.entry(*key).or_default() |= bit);
        Ok(())
    }

    fn remove(&mut self, tree: &mut RadixTree, removed: &Removed) -> Result<(), HoldError> {
        if self.group.is_some_and(|group| group != removed.group.index.unwrap_or(0)) {
            return Ok(());
        }
        let left = match &removed.medium {
            Some(medium) => media_bit(&mut self.media, medium)?,
            None => u16::MAX,
        };
        let mut gone = Vec::new();
        for key in removed.hashes.iter().map(|hash| hash.bits()) {
            let Some(media) = self.blocks.get_mut(&key) else { continue };
            *media &= !left;
            if *media == 0 {
                self.blocks.remove(&key);
                gone.push(key);
            }
        }
        tree.remove(self.id, &gone);
        Ok(())
    }
}

/// The hashes by which the index compares whole blocks. The scope is hashed into the first block
/// only; every path begins there.
fn contents(scope: &Scope, from_start: bool, tokens: &[Token], block_size: usize) -> impl Iterator<Item = ContentHash> {
    let mut bytes = Vec::new();
    tokens.chunks_exact(block_size).enumerate().map(move |(at, block)| {
        if from_start && at == 0 { of_first(scope, block, &mut bytes) } else { of_tokens(block, &mut bytes) }
    })
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let workers = self.holders.keys();
        f.debug_struct("Workers")
            .field("block_size", &self.block_size)
            .field("workers", &workers)
            .finish_non_exhaustive()
    }
}
