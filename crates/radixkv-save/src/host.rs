//! Saving a host tier while other threads use it.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    ops::Range,
    path::Path,
};

use radixkv::NamespaceName;
use radixkv_host::{HeldBlocks, HostSnapshot, HostTier};
use radixkv_tiers::Layout;

use crate::copying::Blocks;
use crate::error::{BlockShape, SaveError};
use crate::folder::{self, Unfinished};
use crate::format::entry::{Place, SavedNamespace, extra_tokens};
use crate::format::header;
use crate::format::host_entry::{SavedHeld, SavedPiece};
use crate::format::record::Records;
use crate::format::seal::Sealing;
use crate::save::{CHUNK_BYTES, finish, number_of, since_1970};

/// The maximum number of blocks that are pinned at once while they are written.
const PINNED: usize = 16;

/// Saves a host tier to a folder: its blocks with their tokens and namespaces, in the order of
/// their last uses. Use it beside the [`Save`](crate::Save) of a cache over the tier, so that both
/// start warm.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_host::HostTier;
/// use radixkv_save::{HostSave, Layout, SavedHost};
///
/// # let folder = tempfile::tempdir()?;
/// let layout = Layout::new("llama-3-8b", "bf16", 2, 64)?;
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let tier = HostTier::builder(2, 8).block_bytes(64).build()?;
/// # tier.offload().reserve(&cache.default_namespace().name(), &[1, 2, 3, 4], 0).publish();
/// let report = HostSave::new(&tier, &layout).to(folder.path())?;
/// assert_eq!(report.blocks, 2);
///
/// let restarted = HostTier::builder(2, 8).block_bytes(64).build()?;
/// SavedHost::open(folder.path(), &layout)?.restore(&restarted, &cache)?;
/// assert_eq!(restarted.peek(&cache.default_namespace().name(), &[1, 2, 3, 4], 0), 4);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct HostSave<'a> {
    tier: &'a HostTier,
    layout: &'a Layout,
    keep: Box<dyn Fn(&NamespaceName) -> bool + 'a>,
}

/// The result of saving a host tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HostSaveReport {
    /// Number of blocks in the save.
    pub blocks: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of blocks that the tier held when the save began, but that were removed or cleared
    /// before they were copied.
    pub gone_blocks: usize,
}

impl fmt::Debug for HostSave<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSave").field("tier", self.tier).field("layout", self.layout).finish_non_exhaustive()
    }
}

pub(crate) fn shape_of_tier(tier: &HostTier) -> BlockShape {
    BlockShape { tokens: tier.block_size(), bytes: tier.block_bytes() }
}

impl<'a> HostSave<'a> {
    /// Prepares a save of the whole tier. The layout must have the tier's block size and block
    /// bytes, which may differ from those of a cache over it.
    pub fn new(tier: &'a HostTier, layout: &'a Layout) -> Self {
        Self { tier, layout, keep: Box::new(|_| true) }
    }

    /// Sets which namespaces may be saved. Default: all of them.
    #[must_use]
    pub fn keep(self, keep: impl Fn(&NamespaceName) -> bool + 'a) -> Self {
        Self { keep: Box::new(keep), ..self }
    }

    /// Writes the tier's content, and replaces an older save of a tier in the folder once all of it
    /// is on the disk.
    ///
    /// Other threads may use the tier meanwhile. The save has the blocks that the tier held at the
    /// moment of the call, except blocks that are removed before they are copied, and the remaining
    /// blocks of a namespace that is cleared meanwhile. The tier's lock is held while the tokens of
    /// all cached blocks are copied, and later for moments. A few blocks at a time are pinned while
    /// they are written. No lookup is counted, and the order of uses is kept; but blocks that other
    /// threads use meanwhile count as older than blocks that are copied after that use.
    ///
    /// A tier without bytes is saved without them: only its tokens and namespaces. Times to live
    /// ([`HostTier::set_time_to_live`]) are not saved: they begin again when blocks are restored.
    /// Blocks of remote tiers are not saved.
    ///
    /// # Errors
    ///
    /// [`SaveError`]. The folder's old save is unchanged, except after [`SaveError::NotSynced`].
    pub fn to(&self, folder: impl AsRef<Path>) -> Result<HostSaveReport, SaveError> {
        let folder = folder.as_ref();
        let tier = shape_of_tier(self.tier);
        let layout = BlockShape { tokens: self.layout.block_size(), bytes: self.layout.block_bytes() };
        if tier.tokens != layout.tokens || (tier.bytes != 0 && tier.bytes != layout.bytes) {
            return Err(SaveError::Tier { tier, layout });
        }
        let unfinished = Unfinished::new(folder, folder::HOST)?;
        let failed = |error| Unfinished::error(folder, folder::HOST, error);
        let report = self.write(&unfinished).map_err(failed)?;
        unfinished.publish()?;
        Ok(report)
    }

    fn write(&self, unfinished: &Unfinished) -> io::Result<HostSaveReport> {
        let saved_at = since_1970();
        let (header, head) = header::write(header::HOST, self.layout, self.tier.block_bytes(), number_of(saved_at));
        let mut to = BufWriter::with_capacity(CHUNK_BYTES, &unfinished.file);
        to.write_all(&head)?;

        let snapshot = self.tier.snapshot();
        let sealing = Sealing::new(self.layout, header.seed);
        let mut blocks = Blocks::new(to, sealing.clone());
        let (mut held, mut gone_blocks) = (Vec::new(), 0);
        for of in snapshot.held() {
            let piece = &snapshot.pieces()[of.piece];
            if extra_tokens(piece.namespace.keys()).is_some() && (self.keep)(&piece.namespace) {
                gone_blocks += copy(&snapshot, of, &mut blocks, &mut held)?;
            }
        }

        let count = blocks.count;
        let mut records = Records::new(blocks.into_inner(), sealing.clone());
        write_records(&snapshot, held, &mut records)?;
        let bytes = finish(records, &header, &sealing, count, saved_at)?;
        Ok(HostSaveReport { blocks: count as usize, bytes, gone_blocks })
    }
}

/// Copies the blocks that the tier still holds, the last ones first. Returns how many are missing.
fn copy(
    snapshot: &HostSnapshot,
    of: &HeldBlocks,
    blocks: &mut Blocks<impl Write>,
    held: &mut Vec<SavedHeld>,
) -> io::Result<usize> {
    let (tokens, Range { start, end }) = (snapshot.sequence(of.piece), of.blocks.clone());
    let (mut to, mut gone) = (end, 0);
    while to > start {
        let from = to.saturating_sub(PINNED).max(start);
        let mut chunk = Vec::new();
        let mut at = from;
        while at < to {
            let found = snapshot.pin(of.piece, &tokens, at..to);
            if found.blocks().is_empty() {
                (gone, at) = (gone + 1, at + 1);
                continue;
            }
            let places = (0..found.blocks().len()).map(|index| blocks.put(found.bytes(index)));
            let places = places.collect::<io::Result<Vec<Place>>>()?;
            let first = at;
            at += places.len();
            chunk.push(SavedHeld { piece: of.piece, first, blocks: places });
        }
        held.extend(chunk.into_iter().rev());
        to = from;
    }
    Ok(gone)
}

/// Writes the records of namespaces, of the pieces that the blocks need, and of the blocks.
fn write_records(snapshot: &HostSnapshot, held: Vec<SavedHeld>, records: &mut Records<impl Write>) -> io::Result<()> {
    let mut is_needed = vec![false; snapshot.pieces().len()];
    for saved in &held {
        let mut next = Some(saved.piece);
        while let Some(piece) = next.filter(|&piece| !is_needed[piece]) {
            is_needed[piece] = true;
            next = snapshot.pieces()[piece].parent;
        }
    }
    let (mut namespaces, mut numbers) = (Vec::<(&NamespaceName, usize)>::new(), vec![0; is_needed.len()]);
    for (number, piece) in snapshot.pieces().iter().enumerate().filter(|&(number, _)| is_needed[number]) {
        let known = namespaces.iter().find(|(name, _)| *name == &piece.namespace);
        let namespace = match known {
            Some(&(_, record)) => record,
            None => {
                let record = records.write(SavedNamespace::of(&piece.namespace).write())?;
                namespaces.push((&piece.namespace, record));
                record
            }
        };
        let parent = piece.parent.map(|parent| numbers[parent]);
        let saved = SavedPiece { namespace, parent, start: piece.start, tokens: piece.tokens.clone() };
        numbers[number] = records.write(saved.write())?;
    }
    for saved in held {
        records.write(SavedHeld { piece: numbers[saved.piece], ..saved }.write())?;
    }
    Ok(())
}
