//! Tensors of other frameworks, described by DLPack. Shapes and strides are checked once, when a
//! tensor is passed in.
//!
//! The structs match `dlpack.h`, version 0.8 and later, which PyTorch, JAX, CuPy and TensorRT use.
//!
use std::ffi::c_void;
use std::fmt;

use super::device::Device;
use super::error::GpuError;
use radixkv_attention::Dtype;

/// A tensor in memory of a device: `DLTensor`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DlTensor {
    /// The beginning of its memory.
    pub data: *mut c_void,
    /// The device.
    pub device: DlDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DlDataType,
    /// Elements along each dimension.
    pub shape: *const i64,
    /// Elements from one index of a dimension to the next; null if the tensor has no gaps.
    pub strides: *const i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A device: `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DlDevice {
    /// 2 is CUDA, 13 is CUDA's managed memory.
    pub device_type: i32,
    /// The driver's number of the device.
    pub device_id: i32,
}

/// A type of elements: `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DlDataType {
    /// 0 is a signed integer, 1 an unsigned one, 2 a float, 4 a `bf16`, 10 an `e4m3fn`.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// 1, if elements are not vectors.
    pub lanes: u16,
}

/// The field of a tensor that does not have the required value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorField {
    /// The type of its device: 2 or 13.
    DeviceType,
    /// The number of its device.
    DeviceId,
    /// The code of its element type.
    TypeCode,
    /// Bits of an element.
    TypeBits,
    /// Numbers in an element.
    TypeLanes,
    /// Number of dimensions.
    Dimensions,
    /// Elements along a dimension.
    Size(usize),
    /// Elements from one index of a dimension to the next.
    Stride(usize),
}

impl fmt::Display for TensorField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceType => f.write_str("device type"),
            Self::DeviceId => f.write_str("device number"),
            Self::TypeCode => f.write_str("type code"),
            Self::TypeBits => f.write_str("bits of an element"),
            Self::TypeLanes => f.write_str("lanes"),
            Self::Dimensions => f.write_str("number of dimensions"),
            Self::Size(axis) => write!(f, "size of dimension {axis}"),
            Self::Stride(axis) => write!(f, "stride of dimension {axis}"),
        }
    }
}

pub(super) fn check(field: TensorField, given: i64, needed: i64) -> Result<(), GpuError> {
    if given == needed { Ok(()) } else { Err(GpuError::Tensor { field, given, needed }) }
}

/// The code of an element type, and its bits.
fn code(dtype: Dtype) -> (u8, u8) {
    match dtype {
        Dtype::F16 => (2, 16),
        Dtype::Bf16 => (4, 16),
        Dtype::I8 | Dtype::I8Static => (0, 8),
        Dtype::E4m3 | Dtype::E4m3Static => (10, 8),
        _ => (2, 32),
    }
}

impl DlTensor {
    /// Returns the address of the first element and the stride of the first dimension, if the
    /// tensor is on `device` and has this type and shape without gaps. With `gaps`, the first
    /// dimension may have a larger stride.
    pub(super) fn address(
        &self,
        (sizes, strides): (&[i64], Option<&[i64]>),
        device: &Device,
        dtype: Dtype,
        shape: &[usize],
        gaps: bool,
    ) -> Result<(u64, usize), GpuError> {
        const CUDA: i32 = 2;
        const CUDA_MANAGED: i32 = 13;
        if self.device.device_type != CUDA_MANAGED {
            check(TensorField::DeviceType, self.device.device_type.into(), CUDA.into())?;
        }
        let ordinal = device.stream().context().ordinal() as i64;
        check(TensorField::DeviceId, self.device.device_id.into(), ordinal)?;
        let (code, bits) = code(dtype);
        check(TensorField::TypeCode, self.dtype.code.into(), code.into())?;
        check(TensorField::TypeBits, self.dtype.bits.into(), bits.into())?;
        check(TensorField::TypeLanes, self.dtype.lanes.into(), 1)?;
        check(TensorField::Dimensions, sizes.len() as i64, shape.len() as i64)?;
        let mut needed = 1_i64;
        for (axis, size) in shape.iter().enumerate().rev() {
            let (given, stride) = (sizes[axis], strides.map_or(needed, |strides| strides[axis]));
            check(TensorField::Size(axis), given, *size as i64)?;
            let is_larger = gaps && axis == 0 && stride > needed;
            // A dimension of size 1 has no next index, so its stride does not matter.
            if *size > 1 && !is_larger {
                check(TensorField::Stride(axis), stride, needed)?;
            }
            if axis == 0 {
                let address = (self.data as u64).wrapping_add(self.byte_offset);
                let aligned =
                    if address.is_multiple_of(16) { Ok(address) } else { Err(GpuError::Unaligned { address }) };
                let stride = if is_larger && *size > 1 { stride } else { needed };
                return aligned.map(|address| (address, stride as usize));
            }
            needed = needed.saturating_mul(*size as i64);
        }
        check(TensorField::Dimensions, 0, 1).map(|()| (0, 0))
    }
}

/// Returns `dtype` if the elements of a view have its size.
pub(super) fn of_view<T>(dtype: Dtype) -> Result<Dtype, GpuError> {
    check(TensorField::TypeBits, 8 * dtype.bytes() as i64, 8 * size_of::<T>() as i64).map(|()| dtype)
}
