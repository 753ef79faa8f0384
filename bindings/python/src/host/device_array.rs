//! A mover for a device whose memory is a Python array. It copies without the GIL.

use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use radixkv::BlockId;
use radixkv_host::{MoveError, Mover, ToDevice, ToHost};

use crate::memory::Bytes;

/// The memory of a device's blocks, one after another.
pub(super) struct DeviceArray {
    bytes: Bytes,
    block_size: usize,
    block_bytes: usize,
}

impl DeviceArray {
    /// Uses a buffer as blocks of `block_bytes` bytes; it must hold at least `blocks` of them. If
    /// it has more than one dimension, the first dimension must count blocks.
    pub(super) fn new(bytes: Bytes, block_size: usize, block_bytes: usize, blocks: usize) -> PyResult<Self> {
        let shape = bytes.shape();
        let refused = |why: String| Err(PyValueError::new_err(format!("mover has shape {shape:?}: {why}")));
        if block_bytes == 0 {
            return refused("the host tier stores no bytes: give it block_bytes, or pass mover=None".to_owned());
        }
        if let [rows, _, ..] = *shape {
            let row = bytes.len().checked_div(rows).unwrap_or(0);
            if row != block_bytes {
                return refused(format!("its first dimension counts blocks of {row} bytes, {block_bytes} are needed"));
            }
        }
        let given = bytes.len() / block_bytes;
        if given < blocks {
            return refused(format!("it has {given} blocks of {block_bytes} bytes, the cache has {blocks} blocks"));
        }
        Ok(Self { bytes, block_size, block_bytes })
    }

    /// The offset of a block's tokens in bytes; an error if their size is not `wanted`, their size
    /// in the host.
    fn part(&self, block: BlockId, tokens: &Range<usize>, wanted: usize) -> Result<usize, MoveError> {
        let per = |token: usize| self.block_bytes * token / self.block_size;
        let len = per(tokens.end) - per(tokens.start);
        if len == wanted {
            return Ok(block as usize * self.block_bytes + per(tokens.start));
        }
        Err(MoveError::new(format!("tokens {tokens:?} of a device block have {len} bytes, host tokens have {wanted}")))
    }
}

fn moved(block: BlockId, is_moved: bool) -> Result<(), MoveError> {
    if is_moved { Ok(()) } else { Err(MoveError::new(format!("block {block} is beyond the end of the array"))) }
}

impl Mover for DeviceArray {
    fn offload(&self, copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        copies.iter_mut().try_for_each(|copy| {
            let at = self.part(copy.block, &copy.tokens, copy.bytes.len())?;
            moved(copy.block, self.bytes.read(at, copy.bytes))
        })
    }

    fn onboard(&self, copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        copies.iter().try_for_each(|copy| {
            let at = self.part(copy.block, &copy.tokens, copy.bytes.len())?;
            moved(copy.block, self.bytes.write(at, copy.bytes))
        })
    }
}
