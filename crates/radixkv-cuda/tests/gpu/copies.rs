//! Copying blocks on the device.

use radixkv_attention::{Backend, Dtype, Half, Layout, Order, ShapeError};
use radixkv_cuda::{Attention, GpuError};

use super::driver::driver;

fn layout(block_size: usize) -> Layout {
    Layout {
        layers: 3,
        blocks: 9,
        block_size,
        kv_heads: 2,
        head_dim: 64,
        value_dim: 64,
        dtype: Dtype::F16,
        order: Order::Nhd,
    }
}

/// Elements that all differ, up to 65,521 of them.
fn numbered(layout: &Layout) -> Vec<u16> {
    (0..layout.elements()).map(|element| (element % 65_521) as u16).collect()
}

#[test]
fn blocks_are_copied_in_all_layers() {
    let Some(driver) = driver() else { return };
    let attention = Attention::new(&driver.open());
    for block_size in [16, 32, 64] {
        let layout = layout(block_size);
        let mut kv = attention.allocate(layout).expect("memory");
        let mut expected = numbered(&layout);
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
