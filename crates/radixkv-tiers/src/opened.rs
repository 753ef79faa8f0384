//! An open tier: its queue and its threads. Callers use it through `RemoteTier`; the stores'
//! modules start its threads.

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

/// An open remote tier; returned by the `open` of [`FileTier`](crate::FileTier) and the other
/// tiers.
///
/// Dropping it drops waiting requests, with their buffers, and waits for the others, up to the
/// tier's timeout. To have all requests carried out, poll until nothing is in flight.
///
/// In a forked process every call is refused; see [`Refusal::Forked`].
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

    /// Starts a thread of the tier.
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

    /// Checks that the items of a batch fit the layout.
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
                // The previous block of the batch, and the block before its run of consecutive
                // blocks.
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
        // A forked process does not have the threads, and perhaps a lock that is never released.
        if self.queue.is_here().is_err() {
            threads.into_iter().for_each(std::mem::forget);
            return;
        }
        drop(self.queue.close());
        // A buffer may hold the tier. Then the last handle may be dropped on a thread of the tier,
        // which cannot join itself.
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
