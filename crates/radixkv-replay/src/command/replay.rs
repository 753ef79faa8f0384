//! `radixkv replay`: serves a trace from a cache and prints the report.

use std::{
    error::Error,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use radixkv::InsertErrorKind;
use radixkv_replay::{
    Replay, ReplayError, Report, Trace, TraceError, replay,
    replay::{Capacity, TimeToFirstToken},
    workload::CLASSES,
};

use crate::{
    arguments::Arguments,
    console,
    input::Input,
    output::{Output, OutputError, Written},
    progress,
    report::{ClassReport, TraceReport, WorkloadReport, json},
    screen::Screen,
    status::{AT_FAULT, BROKEN},
    table,
};

const SEED: u64 = 0;
/// Default capacities of a trace and of the built-in workloads.
const TRACE_CAPACITY: Capacity = Capacity::Percent(10.0);
const WORKLOAD_CAPACITY: Capacity = Capacity::Percent(100.0);

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    let result = match &arguments.trace {
        Some(path) => trace(arguments, path, screen),
        None => workload(arguments, screen),
    };
    result.unwrap_or_else(|error| {
        match remedy(&*error) {
            Some(remedy) => console::say(format_args!("radixkv: {error}; {remedy}")),
            None => console::say(format_args!("radixkv: {error}")),
        }
        ExitCode::from(if is_broken(&*error) { BROKEN } else { AT_FAULT })
    })
}

/// The options that help against an error.
pub(crate) fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TraceError::LongLine { .. }), _) => Some("raise the limit with --max-line-bytes"),
        (Some(TraceError::TooManyRows { .. }), _) => Some("raise the limit with --max-rows"),
        (Some(TraceError::TooManyTokens { .. }), _) => Some("raise the limit with --max-tokens"),
        (Some(TraceError::NoMemory { .. }), _) => Some("replay a part of the trace"),
        (_, Some(ReplayError::RequestTooLong { .. })) => {
            Some("raise the limit with --max-request-tokens, or bypass the cache with --longest")
        }
        (_, Some(ReplayError::CacheTooLarge { .. })) => Some("raise the limit with --max-tokens, or lower --capacity"),
        (_, Some(ReplayError::NoMemory(_))) => Some("lower --capacity, or replay a part of the trace"),
        (_, Some(ReplayError::NoThread { .. })) => Some("use fewer --threads"),
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

fn trace(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<ExitCode, Box<dyn Error>> {
    let input = Input::new(path);
    input.check_stdout()?;
    let csv = arguments.requests.as_deref().map(|csv| Output::new(csv, &input)).transpose()?;
    let trace = input.trace(arguments.unit, arguments.priority_from.as_deref(), &arguments.limits())?;
    let replayed = serve(arguments, &trace, TRACE_CAPACITY, "replay")?;
    let rows = |file: &mut dyn Write| write_requests(file, &replayed, arguments.block_size);
    let csv = csv.map(|csv| csv.write(rows)).transpose()?;
    let shown = input.name();
    if arguments.json {
        console::print(&json(&TraceReport { trace: shown, report: &replayed.report })?).map_err(OutputError::stdout)?;
    } else {
        console::print(&table::report(&shown, &replayed.report).text(screen)).map_err(OutputError::stdout)?;
    }
    let Some(broken) = mismatches(&replayed) else {
        csv.map_or(Ok(()), Written::publish)?;
        return Ok(ExitCode::SUCCESS);
    };
    Ok(broken)
}

fn workload(arguments: &Arguments, screen: &Screen) -> Result<ExitCode, Box<dyn Error>> {
    let (mut reports, mut status) = (Vec::new(), ExitCode::SUCCESS);
    for class in CLASSES {
        let replayed = serve(arguments, &class.trace(SEED), WORKLOAD_CAPACITY, class.name)?;
        status = mismatches(&replayed).unwrap_or(status);
        let (class, strains, band) = (class.name, class.strains, class.band());
        reports.push(ClassReport { class, strains, band, report: replayed.report });
    }
    if arguments.json {
        let seconds = reports.iter().map(|class| class.report.seconds).sum();
        console::print(&json(&WorkloadReport { trace: None, seed: SEED, seconds, classes: &reports })?)
            .map_err(OutputError::stdout)?;
    } else {
        console::print(&table::classes(&reports).text(screen)).map_err(OutputError::stdout)?;
    }
    Ok(status)
}

/// Replays with a progress bar, and models the time to first token if a prefill rate was given.
fn serve(arguments: &Arguments, trace: &Trace, capacity: Capacity, what: &str) -> Result<Replay, ReplayError> {
    let bar = progress::requests(trace.requests().len(), what);
    let replayed = replay(trace, &arguments.config(capacity), &|| bar.inc(1));
    bar.finish_and_clear();
    let mut replayed = replayed?;
    let ttft = |rate| TimeToFirstToken::new(&replayed.outcomes, arguments.block_size, rate);
    replayed.report.ttft = arguments.prefill_rate.map(ttft);
    warn_of_bypasses(&replayed.report);
    Ok(replayed)
}

/// Says so if the cache was too small for every request.
fn warn_of_bypasses(report: &Report) {
    if report.requests > 0 && report.bypassed_requests == report.requests {
        console::say(format_args!(
            "radixkv: warning: every request was bypassed: each is larger than the cache of {} blocks of {} tokens, or than \
             --longest allows",
            report.capacity, report.block_size
        ));
    }
}

/// Reports mismatches, if hits were checked and some were wrong.
fn mismatches(replayed: &Replay) -> Option<ExitCode> {
    let errors = replayed.report.verify_errors.filter(|&errors| errors > 0)?;
    console::say(format_args!("radixkv: {errors} blocks of hits held other tokens than those matched, for example:"));
    for mismatch in &replayed.mismatches {
        let (row, at, block) = (mismatch.row, mismatch.at, mismatch.block);
        console::say(format_args!("  row {row}, block {at} of the request (both counted from 0): block id {block}"));
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
