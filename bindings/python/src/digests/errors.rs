//! Converts errors of regions, stores and batches to the package's exceptions, with the expected
//! and the actual values as attributes.

use std::io;

use pyo3::PyErr;
use radixkv_region::{BatchError, LayoutError, NamespaceError, OpenError};

use super::batches::Refused;
use crate::errors::{Carried, exception, released};

/// Makes a `RegionError`: nothing was opened, and nothing was changed.
pub(crate) fn region(kind: &'static str, message: impl ToString, carried: Vec<(&str, Carried)>) -> PyErr {
    let mut all = vec![("kind", kind.into())];
    all.extend(carried);
    exception("RegionError", message, &all)
}

fn mismatch(error: &dyn ToString, field: &'static str, stored: String, asked: String) -> PyErr {
    // The region's errors quote these texts.
    let [stored, asked] = [stored, asked].map(|text| text.trim_matches('"').to_owned());
    let carried = vec![("field", field.into()), ("stored", stored.into()), ("asked", asked.into())];
    region("mismatch", error.to_string(), carried)
}

pub(crate) fn open(place: &str, error: OpenError) -> PyErr {
    let message = format!("{place}: {error}");
    match error {
        OpenError::Layout(error) => layout(error),
        OpenError::NotARegion { .. } => region("not_a_region", message, vec![]),
        OpenError::UnknownVersion { found, known } => {
            region("version", message, vec![("stored", found.into()), ("asked", known.into())])
        }
        OpenError::Mismatch { field, region, expected } => mismatch(&message, field, region, expected),
        OpenError::TooShort { expected, got } => {
            region("too_small", message, vec![("got", got.into()), ("needed", expected.into())])
        }
        OpenError::Damaged { .. } => region("damaged", message, vec![]),
        OpenError::TooManyProcesses { slots } => region("too_many_processes", message, vec![("most", slots.into())]),
        _ => region("io", message, vec![]),
    }
}

pub(super) fn layout(error: LayoutError) -> PyErr {
    region("layout", error, vec![])
}

pub(super) fn layout_of_tier(error: radixkv_tiers::LayoutError) -> PyErr {
    region("layout", error, vec![])
}

pub(super) fn io(place: &str, error: &io::Error) -> PyErr {
    region("io", format!("{place}: {error}"), vec![])
}

pub(super) fn namespace(error: NamespaceError) -> PyErr {
    let message = error.to_string();
    match error {
        NamespaceError::TextTooLong { field, len } => {
            region("text_too_long", message, vec![("field", field.into()), ("got", len.into())])
        }
        NamespaceError::KeyBytes { got } => {
            let carried = vec![("got", got.into()), ("least", 16_usize.into()), ("most", 36_usize.into())];
            region("key_bytes", message, carried)
        }
        NamespaceError::BlockBytes { got, max } => {
            region("block_bytes", message, vec![("got", got.into()), ("most", max.into())])
        }
        NamespaceError::Mismatch { field, region, expected } => mismatch(&message, field, region, expected),
        NamespaceError::TooMany { max } => region("too_many_namespaces", message, vec![("most", max.into())]),
        _ => region("namespace", message, vec![]),
    }
}

pub(crate) fn tier(error: radixkv_tiers::OpenError) -> PyErr {
    use radixkv_tiers::OpenError;
    let message = error.to_string();
    match error {
        OpenError::OtherLayout { field, stored, asked, .. } => mismatch(&message, field, stored, asked),
        OpenError::UnknownVersion { version, known, .. } => {
            region("version", message, vec![("stored", version.into()), ("asked", known.into())])
        }
        OpenError::NotAStore { .. } => region("not_a_store", message, vec![]),
        OpenError::CapacityBelowBlock { capacity, block } => {
            region("too_small", message, vec![("got", capacity.into()), ("needed", block.into())])
        }
        OpenError::InUse { .. } => region("in_use", message, vec![]),
        OpenError::Region { place, source } => open(&place, source),
        _ => region("io", message, vec![]),
    }
}

/// Makes a `BatchError`: nothing of the batch was done.
pub(super) fn batch(kind: &'static str, message: impl ToString, carried: Vec<(&str, Carried)>) -> PyErr {
    let mut all = vec![("kind", kind.into())];
    all.extend(carried);
    exception("BatchError", message, &all)
}

pub(super) fn key_bytes(index: usize, got: usize, expected: usize) -> PyErr {
    let message = format!("key {index} of the batch has {got} bytes, keys of the namespace have {expected}");
    batch("key_bytes", message, vec![("index", index.into()), ("got", got.into()), ("expected", expected.into())])
}

pub(super) fn of_region(error: BatchError) -> PyErr {
    match error {
        BatchError::KeyBytes { index, got, expected } => key_bytes(index, got, expected),
        BatchError::Encrypted => batch("encrypted", error, vec![]),
        BatchError::Forked { .. } => crate::errors::forked(),
        _ => batch("other", error, vec![]),
    }
}

pub(super) fn refused(refused: Refused) -> PyErr {
    match refused {
        Refused::Closed => released(),
        Refused::Full { asked, in_flight, most } => {
            let message = if asked > most {
                format!("{asked} blocks in one batch, at most {most} may be in flight: use smaller batches")
            } else {
                format!("{asked} blocks requested, {in_flight} of at most {most} are in flight: poll, then try again")
            };
            let carried = [("asked", asked.into()), ("in_flight", in_flight.into()), ("most", most.into())];
            exception("FullError", message, &carried)
        }
    }
}
