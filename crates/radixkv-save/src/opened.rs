//! The file of a save. Opening it verifies header and trailer and reads the records; blocks are
//! read when they are restored.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt as _,
    path::Path,
};

use radixkv_tiers::Layout;

use crate::error::OpenError;
use crate::format::entry::Place;
use crate::format::header::{self, Header, Magic, Mismatch};
use crate::format::record;
use crate::format::seal::{Part, Sealing};
use crate::format::trailer::{self, Trailer};

/// An opened file: header and trailer are verified, records and blocks are not.
pub(crate) struct Opened {
    pub(crate) blocks: BlockFile,
    pub(crate) trailer: Trailer,
    /// Not verified: they may be any bytes.
    pub(crate) records: Vec<u8>,
}

/// The blocks' bytes in the file.
pub(crate) struct BlockFile {
    file: File,
    header: Header,
    sealing: Sealing,
    /// Number of blocks in the file.
    count: u64,
}

impl Opened {
    /// Opens the folder's file of this name and reads its records into memory, in proportion to the
    /// file's size.
    pub(crate) fn open(folder: &Path, name: &str, magic: &Magic, layout: &Layout) -> Result<Self, OpenError> {
        let path = folder.join(name);
        let place = || path.display().to_string();
        let io = |source| OpenError::Io { place: place(), source };
        let file = crate::folder::options().read(true).open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => OpenError::NothingSaved { place: folder.display().to_string() },
            _ => io(error),
        })?;
        let length = file.metadata().map_err(io)?.len();
        let head = read(&file, 0, header::BYTES.min(usize::try_from(length).unwrap_or(usize::MAX))).map_err(io)?;
        let header = header::read(&head, magic, layout).map_err(|mismatch| match mismatch {
            Mismatch::NotASave => OpenError::NotASave { place: place() },
            Mismatch::Version(version) => OpenError::UnknownVersion { place: place(), version },
            Mismatch::Damaged => OpenError::Damaged { place: place(), part: "header" },
            Mismatch::Field { field, stored, asked } => OpenError::OtherLayout { place: place(), field, stored, asked },
        })?;
        let damaged = || OpenError::Damaged { place: place(), part: "trailer" };
        let tail_at = length.checked_sub(trailer::BYTES as u64).ok_or_else(damaged)?;
        let tail = read(&file, tail_at, trailer::BYTES).map_err(io)?;
        let trailer = Trailer::read(&tail, &header, length).ok_or_else(damaged)?;
        let records = usize::try_from(trailer.records_bytes).map_err(|_| damaged())?;
        let records = read(&file, trailer.records_at, records).map_err(io)?;
        let room = trailer.records_at - header::BYTES as u64;
        let sealing = Sealing::new(layout, header.seed);
        let count = room.checked_div(header.stored_bytes(&sealing)).unwrap_or(u64::MAX);
        if record::is_of_another_key(&records, &sealing) {
            return Err(OpenError::OtherKey { place: place() });
        }
        Ok(Self { blocks: BlockFile { file, header, sealing, count }, trailer, records })
    }
}

impl BlockFile {
    pub(crate) fn block_bytes(&self) -> usize {
        self.header.block_bytes
    }

    /// The checksums and the key.
    pub(crate) fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    /// Reads a block; returns whether it is the saved one.
    pub(crate) fn read(&self, place: Place, bytes: &mut [u8]) -> bool {
        if self.sealing.extra_bytes() == 0 {
            return self.read_stored(place, bytes);
        }
        let mut sealed = vec![0; bytes.len() + self.sealing.extra_bytes()];
        let is_right =
            self.read_stored(place, &mut sealed) && self.sealing.open(Part::Block, place.number, &mut sealed);
        if is_right {
            bytes.copy_from_slice(&sealed);
        }
        is_right
    }

    /// Reads a block as it is in the file; returns whether it matches its checksum.
    fn read_stored(&self, place: Place, bytes: &mut [u8]) -> bool {
        let at = place.number.checked_mul(bytes.len() as u64).and_then(|at| at.checked_add(header::BYTES as u64));
        let read =
            at.filter(|_| place.number < self.count).is_some_and(|at| self.file.read_exact_at(bytes, at).is_ok());
        read && self.sealing.sum(place.number, bytes) == place.sum
    }
}

fn read(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
