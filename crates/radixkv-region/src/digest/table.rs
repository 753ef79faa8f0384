//! The table of namespaces. No process waits for another one to add a namespace: if a process was
//! killed while it added one, the next process that opens the same namespace completes it.
//!
//! | words | field | written by |
//! |---|---|---|
//! | 0 | hash of the name; 0: free | compare-and-swap, once |
//! | 1 | hash of all its fields | compare-and-swap, once: decides between processes that open the same name |
//! | 2 | the same hash, once numbers and texts are written | each process that opens it |
//! | 3 | quota in blocks; 0: no limit | any process |
//! | 4 | number of its blocks (`count`) | all processes |
//! | 5 | hand: the start of the next search for a block to evict | all processes add to it |
//! | 6 | how many blocks were encrypted | all processes add to it |
//! | 7 | an estimate of its blocks that are not counted again yet (`count`) | all processes |
//! | 8.. | numbers | each process that found its own hash in word 1: all of them write the same |
//! | 16.. | texts, each with its length | as the numbers |

use super::namespace::{NUMBERS, Namespace, NamespaceError, TEXTS};
use crate::{
    copy,
    geometry::{Geometry, NAMESPACES},
    layout::TEXT,
    memory::{Memory, WORD},
    sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release},
};

const NAME: usize = 0;
const IDENTITY: usize = 1;
const WRITTEN: usize = 2;
const QUOTA: usize = 3;
const BLOCKS: usize = 4;
const HAND: usize = 5;
const SEALS: usize = 6;
const UNMOVED: usize = 7;
const NUMBERS_AT: usize = 8;
const TEXTS_AT: usize = 16;
const TEXT_WORDS: usize = TEXT / WORD + 1;

/// The places in which a namespace may be, by the hash of its name, in the order of the search.
fn places(name: u64) -> impl Iterator<Item = usize> {
    let start = name as usize % NAMESPACES;
    (0..NAMESPACES).map(move |step| (start + step) % NAMESPACES)
}

/// The table of namespaces of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
}

impl<'a> Table<'a> {
    pub(crate) fn of(memory: &'a Memory, geometry: &'a Geometry) -> Self {
        Self { memory, geometry }
    }

    /// Opens a namespace, and adds it if it does not exist. Returns its number, which is at
    /// least 1.
    pub(crate) fn open(&self, namespace: &Namespace) -> Result<u64, NamespaceError> {
        let [name, identity] = namespace.hashes();
        // Acquire: E7. Release: margin, the following stores have their own.
        let is_named = |word: &AtomicU64| match word.compare_exchange(0, name, AcqRel, Acquire) {
            Ok(_) => true,
            Err(seen) => seen == name,
        };
        let place = places(name).find(|place| is_named(&self.words(*place)[NAME]));
        let place = place.ok_or(NamespaceError::TooMany { max: NAMESPACES })?;
        let words = self.words(place);
        // Acquire: E7. Release: margin.
        match words[IDENTITY].compare_exchange(0, identity, AcqRel, Acquire) {
            Err(other) if other != identity => return Err(self.mismatch(place, namespace, other, identity)),
            _ => {}
        }
        // Acquire: E7.
        if words[WRITTEN].load(Acquire) != identity {
            write(words, namespace);
            // Release: E7.
            words[WRITTEN].store(identity, Release);
        }
        let region = read(words);
        if &region == namespace {
            Ok(place as u64 + 1)
        } else {
            Err(self.mismatch(place, namespace, identity, identity))
        }
    }

    /// Whether [`open`](Self::open) would open a namespace. Writes nothing.
    pub(crate) fn check(&self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let [name, identity] = namespace.hashes();
        // Acquire: E7.
        let mut named = places(name).map(|place| (place, self.words(place)[NAME].load(Acquire)));
        let place = match named.find(|(_, named)| [0, name].contains(named)) {
            None => return Err(NamespaceError::TooMany { max: NAMESPACES }),
            Some((_, 0)) => return Ok(()),
            Some((place, _)) => place,
        };
        let words = self.words(place);
        // Acquire: E7.
        let [other, written] = [IDENTITY, WRITTEN].map(|word| words[word].load(Acquire));
        let is_same = other == 0 || other == identity && (written != identity || &read(words) == namespace);
        if is_same { Ok(()) } else { Err(self.mismatch(place, namespace, other, identity)) }
    }

    /// The completely written namespaces, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Namespace)> + use<'a> {
        let table = *self;
        (1..=NAMESPACES as u64).filter_map(move |number| Some((number, table.get(number)?)))
    }

    /// The namespace of a number, if it is completely written.
    pub(crate) fn get(&self, number: u64) -> Option<Namespace> {
        let words = self.numbered(number)?;
        // Acquire: E7.
        let written = words[WRITTEN].load(Acquire);
        // Relaxed: the word does not change once it is not 0.
        (written != 0 && written == words[IDENTITY].load(Relaxed)).then(|| read(words))
    }

    /// The maximum number of a namespace's blocks; 0 means no limit.
    pub(crate) fn quota(&self, number: u64) -> Option<&'a AtomicU64> {
        Some(&self.numbered(number)?[QUOTA])
    }

    /// The two words of the count of a namespace's blocks.
    pub(crate) fn blocks(&self, number: u64) -> Option<[&'a AtomicU64; 2]> {
        let words = self.numbered(number)?;
        Some([&words[BLOCKS], &words[UNMOVED]])
    }

    /// Where the next search for a block of a namespace to evict begins.
    pub(crate) fn hand(&self, number: u64) -> Option<&'a AtomicU64> {
        Some(&self.numbered(number)?[HAND])
    }

    /// How many blocks of a namespace were encrypted.
    pub(crate) fn seals(&self, number: u64) -> Option<&'a AtomicU64> {
        Some(&self.numbered(number)?[SEALS])
    }

    fn numbered(&self, number: u64) -> Option<&'a [AtomicU64]> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        (place < NAMESPACES).then(|| self.words(place))
    }

    fn words(&self, place: usize) -> &'a [AtomicU64] {
        self.memory.words(self.geometry.namespace(place))
    }

    /// The first difference between `namespace` and the namespace of the same name in the region.
    fn mismatch(&self, place: usize, namespace: &Namespace, other: u64, identity: u64) -> NamespaceError {
        let region = read(self.words(place));
        let texts = TEXTS.into_iter().zip(region.texts.iter().zip(&namespace.texts));
        let texts = texts.map(|(field, (region, expected))| (field, format!("{region:?}"), format!("{expected:?}")));
        let numbers = NUMBERS.into_iter().zip(region.numbers().into_iter().zip(namespace.numbers()));
        let numbers = numbers.map(|(field, (region, expected))| (field, region.to_string(), expected.to_string()));
        // A namespace that was not completely written has only a hash.
        let hashes = ("identity", format!("{other:#018x}"), format!("{identity:#018x}"));
        // Acquire: E7.
        let is_written = self.words(place)[WRITTEN].load(Acquire) == other;
        let fields = texts.chain(numbers).filter(|(_, region, expected)| is_written && region != expected);
        let (field, region, expected) = fields.chain([hashes]).next().expect("the hashes");
        NamespaceError::Mismatch { field, region, expected }
    }
}

fn write(words: &[AtomicU64], namespace: &Namespace) {
    for (word, number) in words[NUMBERS_AT..].iter().zip(namespace.numbers()) {
        // Relaxed: E7.
        word.store(number, Relaxed);
    }
    for (words, text) in words[TEXTS_AT..].chunks(TEXT_WORDS).zip(&namespace.texts) {
        // Relaxed: E7.
        words[0].store(text.len() as u64, Relaxed);
        copy::write(&words[1..], 0, text.as_bytes());
    }
}

/// The namespace in these words, which may have any content.
fn read(words: &[AtomicU64]) -> Namespace {
    let texts = std::array::from_fn(|at| {
        let words = &words[TEXTS_AT + at * TEXT_WORDS..][..TEXT_WORDS];
        let mut text = vec![0; TEXT];
        copy::read(&words[1..], &mut text);
        // Relaxed: E7.
        text.truncate(usize::try_from(words[0].load(Relaxed)).unwrap_or(TEXT));
        String::from_utf8_lossy(&text).into_owned()
    });
    // Relaxed: E7.
    let [block_tokens, block_bytes, key_bytes, checksum, encryption] =
        std::array::from_fn(|at| words[NUMBERS_AT + at].load(Relaxed));
    Namespace { texts, block_tokens, block_bytes, key_bytes, has_checksums: checksum != 0, is_sealed: encryption != 0 }
}
