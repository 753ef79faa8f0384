//! Converts statistics to Python dicts.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use radixkv::{LookupStats, NamespaceLookups, NamespaceStats, Quota, Stats};

use crate::lease::parts;

/// Makes a dict of the given fields, with the field names as keys.
macro_rules! dict {
    ($py:expr, $stats:expr, $($field:ident)*) => {{
        let dict = pyo3::types::PyDict::new($py);
        $(dict.set_item(stringify!($field), $stats.$field)?;)*
        dict
    }};
}
pub(crate) use dict;

pub(crate) fn cache<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, stats, capacity_blocks free_blocks reserved_blocks evictable_blocks protected_blocks inserted_blocks
        evicted_blocks evicted_for_quota_blocks aged_blocks cleared_blocks invalidated_blocks waiting_requests index_bytes
        garbage_bytes slab_bytes runs is_settled points lookups query_tokens hit_tokens resumed_tokens
        missed_evicted_tokens missed_diverged_tokens missed_elsewhere_tokens missed_new_tokens partial_tokens inserts
        duplicate_blocks reservations taken_blocks exhausted_refusals over_quota_refusals waits waited_nanos retentions
        retained_blocks deflations))
}

fn lookups<'py>(py: Python<'py>, lookups: &LookupStats) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, lookups, lookups query_tokens hit_tokens resumed_tokens missed_evicted_tokens missed_diverged_tokens
        missed_elsewhere_tokens missed_new_tokens))
}

pub(crate) fn quota(py: Python<'_>, quota: Quota, is_logical: bool) -> PyResult<Bound<'_, PyDict>> {
    let limits = dict!(py, quota, cached_blocks pinned_blocks);
    match quota.time_to_idle {
        Some(idle) if is_logical => limits.set_item("time_to_idle", idle.as_nanos())?,
        idle => limits.set_item("time_to_idle", idle.map(|idle| idle.as_secs_f64()))?,
    }
    Ok(limits)
}

pub(crate) fn namespace<'py>(
    py: Python<'py>,
    stats: &NamespaceStats,
    is_logical: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let counted = dict!(py, stats, cached_blocks protected_blocks reserved_blocks);
    counted.set_item("quota", quota(py, stats.quota, is_logical)?)?;
    counted.set_item("lookups", stats.lookups.as_ref().map(|counts| lookups(py, counts)).transpose()?)?;
    Ok(counted)
}

pub(crate) fn lookups_by_namespace<'py>(py: Python<'py>, all: &[NamespaceLookups]) -> PyResult<Bound<'py, PyList>> {
    let listed = PyList::empty(py);
    for NamespaceLookups { namespace, lookups: counts, .. } in all {
        let name = namespace.as_ref().map(|name| parts(py, name)).transpose()?;
        listed.append((name, lookups(py, counts)?))?;
    }
    Ok(listed)
}
