//! Converts listings of runs and evicted blocks to the named tuples of `_records.py`.

use numpy::PyArray1;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyList;
use radixkv::{BlockId, CachedRun, Evicted};

use crate::blocks::blocks;
use crate::cache::Origin;
use crate::events::reason_name;
use crate::lease::parts;
use crate::memory::new_array;
use crate::reservation::Reservation;

/// Makes a named tuple of a class of `_records.py`.
pub(crate) fn record<'py>(py: Python<'py>, class: &str, fields: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import("radixkv._records")?.getattr(class)?.call1(fields)
}

/// Makes a new array of tokens.
pub(crate) fn tokens<'py>(py: Python<'py>, tokens: &[u32]) -> PyResult<Bound<'py, PyArray1<u32>>> {
    new_array(py, tokens.len(), |copied| copied.copy_from_slice(tokens))
}

/// A cached run, copied while the cache was walked.
pub(crate) struct Run {
    id: usize,
    parent: Option<usize>,
    start: usize,
    tokens: Vec<u32>,
    blocks: Vec<BlockId>,
    leases: u64,
    last_used: u64,
    uses: u64,
}

impl Run {
    pub(crate) fn of(run: CachedRun<'_>) -> Self {
        let CachedRun { id, parent, start, tokens, blocks, leases, last_used, uses, .. } = run;
        Self { id, parent, start, tokens: tokens.to_vec(), blocks: blocks.to_vec(), leases, last_used, uses }
    }
}

pub(crate) fn runs(py: Python<'_>, runs: Vec<Run>) -> PyResult<Bound<'_, PyList>> {
    let listed = PyList::empty(py);
    for run in runs {
        let (ids, stored) = (blocks(py, &run.blocks)?, tokens(py, &run.tokens)?);
        let fields = (run.id, run.parent, run.start, stored, ids, run.leases, run.last_used, run.uses);
        listed.append(record(py, "CachedRun", fields)?)?;
    }
    Ok(listed)
}

pub(crate) fn evicted(py: Python<'_>, evicted: Vec<Evicted>, origin: Origin) -> PyResult<Bound<'_, PyList>> {
    let listed = PyList::empty(py);
    for entry in evicted {
        let Evicted { namespace, start, tokens: stored, blocks, reason, .. } = entry;
        let blocks = Bound::new(py, Reservation::new(blocks, origin))?;
        let fields = (parts(py, &namespace)?, start, tokens(py, &stored)?, blocks, reason_name(reason));
        listed.append(record(py, "Evicted", fields)?)?;
    }
    Ok(listed)
}
