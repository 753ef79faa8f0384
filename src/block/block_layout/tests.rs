use super::*;

#[test]
fn divides_as_division_does() {
    let largest = u32::MAX as usize;
    for size in (1..=100).chain([255, 256, 257, 4096, 65_537, u32::MAX / 2, u32::MAX - 1, u32::MAX]) {
        let layout = BlockLayout::new(size);
        let size = size as usize;
        let edges = (0..200).flat_map(|i| [i * size, (i * size).saturating_sub(1), i * size + 1]);
        for n in edges.chain([largest, largest - 1, largest / 2, 1 << 31]).filter(|n| *n <= largest) {
            assert_eq!((layout.blocks(n), layout.boundary(n)), (n / size, n / size * size), "{n} / {size}");
        }
    }
}

#[test]
fn an_offset_moves_every_end_but_that_of_nothing() {
    for size in [1, 2, 3, 16] {
        let layout = BlockLayout::new(size as u32).with_offset(1);
        for depth in 0..100_usize {
            let blocks = depth.saturating_sub(1) / size;
            let end = if blocks == 0 { 0 } else { blocks * size + 1 };
            assert_eq!((layout.blocks(depth), layout.boundary(depth), layout.end_of(blocks)), (blocks, end, end));
            assert_eq!((layout.filled(end), layout.depth_of(blocks * size)), (blocks * size, end));
        }
    }
}
