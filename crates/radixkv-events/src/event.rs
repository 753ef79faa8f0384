//! Events: the changes of a worker's cache that are sent to routers.

use crate::hash::BlockHash;

/// A token id.
pub type Token = u32;
/// The index of a block in a pool.
pub type BlockId = u32;

/// A change of the blocks that a worker holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Blocks were stored.
    Stored(Stored),
    /// Blocks left a medium.
    Removed(Removed),
    /// All blocks were removed from all media.
    Cleared,
}

/// Consecutive blocks of one sequence that were stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stored {
    /// The names of the blocks, in the order of the sequence.
    pub hashes: Vec<BlockHash>,
    /// The block before the first of them; `None` at the start of a sequence.
    pub parent: Option<BlockHash>,
    /// The tokens of these blocks: `block_size` for each. With `bigrams` there is one more, because
    /// a block holds `block_size` pairs of neighbours. Empty if the publisher does not send them,
    /// as vLLM does for blocks that it copied to the host; then `parent` and `block_size` (which
    /// may be 0) are meaningless as well.
    pub tokens: Vec<Token>,
    /// Whether the blocks hold pairs of neighbouring tokens (EAGLE's draft models, in SGLang).
    pub bigrams: bool,
    /// Tokens per block.
    pub block_size: u32,
    /// The medium of the blocks; `None` if the publisher does not name it.
    pub medium: Option<Medium>,
    /// The scope of the blocks.
    pub scope: Scope,
    /// The extra keys that vLLM hashed with the tokens of each block.
    pub extra_keys: Option<Vec<Option<Vec<ExtraKey>>>>,
    /// The group of layers that the blocks belong to.
    pub group: Group,
    /// Whether the medium belongs to the worker (`LOCAL`) or not (`REMOTE`), if the publisher says
    /// so.
    pub locality: Option<String>,
    /// The session whose request stored the blocks.
    pub session_id: Option<String>,
}

/// Blocks that left a medium. Children are listed before their parents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Removed {
    /// The blocks.
    pub hashes: Vec<BlockHash>,
    /// The medium that they left; `None` if the publisher does not name it, which means all media.
    pub medium: Option<Medium>,
    /// The group of layers that the blocks belong to.
    pub group: Group,
    /// Whether the medium belonged to the worker, if the publisher says so.
    pub locality: Option<String>,
}

/// A group of layers that share one kind of attention, in models with several kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// The group's number; a model with one kind of attention has group 0 or names none.
    pub index: Option<u32>,
    /// The kind, as vLLM names it.
    pub kind: Option<String>,
    /// The size of its attention window in tokens, if it has one.
    pub sliding_window: Option<u32>,
}

impl Group {
    /// Whether a sequence needs all its blocks of this group. True for full attention, and if the
    /// publisher names no kind. Groups with a window or a state need only some blocks, so their
    /// events do not show which whole prefixes are held.
    pub fn covers_prefixes(&self) -> bool {
        let kind = self.kind.as_deref();
        kind.is_none_or(|kind| ["full_attention", "mla_attention", "sink_full_attention"].contains(&kind))
    }
}

/// The owner of blocks, by adapter and salt: equal tokens in two scopes are different blocks. An
/// empty name or salt is read from the wire as none, so do not use one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The number of an adapter, which vLLM still sends for older readers.
    pub lora_id: Option<i64>,
    /// The name of an adapter.
    pub lora_name: Option<String>,
    /// The salt, such as a tenant's secret, that separates blocks.
    pub cache_salt: Option<String>,
}

impl Scope {
    /// The scope of a tenant, identified by its salt.
    pub fn salted(salt: impl Into<String>) -> Self {
        Self { cache_salt: Some(salt.into()), ..Self::default() }
    }

    /// The scope of an adapter.
    pub fn adapter(name: impl Into<String>) -> Self {
        Self { lora_name: Some(name.into()), ..Self::default() }
    }

    /// Whether the scope has neither an adapter nor a salt.
    pub fn is_plain(&self) -> bool {
        self.lora_name.is_none() && self.cache_salt.is_none()
    }

    /// The extra keys that vLLM hashes with a block's tokens: the adapter's name for every block,
    /// and the salt for the first block.
    pub(crate) fn extra_keys(&self, is_first: bool) -> impl Iterator<Item = &str> {
        let salt = if is_first { self.cache_salt.as_deref() } else { None };
        self.lora_name.as_deref().into_iter().chain(salt)
    }
}

/// The storage medium of blocks, as vLLM and SGLang name them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Medium {
    /// `GPU`: the device.
    Gpu,
    /// `CPU`: vLLM's name for the host.
    Cpu,
    /// `STORAGE`: vLLM's name for storage below the host.
    Storage,
    /// `CPU_TIER1`: SGLang's first tier on the host.
    CpuTier1,
    /// `CPU_TIER2`: SGLang's second tier.
    CpuTier2,
    /// Any other name.
    Other(Box<str>),
}

impl Medium {
    /// The name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::Gpu => "GPU",
            Self::Cpu => "CPU",
            Self::Storage => "STORAGE",
            Self::CpuTier1 => "CPU_TIER1",
            Self::CpuTier2 => "CPU_TIER2",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Medium {
    fn from(name: &str) -> Self {
        let known = [Self::Gpu, Self::Cpu, Self::Storage, Self::CpuTier1, Self::CpuTier2];
        known.into_iter().find(|medium| medium.name() == name).unwrap_or_else(|| Self::Other(name.into()))
    }
}

/// A value that was hashed with the tokens: an adapter's name, a salt, or the digest and position
/// of an image.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtraKey {
    /// No value.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer below zero.
    Signed(i64),
    /// An integer from zero on.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<ExtraKey>),
}
