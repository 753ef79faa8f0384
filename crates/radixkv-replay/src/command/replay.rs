//! `radixkv replay`: a trace through a cache, and what came of it.

use std::{
    error::Error,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use radixkv::{InsertErrorKind, PolicyKind};
use radixkv_replay::{
    Limits, Replay, ReplayConfig, ReplayError, Report, Trace, TraceError, replay,
    replay::{CacheKind, Capacity, EvictionMode, MOST_THREADS, TimeToFirstToken},
    workload::{Band, CLASSES},
};
use serde::Serialize;

use crate::{
    AT_FAULT, console,
    identity::Identity,
    output::{Output, OutputError, Written},
    progress, table,
};

/// The cache broke a promise.
pub(crate) const BROKEN: u8 = 1;
/// Slower than this, seconds are more than a number can say.
const SLOWEST: f64 = 1e-6;
const SEED: u64 = 0;

/// Replay a request trace, or a built-in workload, and report hits, evictions, latencies and memory.
///
/// A trace is JSON lines, plain, gzip or zstd: timestamp, input_length, output_length and hash_ids, or input_tok_ids
/// (and output_tok_ids) in their place. Without one, a seeded workload is replayed class by class and every hit rate
/// is shown beside the band that the class's parameters predict for a cache that never evicts.
///
/// `seconds` in the report covers the whole replay: reading and parsing the file, counting the working set, making
/// tokens, and all work of the cache.
///
/// Exit status: 0 if all went well, 1 if the cache broke a promise, 2 if the input, the command line or the system is at
/// fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The trace; a built-in workload without it
    trace: Option<PathBuf>,
    /// Tokens per hash id; inferred from the rows if not given (Mooncake's is 512)
    #[arg(long, value_name = "TOKENS", value_parser = unit)]
    unit: Option<u32>,
    /// Tokens per block
    #[arg(long, default_value = "16", value_name = "TOKENS", value_parser = count)]
    block_size: usize,
    /// Size of the cache, in blocks or in percent of the distinct full prompt blocks [default: 10% for a trace, 100%
    /// for the built-in workload]
    #[arg(long, value_name = "BLOCKS|N%")]
    capacity: Option<Capacity>,
    /// Which blocks are evicted first: lru, lfu, fifo, mru, filo, slru, level or priority
    #[arg(long, default_value = "lru")]
    policy: PolicyKind,
    /// The prefix cache, or the baseline that shares nothing
    #[arg(long, value_enum, default_value_t)]
    cache: Cache,
    /// Scheduler threads that share the cache, 1024 at most
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads)]
    threads: usize,
    /// Who evicts: the thread that reserves, or one of its own
    #[arg(long, value_enum, default_value_t)]
    eviction: Eviction,
    /// Cache generated tokens too
    #[arg(long)]
    outputs: bool,
    /// Bypass requests of more than this many blocks [default: as many as the cache holds]
    #[arg(long, value_name = "BLOCKS")]
    longest: Option<usize>,
    /// Check the blocks of every hit against the tokens they were filled with; exit with 1 on a mismatch
    #[arg(long)]
    verify: bool,
    /// Take each request's priority, an integer from 0 to 100, from this field of its row; counts with --policy
    /// priority
    #[arg(long, value_name = "FIELD", requires = "trace")]
    priority_from: Option<String>,
    /// Hold each request's lease for output_length steps, a step being a request of the trace
    #[arg(long)]
    hold: bool,
    /// Stop so many times with no lease held, and check that the cache is valid and no block is lost
    #[arg(long, default_value = "0", value_name = "N")]
    checks: usize,
    /// Write a CSV row for every request, in replay order; an older file is replaced if all went well
    #[arg(long, value_name = "FILE.csv", requires = "trace")]
    requests: Option<PathBuf>,
    /// Model the time to first token at this prefill rate, with the cache and without
    #[arg(long, value_name = "TOKENS/S", value_parser = rate)]
    prefill_rate: Option<f64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bounds: Bounds,
}

/// What a trace may ask for before it is refused.
#[derive(Args)]
#[command(next_help_heading = "Bounds")]
struct Bounds {
    /// Bytes of a line of the trace, decompressed [default: 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = count)]
    max_line_bytes: Option<usize>,
    /// Rows of the trace, blank lines included [default: 10 million]
    #[arg(long, value_name = "ROWS", value_parser = count)]
    max_rows: Option<usize>,
    /// Tokens of a request that is not bypassed [default: 2^24]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    max_request_tokens: Option<usize>,
    /// Hash ids and tokens of the whole trace, and tokens that the cache comes to hold, at 4 to 16 bytes each
    /// [default: 2^28]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    max_tokens: Option<usize>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Cache {
    #[default]
    Radix,
    Naive,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Eviction {
    #[default]
    Inline,
    Background,
}

fn count(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(0) => Err("must be more than zero"),
        Ok(count) => Ok(count),
        Err(_) => Err("not a number"),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match count(text)? {
        threads if threads > MOST_THREADS => Err(format!("more than {MOST_THREADS}")),
        threads => Ok(threads),
    }
}

fn unit(text: &str) -> Result<u32, &'static str> {
    count(text).and_then(|unit| u32::try_from(unit).map_err(|_| "too large"))
}

fn rate(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate < SLOWEST => Err("too small"),
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("not a number above zero"),
    }
}

/// A report with the file that it is about.
#[derive(Serialize)]
struct TraceReport<'a> {
    trace: String,
    #[serde(flatten)]
    report: &'a Report,
}

/// A report with the class that it is about.
#[derive(Serialize)]
pub(crate) struct ClassReport {
    pub(crate) class: &'static str,
    pub(crate) strains: &'static str,
    #[serde(serialize_with = "ends")]
    pub(crate) band: Band,
    #[serde(flatten)]
    pub(crate) report: Report,
}

#[derive(Serialize)]
struct WorkloadReport<'a> {
    trace: Option<&'static str>,
    seed: u64,
    seconds: f64,
    classes: &'a [ClassReport],
}

fn ends<S: serde::Serializer>(band: &Band, serializer: S) -> Result<S::Ok, S::Error> {
    [band.low, band.high].serialize(serializer)
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.trace {
        Some(path) => trace(arguments, path),
        None => workload(arguments),
    };
    result.unwrap_or_else(|error| {
        match remedy(&*error) {
            Some(option) => console::say(format_args!("radixkv: {error} (raise it: {option})")),
            None => console::say(format_args!("radixkv: {error}")),
        }
        ExitCode::from(if is_broken(&*error) { BROKEN } else { AT_FAULT })
    })
}

/// The option that raises the bound which an error is about.
fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TraceError::LongLine { .. }), _) => Some("--max-line-bytes"),
        (Some(TraceError::TooManyRows { .. }), _) => Some("--max-rows"),
        (Some(TraceError::TooManyTokens { .. }), _) => Some("--max-tokens"),
        (_, Some(ReplayError::RequestTooLong { .. })) => Some("--max-request-tokens, or bypass it: --longest"),
        (_, Some(ReplayError::CacheTooLarge { .. })) => Some("--max-tokens, or lower --capacity"),
        _ => None,
    }
}

/// Whether an error is the cache's fault.
fn is_broken(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(ReplayError::NotInserted { kind, .. }) => !matches!(kind, InsertErrorKind::TooLong { .. }),
        Some(ReplayError::Check { .. } | ReplayError::Refused { .. }) => true,
        _ => false,
    }
}

fn trace(arguments: &Arguments, path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    if Identity::of_contents(path).is_some_and(|input| Identity::of_stdout() == Some(input)) {
        return Err(OutputError::IsInput { path: "standard output".into() }.into());
    }
    let csv = arguments.requests.as_deref().map(|csv| Output::new(csv, path)).transpose()?;
    let trace =
        Trace::open_within(path, arguments.unit, arguments.priority_from.as_deref(), &arguments.bounds.limits())?;
    if let (None, Some(unit)) = (arguments.unit, trace.unit()) {
        console::say(format_args!("radixkv: {unit} tokens per hash id, inferred from the rows (--unit)"));
    }
    let replayed = arguments.replay(&trace, "10%", "replay")?;
    let rows = |file: &mut dyn Write| write_requests(file, &replayed, arguments.block_size);
    let csv = csv.map(|csv| csv.write(rows)).transpose()?;
    let shown = path.display().to_string();
    if arguments.json {
        console::print(&json(&TraceReport { trace: shown, report: &replayed.report })?).map_err(OutputError::stdout)?;
    } else {
        console::print(&table::report(&shown, &replayed.report).to_string()).map_err(OutputError::stdout)?;
    }
    let Some(broken) = mismatches(&replayed) else {
        csv.map_or(Ok(()), Written::publish)?;
        return Ok(ExitCode::SUCCESS);
    };
    Ok(broken)
}

fn workload(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let (mut reports, mut status) = (Vec::new(), ExitCode::SUCCESS);
    for class in CLASSES {
        let replayed = arguments.replay(&class.trace(SEED), "100%", class.name)?;
        status = mismatches(&replayed).unwrap_or(status);
        let (class, strains, band) = (class.name, class.strains, class.band());
        reports.push(ClassReport { class, strains, band, report: replayed.report });
    }
    if arguments.json {
        let seconds = reports.iter().map(|class| class.report.seconds).sum();
        console::print(&json(&WorkloadReport { trace: None, seed: SEED, seconds, classes: &reports })?)
            .map_err(OutputError::stdout)?;
    } else {
        console::print(&table::classes(&reports).to_string()).map_err(OutputError::stdout)?;
    }
    Ok(status)
}

impl Arguments {
    fn replay(&self, trace: &Trace, default_capacity: &str, what: &str) -> Result<Replay, ReplayError> {
        let bar = progress::requests(trace.requests().len(), what);
        let replayed = replay(trace, &self.config(default_capacity), &|| bar.inc(1));
        bar.finish_and_clear();
        let mut replayed = replayed?;
        let block_size = self.block_size;
        replayed.report.ttft =
            self.prefill_rate.map(|rate| TimeToFirstToken::new(&replayed.outcomes, block_size, rate));
        Ok(replayed)
    }

    fn config(&self, default_capacity: &str) -> ReplayConfig {
        let default_capacity = || default_capacity.parse().unwrap_or(Capacity::Percent(100.0));
        let defaults = ReplayConfig::default();
        ReplayConfig {
            block_size: self.block_size,
            capacity: self.capacity.unwrap_or_else(default_capacity),
            policy: self.policy,
            cache: match self.cache {
                Cache::Radix => CacheKind::Radix,
                Cache::Naive => CacheKind::Naive,
            },
            threads: self.threads,
            eviction: match self.eviction {
                Eviction::Inline => EvictionMode::Inline,
                Eviction::Background => EvictionMode::Background,
            },
            outputs: self.outputs,
            longest: self.longest,
            verify: self.verify,
            hold: self.hold,
            checks: self.checks,
            max_request_tokens: self.bounds.max_request_tokens.unwrap_or(defaults.max_request_tokens),
            max_cached_tokens: self.bounds.max_tokens.unwrap_or(defaults.max_cached_tokens),
        }
    }
}

impl Bounds {
    fn limits(&self) -> Limits {
        let defaults = Limits::default();
        Limits {
            line_bytes: self.max_line_bytes.unwrap_or(defaults.line_bytes),
            rows: self.max_rows.unwrap_or(defaults.rows),
            tokens: self.max_tokens.unwrap_or(defaults.tokens),
        }
    }
}

/// Reports mismatches, if hits were checked and some were wrong.
fn mismatches(replayed: &Replay) -> Option<ExitCode> {
    let errors = replayed.report.verify_errors.filter(|&errors| errors > 0)?;
    console::say(format_args!("radixkv: {errors} blocks did not hold what they were matched for, among them"));
    for mismatch in &replayed.mismatches {
        let (row, at, block) = (mismatch.row, mismatch.at, mismatch.block);
        console::say(format_args!("  row {row}: block {at} of the request, block id {block}"));
    }
    Some(ExitCode::from(BROKEN))
}

fn write_requests(file: &mut dyn Write, replayed: &Replay, block_size: usize) -> io::Result<()> {
    writeln!(file, "request,prompt_tokens,prefix_hit_len,computed_tokens")?;
    for outcome in &replayed.outcomes {
        let (hit, computed) = (outcome.hit_tokens(block_size), outcome.computed_tokens(block_size));
        writeln!(file, "{},{},{hit},{computed}", outcome.row, outcome.prompt_tokens)?;
    }
    Ok(())
}

fn json(report: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(report)
}
