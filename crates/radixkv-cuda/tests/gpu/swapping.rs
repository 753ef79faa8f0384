//! Swapping blocks to the host and back.

use fastrand::Rng;
use radixkv_attention::{Backend, Half, Layout, ShapeError};
use radixkv_cuda::{Attention, GpuError, HostPool, Swap};

use super::bed::LAYOUT;
use super::driver::{Counted, driver, stand_in_driver};

/// A layout of small blocks, which a kernel copies, and one of large blocks, which the copy engine
/// does.
pub fn layouts() -> [Layout; 2] {
    let layouts = [16, 64].map(|block_size| Layout { blocks: 12, block_size, head_dim: 128, value_dim: 128, ..LAYOUT });
    assert!(layouts[0].block_elements() * 2 < 28 << 10 && layouts[1].block_elements() * 2 >= 28 << 10);
    layouts
}

/// Elements that differ from their neighbours and, up to 65,536 of them, from all others.
pub fn numbered(layout: &Layout, by: usize) -> Vec<u16> {
    (0..layout.elements()).map(|element| (element * 7 + by) as u16).collect()
}

/// The bytes of a block in a host pool: all planes.
pub fn planes(layout: &Layout, storage: &[u16], block: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for layer in 0..layout.layers {
        for half in [Half::Keys, Half::Values] {
            let first = layout.index(layer, half, block, 0, 0);
            bytes.extend(
                storage[first..first + layout.block_elements()].iter().flat_map(|element| element.to_le_bytes()),
            );
        }
    }
    bytes
}

// Holds: GP6.
#[test]
fn blocks_are_swapped_out_and_in() {
    let Some(driver) = driver() else { return };
    for layout in layouts() {
        for seed in 0..12 {
            driver.streams(seed);
            let device = driver.open();
            let attention = Attention::new(&device);
            let mut kv = attention.allocate(layout).expect("memory");
            let storage = numbered(&layout, seed as usize);
            kv.write(&storage).expect("a copy");
            let host = HostPool::new(&device, &layout, 5).expect("page-locked memory");
            let swap = Swap::new(&device).expect("a stream");
            let out = swap.swap_out(&kv, &host, &[(7, 0), (2, 4)]).expect("queued");
            // Reading waits for the transfer, so waiting before it is optional.
            if seed % 2 == 0 {
                out.wait().expect("a copy");
                assert_eq!(out.is_done(), Ok(true));
            }
            let mut bytes = vec![0; host.block_bytes()];
            for (block, on_host) in [(7, 0), (2, 4)] {
                host.read(on_host, &mut bytes).expect("read");
                assert_eq!(bytes, planes(&layout, &storage, block), "seed {seed}");
            }
            // Blocks 1 and 11 become copies of 7 and 2, and the device's stream sees them; no
            // thread waits.
            let back = swap.swap_in(&kv, &host, &[(0, 1), (4, 11)]).expect("queued");
            back.wait_on_device(&device).expect("a wait");
            let now = kv.to_vec().expect("the storage");
            for (from, to) in [(7, 1), (2, 11)] {
                assert_eq!(planes(&layout, &now, to), planes(&layout, &storage, from), "seed {seed}");
            }
            for block in (0..12).filter(|block| ![1, 11].contains(block)) {
                assert_eq!(planes(&layout, &now, block), planes(&layout, &storage, block), "seed {seed}");
            }
        }
    }
}

// Holds: GP6.
#[test]
fn a_transfer_sees_what_was_queued_before_it() {
    let Some(driver) = driver() else { return };
    for layout in layouts() {
        for seed in 1..40 {
            driver.streams(seed);
            let device = driver.open();
            let attention = Attention::new(&device);
            let mut kv = attention.allocate(layout).expect("memory");
            let storage = numbered(&layout, seed as usize);
            kv.write(&storage).expect("a copy");
            let host = HostPool::new(&device, &layout, 2).expect("page-locked memory");
            let swap = Swap::new(&device).expect("a stream");
            // Block 5 is written on the device's stream, swapped out, swapped in as 6, and copied
            // to 0.
            attention.copy_blocks(&kv, &[(9, 5)]).expect("queued");
            let _ = swap.swap_out(&kv, &host, &[(5, 1)]).expect("queued");
            let back = swap.swap_in(&kv, &host, &[(1, 6)]).expect("queued");
            back.wait_on_device(&device).expect("a wait");
            attention.copy_blocks(&kv, &[(6, 0)]).expect("queued");
            let now = kv.to_vec().expect("the storage");
            for block in [0, 5, 6, 9] {
                assert_eq!(planes(&layout, &now, block), planes(&layout, &storage, 9), "seed {seed}, block {block}");
            }
        }
    }
}

/// The copy engine takes all layers of a block in one call, and a kernel all blocks.
#[test]
fn a_block_is_one_call() {
    let Some(driver) = stand_in_driver() else { return };
    for (layout, by_engine) in layouts().into_iter().zip([false, true]) {
        let layout = Layout { layers: 5, ..layout };
        let device = driver.open();
        let kv = Attention::new(&device).allocate(layout).expect("memory");
        let host = HostPool::new(&device, &layout, 4).expect("page-locked memory");
        let swap = Swap::new(&device).expect("a stream");
        let counts =
            || [Counted::CopiesToHost, Counted::CopiesToDevice, Counted::Launches].map(|kind| driver.count(kind));
        let before = counts();
        swap.swap_out(&kv, &host, &[(0, 0), (7, 1), (3, 3)]).expect("queued").wait().expect("done");
        let after = counts();
        // The list of a kernel's copies is a copy itself.
        let expected = if by_engine { [3, 0, 0] } else { [0, 1, 1] };
        assert_eq!([0, 1, 2].map(|kind| after[kind] - before[kind]), expected);
    }
}

// Holds: GP7.
#[test]
fn memory_outlives_the_transfers_that_use_it() {
    let Some(driver) = driver() else { return };
    for layout in layouts() {
        for seed in 0..20 {
            driver.streams(seed);
            let device = driver.open();
            let kv = Attention::new(&device).allocate(layout).expect("memory");
            let host = HostPool::new(&device, &layout, 4).expect("page-locked memory");
            let swap = Swap::new(&device).expect("a stream");
            let transfer = swap.swap_out(&kv, &host, &[(0, 0), (1, 1), (2, 2)]).expect("queued");
            // Dropped in a random order.
            let mut dropped: Vec<Box<dyn std::any::Any>> =
                vec![Box::new(kv), Box::new(host), Box::new(swap), Box::new(transfer), Box::new(device)];
            Rng::with_seed(u64::from(seed)).shuffle(&mut dropped);
            drop(dropped);
            driver.assert_nothing_left(&format!("seed {seed}"));
        }
    }
}

#[test]
fn a_block_that_the_processor_changed_is_swapped_in_changed() {
    let Some(driver) = driver() else { return };
    let [layout, _] = layouts();
    let device = driver.open();
    let kv = Attention::new(&device).allocate(layout).expect("memory");
    let host = HostPool::new(&device, &layout, 3).expect("page-locked memory");
    let swap = Swap::new(&device).expect("a stream");
    let mut before = vec![1; host.block_bytes()];
    host.read(2, &mut before).expect("read");
    assert!(before.iter().all(|byte| *byte == 0), "zero at first");
    let bytes: Vec<u8> = (0..host.block_bytes()).map(|byte| (byte % 251) as u8).collect();
    host.write(2, &bytes).expect("written");
    swap.swap_in(&kv, &host, &[(2, 10)]).expect("queued").wait().expect("a copy");
    assert_eq!(planes(&layout, &kv.to_vec().expect("the storage"), 10), bytes);
}

#[test]
fn handles_go_to_other_threads() {
    fn everywhere<T: Send + Sync>() {}
    everywhere::<radixkv_cuda::Device>();
    everywhere::<radixkv_cuda::Buffer<u16>>();
    everywhere::<radixkv_cuda::Kv>();
    everywhere::<(Attention, radixkv_cuda::Prepared, radixkv_cuda::Cascade)>();
    everywhere::<(HostPool, Swap, radixkv_cuda::Transfer)>();
    everywhere::<(radixkv_cuda::Compare, radixkv_cuda::TokenSequences)>();
}

#[test]
fn pairs_that_do_not_fit_are_refused() {
    let Some(driver) = driver() else { return };
    let [layout, large] = layouts();
    let device = driver.open();
    let kv = Attention::new(&device).allocate(layout).expect("memory");
    let host = HostPool::new(&device, &layout, 3).expect("page-locked memory");
    let swap = Swap::new(&device).expect("a stream");
    let range = |block, blocks| GpuError::Shape(ShapeError::CopyRange { block, blocks });
    assert_eq!(swap.swap_out(&kv, &host, &[(12, 0)]).expect_err("a refusal"), range(12, 12));
    assert_eq!(swap.swap_out(&kv, &host, &[(0, 3)]).expect_err("a refusal"), range(3, 3));
    assert_eq!(swap.swap_in(&kv, &host, &[(3, 0)]).expect_err("a refusal"), range(3, 3));
    let twice = GpuError::Shape(ShapeError::CopyOverlap { block: 1 });
    assert_eq!(swap.swap_out(&kv, &host, &[(0, 1), (4, 1)]).expect_err("a refusal"), twice);
    let other = HostPool::new(&device, &large, 3).expect("page-locked memory");
    assert!(matches!(swap.swap_out(&kv, &other, &[(0, 0)]), Err(GpuError::Shape(ShapeError::Length { .. }))));
    let endless = Layout { layers: usize::MAX, ..layout };
    let too_large = GpuError::Shape(ShapeError::TooLarge { blocks: layout.blocks });
    assert_eq!(HostPool::new(&device, &endless, 3).expect_err("a refusal"), too_large);
    let elsewhere = Swap::new(&driver.open()).expect("a stream");
    assert_eq!(elsewhere.swap_out(&kv, &host, &[(0, 0)]).expect_err("a refusal"), GpuError::WrongDevice);
}
