//! Working in a context, on a stream and over memory of an engine.

use std::ffi::c_void;

use libloading::Library;
use radixkv_attention::{Backend, Dtype, Layout, Order, Output, ShapeError};
use radixkv_cuda::{Attention, Device, GpuError, HostPool, Images, Kv, Planes, Swap, View, ViewMut};

use super::bed::{Bed, NAN, Sequence, Shape};
use super::driver::{Counted, KINDS, driver, stand_in_driver};

/// An engine's side of the driver: a context, a stream, memory.
pub struct Engine {
    library: Library,
    context: *mut c_void,
    stream: *mut c_void,
}

type Address = u64;

impl Engine {
    pub fn new() -> Self {
        // SAFETY: the driver is loaded; this is another handle of it.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("the driver");
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let engine = Self { library, context, stream };
        // SAFETY: types of cuda.h, here and below.
        engine.call(|init: unsafe extern "C" fn(u32) -> u32| unsafe { init(0) }, "cuInit");
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32| unsafe { create(&mut context, 0, 0) },
            "cuCtxCreate_v2",
        );
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32) -> u32| unsafe { create(&mut stream, 1) },
            "cuStreamCreate",
        );
        Self { context, stream, ..engine }
    }

    pub fn call<F>(&self, call: impl FnOnce(F) -> u32, name: &str)
    where
        F: Copy,
    {
        // SAFETY: each caller gives the type that cuda.h declares.
        let function = unsafe { self.library.get::<F>(name) }.expect("a function of the driver");
        assert_eq!(call(*function), 0, "{name}");
    }

    /// The stream, as a `CUstream`.
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }

    pub fn allocate(&self, bytes: usize) -> Address {
        let mut address = 0;
        self.call(
            // SAFETY: as above.
            |alloc: unsafe extern "C" fn(*mut Address, usize) -> u32| unsafe { alloc(&mut address, bytes) },
            "cuMemAlloc_v2",
        );
        address
    }

    pub fn write(&self, address: Address, elements: &[u16]) {
        type Copy = unsafe extern "C" fn(Address, *const c_void, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(address, elements.as_ptr().cast(), bytes, self.stream) };
        self.call(copy, "cuMemcpyHtoDAsync_v2");
    }

    pub fn read(&self, address: Address, elements: &mut [u16]) {
        type Copy = unsafe extern "C" fn(*mut c_void, Address, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(elements.as_mut_ptr().cast(), address, bytes, self.stream) };
        self.call(copy, "cuMemcpyDtoHAsync_v2");
        // SAFETY: as above.
        self.call(|wait: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { wait(self.stream) }, "cuStreamSynchronize");
    }

    pub fn leave(self, memory: &[Address]) {
        for address in memory {
            // SAFETY: as above.
            self.call(|free: unsafe extern "C" fn(Address) -> u32| unsafe { free(*address) }, "cuMemFree_v2");
        }
        // SAFETY: as above.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.stream) }, "cuStreamDestroy_v2");
        // SAFETY: as above. The context is still there: nothing else has destroyed it.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.context) }, "cuCtxDestroy_v2");
    }
}

#[test]
fn an_engine_brings_its_context_stream_and_buffers() {
    let Some(driver) = driver() else { return };
    let shape = Shape {
        dtype: Dtype::F16,
        head_dim: 64,
        kv_heads: 2,
        group: 4,
        block_size: 32,
        order: Order::Hnd,
        layers: 2,
        layer: 1,
    };
    for seed in 0..6 {
        driver.streams(seed);
        let bed = Bed::new(u64::from(seed) + 1, shape, &[Sequence { before: 200, rows: 1, shared: 0 }; 3], true);
        let engine = Engine::new();
        let address = |elements: &[u16]| {
            let address = engine.allocate(elements.len() * 2);
            engine.write(address, elements);
            address
        };
        let [queries, keys, values] = [&bed.queries, &bed.keys, &bed.values].map(|elements| address(elements));
        let out = address(&vec![NAN; bed.queries.len()]);
        {
            // SAFETY: the engine's context and stream end after the device.
            let device =
                unsafe { Device::from_raw(0, engine.context, engine.stream, Images::Prebuilt) }.expect("a device");
            let attention = Attention::new(&device);
            let mut kv = attention.allocate(bed.layout).expect("memory");
            kv.write(&bed.storage).expect("a copy");
            let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
            // SAFETY: the engine's buffers, filled on the same stream, which end after the device.
            let view = |address, len| unsafe { View::<u16>::from_raw(&device, address, len) };
            let (k, v) = (view(keys, bed.keys.len()), view(values, bed.values.len()));
            attention.append(&kv, 1, &batch, k, v).expect("appended");
            // SAFETY: as above.
            let rows = unsafe { ViewMut::<u16>::from_raw(&device, out, bed.queries.len()) };
            let queries = view(queries, bed.queries.len());
            attention.decode(&kv, 1, &batch, queries, Output { rows, lse: None }).expect("decoded");
        }
        // Read on the engine's stream, without a wait in between.
        let mut outputs = vec![0; bed.queries.len()];
        engine.read(out, &mut outputs);
        bed.check(&format!("decode, seed {seed}"), &outputs, None);
        engine.leave(&[queries, keys, values, out]);
        driver.assert_nothing_left("the engine left");
    }
}

/// The storage of one layer in the order of engines that keep a block's values after its keys.
fn interleaved(layout: &Layout, storage: &[u16], layer: usize) -> Vec<u16> {
    let half = layout.plane_elements();
    let (keys, values) = storage[2 * layer * half..][..2 * half].split_at(half);
    let blocks = keys.chunks(layout.block_elements()).zip(values.chunks(layout.block_elements()));
    blocks.flat_map(|(keys, values)| [keys, values]).flatten().copied().collect()
}

#[test]
fn an_engine_brings_its_storage() {
    let Some(driver) = driver() else { return };
    // Small blocks, which a kernel swaps, and large ones, which the copy engine does.
    for (seed, block_size, head_dim) in [(1, 16, 64), (2, 64, 128)] {
        driver.streams(seed);
        let (dtype, order) = (Dtype::Bf16, Order::Nhd);
        let shape = Shape { dtype, head_dim, kv_heads: 2, group: 4, block_size, order, layers: 2, layer: 1 };
        let sequences = [70, 3].map(|before| Sequence { before, rows: 1, shared: 0 });
        let bed = Bed::new(u64::from(seed), shape, &sequences, true);
        let layout = bed.layout;
        let engine = Engine::new();
        // SAFETY: the engine's context and stream end after the device.
        let device = unsafe { Device::from_raw(0, engine.context, engine.stream, Images::Prebuilt) }.expect("a device");
        let attention = Attention::new(&device);
        let layer = |layer| {
            let elements = interleaved(&layout, &bed.storage, layer);
            let address = engine.allocate(elements.len() * 2);
            engine.write(address, &elements);
            address
        };
        let keys: Vec<Address> = (0..layout.layers).map(layer).collect();
        let values: Vec<u64> = keys.iter().map(|keys| keys + 2 * layout.block_elements() as u64).collect();
        let planes = Planes { keys: &keys, values: &values, block_stride: 2 * layout.block_elements() };
        // SAFETY: the layers' memory stays until all is done, and is read after that alone.
        let mut kv = unsafe { Kv::from_raw(&device, layout, planes) }.expect("a storage");
        // A step; then a block is swapped out, copied, and swapped in as another block.
        let upload = |elements: &[u16]| device.upload(elements).expect("memory");
        let (queries, keys_in, values_in) = (upload(&bed.queries), upload(&bed.keys), upload(&bed.values));
        let mut out = upload(&vec![NAN; bed.queries.len()]);
        let batch = attention.prepare(&layout, &bed.batch()).expect("a batch");
        attention.append(&kv, 1, &batch, keys_in.view(), values_in.view()).expect("appended");
        let into = Output { rows: out.view_mut(), lse: None };
        attention.decode(&kv, 1, &batch, queries.view(), into).expect("decoded");
        bed.check("decode in an engine's storage", &out.to_vec().expect("outputs"), None);
        let host = HostPool::new(&device, &layout, 2).expect("memory");
        let swap = Swap::new(&device).expect("a stream");
        let (moved, copied, back) = (bed.blocks[0], 0, 1);
        swap.swap_out(&kv, &host, &[(moved, 1)]).expect("queued").wait().expect("done");
        let pairs: &[(u32, u32)] = if moved == copied { &[] } else { &[(moved, copied)] };
        attention.copy_blocks(&kv, pairs).expect("copied");
        let transfer = swap.swap_in(&kv, &host, &[(1, back)]).expect("queued");
        transfer.wait_on_device(&device).expect("ordered");
        let mut expected = bed.appended(1);
        for to in [copied, back] {
            for plane in expected.chunks_mut(layout.plane_elements()) {
                let block = plane[moved as usize * layout.block_elements()..][..layout.block_elements()].to_vec();
                plane[to as usize * layout.block_elements()..][..layout.block_elements()].copy_from_slice(&block);
            }
        }
        for (index, address) in keys.iter().enumerate() {
            let mut got = vec![0; 2 * layout.plane_elements()];
            engine.read(*address, &mut got);
            assert!(got == interleaved(&layout, &expected, index), "layer {index}, seed {seed}");
        }
        assert_eq!(kv.write(&[1]), Err(GpuError::Borrowed));
        assert_eq!(kv.to_vec(), Err(GpuError::Borrowed));
        drop((kv, batch, host, swap, transfer, queries, keys_in, values_in, out, attention, device));
        engine.leave(&keys);
        driver.assert_nothing_left("an engine's storage");
    }
}

#[test]
fn storage_that_does_not_fit_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (dtype, order) = (Dtype::F16, Order::Nhd);
    let layout =
        Layout { layers: 2, blocks: 4, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    let (keys, values) = ([0x1000, 0x9000], [0x5000, 0xd000]);
    let whole = Planes { keys: &keys, values: &values, block_stride: layout.block_elements() };
    // SAFETY: nothing is queued with any of them.
    let wrap = |planes| unsafe { Kv::from_raw(&device, layout, planes) }.map(drop);
    assert_eq!(wrap(whole), Ok(()));
    let length = |what, given, needed| Err(GpuError::Shape(ShapeError::Length { what, given, needed }));
    assert_eq!(wrap(Planes { keys: &keys[..1], ..whole }), length("addresses of keys", 1, 2));
    assert_eq!(wrap(Planes { values: &[], ..whole }), length("addresses of values", 0, 2));
    let short = layout.block_elements() - 8;
    let overlap = length("elements from block to block", short, layout.block_elements());
    assert_eq!(wrap(Planes { block_stride: short, ..whole }), overlap);
    assert_eq!(wrap(Planes { values: &[0x5000, 0xd008], ..whole }), Err(GpuError::Unaligned { address: 0xd008 }));
    let uneven = layout.block_elements() + 4;
    let unaligned = Err(GpuError::Unaligned { address: 2 * uneven as u64 });
    assert_eq!(wrap(Planes { block_stride: uneven, ..whole }), unaligned);
    let unaligned = Err(GpuError::Unaligned { address: u64::MAX });
    assert_eq!(wrap(Planes { block_stride: 1 << 63, ..whole }), unaligned);
}

/// Each has a stream of its own.
#[test]
fn devices_of_one_gpu_share_its_context_and_the_kernels() {
    let Some(driver) = stand_in_driver() else { return };
    let kind = |name| KINDS.iter().position(|kind| *kind == name).expect("a kind");
    let one = driver.open();
    let before = driver.live();
    let others = [driver.open(), driver.open()];
    let after = driver.live();
    assert_eq!(after[kind("modules")], before[kind("modules")]);
    assert_eq!(after[kind("contexts")], before[kind("contexts")]);
    assert_eq!(after[kind("streams")], before[kind("streams")] + 2);
    let buffer = one.upload(&[7_u16; 64]).expect("memory");
    drop(one);
    assert_eq!(buffer.to_vec(), Ok(vec![7; 64]));
    drop((others, buffer));
    driver.assert_nothing_left("the last device");
}

/// The pool keeps its memory when a thread has waited, and plans are copied from page-locked memory.
#[test]
fn preparing_again_allocates_nothing_and_copies_nothing_pageable() {
    let Some(driver) = stand_in_driver() else { return };
    let shape = Shape {
        dtype: Dtype::Bf16,
        head_dim: 64,
        kv_heads: 2,
        group: 4,
        block_size: 16,
        order: Order::Nhd,
        layers: 1,
        layer: 0,
    };
    let bed = Bed::new(3, shape, &[Sequence { before: 900, rows: 1, shared: 0 }; 3], true);
    for streams in [0, 5] {
        driver.streams(streams);
        let device = driver.open();
        let attention = Attention::new(&device);
        let step = || {
            drop(attention.prepare(&bed.layout, &bed.batch()).expect("a batch"));
            device.synchronize().expect("waited");
        };
        step();
        let counts = || (driver.count(Counted::PoolGrowths), driver.count(Counted::PageableCopies), driver.live());
        let before = counts();
        (0..20).for_each(|_| step());
        assert_eq!(counts(), before);
    }
}

/// A plan is on its way when all that it is for is dropped.
#[test]
fn a_copy_of_a_plan_outlives_its_device() {
    let Some(driver) = driver() else { return };
    let shape = Shape {
        dtype: Dtype::Bf16,
        head_dim: 64,
        kv_heads: 1,
        group: 4,
        block_size: 16,
        order: Order::Nhd,
        layers: 1,
        layer: 0,
    };
    let bed = Bed::new(3, shape, &[Sequence { before: 90, rows: 1, shared: 0 }; 2], true);
    for seed in 1..20 {
        driver.streams(seed);
        let device = driver.open();
        let batch = Attention::new(&device).prepare(&bed.layout, &bed.batch()).expect("a batch");
        if seed % 2 == 0 {
            drop((device, batch));
        } else {
            drop((batch, device));
        }
        driver.assert_nothing_left(&format!("seed {seed}"));
    }
}

/// The engine captures a step of its own, in which it decodes: launches are captured, and what a graph could not use is
/// refused.
#[test]
fn an_engine_captures_its_own_stream() {
    type Begin = unsafe extern "C" fn(*mut c_void, i32) -> u32;
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> u32;
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    // SAFETY: the engine's context and stream end after the device.
    let device = unsafe { Device::from_raw(0, engine.context, engine.stream, Images::Prebuilt) }.expect("a device");
    let (from, mut to) = (device.upload(&[3_u16; 64]).expect("memory"), device.zeros::<u16>(64).expect("memory"));
    let mut graph = std::ptr::null_mut();
    // SAFETY: types of cuda.h; the mode is that of one thread.
    engine.call(|begin: Begin| unsafe { begin(engine.stream, 1) }, "cuStreamBeginCapture_v2");
    assert!(matches!(device.upload(&[1_u16; 8]), Err(GpuError::NotCaptured { .. })));
    assert!(matches!(to.write(&[1; 8]), Err(GpuError::NotCaptured { .. })));
    device.copy_all(from.view(), to.view_mut()).expect("captured");
    // SAFETY: as above.
    engine.call(|end: End| unsafe { end(engine.stream, &mut graph) }, "cuStreamEndCapture");
    assert!(!graph.is_null() && to.to_vec() == Ok(vec![0; 64]), "nothing is copied yet");
    // SAFETY: as above.
    engine.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(graph) }, "cuGraphDestroy");
    drop((from, to, device));
    engine.leave(&[]);
    driver.assert_nothing_left("the engine left");
}

#[test]
fn a_default_stream_is_not_captured() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    // SAFETY: the engine's context ends after the device.
    let device = unsafe { Device::from_raw(0, engine.context, std::ptr::null_mut(), Images::Prebuilt) };
    let device = device.expect("a device");
    let refused = device.capture(|| Ok(())).expect_err("the default stream");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
    drop(device);
    engine.leave(&[]);
    driver.assert_nothing_left("the default stream");
}
