//! Remote tiers below the host tier: files, a region that processes share, Redis, object stores.
//!
//! One thread uses them. The others leave orders in a line and go on: a block that leaves the host is copied into a buffer and put, a
//! lookup that ends in the host asks for what follows, which comes to the host as if a cache had brought it. Buffers bound what is on
//! its way; where there is none, a put is left out and a get is a miss.
//!
//! A remote tier that hangs holds buffers and no host block. A fetched block comes in by an
//! arrival, as from a cache, so holes, clears and second copies are handled in one place; the
//! request then matches the host again. A fetch counts as an offload that begins with its request,
//! so what is cleared meanwhile stays out. A put uses the name that its namespace had when the
//! block left the host, and is withdrawn if a clear came between.

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

/// The line to the remote tiers, and their thread.
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

    /// When blocks are put.
    pub(crate) fn write(&self) -> WritePolicy {
        self.write
    }

    /// After how long a fetch is given up.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Buffers for the first of these blocks to put, as many as may be on their way.
    pub(crate) fn put_buffers(&self, numbers: &[usize]) -> Vec<Vec<u8>> {
        self.line.put_buffers(numbers)
    }

    /// Asks the remote tiers to keep blocks.
    pub(crate) fn put(&self, order: PutOrder) {
        self.line.put(order);
    }

    /// Takes a buffer back that was not used.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        self.line.give_put(buffer);
    }

    /// Asks the remote tiers for blocks; false if that is not taken.
    pub(crate) fn fetch(&self, order: FetchOrder) -> bool {
        self.line.fetch(order)
    }

    /// Waits until nothing is under way; whether that is so.
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
            // The thread itself may have the last handle, and cannot wait for itself.
            drop(thread.join());
        }
    }
}
