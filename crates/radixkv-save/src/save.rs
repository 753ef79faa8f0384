//! Saving a cache while other threads use it.
//!
//! A snapshot lists the runs of one moment. Then each sequence is matched and leased, and its
//! blocks that are unchanged since the snapshot are copied. A *witness* for each namespace shows
//! whether it was cleared meanwhile.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    path::Path,
    time::{Duration, SystemTime},
};

use radixkv::{
    BlockId, Lease, Namespace, NamespaceName, PrefixCache, PrefixMatch, Priority, Session, Token, WeakLease,
};
use radixkv_tiers::Layout;

use crate::block_bytes::BlockBytes;
use crate::cached::{Cached, CachedBlocks};
use crate::copying::Copying;
use crate::error::SaveError;
use crate::folder::{self, Unfinished};
use crate::format::entry::{Place, SavedNamespace, SavedPriority, SavedRun, extra_tokens};
use crate::format::header;
use crate::format::record::Records;
use crate::format::seal::Sealing;
use crate::format::trailer::Trailer;
use crate::order::depth_first;

/// Size of the file's write buffer.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

type PriorityOf<'a> = Box<dyn Fn(&NamespaceName, &[Token]) -> Option<Priority> + 'a>;
type Keep<'a> = Box<dyn Fn(&NamespaceName) -> bool + 'a>;

/// Saves a cache to a folder.
///
/// # Examples
///
/// ```
/// use radixkv::{PrefixCache, Priority};
/// use radixkv_save::{Layout, Save, TreeOnly};
///
/// # let folder = tempfile::tempdir()?;
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// let layout = Layout::new("llama-3-8b", "bf16", 16, 2 << 20)?;
/// let report = Save::new(&cache, &layout)
///     .keep(|namespace| namespace.parts().next() != Some("private"))
///     .priorities(|_, tokens| tokens.starts_with(&[1, 2, 3]).then_some(Priority::DEFAULT))
///     .to(folder.path(), &mut TreeOnly)?;
/// assert_eq!(report.blocks, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Save<'a> {
    cache: &'a PrefixCache,
    layout: &'a Layout,
    keep: Keep<'a>,
    priorities: PriorityOf<'a>,
}

/// The result of saving a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SaveReport {
    /// Number of blocks in the save.
    pub blocks: usize,
    /// Number of runs in the save.
    pub runs: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of blocks that were evicted before they were copied.
    pub evicted_blocks: usize,
    /// Number of blocks that the engine's memory could not read, including the blocks after them.
    pub unreadable_blocks: usize,
}

impl fmt::Debug for Save<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Save").field("cache", self.cache).field("layout", self.layout).finish_non_exhaustive()
    }
}

impl<'a> Save<'a> {
    /// Prepares a save of the whole cache; the layout describes its blocks.
    pub fn new(cache: &'a PrefixCache, layout: &'a Layout) -> Self {
        Self { cache, layout, keep: Box::new(|_| true), priorities: Box::new(|_, _| None) }
    }

    /// Sets which namespaces may be saved. Default: all of them.
    #[must_use]
    pub fn keep(self, keep: impl Fn(&NamespaceName) -> bool + 'a) -> Self {
        Self { keep: Box::new(keep), ..self }
    }

    /// Sets the priorities that prefixes get when they are restored: `of` is called with the whole
    /// sequence of each cached run. A time to live counts from the save, also while the engine is
    /// down. Default: none.
    ///
    /// A cache does not report the priorities that were set in it.
    #[must_use]
    pub fn priorities(self, of: impl Fn(&NamespaceName, &[Token]) -> Option<Priority> + 'a) -> Self {
        Self { priorities: Box::new(of), ..self }
    }

    /// Writes the cache's content, and replaces an older save in the folder once all of it is on
    /// the disk.
    ///
    /// Other threads may use the cache meanwhile. The save has the content of the cache at the
    /// moment of the call. Blocks that are evicted before they are copied are left out and counted.
    /// So are blocks that were evicted and inserted again, and the remaining blocks of a namespace
    /// that is cleared while its blocks are copied. Each sequence is leased while its blocks are
    /// copied, and one block of each namespace until the save ends, which protects them for that
    /// time. Their uses and their age do not change.
    ///
    /// Needs disk space for the old and the new save, and memory for the cached tokens.
    ///
    /// # Errors
    ///
    /// [`SaveError`]. The folder's old save is unchanged, except after [`SaveError::NotSynced`].
    ///
    /// # Panics
    ///
    /// If `memory` does; the folder's old save is unchanged.
    pub fn to(
        &self,
        folder: impl AsRef<Path>,
        memory: &mut (impl BlockBytes + ?Sized),
    ) -> Result<SaveReport, SaveError> {
        let (folder, block_bytes) = (folder.as_ref(), memory.block_bytes());
        let (cache, layout) = (self.cache.block_size(), self.layout.block_size());
        if cache != layout {
            return Err(SaveError::BlockSize { cache, layout });
        }
        if block_bytes != 0 && block_bytes != self.layout.block_bytes() {
            return Err(SaveError::BlockBytes { memory: block_bytes, layout: self.layout.block_bytes() });
        }
        let unfinished = Unfinished::new(folder, folder::CACHE)?;
        let failed = |error| Unfinished::error(folder, folder::CACHE, error);
        let report = self.write(&unfinished, memory).map_err(failed)?;
        unfinished.publish()?;
        Ok(report)
    }

    fn write(&self, unfinished: &Unfinished, memory: &mut (impl BlockBytes + ?Sized)) -> io::Result<SaveReport> {
        let saved_at = since_1970();
        let (header, head) = header::write(header::CACHE, self.layout, memory.block_bytes(), number_of(saved_at));
        let mut to = BufWriter::with_capacity(CHUNK_BYTES, &unfinished.file);
        to.write_all(&head)?;

        let snapshot = self.cache.snapshot();
        let known = |name: &NamespaceName| extra_tokens(name.keys()).is_some();
        let cached = Cached::of(self.cache, &snapshot, |name| known(name) && (self.keep)(name));
        let mut copies = Copies::new(self, &cached, saved_at);
        let sealing = Sealing::new(self.layout, header.seed);
        let mut copying = Copying::new(memory, to, sealing.clone());
        copies.copy_all(&mut copying)?;

        let blocks = copying.blocks.count;
        let mut records = Records::new(copying.blocks.into_inner(), sealing.clone());
        let runs = copies.write_records(&mut records)?;
        let bytes = finish(records, &header, &sealing, blocks, saved_at)?;
        let unreadable_blocks = copies.unreadable();
        let all: usize = cached.runs.iter().map(|run| run.blocks.len()).sum();
        Ok(SaveReport {
            blocks: blocks as usize,
            runs,
            bytes,
            evicted_blocks: all - blocks as usize - unreadable_blocks,
            unreadable_blocks,
        })
    }
}

/// The state of one save: the copied part of each run.
struct Copies<'a> {
    save: &'a Save<'a>,
    cached: &'a Cached<'a>,
    saved_at: Duration,
    session: Session,
    spaces: Vec<Namespace>,
    /// For each namespace, the witness that it was not cleared since its first block was copied.
    witnesses: Vec<Option<Witness>>,
    copied: Vec<Copied>,
    /// For each run, whether a run follows its last block.
    is_continued: Vec<bool>,
}

/// Shows whether a namespace was cleared: a lease keeps a block of it from being evicted, and a
/// weak lease on the same block can be upgraded only until the namespace is cleared.
struct Witness {
    _held: Lease,
    weak: WeakLease,
}

/// The copied beginning of a run.
#[derive(Debug, Clone, Default)]
struct Copied {
    places: Vec<Place>,
    is_unreadable: bool,
    priority: Option<SavedPriority>,
}

impl<'a> Copies<'a> {
    fn new(save: &'a Save<'a>, cached: &'a Cached<'a>, saved_at: Duration) -> Self {
        let handle = |name: &&NamespaceName| {
            save.cache.namespace(NamespaceName::new(&name.parts().collect::<Vec<_>>()).with_keys(name.keys()))
        };
        let spaces = cached.namespaces.iter().map(handle).collect();
        let mut is_continued = vec![false; cached.runs.len()];
        let size = save.cache.block_size();
        for run in &cached.runs {
            if let Some(parent) = run.parent {
                is_continued[parent] |= run.start == end_of(&cached.runs[parent], size);
            }
        }
        let copied = vec![Copied::default(); cached.runs.len()];
        let witnesses = cached.namespaces.iter().map(|_| None).collect();
        Self { save, cached, saved_at, session: save.cache.session(), spaces, witnesses, copied, is_continued }
    }

    /// Matches each sequence that no longer sequence continues, and copies its cached blocks.
    fn copy_all<B: BlockBytes + ?Sized, W: Write>(&mut self, copying: &mut Copying<'_, B, W>) -> io::Result<()> {
        let runs = &self.cached.runs;
        let places: Vec<_> = runs.iter().map(|run| (run.parent, run.start)).collect();
        let mut tokens = Vec::new();
        for number in depth_first(&places) {
            let run = &runs[number];
            tokens.truncate(run.start);
            tokens.extend(run.tokens);
            self.copied[number].priority = self.priority_of(run, &tokens);
            if !self.is_continued[number] {
                self.copy_sequence(number, &tokens, copying)?;
            }
        }
        Ok(())
    }

    fn priority_of(&self, run: &CachedBlocks<'_>, tokens: &[Token]) -> Option<SavedPriority> {
        let priority = (self.save.priorities)(self.cached.namespaces[run.namespace], tokens)?;
        let until = priority.ttl().map(|ttl| self.saved_at.saturating_add(ttl).as_millis());
        Some(SavedPriority {
            level: priority.level(),
            until: until.map(|until| u64::try_from(until).unwrap_or(u64::MAX - 1)),
        })
    }

    /// Copies the cached blocks of the sequence that ends with run `last`, except those that were
    /// copied with another sequence.
    fn copy_sequence<B: BlockBytes + ?Sized, W: Write>(
        &mut self,
        last: usize,
        tokens: &[Token],
        copying: &mut Copying<'_, B, W>,
    ) -> io::Result<()> {
        let (runs, size) = (&self.cached.runs, self.save.cache.block_size());
        let Some(hit) = self.match_as_of_the_snapshot(last, tokens) else { return Ok(()) };
        let of_snapshot = hit.blocks().iter().zip(self.blocks_of(last)).take_while(|&(&now, then)| now == then).count();
        // From the end of the sequence back to a run whose part of it is already copied.
        let (mut path, mut end, mut next) = (Vec::new(), end_of(&runs[last], size), Some(last));
        while let Some(run) = next.filter(|&run| self.end_of_copy(run) < end) {
            path.push((run, end));
            (end, next) = (runs[run].start, runs[run].parent);
        }
        for (run, end) in path.into_iter().rev() {
            let copied = self.end_of_copy(run);
            let blocks = copied / size..(end / size).min(of_snapshot);
            for &block in hit.blocks().get(blocks).unwrap_or_default() {
                match copying.copy(block)? {
                    Some(place) => self.copied[run].places.push(place),
                    None => {
                        self.copied[run].is_unreadable = true;
                        return Ok(());
                    }
                }
            }
            // The run is cut here: nothing after it is copied.
            if self.end_of_copy(run) < end {
                break;
            }
        }
        Ok(())
    }

    /// Matches the sequence that ends with run `last`. `None` if its namespace was cleared since
    /// blocks of it were copied: newer blocks may belong to other weights.
    fn match_as_of_the_snapshot(&mut self, last: usize, tokens: &[Token]) -> Option<PrefixMatch> {
        let namespace = self.cached.runs[last].namespace;
        let (space, session) = (&self.spaces[namespace], &self.session);
        let witness = match &self.witnesses[namespace] {
            Some(witness) => witness,
            None => {
                let first = self.save.cache.block_size() + extra_tokens(space.keys()).unwrap_or(0);
                let held = session.match_prefix_untouched(space, &tokens[..first.min(tokens.len())]).into_lease();
                let weak = held.downgrade();
                self.witnesses[namespace].insert(Witness { _held: held, weak })
            }
        };
        // The witness is checked after the match: if the namespace is not cleared then, it was not
        // cleared when the blocks were matched.
        let hit = session.match_prefix_untouched(space, tokens);
        match session.upgrade(&witness.weak) {
            Some(_) => Some(hit),
            None => {
                // Nothing was cached there, and nothing was copied: the next sequence may give a
                // witness.
                if witness.weak.len_tokens() == 0 {
                    self.witnesses[namespace] = None;
                }
                None
            }
        }
    }

    /// The blocks of the sequence that ends with run `last`, as of the snapshot.
    fn blocks_of(&self, last: usize) -> Vec<BlockId> {
        let (runs, size) = (&self.cached.runs, self.save.cache.block_size());
        let mut path: Vec<usize> = std::iter::successors(Some(last), |&run| runs[run].parent).collect();
        path.reverse();
        path.into_iter().fold(Vec::new(), |mut blocks, run| {
            blocks.truncate(runs[run].start / size);
            blocks.extend(runs[run].blocks);
            blocks
        })
    }

    /// Number of tokens up to the end of the copied part of a run.
    fn end_of_copy(&self, run: usize) -> usize {
        self.cached.runs[run].start + self.copied[run].places.len() * self.save.cache.block_size()
    }

    /// Number of blocks that were not copied because a block of their own run or before it could
    /// not be read.
    fn unreadable(&self) -> usize {
        let size = self.save.cache.block_size();
        let mut is_cut = vec![false; self.copied.len()];
        let mut unreadable = 0;
        for (number, run) in self.cached.runs.iter().enumerate() {
            let copied = &self.copied[number];
            let is_behind = run.parent.is_some_and(|parent| is_cut[parent] && self.end_of_copy(parent) < run.start);
            is_cut[number] = copied.is_unreadable || is_behind;
            debug_assert!(run.start + run.blocks.len() * size == end_of(run, size));
            if is_cut[number] {
                unreadable += run.blocks.len() - copied.places.len();
            }
        }
        unreadable
    }

    /// Writes the records of namespaces and of the copied runs; returns the number of runs.
    fn write_records(&self, records: &mut Records<impl Write>) -> io::Result<usize> {
        let names = self.cached.namespaces.iter().map(|name| records.write(SavedNamespace::of(name).write()));
        let namespaces = names.collect::<io::Result<Vec<_>>>()?;
        let (mut numbers, mut count) = (vec![None; self.copied.len()], 0);
        for (number, (run, copied)) in self.cached.runs.iter().zip(&self.copied).enumerate() {
            if copied.places.is_empty() {
                continue;
            }
            let blocks = copied.places.clone();
            let extra = run.tokens.len() - run.blocks.len() * self.save.cache.block_size();
            let saved = SavedRun {
                namespace: namespaces[run.namespace],
                parent: run.parent.and_then(|parent| numbers[parent]),
                start: run.start,
                last_used: run.last_used,
                uses: run.uses,
                priority: copied.priority,
                tokens: run.tokens[..blocks.len() * self.save.cache.block_size() + extra].to_vec(),
                blocks,
            };
            numbers[number] = Some(records.write(saved.write())?);
            count += 1;
        }
        Ok(count)
    }
}

fn end_of(run: &CachedBlocks<'_>, block_size: usize) -> usize {
    run.start + run.blocks.len() * block_size
}

/// A number that no other save has: from the time and the process id.
pub(crate) fn number_of(saved_at: Duration) -> u64 {
    saved_at.as_nanos() as u64 ^ u64::from(std::process::id()) << 48
}

/// Writes the trailer after the records; returns the size of the file in bytes.
pub(crate) fn finish(
    records: Records<impl Write>,
    header: &header::Header,
    sealing: &Sealing,
    blocks: u64,
    saved_at: Duration,
) -> io::Result<u64> {
    let records_at = header::BYTES as u64 + blocks * header.stored_bytes(sealing);
    let records_bytes = records.bytes;
    let tail = Trailer { records_at, records_bytes, blocks, saved_at: saved_at.as_millis() as u64 }.write(header);
    let mut to = records.into_inner();
    to.write_all(&tail)?;
    to.flush()?;
    Ok(records_at + records_bytes + tail.len() as u64)
}

/// The time since 1970, by the system's clock.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
