//! A census of a region, for operators and monitoring: its blocks by namespace and by process.

use std::{path::Path, time::Duration};

use super::{DigestLayout, DigestRegion, key::DigestKey, namespace::Namespace, sum};
use crate::{
    counts::Miss,
    entry::Entry,
    geometry::{NAMESPACES, SLOTS},
    header::OpenError,
    memory::WORD,
    process,
    region::Region,
    state::Kind,
    sync::{Relaxed, gauge},
};

/// The blocks of a region, by namespace and by process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Blocks that the region has room for.
    pub capacity: usize,
    /// Bytes of the largest block.
    pub entry_bytes: usize,
    /// Empty entries.
    pub free: usize,
    /// The namespaces that were opened, in the order of their names.
    pub namespaces: Vec<NamespaceCensus>,
    /// The processes that have the region open, and killed ones that were not recovered yet.
    pub processes: Vec<ProcessCensus>,
    /// Blocks whose process has closed the region or was killed and recovered.
    pub ownerless_blocks: usize,
}

/// The content of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceCensus {
    /// The namespace, which says what its blocks mean.
    pub namespace: Namespace,
    /// The maximum number of its blocks, if there is a limit.
    pub quota: Option<u64>,
    /// Blocks that it has.
    pub blocks: usize,
    /// Bytes of these blocks.
    pub bytes: usize,
    /// The age of the block that was stored first.
    pub oldest: Option<Duration>,
    /// The age of the block that was stored last.
    pub newest: Option<Duration>,
}

/// The blocks and the counters of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessCensus {
    /// Its pid, in its own PID namespace.
    pub pid: u32,
    /// Whether it is dead, as far as this process can tell.
    pub is_dead: bool,
    /// Whether it is the `DigestRegion` that makes the census.
    pub is_own: bool,
    /// Blocks that it stored and that are still in the region.
    pub blocks: usize,
    /// Entries that it is writing.
    pub in_flight: usize,
    /// Blocks that it found.
    pub hits: u64,
    /// Blocks that it did not find.
    pub misses: u64,
    /// Blocks that it stored, including those that are no longer in the region.
    pub stored: u64,
    /// How long it has had the region open.
    pub open_for: Duration,
}

/// A read-only view of a region of digest-keyed blocks. It takes no process slot and recovers
/// nothing, so killed processes stay visible.
#[derive(Debug)]
pub struct DigestObserver(DigestRegion);

/// The result of [`DigestRegion::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Blocks whose record and checksum are correct.
    pub right: usize,
    /// Blocks whose record is correct, in namespaces without checksums.
    pub without_checksum: usize,
    /// Blocks that were removed because their record or their bytes are damaged.
    pub removed: usize,
}

impl DigestObserver {
    /// Opens the region in a file.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let region = Region::observe(path.as_ref(), |layout| DigestLayout::of(layout).0)?;
        Ok(Self(DigestRegion { region, quota: gauge::AtomicU64::new(0) }))
    }

    /// Counts the region's blocks, as [`DigestRegion::census`] does.
    pub fn census(&self) -> Census {
        self.0.census()
    }
}

impl DigestRegion {
    /// Counts the region's blocks by namespace and by process. Checks all entries; exact if no
    /// process stores or removes blocks meanwhile.
    pub fn census(&self) -> Census {
        let (region, now) = (&self.region, process::now());
        let mut namespaces = self.empty_namespaces();
        let mut processes = self.empty_processes(now);
        let (mut free, mut ownerless_blocks) = (0, 0);
        for entry in self.entries() {
            let state = entry.look();
            if state.kind() == Kind::Writing {
                if let Some(Some(process)) = processes.get_mut(state.slot()) {
                    process.in_flight += 1;
                }
                continue;
            }
            let Some((number, slot)) = region.charged(&entry) else {
                free += 1;
                continue;
            };
            if let Some(Some(namespace)) = namespaces.get_mut(number - 1) {
                namespace.add(&entry, now);
            }
            match slot.and_then(|slot| processes[slot].as_mut()) {
                Some(process) => process.blocks += 1,
                None => ownerless_blocks += 1,
            }
        }
        let mut namespaces: Vec<_> = namespaces.into_iter().flatten().collect();
        namespaces.sort_by(|one, other| one.namespace.name().cmp(other.namespace.name()));
        let processes = processes.into_iter().flatten().collect();
        let layout = region.layout();
        let (capacity, entry_bytes) = (layout.capacity(), layout.block_bytes());
        Census { capacity, entry_bytes, free, namespaces, processes, ownerless_blocks }
    }

    /// Removes blocks that were stored at least `age` ago, from the given namespace or from all.
    /// Returns how many. Blocks that cannot be read have no age and are also removed: those from
    /// before a restart of the machine, and those with a damaged record.
    pub fn trim(&self, age: Duration, namespace: Option<&str>) -> usize {
        let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = process::now().checked_sub(millis);
        let mut meant = [namespace.is_none(); NAMESPACES];
        for (number, known) in self.region.table().all() {
            meant[number as usize - 1] |= Some(known.name()) == namespace;
        }
        self.region.discard_all(|entry| {
            let number = self.region.charged(entry).map(|(number, _)| number);
            // If the state has changed since, the block is not removed.
            let is_unreadable = || entry.is_unfit(entry.look(), self.region.boot()) == Some(Miss::Damaged);
            let is_meant = number.is_some_and(|number| meant[number - 1]);
            is_meant && (before.is_some_and(|before| entry.stored_at() <= before) || is_unreadable())
        })
    }

    /// Reads all blocks, and removes those whose record or bytes are damaged. A block that is
    /// replaced meanwhile is not counted.
    pub fn verify(&self) -> Verified {
        let mut namespaces: Vec<_> = self.region.table().all().collect();
        let mut verified = Verified::default();
        for entry in self.entries() {
            let state = entry.look();
            if state.kind() != Kind::Ready {
                continue;
            }
            let number = entry.namespace();
            let known = namespaces.iter().position(|(known, _)| *known == number);
            let known = known.or_else(|| {
                // It may have been opened since.
                namespaces.push((number, self.region.table().get(number)?));
                Some(namespaces.len() - 1)
            });
            let namespace = known.map(|at| &namespaces[at].1);
            let is_right = match (entry.is_unfit(state, self.region.boot()), namespace) {
                (Some(Miss::Damaged), _) | (_, None) => false,
                (_, Some(namespace)) => !namespace.has_checksums || has_checksum(&entry, number, namespace),
            };
            if !entry.is_still(state) {
                continue;
            }
            match namespace {
                _ if !is_right => verified.removed += usize::from(self.region.discard(entry, state)),
                Some(namespace) if namespace.has_checksums => verified.right += 1,
                _ => verified.without_checksum += 1,
            }
        }
        verified
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.region.layout().capacity()).map(|number| self.region.entry(number))
    }

    /// The namespaces, indexed by number - 1, with no blocks counted yet.
    fn empty_namespaces(&self) -> Vec<Option<NamespaceCensus>> {
        let table = self.region.table();
        let mut all: Vec<_> = (0..NAMESPACES).map(|_| None).collect();
        for (number, namespace) in table.all() {
            // Relaxed: only reported.
            let quota = table.quota(number).map(|quota| quota.load(Relaxed)).filter(|quota| *quota != 0);
            all[number as usize - 1] =
                Some(NamespaceCensus { namespace, quota, blocks: 0, bytes: 0, oldest: None, newest: None });
        }
        all
    }

    /// The processes, indexed by slot, with no blocks counted yet.
    fn empty_processes(&self, now: u64) -> Vec<Option<ProcessCensus>> {
        let census = |slot| {
            let (pid, is_dead) = self.region.owner_of(slot)?;
            let [hits, misses, stored, opened] = self.region.account(slot).read();
            let (is_own, open_for) = (slot == self.region.slot(), Duration::from_millis(now.saturating_sub(opened)));
            Some(ProcessCensus { pid, is_dead, is_own, blocks: 0, in_flight: 0, hits, misses, stored, open_for })
        };
        (0..SLOTS).map(census).collect()
    }
}

impl NamespaceCensus {
    fn add(&mut self, entry: &Entry<'_>, now: u64) {
        let age = Duration::from_millis(now.saturating_sub(entry.stored_at()));
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(self.namespace.block_bytes());
        self.oldest = self.oldest.max(Some(age));
        self.newest = Some(self.newest.map_or(age, |newest| newest.min(age)));
    }
}

/// Whether the bytes of an entry match its checksum.
fn has_checksum(entry: &Entry<'_>, number: u64, namespace: &Namespace) -> bool {
    let words = entry.payload();
    let len = namespace.block_bytes().min(words.len() * WORD);
    let seed = DigestKey::from_words(entry.key_words()).seed(number);
    sum::of(&words[..len.div_ceil(WORD)], len, seed) == entry.checksum()
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DigestPut, Memory, entry::NEVER};

    // Holds: RG4.
    #[test]
    fn blocks_from_before_a_restart_of_the_machine_are_trimmed_whatever_their_time() {
        let layout = DigestLayout::new(8, 8);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
        let region = Arc::new(DigestRegion::format(memory, &layout).expect("formatted"));
        let [one, two] = ["one", "two"].map(|name| region.namespace(&Namespace::new(name, 16, 8)).expect("opened"));
        let key = |number| DigestKey::new(&[number; 16]).expect("a digest");
        for blocks in [&one, &two] {
            assert_eq!(blocks.put_from(&[key(1)], &[&[7; 8]], None), Ok(vec![DigestPut::Stored]));
            assert!(blocks.claim(&key(2), NEVER, 0).expect("room").publish(region.region.boot() ^ 1));
        }
        assert_eq!(region.trim(Duration::from_secs(3600), Some("one")), 1);
        assert_eq!((region.trim(Duration::MAX, None), region.stats().blocks), (1, 2));
    }
}
