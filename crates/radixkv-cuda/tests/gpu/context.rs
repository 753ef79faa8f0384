//! Working in a context, on a stream and over memory of an engine.

use std::ffi::c_void;

use radixkv_attention::{Backend, Dtype, Layout, Order, Output, ShapeError};
use radixkv_cuda::{Attention, GpuError, HostPool, Kv, Planes, Swap, View, ViewMut};

use super::bed::{Bed, LAYOUT, NAN, Sequence, Shape};
use super::driver::{Counted, driver, stand_in_driver};
use super::engine::{Address, Engine};

// Holds: GP9.
#[test]
fn an_engine_brings_its_context_stream_and_buffers() {
    let Some(driver) = driver() else { return };
    let shape = Shape { dtype: Dtype::F16, block_size: 32, order: Order::Hnd, ..Shape::SMALL };
    for seed in 0..6 {
        driver.streams(seed);
        let bed = Bed::new(u64::from(seed) + 1, shape, &[Sequence::one(200); 3], true);
        let engine = Engine::new();
        let address = |elements: &[u16]| {
            let address = engine.allocate(elements.len() * 2);
            engine.write(address, elements);
            address
        };
        let [queries, keys, values] = [&bed.queries, &bed.keys, &bed.values].map(|elements| address(elements));
        let out = address(&vec![NAN; bed.queries.len()]);
        {
            let device = engine.device();
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

// Holds: GP9.
#[test]
fn an_engine_brings_its_storage() {
    let Some(driver) = driver() else { return };
    // Small blocks, which a kernel swaps, and large ones, which the copy engine does.
    for (seed, block_size, head_dim) in [(1, 16, 64), (2, 64, 128)] {
        driver.streams(seed);
        let shape = Shape { head_dim, block_size, ..Shape::SMALL };
        let sequences = [70, 3].map(Sequence::one);
        let bed = Bed::new(u64::from(seed), shape, &sequences, true);
        let layout = bed.layout;
        let engine = Engine::new();
        let device = engine.device();
        let attention = Attention::new(&device);
        // In allocations of their own: rising addresses could be taken for planes that lie evenly
        // apart.
        let allocate = |_| engine.allocate(2 * layout.plane_elements() * 2);
        let mut keys: Vec<Address> = (0..layout.layers).map(allocate).collect();
        keys.sort_unstable();
        for (layer, address) in keys.iter().enumerate() {
            engine.write(*address, &interleaved(&layout, &bed.storage, layer));
        }
        let values: Vec<u64> = keys.iter().map(|keys| keys + 2 * layout.block_elements() as u64).collect();
        let planes = Planes { keys: &keys, values: &values, block_stride: 2 * layout.block_elements() };
        // SAFETY: the layers' memory stays until all is done, and is read after that alone.
        let mut kv = unsafe { Kv::from_raw(&device, layout, planes) }.expect("a storage");
        // A step; then a block is swapped out, copied, and swapped in as another block.
        let [queries, keys_in, values_in] = bed.upload(&device);
        let mut out = device.upload(&vec![NAN; bed.queries.len()]).expect("memory");
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
    let layout = Layout { blocks: 4, ..LAYOUT };
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
    // No address is added up beyond the last one.
    let far = [[0xffff_ffff_ffff_0000, 0xffff_ffff_ffff_fff0], [0x1_0000, 1 << 63], [1 << 63, 1 << 62]];
    for planes in far.each_ref().map(|keys| Planes { keys, ..whole }) {
        assert_eq!([wrap(planes), wrap(Planes { block_stride: 1 << 62, ..planes })], [Ok(()), Ok(())]);
    }
}

/// Where the table is looked up for each token, places in a plane are 32 bits of units of 16 bytes:
/// also between blocks of an engine that lie apart.
#[test]
fn storage_that_reaches_too_far_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let wrap = |dtype, block_size, block_bytes: usize| {
        let layout = Layout { layers: 1, blocks: 1025, block_size, dtype, ..LAYOUT };
        let planes = Planes { keys: &[0x1000], values: &[0x2000], block_stride: block_bytes / dtype.bytes() };
        // SAFETY: nothing is queued with it.
        unsafe { Kv::from_raw(&device, layout, planes) }.map(drop)
    };
    let refused = Err(GpuError::Shape(ShapeError::TooLarge { blocks: 1025 }));
    for dtype in [Dtype::Bf16, Dtype::E4m3] {
        assert_eq!(wrap(dtype, 7, 1 << 26), refused, "64 GiB to the last block, and this one");
        assert_eq!(wrap(dtype, 7, (1 << 26) - 16), Ok(()));
        assert_eq!(wrap(dtype, 16, 1 << 30), Ok(()));
    }
}

/// Each has a stream of its own.
#[test]
fn devices_of_one_gpu_share_its_context_and_the_kernels() {
    let Some(driver) = stand_in_driver() else { return };
    let counts = || ["modules", "contexts", "streams"].map(|kind| driver.live_of(kind));
    let one = driver.open();
    let [modules, contexts, streams] = counts();
    let others = [driver.open(), driver.open()];
    assert_eq!(counts(), [modules, contexts, streams + 2]);
    let buffer = one.upload(&[7_u16; 64]).expect("memory");
    drop(one);
    assert_eq!(buffer.to_vec(), Ok(vec![7; 64]));
    drop((others, buffer));
    driver.assert_nothing_left("the last device");
}

/// The pool keeps its memory when a thread has waited, and plans are copied from page-locked
/// memory.
#[test]
fn preparing_again_allocates_nothing_and_copies_nothing_pageable() {
    let Some(driver) = stand_in_driver() else { return };
    let bed = Bed::new(3, Shape::SMALL, &[Sequence::one(900); 3], true);
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

/// Memory that an engine's device has freed goes back when a thread waits, as the engine's pool is
/// set.
#[test]
fn the_memory_pool_of_an_engine_stays_as_it_is() {
    let Some(driver) = stand_in_driver() else { return };
    let engine = Engine::new();
    let device = engine.device();
    for growths in driver.count(Counted::PoolGrowths)..driver.count(Counted::PoolGrowths) + 3 {
        assert_eq!(driver.count(Counted::PoolGrowths), growths);
        drop(device.upload(&[1_u16; 64]).expect("memory"));
        device.synchronize().expect("waited");
    }
    drop(device);
    engine.leave(&[]);
}

/// A plan is on its way when all that it is for is dropped.
#[test]
fn a_copy_of_a_plan_outlives_its_device() {
    let Some(driver) = driver() else { return };
    let bed = Bed::new(3, Shape::SMALL, &[Sequence::one(90); 2], true);
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

#[test]
fn a_default_stream_is_not_captured() {
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    let device = engine.device_on_default_stream();
    let refused = device.capture(|| Ok(())).expect_err("the default stream");
    assert!(matches!(refused, GpuError::NotCaptured { .. }), "{refused}");
    drop(device);
    engine.leave(&[]);
    driver.assert_nothing_left("the default stream");
}

/// The source of a copy may be changed when the call has returned, also if the driver reads it
/// later because it is page-locked.
// Holds: GP9.
#[test]
fn elements_are_taken_when_writing_returns() {
    type Alloc = unsafe extern "C" fn(*mut *mut c_void, usize, u32) -> u32;
    let Some(driver) = driver() else { return };
    let engine = Engine::new();
    let device = engine.device();
    for (seed, len) in (1..9).map(|seed| (seed, 1000)).chain((1..4).map(|seed| (seed, (8 << 20) + 8))) {
        driver.streams(seed);
        let mut memory = std::ptr::null_mut();
        // SAFETY: types of cuda.h, here and below.
        engine.call(|alloc: Alloc| unsafe { alloc(&mut memory, 2 * len, 0) }, "cuMemHostAlloc");
        // SAFETY: as allocated; nothing else uses it.
        let elements = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u16>(), len) };
        elements.fill(7);
        let mut buffer = device.zeros::<u16>(len).expect("memory");
        buffer.write(elements).expect("a copy");
        elements.fill(9);
        assert!(buffer.to_vec() == Ok(vec![7; len]), "seed {seed}, {len} elements");
        // SAFETY: as above; not used after.
        engine.call(|free: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { free(memory) }, "cuMemFreeHost");
    }
    driver.streams(0);
    drop(device);
    engine.leave(&[]);
    driver.assert_nothing_left("copies of page-locked elements");
}
