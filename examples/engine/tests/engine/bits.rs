//! No bit of a request's logits depends on what the engine does beside it.
//!
//! Random engines (block size, chunks, threads, order, policy, eviction, a pool that is too small,
//! cascade, cache on or off) serve random requests that share prefixes, while sequences are
//! preempted, aborted and forked; every row of logits is compared with the naive one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use engine::config::{Architecture, Config};
use engine::dice::Dice;
use engine::model::Model;
use engine::serve::{Engine, Observed, Options, Stepped};
use radixkv::{Eviction, PolicyKind, Token, Watermarks};
use radixkv_attention::Dtype;
use radixkv_attention::cpu::Cpu;
use radixkv_scheduler::{Order, QueueConfig, Scheduler, SchedulerConfig, SequenceId};

use crate::naive::{Continuation, bits, continuation};
use crate::{assert_at_rest, random, tiny};

const NEW_TOKENS: usize = 12;

/// Longer than any run takes: a run that does not end fails.
const PATIENCE: Duration = Duration::from_secs(300);

fn pick<T: Copy>(dice: &mut Dice, from: &[T]) -> T {
    from[dice.below(from.len())]
}

/// Prompts that share prefixes of all kinds of lengths, with their naive continuations.
fn corpus(model: &Model, dtype: Dtype, dice: &mut Dice) -> Vec<Continuation> {
    let mut prompts: Vec<Vec<Token>> = Vec::new();
    for _ in 0..9 {
        let mut prompt = match prompts.len() {
            0 => Vec::new(),
            others => {
                let other = &prompts[dice.below(others)];
                other[..dice.below(other.len() + 1)].to_vec()
            }
        };
        let own = 1 + dice.below(90);
        prompt.extend((0..own).map(|_| dice.below(64) as Token));
        prompts.push(prompt);
    }
    // Two equal prompts.
    prompts.push(prompts[0].clone());
    prompts.iter().map(|prompt| continuation(model, dtype, prompt, NEW_TOKENS)).collect()
}

/// What the threads of a run share.
struct Run<'r> {
    corpus: &'r [Continuation],
    engine: Engine<'r, Cpu>,
    of: Mutex<HashMap<SequenceId, usize>>,
    /// Rows that were compared.
    compared: Mutex<usize>,
    what: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Run<'_> {
    fn check(&self, seen: Observed<'_>) {
        let continuation = &self.corpus[lock(&self.of)[&seen.id]];
        let at = seen.position - continuation.prompt.len();
        let same = bits(seen.logits) == continuation.logits[at] && seen.token == continuation.output[at];
        assert!(same, "{}: token {at} of a prompt of {}", self.what, continuation.prompt.len());
        *lock(&self.compared) += 1;
    }

    /// Serves until no request is left; with `trouble`, sequences are preempted, aborted and forked
    /// meanwhile.
    fn serve(&self, mut dice: Dice, trouble: bool) {
        let mut scheduler = self.engine.scheduler().expect("good options");
        let mut forks = 3;
        let began = Instant::now();
        while self.engine.queue().unfinished_requests() > 0 {
            assert!(began.elapsed() < PATIENCE, "{}: {:?}", self.what, self.engine.queue());
            match self.engine.step(&mut scheduler, &|seen| self.check(seen)).expect("a good step") {
                Stepped::Idle => drop(scheduler.wait(Duration::from_millis(5))),
                Stepped::Computed { finished, .. } => {
                    for finished in finished {
                        let continuation = &self.corpus[lock(&self.of)[&finished.id]];
                        let expected = [&continuation.prompt[..], &continuation.output].concat();
                        assert_eq!(finished.tokens, expected, "{}", self.what);
                    }
                }
            }
            if trouble && !scheduler.running().is_empty() {
                self.disturb(&mut scheduler, &mut dice, &mut forks);
            }
        }
    }

    fn disturb(&self, scheduler: &mut Scheduler, dice: &mut Dice, forks: &mut usize) {
        let sequence = &scheduler.running()[dice.below(scheduler.running().len())];
        let (id, len, prompt_len) = (sequence.id(), sequence.tokens().len(), sequence.prompt_len());
        match dice.below(24) {
            0 | 1 => drop(scheduler.preempt(id)),
            2 => drop(scheduler.abort(id)),
            3 => {
                let any = lock(&self.of).keys().min().copied();
                any.into_iter().for_each(|id| drop(self.engine.queue().abort(id)));
            }
            4 | 5 if *forks > 0 => {
                *forks -= 1;
                let at = prompt_len + dice.below(len - prompt_len + 1);
                // Held while forking: a fork may be preempted, and another thread may resume it at
                // once.
                let mut of = lock(&self.of);
                let parent = of[&id];
                let ids = scheduler.fork(id, at, 1 + dice.below(2)).unwrap_or_default();
                of.extend(ids.into_iter().map(|id| (id, parent)));
            }
            _ => {}
        }
    }
}

fn options(dice: &mut Dice, corpus: &[Continuation]) -> Options {
    let block_size = pick(dice, &[1, 8, 16, 64]);
    let blocks_of = |c: &Continuation| (c.prompt.len() + NEW_TOKENS).div_ceil(block_size);
    let (wanted, largest) =
        (corpus.iter().map(blocks_of).sum::<usize>(), corpus.iter().map(blocks_of).max().unwrap_or(1));
    let blocks = if dice.below(2) == 0 { (wanted / 3).max(largest) } else { 3 * wanted };
    let chunk = pick(dice, &[7, 16, 33, 64, 100, 512]);
    let running = 1 + dice.below(8) as u32;
    let background = Eviction::Background(Watermarks::new(blocks / 8, blocks / 4));
    Options {
        block_size,
        blocks,
        host_blocks: 0,
        dtype: Dtype::F32,
        policy: pick(dice, &[PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Fifo]),
        eviction: if dice.below(2) == 0 { Eviction::Inline } else { background },
        queue: QueueConfig::default().order(pick(dice, &[Order::Fcfs, Order::LongestPrefix, Order::DfsWeight])),
        scheduler: SchedulerConfig::default()
            .max_running(running)
            .max_batch_tokens(chunk + running as usize)
            .max_chunk_tokens(chunk)
            .min_copied_tokens(pick(dice, &[None, Some(1), Some(5)])),
        threads: pick(dice, &[1, 4]),
        publish: dice.below(5) > 0,
        cascade: dice.below(2) == 0,
        ..Options::default()
    }
}

fn round(model: &Model, dtype: Dtype, corpus: &[Continuation], seed: u64) -> usize {
    let dice = &mut Dice::new(seed);
    let options = Options { dtype, ..options(dice, corpus) };
    let trouble = dice.below(3) > 0;
    let what = format!("seed {seed}, {options:?}");
    let engine = Engine::new(model, Cpu, options.clone()).expect("good options");
    let run = Run { corpus, engine, of: Mutex::default(), compared: Mutex::default(), what };
    for _ in 0..2 * corpus.len() {
        let which = dice.below(corpus.len());
        let id = run.engine.submit(1, corpus[which].prompt.clone(), NEW_TOKENS).expect("a good prompt");
        lock(&run.of).insert(id, which);
    }
    thread::scope(|scope| {
        for thread in 0..options.threads as u64 {
            let (run, dice) = (&run, Dice::new(seed << 8 | thread));
            scope.spawn(move || run.serve(dice, trouble));
        }
    });
    assert_at_rest(run.engine.cache(), &run.what);
    run.compared.into_inner().expect("no thread panicked")
}

fn rounds(config: Config, dtype: Dtype, seeds: std::ops::Range<u64>) {
    let model = random(config, seeds.start);
    let corpus = corpus(&model, dtype, &mut Dice::new(seeds.start));
    let mut compared = 0;
    for seed in seeds {
        compared += round(&model, dtype, &corpus, seed);
    }
    assert!(compared > 500, "only {compared} rows of logits were compared");
}

// Holds: AT10.
#[test]
fn f32() {
    rounds(tiny(), Dtype::F32, 0..25);
}

#[test]
fn bf16_with_ends() {
    rounds(Config { end_tokens: vec![3, 33], ..tiny() }, Dtype::Bf16, 100..125);
}

#[test]
fn llama_in_f16() {
    let config = Config { architecture: Architecture::Llama, tied: false, query_heads: 8, kv_heads: 1, ..tiny() };
    rounds(config, Dtype::F16, 200..225);
}
