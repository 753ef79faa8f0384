use super::*;

fn layout(order: Order) -> Layout {
    let (head_dim, value_dim, dtype) = (8, 4, Dtype::F16);
    Layout { layers: 2, blocks: 3, block_size: 5, kv_heads: 2, head_dim, value_dim, dtype, order }
}

#[test]
fn every_head_has_a_place_of_its_own() {
    for order in [Order::Nhd, Order::Hnd] {
        let layout = layout(order);
        let mut seen = vec![false; layout.elements()];
        for layer in 0..layout.layers {
            for half in [Half::Keys, Half::Values] {
                for block in 0..layout.blocks as BlockId {
                    for token in 0..layout.block_size {
                        for head in 0..layout.kv_heads {
                            let index = layout.index(layer, half, block, token, head);
                            let elements = &mut seen[index..][..layout.of(half).head_dim];
                            assert!(elements.iter_mut().all(|seen| !std::mem::replace(seen, true)));
                        }
                    }
                }
            }
        }
        assert!(seen.into_iter().all(|seen| seen), "{order:?}");
    }
}

#[test]
fn values_of_latent_vectors_lie_in_their_keys() {
    let layout = Layout { kv_heads: 1, ..layout(Order::Latent) };
    assert_eq!(layout.elements(), 2 * 3 * 5 * 8);
    let mut next = 0;
    for layer in 0..2 {
        for (block, token) in (0..3).flat_map(|block| (0..5).map(move |token| (block, token))) {
            let [key, value] = [Half::Keys, Half::Values].map(|half| layout.index(layer, half, block, token, 0));
            assert_eq!((key, value), (next, next));
            next += 8;
        }
    }
    assert_eq!([Half::Keys, Half::Values].map(|half| layout.of(half).token_stride()), [8, 8]);
    let scaled = Layout { dtype: Dtype::E4m3, value_dim: 8, ..layout };
    assert_eq!((scaled.scales(), Layout { order: Order::Nhd, ..scaled }.scales()), (2 * 15, 2 * 2 * 15));
}

// Holds: AT11.
#[test]
fn an_empty_or_too_large_layout_is_refused() {
    let good = layout(Order::Nhd);
    assert_eq!(good.check(), Ok(()));
    let latent = Layout { kv_heads: 1, ..layout(Order::Latent) };
    assert_eq!(latent.check(), Ok(()));
    for (kv_heads, value_dim) in [(2, 4), (1, 12)] {
        let refused = ShapeError::Latent { kv_heads, head_dim: 8, value_dim };
        assert_eq!(Layout { kv_heads, value_dim, ..latent }.check(), Err(refused));
    }
    assert_eq!(Layout { kv_heads: 0, ..good }.check(), Err(ShapeError::Zero { what: "kv_heads" }));
    assert_eq!(Layout { head_dim: 6, ..good }.check(), Err(ShapeError::HeadDim { head_dim: 6, multiple: 4 }));
    let narrow = Layout { dtype: Dtype::I8, ..good };
    assert_eq!(narrow.check(), Err(ShapeError::HeadDim { head_dim: 4, multiple: 8 }));
    let blocks = usize::MAX / 64;
    assert_eq!(Layout { blocks, ..good }.check(), Err(ShapeError::TooLarge { blocks }));
}

#[test]
fn element_types_have_the_names_they_print() {
    let of_8_bits = [Dtype::I8, Dtype::E4m3, Dtype::I8Static, Dtype::E4m3Static];
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().chain(of_8_bits) {
        assert_eq!(dtype.to_string().parse(), Ok(dtype));
    }
    assert_eq!("int8".parse::<Dtype>(), Err(UnknownDtype));
}
