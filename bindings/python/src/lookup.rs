//! The methods of `PrefixCache` that look up sequences, and `insert`.

use std::time::Instant;

use pyo3::prelude::*;

use crate::cache::{PrefixCache, Shared};
use crate::errors::{self, catch};
use crate::lease::{Inserted, Lease, PartialHit, PrefixMatch, WeakLease};
use crate::namespace::Namespace;
use crate::numbers::number;
use crate::reservation::Reservation;
use crate::tokens::Tokens;

/// A match, and reserved blocks for the uncached tokens, as Python objects.
pub(crate) type Acquired<'py> = (Bound<'py, PrefixMatch>, Bound<'py, Reservation>);

impl Shared {
    pub(crate) fn acquired<'py>(&self, py: Python<'py>, acquired: radixkv::Acquired) -> PyResult<Acquired<'py>> {
        let radixkv::Acquired { hit, blocks, .. } = acquired;
        let ids = hit.blocks().to_vec();
        let hit = Bound::new(py, PrefixMatch::new(hit.into_lease(), ids, self.origin.block_size))?;
        Ok((hit, Bound::new(py, Reservation::new(blocks, self.origin))?))
    }
}

/// Raises ValueError for a request that needs no block.
pub(crate) fn check_acquired(tokens: &[u32], room: usize) -> PyResult<()> {
    if tokens.is_empty() && room == 0 {
        return Err(pyo3::exceptions::PyValueError::new_err("tokens is empty and room is 0: nothing to acquire"));
    }
    Ok(())
}

#[pymethods]
impl PrefixCache {
    /// match_prefix(tokens, namespace=None, *, counted=True): leases the longest cached prefix of
    /// the tokens.
    ///
    /// - tokens: a one-dimensional contiguous array or buffer of 32- or 64-bit integers from 0 to
    ///   2**32 - 1, at least one: numpy, array.array, memoryview, or an object in CPU memory with
    ///   `__dlpack__` or `__array__`. 32-bit integers are not copied. Lists and other sequences of
    ///   ints are accepted but slow: about 20 ns for each token of a list.
    /// - counted: whether the match counts as a use for the policy.
    ///
    /// Only whole blocks match; a miss is an empty match. Never waits. Raises TypeError,
    /// ValueError, ForeignHandleError.
    #[pyo3(signature = (tokens, namespace = None, *, counted = true))]
    fn match_prefix<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        namespace: Option<PyRef<'py, Namespace>>,
        counted: bool,
    ) -> PyResult<Bound<'py, PrefixMatch>> {
        let shared = self.shared()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of(tokens)?;
        let mut blocks = Vec::with_capacity(tokens.as_slice().len() / shared.origin.block_size);
        let lease = catch(|| {
            if counted {
                return shared.session().match_prefix_into(namespace, tokens.as_slice(), &mut blocks);
            }
            let hit = shared.session().match_prefix_untouched(namespace, tokens.as_slice());
            blocks = hit.blocks().to_vec();
            hit.into_lease()
        })?;
        Bound::new(py, PrefixMatch::new(lease, blocks, shared.origin.block_size))
    }

    /// peek(tokens, namespace=None): the number of tokens in the longest cached prefix.
    ///
    /// Changes nothing and leases nothing, so the prefix may be evicted at any moment. Takes the
    /// tokens and raises the errors of `match_prefix`.
    #[pyo3(signature = (tokens, namespace = None))]
    fn peek<'py>(&self, tokens: &Bound<'py, PyAny>, namespace: Option<PyRef<'py, Namespace>>) -> PyResult<usize> {
        let shared = self.shared()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let tokens = Tokens::of(tokens)?;
        catch(|| shared.session().peek(namespace, tokens.as_slice()))
    }

    /// acquire(tokens, room=0, namespace=None, *, timeout=None): matches the tokens, leases the
    /// cached prefix, and reserves blocks for the rest and for `room` more tokens; if there are too
    /// few blocks, takes nothing. Returns (PrefixMatch, Reservation).
    ///
    /// An engine that needs the logits of the last token passes the tokens before it, and one more
    /// token of room; then tokens may be empty. With a timeout in seconds, it waits in the queue if
    /// there are too few blocks, and lets other Python threads run; signals are handled only after
    /// the wait. Raises ReserveError (ExhaustedError, OverQuotaError, TimedOutError, TooLargeError,
    /// ExternalPoolError), and the errors of `match_prefix`.
    #[pyo3(signature = (tokens, room = 0, namespace = None, *, timeout = None))]
    fn acquire<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] room: usize,
        namespace: Option<PyRef<'py, Namespace>>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Acquired<'py>> {
        let shared = self.shared()?;
        let namespace = shared.namespace(namespace.as_ref())?;
        let deadline = timeout.as_ref().map(deadline).transpose()?;
        let tokens = Tokens::of_any_number(tokens, "tokens")?;
        check_acquired(tokens.as_slice(), room)?;
        let acquired = match deadline {
            None if !shared.detaches() => catch(|| shared.session().acquire(namespace, tokens.as_slice(), room))?,
            None => {
                let tokens = tokens.copied();
                let tokens = tokens.as_slice();
                py.detach(|| catch(|| shared.session().acquire(namespace, tokens, room)))?
            }
            Some(deadline) => {
                let tokens = tokens.copied();
                let tokens = tokens.as_slice();
                py.detach(|| catch(|| shared.session().acquire_until(namespace, tokens, room, deadline)))?
            }
        };
        shared.acquired(py, acquired.map_err(errors::reserve)?)
    }

    /// insert(lease, tokens, blocks): caches the whole blocks of the tokens beyond the lease, whose
    /// keys and values were computed into the reservation. Returns `Inserted`, which is a lease on
    /// the whole sequence.
    ///
    /// - tokens: the whole sequence, from its first token on, as in `match_prefix`; copied. The
    ///   tokens that the lease covers must be those that it was matched by; they are not compared.
    /// - blocks: a Reservation with one block for each whole block beyond the lease; the insert
    ///   takes it.
    ///
    /// If another insert has cached the same tokens meanwhile, its blocks stay, and
    /// `Inserted.blocks` contains them. Waits for the evictor only if the namespace has a limit on
    /// pinned blocks and did not pay for these blocks. Raises InsertError, SequenceError,
    /// ForeignHandleError, ReleasedError, and then nothing has changed, not even `blocks`.
    fn insert<'py>(
        &self,
        py: Python<'py>,
        lease: PyRef<'py, Lease>,
        tokens: &Bound<'py, PyAny>,
        blocks: PyRef<'py, Reservation>,
    ) -> PyResult<Bound<'py, Inserted>> {
        let shared = self.shared()?;
        let tokens = Tokens::stored(tokens)?;
        let (cache, tokens) = (&shared.cache, tokens.as_slice());
        let inserted = if shared.detaches() {
            let lease = lease.again_for(cache, tokens)?;
            let lent = blocks.lend(cache)?;
            py.detach(|| catch(|| shared.session().insert(&lease, tokens, lent)))?
        } else {
            let mut lent = Some(blocks.lend(cache)?);
            let inserted = lease.with_sequence(cache, tokens, |lease| {
                lent.take().map(|blocks| shared.session().insert(lease, tokens, blocks))
            });
            if let Some(unused) = lent {
                blocks.put_back(unused)?;
            }
            inserted?.expect("the blocks were lent")
        };
        match inserted {
            Ok(inserted) => Bound::new(py, Inserted::new(inserted, shared.origin)),
            Err(refused) => {
                blocks.put_back(refused.reservation)?;
                Err(errors::insert(refused.kind))
            }
        }
    }

    /// resume(lease, tokens): extends a lease by looking up only the tokens beyond it. Takes the
    /// lease, and returns a `PrefixMatch` on the whole prefix.
    ///
    /// - tokens: the whole sequence, as in `match_prefix`.
    ///
    /// Never waits. Raises SequenceError, ForeignHandleError, ReleasedError, and then the lease is
    /// unchanged.
    fn resume<'py>(
        &self,
        py: Python<'py>,
        lease: &Bound<'py, Lease>,
        tokens: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PrefixMatch>> {
        let shared = self.shared()?;
        let tokens = Tokens::of(tokens)?;
        let lease = lease.get().take(&shared.cache, tokens.as_slice())?;
        let hit = catch(|| shared.session().resume(lease, tokens.as_slice()))?;
        let blocks = hit.blocks().to_vec();
        Bound::new(py, PrefixMatch::new(hit.into_lease(), blocks, shared.origin.block_size))
    }

    /// match_partial(lease, tokens, min_tokens=1): among the cached blocks directly after the
    /// lease, leases the one that has the most first tokens in common with the sequence; None if no
    /// block has `min_tokens` of them. `tokens` is the whole sequence. Not counted as a use.
    ///
    /// Never waits. Raises SequenceError, ForeignHandleError, ReleasedError.
    #[pyo3(signature = (lease, tokens, min_tokens = 1))]
    fn match_partial(
        &self,
        lease: PyRef<'_, Lease>,
        tokens: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = number)] min_tokens: usize,
    ) -> PyResult<Option<PartialHit>> {
        let shared = self.shared()?;
        let tokens = Tokens::of(tokens)?;
        let tokens = tokens.as_slice();
        let partial = lease
            .with_sequence(&shared.cache, tokens, |lease| shared.session().match_partial(lease, tokens, min_tokens))?;
        Ok(partial.map(PartialHit::new))
    }

    /// upgrade(weak): returns a lease on the whole prefix of a weak lease; None if any of its
    /// blocks was evicted, invalidated or cleared. Not counted as a use. Never waits. Raises
    /// ForeignHandleError.
    fn upgrade(&self, weak: PyRef<'_, WeakLease>) -> PyResult<Option<Lease>> {
        let shared = self.shared()?;
        weak.upgrade(&shared.cache, shared.session())
    }
}

/// The longest wait. It keeps the deadline from overflowing.
const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(u32::MAX as u64);

/// Converts a timeout in seconds to a deadline.
pub(crate) fn deadline(timeout: &Bound<'_, PyAny>) -> PyResult<Instant> {
    let wait = crate::cache::duration(timeout, "timeout", false)?;
    Ok(Instant::now() + wait.min(LONGEST_WAIT))
}
