//! The bytes of a tier: memory that the caller gives, cut into blocks of one size.
//!
//! # Invariants
//!
//! - **B1** The bytes are readable and writable for as long as the `Memory` lives, and nothing else touches them.
//! - **B2** A block's bytes are borrowed mutably by the one arrival that has the block reserved (H1 in `slots`), and shared
//!   by those who pin it; never both at once (H2). The tier's lock is between the end of the one and the beginning of the
//!   other.
#![allow(unsafe_code)]

use std::{fmt, ptr::NonNull};

/// Memory for the blocks of a [`HostTier`](crate::HostTier): a `Vec<u8>`, a mapped file, page-locked memory, CXL, DAX.
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
    /// What keeps the bytes in place; it is not touched before the drop.
    owner: Option<NonNull<dyn Owner>>,
}

/// Anything that is dropped when the memory is.
trait Owner: Send {}

impl<T: Send> Owner for T {}

// SAFETY: the bytes belong to the `Memory` alone (B1), and bytes may be used on any thread; the owner is `Send`.
unsafe impl Send for Memory {}
// SAFETY: shared references give out bytes by the rules of B2 alone, and nothing of the owner.
unsafe impl Sync for Memory {}

impl Memory {
    /// Uses the bytes of `owner`, which is dropped with the tier.
    pub fn new<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        // Leaked until the drop: so the slice is borrowed, and the owner is not touched, for as long.
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
    /// `bytes` bytes from `start` on are initialised, readable and writable until `keep` is dropped. Until then nothing reads
    /// or writes them but the tier, and devices to which a [`Mover`](crate::Mover) gave a block's address for as long as
    /// its call lasts.
    pub unsafe fn from_raw<T: Send + 'static>(start: NonNull<u8>, bytes: usize, keep: T) -> Self {
        Self { start, bytes, owner: Some(NonNull::from(Box::leak(Box::new(keep)))) }
    }

    /// So many bytes of new memory; none if the system does not have them. Their pages are taken when they are written to.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        // Asked for and given back: what cannot be had is an error here, and would end the process below.
        Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
        Some(Self::new(vec![0; bytes]))
    }

    /// No bytes: for a tier that only counts.
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

    /// The bytes of block `at`, of blocks of `size` bytes, to be read.
    ///
    /// # Safety
    ///
    /// The caller has the block pinned for as long as the slice lives.
    pub(crate) unsafe fn block(&self, at: usize, size: usize) -> &[u8] {
        let start = self.address(at, size);
        // SAFETY: within the memory (B1), and not written meanwhile (B2).
        unsafe { std::slice::from_raw_parts(start.as_ptr(), size) }
    }

    /// The bytes of block `at`, of blocks of `size` bytes, to be written.
    ///
    /// # Safety
    ///
    /// The caller has the block reserved, and borrows it once at a time.
    #[expect(clippy::mut_from_ref, reason = "a block's reservation is what makes the borrow exclusive")]
    pub(crate) unsafe fn block_mut(&self, at: usize, size: usize) -> &mut [u8] {
        let start = self.address(at, size);
        // SAFETY: within the memory (B1), and borrowed by nothing else (B2).
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), size) }
    }

    /// Where a block begins.
    ///
    /// # Panics
    ///
    /// If it does not lie in the memory.
    fn address(&self, at: usize, size: usize) -> NonNull<u8> {
        let end = (at + 1).checked_mul(size);
        assert!(end.is_some_and(|end| end <= self.bytes), "block {at} of {size} bytes in {} bytes", self.bytes);
        // SAFETY: the block was just seen to end within the memory.
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
