//! Memory for models: words that loom watches. Replaces `memory.rs`.

use std::{fs::File, io, ops::Range, sync::Arc};

use crate::sync::AtomicU64;

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// The words of a model. A clone is the same memory, as another process maps it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<[AtomicU64]>);

impl Memory {
    /// Zeroed words.
    ///
    /// # Errors
    ///
    /// None.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        Ok(Self((0..bytes.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(crate) fn of_file(_: &File) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes of the memory.
    pub fn len(&self) -> usize {
        self.0.len() * WORD
    }

    /// Whether the memory has no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn words(&self, at: Range<usize>) -> &[AtomicU64] {
        &self.0[at]
    }

    pub(crate) fn address(&self, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
}
