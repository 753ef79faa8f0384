//! Fetches: copying blocks from remote tiers to the host. Lookups of `tiered` request them; the
//! remote tiers' thread carries them out (`remote::fetching`).

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use radixkv::{Keys, NamespaceName, Token};

use crate::{
    remote::{FetchOrder, Progress},
    tier::HostTier,
};

/// How long a request waits for blocks of its prompt from remote tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RemoteWait {
    /// Does not wait: uses the blocks that have arrived since the match. Later ones are in the host
    /// for the next request.
    #[default]
    BestEffort,
    /// Waits until this long after the match.
    UpTo(Duration),
    /// Waits until all blocks arrived or the remote tiers failed, at most for
    /// [`HostBuilder::remote_timeout`](crate::HostBuilder::remote_timeout).
    All,
}

/// A request to remote tiers for blocks that are to be copied to the host; made by
/// [`HostTier::fetch`].
///
/// Blocks that have arrived are pinned in the host until this is dropped. If it is dropped earlier,
/// the remaining blocks still arrive, for other requests.
#[must_use = "dropping it unpins its blocks"]
pub struct Fetch {
    progress: Arc<Progress>,
    block_size: usize,
    timeout: Duration,
}

impl HostTier {
    /// Requests the whole blocks after the first `from` tokens of a sequence from the remote tiers,
    /// to be copied to the host. Does not wait for them. Copies `tokens`.
    ///
    /// `None` if nothing can be fetched: there is no remote tier or no whole block, or the
    /// namespace has bigram keys (which remote tiers do not store) or is kept out. Also `None` if
    /// the maximum number of fetches is in progress.
    pub fn fetch(&self, namespace: &NamespaceName, tokens: &[Token], from: usize) -> Option<Fetch> {
        let remote = self.inner.remote()?;
        let size = self.inner.block_size();
        let (first, whole) = (from / size, tokens.len() / size);
        if first >= whole || namespace.keys() != Keys::Tokens {
            return None;
        }
        let offload = self.offload();
        let mut state = self.inner.lock();
        let name = offload.allows(&state, namespace).then(|| state.generations.name(namespace));
        drop(state);
        let name = name?;
        let progress = Arc::new(Progress::new());
        let (namespace, tokens, of) = (namespace.clone(), tokens[..whole * size].to_vec(), Arc::clone(&progress));
        let is_taken = remote.fetch(FetchOrder { name, namespace, tokens, first, offload, progress: of });
        is_taken.then_some(Fetch { progress, block_size: size, timeout: remote.timeout() })
    }
}

impl Fetch {
    /// Tokens of the blocks that the remote tiers reported to have; some may not arrive.
    pub fn found_tokens(&self) -> usize {
        self.progress.found_blocks() * self.block_size
    }

    /// Tokens of the blocks that have arrived in the host.
    pub fn arrived_tokens(&self) -> usize {
        self.progress.arrived_blocks() * self.block_size
    }

    /// Whether the fetch is complete: no more blocks will arrive. Never waits.
    pub fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    /// Waits for the fetch to complete, as long as `wait` allows. Returns whether it is complete.
    pub fn wait(&self, wait: RemoteWait) -> bool {
        let until = match wait {
            RemoteWait::BestEffort => return self.is_done(),
            RemoteWait::UpTo(wait) => wait.min(self.timeout),
            RemoteWait::All => self.timeout,
        };
        self.progress.wait_until(self.progress.due(until))
    }

    /// When the fetch was requested.
    pub fn began(&self) -> Instant {
        self.progress.began
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.progress.release();
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch")
            .field("found_tokens", &self.found_tokens())
            .field("arrived_tokens", &self.arrived_tokens())
            .field("is_done", &self.is_done())
            .finish()
    }
}
