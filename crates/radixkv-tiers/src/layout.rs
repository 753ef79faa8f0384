//! Layouts: the meaning of the bytes of blocks, the same for a whole store.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{
    key::KeyChain,
    seal::{SEAL_BYTES, SealKey},
};

/// The version of the format of objects and manifests.
pub(crate) const FORMAT: u32 = 1;
/// The first line of a manifest, before the version.
const TITLE: &str = "radixkv-tiers format ";
/// The maximum length of a name: a longer one is considered a mistake.
const MAX_NAME_BYTES: usize = 1024;
/// The maximum number of tokens of a block.
pub(crate) const MAX_BLOCK_SIZE: usize = 1 << 20;
/// The maximum size of a block's keys and values: Redis accepts no value above 512 MiB.
pub(crate) const MAX_BLOCK_BYTES: usize = 256 << 20;
/// The default values of the last fields. A manifest omits a field that has its default; manifests
/// of earlier versions have neither field.
pub(crate) const PLAIN: [&str; 2] = ["tokens", "none"];
/// Bytes of the shortest and of the longest digest.
const MIN_DIGEST_BYTES: usize = 16;
const MAX_DIGEST_BYTES: usize = 36;
/// The maximum size of a manifest in bytes.
pub(crate) const MAX_MANIFEST_BYTES: usize = 16 << 10;

/// The meaning of a block's bytes: model, element type, arrangement, share of the model, and sizes.
///
/// A store (a folder, a prefix of Redis, a prefix of a bucket) holds blocks of one layout. The
/// layout is recorded in the store when it is created, and compared when it is opened. It is a part
/// of every key and of every object.
///
/// # Examples
///
/// ```
/// use radixkv_tiers::Layout;
///
/// let layout = Layout::new("llama-3-8b", "bf16", 16, 2 << 20)?.kv_layout("layers, k/v, heads, tokens, dim")?;
/// let blocks = layout.blocks("tenant 7", &(0..40).collect::<Vec<u32>>());
/// assert_eq!(blocks.len(), 2);
/// # Ok::<_, radixkv_tiers::LayoutError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    model: String,
    dtype: String,
    kv_layout: String,
    rank: u32,
    /// 0 if all ranks share the blocks.
    ranks: u32,
    block_size: usize,
    block_bytes: usize,
    keys: Keys,
    seal: Option<SealKey>,
}

/// How blocks are named.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Keys {
    Tokens,
    /// Digests of `bytes` bytes, and how they were computed.
    Digests {
        bytes: usize,
        scheme: String,
    },
}

/// Why a layout is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A name is too long.
    #[error("the {field} has {bytes} bytes, at most {max} are allowed")]
    LongName {
        /// The name's field.
        field: &'static str,
        /// Its bytes.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A name has a line break or another control character.
    #[error("the {field} has a control character at byte {at}")]
    ControlCharacter {
        /// The name's field.
        field: &'static str,
        /// The byte offset of the character.
        at: usize,
    },
    /// A number is out of bounds.
    #[error("the {field} is {value}, it must be from 1 to {max}")]
    OutOfRange {
        /// The number's field.
        field: &'static str,
        /// The number.
        value: usize,
        /// The largest number.
        max: usize,
    },
    /// Digests of this length cannot name blocks.
    #[error("digests of {bytes} bytes, {MIN_DIGEST_BYTES} to {MAX_DIGEST_BYTES} are allowed")]
    DigestLength {
        /// Bytes of a digest.
        bytes: usize,
    },
    /// The length of a digest is not the layout's, or the layout names blocks by tokens.
    #[error("a digest of {bytes} bytes given, the layout has digests of {expected}")]
    DigestBytes {
        /// Bytes of the digest.
        bytes: usize,
        /// Bytes of a digest of the layout; 0 if its blocks are named by tokens.
        expected: usize,
    },
    /// The rank is not below the number of ranks; ranks count from 0.
    #[error("rank {rank} is out of range: the {ranks} ranks count from 0")]
    Rank {
        /// The rank.
        rank: u32,
        /// Ranks in all.
        ranks: u32,
    },
}

/// How a store's layout and the requested one differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutDifference {
    /// The lines do not describe a layout.
    #[error("not a layout")]
    NotALayout,
    /// A field has another value.
    #[error("{field} is {stored:?} in the store, {asked:?} was requested")]
    Field {
        /// Which field.
        field: &'static str,
        /// The store's value.
        stored: String,
        /// The layout's value.
        asked: String,
    },
}

/// How a manifest and a layout differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The text is not a manifest.
    NotAManifest,
    /// Another version of this package wrote it.
    Version(u32),
    /// A field has another value.
    Field { field: &'static str, stored: String, asked: String },
}

/// The SHA-256 of a layout's manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayoutDigest(pub(crate) [u8; 32]);

impl Layout {
    /// Creates a layout of blocks of `block_size` tokens, whose keys and values have `block_bytes`
    /// bytes.
    ///
    /// `model` names the model with its revision, `dtype` the type of the elements. Both are
    /// compared as text.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], if a name is longer than 1,024 bytes or has control characters, a size is
    /// 0, a block has more than 1,048,576 tokens or more than 256 MiB.
    pub fn new(
        model: impl Into<String>,
        dtype: impl Into<String>,
        block_size: usize,
        block_bytes: usize,
    ) -> Result<Self, LayoutError> {
        Ok(Self {
            model: name("model", model.into())?,
            dtype: name("dtype", dtype.into())?,
            kv_layout: String::new(),
            rank: 0,
            ranks: 1,
            block_size: within("block size", block_size, MAX_BLOCK_SIZE)?,
            block_bytes: within("block bytes", block_bytes, MAX_BLOCK_BYTES)?,
            keys: Keys::Tokens,
            seal: None,
        })
    }

    /// Sets how keys and values are arranged within a block, in the engine's words. Default: an
    /// empty text.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], if the text is longer than 1,024 bytes or has control characters.
    pub fn kv_layout(self, text: impl Into<String>) -> Result<Self, LayoutError> {
        Ok(Self { kv_layout: name("kv layout", text.into())?, ..self })
    }

    /// Sets which share of the model the blocks hold, under tensor parallelism. Default: rank 0 of
    /// 1.
    ///
    /// Each rank has its own store: a folder or a prefix.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Rank`], if `rank` is not below `ranks`.
    pub fn tensor_parallel(self, rank: u32, ranks: u32) -> Result<Self, LayoutError> {
        if rank < ranks { Ok(Self { rank, ranks, ..self }) } else { Err(LayoutError::Rank { rank, ranks }) }
    }

    /// Declares blocks to be the same on all ranks of a tensor-parallel group, as in models with
    /// multi-head latent attention: one store serves all ranks.
    pub fn every_rank(self) -> Self {
        Self { rank: 0, ranks: 0, ..self }
    }

    /// Names blocks by digests of `bytes` bytes, which the engine computes with this hash scheme
    /// and seed over a block and everything before it. Default: blocks are named by their tokens.
    ///
    /// Nothing but the digest tells blocks apart, so use a hash without known collisions.
    /// [`digest_block`](Self::digest_block) makes the blocks.
    ///
    /// # Errors
    ///
    /// [`LayoutError`], for digests of less than 16 or more than 36 bytes, and for texts that are
    /// too long or have control characters.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_tiers::Layout;
    /// let layout = Layout::new("llama-3-8b", "bf16", 16, 4096)?.digest_keys(32, "sha256", "seed 0")?;
    /// let block = layout.digest_block(&[7; 32])?;
    /// assert_eq!(block.digest(), Some(&[7; 32][..]));
    /// # Ok::<_, radixkv_tiers::LayoutError>(())
    /// ```
    pub fn digest_keys(self, bytes: usize, scheme: &str, seed: &str) -> Result<Self, LayoutError> {
        if !(MIN_DIGEST_BYTES..=MAX_DIGEST_BYTES).contains(&bytes) {
            return Err(LayoutError::DigestLength { bytes });
        }
        // With its commas escaped, no other scheme and seed have the same text.
        let escaped = scheme.replace('\\', r"\\").replace(',', r"\,");
        let scheme = name("hash scheme and seed", format!("{escaped}, seed {seed}"))?;
        Ok(Self { keys: Keys::Digests { bytes, scheme }, ..self })
    }

    /// The block of a digest.
    ///
    /// # Errors
    ///
    /// [`LayoutError::DigestBytes`], for a digest of another length than the layout's.
    pub fn digest_block(&self, digest: &[u8]) -> Result<crate::Block, LayoutError> {
        match &self.keys {
            Keys::Digests { bytes, .. } if *bytes == digest.len() => Ok(crate::Block::of_digest(self.digest(), digest)),
            Keys::Digests { bytes, .. } => Err(LayoutError::DigestBytes { bytes: digest.len(), expected: *bytes }),
            Keys::Tokens => Err(LayoutError::DigestBytes { bytes: digest.len(), expected: 0 }),
        }
    }

    /// Whether blocks are named by digests.
    pub fn has_digest_keys(&self) -> bool {
        self.keys != Keys::Tokens
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Bytes of a block's keys and values.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Encrypts blocks at rest, with AES-256-GCM and this key. Default: no encryption.
    ///
    /// Objects then hold neither tokens nor plaintext. The object's layout, key, tokens and expiry
    /// are authenticated, so that objects cannot be swapped. An object that was encrypted with
    /// another key is a [`Miss::Undecryptable`](crate::Miss::Undecryptable), and is kept. A store
    /// is either encrypted or not: opening it with the other kind of layout is refused.
    ///
    /// The key encrypts at most 2^32 blocks; then puts fail with
    /// [`Failure::KeyExhausted`](crate::Failure::KeyExhausted). The count is only in memory: see
    /// [`SealKey::with_seals`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_tiers::{Layout, SealKey};
    /// # let secret = [7; 32];
    /// let layout = Layout::new("llama-3-8b", "bf16", 16, 4096)?.encrypted(SealKey::new(&secret));
    /// assert!(layout.to_string().ends_with("encryption AES-256-GCM"));
    /// # Ok::<_, radixkv_tiers::LayoutError>(())
    /// ```
    #[cfg(feature = "encryption")]
    pub fn encrypted(self, key: SealKey) -> Self {
        Self { seal: Some(key), ..self }
    }

    /// The key that encrypts blocks, if they are encrypted.
    pub(crate) fn seal(&self) -> Option<&SealKey> {
        self.seal.as_ref()
    }

    /// Bytes of a stored block: its header, its tokens or its digest, its keys and values. An
    /// encrypted one has a nonce and a tag instead of tokens or digest.
    pub fn object_bytes(&self) -> usize {
        crate::object::HEADER_BYTES + self.name_bytes() + self.block_bytes + self.seal_bytes()
    }

    /// Bytes of the tokens or of the digest in an object; 0 if it is encrypted.
    pub(crate) fn name_bytes(&self) -> usize {
        match &self.keys {
            _ if self.seal.is_some() => 0,
            Keys::Tokens => 4 * self.block_size,
            Keys::Digests { bytes, .. } => *bytes,
        }
    }

    /// Encrypts bytes with the layout's key, for other kinds of stores, and appends nonce and tag.
    /// Does nothing without a key. `associated` says what the bytes belong to, in addition to the
    /// layout.
    ///
    /// # Errors
    ///
    /// [`Failure::KeyExhausted`](crate::Failure::KeyExhausted); the bytes are unchanged.
    pub fn encrypt(&self, associated: &[u8], bytes: &mut Vec<u8>) -> Result<(), crate::Failure> {
        let Some(key) = &self.seal else { return Ok(()) };
        let associated = [&self.digest().0, associated].concat();
        let seal = key.seal(&associated, bytes).map_err(|_| crate::Failure::KeyExhausted)?;
        bytes.extend_from_slice(&seal);
        Ok(())
    }

    /// Decrypts what [`encrypt`](Self::encrypt) encrypted, and removes nonce and tag. Does nothing
    /// without a key.
    ///
    /// # Errors
    ///
    /// [`Miss::Undecryptable`](crate::Miss::Undecryptable); the content of `bytes` is then
    /// unspecified.
    pub fn decrypt(&self, associated: &[u8], bytes: &mut Vec<u8>) -> Result<(), crate::Miss> {
        let Some(key) = &self.seal else { return Ok(()) };
        let associated = [&self.digest().0, associated].concat();
        let (_, seal) = bytes.split_last_chunk::<SEAL_BYTES>().ok_or(crate::Miss::Undecryptable)?;
        let seal = *seal;
        bytes.truncate(bytes.len() - SEAL_BYTES);
        key.open(&associated, bytes, &seal).map_err(|_| crate::Miss::Undecryptable)
    }

    /// Bytes that [`encrypt`](Self::encrypt) appends.
    pub fn seal_bytes(&self) -> usize {
        if self.seal.is_some() { SEAL_BYTES } else { 0 }
    }

    /// Starts the chain of keys for a sequence of a namespace.
    pub fn chain(&self, namespace: impl AsRef<[u8]>) -> KeyChain {
        KeyChain::new(self, namespace.as_ref())
    }

    /// The whole blocks of a sequence: [`KeyChain::extend`] from the first block on.
    pub fn blocks(&self, namespace: impl AsRef<[u8]>, tokens: &[crate::Token]) -> Vec<crate::Block> {
        self.chain(namespace).extend(tokens)
    }

    pub(crate) fn digest(&self) -> LayoutDigest {
        LayoutDigest(Sha256::digest(self.manifest()).into())
    }

    /// The key of some block.
    #[cfg(test)]
    pub(crate) fn some_key(&self) -> crate::BlockKey {
        self.blocks("", &vec![0; self.block_size])[0].key()
    }

    /// The fields as text, in the order of the manifest, for other kinds of stores that record the
    /// meaning of their blocks.
    pub fn fields(&self) -> [(&'static str, String); 6] {
        [
            ("model", self.model.clone()),
            ("dtype", self.dtype.clone()),
            ("kv layout", self.kv_layout.clone()),
            ("tensor parallel", self.share()),
            ("block size", self.block_size.to_string()),
            ("block bytes", self.block_bytes.to_string()),
        ]
    }

    /// The fields, followed by how a store names blocks and how it encrypts them.
    pub fn store_fields(&self) -> [(&'static str, String); 8] {
        let [model, dtype, kv_layout, share, block_size, block_bytes] = self.fields();
        let keys = ("keys", self.keys().unwrap_or_else(|| PLAIN[0].to_owned()));
        let encryption = ("encryption", if self.seal.is_some() { "AES-256-GCM" } else { PLAIN[1] }.to_owned());
        [model, dtype, kv_layout, share, block_size, block_bytes, keys, encryption]
    }

    /// The layout as text, one line for each field; equal layouts have equal texts.
    pub(crate) fn manifest(&self) -> String {
        let lines: String = self.said().map(|(field, value)| format!("{field}: {value}\n")).collect();
        format!("{TITLE}{FORMAT}\n{lines}")
    }

    /// Compares the layout with the manifest of a store, which may be any bytes.
    pub(crate) fn compare(&self, manifest: &[u8]) -> Result<(), Difference> {
        let text = std::str::from_utf8(manifest).map_err(|_| Difference::NotAManifest)?;
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.strip_prefix(TITLE)?.parse().ok());
        match version.ok_or(Difference::NotAManifest)? {
            FORMAT => {}
            version => return Err(Difference::Version(version)),
        }
        self.compare_lines(lines).map_err(|difference| match difference {
            LayoutDifference::NotALayout => Difference::NotAManifest,
            LayoutDifference::Field { field, stored, asked } => Difference::Field { field, stored, asked },
        })
    }

    /// Compares the layout with a store's lines `FIELD: VALUE`, which have the form of
    /// [`said`](Self::said).
    ///
    /// # Errors
    ///
    /// [`LayoutDifference`].
    pub fn compare_lines<'a>(&self, lines: impl Iterator<Item = &'a str>) -> Result<(), LayoutDifference> {
        let mut lines = lines.peekable();
        let fields = self.store_fields();
        let always = fields.len() - PLAIN.len();
        for (at, (field, asked)) in fields.into_iter().enumerate() {
            let value = |line: &str| line.strip_prefix(field)?.strip_prefix(": ").map(str::to_owned);
            let plain = at.checked_sub(always).map(|at| PLAIN[at].to_owned());
            let said = lines.peek().and_then(|line| value(line));
            if said.is_some() {
                lines.next();
            }
            let stored = said.or(plain).ok_or(LayoutDifference::NotALayout)?;
            if stored != asked {
                return Err(LayoutDifference::Field { field, stored, asked });
            }
        }
        lines.next().map_or(Ok(()), |_| Err(LayoutDifference::NotALayout))
    }

    /// The fields in a manifest: the fields of every manifest, then those with other than default
    /// values.
    pub fn said(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let fields = self.store_fields();
        let always = fields.len() - PLAIN.len();
        let is_plain = move |at: usize, value: &str| at.checked_sub(always).is_some_and(|at| PLAIN[at] == value);
        fields.into_iter().enumerate().filter(move |(at, (_, value))| !is_plain(*at, value)).map(|(_, field)| field)
    }

    /// How blocks are named, if not by their tokens.
    pub(crate) fn keys(&self) -> Option<String> {
        match &self.keys {
            Keys::Tokens => None,
            Keys::Digests { bytes, scheme } => Some(format!("digests of {bytes} bytes, {scheme}")),
        }
    }

    fn share(&self) -> String {
        if self.ranks == 0 { "every rank".to_owned() } else { format!("rank {} of {}", self.rank, self.ranks) }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.said().map(|(field, value)| format!("{field} {value}")).collect();
        f.write_str(&fields.join(", "))
    }
}

fn name(field: &'static str, text: String) -> Result<String, LayoutError> {
    if text.len() > MAX_NAME_BYTES {
        return Err(LayoutError::LongName { field, bytes: text.len(), max: MAX_NAME_BYTES });
    }
    match text.char_indices().find(|(_, character)| character.is_control()) {
        Some((at, _)) => Err(LayoutError::ControlCharacter { field, at }),
        None => Ok(text),
    }
}

fn within(field: &'static str, value: usize, max: usize) -> Result<usize, LayoutError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(LayoutError::OutOfRange { field, value, max }) }
}

#[cfg(test)]
mod tests;
