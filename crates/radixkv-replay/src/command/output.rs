//! Writes a file atomically.
//!
//! An existing file stays unchanged until the new one is complete: rows are written to a temporary
//! file in the same folder. After everything else has succeeded, it replaces the existing file and
//! gets its permissions. A symbolic link stays a link. A pipe, a device or an open descriptor is
//! written to directly.
//!
//! Whether the file can be written is checked before the replay.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{console, file_id::FileId, input::Input};

/// Maximum number of symbolic links that are followed.
const MAX_LINKS: usize = 40;
/// The prefix of the names of temporary files.
const PREFIX: &str = ".radixkv-";

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The output is also the input: write to another file.
    #[error("{}: not written: it is the trace that is being read; write to another file", path.display())]
    IsInput { path: PathBuf },
    /// Another option names the output as a file to read: write to another file.
    #[error("{}: not written: another option reads it; write to another file", path.display())]
    IsRead { path: PathBuf },
    /// Standard output is not possible here: name a file.
    #[error("-: not written: a file is needed here; use ./- for a file named -")]
    Dash,
    /// Two outputs are the same file: write to two files.
    #[error("{}: not written: two options name it; write to two files", path.display())]
    Twice { path: PathBuf },
    /// The system refused to write the file.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl OutputError {
    /// An error of standard output.
    pub(crate) fn stdout(source: io::Error) -> Self {
        Self::Unwritable { path: "standard output".into(), source }
    }
}

/// A file to be written, which is not the input.
pub(crate) struct Output {
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A regular file: its path with all links resolved, and the metadata of the existing file.
    Replaced { at: PathBuf, older: Option<Metadata> },
    /// Anything else.
    Opened(File),
    /// Standard output under another name.
    Stdout,
}

/// A file that was written; a regular file still has its temporary name.
pub(crate) struct Written {
    path: PathBuf,
    staged: Option<(NamedTempFile, PathBuf)>,
}

impl Output {
    /// Finds the file that `path` leads to and checks that it can be written. Changes nothing.
    pub(crate) fn new(path: &Path, input: &Input) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Err(OutputError::Dash);
        }
        if FileId::of_contents(path).is_some_and(|output| input.file_id() == Some(output)) {
            return Err(OutputError::IsInput { path: path.into() });
        }
        let target = Target::new(path).map_err(|source| OutputError::Unwritable { path: path.into(), source })?;
        Ok(Self { path: path.into(), target })
    }

    /// Writes the whole file; a regular file becomes visible with [`Written::publish`].
    pub(crate) fn write(self, rows: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Written, OutputError> {
        let path = self.path;
        match self.target.write(rows) {
            Ok(staged) => Ok(Written { path, staged }),
            Err(source) => Err(OutputError::Unwritable { path, source }),
        }
    }
}

/// Fails if one of the outputs is the file that another option reads.
pub(crate) fn check_not_read<const N: usize>(
    read: &Option<PathBuf>,
    outputs: [&Option<PathBuf>; N],
) -> Result<(), OutputError> {
    let read = read.as_deref().and_then(|path| Input::new(path).file_id());
    let is_read = |path: &&PathBuf| read.is_some() && FileId::of_contents(path) == read;
    let found = outputs.into_iter().flatten().find(is_read);
    found.map_or(Ok(()), |path| Err(OutputError::IsRead { path: path.clone() }))
}

/// Fails if two of the outputs are the same file, also one that does not exist yet.
pub(crate) fn check_distinct<const N: usize>(paths: [&Option<PathBuf>; N]) -> Result<(), OutputError> {
    let paths: Vec<&PathBuf> = paths.into_iter().flatten().collect();
    let id = |path: &PathBuf| FileId::of_contents(path);
    // A new file has no identity, but only one path without links.
    let resolved = |path: &PathBuf| regular(path, fs::metadata(path).ok().as_ref()).ok().flatten();
    let is_same = |a: &PathBuf, b: &PathBuf| {
        a == b || id(a).is_some_and(|a| id(b) == Some(a)) || resolved(a).is_some_and(|a| resolved(b) == Some(a))
    };
    let twice = (1..paths.len()).find(|&at| paths[..at].iter().any(|earlier| is_same(earlier, paths[at])));
    twice.map_or(Ok(()), |at| Err(OutputError::Twice { path: paths[at].clone() }))
}

impl Written {
    /// Renames the file to its final name. If `Written` is dropped instead, nothing changes.
    pub(crate) fn publish(self) -> Result<(), OutputError> {
        let Self { path, staged } = self;
        let published = staged.map_or(Ok(()), |(file, at)| file.persist(at).map(drop));
        published.map_err(|error| OutputError::Unwritable { path, source: error.error })
    }
}

impl Target {
    fn new(path: &Path) -> io::Result<Self> {
        let older = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file_id = older.as_ref().and_then(FileId::new);
        if file_id.is_some() && file_id == FileId::of_stdout() {
            return Ok(Self::Stdout);
        }
        let Some(at) = regular(path, older.as_ref())? else {
            return File::options().append(true).open(path).map(Self::Opened);
        };
        // A file is not replaced if it, or its folder, is not writable.
        if older.is_some() {
            File::options().write(true).open(&at)?;
        }
        temporary(&at)?.close()?;
        Ok(Self::Replaced { at, older })
    }

    fn write(
        self,
        rows: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Option<(NamedTempFile, PathBuf)>> {
        match self {
            Self::Stdout => console::unless_closed(write_all(io::stdout().lock(), rows))?,
            Self::Opened(file) => write_all(file, rows)?,
            Self::Replaced { at, older } => {
                let mut file = temporary(&at)?;
                write_all(file.as_file_mut(), rows)?;
                if let Some(older) = older {
                    copy_permissions(file.as_file(), &older)?;
                }
                file.as_file().sync_all()?;
                return Ok(Some((file, at)));
            }
        }
        Ok(None)
    }
}

fn write_all(file: impl Write, rows: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    rows(&mut file)?;
    file.flush()
}

/// The path with all links resolved, if it is a regular file or does not exist yet.
fn regular(path: &Path, older: Option<&Metadata>) -> io::Result<Option<PathBuf>> {
    if older.is_some_and(|older| !older.is_file()) {
        return Ok(None);
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let name = at.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize()?;
        if folder.starts_with("/proc") {
            // A descriptor would still refer to the file that was replaced.
            return Ok(None);
        }
        let path = folder.join(name);
        match fs::read_link(&path) {
            Ok(next) => at = folder.join(next),
            Err(_) => return Ok(Some(path)),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// An empty file in the same folder, which is removed when it is dropped; it has the permissions of
/// any new file.
fn temporary(at: &Path) -> io::Result<NamedTempFile> {
    let folder = at.parent().unwrap_or(Path::new("/"));
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    if let Some(permissions) = of_a_new_file() {
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder)
}

#[cfg(unix)]
fn of_a_new_file() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    // The system applies the user's umask.
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn of_a_new_file() -> Option<Permissions> {
    None
}

/// Gives the new file the permissions of the existing one, and its owner if the system allows it.
fn copy_permissions(file: &File, older: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let _ = fchown(file, Some(older.uid()), Some(older.gid()));
    }
    file.set_permissions(older.permissions())
}
