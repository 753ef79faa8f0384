//! The builder of a host tier.

use std::{io, sync::Arc, time::Duration};

use radixkv_tiers::RemoteTier;

use crate::{
    admission::Admission,
    lifetimes::Lifetimes,
    memory::Memory,
    remote::{Remote, RemoteSettings},
    tier::{HostBlock, HostTier, Inner, Parts},
    write_policy::WritePolicy,
};

/// Configures a [`HostTier`]; [`build`](HostBuilder::build) checks everything.
#[derive(Debug)]
#[must_use]
pub struct HostBuilder {
    block_size: usize,
    capacity: usize,
    staging: usize,
    block_bytes: usize,
    memory: Option<Memory>,
    admission: Admission,
    time_to_live: Option<Duration>,
    remote: RemoteSettings,
}

/// Why a host tier could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostBuildError {
    /// The block size is zero.
    #[error("host block size of 0 tokens requested: at least 1 is needed")]
    ZeroBlockSize,
    /// The capacity is zero: build no host tier instead.
    #[error("host capacity of 0 blocks requested: use at least 1, or no host tier")]
    ZeroCapacity,
    /// The capacity exceeds the range of block ids: use larger blocks.
    #[error("{blocks} host blocks requested, block ids can name {}: use larger blocks", HostBlock::MAX)]
    TooManyBlocks {
        /// Blocks of the capacity plus staging.
        blocks: usize,
    },
    /// The given memory is too small: give more memory, or use fewer blocks.
    #[error(
        "{blocks} host blocks of {block_bytes} bytes need {needed} bytes, the memory has {given}: use fewer blocks"
    )]
    TooLittleMemory {
        /// Blocks of the capacity plus staging.
        blocks: usize,
        /// Bytes of each block.
        block_bytes: usize,
        /// Bytes needed; `usize::MAX` if the number overflows.
        needed: usize,
        /// Bytes of the given memory.
        given: usize,
    },
    /// The system cannot allocate the memory: use fewer blocks, or give memory.
    #[error("allocating {bytes} bytes for the host tier failed: use fewer blocks")]
    NoMemory {
        /// Bytes of all blocks; `usize::MAX` if the number overflows.
        bytes: usize,
    },
    /// A remote tier has a different block layout than the host tier: open both with one layout.
    #[error("the host tier's {field} is {host}, remote tier {number} has {remote}: open both with one layout")]
    RemoteLayout {
        /// Which remote tier, counted from 0.
        number: usize,
        /// What differs.
        field: &'static str,
        /// The host tier's value, or that of remote tier 0.
        host: String,
        /// The remote tier's value.
        remote: String,
    },
    /// The number of remote blocks in flight is zero.
    #[error("0 remote blocks in flight requested: at least 1 is needed")]
    NothingInFlight,
    /// The system could not start a thread.
    #[error("starting a thread for the remote tiers failed: {kind}")]
    NoThread {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
}

impl HostTier {
    /// Configures a tier of `capacity_blocks` blocks of `block_size` tokens each.
    ///
    /// The block size may be 1, and may differ from that of the caches over the tier if one is a
    /// multiple of the other.
    pub fn builder(block_size: usize, capacity_blocks: usize) -> HostBuilder {
        HostBuilder {
            block_size,
            capacity: capacity_blocks,
            staging: 0,
            block_bytes: 0,
            memory: None,
            admission: Admission::All,
            time_to_live: None,
            remote: RemoteSettings::default(),
        }
    }
}

impl HostBuilder {
    /// Allocates `block_bytes` bytes for each block. Default: 0, and the tier only counts.
    pub fn block_bytes(self, block_bytes: usize) -> Self {
        Self { block_bytes, memory: None, ..self }
    }

    /// Stores the blocks, of `block_bytes` bytes each, in `memory`: block `i` at `i * block_bytes`.
    pub fn memory(self, block_bytes: usize, memory: Memory) -> Self {
        Self { block_bytes, memory: Some(memory), ..self }
    }

    /// Adds blocks beyond the capacity for copies in flight. Pinned blocks do not count towards the
    /// capacity, so arriving blocks can use the room of leaving blocks while both are being copied.
    /// Staging blocks need memory as well. Default: 0, and pinned blocks take room from the others.
    pub fn staging(self, staging_blocks: usize) -> Self {
        Self { staging: staging_blocks, ..self }
    }

    /// Sets which evicted blocks the tier stores. Default: [`Admission::All`].
    pub fn admission(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    /// Sets how long a block can be found after it was stored, in every namespace without its own
    /// time ([`HostTier::set_time_to_live`]). Default: as long as there is room.
    pub fn time_to_live(self, time_to_live: Duration) -> Self {
        Self { time_to_live: Some(time_to_live), ..self }
    }

    /// Attaches a remote tier below: evicted host blocks are stored there, and a later
    /// [`HostTier::fetch`], which every lookup of a [`TieredCache`](crate::TieredCache) makes,
    /// finds them there. Further calls attach tiers below the previous ones: a block is read from
    /// the first tier that has it, and written to each that lacks it.
    ///
    /// Only a thread of the host tier uses the remote tiers. No lookup waits for it, and a request
    /// waits only as long as [`TieredBuilder::remote_wait`](crate::TieredBuilder::remote_wait)
    /// allows. A failing remote tier only costs hits.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_host::{HostBuildError, HostTier, radixkv_tiers::{FileTier, Layout}};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let layout = Layout::new("llama-3-8b@main", "bf16", 16, 4096)?;
    /// let files = FileTier::new(folder.path(), layout, 1 << 30).open()?;
    /// let host = HostTier::builder(16, 64).block_bytes(8192).remote(files).build();
    /// let refused = "the host tier's block bytes is 8192, remote tier 0 has 4096: open both with one layout";
    /// assert_eq!(host.unwrap_err().to_string(), refused);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn remote(mut self, tier: impl RemoteTier<Vec<u8>> + 'static) -> Self {
        self.remote.tiers.push(Box::new(tier));
        self
    }

    /// Sets when a block is written to the remote tiers: when this tier evicts it, or when it is
    /// stored here. Default: [`WritePolicy::Back`].
    pub fn remote_write(mut self, write: WritePolicy) -> Self {
        self.remote.write = write;
        self
    }

    /// Limits the blocks in flight to the remote tiers, and separately the blocks in flight from
    /// them: each needs a buffer. Without a free buffer, a block is not put, and a requested block
    /// is a miss; blocks near the beginning of a sequence take precedence. Default: 256.
    pub fn remote_in_flight(mut self, blocks: usize) -> Self {
        self.remote.in_flight = blocks;
        self
    }

    /// Sets the time after which a fetch is cancelled; blocks that have arrived stay in the host. A
    /// fetch continues without a tier that is silent for a quarter of that time. Default: 10 s.
    pub fn remote_timeout(mut self, timeout: Duration) -> Self {
        self.remote.timeout = timeout;
        self
    }

    /// Builds the tier, with all blocks free.
    ///
    /// # Errors
    ///
    /// [`HostBuildError`].
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_host::{HostBuildError, HostTier, Memory};
    ///
    /// let small = HostTier::builder(16, 8).memory(4096, Memory::new(vec![0; 4096])).build();
    /// let refused = HostBuildError::TooLittleMemory { blocks: 8, block_bytes: 4096, needed: 32768, given: 4096 };
    /// assert_eq!(small.unwrap_err(), refused);
    /// ```
    pub fn build(self) -> Result<HostTier, HostBuildError> {
        self.check()?;
        let Self { block_size, capacity, staging, block_bytes, memory, admission, time_to_live, remote } = self;
        let blocks = capacity + staging;
        let needed = blocks.saturating_mul(block_bytes);
        let memory = match memory {
            Some(memory) => memory,
            None if block_bytes == 0 => Memory::none(),
            None => Memory::zeroed(needed).ok_or(HostBuildError::NoMemory { bytes: needed })?,
        };
        if memory.len() < needed {
            return Err(HostBuildError::TooLittleMemory { blocks, block_bytes, needed, given: memory.len() });
        }
        let lifetimes = Lifetimes::new(time_to_live);
        let inner =
            Arc::new(Inner::new(Parts { block_size, block_bytes, blocks, capacity, memory, admission, lifetimes }));
        if !remote.tiers.is_empty() {
            let remote = Remote::start(remote, Arc::downgrade(&inner), block_bytes);
            inner.set_remote(remote.map_err(|error| HostBuildError::NoThread { kind: error.kind() })?);
        }
        Ok(HostTier::of(inner))
    }

    fn check(&self) -> Result<(), HostBuildError> {
        if self.block_size == 0 {
            return Err(HostBuildError::ZeroBlockSize);
        }
        if self.capacity == 0 {
            return Err(HostBuildError::ZeroCapacity);
        }
        let blocks = self.capacity.saturating_add(self.staging);
        if blocks >= HostBlock::MAX as usize {
            return Err(HostBuildError::TooManyBlocks { blocks });
        }
        if self.remote.in_flight == 0 {
            return Err(HostBuildError::NothingInFlight);
        }
        self.check_remote()
    }

    /// Checks that the blocks of all tiers have one size, and mean the same in all remote tiers.
    fn check_remote(&self) -> Result<(), HostBuildError> {
        let Some(first) = self.remote.tiers.first() else { return Ok(()) };
        for (number, tier) in self.remote.tiers.iter().enumerate() {
            let (layout, wanted) = (tier.layout(), first.layout());
            let sizes = [
                ("block size", self.block_size.to_string(), layout.block_size().to_string()),
                ("block bytes", self.block_bytes.to_string(), layout.block_bytes().to_string()),
                ("keys", "tokens".to_owned(), if layout.has_digest_keys() { "digests" } else { "tokens" }.to_owned()),
            ];
            let fields = wanted.store_fields().into_iter().zip(layout.store_fields());
            let fields = fields.map(|((field, host), (_, remote))| (field, host, remote));
            if let Some((field, host, remote)) =
                sizes.into_iter().chain(fields).find(|(_, host, remote)| host != remote)
            {
                return Err(HostBuildError::RemoteLayout { number, field, host, remote });
            }
        }
        Ok(())
    }
}
