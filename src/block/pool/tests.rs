use super::*;

fn taken(pool: &Pool, n: usize) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    assert!(pool.try_take(n, &mut blocks), "{n} of {} free blocks", pool.free());
    blocks
}

#[test]
fn takes_all_or_nothing() {
    let pool = Pool::new(130, 130);
    let mut blocks = Vec::new();
    assert!(!pool.try_take(131, &mut blocks));
    assert!(blocks.is_empty());
    assert!(pool.try_take(130, &mut blocks));
    blocks.sort_unstable();
    assert!(blocks.iter().copied().eq(0..130));
    assert!(!pool.try_take(1, &mut blocks));
    pool.give_back(&blocks);
    assert_eq!((pool.free(), pool.count_bits()), (130, 130));
}

#[test]
fn the_next_word_with_free_blocks_is_named_at_once() {
    let pool = Pool::new(100 * 64 * 64, 100 * 64 * 64);
    let all = taken(&pool, pool.capacity());
    // A search that leaves a word without free blocks clears its hint.
    let mut last = pool.words.len() - 1;
    for block in [5, 64 * 64 + 1, 77 * 64 * 64 + 130, 100 * 64 * 64 - 1] {
        pool.give_back(&[block]);
        assert_eq!(pool.next(last), block as usize / 64, "block {block}");
        assert_eq!(taken(&pool, 1), [block]);
        last = block as usize / 64;
    }
    pool.give_back(&all);
}

// Holds: EP2.
#[test]
fn takes_exactly_these_blocks_or_none() {
    let pool = Pool::new(130, 130);
    assert_eq!(pool.take_these(&[129, 3, 64, 65]), Ok(()));
    assert_eq!((pool.free(), pool.count_bits()), (126, 126));
    assert_eq!(pool.take_these(&[4, 5, 64, 6]), Err(64));
    assert_eq!(pool.take_these(&[4, 5, 4]), Err(4));
    assert_eq!(pool.take_these(&[4, 130]), Err(130));
    assert_eq!(pool.take_these(&[4, u32::MAX]), Err(u32::MAX));
    assert_eq!((pool.free(), pool.count_bits()), (126, 126));
    pool.give_back(&[64]);
    assert_eq!(pool.take_these(&[64]), Ok(()));
}

#[test]
fn an_empty_pool_holds_what_it_is_given() {
    let pool = Pool::empty(70);
    let mut blocks = Vec::new();
    assert!(!pool.try_take(1, &mut blocks));
    pool.give_back(&[69, 0]);
    assert!(pool.try_take(2, &mut blocks));
    assert_eq!((blocks, pool.free()), (vec![69, 0], 0));
}

#[test]
fn a_pool_grows_up_to_its_limit() {
    let pool = Pool::new(3, 200);
    let few = taken(&pool, 3);
    assert_eq!((pool.grow(0), pool.grow(100)), (Some(3..3), Some(3..103)));
    assert_eq!((pool.grow(98), pool.capacity(), pool.free()), (None, 103, 100));
    assert_eq!((pool.grow(usize::MAX), pool.bits_beyond(), pool.count_bits()), (None, 0, 100));
    assert_eq!(pool.grow(97), Some(103..200));
    let mut rest = taken(&pool, 197);
    rest.sort_unstable();
    assert!(rest.iter().copied().eq(3..200));
    pool.give_back(&rest);
    pool.give_back(&few);
    assert_eq!((pool.free(), pool.bits_beyond()), (200, 0));
}

#[test]
fn takes_the_lowest_bits() {
    assert_eq!(lowest(0b1011_0100, 2), 0b0001_0100);
    assert_eq!(lowest(0b1011_0100, 9), 0b1011_0100);
    assert_eq!(lowest(u64::MAX, 64), u64::MAX);
}

#[test]
#[should_panic(expected = "was given back")]
fn a_block_given_back_twice_is_found() {
    let pool = Pool::new(8, 8);
    let mut blocks = Vec::new();
    assert!(pool.try_take(3, &mut blocks));
    pool.give_back(&blocks);
    pool.give_back(&blocks[..1]);
}
