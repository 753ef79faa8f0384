//! A tier in Redis or Valkey. Each connection has its own thread.

mod link;
mod store;

use std::{io, sync::Arc, time::Duration};

use crate::{
    layout::Layout,
    open::{Limits, OpenError},
    opened::Tier,
    tier::Buffer,
    worker,
};
use link::Address;
use store::RedisStore;

/// Settings of a tier in Redis or Valkey: one string for each block, under `PREFIX:` and the key's
/// 64 hexadecimal digits.
///
/// Any number of processes may share a prefix: each that opens it with the same layout finds the
/// others' blocks. The manifest is stored under `PREFIX:manifest`. The server limits the room:
/// `maxmemory` with an `allkeys` policy. That may also remove the manifest. Then the next process
/// that connects writes it again; blocks of different layouts have different keys even without it.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use radixkv_tiers::{Layout, RedisTier, RemoteTier};
///
/// let layout = Layout::new("llama-3-8b", "bf16", 16, 2 << 20)?;
/// let tier = RedisTier::new("redis://127.0.0.1/", "kv:llama-3-8b", layout)
///     .timeout(Duration::from_millis(200))
///     .open::<Vec<u8>>()?;
/// println!("{:?}", tier.stats());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RedisTier {
    /// The URL of one server, or of nodes of a cluster.
    urls: Vec<String>,
    #[cfg_attr(not(feature = "redis-cluster"), expect(dead_code))]
    is_cluster: bool,
    prefix: String,
    layout: Layout,
    connections: usize,
    limits: Limits,
}

impl RedisTier {
    /// Settings for a server, such as `redis://:PASSWORD@HOST:6379/0` or `unix:///run/redis.sock`,
    /// and a prefix of its keys.
    ///
    /// `rediss://` needs one of the `tls` features of the crate `redis`.
    pub fn new(url: impl Into<String>, prefix: impl Into<String>, layout: Layout) -> Self {
        Self::at(vec![url.into()], false, prefix.into(), layout)
    }

    /// Settings for a cluster, given some of its nodes, and a prefix of its keys. Blocks are
    /// distributed over all nodes.
    ///
    /// Commands are sent to each node in batches. When slots move, requests fail until the tier has
    /// reconnected, which it does at once.
    #[cfg(feature = "redis-cluster")]
    pub fn cluster(urls: impl IntoIterator<Item = String>, prefix: impl Into<String>, layout: Layout) -> Self {
        Self::at(urls.into_iter().collect(), true, prefix.into(), layout)
    }

    fn at(urls: Vec<String>, is_cluster: bool, prefix: String, layout: Layout) -> Self {
        let limits = Limits::new(Duration::from_secs(1));
        Self { urls, is_cluster, prefix, layout, connections: 2, limits }
    }

    fn address(&self) -> Result<(Address, String), redis::RedisError> {
        #[cfg(feature = "redis-cluster")]
        if self.is_cluster {
            let client = redis::cluster::ClusterClientBuilder::new(self.urls.clone()).retries(1).max_retry_wait(20);
            return Ok((Address::Cluster(client.build()?), "the Redis cluster".to_owned()));
        }
        let client = redis::Client::open(self.urls[0].as_str())?;
        let place = client.get_connection_info().addr().to_string();
        Ok((Address::Server(client), place))
    }

    /// Sets the number of connections, each with its own thread, from 1 to 256. Default: 2.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.clamp(1, 256), ..self }
    }

    /// Sets how many items may be in flight; at least one. Default: 1,024.
    pub fn max_in_flight(mut self, items: usize) -> Self {
        self.limits.set_max_in_flight(items);
        self
    }

    /// Sets how long a request may take, including waiting, and how long connecting may take; at
    /// least 1 ms. Default: 1 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.set_timeout(timeout);
        self
    }

    /// Connects, compares the layout with the one under the prefix (or writes it there) and starts
    /// the threads.
    ///
    /// A broken connection is restored after at most 2 s; until then requests fail at once with
    /// [`Failure::Unreachable`](crate::Failure::Unreachable).
    ///
    /// # Errors
    ///
    /// [`OpenError`], if the server is not reachable, or has blocks of another layout or format
    /// under the prefix.
    pub fn open<B: Buffer>(self) -> Result<Tier<B>, OpenError> {
        let refused = |error: redis::RedisError| OpenError::io("the Redis address", io::Error::other(error));
        let (address, place) = self.address().map_err(refused)?;
        let place = format!("{place} {}", self.prefix);
        let mut store = RedisStore::new(address, self.prefix, self.layout.clone(), self.limits.timeout);
        store.open(&place)?;
        let mut tier = Tier::new(self.layout, self.limits.max_in_flight, self.limits.timeout);
        for number in 0..self.connections {
            let mut store = store.another();
            let run = move |queue: &Arc<_>, layout: &Arc<_>| worker::work(queue, layout, &mut store);
            tier.spawn(&format!("kv-redis-{number}"), run).map_err(|error| OpenError::io(&place, error))?;
        }
        Ok(tier)
    }
}

/// Omits the address, which may contain a password.
impl std::fmt::Debug for RedisTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTier").field("prefix", &self.prefix).field("layout", &self.layout).finish_non_exhaustive()
    }
}
