//! What lookups and requests pay for remote tiers below the host: tiers that work, that fail, that
//! fall silent, and none.
//!
//! Blocks of 16 KiB and 16 tokens, prompts of 64 blocks, 256 blocks on the device, 1,024 in the
//! host, a store in memory with all that left. Prompts come at random, so most of a prompt is below
//! the device; requests do not wait for remote tiers. Timed are `match_prefix`, which asks them,
//! and `begin`, which evicts, offloads and onboards. Kinds of tiers take turns, in rounds, so that
//! they meet the same load of the machine.
//!
//! On Linux the time of a call is also told apart: what the thread computed, what it waited for a
//! processor although it could have run, and what it slept: for a lock, or for a page of memory
//! that another thread was given first. A tier that fails may make a call compute or sleep longer;
//! that others have the processor is no fault of its. A wait between two clocks counts as one for a
//! processor.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use radixkv::PrefixCache;
use radixkv_host::{
    DeviceMemory, HostTier, TierMode, TieredCache,
    radixkv_tiers::{
        BlockKey, Completion, Failure, Get, Layout, Miss, NotGot, Outcome, Put, Refusal, Refused, RemoteTier, Stats,
        Ticket,
    },
};

const TOKENS: usize = 16;
const BYTES: usize = 16 << 10;
const BLOCKS: usize = 64;
const PROMPTS: u32 = 48;
const ROUNDS: usize = 12;
const REQUESTS: usize = 250;

/// What the store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Works,
    Refuses,
    Fails,
    IsSilent,
}

const MODES: [Mode; 4] = [Mode::Works, Mode::Refuses, Mode::Fails, Mode::IsSilent];

type Bytes = Vec<u8>;

/// A store in memory, that answers at once, or as its mode says.
struct Store {
    layout: Layout,
    mode: AtomicU8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<BlockKey, Bytes>,
    done: VecDeque<Completion<Bytes>>,
    tickets: u64,
}

impl Store {
    fn mode(&self) -> Mode {
        MODES[usize::from(self.mode.load(Relaxed))]
    }

    fn answer<T>(
        &self,
        batch: Vec<T>,
        answer: impl Fn(&mut State, bool, T) -> Outcome<Bytes>,
    ) -> Result<Ticket, Refused<Vec<T>>> {
        if self.mode() == Mode::Refuses {
            return Err(Refused { batch, reason: Refusal::Full { asked: 1, in_flight: 1, max: 1 } });
        }
        let (mut state, fails) = (self.state.lock().expect("no panic"), self.mode() == Mode::Fails);
        state.tickets += 1;
        let ticket = Ticket::new(state.tickets);
        for (index, item) in batch.into_iter().enumerate() {
            let outcome = answer(&mut state, fails, item);
            state.done.push_back(Completion { ticket, index, outcome });
        }
        Ok(ticket)
    }
}

impl RemoteTier<Bytes> for Store {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.answer(keys, |state, fails, key| {
            let answer = if fails { Err(Failure::Unreachable) } else { Ok(state.held.contains_key(&key)) };
            Outcome::Contained(key, answer)
        })
    }

    fn get_into(&self, gets: Vec<Get<Bytes>>) -> Result<Ticket, Refused<Vec<Get<Bytes>>>> {
        self.answer(gets, |state, _, mut get| match state.held.get(&get.block.key()) {
            Some(bytes) => {
                get.buffer.copy_from_slice(bytes);
                Outcome::Got(get, Ok(()))
            }
            None => Outcome::Got(get, Err(NotGot::Miss(Miss::Absent))),
        })
    }

    fn put_from(&self, puts: Vec<Put<Bytes>>) -> Result<Ticket, Refused<Vec<Put<Bytes>>>> {
        self.answer(puts, |state, _, put| {
            state.held.insert(put.block.key(), put.buffer.clone());
            Outcome::Put(put, Ok(()))
        })
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        self.answer(keys, |state, _, key| {
            state.held.remove(&key);
            Outcome::Removed(key, Ok(()))
        })
    }

    fn poll(&self, done: &mut Vec<Completion<Bytes>>, wait: Duration) -> usize {
        let mut ready = match self.mode() {
            Mode::IsSilent => VecDeque::new(),
            _ => std::mem::take(&mut self.state.lock().expect("no panic").done),
        };
        if ready.is_empty() {
            std::thread::sleep(wait);
        }
        let count = ready.len();
        done.extend(ready.drain(..));
        count
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// The times of one thread so far.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall: Instant,
    computed: Duration,
    /// Waited for a processor.
    queued: Duration,
}

/// The time of one call.
#[derive(Debug, Clone, Copy)]
struct Took {
    wall: Duration,
    computed: Duration,
    queued: Duration,
}

impl Clocks {
    fn now() -> Self {
        let rustix::time::Timespec { tv_sec, tv_nsec } =
            rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let computed = Duration::new(tv_sec as u64, tv_nsec as u32);
        // Nanoseconds on a processor, and nanoseconds waited for one; nothing where the system does
        // not say.
        let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let queued = said.split_whitespace().nth(1).and_then(|queued| queued.parse().ok()).unwrap_or(0);
        Self { wall: Instant::now(), computed, queued: Duration::from_nanos(queued) }
    }

    /// What a call took that began then.
    fn took(self, wall: Duration) -> Took {
        let now = Self::now();
        Took { wall, computed: now.computed - self.computed, queued: now.queued - self.queued }
    }
}

impl Took {
    fn slept(&self) -> Duration {
        self.wall.saturating_sub(self.computed).saturating_sub(self.queued)
    }
}

/// Tiers, and the times of what was asked of them.
struct World {
    name: String,
    tiers: TieredCache,
    lookups: Vec<Took>,
    requests: Vec<Took>,
    remote_tokens: usize,
}

fn world(mode: Option<Mode>) -> World {
    let cache = PrefixCache::builder(TOKENS, 256).build().expect("a cache");
    let device = Arc::new(DeviceMemory::new(TOKENS, BYTES, 256));
    let mut host = HostTier::builder(TOKENS, 1024).block_bytes(BYTES).staging(256);
    let mut world_of = Mode::Works;
    if let Some(mode) = mode {
        let layout = Layout::new("model", "bf16", TOKENS, BYTES).expect("a layout");
        let store = Arc::new(Store { layout, mode: AtomicU8::new(0), state: Mutex::default() });
        host = host.remote(Arc::clone(&store)).remote_timeout(Duration::from_millis(100));
        store.mode.store(mode as u8, Relaxed);
        world_of = mode;
    }
    let host = host.build().expect("a tier");
    let tiers = TieredCache::builder(&cache, &host, device).mode(TierMode::Shared).build().expect("they go together");
    let name = if mode.is_some() { format!("{world_of:?}") } else { "no remote tier".to_owned() };
    World { name, tiers, lookups: Vec::new(), requests: Vec::new(), remote_tokens: 0 }
}

impl World {
    fn serve(&mut self, rng: &mut fastrand::Rng) {
        let (session, space) = (self.tiers.session(), self.tiers.cache().default_namespace());
        for _ in 0..REQUESTS {
            let number = rng.u32(0..PROMPTS);
            let prompt: Vec<u32> = (0..(BLOCKS * TOKENS) as u32).map(|at| number * 1_000_003 + at).collect();
            let began = Clocks::now();
            let found = session.match_prefix(&space, &prompt);
            let looked_up = began.wall.elapsed();
            self.lookups.push(began.took(looked_up));
            let began = Clocks::now();
            let start = session.begin(&space, &prompt, 0, found).expect("room").wait();
            let served = began.wall.elapsed();
            self.requests.push(began.took(served));
            self.remote_tokens += start.remote_tokens;
            drop(session.insert(&space, &start.lease, &prompt, start.blocks).expect("it is inserted"));
        }
    }
}

/// The median, the 99th percentile and the longest of times; and of the parts of all calls the
/// longest.
fn spread(calls: &[Took]) -> String {
    let mut times: Vec<Duration> = calls.iter().map(|call| call.wall).collect();
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let longest = |part: &dyn Fn(&Took) -> Duration| calls.iter().map(part).max().unwrap_or_default();
    let (computed, queued, slept) = (longest(&|it| it.computed), longest(&|it| it.queued), longest(&Took::slept));
    format!("{:>9.1?} {:>9.1?} {:>9.1?} ({computed:.1?} {queued:.1?} {slept:.1?})", at(0.5), at(0.99), at(1.0))
}

fn main() {
    let kinds = [None].into_iter().chain(MODES.map(Some));
    let mut worlds: Vec<World> = kinds.map(world).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..ROUNDS {
        worlds.iter_mut().for_each(|world| world.serve(&mut rng));
    }
    println!("median, p99, longest (the most computed, waited for a processor, slept)");
    for World { name, lookups, requests, remote_tokens, .. } in &worlds {
        println!("{name:15} lookup  {}", spread(lookups));
        println!("{:15} request {}, {remote_tokens} tokens from there", "", spread(requests));
    }
}
