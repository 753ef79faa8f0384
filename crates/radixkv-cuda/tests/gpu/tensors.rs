//! Tensors of other frameworks: what does not fit is refused with both values, what fits is used.

use std::ffi::c_void;

use radixkv_attention::{Backend, Dtype, Layout, Output};
use radixkv_cuda::{Attention, DlDataType, DlDevice, DlTensor, GpuError, Kv, TensorField, View, ViewMut};

use super::bed::{Bed, LAYOUT, NAN, Sequence, Shape};
use super::driver::driver;
use super::engine::Engine;

const BF16: DlDataType = DlDataType { code: 4, bits: 16, lanes: 1 };

/// A tensor of arrays that outlive it.
fn tensor(address: u64, shape: &[i64], strides: Option<&[i64]>) -> DlTensor {
    DlTensor {
        data: address as *mut c_void,
        device: DlDevice { device_type: 2, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: BF16,
        shape: shape.as_ptr(),
        strides: strides.map_or(std::ptr::null(), <[i64]>::as_ptr),
        byte_offset: 0,
    }
}

#[test]
fn what_does_not_fit_is_named_with_both_values() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (shape, strides) = ([3, 4, 64], [256, 64, 1]);
    let good = tensor(0x1000, &shape, Some(&strides));
    // SAFETY: nothing is queued with the views.
    let view = |tensor| unsafe { View::<u16>::from_dlpack(&device, &tensor, Dtype::Bf16, &[3, 4, 64]) }.map(drop);
    assert_eq!((view(good), view(DlTensor { strides: std::ptr::null(), ..good })), (Ok(()), Ok(())));
    assert_eq!(view(DlTensor { byte_offset: 16, ..good }), Ok(()));
    assert_eq!(view(DlTensor { byte_offset: 8, ..good }), Err(GpuError::Unaligned { address: 0x1008 }));
    let refused =
        |tensor, field, given, needed| assert_eq!(view(tensor), Err(GpuError::Tensor { field, given, needed }));
    let on = |device_type, device_id| DlTensor { device: DlDevice { device_type, device_id }, ..good };
    refused(on(1, 0), TensorField::DeviceType, 1, 2);
    refused(on(2, 3), TensorField::DeviceId, 3, 0);
    refused(DlTensor { dtype: DlDataType { code: 2, ..BF16 }, ..good }, TensorField::TypeCode, 2, 4);
    refused(DlTensor { dtype: DlDataType { bits: 32, ..BF16 }, ..good }, TensorField::TypeBits, 32, 16);
    refused(DlTensor { dtype: DlDataType { lanes: 2, ..BF16 }, ..good }, TensorField::TypeLanes, 2, 1);
    refused(DlTensor { ndim: 2, ..good }, TensorField::Dimensions, 2, 3);
    let (other, apart) = ([3, 5, 64], [512, 64, 1]);
    refused(DlTensor { shape: other.as_ptr(), ..good }, TensorField::Size(1), 5, 4);
    refused(DlTensor { strides: apart.as_ptr(), ..good }, TensorField::Stride(0), 512, 256);
    let error = GpuError::Tensor { field: TensorField::Stride(0), given: 512, needed: 256 };
    assert_eq!(error.to_string(), "the tensor's stride of dimension 0 is 512, but 256 is needed");
    // SAFETY: as above.
    let narrow = unsafe { View::<f32>::from_dlpack(&device, &good, Dtype::Bf16, &[3, 4, 64]) }.map(drop);
    assert_eq!(narrow, Err(GpuError::Tensor { field: TensorField::TypeBits, given: 16, needed: 32 }));
}

/// A dimension of one element has no next one, so its stride says nothing, whatever it is.
#[test]
fn the_stride_of_a_single_block_does_not_matter() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let layout = Layout { layers: 1, blocks: 1, ..LAYOUT };
    let sizes = [1, 16, 2, 64];
    for [of_keys, of_values] in [[2048, 2048], [7777, 2048], [4096, 1], [i64::MAX, -3]] {
        let of = |stride: i64| [stride, 128, 64, 1];
        let (key_strides, value_strides) = (of(of_keys), of(of_values));
        let tensors = [&key_strides, &value_strides].map(|strides| tensor(0x1000, &sizes, Some(strides)));
        // SAFETY: nothing is queued with the storage.
        let kv = unsafe { Kv::from_dlpack(&device, layout, &tensors[..1], &tensors[1..]) };
        assert!(kv.is_ok(), "strides {of_keys} and {of_values}: {:?}", kv.err());
    }
}

/// A pool whose values lie between the keys of its blocks, and rows, all of them tensors of an
/// engine.
#[test]
fn a_step_over_tensors_is_as_defined() {
    let Some(_driver) = driver() else { return };
    let engine = Engine::new();
    let address = |elements: &[u16]| {
        let address = engine.allocate(size_of_val(elements));
        engine.write(address, elements);
        address
    };
    let shape = Shape { layers: 1, layer: 0, ..Shape::SMALL };
    let bed = Bed::new(3, shape, &[Sequence::one(40), Sequence::one(5)], true);
    let (block, blocks) = (bed.layout.block_elements(), bed.layout.blocks);
    let mut interleaved = vec![0_u16; 2 * blocks * block];
    for at in 0..blocks {
        let (keys, values) = (at * block, (blocks + at) * block);
        interleaved[2 * at * block..][..block].copy_from_slice(&bed.storage[keys..][..block]);
        interleaved[(2 * at + 1) * block..][..block].copy_from_slice(&bed.storage[values..][..block]);
    }
    let memory =
        [&interleaved, &bed.queries, &bed.keys, &bed.values, &vec![NAN; bed.queries.len()]].map(|e| address(e));
    let [pool, queries, keys, values, out] = memory;
    {
        let device = engine.device();
        let sizes = [blocks as i64, 16, 2, 64];
        let strides = [2 * block as i64, 128, 64, 1];
        let of_pool = [pool, pool + 2 * block as u64].map(|at| tensor(at, &sizes, Some(&strides)));
        // SAFETY: the pool outlives the storage.
        let kv = unsafe { Kv::from_dlpack(&device, bed.layout, &of_pool[..1], &of_pool[1..]) }.expect("a storage");
        let apart = [2 * block as i64, 128, 32, 1];
        let wrong = tensor(pool, &sizes, Some(&apart));
        // SAFETY: it is refused.
        let refused = unsafe { Kv::from_dlpack(&device, bed.layout, &[wrong], &of_pool[1..]) };
        let field = TensorField::Stride(2);
        assert_eq!(refused.map(drop), Err(GpuError::Tensor { field, given: 32, needed: 64 }));

        let attention = Attention::new(&device);
        let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let row = |at: u64, heads: usize| {
            let sizes = [2, heads as i64, 64];
            let tensor = tensor(at, &sizes, None);
            // SAFETY: the engine's buffers stay until the outputs are read.
            unsafe { View::<u16>::from_dlpack(&device, &tensor, Dtype::Bf16, &[2, heads, 64]) }.expect("a view")
        };
        attention.append(&kv, 0, &batch, row(keys, 2), row(values, 2)).expect("appended");
        let sizes = [2, 8, 64];
        // SAFETY: as above.
        let rows =
            unsafe { ViewMut::<u16>::from_dlpack(&device, &tensor(out, &sizes, None), Dtype::Bf16, &[2, 8, 64]) };
        let into = Output { rows: rows.expect("a view"), lse: None };
        attention.decode(&kv, 0, &batch, row(queries, 8), into).expect("decoded");
    }
    let mut outputs = vec![0; bed.queries.len()];
    engine.read(out, &mut outputs);
    bed.check("tensors", &outputs, None);
    engine.leave(&memory);
}
