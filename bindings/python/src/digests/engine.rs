//! The threads of a store. Some copy between the region and the callers' memory. One thread for
//! each tier below receives the tier's completions and passes their blocks on.
//!
//! ```text
//! submit --> work --> region --> tier 0 --> tier 1 --> done
//! ```
//!
//! Each block of a batch passes through these steps independently of the others. A load and a
//! lookup end where the block is found; a store and a removal continue to the last tier.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use radixkv_region::{DigestBlocks, DigestPut, Get, Presence};
use radixkv_tiers::{NotGot, Outcome};

use super::batch::{Batch, CANCELLED, DONE, FAILED, MISS, Span, Verb};
use super::batches::Batches;
use super::below::Below;
use super::sealing::Key;

/// Maximum number of blocks that a thread takes at a time.
const CHUNK: usize = 16;
/// The interval at which a thread recovers entries of killed processes, while there are requests.
const RECOVER: Duration = Duration::from_secs(1);

/// Blocks of a batch that wait for a copying thread.
struct Chunk {
    batch: Arc<Batch>,
    blocks: Range<usize>,
}

#[derive(Default)]
struct Work {
    chunks: VecDeque<Chunk>,
    is_closed: bool,
    /// When a thread last looked for killed processes.
    recovered: Option<Instant>,
}

/// The outcomes of blocks of finished batches.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) loaded: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) stored: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) cancelled: AtomicU64,
}

/// State that the verbs and threads of a store share.
pub(super) struct Engine {
    pub(super) blocks: Arc<DigestBlocks>,
    pub(super) batches: Batches,
    pub(super) below: Vec<Below>,
    pub(super) counts: Counts,
    work: Mutex<Work>,
    bell: Condvar,
    /// The key of an encrypted namespace. Dropped last, because its count must be complete by then.
    pub(super) key: Option<Key>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(super) fn new(blocks: DigestBlocks, below: Vec<Below>, most: usize, key: Option<Key>) -> Self {
        let (work, bell) = (Mutex::default(), Condvar::new());
        let (blocks, batches) = (Arc::new(blocks), Batches::new(most));
        Self { blocks, batches, below, counts: Counts::default(), work, bell, key }
    }

    /// Queues a batch for the copying threads.
    pub(super) fn submit(&self, batch: &Arc<Batch>) {
        let blocks = batch.keys.len();
        let mut work = lock(&self.work);
        // From the last blocks to the first, so that the first blocks of a prefix are the most
        // recently used ones, and are evicted last.
        for start in (0..blocks).step_by(CHUNK).rev() {
            let blocks = start..blocks.min(start + CHUNK);
            work.chunks.push_back(Chunk { batch: Arc::clone(batch), blocks });
        }
        drop(work);
        self.bell.notify_all();
    }

    fn take(&self) -> Option<Chunk> {
        let mut work = lock(&self.work);
        loop {
            if let Some(chunk) = work.chunks.pop_front() {
                return Some(chunk);
            }
            if work.is_closed {
                return None;
            }
            work = self.bell.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The loop of a copying thread.
    fn copy_blocks(&self) {
        while let Some(chunk) = self.take() {
            self.carry_out(&chunk);
            if self.is_time_to_recover() {
                let _ = catch_unwind(AssertUnwindSafe(|| self.blocks.region().recover()));
            }
        }
    }

    fn is_time_to_recover(&self) -> bool {
        let mut work = lock(&self.work);
        let is_time = work.recovered.is_none_or(|last| last.elapsed() >= RECOVER);
        if is_time {
            work.recovered = Some(Instant::now());
        }
        is_time
    }

    fn carry_out(&self, chunk: &Chunk) {
        let (batch, blocks) = (&chunk.batch, chunk.blocks.clone());
        if batch.is_cancelled() {
            return self.go_on(0, batch, blocks.collect());
        }
        let asked = catch_unwind(AssertUnwindSafe(|| self.ask_region(batch, blocks.clone())));
        let goes_on = asked.unwrap_or_else(|_| {
            blocks.clone().for_each(|index| batch.note(index, FAILED));
            Vec::new()
        });
        self.end(batch, blocks.len() - goes_on.len());
        self.go_on(0, batch, goes_on);
    }

    /// Executes a batch's operation on the region. Returns the blocks that must also be requested
    /// from the tiers below.
    fn ask_region(&self, batch: &Batch, blocks: Range<usize>) -> Vec<usize> {
        let keys = &batch.keys[blocks.clone()];
        let spans = || blocks.clone().filter_map(|index| batch.span_or_none(index));
        // For each block: whether it is done, and whether it continues to the tiers.
        let answers: Vec<(bool, bool)> = match batch.verb {
            Verb::Lookup => {
                let presences = self.blocks.exists(keys).expect("the keys were checked");
                presences.into_iter().map(|presence| presence == Presence::Stored).map(|is| (is, !is)).collect()
            }
            Verb::Load(_) => {
                let mut spans: Vec<_> = spans().collect();
                let mut buffers: Vec<_> = spans.iter_mut().map(AsMut::as_mut).collect();
                let gets = self.blocks.get_into(keys, &mut buffers).expect("the batch was checked");
                gets.into_iter().map(Get::is_hit).map(|is| (is, !is)).collect()
            }
            Verb::Store(time_to_live) => {
                let spans: Vec<_> = spans().collect();
                let buffers: Vec<_> = spans.iter().map(AsRef::as_ref).collect();
                let puts = self.blocks.put_from(keys, &buffers, time_to_live).expect("the batch was checked");
                let answer = |put| match put {
                    DigestPut::Stored => (true, true),
                    // The store that put the block into the region also passes it on to the tiers.
                    DigestPut::Present | DigestPut::InFlight => (true, false),
                    DigestPut::NoRoom | DigestPut::OverQuota | DigestPut::KeyExhausted => (false, true),
                };
                puts.into_iter().map(answer).collect()
            }
            Verb::Remove => {
                self.blocks.remove(keys).expect("the keys were checked");
                vec![(true, true); keys.len()]
            }
        };
        let done = blocks.clone().zip(&answers).filter(|(_, answer)| answer.0);
        done.for_each(|(index, _)| batch.note(index, DONE));
        blocks.zip(answers).filter(|(_, answer)| answer.1).map(|(index, _)| index).collect()
    }

    /// Passes blocks of a batch on to the tier at `level`. Finishes the blocks if there is no such
    /// tier or the batch is cancelled.
    fn go_on(&self, level: usize, batch: &Arc<Batch>, blocks: Vec<usize>) {
        if blocks.is_empty() {
            return;
        }
        let (is_cancelled, below) = (batch.is_cancelled(), self.below.get(level));
        match below {
            Some(below) if !is_cancelled => {
                if !below.ask(batch, &blocks) {
                    blocks.iter().for_each(|index| self.note_failure(batch, *index));
                    self.go_on(level + 1, batch, blocks);
                }
                return;
            }
            _ => {}
        }
        for index in &blocks {
            match (batch.outcome(*index), batch.verb) {
                (MISS, _) if is_cancelled => batch.note(*index, CANCELLED),
                // This tier was not asked, so it may have the block.
                (DONE, Verb::Remove) if below.is_some() => batch.note(*index, CANCELLED),
                (MISS, Verb::Store(_)) => batch.note(*index, FAILED),
                _ => {}
            }
        }
        self.end(batch, blocks.len());
    }

    /// Records that a tier failed, except for a store, which succeeds if the region or any tier has
    /// the block. A removal succeeds only if none has it.
    fn note_failure(&self, batch: &Batch, index: usize) {
        if !matches!(batch.verb, Verb::Store(_)) {
            batch.note(index, FAILED);
        }
    }

    /// The loop of the thread that waits for the tier at `level`.
    fn pass_on(&self, level: usize) {
        let below = &self.below[level];
        while below.is_asked() {
            let mut goes_on: Vec<(Arc<Batch>, Vec<usize>)> = Vec::new();
            for (batch, index, outcome) in below.answers() {
                if !self.take_answer(&batch, index, outcome) {
                    self.end(&batch, 1);
                    continue;
                }
                match goes_on.iter_mut().find(|(of, _)| Arc::ptr_eq(of, &batch)) {
                    Some((_, blocks)) => blocks.push(index),
                    None => goes_on.push((batch, vec![index])),
                }
            }
            goes_on.into_iter().for_each(|(batch, blocks)| self.go_on(level + 1, &batch, blocks));
        }
    }

    /// Records a tier's answer. Returns whether the next tier must be asked.
    fn take_answer(&self, batch: &Batch, index: usize, outcome: Outcome<Span>) -> bool {
        match outcome {
            Outcome::Got(got, Ok(())) => {
                let keys = &batch.keys[index..=index];
                let time_to_live = if let Verb::Load(time_to_live) = batch.verb { time_to_live } else { None };
                // The region stores the block only if it has room.
                let put = || self.blocks.put_from(keys, &[got.buffer.as_ref()], time_to_live);
                let _ = catch_unwind(AssertUnwindSafe(put));
                batch.note(index, DONE);
                false
            }
            Outcome::Contained(_, Ok(true)) => {
                batch.note(index, DONE);
                false
            }
            Outcome::Put(_, Ok(())) => {
                batch.note(index, DONE);
                true
            }
            Outcome::Got(_, Err(NotGot::Miss(_))) | Outcome::Contained(_, Ok(false)) | Outcome::Removed(_, Ok(())) => {
                true
            }
            _ => {
                self.note_failure(batch, index);
                true
            }
        }
    }

    fn end(&self, batch: &Batch, blocks: usize) {
        if batch.end(blocks) {
            self.count(batch);
            self.batches.finish(batch);
        }
    }

    fn count(&self, batch: &Batch) {
        // Relaxed: these are statistics only.
        for outcome in batch.outcomes() {
            let count = match (outcome, batch.verb) {
                (DONE, Verb::Load(_)) => &self.counts.loaded,
                (DONE, Verb::Store(_)) => &self.counts.stored,
                (MISS, Verb::Load(_)) => &self.counts.missed,
                (FAILED, _) => &self.counts.failed,
                (CANCELLED, _) => &self.counts.cancelled,
                _ => continue,
            };
            count.fetch_add(1, Relaxed);
        }
    }
}

/// An engine and its threads.
pub(super) struct Running {
    pub(super) engine: Arc<Engine>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Running {
    /// Starts `threads` copying threads, and one thread for each tier.
    pub(super) fn start(engine: Engine, threads: usize) -> io::Result<Self> {
        let running = Self { engine: Arc::new(engine), threads: Mutex::default() };
        for number in 0..threads {
            running.spawn(&format!("kv-store-{number}"), Engine::copy_blocks)?;
        }
        for level in 0..running.engine.below.len() {
            running.spawn(&format!("kv-below-{level}"), move |engine| engine.pass_on(level))?;
        }
        Ok(running)
    }

    fn spawn(&self, name: &str, run: impl FnOnce(&Engine) + Send + 'static) -> io::Result<()> {
        let engine = Arc::clone(&self.engine);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&engine))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Cancels blocks that were not started, waits until no thread touches callers' memory, and
    /// ends the threads.
    pub(super) fn close(&self) {
        self.engine.batches.close();
        lock(&self.engine.work).is_closed = true;
        self.engine.bell.notify_all();
        self.engine.below.iter().for_each(Below::close);
        let threads = std::mem::take(&mut *lock(&self.threads));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}
