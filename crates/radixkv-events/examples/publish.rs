//! A worker that stores and removes random blocks and publishes that, for subscribers to be tried
//! against.
//!
//! ```sh
//! cargo run --release --example publish -- --events 100000 --rate 20000 --batch 10 --seed 1
//! ```
//!
//! Prints where to subscribe as a line of JSON, and begins when it reads a line. Then it prints
//! what it holds, also as a line, and ends when standard input does. `--endpoint` and `--replay`
//! say where to bind, `--ring` how many batches are kept.

use std::{
    error::Error,
    io,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use radixkv_events::{BlockId, Change, HashScheme, Holdings, Publisher, Recorder, Scope, Snapshot, now};

const BLOCK_SIZE: usize = 16;
/// Blocks that the worker has: when they are all held, it only removes.
const POOL: usize = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(default, String::as_str).to_owned()
    };
    let events: u64 = option("--events", "100000").parse()?;
    let rate: f64 = option("--rate", "20000").parse()?;
    let batch: u64 = option("--batch", "10").parse()?;
    let mut worker = Worker::new(option("--seed", "1").parse()?);

    let (truth, epoch) = (Arc::clone(&worker.truth), worker.recorder.epoch());
    let publisher = Publisher::builder(option("--endpoint", "tcp://127.0.0.1:0"))
        .replay(option("--replay", "tcp://127.0.0.1:0"))
        .ring(option("--ring", "10000").parse()?, 256 << 20)
        .snapshot(move || {
            let truth = truth.lock().expect("no thread panics with it");
            Snapshot { next: truth.1, epoch: Some(epoch), events: truth.0.snapshot() }
        })
        .build()?;
    let replay = publisher.replay_endpoint().unwrap_or_default();
    println!(r#"{{"endpoint": "{}", "replay": "{replay}", "epoch": {epoch}}}"#, publisher.endpoint());

    let mut line = String::new();
    while io::stdin().read_line(&mut line)? > 0 {
        let began = Instant::now();
        let (mut done, mut lost) = (0, 0);
        while done < events {
            (0..batch).for_each(|_| worker.step());
            let (count, numbered) = worker.take();
            lost += u64::from(publisher.publish(numbered).is_err());
            done += count;
            thread::sleep(Duration::from_secs_f64(done as f64 / rate).saturating_sub(began.elapsed()));
        }
        let (seconds, truth) = (began.elapsed().as_secs_f64(), worker.truth.lock().expect("no thread panics with it"));
        let digest = truth.0.names().fold(0_u64, |sum, name| sum.wrapping_add(name.bits()));
        let (next, blocks) = (truth.1, truth.0.len());
        println!(
            r#"{{"events": {done}, "next": {next}, "lost": {lost}, "seconds": {seconds:.3}, "blocks": {blocks}, "digest": {digest}}}"#
        );
        line.clear();
    }
    Ok(())
}

/// What the worker holds, and the number of its next batch.
type Truth = Arc<Mutex<(Holdings, u64)>>;

struct Worker {
    random: fastrand::Rng,
    recorder: Recorder,
    truth: Truth,
    sequences: Vec<Vec<BlockId>>,
    free: Vec<BlockId>,
}

impl Worker {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            recorder: Recorder::builder(BLOCK_SIZE, HashScheme::xxh3()).build(),
            truth: Truth::default(),
            sequences: Vec::new(),
            free: (0..POOL as BlockId).collect(),
        }
    }

    /// Stores a block at the end of a sequence, of an old or a new one, or removes the last block
    /// of one.
    fn step(&mut self) {
        if self.random.u32(..16) == 0 {
            self.sequences.push(Vec::new());
        }
        let Some(at) = self.random.choice(0..self.sequences.len()) else { return self.step() };
        let sequence = &mut self.sequences[at];
        let block = if self.random.u32(..5) < 3 { self.free.pop() } else { None };
        if let Some(block) = block {
            let tokens: Vec<u32> = (0..BLOCK_SIZE).map(|_| self.random.u32(..)).collect();
            let parent = sequence.last().map(|&parent| (0, parent));
            let scope = &Scope::default();
            let change = Change::Stored { tier: 0, scope, parent, blocks: &[block], tokens: &tokens, bigrams: false };
            self.recorder.record(&change).expect("a block that was free");
            sequence.push(block);
        } else if let Some(block) = sequence.pop() {
            self.recorder.record(&Change::Removed { tier: 0, blocks: &[block] }).expect("a block that is held");
            self.free.push(block);
        } else {
            self.sequences.swap_remove(at);
            self.step();
        }
    }

    /// The next batch, and how many events it has.
    fn take(&mut self) -> (u64, radixkv_events::Numbered) {
        let numbered = self.recorder.take(now()).expect("a step makes an event");
        let mut truth = self.truth.lock().expect("no thread panics with it");
        for event in &numbered.batch.events {
            truth.0.apply(event).expect("events of one block size");
        }
        truth.1 = numbered.seq + 1;
        (numbered.batch.events.len() as u64, numbered)
    }
}
