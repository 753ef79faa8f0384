//! Host tiers: they keep blocks that caches evict in host memory, and in remote tiers below it.
//!
//! | file | holds |
//! |---|---|
//! | `tier` | the class `HostTier` |
//! | `tiered` | the class `TieredCache`: a cache over a host tier, and its methods |
//! | `start` | the class `TieredStart`: the lease and the blocks of a new request |
//! | `device_array` | a mover for a device whose memory is a Python array |
//! | `mover` | movers that are Python code, and the class `BlockCopy` |
//! | `claim` | the record of memory that callers gave to host tiers |
//! | `exit` | stops mover calls before the interpreter ends |
//! | `errors` | errors as exceptions |
//!
//! A mover runs on a thread that evicts or starts a request, on the mover's own thread, or on the
//! cache's background thread. These threads acquire the GIL to call Python code. To avoid a
//! deadlock, each method that may wait for one of them releases the GIL.

mod claim;
mod device_array;
mod errors;
mod exit;
mod mover;
mod start;
mod tier;
mod tiered;

use pyo3::prelude::*;

pub(crate) use start::TieredStart;
pub(crate) use tiered::TieredCache;

/// Adds the classes to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<tier::HostTier>()?;
    module.add_class::<TieredCache>()?;
    module.add_class::<TieredStart>()?;
    module.add_class::<mover::BlockCopy>()?;
    exit::watch(module)
}
