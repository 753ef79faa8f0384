//! Remote tiers that break their contract, and numbers at their ends: hits are lost, and nothing
//! else.

mod common;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{BLOCK_BYTES, Engine, PATIENCE, SIZE, host, layout, prompt};
use radixkv::{Eviction, NamespaceName, PrefixCache, Watermarks};
use radixkv_host::{
    HostBuildError, HostTier, MoveError, Mover, NoCopies, TierMode, TieredCache, ToDevice, ToHost,
    radixkv_tiers::{
        BlockKey, Completion, Get, Layout, Miss, NotGot, Outcome, Put, Refusal, Refused, RemoteTier, Stats, Ticket,
    },
};

/// How a [`Liar`] breaks the contract of a remote tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Buffers come back shorter, and are said to hold their blocks.
    ShortBuffers,
    LongBuffers,
    NoBuffers,
    /// Each item is completed twice.
    Twice,
    /// The items of a batch are completed under each other's numbers.
    Swapped,
    /// Items that the batch does not have.
    NoSuchItem,
    /// Batches that never were.
    NoSuchTicket,
    /// All batches have one ticket.
    SameTicket,
    /// A question about keys is answered as if blocks had been put, and the other way round.
    OtherKind,
    /// Reads are completed as puts, and the other way round.
    OtherBuffers,
    /// Refused batches come back without some of their items.
    RefusesFewer,
    /// And with more of them.
    RefusesMore,
    /// And in another order.
    RefusesSwapped,
    /// It accepts half as many as it was given, whatever it was given.
    RefusesHalf,
    /// It has everything, and nothing when it is asked for that.
    HasAll,
    /// It has nothing.
    HasNothing,
}

const LIES: [Lie; 16] = [
    Lie::ShortBuffers,
    Lie::LongBuffers,
    Lie::NoBuffers,
    Lie::Twice,
    Lie::Swapped,
    Lie::NoSuchItem,
    Lie::NoSuchTicket,
    Lie::SameTicket,
    Lie::OtherKind,
    Lie::OtherBuffers,
    Lie::RefusesFewer,
    Lie::RefusesMore,
    Lie::RefusesSwapped,
    Lie::RefusesHalf,
    Lie::HasAll,
    Lie::HasNothing,
];

impl Lie {
    /// Whether what was asked gets no answer.
    fn is_silence(self) -> bool {
        matches!(self, Self::NoSuchItem | Self::NoSuchTicket | Self::OtherKind | Self::OtherBuffers)
    }
}

/// A remote tier in memory that lies when it is told to.
struct Liar {
    layout: Layout,
    state: Mutex<State>,
}

struct State {
    lie: Lie,
    blocks: HashMap<BlockKey, Vec<u8>>,
    tickets: u64,
    polls: u64,
    done: Vec<Completion<Vec<u8>>>,
}

impl Liar {
    fn new() -> Arc<Self> {
        let state = State { lie: Lie::None, blocks: HashMap::new(), tickets: 0, polls: 0, done: Vec::new() };
        Arc::new(Self { layout: layout(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn set(&self, lie: Lie) {
        self.lock().lie = lie;
    }
}

impl State {
    fn refuses<T: Clone>(&self, mut batch: Vec<T>) -> Result<Vec<T>, Refused<Vec<T>>> {
        match self.lie {
            Lie::RefusesFewer => batch.truncate(batch.len() - 1),
            Lie::RefusesMore => batch.extend(batch.clone()),
            Lie::RefusesSwapped => batch.reverse(),
            Lie::RefusesHalf => {
                let asked = batch.len();
                return Err(Refused { batch, reason: Refusal::TooLarge { asked, max: asked / 2 } });
            }
            _ => return Ok(batch),
        }
        Err(Refused { batch, reason: Refusal::Full { asked: 1, in_flight: 1, max: 1 } })
    }

    fn complete(&mut self, outcomes: Vec<Outcome<Vec<u8>>>) -> Ticket {
        if self.lie != Lie::SameTicket {
            self.tickets += 1;
        }
        let (ticket, count, lie) = (Ticket::new(self.tickets), outcomes.len(), self.lie);
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let honest = Completion { ticket, index, outcome };
            match lie {
                Lie::Twice => self.done.extend([honest.clone(), honest]),
                Lie::Swapped => self.done.push(Completion { index: count - 1 - index, ..honest }),
                Lie::NoSuchItem => self.done.push(Completion { index: index + count, ..honest }),
                Lie::NoSuchTicket => self.done.push(Completion { ticket: Ticket::new(u64::MAX), ..honest }),
                Lie::OtherKind => self.done.push(Completion { outcome: other_kind(honest.outcome), ..honest }),
                Lie::OtherBuffers if !matches!(honest.outcome, Outcome::Contained(..)) => {
                    self.done.push(Completion { outcome: other_kind(honest.outcome), ..honest });
                }
                _ => self.done.push(Completion { outcome: resized(lie, honest.outcome), ..honest }),
            }
        }
        ticket
    }
}

fn other_kind(outcome: Outcome<Vec<u8>>) -> Outcome<Vec<u8>> {
    match outcome {
        Outcome::Contained(key, _) => Outcome::Removed(key, Ok(())),
        Outcome::Got(Get { block, buffer }, _) => Outcome::Put(Put { block, buffer, time_to_live: None }, Ok(())),
        Outcome::Put(Put { block, buffer, .. }, _) => Outcome::Got(Get { block, buffer }, Ok(())),
        other => other,
    }
}

fn resized(lie: Lie, mut outcome: Outcome<Vec<u8>>) -> Outcome<Vec<u8>> {
    if let Outcome::Got(Get { buffer, .. }, _) | Outcome::Put(Put { buffer, .. }, _) = &mut outcome {
        match lie {
            Lie::ShortBuffers => buffer.truncate(BLOCK_BYTES - 1),
            Lie::LongBuffers => buffer.push(7),
            Lie::NoBuffers => *buffer = Vec::new(),
            _ => {}
        }
    }
    outcome
}

impl RemoteTier<Vec<u8>> for Liar {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let mut state = self.lock();
        let has = |state: &State, key| match state.lie {
            Lie::HasAll => true,
            Lie::HasNothing => false,
            _ => state.blocks.contains_key(key),
        };
        let outcomes = keys.iter().map(|key| Outcome::Contained(*key, Ok(has(&state, key)))).collect();
        Ok(state.complete(outcomes))
    }

    fn get_into(&self, gets: Vec<Get<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Get<Vec<u8>>>>> {
        let mut state = self.lock();
        let gets = state.refuses(gets)?;
        let outcome = |mut get: Get<Vec<u8>>| match state.blocks.get(&get.block.key()) {
            Some(bytes) => {
                get.buffer.copy_from_slice(bytes);
                Outcome::Got(get, Ok(()))
            }
            None => Outcome::Got(get, Err(NotGot::Miss(Miss::Absent))),
        };
        let outcomes = gets.into_iter().map(outcome).collect();
        Ok(state.complete(outcomes))
    }

    fn put_from(&self, puts: Vec<Put<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Put<Vec<u8>>>>> {
        let mut state = self.lock();
        let puts = state.refuses(puts)?;
        for put in &puts {
            state.blocks.insert(put.block.key(), put.buffer.clone());
        }
        Ok(state.complete(puts.into_iter().map(|put| Outcome::Put(put, Ok(()))).collect()))
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let mut state = self.lock();
        for key in &keys {
            state.blocks.remove(key);
        }
        Ok(state.complete(keys.into_iter().map(|key| Outcome::Removed(key, Ok(()))).collect()))
    }

    fn poll(&self, done: &mut Vec<Completion<Vec<u8>>>, _wait: Duration) -> usize {
        let mut state = self.lock();
        state.polls += 1;
        let ready = mem::take(&mut state.done);
        let count = ready.len();
        done.extend(ready);
        count
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A device and a host of four blocks each, over a tier that lies and one that does not.
fn engine(timeout: Duration) -> (Engine, HostTier, Arc<Liar>, Arc<Liar>) {
    let (near, far) = (Liar::new(), Liar::new());
    let host = host(4).staging(4).remote(Arc::clone(&near)).remote(Arc::clone(&far));
    let host = host.remote_timeout(timeout).build().expect("a tier");
    (Engine::new(4, &host, TierMode::Shared), host, near, far)
}

/// All bytes that are found are compared.
fn serve_all(engine: &Engine, host: &HostTier) {
    for number in 0..3 {
        engine.serve(&prompt(number, 3));
        assert!(host.settle_remote(PATIENCE), "{:?}", host.remote_stats());
    }
}

#[test]
fn a_remote_tier_that_lies_costs_hits_and_nothing_else() {
    for lie in LIES {
        let (engine, host, near, far) = engine(if lie.is_silence() { Duration::from_millis(5) } else { PATIENCE });
        near.set(lie);
        serve_all(&engine, &host);
        near.set(Lie::None);
        serve_all(&engine, &host);
        near.set(lie);
        serve_all(&engine, &host);
        // What it kept out of the other one, or left wrong there, would be found here.
        near.set(Lie::HasNothing);
        serve_all(&engine, &host);
        near.set(Lie::None);
        serve_all(&engine, &host);
        let found = engine.serve(&prompt(0, 3));
        assert!(lie.is_silence() || found == (0, 0, 3 * SIZE), "{lie:?} is over: {:?}", host.remote_stats());
        assert!(host.settle_remote(PATIENCE));
        host.validate().expect("a valid tier");
        let stats = host.stats();
        assert_eq!((stats.pinned_blocks, stats.reserved_blocks), (0, 0), "{lie:?}");
        if lie == Lie::OtherBuffers {
            let remote = host.remote_stats().expect("it has remote tiers");
            assert_eq!((remote.puts_in_flight, remote.gets_in_flight), (0, 0), "all buffers are back");
        }
        host.clear();
        assert_eq!(host.stats().free_blocks, 8, "{lie:?}");
        drop((engine, host));
        assert_eq!((Arc::strong_count(&near), Arc::strong_count(&far)), (1, 1), "{lie:?}: the thread has ended");
    }
}

#[test]
fn no_answer_is_waited_for_after_its_time() {
    let (engine, host, near, _) = engine(Duration::from_millis(5));
    near.set(Lie::NoSuchTicket);
    serve_all(&engine, &host);
    let polls = near.lock().polls;
    thread::sleep(Duration::from_millis(20));
    // One may have been under way.
    assert!(near.lock().polls <= polls + 2, "{} and {polls}", near.lock().polls);
}

#[test]
fn times_without_end_are_times() {
    let (near, forever) = (Liar::new(), Duration::MAX);
    let host = host(4).staging(4).remote(Arc::clone(&near)).remote_timeout(forever).time_to_live(forever);
    let host = host.build().expect("a tier");
    let engine = Engine::new(4, &host, TierMode::Shared);
    for number in [0, 1, 2, 0] {
        engine.serve(&prompt(number, 3));
        assert!(host.settle_remote(forever));
    }
    assert!(host.remote_stats().expect("it has one").put_blocks > 0);
}

#[test]
fn memory_that_is_not_there_is_said() {
    for block_bytes in [1 << 45, 1 << 55, usize::MAX / 4, usize::MAX] {
        let refused = HostTier::builder(16, 1 << 10).block_bytes(block_bytes).build().unwrap_err();
        assert!(matches!(refused, HostBuildError::NoMemory { .. }), "{refused}");
    }
}

/// Beyond the sequence, and beyond what numbers can say.
#[test]
fn places_beyond_a_sequence_hold_nothing() {
    let cache = PrefixCache::builder(2, 8).build().expect("a cache");
    for (size, keys) in [(1, radixkv::Keys::Tokens), (2, radixkv::Keys::Tokens), (2, radixkv::Keys::Bigrams)] {
        let tier = HostTier::builder(size, 8).block_bytes(8).build().expect("a tier");
        let space = cache.namespace(NamespaceName::new(&["a"]).with_keys(keys)).name();
        let tokens = [1, 2, 3, 4, 5];
        assert!(tier.offload().reserve(&space, &tokens, 0).publish() > 0);
        for from in [5, 6, 7, 1 << 33, usize::MAX - 1, usize::MAX] {
            assert_eq!(tier.match_from(&space, &tokens, from).len_tokens(), 0, "{from} of {size}");
            assert_eq!(tier.peek(&space, &tokens, from), 0, "{from} of {size}");
            assert_eq!(tier.snapshot().pin(0, &tokens, from..usize::MAX).blocks(), [0; 0], "{from} of {size}");
            assert_eq!(tier.offload().reserve(&space, &tokens, from).publish(), 0, "{from} of {size}");
            let mut found = tier.match_from(&space, &tokens, 0);
            found.shorten(usize::MAX);
            assert_eq!(found.remove_up_to(0), 0);
        }
        tier.validate().expect("a valid tier");
    }
}

/// What is forgotten stays held, and nothing else.
#[test]
fn what_is_forgotten_is_held_and_the_rest_is_free() {
    let host = host(8).build().expect("a tier");
    let engine = Engine::new(4, &host, TierMode::Shared);
    engine.serve(&prompt(0, 2));
    engine.evict_all();
    let session = engine.tiers.session();
    let found = session.match_prefix(&engine.space(), &prompt(0, 2));
    mem::forget(session.begin(&engine.space(), &prompt(0, 2), 0, found));
    mem::forget(host.match_from(&engine.space().name(), &prompt(0, 2), SIZE));
    mem::forget(host.offload());
    engine.serve(&prompt(1, 2));
    engine.tiers.clear_namespace(&engine.space());
    assert_eq!(engine.serve(&prompt(1, 2)), (0, 0, 0));
    host.clear();
    engine.tiers.cache().clear();
    host.validate().expect("a valid tier");
    assert!(engine.tiers.cache().stats().free_blocks >= 2);
    assert!(host.stats().free_blocks >= 6, "{:?}", host.stats());
}

#[test]
fn tiers_of_nothing_are_tiers() {
    let ahead = Eviction::Background(Watermarks::new(4, 4));
    let cache = PrefixCache::builder(4, 4).eviction(ahead).build().expect("a cache");
    let host = HostTier::builder(4, 4).time_to_live(Duration::ZERO).build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, NoCopies).mover_thread(1).build().expect("tiers");
    let (session, space) = (tiers.session(), cache.default_namespace());
    let acquire = |tokens: &[u32]| {
        let began = Instant::now();
        loop {
            match session.acquire(&space, tokens, 0) {
                Ok(start) => break start,
                // Blocks that the background thread and the mover hold count as reserved.
                Err(refused) => assert!(began.elapsed() < PATIENCE, "{refused}"),
            }
            thread::yield_now();
        }
    };
    for _ in 0..20 {
        for tokens in [&[][..], &[1], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            let start = acquire(tokens);
            let blocks = start.blocks;
            if blocks.len() * 4 + start.lease.len_tokens() == tokens.len() {
                drop(session.insert(&space, &start.lease, tokens, blocks).expect("it fits"));
            }
        }
        assert!(session.acquire(&space, &[9; 17], 0).is_err());
        assert!(session.acquire(&space, &[9], usize::MAX).is_err());
    }
    tiers.evict(usize::MAX);
    // The background thread's copies may be under way.
    let until = Instant::now() + PATIENCE;
    while cache.stats().free_blocks < 4 && Instant::now() < until {
        thread::yield_now();
    }
    host.remove_expired();
    assert_eq!((cache.stats().free_blocks, host.stats().free_blocks), (4, 4));
}

/// A mover that says that it was called, and goes on when it may.
struct Gated {
    called: mpsc::Sender<()>,
    go: Mutex<mpsc::Receiver<()>>,
}

impl Mover for Gated {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        self.called.send(()).map_err(MoveError::new)?;
        self.go.lock().expect("no panic").recv().map_err(MoveError::new)
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        Ok(())
    }
}

#[test]
fn a_line_without_bound_takes_all_that_there_is() {
    let cache = PrefixCache::builder(SIZE, 4).build().expect("a cache");
    let host = HostTier::builder(SIZE, 4).build().expect("a tier");
    let ((called, is_called), (go, gate)) = (mpsc::channel(), mpsc::channel());
    let mover = Gated { called, go: Mutex::new(gate) };
    let tiers = TieredCache::builder(&cache, &host, mover).mover_thread(usize::MAX).build().expect("tiers");
    let (session, space) = (tiers.session(), cache.default_namespace());
    let serve = |number| {
        let start = session.acquire(&space, &prompt(number, 2), 0).expect("room");
        drop(session.insert(&space, &start.lease, &prompt(number, 2), start.blocks).expect("it fits"));
    };
    serve(0);
    serve(1);
    thread::scope(|scope| {
        let all = scope.spawn(|| tiers.evict(usize::MAX));
        is_called.recv().expect("the copy began");
        let none = scope.spawn(|| tiers.evict(usize::MAX));
        // For the second one to ask for room meanwhile.
        thread::sleep(Duration::from_millis(10));
        go.send(()).expect("the mover waits");
        assert_eq!((all.join().expect("no panic"), none.join().expect("no panic")), (4, 0));
    });
    assert_eq!((cache.stats().free_blocks, host.stats().cached_blocks), (4, 4));
}
