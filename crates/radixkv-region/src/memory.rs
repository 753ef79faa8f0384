//! The mapped memory of a region, as atomic words. All of a region's content is read and written
//! through this module.
//!
//! # Invariants
//!
//! - **M1** The words are mapped, readable, writable and aligned for as long as the `Memory` lives.
//! - **M2** In this process only atomic operations access the words. Other processes follow the
//!   same protocol (the contract of [`Memory::lent`], and of all processes that may open a file).
#![allow(unsafe_code)]

use std::{any::Any, fmt, fs::File, io, ops::Range, ptr::NonNull};

use memmap2::{MmapOptions, MmapRaw};

use crate::sync::AtomicU64;

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// The memory of a region: page-locked, CXL, DAX, or any other mapping that the caller made.
///
/// Passed to [`Region::format`](crate::Region::format) and
/// [`Region::attach`](crate::Region::attach). A region in a file makes its own.
pub struct Memory {
    start: NonNull<u64>,
    words: usize,
    /// Keeps the mapping in place.
    _backing: Box<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics, accessed only through shared references (M2); the backing is
// `Send`.
unsafe impl Send for Memory {}
// SAFETY: as above; the backing is not accessed before it is dropped.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates memory of this process only, for regions that its threads share and for tests.
    ///
    /// # Errors
    ///
    /// The system's error, if it has no such memory.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let mapping = MmapOptions::new().len(bytes.max(1)).map_anon()?;
        Self::mapped(mapping.into())
    }

    /// Maps a whole file, shared with each process that maps it.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        Self::mapped(MmapOptions::new().map_raw(file)?)
    }

    /// Uses memory that the caller mapped, shares with the other processes, and keeps mapped until
    /// `keep` is dropped.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `start` on are readable and writable until `keep` is dropped, which
    /// happens when the region is. Until then, in all processes, only these write to them: regions
    /// of this package, devices to which a [`Reservation`](crate::Reservation) gave its address,
    /// and code that stores through atomics. They are read only through atomics or by devices.
    ///
    /// # Panics
    ///
    /// If `start` is not a multiple of 64.
    pub unsafe fn lent(start: NonNull<u8>, bytes: usize, keep: impl Any + Send + Sync) -> Self {
        assert_eq!(start.addr().get() % 64, 0, "a region begins at a multiple of 64 bytes");
        Self { start: start.cast(), words: bytes / WORD, _backing: Box::new(keep) }
    }

    /// The size in bytes, rounded down to whole words.
    pub fn len(&self) -> usize {
        self.words * WORD
    }

    /// Whether the memory has less than one word.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    fn mapped(mapping: MmapRaw) -> io::Result<Self> {
        let start = NonNull::new(mapping.as_mut_ptr().cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, words: mapping.len() / WORD, _backing: Box::new(mapping) })
    }

    /// A part of the words.
    ///
    /// # Panics
    ///
    /// If the range is not inside the memory.
    pub(crate) fn words(&self, at: Range<usize>) -> &[AtomicU64] {
        assert!(at.start <= at.end && at.end <= self.words, "words {at:?} of {}", self.words);
        let start = self.start.as_ptr().wrapping_add(at.start).cast();
        // SAFETY: M1, and the range was checked; M2: shared and atomic.
        unsafe { std::slice::from_raw_parts(start, at.len()) }
    }

    /// The address of a word, for devices.
    pub(crate) fn address(&self, at: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(at).cast()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("start", &self.start).field("bytes", &self.len()).finish()
    }
}
