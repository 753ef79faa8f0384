//! The memory that a cache needs, measured by a counting allocator: bytes and number of all
//! allocations of all parts of the cache.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use radixkv::{Clock, Namespace, PrefixCache, Session, Token};

struct Counting;

thread_local! {
    /// Bytes that this thread has asked for and not given back, above what another thread may have
    /// left to it; and how often it has asked.
    static BYTES: Cell<usize> = const { Cell::new(1 << 40) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// The most bytes that it had at once.
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn bytes() -> usize {
    BYTES.get()
}

/// How often `call` asks for memory, and what it returns.
fn allocations<R>(call: impl FnOnce() -> R) -> (usize, R) {
    let before = CALLS.get();
    let result = call();
    (CALLS.get() - before, result)
}

#[allow(unsafe_code)]
// SAFETY: forwards to the system's allocator and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends gives back the last of its memory after these have gone.
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        let _ = BYTES.try_with(|bytes| MOST.try_with(|most| most.set(most.get().max(bytes.get()))));
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() - layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: usize = 16;

/// What slabs are cut from: the last one may be all but empty.
const SEGMENT: usize = 2 << 20;

fn sequence(seed: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| seed.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b)).collect()
}

fn serve(session: &Session, space: &Namespace, tokens: &[Token]) {
    let hit = session.match_prefix(space, tokens);
    let need = tokens.len() / BLOCK - hit.blocks().len();
    let blocks = session.reserve(need).expect("nothing is leased for long");
    drop(session.insert(hit.lease(), tokens, blocks).expect("a sound insert"));
}

/// Slots that were freed together wait for who needs them, and none of them keeps a slab once
/// nothing is cached.
#[test]
fn a_cache_that_was_emptied_keeps_no_slab_for_freed_slots() {
    let leaves = 20_000;
    type Verb = fn(&PrefixCache);
    let verbs: [(bool, Verb); 3] =
        [(false, |cache| _ = cache.evict(usize::MAX)), (false, PrefixCache::clear), (true, PrefixCache::settle)];
    for (is_reserved, empty) in verbs {
        let cache = PrefixCache::builder(BLOCK, leaves).clock(Clock::Logical).build().expect("sound");
        let (session, space) = (cache.session(), cache.default_namespace());
        let prompts: Vec<_> = (0..leaves as u32).map(|seed| sequence(seed, BLOCK)).collect();
        prompts.iter().for_each(|prompt| serve(&session, &space, prompt));
        // In no order: neighbours in the order of eviction lie far from each other.
        for (time, at) in (0..leaves).map(|i| (i, i * 7_919 % leaves)) {
            cache.set_time(1 + time as u64);
            drop(session.match_prefix(&space, &prompts[at]));
        }
        assert!(cache.stats().slab_bytes > 2 * SEGMENT);
        if is_reserved {
            // A reservation evicts, and gives no memory back.
            drop(session.reserve(leaves).expect("nothing is leased"));
        }
        drop(session);
        empty(&cache);
        assert_eq!(cache.stats().runs, 0);
        // One segment is kept, and the new root after a clear may lie in another.
        assert!(cache.stats().slab_bytes <= 2 * SEGMENT, "{}", cache.stats().slab_bytes);
    }
}

// Holds: LE7, NU9, NU12.
#[test]
fn the_index_stays_within_its_bound_and_is_counted_truly() {
    let before = bytes();
    let capacity = 20_000;
    let cache = PrefixCache::builder(BLOCK, capacity).clock(Clock::Logical).build().expect("sound");
    let session = cache.session();
    let space = cache.default_namespace();
    let empty = bytes() - before;
    for turn in 0..600_u32 {
        cache.set_time(u64::from(turn));
        // Shared stems, own tails, every length: full and evicting from the fortieth request on.
        let stem = sequence(turn % 7, 4_000 + (turn as usize * 37) % 3_000);
        let tail = sequence(1_000 + turn, 500 + (turn as usize * 101) % 9_000);
        let tokens = [stem, tail].concat();
        serve(&session, &space, &tokens);
        drop(tokens);

        let stats = cache.stats();
        let held = bytes() - before + stats.slab_bytes;
        let cached = stats.evictable_blocks + stats.protected_blocks;
        let payload = 4 * cached * BLOCK + 4 * cached;
        assert!(held <= payload + payload / 4 + SEGMENT + 1_000_000, "{held} bytes for {payload} of payload at {turn}");
        let told = stats.index_bytes + empty;
        assert!(held <= told + told / 8 + SEGMENT + 100_000, "{held} bytes counted, {told} told at {turn}");
    }
    let cached = capacity - cache.stats().free_blocks;
    assert_eq!(cache.evict(usize::MAX), cached);
    cache.settle();
    assert_eq!((cache.stats().runs, cache.stats().points), (0, 0));
    // Tables that grew with the cache stay; they follow its leaves, not its tokens.
    assert!(bytes() - before <= empty + 200_000);
    assert!(cache.stats().slab_bytes <= SEGMENT);
    drop((session, space, cache));
    let left = bytes().saturating_sub(before);
    assert!(left < 1_000, "{left} bytes left of a dropped cache");
}

/// A full cache on a logical clock, and a prompt that is cached in it.
fn warm() -> (PrefixCache, Vec<Token>) {
    let cache = PrefixCache::builder(BLOCK, 64).clock(Clock::Logical).build().expect("sound");
    let (session, space, prompt) = (cache.session(), cache.default_namespace(), sequence(1, 20 * BLOCK));
    serve(&session, &space, &prompt);
    serve(&session, &space, &prompt[..7 * BLOCK]);
    cache.settle();
    (cache, prompt)
}

/// What the documentation says allocates nothing, and where there is room for the result neither do
/// these.
// Holds: MA11.
#[test]
fn looking_leasing_again_and_letting_go_ask_for_no_memory() {
    let (cache, prompt) = warm();
    let (session, space) = (cache.session(), cache.default_namespace());
    let mut blocks = Vec::with_capacity(64);
    // The first lease of a session draws on what counts them.
    drop(session.match_prefix_into(&space, &prompt, &mut blocks));
    assert_eq!(allocations(|| session.peek(&space, &prompt)), (0, 20 * BLOCK));
    assert_eq!(allocations(|| session.peek(&space, &prompt[..3 * BLOCK])), (0, 3 * BLOCK), "inside a run");
    let (calls, lease) = allocations(|| session.match_prefix_into(&space, &prompt, &mut blocks));
    assert_eq!((calls, blocks.len()), (0, 20), "to an end that is there");
    let (calls, again) = allocations(|| lease.try_clone().expect("few leases"));
    assert_eq!((calls, allocations(|| drop(again)).0), (0, 0));
    let (calls, lease) = allocations(|| session.resume_into(lease, &prompt, &mut blocks));
    assert_eq!((calls, allocations(|| drop(lease)).0), (0, 0));
    assert!(allocations(|| Vec::<u8>::with_capacity(64)).0 > 0, "the counting counts");
    // A point is made there, in a slot.
    let lease = session.match_prefix_into(&space, &prompt[..3 * BLOCK], &mut blocks);
    assert_eq!(blocks.len(), 3);
    assert_eq!(allocations(|| drop(lease)).0, 0);
}

/// However many lookups there are: they leave nothing for the evictor to take in.
// Holds: MA12.
#[test]
fn lookups_among_many_ask_for_no_memory() {
    let cache = PrefixCache::builder(1, 4_096).clock(Clock::Logical).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let root = session.match_prefix(&space, &[]).into_lease();
    for key in 0..200 {
        drop(session.insert(&root, &[key], session.reserve(1).expect("room")));
    }
    let mut blocks = Vec::with_capacity(4);
    let asked = (0..3_000).map(|_| allocations(|| drop(session.match_prefix_into(&space, &[7], &mut blocks))).0);
    assert_eq!(asked.sum::<usize>(), 0);
}

/// As `mem::forget` says: nothing comes back, however many other handles are dropped.
// Holds: LE8.
#[test]
fn a_forgotten_lease_keeps_the_whole_cache() {
    let before = bytes();
    let (cache, prompt) = warm();
    let held = bytes() - before;
    std::mem::forget(cache.session().match_prefix(&cache.default_namespace(), &prompt).into_lease());
    drop(cache);
    assert!(bytes() - before >= held, "{} bytes of {held}", bytes() - before);

    let before = bytes();
    let (cache, prompt) = warm();
    let lease = cache.session().match_prefix(&cache.default_namespace(), &prompt).into_lease();
    drop(cache);
    assert!(bytes() - before >= held);
    drop(lease);
    assert!(bytes() - before < 2_000, "{} bytes left: one that is dropped keeps nothing", bytes() - before);
}

/// Whatever ends many runs at once needs little memory for it.
#[test]
fn evicting_clearing_and_dropping_ask_for_little() {
    let most = |call: &mut dyn FnMut()| {
        let before = bytes();
        MOST.set(before);
        call();
        MOST.get() - before
    };
    for way in ["evict", "clear", "drop"] {
        let cache = PrefixCache::builder(1, 30_000).clock(Clock::Logical).build().expect("sound");
        let (session, space) = (cache.session(), cache.default_namespace());
        let root = session.match_prefix(&space, &[]).into_lease();
        for key in 0..30_000 {
            drop(session.insert(&root, &[key], session.reserve(1).expect("room")));
        }
        cache.settle();
        drop((session, space, root));
        let mut cache = Some(cache);
        let needed = most(&mut || match (way, &cache) {
            ("evict", Some(cache)) => _ = cache.evict(usize::MAX),
            ("clear", Some(cache)) => cache.clear(),
            _ => cache = None,
        });
        assert!(needed < 6_000_000, "{way}: {needed} bytes");
    }
}

/// What waits to be freed waits in a list, whose own memory is in no number of the cache.
#[test]
fn what_is_freed_late_leaves_nothing_that_is_not_counted() {
    type Verb = fn(&PrefixCache);
    let verbs: [(&str, Verb); 4] = [
        ("clear", PrefixCache::clear),
        ("clear_namespace", |cache| cache.default_namespace().clear()),
        ("evict", |cache| _ = cache.evict(usize::MAX)),
        ("evict beside a reader", |cache| {
            let mut is_first = true;
            cache.default_namespace().walk(|_| {
                if std::mem::take(&mut is_first) {
                    cache.evict(usize::MAX);
                }
            });
            cache.settle();
        }),
    ];
    for (name, verb) in verbs {
        let cache = PrefixCache::builder(1, 60_000).clock(Clock::Logical).build().expect("sound");
        let (session, space) = (cache.session(), cache.default_namespace());
        let root = session.match_prefix(&space, &[]).into_lease();
        for key in 0..60_000 {
            drop(session.insert(&root, &[key], session.reserve(1).expect("room")));
        }
        cache.settle();
        drop((session, space, root));
        verb(&cache);
        let (stats, left) = (cache.stats(), bytes());
        assert_eq!((stats.runs, stats.garbage_bytes), (0, 0), "{name}");
        (0..100).for_each(|_| cache.settle());
        let late = left.saturating_sub(bytes());
        assert!(late < 64 << 10, "{name}: {late} bytes freed later");
    }
}

/// Whether their channels were full, and whether anything was told after them.
// Holds: CE5.
#[test]
fn listeners_that_have_gone_leave_nothing() {
    let cache = PrefixCache::builder(BLOCK, 64).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let come_and_go = |told: bool, rounds: u32| {
        for i in 0..rounds {
            let events = cache.subscribe(1);
            if told && i % 2 == 0 {
                serve(&session, &space, &sequence(i, BLOCK));
                cache.evict(1);
                drop(cache.snapshot());
                serve(&session, &space, &sequence(i + 1, BLOCK));
                cache.evict(1);
            }
            drop(events);
        }
        bytes()
    };
    for told in [true, false] {
        // Some garbage waits for its time.
        let few = come_and_go(told, 1_000);
        let many = come_and_go(told, 8_000);
        assert!(many < few + (512 << 10), "{few}, {many}");
    }
}

/// What was told while it was cached, and read, costs nothing more once it is evicted.
#[test]
fn what_a_listener_has_read_goes_with_its_eviction() {
    let cache = PrefixCache::builder(BLOCK, 256).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let mut events = cache.subscribe(1 << 10);
    let turn_over = |rounds: u32, events: &mut radixkv::Subscription| {
        for i in 0..rounds {
            (0..8).for_each(|prompt| serve(&session, &space, &sequence(8 * i + prompt, 16 * BLOCK)));
            while events.try_next().is_some() {}
            cache.evict(8 * 16);
        }
        cache.settle();
        cache.stats().index_bytes
    };
    let (few, many) = (turn_over(100, &mut events), turn_over(1_000, &mut events));
    assert!(many < few + (64 << 10), "{few}, {many}");
}

/// While a reader is pinned, what is handed over one by one takes no more than it is.
#[test]
fn garbage_of_few_nodes_takes_little_while_a_reader_stands_still() {
    const MARKS: usize = 200;
    let cache = PrefixCache::builder(BLOCK, 8).build().expect("sound");
    let (session, space, tokens) = (cache.session(), cache.default_namespace(), sequence(1, BLOCK));
    serve(&session, &space, &tokens);
    let hit = session.match_prefix(&space, &tokens);
    session.demote(hit.lease());
    let mut took = None;
    space.walk(|_| {
        let before = bytes();
        (0..MARKS).for_each(|_| session.demote(hit.lease()));
        took = Some(bytes() - before);
    });
    let took = took.expect("a run was visited");
    // The epochs themselves take two kilobytes for what is handed over.
    assert!(took < 2_500 * MARKS, "{took} bytes");
}

/// A cache of leaves that were used in no order, all but so many of them evicted: bytes of its
/// nodes' memory.
fn slabs_after_eviction(cached: u32) -> usize {
    const LEAVES: u32 = 60_000;
    let cache = PrefixCache::builder(1, LEAVES as usize).clock(Clock::Logical).build().expect("sound");
    let (session, space) = (cache.session(), cache.default_namespace());
    let root = session.match_prefix(&space, &[]).into_lease();
    let insert = |key| session.insert(&root, &[key], session.reserve(1).expect("room")).expect("it fits").lease;
    let mut leases: Vec<_> = (0..LEAVES).map(insert).collect();
    let mut order: Vec<u32> = (0..LEAVES).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    for (time, key) in order.into_iter().enumerate() {
        cache.set_time(1 + time as u64);
        drop(session.match_prefix(&space, &[key]));
    }
    leases.truncate(cached as usize);
    assert_eq!(cache.evict(usize::MAX), (LEAVES - cached) as usize);
    (0..8).for_each(|_| cache.settle());
    assert_eq!((cache.stats().runs, cache.stats().garbage_bytes), (cached as usize, 0));
    cache.stats().slab_bytes
}

#[test]
fn nodes_of_a_cache_that_is_empty_take_no_memory() {
    let bytes = slabs_after_eviction(0);
    assert!(bytes <= 3 * SEGMENT, "{bytes} bytes");
}

/// Slots that are kept ready may lie anywhere: each keeps a slab.
#[test]
fn nodes_of_a_cache_that_is_all_but_empty_take_little_memory() {
    let bytes = slabs_after_eviction(1);
    assert!(bytes <= 3 * SEGMENT, "{bytes} bytes for one run");
}
