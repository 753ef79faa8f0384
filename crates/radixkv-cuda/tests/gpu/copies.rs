//! Copying blocks on the device.

use radixkv_attention::{Backend, Dtype, Half, Layout, ShapeError};
use radixkv_cuda::{Attention, GpuError};

use super::bed::LAYOUT;
use super::driver::driver;
use super::swapping::numbered;

fn layout(block_size: usize) -> Layout {
    Layout { layers: 3, blocks: 9, block_size, dtype: Dtype::F16, ..LAYOUT }
}

#[test]
fn blocks_are_copied_in_all_layers() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    for block_size in [16, 32, 64] {
        let layout = layout(block_size);
        let mut kv = attention.allocate(layout).expect("memory");
        let mut expected = numbered(&layout, 0);
        kv.write(&expected).expect("a copy");
        let pairs = [(0, 8), (3, 1), (0, 2)];
        attention.copy_blocks(&kv, &pairs).expect("copied");
        for layer in 0..layout.layers {
            for half in [Half::Keys, Half::Values] {
                for (from, to) in pairs {
                    let place = |block| layout.index(layer, half, block, 0, 0);
                    expected.copy_within(place(from)..place(from) + layout.block_elements(), place(to));
                }
            }
        }
        assert_eq!(kv.to_vec().expect("the storage"), expected);
    }
}

/// A list that is there is launched, and nothing else: it can be captured.
#[test]
fn prepared_copies_are_launched_as_often_as_wanted() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let attention = Attention::new(&device);
    let layout = layout(32);
    let (mut kv, mut other) =
        (attention.allocate(layout).expect("memory"), attention.allocate(layout).expect("memory"));
    let (pairs, elements) = ([(1, 0), (4, 6), (4, 5)], numbered(&layout, 0));
    kv.write(&elements).expect("a copy");
    other.write(&elements).expect("a copy");
    let copies = attention.prepare_copies(&layout, &pairs).expect("a list");
    let graph = device.capture(|| attention.launch_copies(&kv, &copies)).expect("a graph");
    // SAFETY: storage and list stay until the storage is read.
    unsafe { graph.launch() }.expect("launched");
    attention.launch_copies(&other, &copies).expect("launched");
    let now = kv.to_vec().expect("the storage");
    assert!(now != elements && now == other.to_vec().expect("the storage"));
    attention.copy_blocks(&other, &pairs).expect("copied");
    assert!(now == other.to_vec().expect("the storage"));
    let larger = attention.allocate(Layout { blocks: 10, ..layout }).expect("memory");
    assert_eq!(attention.launch_copies(&larger, &copies), Err(GpuError::OtherLayout));
    let elsewhere = Attention::new(&driver.open());
    assert_eq!(elsewhere.launch_copies(&kv, &copies), Err(GpuError::WrongDevice));
}

// Holds: GP12.
#[test]
fn copies_that_depend_on_their_order_are_refused() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    let kv = attention.allocate(layout(16)).expect("memory");
    let refused = |pairs: &[(u32, u32)]| attention.copy_blocks(&kv, pairs).expect_err("a refusal");
    assert_eq!(refused(&[(0, 9)]), GpuError::Shape(ShapeError::CopyRange { block: 9, blocks: 9 }));
    assert_eq!(refused(&[(0, 1), (1, 2)]), GpuError::Shape(ShapeError::CopyOverlap { block: 1 }));
    assert_eq!(refused(&[(0, 4), (1, 4)]), GpuError::Shape(ShapeError::CopyOverlap { block: 4 }));
    assert_eq!(attention.copy_blocks(&kv, &[]), Ok(()));
}
