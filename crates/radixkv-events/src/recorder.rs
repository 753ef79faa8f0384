//! Turns changes into events: computes the names of blocks and the numbers of batches.

use crate::{
    batch::{Batch, Numbered, new_epoch},
    change::{Change, ChangeError, Tier},
    event::{BlockId, Event, ExtraKey, Medium, Removed, Scope, Stored, Token},
    hash::{BlockHash, HashScheme, Link},
    scopes::Scopes,
};

/// Turns the changes of a cache into numbered batches of events.
///
/// It keeps 44 bytes for each block that is held (hash, scope and depth). So a removal needs no
/// tokens, and a store is hashed only from its parent on. Stores that continue each other are
/// merged into one event; a trim is one event.
///
/// Recorded events that were not [taken](Self::take) yet are bounded: a batch with more blocks than
/// [`max_pending_blocks`](RecorderBuilder::max_pending_blocks) is dropped as a whole and its number
/// is skipped, so that readers see a gap.
///
/// # Examples
///
/// ```
/// use radixkv_events::{Change, Event, HashScheme, Recorder, Scope};
///
/// let mut recorder = Recorder::builder(2, HashScheme::xxh3()).build();
/// let scope = &Scope::default();
/// recorder.record(&Change::Stored { tier: 0, scope, parent: None, blocks: &[7], tokens: &[1, 2], bigrams: false })?;
/// let parent = Some((0, 7));
/// recorder.record(&Change::Stored { tier: 0, scope, parent, blocks: &[3], tokens: &[3, 4], bigrams: false })?;
/// let numbered = recorder.take(0.0).expect("two changes");
/// assert_eq!(numbered.seq, 0);
/// let [Event::Stored(stored)] = numbered.batch.events.as_slice() else { panic!("one event of both") };
/// assert_eq!((stored.hashes.len(), stored.tokens.as_slice()), (2, &[1, 2, 3, 4][..]));
/// # Ok::<_, radixkv_events::ChangeError>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    settings: RecorderBuilder,
    scopes: Scopes,
    /// The blocks that are held in each tier, by block id.
    tiers: Vec<Vec<Option<Slot>>>,
    pending: Vec<Event>,
    pending_blocks: usize,
    next: u64,
    lost_batches: u64,
    /// A reused buffer for the input of a block's hash.
    bytes: Vec<u8>,
}

/// A block that is held.
#[derive(Debug, Clone, Copy)]
struct Slot {
    link: Link,
    scope: u32,
    /// The number of blocks before it in its sequence.
    depth: u32,
}

/// The place in a tier and a sequence where blocks are stored.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    tier: Tier,
    scope: &'a Scope,
    bigrams: bool,
    parent: Option<(Tier, BlockId)>,
}

impl Place<'_> {
    /// The number of tokens that blocks need beyond their own.
    fn ahead(self) -> usize {
        usize::from(self.bigrams)
    }
}

/// Settings of a [`Recorder`].
#[derive(Debug, Clone)]
pub struct RecorderBuilder {
    block_size: usize,
    scheme: HashScheme,
    media: Vec<Medium>,
    rank: Option<u32>,
    epoch: u64,
    max_pending_blocks: usize,
}

impl RecorderBuilder {
    /// Sets the names of the tiers on the wire. Default: one tier, the GPU.
    pub fn media(self, media: Vec<Medium>) -> Self {
        Self { media, ..self }
    }

    /// Sets the data-parallel rank of this worker. Default: none.
    pub fn rank(self, rank: u32) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Sets the publisher's epoch. Default: a random number.
    pub fn epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// Limits the blocks in events that [`take`](Recorder::take) has not taken yet. Default:
    /// 65,536.
    pub fn max_pending_blocks(self, max_pending_blocks: usize) -> Self {
        Self { max_pending_blocks, ..self }
    }

    /// Builds a recorder for an empty cache.
    pub fn build(self) -> Recorder {
        let tiers = vec![Vec::new(); self.media.len()];
        Recorder {
            settings: self,
            scopes: Scopes::default(),
            tiers,
            pending: Vec::new(),
            pending_blocks: 0,
            next: 0,
            lost_batches: 0,
            bytes: Vec::new(),
        }
    }
}

impl Recorder {
    /// Configures a recorder of blocks of `block_size` tokens, named by `scheme`.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero or more than `u32::MAX`.
    pub fn builder(block_size: usize, scheme: HashScheme) -> RecorderBuilder {
        assert!(block_size > 0 && u32::try_from(block_size).is_ok(), "a block size of {block_size}");
        let media = vec![Medium::Gpu];
        RecorderBuilder { block_size, scheme, media, rank: None, epoch: new_epoch(), max_pending_blocks: 1 << 16 }
    }

    /// Records a change. Hashes the blocks of a [`Change::Stored`].
    ///
    /// # Errors
    ///
    /// [`ChangeError`], if the change contradicts earlier changes. It then has no effect.
    pub fn record(&mut self, change: &Change<'_>) -> Result<(), ChangeError> {
        match *change {
            Change::Stored { tier, scope, parent, blocks, tokens, bigrams } => {
                let place = Place { tier, scope, bigrams, parent };
                self.check_stored(place, blocks, tokens)?;
                self.store(place, blocks, tokens);
            }
            Change::Removed { tier, blocks } => {
                blocks.iter().try_for_each(|&block| self.slot(tier, block).map(drop))?;
                self.remove(tier, blocks.iter().copied());
            }
            Change::ScopeCleared { scope, bigrams } => self.clear(scope, bigrams),
            Change::Cleared => {
                self.tiers.iter_mut().for_each(Vec::clear);
                self.scopes = Scopes::default();
                self.push(Event::Cleared, 1);
            }
        }
        Ok(())
    }

    /// Takes the events since the last batch as the next batch, made at `time`; `None` if there are
    /// none.
    pub fn take(&mut self, time: f64) -> Option<Numbered> {
        if self.pending.is_empty() {
            return None;
        }
        let seq = self.next;
        self.next += 1;
        self.pending_blocks = 0;
        let events = std::mem::take(&mut self.pending);
        Some(Numbered { seq, batch: self.batch(time, events) })
    }

    fn batch(&self, time: f64, events: Vec<Event>) -> Batch {
        Batch { time, events, rank: self.settings.rank, epoch: Some(self.settings.epoch) }
    }

    /// Takes all pending events as the batch with this number, even if there are none.
    #[cfg(feature = "cache")]
    pub(crate) fn take_as(&mut self, seq: u64, time: f64) -> Numbered {
        self.next = seq;
        self.take(time).unwrap_or_else(|| {
            self.next += 1;
            Numbered { seq, batch: self.batch(time, Vec::new()) }
        })
    }

    /// Resets the recorder to an empty cache, and drops pending events. The numbering continues.
    #[cfg(feature = "cache")]
    pub(crate) fn forget(&mut self) {
        let next = self.next;
        *self = self.settings.clone().build();
        self.next = next;
    }

    /// The number of the next batch.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// The publisher's epoch, which all its batches carry.
    pub fn epoch(&self) -> u64 {
        self.settings.epoch
    }

    /// The number of blocks in events that were not taken yet.
    pub fn pending_blocks(&self) -> usize {
        self.pending_blocks
    }

    /// Batches that were dropped because too many blocks were pending.
    pub fn lost_batches(&self) -> u64 {
        self.lost_batches
    }

    /// The name of a block that is held.
    pub fn name(&self, tier: Tier, block: BlockId) -> Option<BlockHash> {
        self.slot(tier, block).ok().map(|slot| self.settings.scheme.name(&slot.link))
    }

    fn slot(&self, tier: Tier, block: BlockId) -> Result<&Slot, ChangeError> {
        let slots = self.tiers.get(tier).ok_or(ChangeError::UnknownTier { tier, tiers: self.tiers.len() })?;
        slots.get(block as usize).and_then(Option::as_ref).ok_or(ChangeError::NotHeld { tier, block })
    }

    fn check_stored(&self, place: Place<'_>, blocks: &[BlockId], tokens: &[Token]) -> Result<(), ChangeError> {
        let Place { tier, scope, bigrams, parent } = place;
        let block_size = self.settings.block_size;
        let own = tokens.len().checked_sub(place.ahead());
        if own.is_none() || own != blocks.len().checked_mul(block_size) {
            return Err(ChangeError::Tokens { tokens: tokens.len(), blocks: blocks.len(), block_size });
        }
        if let Some((tier, block)) = parent
            && self.scopes.find(scope, bigrams) != Some(self.slot(tier, block)?.scope)
        {
            return Err(ChangeError::OtherScope { tier, block });
        }
        blocks.iter().try_for_each(|&block| match self.slot(tier, block) {
            Ok(_) => Err(ChangeError::Held { tier, block }),
            Err(ChangeError::NotHeld { .. }) => Ok(()),
            Err(error) => Err(error),
        })
    }

    fn store(&mut self, place: Place<'_>, blocks: &[BlockId], tokens: &[Token]) {
        if blocks.is_empty() {
            return;
        }
        let Place { tier, scope, bigrams, parent } = place;
        let (scheme, block_size, ahead) = (self.settings.scheme, self.settings.block_size, place.ahead());
        let before = parent.and_then(|(tier, block)| self.slot(tier, block).ok().copied());
        let number = self.scopes.hold(scope, bigrams, blocks.len());
        let (mut link, mut depth) = (before.map(|slot| slot.link), before.map_or(0, |slot| slot.depth + 1));
        let is_first = link.is_none();
        let (mut hashes, mut pairs) = (Vec::with_capacity(blocks.len()), Vec::new());
        for (at, &block) in blocks.iter().enumerate() {
            let own = &tokens[at * block_size..][..block_size + ahead];
            let own = if bigrams { pairs_of(own, &mut pairs) } else { own };
            let next = scheme.next(scope, link.as_ref(), own, &mut self.bytes);
            self.hold(tier, block, Slot { link: next, scope: number, depth });
            hashes.push(scheme.name(&next));
            (link, depth) = (Some(next), depth + 1);
        }
        let parent = before.map(|slot| scheme.name(&slot.link));
        let medium = Some(self.settings.media[tier].clone());
        let extra_keys = extra_keys(scope, is_first, blocks.len());
        if !self.continues(parent, medium.as_ref()) {
            let stored = Stored {
                hashes: Vec::new(),
                parent,
                bigrams,
                block_size: block_size as u32,
                medium,
                scope: scope.clone(),
                extra_keys: extra_keys.is_some().then(Vec::new),
                ..Stored::default()
            };
            self.push(Event::Stored(stored), 0);
        }
        if let Some(Event::Stored(stored)) = self.pending.last_mut() {
            stored.hashes.append(&mut hashes);
            // Blocks of pairs begin with the last token of the blocks before them.
            let shared = if stored.tokens.is_empty() { 0 } else { ahead };
            stored.tokens.extend_from_slice(&tokens[shared..]);
            if let (Some(all), Some(keys)) = (&mut stored.extra_keys, extra_keys) {
                all.extend(keys);
            }
        }
        self.count(blocks.len());
    }

    /// Whether blocks that follow `parent` can be appended to the last event. The caller has
    /// checked that they have the parent's scope.
    fn continues(&self, parent: Option<BlockHash>, medium: Option<&Medium>) -> bool {
        matches!(self.pending.last(), Some(Event::Stored(last))
            if parent.is_some()
                && last.hashes.last() == parent.as_ref()
                && last.medium.as_ref() == medium)
    }

    fn hold(&mut self, tier: Tier, block: BlockId, slot: Slot) {
        let slots = &mut self.tiers[tier];
        if slots.len() <= block as usize {
            slots.resize(block as usize + 1, None);
        }
        slots[block as usize] = Some(slot);
    }

    fn remove(&mut self, tier: Tier, blocks: impl Iterator<Item = BlockId>) {
        let scheme = self.settings.scheme;
        let slots = &mut self.tiers[tier];
        let taken = blocks.filter_map(|block| slots.get_mut(block as usize).and_then(Option::take));
        let scopes = &mut self.scopes;
        let hashes: Vec<_> = taken
            .map(|slot| {
                scopes.release(slot.scope);
                scheme.name(&slot.link)
            })
            .collect();
        if !hashes.is_empty() {
            let (medium, blocks) = (Some(self.settings.media[tier].clone()), hashes.len());
            self.push(Event::Removed(Removed { hashes, medium, ..Removed::default() }), blocks);
        }
    }

    /// Removes the blocks of a scope, the deepest first. The wire format has no event that clears
    /// one scope.
    fn clear(&mut self, scope: &Scope, bigrams: bool) {
        let Some(number) = self.scopes.find(scope, bigrams) else { return };
        for tier in 0..self.tiers.len() {
            let slots = self.tiers[tier].iter().enumerate();
            let held = slots.filter_map(|(block, slot)| Some((slot.as_ref()?, block as BlockId)));
            let mut blocks: Vec<_> =
                held.filter(|(slot, _)| slot.scope == number).map(|(slot, block)| (slot.depth, block)).collect();
            blocks.sort_unstable_by(|a, b| b.cmp(a));
            self.remove(tier, blocks.into_iter().map(|(_, block)| block));
        }
    }

    fn push(&mut self, event: Event, blocks: usize) {
        self.pending.push(event);
        self.count(blocks);
    }

    /// Counts blocks of the next batch, and drops the batch if there are too many.
    fn count(&mut self, blocks: usize) {
        self.pending_blocks += blocks;
        if self.pending_blocks > self.settings.max_pending_blocks {
            self.pending.clear();
            self.pending_blocks = 0;
            self.next += 1;
            self.lost_batches += 1;
        }
    }
}

/// Lists all pairs of neighbouring tokens one after the other, as SGLang hashes a block of pairs.
fn pairs_of<'a>(tokens: &[Token], pairs: &'a mut Vec<Token>) -> &'a [Token] {
    pairs.clear();
    pairs.extend(tokens.windows(2).flatten());
    pairs
}

/// The extra keys that vLLM sends for each block; `None` for a plain scope.
fn extra_keys(scope: &Scope, is_first: bool, blocks: usize) -> Option<Vec<Option<Vec<ExtraKey>>>> {
    let of_block = |at: usize| {
        let keys: Vec<_> = scope.extra_keys(is_first && at == 0).map(|key| ExtraKey::Text(key.to_owned())).collect();
        if keys.is_empty() { None } else { Some(keys) }
    };
    (!scope.is_plain()).then(|| (0..blocks).map(of_block).collect())
}
