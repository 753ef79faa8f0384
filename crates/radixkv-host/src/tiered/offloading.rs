//! Offloading: copies blocks that the device evicts, or that were just inserted, to the host.
//! Called by the eviction sink, by evictions of the caller, by inserts that write through, and by
//! `demote`.

use std::{
    ops::Range,
    sync::{Arc, mpsc},
};

use radixkv::{BlockId, Evicted, Inserted, Namespace, NamespaceName, PrefixMatch, Token};

use super::{
    Shared,
    copies::{Copies, Room},
    sizes::Part,
};
use crate::{
    grid::offset,
    mover::ToHost,
    offload::{Arrival, Offload},
    tier::HostBlock,
};

/// The mover is called once this many host blocks are reserved; the last piece may add more.
const CHUNK: usize = 1024;

/// Device blocks of one sequence, to which nothing writes meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) namespace: &'a NamespaceName,
    /// The sequence up to the last of the blocks.
    pub(super) tokens: &'a [Token],
    /// Tokens before the first of the blocks.
    pub(super) start: usize,
    pub(super) blocks: &'a [BlockId],
}

impl<'a> From<&'a Evicted> for Piece<'a> {
    fn from(evicted: &'a Evicted) -> Self {
        let Evicted { namespace, start, tokens, blocks, .. } = evicted;
        Self { namespace, tokens, start: *start, blocks: blocks.blocks() }
    }
}

/// The device blocks from which the host blocks of a piece are copied.
struct Sources<'a> {
    piece: Piece<'a>,
    /// The blocks before the piece that its first host block also needs, and the number of the
    /// first of them.
    below: Vec<Option<BlockId>>,
    first_below: usize,
    /// A lease on those that are cached.
    _leased: Option<PrefixMatch>,
}

impl Sources<'_> {
    fn block(&self, number: usize, first_of_piece: usize) -> Option<BlockId> {
        match number.checked_sub(first_of_piece) {
            Some(at) => self.piece.blocks.get(at).copied(),
            None => self.below.get(number.checked_sub(self.first_below)?).copied().flatten(),
        }
    }
}

impl Shared {
    /// Evicts blocks of the device, and copies them to the host; they are free when it returns.
    pub(super) fn evict(self: &Arc<Self>, blocks: usize) -> usize {
        // Room is taken for no more blocks than the cache has.
        let blocks = blocks.min(self.cache.capacity_blocks());
        let Some(copies) = self.copies_elsewhere() else { return self.evict_here(blocks) };
        let room = copies.room(blocks);
        let offload = self.host.offload();
        let mut evicted = Vec::new();
        let count = self.cache.evict_into(blocks, &mut evicted);
        self.counters.evicted_blocks.add(count);
        // An error means that the copying panicked: then the blocks are free as well.
        let _ = self.copy_there(room, offload, evicted).recv();
        count
    }

    /// Lets the mover's thread copy evicted blocks; the returned channel signals when they are
    /// free.
    pub(super) fn copy_there(
        self: &Arc<Self>,
        room: Room,
        offload: Offload,
        evicted: Vec<Evicted>,
    ) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::sync_channel(1);
        let shared = Arc::clone(self);
        room.submit(move || {
            shared.take_in(&offload, &evicted.iter().map(Piece::from).collect::<Vec<_>>());
            drop((offload, evicted));
            // The receiver may be gone.
            let _ = done.send(());
        });
        is_done
    }

    /// The mover's thread, unless there is none or it is the calling thread: a mover may use the
    /// tiers itself.
    pub(super) fn copies_elsewhere(&self) -> Option<&Copies> {
        self.copies.as_ref().filter(|copies| !copies.is_worker())
    }

    /// Evicts blocks, and copies them on this thread.
    fn evict_here(&self, blocks: usize) -> usize {
        // First, so that no earlier clear concerns the evicted blocks.
        let offload = self.host.offload();
        let mut evicted = Vec::new();
        let count = self.cache.evict_into(blocks, &mut evicted);
        self.counters.evicted_blocks.add(count);
        let pieces: Vec<Piece<'_>> = evicted.iter().map(Piece::from).collect();
        self.take_in(&offload, &pieces);
        count
    }

    /// Copies blocks that were just inserted after the first `start` tokens. The mover's thread
    /// copies them if there is one, and holds a lease on them until then.
    pub(super) fn write_through(
        self: &Arc<Self>,
        offload: Offload,
        namespace: &Namespace,
        tokens: &[Token],
        start: usize,
        inserted: &Inserted,
    ) {
        let blocks = &inserted.blocks;
        if blocks.is_empty() {
            return;
        }
        if let Some((copies, lease)) = self.copies_elsewhere().zip(inserted.lease.try_clone().ok()) {
            let (shared, name) = (Arc::clone(self), namespace.name());
            let (tokens, blocks) = (tokens.to_vec(), blocks.clone());
            copies.room(blocks.len()).submit(move || {
                shared.take_in(&offload, &[Piece { namespace: &name, tokens: &tokens, start, blocks: &blocks }]);
                drop(lease);
            });
        } else {
            self.take_in(&offload, &[Piece { namespace: &namespace.name(), tokens, start, blocks }]);
        }
    }

    /// Copies pieces to the host in their order: later ones are more recent there.
    pub(super) fn take_in(&self, offload: &Offload, pieces: &[Piece<'_>]) {
        let mut arriving = Vec::new();
        let mut filling = 0;
        for &piece in pieces {
            let mut arrival = self.reserve(offload, piece);
            if arrival.lacking_blocks() > 0 && !arriving.is_empty() {
                // The older blocks that are being filled take its room: publish them, so that they
                // can be evicted.
                drop(arrival);
                self.fill(std::mem::take(&mut arriving), pieces);
                arrival = self.reserve(offload, piece);
            }
            self.counters.lacking_blocks.add(arrival.lacking_blocks());
            filling += arrival.numbers().count();
            arriving.push((arrival, piece));
            if filling >= CHUNK {
                self.fill(std::mem::take(&mut arriving), pieces);
                filling = 0;
            }
        }
        self.fill(arriving, pieces);
    }

    fn reserve<'a>(&self, offload: &'a Offload, piece: Piece<'a>) -> Arrival<'a> {
        offload.reserve(piece.namespace, piece.tokens, piece.start)
    }

    /// Copies the blocks to be filled in one call of the mover, and publishes them.
    fn fill(&self, arriving: Vec<(Arrival<'_>, Piece<'_>)>, pieces: &[Piece<'_>]) {
        let mut filled: Vec<Arrival<'_>> = Vec::with_capacity(arriving.len());
        let mut sources = Vec::with_capacity(arriving.len());
        for (mut arrival, piece) in arriving {
            let source = self.sources(piece, &arrival, pieces);
            self.leave_incomplete(&mut arrival, &source);
            filled.push(arrival);
            sources.push(source);
        }
        let mut copies = Vec::new();
        for (arrival, source) in filled.iter_mut().zip(&sources) {
            for (number, host_block, bytes) in arrival.parts_mut() {
                self.push_copies(&mut copies, source, number, host_block, bytes);
            }
        }
        if !copies.is_empty() {
            let tokens = copies.iter().map(|copy| copy.tokens.len()).sum();
            let bytes = copies.iter().map(|copy| copy.bytes.len()).sum();
            if !self.is_moved(|mover| mover.offload(&mut copies)) {
                drop(copies);
                let blocks = filled.iter().map(|arrival| arrival.numbers().count()).sum();
                self.counters.failed_offload_blocks.add(blocks);
                return;
            }
            self.counters.offloaded_tokens.add(tokens);
            self.counters.offloaded_bytes.add(bytes);
        }
        for arrival in filled {
            arrival.publish();
        }
    }

    /// Finds the device blocks from which a piece's host blocks are copied. Those before the piece
    /// are still cached, or were evicted with it.
    fn sources<'a>(&self, piece: Piece<'a>, arrival: &Arrival<'_>, pieces: &[Piece<'_>]) -> Sources<'a> {
        let before = arrival.numbers().next().map_or(piece.start, |number| number * self.sizes.host);
        let first_below = before.min(piece.start) / self.sizes.device;
        let mut sources = Sources { piece, below: Vec::new(), first_below, _leased: None };
        if before >= piece.start {
            return sources;
        }
        let cached = self.cached_below(piece);
        let of_cached = |number: usize| cached.blocks().get(number).copied();
        let numbers = first_below..piece.start / self.sizes.device;
        sources.below =
            numbers.map(|number| of_cached(number).or_else(|| self.evicted(number, piece, pieces))).collect();
        sources._leased = Some(cached);
        sources
    }

    /// The cached prefix of the sequence before a piece.
    fn cached_below(&self, piece: Piece<'_>) -> PrefixMatch {
        let parts: Vec<&str> = piece.namespace.parts().collect();
        let namespace = self.cache.namespace(NamespaceName::new(&parts).with_keys(piece.namespace.keys()));
        self.cache
            .session()
            .match_prefix_untouched(&namespace, &piece.tokens[..piece.start + offset(piece.namespace.keys())])
    }

    /// A block of the same sequence that was evicted in another piece.
    fn evicted(&self, number: usize, piece: Piece<'_>, pieces: &[Piece<'_>]) -> Option<BlockId> {
        let end = (number + 1) * self.sizes.device;
        pieces.iter().find_map(|other| {
            let at = number.checked_sub(other.start / self.sizes.device)?;
            let &block = other.blocks.get(at)?;
            let depth = end + offset(piece.namespace.keys());
            let is_same = other.namespace == piece.namespace && other.tokens[..depth] == piece.tokens[..depth];
            is_same.then_some(block)
        })
    }

    /// Releases the host blocks that are not completely on the device.
    fn leave_incomplete(&self, arrival: &mut Arrival<'_>, sources: &Sources<'_>) {
        let numbers: Vec<usize> = arrival.numbers().collect();
        for number in numbers {
            if self.parts(number).any(|part| self.source(sources, &part).is_none()) {
                arrival.give_back(number);
                self.counters.incomplete_blocks.add(1);
            }
        }
    }

    fn source(&self, sources: &Sources<'_>, part: &Part) -> Option<BlockId> {
        sources.block(part.device_number, sources.piece.start / self.sizes.device)
    }

    /// The parts of a host block, each in one device block.
    fn parts(&self, number: usize) -> impl Iterator<Item = Part> {
        let Range { start, end } = number * self.sizes.host..(number + 1) * self.sizes.host;
        self.sizes.parts(start..end)
    }

    fn push_copies<'b>(
        &self,
        copies: &mut Vec<ToHost<'b>>,
        sources: &Sources<'_>,
        number: usize,
        host_block: HostBlock,
        mut bytes: &'b mut [u8],
    ) {
        let whole = bytes.len();
        for part in self.parts(number) {
            let Some(block) = self.source(sources, &part) else { continue };
            let (own, rest) = bytes.split_at_mut(whole * part.host_tokens.len() / self.sizes.host);
            bytes = rest;
            let Part { device_tokens: tokens, host_tokens, .. } = part;
            copies.push(ToHost { block, tokens, host_block, host_tokens, bytes: own });
        }
    }
}
