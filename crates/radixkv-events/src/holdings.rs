//! The blocks that a worker holds, rebuilt from its events.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::{
    event::{Event, Group, Medium, Removed, Scope, Stored, Token},
    hash::BlockHash,
};

/// Maximum number of media that one worker may name (bits of [`Held::media`]).
const MEDIA: usize = 16;
/// Maximum number of groups of layers that one worker may name.
const GROUPS: usize = 64;

/// A block, and the group of layers that it belongs to.
type Key = (BlockHash, u32);

/// The blocks that a worker holds, by name, with their tokens.
///
/// [`apply`](Self::apply) updates it. The block size is set by
/// [`with_block_size`](Self::with_block_size) or else by the first event with tokens; events with
/// another block size are refused. Groups of layers that do not cover whole prefixes
/// ([`Group::covers_prefixes`]) are ignored. A block stays even if its parent is not held;
/// [`tokens_to`](Self::tokens_to) returns `None` for it.
#[derive(Debug, Clone, Default)]
pub struct Holdings {
    block_size: Option<u32>,
    media: Vec<Medium>,
    groups: Vec<u32>,
    blocks: HashMap<Key, Held>,
    /// Memory of the blocks in bytes, as [`Held::bytes`] counts it.
    bytes: usize,
    max_bytes: Option<usize>,
}

/// A block that is held.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    parent: Option<BlockHash>,
    /// The block's own tokens. Empty if the publisher never sent them; then the parent is unknown
    /// as well.
    tokens: Box<[Token]>,
    /// One bit for each medium that holds the block.
    media: u16,
    scope: Arc<Scope>,
    bigrams: bool,
}

impl Held {
    /// Maximum memory of a block with this many tokens, in bytes. A hash table that has just grown
    /// has two slots for each entry; a shared scope is counted for each of its blocks.
    fn bytes_of(tokens: usize, scope: &Scope) -> usize {
        let texts = [&scope.lora_name, &scope.cache_salt].map(|text| text.as_ref().map_or(0, String::len));
        2 * size_of::<(Key, Self)>() + tokens * size_of::<Token>() + texts[0] + texts[1]
    }

    fn bytes(&self) -> usize {
        Self::bytes_of(self.tokens.len(), &self.scope)
    }
}

/// Why an event was not applied. The holdings are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The worker has another block size: follow a worker with the expected size, or expect this
    /// size.
    #[error("the worker has blocks of {got} tokens, {expected} expected")]
    BlockSize {
        /// The expected tokens per block.
        expected: u32,
        /// Tokens per block of the event.
        got: u32,
    },
    /// The publisher names too many media.
    #[error("the publisher names more than {MEDIA} media")]
    TooManyMedia,
    /// The publisher names too many groups of layers.
    #[error("the publisher names more than {GROUPS} groups of layers")]
    TooManyGroups,
    /// The worker's blocks exceed the memory limit: raise it, or follow a worker that holds less.
    #[error("the worker's blocks need more than {} MiB", max_bytes >> 20)]
    TooManyBlocks {
        /// The limit in bytes ([`Holdings::max_bytes`]).
        max_bytes: usize,
    },
}

impl Holdings {
    /// Creates empty holdings for blocks of this size.
    pub fn with_block_size(block_size: u32) -> Self {
        Self { block_size: Some(block_size), ..Self::default() }
    }

    /// Limits the memory of the blocks, in bytes; blocks beyond it are refused. Default: no limit.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: Some(bytes), ..self }
    }

    /// Applies an event.
    ///
    /// # Errors
    ///
    /// [`HoldError`], if the block size differs from earlier events, or if a limit is exceeded.
    pub fn apply(&mut self, event: &Event) -> Result<(), HoldError> {
        match event {
            Event::Stored(stored) => self.store(stored)?,
            Event::Removed(removed) => self.remove(removed)?,
            Event::Cleared => self.clear(),
        }
        Ok(())
    }

    /// Forgets all blocks. The block size stays.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.bytes = 0;
    }

    /// Tokens per block, once it is known.
    pub fn block_size(&self) -> Option<u32> {
        self.block_size
    }

    /// The number of blocks that are held, in any medium. In models with several groups of layers,
    /// each group's block counts.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a block is held, in any medium and group.
    pub fn contains(&self, hash: BlockHash) -> bool {
        self.find(hash).is_some()
    }

    /// The names of the blocks that are held, group by group.
    pub fn names(&self) -> impl Iterator<Item = BlockHash> {
        self.blocks.keys().map(|(hash, _)| *hash)
    }

    /// The number of blocks in each medium. A block in several media counts in each.
    pub fn by_medium(&self) -> Vec<(Medium, usize)> {
        let mut blocks = vec![0; self.media.len()];
        for held in self.blocks.values() {
            blocks.iter_mut().enumerate().for_each(|(at, blocks)| *blocks += usize::from(held.media >> at & 1));
        }
        self.media.iter().cloned().zip(blocks).collect()
    }

    /// The number of blocks whose tokens the publisher has not sent.
    pub fn tokenless(&self) -> usize {
        self.blocks.values().filter(|held| held.tokens.is_empty()).count()
    }

    /// The number of blocks without a known path from the start of a sequence: an ancestor is not
    /// held, or its tokens are unknown.
    pub fn unrooted(&self) -> usize {
        let mut rooted = HashMap::with_capacity(self.blocks.len());
        self.blocks.keys().filter(|key| !self.is_rooted(**key, &mut rooted)).count()
    }

    /// The scope of a block, and all tokens from the start of its sequence to the end of the block;
    /// `None` if the block or an ancestor is not held, or if tokens are unknown.
    pub fn tokens_to(&self, hash: BlockHash) -> Option<(&Scope, Vec<Token>)> {
        let (mut blocks, mut next) = (Vec::new(), Some(hash));
        while let Some(hash) = next {
            let held = self.find(hash)?;
            // A publisher can claim that a block is its own ancestor, or send no tokens.
            if blocks.len() > self.blocks.len() || held.tokens.is_empty() {
                return None;
            }
            blocks.push(held);
            next = held.parent;
        }
        let scope = &*blocks.first()?.scope;
        let mut tokens = Vec::new();
        for held in blocks.iter().rev() {
            // A block of pairs begins with the token that the block before it ends with.
            let shared = usize::from(held.bigrams && !tokens.is_empty());
            tokens.extend_from_slice(&held.tokens[shared..]);
        }
        Some((scope, tokens))
    }

    /// Lists the holdings as events, parents before children. Applied to empty holdings, the events
    /// give the same holdings.
    pub fn snapshot(&self) -> Vec<Event> {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        let mut starts = Vec::new();
        for (&key, held) in &self.blocks {
            match held.parent.map(|parent| (parent, key.1)) {
                Some(parent) if self.blocks.contains_key(&parent) => children.entry(parent).or_default().push(key),
                _ => starts.push(key),
            }
        }
        let mut events = Vec::new();
        while let Some(start) = starts.pop() {
            let mut chain = vec![start];
            // Each block has one parent, so it is reached once. Blocks in a cycle are not reached.
            let mut last = start;
            while let Some(next) = children.remove(&last) {
                let (same, other): (Vec<_>, Vec<_>) = next.into_iter().partition(|key| self.is_alike(start, *key));
                starts.extend(other);
                let mut same = same.into_iter();
                let Some(next) = same.next() else { break };
                starts.extend(same);
                chain.push(next);
                last = next;
            }
            events.extend(self.stored_of(&chain));
        }
        events
    }

    /// Finds a block in the first group that has it.
    fn find(&self, hash: BlockHash) -> Option<&Held> {
        self.groups.iter().find_map(|&group| self.blocks.get(&(hash, group)))
    }

    fn store(&mut self, stored: &Stored) -> Result<(), HoldError> {
        if !stored.group.covers_prefixes() {
            return Ok(());
        }
        let expected = self.block_size.unwrap_or(stored.block_size);
        let are_said = !stored.tokens.is_empty();
        if are_said && expected != stored.block_size {
            return Err(HoldError::BlockSize { expected, got: stored.block_size });
        }
        let medium = stored.medium.as_ref().unwrap_or(&Medium::Gpu);
        self.check_room(stored, medium)?;
        let bit = media_bit(&mut self.media, medium)?;
        let group = self.group(&stored.group)?;
        if are_said {
            self.block_size = Some(expected);
        }
        let scope = Arc::new(stored.scope.clone());
        let mut parent = stored.parent.filter(|_| are_said);
        for (at, &hash) in stored.hashes.iter().enumerate() {
            let from = at * expected as usize;
            let to = from + expected as usize + usize::from(stored.bigrams);
            let tokens = stored.tokens.get(from..to).unwrap_or_default();
            let entry = self.blocks.entry((hash, group));
            let media = match &entry {
                Entry::Occupied(held) => held.get().media | bit,
                Entry::Vacant(_) => bit,
            };
            let is_known = matches!(&entry, Entry::Occupied(held) if !held.get().tokens.is_empty());
            if is_known {
                entry.and_modify(|held| held.media = media);
            } else {
                if let Entry::Occupied(held) = &entry {
                    self.bytes -= held.get().bytes();
                }
                let (scope, bigrams) = (Arc::clone(&scope), stored.bigrams);
                let held = Held { parent, tokens: tokens.into(), media, scope, bigrams };
                self.bytes += held.bytes();
                entry.insert_entry(held);
            }
            parent = Some(hash).filter(|_| are_said);
        }
        Ok(())
    }

    fn remove(&mut self, removed: &Removed) -> Result<(), HoldError> {
        let left = match &removed.medium {
            Some(medium) => {
                self.check_bytes(self.media_bytes(medium))?;
                media_bit(&mut self.media, medium)?
            }
            None => u16::MAX,
        };
        let group = self.group(&removed.group)?;
        for &hash in &removed.hashes {
            let Entry::Occupied(mut held) = self.blocks.entry((hash, group)) else { continue };
            held.get_mut().media &= !left;
            if held.get().media == 0 {
                self.bytes -= held.remove().bytes();
            }
        }
        Ok(())
    }

    /// Fails if the new blocks of an event exceed the memory limit.
    fn check_room(&self, stored: &Stored, medium: &Medium) -> Result<(), HoldError> {
        let (group, are_said) = (stored.group.index.unwrap_or(0), !stored.tokens.is_empty());
        // A block of pairs stores one token more: the first token of the next block.
        let tokens = if are_said { stored.block_size as usize + usize::from(stored.bigrams) } else { 0 };
        let texts = self.media_bytes(medium);
        let block = Held::bytes_of(tokens, &stored.scope);
        let room = |blocks: usize| self.check_bytes(blocks.saturating_mul(block).saturating_add(texts));
        let held = |hash: BlockHash| self.blocks.get(&(hash, group));
        let is_new = |hash| held(hash).is_none_or(|held| are_said && held.tokens.is_empty());
        let new = || stored.hashes.iter().filter(|&&hash| is_new(hash)).count();
        room(stored.hashes.len()).or_else(|_| room(new()))
    }

    /// Fails if `more` bytes would exceed the memory limit.
    fn check_bytes(&self, more: usize) -> Result<(), HoldError> {
        match self.max_bytes {
            Some(max_bytes) if self.bytes.saturating_add(more) > max_bytes => {
                Err(HoldError::TooManyBlocks { max_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the names of all known media and of `medium`.
    fn media_bytes(&self, medium: &Medium) -> usize {
        self.media.iter().chain([medium]).map(|medium| medium.name().len()).sum()
    }

    fn group(&mut self, group: &Group) -> Result<u32, HoldError> {
        let index = group.index.unwrap_or(0);
        if !self.groups.contains(&index) {
            if self.groups.len() == GROUPS {
                return Err(HoldError::TooManyGroups);
            }
            self.groups.push(index);
        }
        Ok(index)
    }

    fn is_rooted(&self, key: Key, known: &mut HashMap<Key, bool>) -> bool {
        let (mut way, mut at) = (Vec::new(), key);
        let is_rooted = loop {
            if let Some(&is_rooted) = known.get(&at) {
                break is_rooted;
            }
            // `false` until more is known, so that the walk ends in a cycle.
            known.insert(at, false);
            way.push(at);
            match self.blocks.get(&at) {
                None => break false,
                Some(Held { parent: None, tokens, .. }) => break !tokens.is_empty(),
                Some(Held { parent: Some(parent), .. }) => at = (*parent, at.1),
            }
        };
        known.extend(way.into_iter().map(|key| (key, is_rooted)));
        is_rooted
    }

    /// Whether two blocks can be part of the same stored event.
    fn is_alike(&self, one: Key, other: Key) -> bool {
        let [one, other] = [&self.blocks[&one], &self.blocks[&other]];
        let kind = |held: &Held| (held.media, held.bigrams, held.tokens.is_empty());
        kind(one) == kind(other) && one.scope == other.scope
    }

    /// Makes stored events of a chain of alike blocks, one for each medium that holds them.
    fn stored_of(&self, chain: &[Key]) -> Vec<Event> {
        let first = &self.blocks[&chain[0]];
        let mut tokens: Vec<Token> = Vec::new();
        for key in chain {
            let held = &self.blocks[key];
            tokens.extend_from_slice(&held.tokens[usize::from(held.bigrams && !tokens.is_empty())..]);
        }
        let stored = Stored {
            hashes: chain.iter().map(|(hash, _)| *hash).collect(),
            parent: first.parent,
            tokens,
            bigrams: first.bigrams,
            block_size: self.block_size.unwrap_or(1),
            scope: Scope::clone(&first.scope),
            group: Group { index: (chain[0].1 != 0).then_some(chain[0].1), ..Group::default() },
            ..Stored::default()
        };
        let media = self.media.iter().enumerate().filter(|(at, _)| first.media >> at & 1 == 1);
        media.map(|(_, medium)| Event::Stored(Stored { medium: Some(medium.clone()), ..stored.clone() })).collect()
    }
}

/// The bit of a medium among those that one worker named; adds the medium if it is new.
pub(crate) fn media_bit(media: &mut Vec<Medium>, medium: &Medium) -> Result<u16, HoldError> {
    let at = match media.iter().position(|known| known == medium) {
        Some(at) => at,
        None if media.len() == MEDIA => return Err(HoldError::TooManyMedia),
        None => {
            media.push(medium.clone());
            media.len() - 1
        }
    };
    Ok(1 << at)
}
