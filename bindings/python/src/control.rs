//! The methods of `PrefixCache` that influence how long a prefix stays cached: recency, priority,
//! retention.

use pyo3::prelude::*;
use radixkv::Priority;

use crate::cache::PrefixCache;
use crate::errors::{self, catch};
use crate::lease::Lease;
use crate::numbers::number;

#[pymethods]
impl PrefixCache {
    /// renew(lease): makes the prefix as recent as a match would, without counting a use.
    ///
    /// Never waits. This method and the other methods with a lease raise ForeignHandleError and
    /// ReleasedError.
    fn renew(&self, lease: PyRef<'_, Lease>) -> PyResult<()> {
        let shared = self.shared()?;
        lease.with(&shared.cache, |lease| shared.session().renew(lease))
    }

    /// count_use(lease): counts a use of the prefix, without making it more recent.
    fn count_use(&self, lease: PyRef<'_, Lease>) -> PyResult<()> {
        let shared = self.shared()?;
        lease.with(&shared.cache, |lease| shared.session().count_use(lease))
    }

    /// prioritize(lease, level, *, ttl=None): gives the prefix a priority. The policy "priority"
    /// evicts the lowest level first.
    ///
    /// - level: an int of 64 bits; 35 is the default of every prefix.
    /// - ttl: seconds (or units of a logical clock) for which the priority is valid; None means
    ///   forever.
    ///
    /// If the prefix has several priorities, the highest level that has not expired counts.
    #[pyo3(signature = (lease, level, *, ttl = None))]
    fn prioritize(
        &self,
        lease: PyRef<'_, Lease>,
        #[pyo3(from_py_with = number)] level: i64,
        ttl: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let shared = self.shared()?;
        let mut priority = Priority::new(level);
        if let Some(ttl) = ttl {
            priority = priority.expiring_after(shared.duration(&ttl, "ttl")?);
        }
        lease.with(&shared.cache, |lease| shared.session().prioritize(lease, priority))
    }

    /// retain(lease, duration): protects the prefix from eviction for `duration` seconds (or units
    /// of a logical clock), even if the lease ends. Its blocks count as protected until then.
    /// Raises RetainError, and then nothing has changed.
    fn retain(&self, lease: PyRef<'_, Lease>, duration: &Bound<'_, PyAny>) -> PyResult<()> {
        let shared = self.shared()?;
        let duration = shared.duration(duration, "duration")?;
        lease.with(&shared.cache, |lease| shared.session().retain(lease, duration))?.map_err(errors::retain)
    }

    /// release_retained(lease): ends the retention of exactly this prefix. Waits for the evictor,
    /// and lets other Python threads run.
    fn release_retained(&self, py: Python<'_>, lease: PyRef<'_, Lease>) -> PyResult<()> {
        let shared = self.shared()?;
        let lease = lease.again(&shared.cache)?;
        py.detach(|| catch(|| shared.session().release_retained(&lease)))
    }

    /// demote(lease): moves the prefix to the front of the eviction order, under every policy,
    /// until it is used again.
    fn demote(&self, lease: PyRef<'_, Lease>) -> PyResult<()> {
        let shared = self.shared()?;
        lease.with(&shared.cache, |lease| shared.session().demote(lease))
    }
}
