//! Converts errors of host tiers and tiered caches to the package's exceptions.

use pyo3::PyErr;
use radixkv_host::{HostBuildError, TieredBuildError};

use crate::errors::{Carried, exception};

/// Makes a `TierError`: nothing was built, and nothing was changed.
pub(super) fn tier(kind: &'static str, message: impl ToString, carried: Vec<(&str, Carried)>) -> PyErr {
    let mut all = vec![("kind", kind.into())];
    all.extend(carried);
    exception("TierError", message, &all)
}

pub(super) fn host(error: HostBuildError) -> PyErr {
    let message = error.to_string();
    match error {
        HostBuildError::ZeroBlockSize => tier("zero_block_size", message, vec![]),
        HostBuildError::ZeroCapacity => tier("zero_capacity", message, vec![]),
        HostBuildError::TooManyBlocks { blocks } => tier("too_many_blocks", message, vec![("blocks", blocks.into())]),
        HostBuildError::TooLittleMemory { needed, given, .. } => {
            tier("too_little_memory", message, vec![("needed", needed.into()), ("given", given.into())])
        }
        HostBuildError::NoMemory { bytes } => tier("no_memory", message, vec![("bytes", bytes.into())]),
        HostBuildError::RemoteLayout { field, .. } => tier("remote_layout", message, vec![("field", field.into())]),
        HostBuildError::NothingInFlight => tier("nothing_in_flight", message, vec![]),
        HostBuildError::NoThread { .. } => tier("no_thread", message, vec![]),
        _ => tier("other", message, vec![]),
    }
}

pub(super) fn tiered(error: TieredBuildError) -> PyErr {
    let sizes = |device: usize, host: usize| vec![("device", device.into()), ("host", host.into())];
    match error {
        TieredBuildError::BlockSizes { device, host } => tier("block_sizes", error, sizes(device, host)),
        TieredBuildError::ExclusiveInPieces { device, host } => tier("exclusive_in_pieces", error, sizes(device, host)),
        TieredBuildError::UnevenBytes { bytes, parts } => {
            tier("uneven_bytes", error, vec![("bytes", bytes.into()), ("parts", parts.into())])
        }
        TieredBuildError::ExclusiveThrough => tier("exclusive_through", error, vec![]),
        TieredBuildError::NothingInFlight => tier("nothing_in_flight", error, vec![]),
        TieredBuildError::NoThread { .. } => tier("no_thread", error, vec![]),
        TieredBuildError::External => tier("external", error, vec![]),
        TieredBuildError::HasSink => tier("has_sink", error, vec![]),
        _ => tier("other", error, vec![]),
    }
}
