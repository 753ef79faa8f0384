//! An opened save of a host tier, and restoring it.

use std::{fmt, path::Path, time::SystemTime};

use radixkv::{NamespaceName, PrefixCache, Token};
use radixkv_host::{HostTier, Offload};
use radixkv_tiers::Layout;

use crate::error::{BlockShape, OpenError, RestoreError};
use crate::folder;
use crate::format::entry::{SavedNamespace, extra_tokens};
use crate::format::header;
use crate::format::host_entry::{HostEntry, SavedHeld, SavedPiece};
use crate::format::record::records;
use crate::format::seal::Sealing;
use crate::format::trailer::Trailer;
use crate::host::shape_of_tier;
use crate::opened::{BlockFile, Opened};

/// An opened save of a host tier: its tokens are in memory, and the blocks' bytes are read when it
/// is restored.
///
/// It does not change when the folder is saved to again.
pub struct SavedHost {
    blocks: BlockFile,
    tree: SavedHostTree,
    trailer: Trailer,
    block_size: usize,
}

/// The result of restoring a host tier. The numbers add up to the number of saved blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HostRestored {
    /// Number of restored blocks, which the tier holds now.
    pub blocks: usize,
    /// Number of blocks that the tier already had, or whose namespace it keeps out.
    pub refused_blocks: usize,
    /// Number of blocks, the least recently used ones, that were left out because no blocks were
    /// free.
    pub no_room_blocks: usize,
    /// Number of blocks that were damaged or could not be read.
    pub damaged_blocks: usize,
}

/// The valid content of the records; the numbers in it are indices into these lists.
#[derive(Debug, Default)]
struct SavedHostTree {
    namespaces: Vec<SavedNamespace>,
    /// The pieces, each after its parent.
    pieces: Vec<SavedPiece>,
    held: Vec<SavedHeld>,
}

impl fmt::Debug for SavedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedHost")
            .field("blocks", &self.blocks())
            .field("saved_at", &self.saved_at())
            .finish_non_exhaustive()
    }
}

impl SavedHost {
    /// Opens the save of a host tier in a folder and reads its tokens into memory, in proportion to
    /// the file's size.
    ///
    /// # Errors
    ///
    /// [`OpenError`], if there is no save, it has another layout, key or version, or its header or
    /// trailer is damaged.
    pub fn open(folder: impl AsRef<Path>, layout: &Layout) -> Result<Self, OpenError> {
        let Opened { blocks, trailer, records } = Opened::open(folder.as_ref(), folder::HOST, header::HOST, layout)?;
        let tree = SavedHostTree::read(&records, blocks.sealing(), layout.block_size());
        Ok(Self { blocks, tree, trailer, block_size: layout.block_size() })
    }

    /// The number of saved blocks.
    pub fn blocks(&self) -> usize {
        self.trailer.count()
    }

    /// The time of the save, by the system's clock.
    pub fn saved_at(&self) -> SystemTime {
        self.trailer.time()
    }

    /// Restores the save into a tier, in the order of the last uses. `cache` may be any cache; it
    /// makes the names of the namespaces.
    ///
    /// Takes no more blocks than the tier's capacity has room for when it begins: if there is less
    /// room, the most recently used blocks are restored, and the others are counted. Each block is
    /// verified before a lookup can find it. All are admitted, whatever the tier's
    /// [`Admission`](radixkv_host::Admission) says.
    ///
    /// Other threads may use the tier and the cache meanwhile. Once a namespace is cleared in the
    /// tier, nothing more is restored into it: the rest is refused.
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; the tier is unchanged.
    pub fn restore(&self, tier: &HostTier, cache: &PrefixCache) -> Result<HostRestored, RestoreError> {
        let shape = shape_of_tier(tier);
        let saved = BlockShape { tokens: self.block_size, bytes: self.blocks.block_bytes() };
        if shape != saved {
            return Err(RestoreError::Tier { tier: shape, saved });
        }
        let names: Vec<NamespaceName> = self.tree.namespaces.iter().map(|saved| saved.name(cache)).collect();
        let all: usize = self.tree.held.iter().map(|held| held.blocks.len()).sum();
        let mut restored =
            HostRestored { damaged_blocks: self.blocks().saturating_sub(all), ..HostRestored::default() };
        // One for all blocks: none is stored whose namespace is cleared after this.
        let offload = tier.offload();
        // The least recently used blocks are left out; of blocks that were used together, the last
        // ones.
        let mut too_many = all.saturating_sub(tier.capacity_blocks().saturating_sub(tier.cached_blocks()));
        for held in &self.tree.held {
            let left_out = held.blocks.len().min(too_many);
            too_many -= left_out;
            restored.no_room_blocks += left_out;
            let piece = &self.tree.pieces[held.piece];
            self.bring(held, held.blocks.len() - left_out, &offload, &names[piece.namespace], &mut restored);
        }
        Ok(restored)
    }

    /// Restores the first `count` of these blocks.
    fn bring(
        &self,
        held: &SavedHeld,
        count: usize,
        offload: &Offload,
        name: &NamespaceName,
        restored: &mut HostRestored,
    ) {
        if count == 0 {
            return;
        }
        let mut tokens = self.tree.sequence(held.piece);
        let extra = extra_tokens(name.keys()).unwrap_or_default();
        tokens.truncate((held.first + count) * self.block_size + extra);
        let mut arrival = offload.reserve_admitted(name, &tokens, held.first * self.block_size);
        let (lacking, taken) = (arrival.lacking_blocks(), arrival.numbers().count());
        restored.no_room_blocks += lacking;
        let is_bad = |(number, bytes): (usize, &mut [u8])| {
            let is_good = bytes.is_empty() || self.blocks.read(held.blocks[number - held.first], bytes);
            (!is_good).then_some(number)
        };
        let bad: Vec<usize> = arrival.blocks_mut().filter_map(is_bad).collect();
        bad.iter().for_each(|&number| arrival.give_back(number));
        let arrived = arrival.publish();
        restored.blocks += arrived;
        restored.damaged_blocks += bad.len();
        restored.refused_blocks += count - lacking - taken + (taken - bad.len() - arrived);
    }
}

impl SavedHostTree {
    /// Reads records, which may be any bytes. Invalid content is left out, with all content that
    /// depends on it.
    fn read(bytes: &[u8], sealing: &Sealing, block_size: usize) -> Self {
        let mut tree = Self::default();
        // For each record, the index of its namespace or piece.
        let (mut namespaces, mut pieces) = (Vec::new(), Vec::new());
        for content in records(bytes, sealing) {
            let (mut namespace, mut piece) = (None, None);
            match content.as_deref().and_then(HostEntry::read) {
                Some(HostEntry::Namespace(saved)) => {
                    namespace = Some(tree.namespaces.len());
                    tree.namespaces.push(saved);
                }
                Some(HostEntry::Piece(saved)) => piece = tree.link(saved, &namespaces, &pieces),
                Some(HostEntry::Held(saved)) => tree.hold(saved, &pieces, block_size),
                None => {}
            }
            namespaces.push(namespace);
            pieces.push(piece);
        }
        tree
    }

    /// Adds a piece if it is valid; returns its index.
    fn link(&mut self, saved: SavedPiece, namespaces: &[Option<usize>], pieces: &[Option<usize>]) -> Option<usize> {
        let namespace = (*namespaces.get(saved.namespace)?)?;
        let parent = match saved.parent {
            Some(parent) => Some((*pieces.get(parent)?)?),
            None => None,
        };
        let begins_well = match parent.map(|parent| &self.pieces[parent]) {
            Some(before) => {
                let end = before.start + before.tokens.len();
                before.namespace == namespace && (before.start..=end).contains(&saved.start)
            }
            None => saved.start == 0,
        };
        if !begins_well || saved.tokens.is_empty() {
            return None;
        }
        self.pieces.push(SavedPiece { namespace, parent, ..saved });
        Some(self.pieces.len() - 1)
    }

    /// Adds blocks if they are valid.
    fn hold(&mut self, saved: SavedHeld, pieces: &[Option<usize>], block_size: usize) {
        let Some(piece) = pieces.get(saved.piece).copied().flatten() else { return };
        let SavedPiece { namespace, start, ref tokens, .. } = self.pieces[piece];
        let Some(extra) = extra_tokens(self.namespaces[namespace].keys) else { return };
        let blocks = saved.first.checked_add(saved.blocks.len());
        let end = blocks.and_then(|blocks| blocks.checked_mul(block_size)?.checked_add(extra));
        if !saved.blocks.is_empty() && end.is_some_and(|end| end <= start + tokens.len()) {
            self.held.push(SavedHeld { piece, ..saved });
        }
    }

    /// The tokens of a sequence from its beginning to the end of this piece.
    fn sequence(&self, piece: usize) -> Vec<Token> {
        let (mut path, mut next) = (Vec::new(), Some(piece));
        while let Some(piece) = next {
            path.push(&self.pieces[piece]);
            next = self.pieces[piece].parent;
        }
        let mut tokens = Vec::new();
        for piece in path.into_iter().rev() {
            tokens.truncate(piece.start);
            tokens.extend(&piece.tokens);
        }
        tokens
    }
}
