//! A tier in an object store: S3, GCS, Azure, and others that the crate `object_store` supports.
//! One thread with its own runtime carries out the requests.

mod store;

use std::{io, sync::Arc, sync::mpsc, time::Duration};

use object_store::ObjectStore;

use crate::{
    layout::Layout,
    open::{Limits, OpenError},
    opened::Tier,
    tier::Buffer,
};
use store::Objects;

/// Settings of a tier in an object store: one object for each block, under `PREFIX/ab/cd..`, the
/// key's 64 hexadecimal digits.
///
/// The store is one of the crate `object_store`, which this package re-exports as
/// [`crate::object_store`]. Enable its features `aws`, `gcp`, `azure` or `fs` in your own manifest.
/// Its retries end with the tier's timeout.
///
/// Expired objects are misses, and are removed when they are read. Unread ones stay in the store:
/// give the bucket a rule that removes old objects, and so limits its size. Asking whether an
/// object exists reads its first 104 bytes.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use radixkv_tiers::{Layout, ObjectTier, RemoteTier, object_store::memory::InMemory};
///
/// // Or, with the feature `aws`: AmazonS3Builder::from_env().with_bucket_name("kv").build()?
/// let store = Arc::new(InMemory::new());
/// let layout = Layout::new("llama-3-8b", "bf16", 16, 2 << 20)?;
/// let tier = ObjectTier::new(store, "llama-3-8b/rank-0", layout).open::<Vec<u8>>()?;
/// println!("{:?}", tier.stats());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ObjectTier {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    layout: Layout,
    concurrency: usize,
    limits: Limits,
}

impl ObjectTier {
    /// Settings for a prefix of a store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: impl Into<String>, layout: Layout) -> Self {
        let limits = Limits::new(Duration::from_secs(10));
        Self { store, prefix: prefix.into(), layout, concurrency: 16, limits }
    }

    /// Sets how many requests the store gets at the same time, from 1 to 1,024. Default: 16.
    pub fn concurrency(self, requests: usize) -> Self {
        Self { concurrency: requests.clamp(1, 1024), ..self }
    }

    /// Sets how many items may be in flight; at least one. Default: 1,024.
    pub fn max_in_flight(mut self, items: usize) -> Self {
        self.limits.set_max_in_flight(items);
        self
    }

    /// Sets how long a request may take, including waiting and the store's retries; at least 1 ms.
    /// Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.set_timeout(timeout);
        self
    }

    /// Starts a thread with its own runtime, and compares the layout with the one under the prefix,
    /// or writes it there.
    ///
    /// May be called on a thread of another runtime; that thread is blocked until the store has
    /// answered.
    ///
    /// # Errors
    ///
    /// [`OpenError`], if the store is not reachable, or has blocks of another layout or format
    /// under the prefix.
    pub fn open<B: Buffer>(self) -> Result<Tier<B>, OpenError> {
        let place = format!("{} {}", self.store, self.prefix);
        let refused = |error| OpenError::io(&place, error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let mut tier = Tier::new(self.layout.clone(), self.limits.max_in_flight, self.limits.timeout);
        let objects = Objects::new(self.store, &self.prefix, self.layout, self.limits.timeout);
        let (say, said) = mpsc::sync_channel(1);
        let (concurrency, opened) = (self.concurrency, place.clone());
        let run = move |queue: &Arc<_>, _: &Arc<_>| {
            let objects = Arc::new(objects);
            let manifest = runtime.block_on(objects.open(&opened));
            let is_open = manifest.is_ok();
            if say.send(manifest).is_ok() && is_open {
                runtime.block_on(store::run(&objects, queue, concurrency));
            }
            // Does not wait for the store's own threads.
            runtime.shutdown_background();
        };
        tier.spawn("kv-objects", run).map_err(refused)?;
        said.recv().unwrap_or_else(|_| Err(refused(io::Error::other("the store panicked"))))?;
        Ok(tier)
    }
}
