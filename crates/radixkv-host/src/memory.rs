//! The memory of a tier, divided into blocks of one size.
//!
//! # Invariants
//!
//! - **B1** The bytes are readable and writable for as long as the `Memory` lives, and nothing else
//!   accesses them.
//! - **B2** A block's bytes are borrowed mutably only by the arrival that reserved the block (H1 in
//!   `slots`), and borrowed shared only while the block is pinned; never both at once (H2). The
//!   tier's lock is taken between the end of one borrow and the beginning of the other.
#![allow(unsafe_code)]

use std::{fmt, ptr::NonNull};

/// Memory for the blocks of a [`HostTier`](crate::HostTier), such as a `Vec<u8>`, a mapped file, or
/// page-locked, CXL or DAX memory.
///
/// # Examples
///
/// ```
/// use radixkv_host::{HostTier, Memory};
///
/// // 64 blocks of 16 tokens, of 4 KiB each.
/// let tier = HostTier::builder(16, 64).memory(4096, Memory::new(vec![0; 64 * 4096])).build()?;
/// assert_eq!(tier.block_bytes(), 4096);
/// # Ok::<_, radixkv_host::HostBuildError>(())
/// ```
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the bytes in place; not accessed before it is dropped.
    owner: Option<NonNull<dyn Owner>>,
}

/// Anything that is to be dropped with the memory.
trait Owner: Send {}

impl<T: Send> Owner for T {}

// SAFETY: only the `Memory` owns the bytes (B1), and bytes may be used on any thread; the owner is
// `Send`.
unsafe impl Send for Memory {}
// SAFETY: shared references give access to bytes only by the rules of B2, and none to the owner.
unsafe impl Sync for Memory {}

impl Memory {
    /// Uses the bytes of `owner`, which is dropped with the tier.
    pub fn new<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        // Leaked until this is dropped, so that the slice stays borrowed and the owner is not
        // accessed meanwhile.
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // SAFETY: it was just leaked, and nothing else has a reference to it.
        let bytes: &'static mut [u8] = unsafe { &mut *owner.as_ptr() }.as_mut();
        Self { start: NonNull::from(&mut *bytes).cast(), bytes: bytes.len(), owner: Some(owner) }
    }

    /// Uses memory that the caller mapped and keeps mapped until `keep` is dropped, which happens
    /// with the tier.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `start` on are initialised, readable and writable until `keep` is
    /// dropped. Until then only the tier reads or writes them, and devices to which a
    /// [`Mover`](crate::Mover) gave a block's address, for the duration of its call.
    pub unsafe fn from_raw<T: Send + 'static>(start: NonNull<u8>, bytes: usize, keep: T) -> Self {
        Self { start, bytes, owner: Some(NonNull::from(Box::leak(Box::new(keep)))) }
    }

    /// Allocates `bytes` bytes; `None` if the system does not have them. Their pages are taken from
    /// the system when they are first written.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        // First reserved and freed: a failure is reported here, but would abort the process below.
        Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
        Some(Self::new(vec![0; bytes]))
    }

    /// No memory, for a tier that only counts.
    pub(crate) fn none() -> Self {
        Self { start: NonNull::dangling(), bytes: 0, owner: None }
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes of block `at`, for reading; each block has `size` bytes.
    ///
    /// # Safety
    ///
    /// The caller keeps the block pinned while the slice lives.
    pub(crate) unsafe fn block(&self, at: usize, size: usize) -> &[u8] {
        let start = self.address(at, size);
        // SAFETY: inside the memory (B1), and not written meanwhile (B2).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), size) }
    }

    /// The bytes of block `at`, for writing; each block has `size` bytes.
    ///
    /// # Safety
    ///
    /// The caller has the block reserved, and borrows its bytes only once at a time.
    #[expect(clippy::mut_from_ref, reason = "a block's reservation is what makes the borrow exclusive")]
    pub(crate) unsafe fn block_mut(&self, at: usize, size: usize) -> &mut [u8] {
        let start = self.address(at, size);
        // SAFETY: inside the memory (B1), and not borrowed by anything else (B2).
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size) }
    }

    /// The address of a block.
    ///
    /// # Panics
    ///
    /// If the block is not inside the memory.
    fn address(&self, at: usize, size: usize) -> NonNull<u8> {
        let end = (at + 1).checked_mul(size);
        assert!(end.is_some_and(|end| end <= self.bytes), "block {at} of {size} bytes in {} bytes", self.bytes);
        // SAFETY: the assertion above says that the block ends inside the memory.
        unsafe { self.start.add(at * size) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            // SAFETY: leaked by the constructor, and its borrow ends here.
            drop(unsafe { Box::from_raw(owner.as_ptr()) });
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
