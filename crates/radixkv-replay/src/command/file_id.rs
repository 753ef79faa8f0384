//! Detects that two paths lead to the same file: through symbolic links, hard links, or a
//! descriptor.

use std::{
    fs::{self, Metadata},
    io,
    path::Path,
};

/// Identifies a file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[cfg(unix)]
    pub(crate) fn new(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// The standard library does not identify files on this system.
    #[cfg(not(unix))]
    pub(crate) fn new(_: &Metadata) -> Option<Self> {
        None
    }

    /// The file that a path leads to; `None` for a terminal or a socket, where writing does not
    /// change what is read.
    pub(crate) fn of_contents(path: &Path) -> Option<Self> {
        Self::of_one_end(&fs::metadata(path).ok()?)
    }

    /// The file that standard input comes from; `None` as for [`of_contents`](Self::of_contents).
    pub(crate) fn of_stdin() -> Option<Self> {
        Self::of_one_end(&stdin().ok()?)
    }

    fn of_one_end(metadata: &Metadata) -> Option<Self> {
        if has_two_ends(metadata) { None } else { Self::new(metadata) }
    }

    /// The file that standard output is connected to.
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
fn stdin() -> io::Result<Metadata> {
    use std::os::fd::AsFd;
    fs::File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata()
}

#[cfg(not(unix))]
fn stdin() -> io::Result<Metadata> {
    Err(io::ErrorKind::Unsupported.into())
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
