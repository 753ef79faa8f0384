//! Remote tiers below the host tier: files, a region that processes share, Redis, object stores.
//!
//! Only one thread uses them. Other threads queue orders and continue: a block that leaves the host
//! (with write-through, one that arrives) is copied into a buffer and put; a lookup that ends in
//! the host requests the following blocks, which are stored in the host as if a cache had offloaded
//! them. Buffers bound the blocks in flight; without one, a put is omitted and a get is a miss.
//!
//! A remote tier that hangs holds buffers, but no host block. A fetched block is stored through an
//! arrival, like a block from a cache, so holes, clears and duplicates are handled in one place;
//! the request then matches the host again. A fetch counts as an offload that begins with its
//! request, so blocks that are cleared meanwhile are not stored. A put uses its namespace's remote
//! name at the time when the block left the host, and is withdrawn if the namespace was cleared
//! since.

mod fetching;
mod health;
mod keys;
mod line;
mod name;
mod pool;
mod progress;
mod putting;
mod settings;
mod stats;
mod worker;

use std::{
    io, process,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

pub(crate) use line::{FetchOrder, PutOrder};
pub(crate) use name::{Generations, RemoteName};
pub(crate) use progress::Progress;
pub(crate) use settings::RemoteSettings;
pub use stats::RemoteStats;

use crate::{tier::Inner, write_policy::WritePolicy};
use line::Line;
use worker::Worker;

/// The queue to the remote tiers, and their thread.
#[derive(Debug)]
pub(crate) struct Remote {
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
    write: WritePolicy,
    timeout: Duration,
    started_by: u32,
}

impl Remote {
    /// Starts the thread.
    pub(crate) fn start(settings: RemoteSettings, host: Weak<Inner>, block_bytes: usize) -> io::Result<Self> {
        let RemoteSettings { tiers, write, in_flight, timeout } = settings;
        let timeout = timeout.min(progress::FOREVER);
        let line = Arc::new(Line::new(block_bytes, in_flight));
        let worker = Worker::new(tiers, host, Arc::clone(&line), timeout);
        let thread = thread::Builder::new().name("radixkv-remote".to_owned()).spawn(move || worker.work())?;
        Ok(Self { line, thread: Some(thread), write, timeout, started_by: process::id() })
    }

    /// When blocks are written to the remote tiers.
    pub(crate) fn write(&self) -> WritePolicy {
        self.write
    }

    /// The time after which a fetch is cancelled.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Buffers for the first of these blocks to put, as many as the bound allows.
    pub(crate) fn put_buffers(&self, numbers: &[usize]) -> Vec<Vec<u8>> {
        self.line.put_buffers(numbers)
    }

    /// Asks the remote tiers to store blocks.
    pub(crate) fn put(&self, order: PutOrder) {
        self.line.put(order);
    }

    /// Returns a buffer that was not used.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        self.line.give_put(buffer);
    }

    /// Asks the remote tiers for blocks; false if too many fetches are in progress.
    pub(crate) fn fetch(&self, order: FetchOrder) -> bool {
        self.line.fetch(order)
    }

    /// Waits up to `wait` until no order is in progress. Returns whether none is.
    pub(crate) fn settle(&self, wait: Duration) -> bool {
        self.line.settle(wait)
    }

    pub(crate) fn stats(&self) -> RemoteStats {
        self.line.stats()
    }
}

impl Drop for Remote {
    /// Ends the thread, which drops the remote tiers.
    fn drop(&mut self) {
        self.line.close();
        let Some(thread) = self.thread.take() else { return };
        if process::id() != self.started_by {
            // A forked process does not have the thread.
            std::mem::forget(thread);
        } else if thread.thread().id() != thread::current().id() {
            // This thread may drop the last handle, and cannot join itself.
            drop(thread.join());
        }
    }
}
