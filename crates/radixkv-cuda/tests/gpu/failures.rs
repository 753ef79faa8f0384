//! Every failure is an error that says what to do, and leaves nothing behind.

use std::error::Error;

use radixkv_attention::{Backend, Dtype, Layout, Output, Scoring, ShapeError};
use radixkv_cuda::{Attention, Capacity, Device, GpuError, HostPool, OpenError, Swap};

use super::bed::{Bed, LAYOUT, Sequence, Shape};
use super::driver::{driver, stand_in_driver};

const GIB: u64 = 1 << 30;

const SHAPE: Shape = Shape { kv_heads: 1, layers: 1, layer: 0, ..Shape::SMALL };

/// Opens a device, decodes, swaps a block out and back.
fn everything() -> Result<(), Box<dyn Error>> {
    let device = Device::open(0)?;
    let attention = Attention::new(&device);
    let bed = Bed::new(1, SHAPE, &[Sequence::one(299)], true);
    let mut kv = attention.allocate(bed.layout)?;
    kv.write(&bed.storage)?;
    let host = HostPool::new(&device, &bed.layout, 2)?;
    let swap = Swap::new(&device)?;
    let (queries, keys, values) =
        (device.upload(&bed.queries)?, device.upload(&bed.keys)?, device.upload(&bed.values)?);
    let mut out = device.zeros::<u16>(bed.queries.len())?;
    let batch = attention.prepare(&bed.layout, &bed.batch())?;
    let free = (0..bed.layout.blocks as u32).find(|block| !bed.blocks.contains(block)).ok_or("a free block")?;
    let away = swap.swap_out(&kv, &host, &[(bed.blocks[0], 1)])?;
    let back = swap.swap_in(&kv, &host, &[(1, free)])?;
    attention.append(&kv, 0, &batch, keys.view(), values.view())?;
    attention.decode(&kv, 0, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })?;
    let out = out.to_vec()?;
    away.wait()?;
    back.wait()?;
    bed.check("decode", &out, None);
    Ok(())
}

// Holds: GP5.
#[test]
fn every_allocation_may_fail() {
    let Some(driver) = stand_in_driver() else { return };
    let mut failed = 0;
    for seed in [0, 7] {
        for n in 1.. {
            driver.streams(seed);
            driver.fail_allocation(n);
            let outcome = everything();
            driver.fail_allocation(0);
            driver.assert_nothing_left(&format!("failure of allocation {n}"));
            let Err(error) = outcome else { break };
            failed += 1;
            let open = error.downcast_ref::<OpenError>().is_some_and(|error| *error == OpenError::OutOfMemory);
            let other = error.downcast_ref::<GpuError>();
            let other = other.is_some_and(|error| matches!(error, GpuError::OutOfMemory { bytes } if *bytes > 0));
            assert!(open || other, "allocation {n}: {error}");
        }
    }
    assert!(failed > 20, "{failed} allocations failed");
}

// Holds: GP5.
#[test]
fn every_launch_may_fail() {
    let Some(driver) = stand_in_driver() else { return };
    for status in [701, 719, 1] {
        for n in 1.. {
            driver.fail_launch(n, status);
            let outcome = everything();
            driver.fail_launch(0, 0);
            driver.assert_nothing_left(&format!("failure of launch {n}"));
            let Err(error) = outcome else {
                assert!(n > 4, "{n} launches");
                break;
            };
            match error.downcast_ref::<GpuError>() {
                Some(GpuError::Lost { code }) => assert_eq!((code.number(), status), (719, 719)),
                Some(GpuError::Launch { code, kernel }) => {
                    assert_eq!(i64::from(code.number()), i64::from(status));
                    assert!(error.to_string().contains(&kernel.to_string()));
                }
                _ => panic!("launch {n}: {error}"),
            }
        }
    }
}

#[test]
fn nothing_is_left_behind() {
    let Some(driver) = driver() else { return };
    for seed in 0..10 {
        driver.streams(seed);
        everything().expect("all of it");
        driver.assert_nothing_left("all of it");
    }
}

#[test]
fn devices_that_will_not_do_are_named() {
    let Some(driver) = stand_in_driver() else { return };
    driver.device(0, (9, 0), GIB);
    assert_eq!(Device::open(0).expect_err("no device"), OpenError::NoDevice { ordinal: 0, devices: 0 });
    driver.device(1, (9, 0), GIB);
    assert_eq!(Device::open(3).expect_err("no such device"), OpenError::NoDevice { ordinal: 3, devices: 1 });
    for (major, minor) in [(7, 5), (6, 1)] {
        driver.device(1, (major, minor), GIB);
        let unsupported = OpenError::Unsupported { major: major as u32, minor: minor as u32 };
        assert_eq!(Device::open(0).expect_err("too old"), unsupported);
    }
    driver.assert_nothing_left("refusals");
    // There are binaries for 8.x and 9.0, and PTX for later devices.
    for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)] {
        driver.device(1, capability, GIB);
        let device = Device::open(0).expect("a device that will do");
        assert_eq!(device.properties().capability, (capability.0 as u32, capability.1 as u32));
    }
    driver.assert_nothing_left("several devices");
}

#[test]
fn more_than_the_device_has_is_out_of_memory() {
    let Some(driver) = stand_in_driver() else { return };
    driver.device(1, (9, 0), 64 << 20);
    let device = driver.open();
    let layout = Layout { layers: 4, blocks: 4096, kv_heads: 8, head_dim: 128, value_dim: 128, ..LAYOUT };
    let refused = Attention::new(&device).allocate(layout).expect_err("too much");
    assert_eq!(refused, GpuError::OutOfMemory { bytes: layout.bytes() });
    assert!(Attention::new(&device).allocate(Layout { blocks: 8, ..layout }).is_ok(), "the device is fine");
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let bed = Bed::new(1, SHAPE, &[Sequence::one(20)], true);
    let good = bed.layout;
    for layout in [Layout { dtype: Dtype::F32, ..good }, Layout { head_dim: 32, value_dim: 32, ..good }] {
        assert!(matches!(attention.allocate(layout), Err(GpuError::Layout { .. })), "{layout:?}");
    }
    assert!(matches!(attention.allocate(Layout { layers: 0, ..good }), Err(GpuError::Shape(ShapeError::Zero { .. }))));

    let kv = attention.allocate(good).expect("memory");
    let batch = attention.prepare(&good, &bed.batch()).expect("a batch");
    let (queries, mut out) = (device.zeros::<u16>(256).expect("memory"), device.zeros::<u16>(256).expect("memory"));
    let mut decode = |layer, queries: &radixkv_cuda::Buffer<u16>| {
        attention.decode(&kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
    };
    assert_eq!(decode(0, &queries), Ok(()));
    assert_eq!(decode(1, &queries), Err(GpuError::Shape(ShapeError::Layer { layer: 1, layers: 1 })));
    let short = device.zeros::<u16>(255).expect("memory");
    let length = ShapeError::Length { what: "queries", given: 255, needed: 256 };
    assert_eq!(decode(0, &short), Err(GpuError::Shape(length)));
    let elsewhere = driver.open().zeros::<u16>(256).expect("memory");
    assert_eq!(decode(0, &elsewhere), Err(GpuError::WrongDevice));

    let other = attention.allocate(Layout { blocks: good.blocks + 1, ..good }).expect("memory");
    let refused = attention.append(&other, 0, &batch, queries.view(), queries.view()).expect_err("a refusal");
    assert_eq!(refused, GpuError::OtherLayout);
    let flat = radixkv_attention::Batch { scale: 0.0, ..bed.batch() };
    assert_eq!(attention.prepare(&good, &flat).expect_err("a refusal"), GpuError::Scale { scale: 0.0 });
}

/// Rows that are not kept are not appended, and chunks are not decoded: the storage and the outputs
/// stay.
#[test]
fn operations_that_a_batch_is_not_for_are_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let chunk = [Sequence { before: 20, rows: 3, shared: 0 }];
    for (save_kv, expected) in [(false, ShapeError::NotKept), (true, ShapeError::DecodeRows { sequence: 0, rows: 3 })] {
        let bed = Bed::new(1, SHAPE, &chunk, save_kv);
        let mut kv = attention.allocate(bed.layout).expect("memory");
        kv.write(&bed.storage).expect("a copy");
        let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let [queries, keys, values] = bed.upload(&device);
        let mut out = device.zeros::<u16>(bed.queries.len()).expect("memory");
        let into = Output { rows: out.view_mut(), lse: None };
        let refused = Err(GpuError::Shape(expected));
        assert_eq!(attention.decode(&kv, 0, &batch, queries.view(), into), refused);
        assert_eq!(out.to_vec(), Ok(vec![0; bed.queries.len()]));
        if !save_kv {
            assert_eq!(attention.append(&kv, 0, &batch, keys.view(), values.view()), refused);
            assert!(kv.to_vec() == Ok(bed.storage));
        }
    }
}

/// Rows and partial rows are counted in 32 bits.
#[test]
fn more_rows_than_there_are_numbers_are_refused() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    let layout = Layout { blocks: 4097, kv_heads: 4096, ..LAYOUT };
    let (table, slots): (Vec<u32>, Vec<u64>) = ((0..4097).collect(), (0..65_536).collect());
    let batch = radixkv_attention::Batch {
        query_heads: 16 * layout.kv_heads,
        scale: 0.125,
        scoring: Scoring::default(),
        tables: radixkv_attention::Tables { blocks: &table, offsets: &[0, 4097] },
        contexts: &[65_536],
        rows: &[0, 65_536],
        save_kv: true,
        slots: &slots,
    };
    assert!(matches!(attention.prepare(&layout, &batch), Err(GpuError::TooMuch { .. })));
}

// Holds: GP5.
#[test]
fn errors_say_what_to_do() {
    let texts = [
        OpenError::NoDriver.to_string(),
        OpenError::DriverTooOld { version: 11_080, needed: 12_000 }.to_string(),
        OpenError::NoDevice { ordinal: 1, devices: 1 }.to_string(),
        OpenError::Unsupported { major: 7, minor: 5 }.to_string(),
        GpuError::OutOfMemory { bytes: 4096 }.to_string(),
    ];
    assert_eq!(
        texts.each_ref().map(String::as_str),
        [
            "no NVIDIA driver is installed (libcuda.so.1 was not found)",
            "the NVIDIA driver supports CUDA 11.8, the kernels need 12.0; update it",
            "GPU 1 was not found: the driver sees 1 (CUDA_VISIBLE_DEVICES may hide some)",
            "the GPU has compute capability 7.5, the kernels need 8.0 or later",
            "allocating 4096 bytes failed; free some or request less",
        ]
    );
}

/// A number of bytes that does not fit into an address is not cut to one that does.
#[test]
fn lengths_whose_bytes_overflow_are_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let refused = |bytes: usize| Some(GpuError::OutOfMemory { bytes });
    for extra in [0, 1, 16] {
        assert_eq!(device.zeros::<u16>((1 << 63) + extra).err(), refused(usize::MAX), "u16, {extra}");
        assert_eq!(device.zeros::<u32>((1 << 62) + extra).err(), refused(usize::MAX), "u32, {extra}");
        assert_eq!(device.zeros::<f32>((1 << 62) + extra).err(), refused(usize::MAX), "f32, {extra}");
        assert_eq!(device.zeros::<u64>((1 << 61) + extra).err(), refused(usize::MAX), "u64, {extra}");
    }
    assert_eq!(device.zeros::<u8>(usize::MAX).err(), refused(usize::MAX));
    assert_eq!(device.zeros::<u16>(1 << 62).err(), refused(1 << 63));
}

/// A table may name a block at many places, so few blocks are enough for positions that do not fit
/// into 31 bits.
#[test]
fn positions_beyond_31_bits_are_refused() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    let layout = Layout { blocks: 2, block_size: 1 << 12, kv_heads: 1, ..LAYOUT };
    let table = [&[0; (1 << 19) - 1][..], &[1; 2]].concat();
    let batch = |contexts| radixkv_attention::Batch {
        query_heads: 4,
        scale: 0.125,
        scoring: Scoring::default(),
        tables: radixkv_attention::Tables { blocks: &table, offsets: &[0, (1 << 19) + 1] },
        contexts,
        rows: &[0, 1],
        save_kv: false,
        slots: &[],
    };
    assert!(attention.prepare(&layout, &batch(&[i32::MAX as u32])).is_ok());
    for contexts in [&[1 << 31], &[(1 << 31) + 4096]] {
        let refused = attention.prepare(&layout, &batch(contexts)).expect_err("a refusal");
        assert_eq!(refused, GpuError::Context { sequence: 0, context: contexts[0] });
    }
    let (short, long) = (&[4096][..], &[1 << 31][..]);
    let kept = |contexts, slots| radixkv_attention::Batch { save_kv: true, slots, ..batch(contexts) };
    let capacity = Capacity { sequences: 1, blocks: 1 << 20, items: 9 };
    let mut reserved = attention.reserve(&layout, &kept(short, &[4095]), capacity).expect("a batch");
    let refused = Err(GpuError::Context { sequence: 0, context: 1 << 31 });
    assert_eq!(reserved.update(&kept(long, &[8191])), refused);
}
