//! A file that the command writes.
//!
//! An older file of that name stays as it is until the new one is complete: rows go to a temporary file in the same
//! folder, which takes the older one's place, and its permissions, when all else went well. A link stays a link. What is
//! no regular file, such as a pipe, a device or an open descriptor, is written to as it is.
//!
//! Whether all this can be done is found out before the work that the file is about begins.

use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{console, identity::Identity};

/// Links that lead from one to the next, at most.
const MOST_LINKS: usize = 40;
/// What the name of a temporary file begins with.
const PREFIX: &str = ".radixkv-";

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// Write to another file.
    #[error("{}: not written: it is the trace that is read", path.display())]
    IsInput { path: PathBuf },
    /// The system refuses.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl OutputError {
    /// The same for what is printed.
    pub(crate) fn stdout(source: io::Error) -> Self {
        Self::Unwritable { path: "standard output".into(), source }
    }
}

/// A file to be written, known to be none that is read.
pub(crate) struct Output {
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A regular file at the end of all links, and what is there now.
    Replaced { at: PathBuf, older: Option<Metadata> },
    /// Anything else.
    Opened(File),
    /// Standard output under another name.
    Stdout,
}

/// A file whose contents are written, but which may not stand in its place yet.
pub(crate) struct Written {
    path: PathBuf,
    staged: Option<(NamedTempFile, PathBuf)>,
}

impl Output {
    /// Finds out where `path` leads and whether it can be written. Changes nothing.
    pub(crate) fn new(path: &Path, input: &Path) -> Result<Self, OutputError> {
        if Identity::of_contents(path).is_some_and(|output| Identity::of_contents(input) == Some(output)) {
            return Err(OutputError::IsInput { path: path.into() });
        }
        let target = Target::new(path).map_err(|source| OutputError::Unwritable { path: path.into(), source })?;
        Ok(Self { path: path.into(), target })
    }

    /// Writes all of the file; a regular file is not seen before [`Written::publish`].
    pub(crate) fn write(self, rows: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Written, OutputError> {
        let path = self.path;
        match self.target.write(rows) {
            Ok(staged) => Ok(Written { path, staged }),
            Err(source) => Err(OutputError::Unwritable { path, source }),
        }
    }
}

impl Written {
    /// Puts the file into its place. Dropped instead, it is as if it had never been written.
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
        let identity = older.as_ref().and_then(Identity::new);
        if identity.is_some() && identity == Identity::of_stdout() {
            return Ok(Self::Stdout);
        }
        let Some(at) = regular(path, older.as_ref())? else {
            return File::options().append(true).open(path).map(Self::Opened);
        };
        // Neither a file that may not be written nor one in such a folder is replaced.
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
                    resemble(file.as_file(), &older)?;
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

/// The end of all links, if there is a regular file there, or nothing yet.
fn regular(path: &Path, older: Option<&Metadata>) -> io::Result<Option<PathBuf>> {
    if older.is_some_and(|older| !older.is_file()) {
        return Ok(None);
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        let name = at.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize()?;
        if folder.starts_with("/proc") {
            // An open descriptor would go on with the file that was replaced.
            return Ok(None);
        }
        let place = folder.join(name);
        match fs::read_link(&place) {
            Ok(next) => at = folder.join(next),
            Err(_) => return Ok(Some(place)),
        }
    }
    Err(io::Error::other("too many links"))
}

/// An empty file in the same folder, which goes when it is dropped; permissions are those of any new file.
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
    // As far as the user's mask goes.
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn of_a_new_file() -> Option<Permissions> {
    None
}

/// Gives a new file the permissions of the older one, and its owner where that is allowed.
fn resemble(file: &File, older: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let _ = fchown(file, Some(older.uid()), Some(older.gid()));
    }
    file.set_permissions(older.permissions())
}
