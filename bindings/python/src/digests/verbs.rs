//! The methods of `DigestStore` that look up and copy blocks, and return the outcomes.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use radixkv_region::{BatchError, DigestBlocks, DigestKey, Presence};

use super::arguments::{self, Memory, Owner};
use super::batch::Verb;
use super::batches::Handed;
use super::errors;
use super::in_place::{DigestRooms, DigestSources};
use super::store::DigestStore;
use crate::cache::duration;
use crate::errors::{catch, released};
use crate::lookup::deadline;
use crate::numbers::number;

/// From this number of keys on, a lookup lets other Python threads run.
const MANY_KEYS: usize = 4096;
/// How long a method waits before it checks for signals.
const LOOK: Duration = Duration::from_millis(200);

impl DigestStore {
    fn keys(&self, given: &Bound<'_, PyAny>) -> PyResult<Vec<DigestKey>> {
        arguments::keys(given, self.key_bytes)
    }

    /// Accepts a batch, and queues it for the store's threads. Returns its number.
    fn submit(&self, verb: Verb, keys: Vec<DigestKey>, memory: Option<Memory>) -> PyResult<u64> {
        let running = self.running()?;
        let Memory { spans, owner } = memory.unwrap_or_else(|| Memory { spans: Vec::new(), owner: Owner::Nothing });
        catch(|| match running.engine.batches.accept(verb, keys, spans, owner) {
            Ok(batch) => {
                running.engine.submit(&batch);
                Ok(batch.number)
            }
            Err((refused, _owner)) => Err(errors::refused(refused)),
        })?
    }

    /// Looks up keys in the region on this thread. For many keys, lets other Python threads run.
    fn look<T: Send>(
        &self,
        py: Python<'_>,
        keys: &[DigestKey],
        look: impl Fn(&DigestBlocks, &[DigestKey]) -> Result<T, BatchError> + Sync,
    ) -> PyResult<T> {
        let running = self.running()?;
        let look = || catch(|| look(&running.engine.blocks, keys));
        let found = if keys.len() < MANY_KEYS { look() } else { py.detach(look) };
        found?.map_err(errors::of_region)
    }
}

fn time_to_live(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    given.map(|given| duration(given, "time_to_live", false)).transpose()
}

/// The outcomes of a batch as bytes. Drops the owner of the batch's memory.
fn outcomes(py: Python<'_>, handed: Handed) -> Bound<'_, PyBytes> {
    drop(handed.owner);
    PyBytes::new(py, &handed.outcomes)
}

#[pymethods]
impl DigestStore {
    /// exists(keys): returns one byte for each key: 1 if the region has the block, 2 if a process
    /// is writing it, otherwise 0.
    ///
    /// - keys: a list or tuple of bytes objects of key_bytes bytes each, or one bytes object with
    ///   all keys one after another.
    ///
    /// Runs on this thread, and does not ask the tiers below. Does not count as a use, and is not
    /// counted in statistics. Raises BatchError, TypeError.
    fn exists<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let presences = self.look(py, &self.keys(keys)?, DigestBlocks::exists)?;
        let byte = |presence| match presence {
            Presence::Absent => 0,
            Presence::Stored => 1,
            Presence::BeingWritten => 2,
        };
        Ok(PyBytes::new(py, &presences.into_iter().map(byte).collect::<Vec<u8>>()))
    }

    /// prefix(keys): returns the number of keys before the first one that the region does not have.
    /// Otherwise like `exists`.
    fn prefix<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<usize> {
        self.look(py, &self.keys(keys)?, DigestBlocks::prefix)
    }

    /// lookup(keys): looks up keys in the region, and keys that the region does not have in the
    /// tiers. Returns the number of a batch, whose outcomes are DONE for blocks that were found.
    /// Same keys and errors as `exists`, and FullError.
    fn lookup(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(Verb::Lookup, self.keys(keys)?, None)
    }

    /// store(keys, buffer, offsets=None, *, time_to_live=None): stores blocks from a buffer.
    /// Returns the number of a batch.
    ///
    /// - keys: as in `exists`.
    /// - buffer: a C-contiguous buffer with any item type, except Python objects and pointers:
    ///   bytes, memoryview, a numpy array.
    /// - offsets: the byte offset of each block, as a sequence or an array of ints; None: one block
    ///   after another from byte 0 on.
    /// - time_to_live: seconds for which the blocks can be found; None: no limit.
    ///
    /// Nothing may write to the blocks until the outcomes are returned. A block that the region
    /// already has keeps its bytes, and is not written to tiers. Never waits. Raises BatchError,
    /// FullError, TypeError, ValueError, and then does nothing.
    #[pyo3(signature = (keys, buffer, offsets = None, *, time_to_live = None))]
    fn store(
        &self,
        keys: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        offsets: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::in_buffer(buffer, offsets.as_ref(), keys.len(), self.block_bytes, false)?;
        self.submit(Verb::Store(time_to_live), keys, Some(memory))
    }

    /// load(keys, buffer, offsets=None, *, time_to_live=None): loads blocks into a writable buffer.
    /// Returns the number of a batch.
    ///
    /// - time_to_live: seconds for which blocks that come from a tier can be found in the region.
    ///
    /// Same other arguments and errors as `store`. Nothing may use the memory until the outcomes
    /// are returned. If the outcome is not DONE, the bytes of the block are unspecified.
    #[pyo3(signature = (keys, buffer, offsets = None, *, time_to_live = None))]
    fn load(
        &self,
        keys: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        offsets: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::in_buffer(buffer, offsets.as_ref(), keys.len(), self.block_bytes, true)?;
        self.submit(Verb::Load(time_to_live), keys, Some(memory))
    }

    /// store_from(keys, addresses, *, owner=None, time_to_live=None): same as `store`, from memory
    /// at absolute addresses, such as `tensor.data_ptr()`.
    ///
    /// The caller guarantees block_bytes readable bytes at each address until the outcomes are
    /// returned; the store keeps a reference to `owner` until then.
    #[pyo3(signature = (keys, addresses, *, owner = None, time_to_live = None))]
    fn store_from(
        &self,
        keys: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        owner: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::at_addresses(addresses, owner, keys.len(), self.block_bytes)?;
        self.submit(Verb::Store(time_to_live), keys, Some(memory))
    }

    /// load_into(keys, addresses, *, owner=None, time_to_live=None): same as `load`, into memory at
    /// absolute addresses. The caller guarantees what `store_from` requires, writable bytes, and
    /// that no blocks overlap.
    #[pyo3(signature = (keys, addresses, *, owner = None, time_to_live = None))]
    fn load_into(
        &self,
        keys: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        owner: Option<Bound<'_, PyAny>>,
        time_to_live: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        let memory = arguments::at_addresses(addresses, owner, keys.len(), self.block_bytes)?;
        self.submit(Verb::Load(time_to_live), keys, Some(memory))
    }

    /// remove(keys): removes blocks from the region and from all tiers. Returns the number of a
    /// batch.
    fn remove(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(Verb::Remove, self.keys(keys)?, None)
    }

    /// poll(timeout=0.0): returns the finished batches, a list of (number, outcomes), with one byte
    /// for each key.
    ///
    /// Waits up to `timeout` seconds for the first one, unless no batch is in flight, and lets
    /// other Python threads run. Each batch is returned once.
    #[pyo3(signature = (timeout = None))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let running = self.running()?;
        let batches = &running.engine.batches;
        let until = timeout.as_ref().map(deadline).transpose()?;
        let mut handed = catch(|| batches.poll(Duration::ZERO))?;
        while handed.is_empty() && batches.in_flight() > 0 {
            let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            handed = py.detach(|| catch(|| batches.poll(left.min(LOOK))))?;
            if handed.is_empty() {
                py.check_signals()?;
                if batches.is_closed() {
                    return Err(released());
                }
            }
        }
        Ok(handed.into_iter().map(|handed| (handed.number, outcomes(py, handed))).collect())
    }

    /// wait(batch, timeout=None): waits until this batch is finished, and returns its outcomes;
    /// None after `timeout` seconds. Lets other Python threads run.
    ///
    /// No `poll` returns a batch while a thread waits for it. Raises KeyError if the batch was
    /// already returned or never existed.
    #[pyo3(signature = (batch, timeout = None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = number)] batch: u64,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let running = self.running()?;
        let batches = &running.engine.batches;
        let until = timeout.as_ref().map(deadline).transpose()?;
        let unknown = || PyKeyError::new_err(format!("batch {batch} was already returned, or never existed"));
        let waiter = batches.waiter(batch).ok_or_else(unknown)?;
        loop {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            let waited = py.detach(|| catch(|| waiter.wait(left.min(LOOK))))?;
            if let Some(handed) = waited.map_err(|_| unknown())? {
                return Ok(Some(outcomes(py, handed)));
            }
            if left.is_zero() {
                return Ok(None);
            }
            py.check_signals()?;
            if batches.is_closed() {
                return Err(released());
            }
        }
    }

    /// cancel(batch): cancels the blocks of the batch that were not started: their outcome is
    /// CANCELLED, and also that of removals that were not passed on to every tier. The batch is still
    /// returned, once no thread uses its memory.
    fn cancel(&self, #[pyo3(from_py_with = number)] batch: u64) -> PyResult<()> {
        if self.running()?.engine.batches.cancel(batch) {
            return Ok(());
        }
        Err(PyKeyError::new_err(format!("batch {batch} was already returned, or never existed")))
    }

    /// reserve(keys, *, time_to_live=None): reserves space in the region for blocks that it does
    /// not have, to be written in place and then published. Returns `DigestRooms`. Same keys and
    /// errors as `exists`.
    ///
    /// These blocks are not written to the tiers.
    #[pyo3(signature = (keys, *, time_to_live = None))]
    fn reserve(&self, keys: &Bound<'_, PyAny>, time_to_live: Option<Bound<'_, PyAny>>) -> PyResult<DigestRooms> {
        let (keys, time_to_live) = (self.keys(keys)?, self::time_to_live(time_to_live.as_ref())?);
        DigestRooms::reserve(&self.running()?.engine.blocks, &keys, time_to_live)
    }

    /// locate(keys): returns the addresses of blocks in the region, as `DigestSources`, for a
    /// device that copies them. Same keys and errors as `exists`. Counts as a use.
    fn locate(&self, keys: &Bound<'_, PyAny>) -> PyResult<DigestSources> {
        DigestSources::locate(&self.running()?.engine.blocks, &self.keys(keys)?)
    }

    /// touch(keys): counts a use of each block that the region has, on this thread; returns their
    /// number. Same keys and errors as `exists`. Refused for encrypted namespaces.
    fn touch(&self, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (keys, running) = (self.keys(keys)?, self.running()?);
        let located = || keys.iter().map(|key| Ok(usize::from(running.engine.blocks.locate(key)?.is_ok()))).sum();
        catch(|| -> Result<usize, _> { located() })?.map_err(errors::of_region)
    }
}
