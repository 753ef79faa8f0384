//! Offloads: storing blocks in a tier. Callers begin an offload, reserve host blocks for each
//! sequence, fill them and publish them. So `tiered` stores evicted blocks, and `remote` fetched
//! ones.

use std::{fmt, ops::Range, time::Duration};

use radixkv::{Keys, NamespaceName, Token};

use crate::{
    admission::Admission,
    departing::Departing,
    grid::Grid,
    through::Through,
    tier::{HostBlock, HostTier, Inner, State},
    write_policy::WritePolicy,
};

/// An offload in progress. Begin it before blocks are evicted for it: its blocks are not stored if
/// their namespace was cleared since it began.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// # let prompt = [1, 2, 3, 4];
/// # let start = session.acquire(&space, &prompt, 0)?;
/// # drop(session.insert(start.hit.lease(), &prompt, start.blocks)?);
/// let tier = radixkv_host::HostTier::builder(2, 8).block_bytes(64).build()?;
/// let offload = tier.offload();
/// let mut evicted = Vec::new();
/// cache.evict_into(1, &mut evicted);
/// for piece in &evicted {
///     let mut arrival = offload.reserve(&piece.namespace, &piece.tokens, piece.start);
///     for (block, bytes) in arrival.blocks_mut() {
///         bytes.fill(block as u8); // ... copy block `block` of the sequence ...
///     }
///     arrival.publish();
/// }
/// drop(evicted); // only now may the cache's blocks be written to again
/// let found = tier.match_from(&space.name(), &prompt, 2);
/// assert_eq!((found.len_tokens(), found.bytes(0)[0]), (2, 1));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Offload {
    tier: HostTier,
    began: u64,
    /// The number of this offload among the tier's.
    number: u64,
}

/// Reserved host blocks that are being filled; dropping it instead of publishing frees them.
#[must_use = "dropping it frees its blocks"]
pub struct Arrival<'a> {
    tier: &'a Inner,
    began: u64,
    namespace: &'a NamespaceName,
    tokens: &'a [Token],
    /// The numbers of its blocks in the sequence.
    numbers: Range<usize>,
    /// For each block, the reserved host block; `None` if the tier has the block, does not admit
    /// it, or has no room for it.
    reserved: Vec<Option<HostBlock>>,
    lacking: usize,
    origin: Origin,
}

/// Where blocks are copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Cache,
    Save,
    RemoteTier,
}

impl HostTier {
    /// Starts an offload.
    pub fn offload(&self) -> Offload {
        self.begin_offload(&mut self.inner.lock())
    }

    /// Starts an offload of blocks that left their cache in this clear epoch.
    pub(crate) fn offload_since(&self, era: u64) -> Offload {
        self.begin_at(era, &mut self.inner.lock())
    }

    pub(crate) fn begin_offload(&self, state: &mut State) -> Offload {
        self.begin_at(state.eras.now(), state)
    }

    fn begin_at(&self, began: u64, state: &mut State) -> Offload {
        state.offloads += 1;
        state.eras.begin(began);
        Offload { tier: self.clone(), began, number: state.offloads }
    }
}

impl Offload {
    /// Reserves host blocks for the blocks of a sequence that end after its first `from` tokens and
    /// that the tier lacks. Evicts the least recently used blocks for them. If there is not room
    /// for all, the first ones are stored.
    ///
    /// `tokens` is the sequence from its beginning to the last block's end; in a namespace of
    /// bigrams, with one more token.
    pub fn reserve<'a>(&'a self, namespace: &'a NamespaceName, tokens: &'a [Token], from: usize) -> Arrival<'a> {
        self.reserve_from(Origin::Cache, namespace, tokens, from)
    }

    /// As [`reserve`](Self::reserve), for blocks that a tier stored before, such as those of a save:
    /// all are admitted, whatever the tier's [`Admission`] says.
    pub fn reserve_admitted<'a>(
        &'a self,
        namespace: &'a NamespaceName,
        tokens: &'a [Token],
        from: usize,
    ) -> Arrival<'a> {
        self.reserve_from(Origin::Save, namespace, tokens, from)
    }

    /// As [`reserve`](Self::reserve), for blocks that were fetched from a remote tier: all are
    /// admitted, and none is written there again.
    pub(crate) fn reserve_fetched<'a>(
        &'a self,
        namespace: &'a NamespaceName,
        tokens: &'a [Token],
        from: usize,
    ) -> Arrival<'a> {
        self.reserve_from(Origin::RemoteTier, namespace, tokens, from)
    }

    pub(crate) fn tier(&self) -> &HostTier {
        &self.tier
    }

    /// Whether this offload may store blocks of a namespace.
    pub(crate) fn allows(&self, state: &State, namespace: &NamespaceName) -> bool {
        state.eras.allows(namespace, self.began)
    }

    #[allow(unsafe_code)]
    fn reserve_from<'a>(
        &'a self,
        origin: Origin,
        namespace: &'a NamespaceName,
        tokens: &'a [Token],
        from: usize,
    ) -> Arrival<'a> {
        let tier = &*self.tier.inner;
        let grid = Grid::new(tier.block_size(), namespace.keys());
        let numbers = from / tier.block_size()..grid.blocks(tokens.len()).max(from / tier.block_size());
        let fingerprints = match origin {
            Origin::Cache if tier.admission != Admission::All => {
                tier.fingerprints.of(namespace, tokens, grid, numbers.clone())
            }
            _ => Vec::new(),
        };
        let mut arrival =
            Arrival { tier, began: self.began, namespace, tokens, numbers, reserved: Vec::new(), lacking: 0, origin };
        let mut leaving = Vec::new();
        let mut state = tier.lock();
        if self.allows(&state, namespace) {
            arrival.take_room(&mut state, self.number, &fingerprints, &mut leaving);
        } else {
            state.counters.kept_out_blocks += arrival.numbers.len() as u64;
        }
        drop(state);
        // SAFETY: the blocks are reserved for this arrival, and nothing writes to them before it is
        // returned.
        unsafe { tier.send_off(leaving) };
        arrival
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.tier.inner.lock().eras.end(self.began);
    }
}

impl<'a> Arrival<'a> {
    /// Reserves a host block for each block that is admitted and that the tier does not have.
    fn take_room(&mut self, state: &mut State, offload: u64, fingerprints: &[u64], leaving: &mut Vec<Departing>) {
        state.expire(self.namespace, self.tokens, self.numbers.clone());
        // The tier's own blocks are refreshed first, so that they are not evicted for the new ones.
        let is_here = state.refresh(self.namespace, self.tokens, self.numbers.clone());
        self.reserved = vec![None; is_here.len()];
        for (at, block) in self.reserved.iter_mut().enumerate().filter(|&(at, _)| !is_here[at]) {
            let is_admitted = match (&mut state.remembered, fingerprints.get(at)) {
                (Some(remembered), Some(&fingerprint)) => remembered.was_brought(fingerprint, offload),
                _ => true,
            };
            if is_admitted {
                *block = state.reserve(leaving);
                self.lacking += usize::from(block.is_none());
            } else {
                state.counters.not_admitted_blocks += 1;
            }
        }
    }

    /// The number of blocks for which the tier had no room.
    pub fn lacking_blocks(&self) -> usize {
        self.lacking
    }

    /// The blocks to fill, as block numbers within the sequence.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.numbers.clone().zip(&self.reserved).filter(|(_, block)| block.is_some()).map(|(number, _)| number)
    }

    /// The blocks to fill: the number of each within the sequence, and its bytes, which are empty
    /// if the tier only counts.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = (usize, &mut [u8])> {
        self.parts_mut().map(|(number, _, bytes)| (number, bytes))
    }

    /// As [`blocks_mut`](Self::blocks_mut), with the host block of each.
    #[allow(unsafe_code)]
    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = (usize, HostBlock, &mut [u8])> {
        let tier = self.tier;
        self.numbers.clone().zip(&self.reserved).filter_map(move |(number, block)| {
            let block = (*block)?;
            // SAFETY: `self` has the block reserved, the slice borrows `self` mutably, and all of
            // its blocks are different.
            let bytes = unsafe { tier.memory().block_mut(block as usize, tier.block_bytes()) };
            Some((number, block, bytes))
        })
    }

    /// Releases the block with this number, which was not filled.
    pub fn give_back(&mut self, number: usize) {
        let at = number.checked_sub(self.numbers.start).filter(|&at| at < self.reserved.len());
        if let Some(block) = at.and_then(|at| self.reserved[at].take()) {
            self.tier.lock().slots.give_back(block);
        }
    }

    /// Makes the blocks visible to lookups, and the most recently used of the tier, the first one
    /// the most recent. Blocks that the tier already had count as used. Returns how many were
    /// stored.
    ///
    /// If the namespace was cleared since the offload began, or is kept out, none is stored.
    pub fn publish(mut self) -> usize {
        let through = self.copy_through();
        let reserved = std::mem::take(&mut self.reserved);
        let mut state = self.tier.lock();
        if !state.eras.allows(self.namespace, self.began) {
            let refused = reserved.into_iter().flatten();
            state.counters.kept_out_blocks += refused.map(|block| state.slots.give_back(block)).count() as u64;
            drop(state);
            through.give_back();
            return 0;
        }
        state.expire(self.namespace, self.tokens, self.numbers.clone());
        let path = state.index.make_path(self.namespace, self.tokens);
        let mut arrived = 0;
        for (number, block) in self.numbers.clone().zip(reserved).rev() {
            match (state.held(&path, number), block) {
                (Some((held, _)), ours) => {
                    // Another arrival stored the block first.
                    ours.into_iter().for_each(|ours| state.slots.give_back(ours));
                    state.slots.refresh(held);
                    state.counters.duplicate_blocks += 1;
                }
                (None, Some(block)) => {
                    let Some(place) = path.place(number) else { unreachable!("the path has all of its tokens") };
                    state.index.put(place, block);
                    state.slots.publish(block, place);
                    arrived += 1;
                }
                (None, None) => {}
            }
        }
        state.index.cut(&path);
        state.counters.arrived_blocks += arrived as u64;
        if !through.is_empty() {
            let name = state.generations.name(self.namespace);
            let expires = state.lifetimes.end_of(self.namespace, Duration::ZERO);
            drop(state);
            through.put(name, self.tokens, expires);
        }
        arrived
    }

    /// Copies the blocks for the remote tiers, if they are written through.
    fn copy_through(&mut self) -> Through<'a> {
        let is_put = self.origin != Origin::RemoteTier && self.namespace.keys() == Keys::Tokens;
        match self.tier.remote() {
            Some(remote) if is_put && remote.write() == WritePolicy::Through => {
                Through::copy(remote, self.blocks_mut().collect())
            }
            _ => Through::none(),
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if self.reserved.iter().any(Option::is_some) {
            let mut state = self.tier.lock();
            self.reserved.drain(..).flatten().for_each(|block| state.slots.give_back(block));
        }
    }
}

impl fmt::Debug for Arrival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}
