//! Converts block ids and token slots to numpy arrays, or writes them to the caller's arrays.

use numpy::PyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use radixkv::{BlockId, write_slots};

use crate::memory::{ItemsMut, Region, new_array};

/// Makes a new array of block ids.
pub(crate) fn blocks<'py>(py: Python<'py>, blocks: &[BlockId]) -> PyResult<Bound<'py, PyArray1<i32>>> {
    new_array(py, blocks.len(), |ids| ids.iter_mut().zip(blocks).for_each(|(id, block)| *id = *block as i32))
}

/// Makes a new array of the slots of all tokens of the blocks.
pub(crate) fn slots<'py>(
    py: Python<'py>,
    blocks: &[BlockId],
    block_size: usize,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let len = blocks.len() * block_size;
    new_array(py, len, |slots| write_slots(blocks, block_size, 0..len, slots))
}

/// Writes block ids to the caller's array; returns their number.
pub(crate) fn blocks_into(out: &Bound<'_, PyAny>, blocks: &[BlockId]) -> PyResult<usize> {
    let mut region = output(out)?;
    match region.items_mut(blocks.len(), "out")? {
        ItemsMut::Narrow(ids) => ids.copy_from_slice(blocks),
        ItemsMut::Wide(ids) => ids.iter_mut().zip(blocks).for_each(|(id, block)| *id = i64::from(*block)),
    }
    Ok(blocks.len())
}

/// Writes the slots of all tokens of the blocks to the caller's array; returns their number.
pub(crate) fn slots_into(out: &Bound<'_, PyAny>, blocks: &[BlockId], block_size: usize) -> PyResult<usize> {
    let len = blocks.len() * block_size;
    let mut region = output(out)?;
    match region.items_mut(len, "out")? {
        ItemsMut::Wide(slots) => write_slots(blocks, block_size, 0..len, slots),
        ItemsMut::Narrow(_) => return Err(PyTypeError::new_err("out has 32-bit integers: slots are 64-bit integers")),
    }
    Ok(len)
}

fn output<'py>(out: &Bound<'py, PyAny>) -> PyResult<Region<'py>> {
    Region::of(out, "out")?.ok_or_else(|| {
        PyTypeError::new_err(
            "out is neither an array nor a buffer: pass a numpy array, or a view of your tensor as one",
        )
    })
}
