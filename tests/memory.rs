//! What a cache costs, counted by the allocator: every byte asked for, by whatever part of the cache.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use radixkv::{Clock, Namespace, PrefixCache, Session, Token};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: forwards to the system's allocator and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: usize = 16;

fn sequence(seed: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| seed.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b)).collect()
}

fn serve(session: &Session, space: &Namespace, tokens: &[Token]) {
    let hit = session.match_prefix(space, tokens);
    let need = tokens.len() / BLOCK - hit.blocks().len();
    let blocks = session.reserve(need).expect("nothing is leased for long");
    drop(session.insert(hit.lease(), tokens, blocks).expect("a sound insert"));
}

/// One test, so that nothing else allocates meanwhile.
#[test]
fn the_index_stays_within_its_bound_and_is_counted_truly() {
    let before = BYTES.load(Relaxed);
    let capacity = 20_000;
    let cache = PrefixCache::builder(BLOCK, capacity).clock(Clock::Logical).build().expect("sound");
    let session = cache.session();
    let space = cache.default_namespace();
    let empty = BYTES.load(Relaxed) - before;
    for turn in 0..600_u32 {
        cache.set_time(u64::from(turn));
        // Shared stems, own tails, every length: full and evicting from the fortieth request on.
        let stem = sequence(turn % 7, 4_000 + (turn as usize * 37) % 3_000);
        let tail = sequence(1_000 + turn, 500 + (turn as usize * 101) % 9_000);
        let tokens = [stem, tail].concat();
        serve(&session, &space, &tokens);
        drop(tokens);

        let stats = cache.stats();
        let held = BYTES.load(Relaxed) - before;
        let cached = stats.evictable_blocks + stats.protected_blocks;
        let payload = 4 * cached * BLOCK + 4 * cached;
        assert!(held <= payload + payload / 4 + 1_000_000, "{held} bytes for {payload} of payload at {turn}");
        let told = stats.index_bytes + empty;
        assert!(held <= told + told / 8 + 100_000, "{held} bytes counted, {told} told at {turn}");
    }
    let cached = capacity - cache.stats().free_blocks;
    assert_eq!(cache.evict(usize::MAX), cached);
    cache.settle();
    assert_eq!((cache.stats().runs, cache.stats().points), (0, 0));
    // Tables that grew with the cache stay; they follow its leaves, not its tokens.
    assert!(BYTES.load(Relaxed) - before <= empty + 200_000);
    drop((session, space, cache));
    let left = BYTES.load(Relaxed).saturating_sub(before);
    assert!(left < 1_000, "{left} bytes left of a dropped cache");
}
