//! Converts the arguments of a store's methods: keys, and the memory of blocks.

#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use radixkv_region::DigestKey;

use super::batch::Span;
use super::errors;
use crate::memory::{ACCEPTED, Export, Items, Region, export};
use crate::sequences;

/// Reads keys of `key_bytes` bytes each, from a list or tuple of bytes objects, or from one bytes
/// object with all keys.
pub(super) fn keys(given: &Bound<'_, PyAny>, key_bytes: usize) -> PyResult<Vec<DigestKey>> {
    let key = |index: usize, digest: &[u8]| match DigestKey::new(digest) {
        Ok(key) if key.len() == key_bytes => Ok(key),
        _ => Err(errors::key_bytes(index, digest.len(), key_bytes)),
    };
    if let Ok(all) = given.cast::<PyBytes>() {
        return all.as_bytes().chunks(key_bytes).enumerate().map(|(index, digest)| key(index, digest)).collect();
    }
    let wrong = |what: &str, given: &Bound<'_, PyAny>| -> PyErr {
        let kind = given.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        PyTypeError::new_err(format!("{what} is {kind}: pass a list of bytes objects, or one bytes object of all keys"))
    };
    if !given.is_instance_of::<PyList>() && !given.is_instance_of::<PyTuple>() {
        return Err(wrong("keys", given));
    }
    let mut keys = Vec::new();
    sequences::each(given, "keys", |index, item| {
        let digest = item.cast::<PyBytes>().map_err(|_| wrong(&format!("keys[{index}]"), item))?;
        keys.push(key(index, digest.as_bytes())?);
        Ok(())
    })?;
    Ok(keys)
}

/// The object that keeps the memory of a batch in place.
pub(super) enum Owner {
    Nothing,
    Buffer(Py<Export>),
    Object(Py<PyAny>),
}

impl Owner {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Buffer(export) => visit.call(export),
            Self::Object(object) => visit.call(object),
        }
    }
}

/// The memory of the blocks of a batch, and the object that keeps it in place.
pub(super) struct Memory {
    pub(super) spans: Vec<Span>,
    pub(super) owner: Owner,
}

/// Blocks of `bytes` bytes each in a buffer, at offsets or one after another. A load requires a
/// writable buffer and blocks that do not overlap.
pub(super) fn in_buffer(
    buffer: &Bound<'_, PyAny>,
    offsets: Option<&Bound<'_, PyAny>>,
    blocks: usize,
    bytes: usize,
    is_load: bool,
) -> PyResult<Memory> {
    let py = buffer.py();
    let buffer = export(buffer, "buffer")?;
    if !buffer.is_c_contiguous() {
        let message = format!(
            "the buffer has shape {:?} and strides {:?}: it must be C-contiguous",
            buffer.shape(),
            buffer.strides()
        );
        return Err(PyValueError::new_err(message));
    }
    if is_load && buffer.readonly() {
        let message = "the buffer is read-only: load blocks into a writable buffer";
        return Err(errors::batch("read_only", message, vec![]));
    }
    let offsets = match offsets {
        Some(offsets) => integers(offsets, "offsets")?,
        None => (0..blocks as u64).map(|index| index.saturating_mul(bytes as u64)).collect(),
    };
    check_count(blocks, offsets.len())?;
    let room = buffer.len_bytes();
    let ends_within = |offset: u64| offset.checked_add(bytes as u64).is_some_and(|end| end <= room as u64);
    if let Some(index) = offsets.iter().position(|offset| !ends_within(*offset)) {
        let got = (room as u64).saturating_sub(offsets[index]);
        let message = format!(
            "block {index} begins at byte {} of a buffer of {room} bytes: {got} bytes are left, a block has {bytes}",
            offsets[index]
        );
        let carried = vec![("index", index.into()), ("got", got.into()), ("expected", bytes.into())];
        return Err(errors::batch("out_of_buffer", message, carried));
    }
    if is_load {
        check_overlap(&offsets, bytes)?;
    }
    let start = buffer.buf_ptr().cast::<u8>();
    // SAFETY: within the buffer, which `Memory::owner` exports until the batch is done; the class's
    // documentation asks the caller not to touch it until then.
    let span = |offset: &u64| unsafe { Span::new(start.wrapping_add(*offset as usize), bytes) };
    Ok(Memory { spans: offsets.iter().map(span).collect(), owner: Owner::Buffer(Export::of(py, buffer)?) })
}

/// Blocks of `bytes` bytes at absolute addresses; the caller guarantees that they are valid.
pub(super) fn at_addresses(
    addresses: &Bound<'_, PyAny>,
    owner: Option<Bound<'_, PyAny>>,
    blocks: usize,
    bytes: usize,
) -> PyResult<Memory> {
    let addresses = integers(addresses, "addresses")?;
    check_count(blocks, addresses.len())?;
    if let Some(index) = addresses.iter().position(|address| *address == 0) {
        return Err(PyValueError::new_err(format!("addresses[{index}] is 0: a null address")));
    }
    // SAFETY: as the method's documentation demands, the caller guarantees that the memory is
    // valid, and that nothing else uses it until the batch is done.
    let span = |address: u64| unsafe { Span::new(with_exposed_provenance_mut(address as usize), bytes) };
    let owner = owner.map_or(Owner::Nothing, |owner| Owner::Object(owner.unbind()));
    Ok(Memory { spans: addresses.into_iter().map(span).collect(), owner })
}

fn check_count(keys: usize, blocks: usize) -> PyResult<()> {
    if keys == blocks {
        return Ok(());
    }
    let message = format!("{blocks} offsets or addresses given for {keys} keys");
    Err(errors::batch("counts", message, vec![("keys", keys.into()), ("blocks", blocks.into())]))
}

fn check_overlap(offsets: &[u64], bytes: usize) -> PyResult<()> {
    let mut order: Vec<_> = (0..offsets.len()).collect();
    order.sort_unstable_by_key(|index| offsets[*index]);
    let overlaps = |pair: &&[usize]| offsets[pair[1]] - offsets[pair[0]] < bytes as u64;
    let Some(pair) = order.windows(2).find(overlaps) else { return Ok(()) };
    let message = format!(
        "blocks {} and {} overlap: they begin at bytes {} and {}, and have {bytes} bytes each",
        pair[0], pair[1], offsets[pair[0]], offsets[pair[1]]
    );
    Err(errors::batch("overlap", message, vec![("index", pair[1].into()), ("expected", bytes.into())]))
}

/// Reads the integers of an array, a buffer or a sequence.
fn integers(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u64>> {
    let Some(region) = Region::of(given, name)? else {
        if !sequences::is_sequence(given)? {
            let kind = given.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is {kind}: {ACCEPTED}, and sequences of integers")));
        }
        let mut integers = Vec::new();
        sequences::integers(given, name, &mut integers)?;
        return Ok(integers);
    };
    let signed = |at: usize, item: i64| {
        let negative = |_| PyValueError::new_err(format!("{name}[{at}] is {item}: must not be negative"));
        u64::try_from(item).map_err(negative)
    };
    match region.items() {
        Items::I32(items) => items.iter().enumerate().map(|(at, item)| signed(at, i64::from(*item))).collect(),
        Items::I64(items) => items.iter().enumerate().map(|(at, item)| signed(at, *item)).collect(),
        Items::U32(items) => Ok(items.iter().map(|item| u64::from(*item)).collect()),
        Items::U64(items) => Ok(items.to_vec()),
    }
}
