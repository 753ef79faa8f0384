//! The header: the format and the layout of a region. It is written once, before any process can
//! open the region (edge E6), and compared at each open.

use std::io;

use crate::{
    copy,
    geometry::{Geometry, HEADER},
    layout::{Keys, Layout, LayoutError, TEXT, TEXTS},
    memory::{Memory, WORD},
    sync::{Acquire, AtomicU64, Relaxed, Release},
};

/// "radixkvR" in native byte order: a machine of the other order finds no region.
const MAGIC: u64 = u64::from_ne_bytes(*b"radixkvR");
/// The version of the format.
const VERSION: u64 = 3;

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 1;
/// In order: tokens of a block, bytes of a block, capacity, bytes of the region, kind of keys.
const SIZES_AT: usize = 2;
const KEYS_AT: usize = SIZES_AT + 4;
const SEAL_AT: usize = 7;
/// Each text: its length in bytes, then its bytes.
const TEXTS_AT: usize = 16;
const TEXT_WORDS: usize = TEXT / WORD + 1;
const END: usize = TEXTS_AT + TEXTS.len() * TEXT_WORDS;

/// Why a region could not be opened. Nothing in the file or memory was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The layout is invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The system reported an error for the file. If its kind is
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists), open the file instead.
    #[error("i/o error in the region's file: {0}")]
    Io(#[from] io::Error),
    /// The file or memory is not a region: check the path.
    #[error("not a region: it begins with {found:#018x}, expected {expected:#018x}")]
    NotARegion {
        /// The first eight bytes, as a number.
        found: u64,
        /// The first eight bytes of every region, as a number.
        expected: u64,
    },
    /// The region has another format version: use the same package version in all processes, or
    /// remove the file.
    #[error("the region has format version {found}, this program reads {known}")]
    UnknownVersion {
        /// The version of the region.
        found: u64,
        /// The version of this package.
        known: u64,
    },
    /// The region has another layout: use another path, or remove the file.
    #[error("{field} is {region} in the region, {expected} was requested: use another path, or remove the file")]
    Mismatch {
        /// What differs.
        field: &'static str,
        /// Its value in the region.
        region: String,
        /// The requested value.
        expected: String,
    },
    /// The file or memory is too short: remove the file.
    #[error("the region needs {expected} bytes, the memory has {got}")]
    TooShort {
        /// Bytes that the region takes.
        expected: usize,
        /// Bytes that the file or memory has.
        got: usize,
    },
    /// The header is damaged: remove the file.
    #[error("the header is damaged: checksum {found:#018x}, expected {expected:#018x}")]
    Damaged {
        /// The checksum in the header.
        found: u64,
        /// The checksum computed from its fields.
        expected: u64,
    },
    /// All process slots are in use: close the region in another process.
    #[error("all {slots} process slots of the region are in use: close it in another process")]
    TooManyProcesses {
        /// How many slots there are.
        slots: usize,
    },
}

/// Writes the header of a region whose bookkeeping is initialized. From then on, processes can open
/// it.
pub(crate) fn write(memory: &Memory, layout: &Layout, geometry: &Geometry) {
    let words = memory.words(0..HEADER);
    for (at, value) in sizes(layout, geometry).into_iter().enumerate() {
        set(&words[SIZES_AT + at], value.1);
    }
    for (at, text) in layout.texts.iter().enumerate() {
        let words = text_words(words, at);
        set(&words[0], text.len() as u64);
        copy::write(&words[1..], 0, text.as_bytes());
    }
    set(&words[VERSION_AT], VERSION);
    set(&words[SEAL_AT], seal(words));
    // Release: E6.
    words[MAGIC_AT].store(MAGIC, Release);
}

/// Zeroes the header, so that a region that is not yet complete is not taken for one.
pub(crate) fn erase(memory: &Memory) {
    for word in memory.words(0..HEADER) {
        set(word, 0);
    }
}

/// Checks that the memory holds a region of this layout.
pub(crate) fn check(memory: &Memory, layout: &Layout, geometry: &Geometry) -> Result<(), OpenError> {
    let words = known_words(memory, geometry.bytes())?;
    check_identity(words, layout, geometry)?;
    let (found, expected) = (get(&words[SEAL_AT]), seal(words));
    if found != expected {
        return Err(OpenError::Damaged { found, expected });
    }
    if memory.len() < geometry.bytes() {
        return Err(OpenError::TooShort { expected: geometry.bytes(), got: memory.len() });
    }
    Ok(())
}

/// The words of the header, if its magic and version are known. If the memory has no room for a
/// header, the error reports that `expected` bytes are needed.
fn known_words(memory: &Memory, expected: usize) -> Result<&[AtomicU64], OpenError> {
    if memory.len() < HEADER * WORD {
        return Err(OpenError::TooShort { expected, got: memory.len() });
    }
    let words = memory.words(0..HEADER);
    // Acquire: E6.
    let found = words[MAGIC_AT].load(Acquire);
    if found != MAGIC {
        return Err(OpenError::NotARegion { found, expected: MAGIC });
    }
    let found = get(&words[VERSION_AT]);
    if found != VERSION {
        return Err(OpenError::UnknownVersion { found, known: VERSION });
    }
    Ok(words)
}

fn check_identity(words: &[AtomicU64], layout: &Layout, geometry: &Geometry) -> Result<(), OpenError> {
    let keys = get(&words[KEYS_AT]);
    if keys != layout.keys as u64 {
        let [region, expected] = [keys, layout.keys as u64].map(kind_of_keys);
        return Err(OpenError::Mismatch { field: "kind of keys", region, expected });
    }
    for (at, (expected, field)) in layout.texts.iter().zip(TEXTS).enumerate() {
        let region = text(text_words(words, at));
        if region != expected.as_bytes() {
            let region = format!("{:?}", String::from_utf8_lossy(&region));
            return Err(OpenError::Mismatch { field, region, expected: format!("{expected:?}") });
        }
    }
    for (at, (field, expected)) in sizes(layout, geometry).into_iter().enumerate() {
        let region = get(&words[SIZES_AT + at]);
        if region != expected {
            return Err(OpenError::Mismatch { field, region: region.to_string(), expected: expected.to_string() });
        }
    }
    Ok(())
}

/// The layout in the header, which may be any layout. Does not check the rest of the region.
pub(crate) fn layout(memory: &Memory) -> Result<Layout, OpenError> {
    let words = known_words(memory, HEADER * WORD)?;
    let texts = std::array::from_fn(|at| String::from_utf8_lossy(&text(text_words(words, at))).into_owned());
    let [block_size, block_bytes, capacity] = [0, 1, 2].map(|at| get(&words[SIZES_AT + at]));
    let small = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    let keys = if get(&words[KEYS_AT]) == Keys::Digests as u64 { Keys::Digests } else { Keys::Tokens };
    Ok(Layout { texts, block_size: small(block_size), block_bytes, capacity: small(capacity), keys })
}

fn kind_of_keys(keys: u64) -> String {
    let known = [(Keys::Tokens, "tokens"), (Keys::Digests, "digests")];
    let name = known.into_iter().find(|(kind, _)| *kind as u64 == keys).map(|(_, name)| name.to_owned());
    name.unwrap_or_else(|| format!("unknown ({keys})"))
}

fn sizes(layout: &Layout, geometry: &Geometry) -> [(&'static str, u64); 5] {
    [
        ("block_size", layout.block_size.into()),
        ("block_bytes", layout.block_bytes),
        ("capacity", layout.capacity.into()),
        ("region_bytes", geometry.bytes() as u64),
        ("keys", layout.keys as u64),
    ]
}

fn text_words(words: &[AtomicU64], at: usize) -> &[AtomicU64] {
    &words[TEXTS_AT + at * TEXT_WORDS..][..TEXT_WORDS]
}

/// A text, cut at the maximum length if the stored length is larger.
fn text(words: &[AtomicU64]) -> Vec<u8> {
    let mut bytes = vec![0; TEXT];
    copy::read(&words[1..], &mut bytes);
    bytes.truncate(usize::try_from(get(&words[0])).unwrap_or(TEXT));
    bytes
}

/// A checksum of all header words except the magic and the checksum itself.
fn seal(words: &[AtomicU64]) -> u64 {
    let fields = words[..END].iter().enumerate().filter(|(at, _)| ![MAGIC_AT, SEAL_AT].contains(at));
    fields.fold(MAGIC, |seal, (_, word)| {
        let mixed = (seal ^ get(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

fn get(word: &AtomicU64) -> u64 {
    // Relaxed: E6.
    word.load(Relaxed)
}

fn set(word: &AtomicU64, value: u64) {
    // Relaxed: E6.
    word.store(value, Relaxed);
}
