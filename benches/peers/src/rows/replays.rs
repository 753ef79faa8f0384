//! The row `replay`: a whole trace, of which each request is matched, reserved, inserted and
//! released. The tokens are made beforehand.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use radixkv_replay::Trace;

use super::FEW;
use crate::arena::{
    BLOCK,
    contender::{Client, Clock, Contender},
    row::{Entry, Round, Row},
    rows::most,
    settings::Settings,
    team::Team,
    tokens::Tokens,
};

/// The prompts of a trace, and the capacity of the cache that serves them.
#[derive(Clone)]
pub(crate) struct Load {
    name: String,
    prompts: Arc<Vec<Tokens>>,
    capacity: usize,
}

impl Load {
    /// Makes the load of a trace. The cache has room for a tenth of the trace's distinct blocks;
    /// prompts that do not fit into it are left out.
    pub(crate) fn new(name: String, trace: &Trace) -> Self {
        let capacity = (trace.working_set_blocks(BLOCK) / 10).max(1);
        let fits = trace.requests().iter().filter(|request| request.prompt_tokens() / BLOCK <= capacity);
        let tokens = fits.map(|request| Tokens::new(request.prompt_tokens(), |out| trace.fill(request, out)));
        Self { name, prompts: Arc::new(tokens.collect()), capacity }
    }

    /// The name of the trace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The row. `entries` are measured by [`serve`].
pub(crate) fn replay(load: &Load, settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let (limit, threads) = (load.clone(), settings.threads.clone());
    entries.insert(0, Entry::limit("each token read once", move || read(limit, threads)));
    let Load { name, prompts, capacity } = load;
    let seconds = settings.threads.iter().map(|&threads| match threads {
        1 => "ms, 1 thread".to_owned(),
        _ => format!("ms, {threads} threads"),
    });
    Row {
        name: "replay",
        what: format!(
            "{name}, {} requests through {capacity} blocks, a tenth of its own, request by request; tokens and hashes that are given \
             made beforehand",
            prompts.len()
        ),
        figures: seconds.chain(["hit %, 1 thread".to_owned()]).collect(),
        entries,
        at_once: false,
        rounds: settings.rounds.min(FEW),
    }
}

/// One replay: a cache, and the next request.
struct Job<C: Contender> {
    cache: Arc<C>,
    next: AtomicUsize,
}

pub(crate) fn serve<C: Contender>(load: Load, settings: &Settings) -> Round {
    let prompts: Arc<Vec<C::Prompt>> = Arc::new(load.prompts.iter().map(C::prompt).collect());
    let total: usize = load.prompts.iter().map(|prompt| prompt.len()).sum();
    let counts = settings.threads.clone();
    let work = move |(): &mut (), job: Arc<Job<C>>| {
        let mut client = C::client(&job.cache);
        let requests = std::iter::from_fn(|| prompts.get(job.next.fetch_add(1, Relaxed)));
        let hit: usize = requests.map(|prompt| client.insert(prompt, &mut Clock::default())).sum();
        client.settle();
        hit
    };
    let mut team = Team::new(most(settings), |_| (), work);
    let mut run = move |count: usize| {
        let job = Arc::new(Job { cache: Arc::new(C::new(load.capacity)), next: AtomicUsize::new(0) });
        let (taken, hits) = team.run(count, job);
        (taken.as_secs_f64() * 1e3, 100.0 * hits.iter().sum::<usize>() as f64 / total as f64)
    };
    Box::new(move || {
        let runs: Vec<(f64, f64)> = counts.iter().map(|&count| run(count)).collect();
        runs.iter().map(|run| run.0).chain([runs[0].1]).collect()
    })
}

fn read(load: Load, threads: Vec<usize>) -> Round {
    Box::new(move || {
        let begun = Instant::now();
        let sum = |prompt: &Tokens| prompt.iter().fold(0u32, |sum, &token| sum.wrapping_add(token));
        black_box(load.prompts.iter().map(sum).fold(0, u32::wrapping_add));
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        // Reading scales with the threads: each takes its share of the time.
        threads.iter().map(|&threads| taken / threads as f64).chain([f64::NAN]).collect()
    })
}
