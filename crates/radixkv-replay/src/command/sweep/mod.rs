//! `radixkv sweep`: simulates many caches on one trace.

mod arguments;
mod plot;
mod table;

use std::{error::Error, io, process::ExitCode};

use radixkv_replay::{
    ReplayError, Trace,
    sweep::{Sweep, SweepError, SweepPlan, SweepPoint},
};
use serde::Serialize;

pub(crate) use arguments::Arguments;
use arguments::SweepCapacity;

use crate::{
    bytes, console,
    failure::remedy,
    input::Input,
    output::{Output, OutputError, Written, check_distinct, check_not_read},
    progress,
    report::json,
    screen::Screen,
    size,
    status::AT_FAULT,
};

/// Number of points of a curve in a plot.
const CURVE: usize = 48;

/// The sweep as JSON.
#[derive(Serialize)]
struct TraceSweep<'a> {
    trace: String,
    /// Bytes of a token's KV, if a model is given.
    kv_bytes_per_token: Option<u64>,
    #[serde(flatten)]
    sweep: &'a Sweep,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    match sweep(arguments, screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let remedy = match error.downcast_ref() {
                Some(SweepError::Replay(ReplayError::RequestTooLong { .. })) => {
                    Some("sweep over smaller capacities, which it bypasses")
                }
                Some(SweepError::TooManyBlocks { .. }) => {
                    Some("raise the limit with --max-tokens, or take larger blocks")
                }
                Some(SweepError::Replay(error)) => remedy(error),
                _ => remedy(&*error),
            };
            let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            console::say(format_args!("radixkv: {error}{remedy}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

fn sweep(arguments: &Arguments, screen: &Screen) -> Result<(), Box<dyn Error>> {
    let input = Input::new(&arguments.trace);
    input.check_stdout()?;
    check_distinct([&arguments.csv, &arguments.svg])?;
    check_not_read(&arguments.model_config, [&arguments.csv, &arguments.svg])?;
    let output = |path: &Option<_>| path.as_deref().map(|path| Output::new(path, &input)).transpose();
    let (csv, svg) = (output(&arguments.csv)?, output(&arguments.svg)?);
    let kv_bytes = kv_bytes_per_token(arguments)?;
    let config = arguments.config(kv_bytes)?;
    let trace = input.trace(arguments.unit, None, &arguments.limits())?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(arguments.threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| format!("starting threads for the sweep failed: {error}; use fewer --threads"))?;
    let plan = pool.install(|| SweepPlan::new(&trace, &config))?;
    let found = pool.install(|| compute(&plan))?;
    warn(&trace, &found);
    let csv = csv.map(|csv| csv.write(|file| write_csv(file, &found, kv_bytes))).transpose()?;
    let curves = |size| pool.install(|| curves(&plan, &found, size));
    let name = input.name();
    let svg = svg.map(|svg| {
        let drawn = plot::svg(&input.title(), &found, kv_bytes, curves);
        svg.write(|file| file.write_all(drawn.as_bytes()))
    });
    let svg = svg.transpose()?;
    let text = match arguments.json {
        true => json(&TraceSweep { trace: name, kv_bytes_per_token: kv_bytes, sweep: &found })?,
        false => table::text(&name, &found, kv_bytes, screen),
    };
    console::print(&text).map_err(OutputError::stdout)?;
    csv.map_or(Ok(()), Written::publish)?;
    Ok(svg.map_or(Ok(()), Written::publish)?)
}

/// Bytes of a token's KV, if a model is given.
fn kv_bytes_per_token(arguments: &Arguments) -> Result<Option<u64>, Box<dyn Error>> {
    let Some(path) = &arguments.model_config else {
        return match arguments.capacity.iter().find(|capacity| matches!(capacity, SweepCapacity::Bytes(_))) {
            Some(_) => Err("a capacity in bytes needs a model; give its --model-config".into()),
            None => Ok(None),
        };
    };
    let model = size::model(path)?;
    let dtype = arguments.kv_dtype.or(model.dtype()).unwrap_or(radixkv_replay::model::KvDtype::Fp16);
    Ok(Some(model.kv_bytes_per_token(dtype)))
}

/// Computes all points, with a progress bar.
fn compute(plan: &SweepPlan<'_>) -> Result<Sweep, SweepError> {
    let bar = progress::requests(plan.steps(), "sweep");
    let found = plan.run(&|| bar.inc(1));
    bar.finish_and_clear();
    found
}

/// Warns about caches that are too small for every request.
fn warn(trace: &Trace, found: &Sweep) {
    let bypassed = |point: &&SweepPoint| point.bypassed_requests == trace.requests().len();
    let mut said: Vec<(usize, usize)> = Vec::new();
    for point in found.points.iter().filter(bypassed) {
        let cache = (point.capacity, point.block_size);
        if !said.contains(&cache) {
            said.push(cache);
            console::say(format_args!(
                "radixkv: warning: every request is larger than a cache of {} blocks of {} tokens, and bypasses it",
                cache.0, cache.1
            ));
        }
    }
}

/// The lru line and the optimum, at capacities from the smallest one of the block size to all
/// distinct blocks.
fn curves(plan: &SweepPlan<'_>, found: &Sweep, block_size: usize) -> Vec<SweepPoint> {
    let of_size = || found.points.iter().filter(|point| point.block_size == block_size).map(|point| point.capacity);
    let (Some(low), Some(high)) = (of_size().min(), of_size().max()) else {
        return Vec::new();
    };
    let step = (high as f64 / low.max(1) as f64).powf(1.0 / (CURVE - 1) as f64);
    let mut capacities: Vec<usize> =
        (0..CURVE).map(|at| (low as f64 * step.powi(at as i32)).round() as usize).collect();
    capacities.extend(of_size());
    capacities.sort_unstable();
    capacities.dedup();
    let mut curves = plan.lru_curve(block_size, &capacities);
    curves.extend(plan.belady_curve(block_size, &capacities));
    curves
}

/// A row of the CSV file.
#[derive(Serialize)]
struct Row<'a> {
    line: &'a str,
    block_size: usize,
    capacity: usize,
    capacity_tokens: usize,
    capacity_bytes: Option<u64>,
    working_set_share: f64,
    hit_tokens: u64,
    hit_rate: f64,
    hit_tokens_capped: u64,
    hit_rate_capped: f64,
    inserted_blocks: u64,
    evicted_blocks: u64,
    bypassed_requests: usize,
    bypassed_tokens: u64,
    match_digest: &'a str,
}

fn write_csv(file: &mut dyn io::Write, found: &Sweep, kv_bytes: Option<u64>) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(file);
    for point in &found.points {
        rows.serialize(Row {
            line: point.line.name(),
            block_size: point.block_size,
            capacity: point.capacity,
            capacity_tokens: point.capacity_tokens,
            capacity_bytes: kv_bytes.map(|bytes| bytes.saturating_mul(point.capacity_tokens as u64)),
            working_set_share: point.working_set_share,
            hit_tokens: point.hit_tokens,
            hit_rate: point.hit_rate,
            hit_tokens_capped: point.hit_tokens_capped,
            hit_rate_capped: point.hit_rate_capped,
            inserted_blocks: point.inserted_blocks,
            evicted_blocks: point.evicted_blocks,
            bypassed_requests: point.bypassed_requests,
            bypassed_tokens: point.bypassed_tokens,
            match_digest: &point.match_digest,
        })?;
    }
    rows.flush()
}

/// A number of tokens, or the bytes of their KV if the size of a token's KV is known.
fn extent(tokens: usize, kv_bytes: Option<u64>) -> String {
    match kv_bytes {
        Some(bytes) => bytes::shown(bytes.saturating_mul(tokens as u64)),
        None => crate::figures::grouped(tokens as u64),
    }
}
