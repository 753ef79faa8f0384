//! Counts the cache lines that an operation would fetch from another core. Sessions take turns at
//! random on one thread; in each turn a session replaces one prompt in a full pool, and valgrind's
//! lackey logs each memory access. Each session models a core with an unbounded cache: a line
//! is *far* if another session has written it since this one last touched it, or if this one writes
//! it while another one has a copy. The counts depend neither on the load nor on the machine: the
//! cache is built with a stripe for each session.
//!
//! `lines.sh` beside this file runs `lines KIND`, traced, and `lines count`, which reads the trace.
//! The kinds are `one`, with one shard; `shards`, with a shard and a thread for each session; and
//! `shared`, the same with prompts whose first half is common. It prints the average number of
//! `far` lines per turn, how many of those are `written`, and the number of `hot` lines, which more
//! than half of all turns fetch.

use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
    io::{self, BufRead},
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::sync_channel,
    },
};

use radixkv::{Clock, Namespace, PrefixCache, Session, Token};

use crate::common::sequence;

const SESSIONS: usize = 16;
const BLOCK: usize = 16;
const TOKENS: usize = 256;
/// Prompts that fit into the pool.
const CACHED: usize = 200;
/// Turns that are not counted: after them the pool is full, and each session has its magazines and
/// records.
const FIRST: usize = 2 * CACHED;
const COUNTED: usize = 300;
/// Addresses from here on belong to the stack and are ignored.
const STACK: u64 = 0x1f_f000_0000;

/// Marks in the trace: session `i` writes word `i` when its operation begins; the last word is
/// written when the operation ends.
static MARKS: [AtomicU64; SESSIONS + 1] = [const { AtomicU64::new(0) }; SESSIONS + 1];

pub(crate) fn run(what: &str) -> ExitCode {
    match what {
        "one" => take_turns(),
        "shards" => take_turns_of_shards(0),
        "shared" => take_turns_of_shards(TOKENS / 2),
        "count" => count(io::stdin().lock().lines().map_while(Result::ok)),
        _ => {
            eprintln!("instructions: lines one, shards, shared or count");
            return ExitCode::FAILURE;
        }
    }
    // Exits without dropping the prepared state, so that the trace ends with the last turn.
    std::process::exit(0)
}

fn cache(shards: usize) -> PrefixCache {
    let builder = PrefixCache::builder(BLOCK, CACHED * TOKENS / BLOCK).shards(shards).clock(Clock::Logical);
    builder.build().expect("a sound configuration")
}

/// Prompts whose first `common` tokens are equal, each with the session that inserts it.
fn prompts(common: usize) -> impl Iterator<Item = (usize, Vec<Token>)> {
    let mut random = 1_u64;
    (0..(FIRST + COUNTED) as u32).map(move |seed| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut prompt = sequence(seed, TOKENS);
        prompt[..common].fill(1);
        ((random >> 33) as usize % SESSIONS, prompt)
    })
}

/// One operation of session `at`.
fn turn_over(at: usize, (session, found): &mut (Session, Vec<u32>), space: &Namespace, prompt: &[Token]) {
    MARKS[at].store(1, Relaxed);
    let miss = session.match_prefix_into(space, prompt, found);
    let blocks = session.reserve((TOKENS - miss.len_tokens()) / BLOCK).expect("blocks can be evicted");
    drop(black_box(session.insert(&miss, prompt, blocks).expect("it fits")));
    drop(miss);
    MARKS[SESSIONS].store(1, Relaxed);
}

fn take_turns() {
    let cache = cache(1);
    let space = cache.default_namespace();
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| (cache.session(), Vec::with_capacity(64))).collect();
    for (time, (at, prompt)) in (1..).zip(prompts(0)) {
        cache.set_time(time);
        turn_over(at, &mut sessions[at], &space, &prompt);
    }
}

/// As `take_turns`, with a shard and a thread for each session; one of the threads runs at a time.
fn take_turns_of_shards(common: usize) {
    let cache = cache(SESSIONS);
    let space = cache.default_namespace();
    std::thread::scope(|scope| {
        let start = |at: usize| {
            let ((prompt, prompts), (done, dones)) = (sync_channel::<Vec<Token>>(0), sync_channel::<()>(0));
            let (mut session, space) = ((cache.session(), Vec::with_capacity(64)), &space);
            scope.spawn(move || {
                for prompt in prompts {
                    turn_over(at, &mut session, space, &prompt);
                    done.send(()).expect("the other end waits");
                }
            });
            (prompt, dones)
        };
        let threads: Vec<_> = (0..SESSIONS).map(start).collect();
        for (time, (at, prompt)) in (1..).zip(prompts(common)) {
            cache.set_time(time);
            threads[at].0.send(prompt).expect("the thread waits");
            threads[at].1.recv().expect("the thread sends");
        }
        std::process::exit(0)
    })
}

/// The far lines of one operation, and whether it wrote each.
type Far = HashMap<u64, bool>;

#[derive(Default)]
struct Caches {
    /// For each line, the sessions that have a copy, as a bit set.
    copies: HashMap<u64, u32>,
    /// The session whose operation runs.
    running: Option<usize>,
    operations: Vec<Far>,
}

impl Caches {
    fn access(&mut self, address: u64, bytes: u64, writes: bool) {
        let marks = MARKS[0].as_ptr() as u64..MARKS[SESSIONS].as_ptr() as u64 + 8;
        if marks.contains(&address) {
            let mark = ((address - marks.start) / 8) as usize;
            self.running = (mark < SESSIONS).then_some(mark);
            if self.running.is_some() {
                self.operations.push(Far::new());
            }
            return;
        }
        let Some(session) = self.running.filter(|_| address < STACK) else { return };
        for line in address / 64..=(address + bytes - 1) / 64 {
            self.touch(line, 1 << session, writes);
        }
    }

    fn touch(&mut self, line: u64, session: u32, writes: bool) {
        let had = self.copies.get(&line).copied();
        let copies = if writes { session } else { had.unwrap_or(0) | session };
        self.copies.insert(line, copies);
        let is_far = had.is_some_and(|had| if writes { had != session } else { had & session == 0 });
        if is_far {
            let operation = self.operations.last_mut().expect("one runs");
            *operation.entry(line).or_default() |= writes;
        }
    }
}

/// Reads a trace of lackey: ` L address,bytes` is a load, `S` a store, `M` both.
fn count(trace: impl Iterator<Item = String>) {
    let mut caches = Caches::default();
    for line in trace {
        let Some((kind, rest)) = line.strip_prefix(' ').and_then(|line| line.split_at_checked(2)) else { continue };
        let Some((address, bytes)) = rest.split_once(',') else { continue };
        if let (Ok(address), Ok(bytes)) = (u64::from_str_radix(address, 16), bytes.parse()) {
            caches.access(address, bytes, !kind.starts_with('L'));
        }
    }
    let counted = caches.operations.get(FIRST..).filter(|counted| counted.len() == COUNTED);
    let counted = counted.expect("a trace of `lines` by this program");
    let all: usize = counted.iter().map(Far::len).sum();
    let written: usize = counted.iter().map(|far| far.values().filter(|written| **written).count()).sum();
    let mut by_line = HashMap::<u64, usize>::new();
    counted.iter().flat_map(Far::keys).for_each(|line| *by_line.entry(*line).or_default() += 1);
    let hot: HashSet<u64> =
        by_line.into_iter().filter(|(_, times)| 2 * times > COUNTED).map(|(line, _)| line).collect();
    let each = |count: usize| count as f64 / COUNTED as f64;
    println!("{:<8} {:>6.1}", "far", each(all));
    println!("{:<8} {:>6.1}", "written", each(written));
    println!("{:<8} {:>6}", "hot", hot.len());
}
