//! The content of a record of a cache's save: a namespace, or a run.

use radixkv::{Keys, NamespaceName, PrefixCache, Token};

use super::cursor::Cursor;

const NAMESPACE: u8 = 1;
const RUN: u8 = 2;

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Namespace(SavedNamespace),
    Run(SavedRun),
}

/// A namespace by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedNamespace {
    pub(crate) parts: Vec<String>,
    pub(crate) keys: Keys,
}

/// A run: consecutive blocks with their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedRun {
    /// The number of its namespace's record.
    pub(crate) namespace: usize,
    /// The number of its parent run's record.
    pub(crate) parent: Option<usize>,
    /// Number of tokens before its first block.
    pub(crate) start: usize,
    /// Its last use, by the clock of the saved cache.
    pub(crate) last_used: u64,
    pub(crate) uses: u64,
    pub(crate) priority: Option<SavedPriority>,
    pub(crate) blocks: Vec<Place>,
    /// The tokens of its blocks; for bigrams, also the one after them.
    pub(crate) tokens: Vec<Token>,
}

/// The place of a block's bytes in the file, and their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the block among the blocks of the file.
    pub(crate) number: u64,
    pub(crate) sum: u64,
}

/// A priority and its expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SavedPriority {
    pub(crate) level: i64,
    /// In milliseconds since 1970; `None` if it does not expire.
    pub(crate) until: Option<u64>,
}

/// Number of tokens that the keys of a block need beyond its own; `None` for unknown keys.
pub(crate) fn extra_tokens(keys: Keys) -> Option<usize> {
    match keys {
        Keys::Tokens => Some(0),
        Keys::Bigrams => Some(1),
        _ => None,
    }
}

impl SavedNamespace {
    pub(crate) fn of(name: &NamespaceName) -> Self {
        Self { parts: name.parts().map(str::to_owned).collect(), keys: name.keys() }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let extra = extra_tokens(self.keys).unwrap_or_default() as u8;
        let mut bytes = vec![NAMESPACE, extra];
        bytes.extend((self.parts.len() as u32).to_le_bytes());
        for part in &self.parts {
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }

    /// The name as the cache makes it.
    pub(crate) fn name(&self, cache: &PrefixCache) -> NamespaceName {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        cache.namespace(NamespaceName::new(&parts).with_keys(self.keys)).name()
    }

    /// Reads the content of a record; `None` if it is not a namespace.
    pub(crate) fn of_record(content: &[u8]) -> Option<Self> {
        match Entry::read(content)? {
            Entry::Namespace(namespace) => Some(namespace),
            Entry::Run(_) => None,
        }
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let keys = match cursor.u8()? {
            0 => Keys::Tokens,
            1 => Keys::Bigrams,
            _ => return None,
        };
        let parts = (0..cursor.u32()?).map(|_| {
            let length = cursor.u32()? as usize;
            String::from_utf8(cursor.bytes(length)?.to_vec()).ok()
        });
        Some(Self { parts: parts.collect::<Option<_>>()?, keys })
    }
}

impl SavedRun {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 16 * self.blocks.len() + 4 * self.tokens.len());
        bytes.push(RUN);
        bytes.push(u8::from(self.priority.is_some()));
        let level = self.priority.map_or(0, |priority| priority.level) as u64;
        let until = self.priority.and_then(|priority| priority.until).unwrap_or(u64::MAX);
        // The parent's number plus one; 0 for none.
        let parent = self.parent.map_or(0, |parent| parent as u64 + 1);
        let sizes = [self.namespace as u64, parent, self.start as u64, self.blocks.len() as u64];
        for number in sizes.into_iter().chain([self.last_used, self.uses, level, until]) {
            bytes.extend(number.to_le_bytes());
        }
        for place in &self.blocks {
            bytes.extend(place.number.to_le_bytes());
            bytes.extend(place.sum.to_le_bytes());
        }
        self.tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let has_priority = cursor.u8()? == 1;
        let (namespace, parent, start, count) = (cursor.size()?, cursor.size()?, cursor.size()?, cursor.size()?);
        let (last_used, uses) = (cursor.u64()?, cursor.u64()?);
        let (level, until) = (cursor.u64()? as i64, cursor.u64()?);
        let until = Some(until).filter(|&at| at < u64::MAX);
        let priority = has_priority.then_some(SavedPriority { level, until });
        let mut places = Cursor(cursor.bytes(count.checked_mul(16)?)?);
        let blocks = std::iter::from_fn(|| Some(Place { number: places.u64()?, sum: places.u64()? })).collect();
        let tokens = cursor.0.chunks_exact(4).map(|token| u32::from_le_bytes([token[0], token[1], token[2], token[3]]));
        let tokens = if cursor.0.len() % 4 == 0 { tokens.collect() } else { return None };
        cursor.0 = &[];
        Some(Self { namespace, parent: parent.checked_sub(1), start, last_used, uses, priority, blocks, tokens })
    }
}

impl Entry {
    /// Reads the content of a record; `None` if this version writes no such record.
    pub(crate) fn read(content: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(content);
        let entry = match cursor.u8()? {
            NAMESPACE => Self::Namespace(SavedNamespace::read(&mut cursor)?),
            RUN => Self::Run(SavedRun::read(&mut cursor)?),
            _ => return None,
        };
        cursor.0.is_empty().then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> [(Entry, Vec<u8>); 3] {
        let namespace =
            SavedNamespace { parts: vec!["tenant".into(), String::new(), "ä".into()], keys: Keys::Bigrams };
        let run = SavedRun {
            namespace: 3,
            parent: Some(0),
            start: 16,
            last_used: 77,
            uses: 2,
            priority: Some(SavedPriority { level: -80, until: Some(5) }),
            blocks: vec![Place { number: 1, sum: 2 }, Place { number: u64::MAX, sum: 0 }],
            tokens: vec![1, 2, u32::MAX],
        };
        let bare = SavedRun { parent: None, priority: None, ..run.clone() };
        [
            (Entry::Namespace(namespace.clone()), namespace.write()),
            (Entry::Run(run.clone()), run.write()),
            (Entry::Run(bare.clone()), bare.write()),
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        for (entry, bytes) in entries() {
            assert_eq!(Entry::read(&bytes), Some(entry));
        }
    }

    #[test]
    fn any_bytes_are_an_entry_or_none() {
        let mut random = fastrand::Rng::with_seed(1);
        for (_, bytes) in entries() {
            for cut in 0..bytes.len() {
                let _ = Entry::read(&bytes[..cut]);
                for byte in [0, 1, 0x7f, 0xff, random.u8(..)] {
                    let mut other = bytes.clone();
                    other[cut] = byte;
                    let _ = Entry::read(&other);
                }
            }
            assert_eq!(Entry::read(&bytes[..bytes.len() - 1]), None);
        }
        for _ in 0..10_000 {
            let bytes: Vec<u8> =
                (0..random.usize(..80)).map(|at| if at == 0 { random.u8(..4) } else { random.u8(..) }).collect();
            let _ = Entry::read(&bytes);
        }
    }
}
