//! An open tier: its queue and its threads.

use std::{
    fmt, io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    key::{Block, BlockKey},
    layout::{Layout, LayoutDigest},
    queue::{Before, Queue, Request, Terms},
    stats::Stats,
    tier::{Buffer, Completion, Get, Put, Refusal, Refused, RemoteTier, Ticket},
    worker,
};

/// An open remote tier: what the `open` of [`FileTier`](crate::FileTier) and its siblings returns.
///
/// Dropping it drops requests that no thread has begun, with their buffers, and waits for those that a thread has begun,
/// up to the tier's timeout. Poll until nothing is in flight to have all of them done.
///
/// In a process that was forked every call is refused; see [`Refusal::Forked`].
pub struct Tier<B> {
    layout: Arc<Layout>,
    digest: LayoutDigest,
    queue: Arc<Queue<B>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Buffer> Tier<B> {
    pub(crate) fn new(layout: Layout, max_in_flight: usize, timeout: Duration) -> Self {
        let (digest, queue) = (layout.digest(), Arc::new(Queue::new(max_in_flight, timeout)));
        Self { layout: Arc::new(layout), digest, queue, threads: Vec::new() }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue<B>> {
        &self.queue
    }

    /// Starts a thread of the tier's.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Arc<Queue<B>>, &Arc<Layout>) + Send + 'static,
    ) -> Result<(), io::Error> {
        let (queue, layout) = (Arc::clone(&self.queue), Arc::clone(&self.layout));
        let entered = queue.enter();
        let run = move || {
            let _entered = entered;
            run(&queue, &layout);
        };
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// Compares the items of a batch with the layout.
    fn check<'a>(&self, items: impl Iterator<Item = (&'a Block, &'a B)>) -> Result<(), Refusal> {
        self.queue.is_here()?;
        let block_bytes = self.layout.block_bytes();
        for (index, (block, buffer)) in items.enumerate() {
            if block.layout() != self.digest {
                return Err(Refusal::OtherLayout { index });
            }
            let bytes = buffer.as_ref().len();
            if bytes != block_bytes {
                return Err(Refusal::BufferBytes { index, bytes, block_bytes });
            }
        }
        Ok(())
    }

    fn keys(
        &self,
        batch: Vec<BlockKey>,
        request: impl Fn(BlockKey) -> Request<B>,
    ) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        match self.queue.is_here() {
            Ok(()) => self.queue.submit(batch, request),
            Err(reason) => Err(Refused { batch, reason }),
        }
    }
}

impl<B: Buffer> RemoteTier<B> for Tier<B> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.keys(keys, Request::Contains)
    }

    fn get_into(&self, gets: Vec<Get<B>>) -> Result<Ticket, Refused<Vec<Get<B>>>> {
        match self.check(gets.iter().map(|get| (&get.block, &get.buffer))) {
            Ok(()) => self.queue.submit(gets, Request::Get),
            Err(reason) => Err(Refused { batch: gets, reason }),
        }
    }

    fn put_from(&self, puts: Vec<Put<B>>) -> Result<Ticket, Refused<Vec<Put<B>>>> {
        match self.check(puts.iter().map(|put| (&put.block, &put.buffer))) {
            Ok(()) => {
                // The block put last, and the one before those that it continues.
                let mut last = None;
                self.queue.submit(puts, |put| {
                    let before = match last {
                        Some((last, before)) if put.block.parent() == Some(last) => before,
                        _ => Before::of(&put.block),
                    };
                    last = Some((put.block.key(), before));
                    let expires = worker::expiry(put.time_to_live);
                    Request::Put(put, Terms { expires, before })
                })
            }
            Err(reason) => Err(Refused { batch: puts, reason }),
        }
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.keys(keys, Request::Remove)
    }

    fn poll(&self, done: &mut Vec<Completion<B>>, wait: Duration) -> usize {
        if self.queue.is_here().is_err() { 0 } else { self.queue.poll(done, wait) }
    }

    fn stats(&self) -> Stats {
        let in_flight = if self.queue.is_here().is_err() { 0 } else { self.queue.in_flight() };
        self.queue.counters.read(in_flight)
    }
}

impl<B> Drop for Tier<B> {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        // In a forked process the threads are not there, and the lock may be taken for good.
        if self.queue.is_here().is_err() {
            threads.into_iter().for_each(std::mem::forget);
            return;
        }
        drop(self.queue.close());
        // A buffer may hold the tier: then the last drop is on a thread of its own, which cannot wait for itself.
        let here = thread::current().id();
        let patience = self.queue.timeout();
        if threads.iter().all(|thread| thread.thread().id() != here) && self.queue.wait_for_threads(patience) {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

impl<B> fmt::Debug for Tier<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("layout", &self.layout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
