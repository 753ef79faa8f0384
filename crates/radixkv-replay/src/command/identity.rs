//! Whether two paths lead to one file: through links, through names of the same file, or through a descriptor.

use std::{
    fs::{self, Metadata},
    io,
    path::Path,
};

/// A file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    #[cfg(unix)]
    pub(crate) fn new(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Files cannot be told apart by what the standard library tells of them.
    #[cfg(not(unix))]
    pub(crate) fn new(_: &Metadata) -> Option<Self> {
        None
    }

    /// The file at the end of a path, unless it is a terminal or the like: what is written there does no harm to what is
    /// read.
    pub(crate) fn of_contents(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        if has_two_ends(&metadata) { None } else { Self::new(&metadata) }
    }

    /// What standard output goes to.
    pub(crate) fn of_stdout() -> Option<Self> {
        Self::new(&stdout().ok()?)
    }
}

#[cfg(unix)]
fn has_two_ends(metadata: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_char_device() || metadata.file_type().is_socket()
}

#[cfg(not(unix))]
fn has_two_ends(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn stdout() -> io::Result<Metadata> {
    use std::os::fd::AsFd;
    fs::File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()
}

#[cfg(not(unix))]
fn stdout() -> io::Result<Metadata> {
    Err(io::ErrorKind::Unsupported.into())
}
