//! The command `engine`: parses arguments, runs the engine with and without the cache, and prints
//! tables.

#[cfg(feature = "serve")]
mod listen;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use radixkv::{Eviction, PolicyKind, Token, Watermarks};
use radixkv_attention::Dtype;
use radixkv_attention::cpu::Cpu;
#[cfg(feature = "cuda")]
use radixkv_cuda::{Device, Staged};
use radixkv_scheduler::{Order, QueueConfig, SchedulerConfig, SequenceId};

use crate::acceptance::Acceptance;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::{Config, ConfigError};
use crate::host_tier::HostTierError;
use crate::model::{HostBackend, Model, RandomWeights};
use crate::prompts::{Prompt, PromptError};
use crate::sampling::Sampling;
use crate::serve::{Engine, Options, ServeError};
#[cfg(feature = "serve")]
use crate::server::ServerError;
use crate::tables::{self, Run};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Continues prompts with a model, with the cache and without, and reports what the cache saved.
#[derive(Debug, Parser)]
#[command(name = "engine", version)]
struct Arguments {
    /// A Hugging Face directory (config.json, *.safetensors, tokenizer.json) of a Llama or Qwen3
    /// model. Without one: a small model of seeded weights on bytes, whose answers mean nothing.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// File of prompts: a .jsonl with one chat a line ({"messages": [...]}), or any other file with
    /// one text a line.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// A text to continue; may be given several times.
    #[arg(long, value_name = "TEXT")]
    text: Vec<String>,
    /// Number of questions to generate if neither prompts nor texts are given.
    #[arg(long, default_value_t = 32, value_name = "N")]
    requests: usize,
    /// Maximum number of tokens that each prompt is continued by.
    #[arg(long, default_value_t = 32, value_name = "N")]
    new_tokens: usize,
    /// Tokens in a block.
    #[arg(long, default_value_t = 16, value_name = "TOKENS")]
    block_size: usize,
    /// Blocks of keys and values.
    #[arg(long, default_value_t = 512, value_name = "N")]
    blocks: usize,
    /// Blocks of a host tier: idle blocks are copied there before they are evicted, and are copied
    /// back when a prompt needs them. 0 is no host tier.
    #[arg(long, default_value_t = 0, value_name = "N")]
    host_blocks: usize,
    /// How keys and values are stored: f32, f16, bf16.
    #[arg(long, default_value = "bf16", value_name = "TYPE")]
    dtype: Dtype,
    /// Scheduler threads.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Maximum number of tokens of one prompt in one step.
    #[arg(long, default_value_t = 256, value_name = "TOKENS")]
    chunk: usize,
    /// Sequences that one thread runs at once.
    #[arg(long, default_value_t = 16, value_name = "N")]
    running: u32,
    /// Which request is admitted next: fcfs, longest-prefix, dfs-weight.
    #[arg(long, default_value = "fcfs", value_parser = order)]
    order: Order,
    /// Which idle prefix is evicted first.
    #[arg(long, default_value_t = PolicyKind::default(), value_name = "POLICY")]
    policy: PolicyKind,
    /// Runs without the cache only.
    #[arg(long)]
    no_cache: bool,
    /// Minimum number of tokens to copy instead of compute if a cached block matches in part.
    #[arg(long, value_name = "TOKENS")]
    copy: Option<usize>,
    /// Reads prefixes that decoding sequences share once (cascade attention).
    #[arg(long)]
    cascade: bool,
    /// Where attention is computed and keys and values are kept: cpu, cuda (in builds with the
    /// feature of that name). Everything else is computed on the CPU.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda"])]
    device: String,
    /// Temperature: logits are divided by it; 0 always takes the largest logit.
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    temperature: f32,
    /// Samples from this number of the largest logits; 0 is all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    top_k: usize,
    /// Samples from the fewest tokens whose probabilities reach this sum.
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    top_p: f32,
    /// Seed of the weights and of sampling.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Serves one request that shares 97 tokens with an earlier one, and checks the saving and that
    /// no bit changes.
    #[arg(long)]
    acceptance: bool,
    /// Serves OpenAI's interface over HTTP at this address, such as localhost:8000, until the
    /// process is interrupted. Sampling parameters that a request lacks are those of the command.
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["prompts", "text", "acceptance"])]
    serve: Option<String>,
    /// Maximum number of waiting requests, with --serve; more are answered with 429.
    #[cfg(feature = "serve")]
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    waiting: u16,
    /// Publishes KV events as vLLM does, with --serve: the blocks that the cache stores and
    /// removes, for routers; such as tcp://127.0.0.1:5557.
    #[cfg(feature = "events")]
    #[arg(long, value_name = "ENDPOINT", requires = "serve")]
    events: Option<String>,
    /// Replays events for routers that missed some or started late, such as at
    /// tcp://127.0.0.1:5558.
    #[cfg(feature = "events")]
    #[arg(long, value_name = "ENDPOINT", requires = "events")]
    events_replay: Option<String>,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The arguments cannot be parsed.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The tokenizer cannot be read, or belongs to another model.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// There is nothing to continue.
    #[error(transparent)]
    Prompts(#[from] PromptError),
    /// The engine refused a request, or stopped.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// There is no GPU that this engine can use.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] radixkv_cuda::OpenError),
    /// The engine was built without support for a GPU.
    #[cfg(not(feature = "cuda"))]
    #[error("this engine was built without the feature `cuda`")]
    NoCuda,
    /// There is no such host tier.
    #[error("{0}")]
    HostTier(#[from] HostTierError),
    /// The server ended with an error, or could not start.
    #[cfg(feature = "serve")]
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The acceptance case failed: a count or an output is not as expected.
    #[error("the acceptance case failed: the figures or the outputs are not as expected")]
    Acceptance,
    /// The cache changed an output.
    #[error("the outputs with the cache and without it differ")]
    Outputs,
}

impl CommandError {
    /// The exit code: 2 if the arguments or the prompts were wrong, 1 if something else failed.
    pub fn code(&self) -> u8 {
        match self {
            Self::Arguments(error) => error.exit_code() as u8,
            Self::Prompts(_) | Self::HostTier(_) => 2,
            #[cfg(not(feature = "cuda"))]
            Self::NoCuda => 2,
            Self::Serve(ServeError::Failed(_) | ServeError::NotFinite { .. }) => 1,
            Self::Serve(_) => 2,
            #[cfg(feature = "serve")]
            Self::Server(ServerError::Listen { .. }) => 2,
            #[cfg(feature = "events")]
            Self::Server(ServerError::Events(_)) => 2,
            _ => 1,
        }
    }
}

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    match run(std::env::args_os(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Arguments(error)) => error.exit(),
        // The reader of the output has closed it.
        Err(CommandError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.code())
        }
    }
}

/// Runs the command; `arguments` begin with its name.
///
/// # Errors
///
/// [`CommandError`], whose text is one line.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> Result<(), CommandError> {
    let arguments = Arguments::try_parse_from(arguments)?;
    if arguments.acceptance {
        return accept(out);
    }
    let (model, tokenizer) = arguments.load()?;
    #[cfg(feature = "serve")]
    if let Some(address) = &arguments.serve {
        return listen::listen(&arguments, address, &model, tokenizer, out);
    }
    let prompts = Prompt::tokens(&arguments.prompts()?, &tokenizer)?;
    let mut runs = Vec::new();
    for publish in [true, false] {
        if publish && arguments.no_cache {
            continue;
        }
        runs.push((if publish { "with the cache" } else { "without" }, arguments.serve(&model, &prompts, publish)?));
    }
    if arguments.model.is_some() {
        for (number, answer) in runs[0].1.finished.iter().enumerate() {
            writeln!(out, "{}: {}", number + 1, tokenizer.decode(&answer.tokens[answer.prompt_len..]).trim())?;
        }
    }
    writeln!(out, "{}", tables::runs(&runs))?;
    let outputs = |run: &Run| run.finished.iter().map(|finished| finished.tokens.clone()).collect::<Vec<_>>();
    match runs.iter().all(|(_, run)| outputs(run) == outputs(&runs[0].1)) {
        true if runs.len() > 1 => writeln!(out, "outputs are the same").map_err(CommandError::Write),
        true => Ok(()),
        // On a GPU, the order of sums depends on the batch, so two nearly equal logits may change
        // their order.
        false if arguments.on_gpu() => {
            writeln!(out, "outputs differ: a GPU promises closeness, not bits").map_err(CommandError::Write)
        }
        false => Err(CommandError::Outputs),
    }
}

impl Arguments {
    fn load(&self) -> Result<(Model, Tokenizer), CommandError> {
        let Some(directory) = &self.model else {
            let small = Config::small();
            // The smallest head that the GPU kernels are compiled for.
            let head_dim = if self.on_gpu() { 64 } else { small.head_dim };
            let Ok(model) = Model::load(Config { head_dim, ..small }, &RandomWeights::new(self.seed), |_| {});
            return Ok((model, Tokenizer::Bytes));
        };
        let config = Config::read(directory)?;
        let tokenizer = Tokenizer::read(directory, config.vocab_size, config.max_positions)?;
        let checkpoint = Checkpoint::open(directory)?;
        let bar = bar("layers", config.layers);
        let model = Model::load(config, &checkpoint, |layers| bar.set_position(layers as u64))?;
        bar.finish_and_clear();
        Ok((model, tokenizer))
    }

    fn on_gpu(&self) -> bool {
        self.device == "cuda"
    }

    fn prompts(&self) -> Result<Vec<Prompt>, CommandError> {
        let texts = self.text.iter().cloned().map(Prompt::Text);
        match &self.prompts {
            Some(path) => Ok(Prompt::read(path)?.into_iter().chain(texts).collect()),
            None if self.text.is_empty() => Ok(Prompt::samples(self.requests)),
            None => Ok(texts.collect()),
        }
    }

    fn options(&self, publish: bool) -> Options {
        let watermarks = Watermarks::new(self.blocks / 32, self.blocks / 16);
        Options {
            block_size: self.block_size,
            blocks: self.blocks,
            // Without publishing there are no cached blocks that a host tier could keep.
            host_blocks: if publish { self.host_blocks } else { 0 },
            dtype: self.dtype,
            policy: self.policy,
            eviction: Eviction::Background(watermarks),
            queue: QueueConfig::default().order(self.order),
            scheduler: SchedulerConfig::default()
                .max_running(self.running)
                .max_batch_tokens(self.chunk.saturating_add(self.running as usize))
                .max_chunk_tokens(self.chunk)
                .min_copied_tokens(self.copy),
            threads: usize::from(self.threads),
            publish,
            cascade: self.cascade,
            sampling: Sampling { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p, seed: self.seed },
        }
    }

    /// Makes the engine, with a host tier if the arguments ask for one.
    fn engine<'m, B>(&self, backend: B, model: &'m Model, publish: bool) -> Result<Engine<'m, B>, CommandError>
    where
        B: HostBackend + Clone + Send + Sync + 'static,
        B::Kv: Send + Sync + 'static,
    {
        let options = self.options(publish);
        let largest = options.blocks.min(model.config().max_positions.div_ceil(options.block_size.max(1)));
        if (1..largest).contains(&options.host_blocks) {
            eprintln!(
                "warning: the host tier has {} blocks, a request may have {largest}: what is evicted of it at once is kept in part",
                options.host_blocks
            );
        }
        Ok(Engine::new(model, backend, options)?.over_host_tier()?)
    }

    fn serve(&self, model: &Model, prompts: &[Vec<Token>], publish: bool) -> Result<Run, CommandError> {
        if !self.on_gpu() {
            return self.serve_on(Cpu, model, prompts, publish);
        }
        #[cfg(feature = "cuda")]
        return self.serve_on(Staged::new(&Device::open(0)?), model, prompts, publish);
        #[cfg(not(feature = "cuda"))]
        Err(CommandError::NoCuda)
    }

    fn serve_on<B>(&self, backend: B, model: &Model, prompts: &[Vec<Token>], publish: bool) -> Result<Run, CommandError>
    where
        B: HostBackend + Clone + Send + Sync + 'static,
        B::Kv: Send + Sync + 'static,
    {
        let engine = self.engine(backend, model, publish)?;
        for (index, tokens) in prompts.iter().enumerate() {
            engine.submit(index + 1, tokens.clone(), self.new_tokens)?;
        }
        let bar = bar("tokens", prompts.len() * self.new_tokens);
        let first: Mutex<HashMap<SequenceId, Duration>> = Mutex::default();
        let began = Instant::now();
        let finished = engine.serve(&|seen| {
            bar.inc(1);
            let mut first = first.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            first.entry(seen.id).or_insert_with(|| began.elapsed());
        })?;
        let took = began.elapsed();
        bar.finish_and_clear();
        let mut first: Vec<Duration> =
            first.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).into_values().collect();
        first.sort_unstable();
        Ok(Run { finished, first, took })
    }
}

fn order(name: &str) -> Result<Order, String> {
    match name {
        "fcfs" => Ok(Order::Fcfs),
        "longest-prefix" => Ok(Order::LongestPrefix),
        "dfs-weight" => Ok(Order::DfsWeight),
        _ => Err("the orders are fcfs, longest-prefix and dfs-weight".to_owned()),
    }
}

fn bar(unit: &'static str, len: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {elapsed}").expect("a template of ours");
    ProgressBar::new(len as u64).with_style(style).with_message(unit)
}

fn accept(out: &mut dyn Write) -> Result<(), CommandError> {
    let acceptance = Acceptance::run()?;
    writeln!(out, "{}", tables::acceptance(&acceptance))?;
    if acceptance.holds() { Ok(()) } else { Err(CommandError::Acceptance) }
}
