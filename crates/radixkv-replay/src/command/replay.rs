//! `radixkv replay`: replays a trace or the built-in workloads, and prints the report.

use std::{error::Error, path::Path, process::ExitCode};

use radixkv_replay::{
    Details, Replay, ReplayConfig, ReplayError, Report, Trace, replay,
    replay::{Capacity, Served, TimeToFirstToken},
    workload::CLASSES,
};

#[cfg(feature = "follow")]
use crate::events::Events;
use crate::{
    arguments::Arguments,
    console,
    failure::fail,
    input::Input,
    live::{self, LiveFile},
    metrics::Metrics,
    output::{Output, OutputError, Written, check_distinct},
    page, progress,
    report::{ClassReport, TraceReport, WorkloadReport, json},
    rows,
    screen::Screen,
    seconds::Seconds,
    status::BROKEN,
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
    result.unwrap_or_else(|error| fail(&*error))
}

fn trace(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<ExitCode, Box<dyn Error>> {
    let input = Input::new(path);
    input.check_stdout()?;
    let csv = arguments.requests.as_deref().map(|csv| Output::new(csv, &input)).transpose()?;
    let page = arguments.report.as_deref().map(|page| Output::new(page, &input)).transpose()?;
    let live = arguments.live.as_deref().map(|live| LiveFile::new(live, &input)).transpose()?;
    check_distinct([&arguments.requests, &arguments.report, &arguments.live])?;
    let serving = &arguments.serving;
    let metrics = Metrics::start(&arguments.metrics, serving.block_size)?;
    let trace = input.trace(serving.unit, serving.priority_from.as_deref(), &serving.limits())?;
    let (name, config) = (input.name(), arguments.config(TRACE_CAPACITY));
    #[cfg(feature = "follow")]
    let events = Events::new(&arguments.events)?;
    for shortage in config.shortages(&trace)? {
        console::say(format_args!("radixkv: warning: {shortage}"));
    }
    let seconds = arguments.tiers.log.then(|| Seconds::new(&trace, &config));
    let replay = |watch: &(dyn Fn(Served<'_>) + Sync)| {
        serve(arguments, &trace, &config, "replay", &|served| {
            if let Some(metrics) = &metrics {
                metrics.show(served.cache);
            }
            if let Some(seconds) = &seconds {
                seconds.add(&served);
            }
            #[cfg(feature = "follow")]
            events.listen(served.cache);
            watch(served);
        })
    };
    let replayed = match &live {
        Some(file) => live::told(file, &name, &trace, &config, replay)?,
        None => replay(&|_| {})?,
    };
    if let Some(seconds) = seconds {
        seconds.end();
    }
    #[cfg(feature = "follow")]
    events.end()?;
    let wants_details = arguments.json || csv.is_some() || page.is_some();
    let details = wants_details.then(|| Details::new(&trace, &config, &replayed)).transpose();
    let details = details.map_err(ReplayError::from)?;
    let mut written = Vec::new();
    if let (Some(csv), Some(details)) = (csv, &details) {
        written.push(csv.write(|file| rows::write(file, &trace, &config, &replayed, details))?);
    }
    if let (Some(page), Some(details)) = (page, &details) {
        let html = page::page(&input.title(), &replayed.report, details)?;
        written.push(page.write(|file| file.write_all(html.as_bytes()))?);
    }
    if arguments.json {
        let report = TraceReport { trace: name, report: &replayed.report, details: details.as_ref() };
        console::print(&json(&report)?).map_err(OutputError::stdout)?;
    } else {
        console::print(&table::report(&name, &replayed.report).text(screen)).map_err(OutputError::stdout)?;
    }
    if let Some(broken) = mismatches(&replayed) {
        return Ok(broken);
    }
    written.into_iter().try_for_each(Written::publish)?;
    if let Some(metrics) = &metrics {
        metrics.linger();
    }
    Ok(ExitCode::SUCCESS)
}

fn workload(arguments: &Arguments, screen: &Screen) -> Result<ExitCode, Box<dyn Error>> {
    let (mut reports, mut status) = (Vec::new(), ExitCode::SUCCESS);
    for class in CLASSES {
        let config = arguments.config(WORKLOAD_CAPACITY);
        let replayed = serve(arguments, &class.trace(SEED), &config, class.name, &|_| {})?;
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
fn serve(
    arguments: &Arguments,
    trace: &Trace,
    config: &ReplayConfig,
    what: &str,
    watch: &(dyn Fn(Served<'_>) + Sync),
) -> Result<Replay, ReplayError> {
    let bar = progress::requests(trace.requests().len(), what);
    let replayed = replay::replay_watched(trace, config, &|served| {
        watch(served);
        bar.inc(1);
    });
    bar.finish_and_clear();
    let mut replayed = replayed?;
    let measured = &replayed.outcomes[replayed.report.warm_up_requests..];
    let ttft = |rate| TimeToFirstToken::new(measured, config.block_size, rate);
    replayed.report.ttft = arguments.prefill_rate.map(ttft);
    if let (Some(tiers), Some(rate)) = (&mut replayed.report.tiers, arguments.prefill_rate) {
        tiers.save_at(rate);
    }
    warn_of_bypasses(&replayed.report);
    Ok(replayed)
}

/// Warns if every request was too large for the cache.
fn warn_of_bypasses(report: &Report) {
    if report.requests > 0 && report.bypassed_requests == report.requests {
        console::say(format_args!(
            "radixkv: warning: every request was bypassed: each is larger than the cache of {} blocks of {} tokens, or than \
             --longest allows",
            report.capacity, report.block_size
        ));
    }
}

/// Prints the mismatches, if there are any, and returns the exit status for them.
fn mismatches(replayed: &Replay) -> Option<ExitCode> {
    let errors = replayed.report.verify_errors.filter(|&errors| errors > 0)?;
    console::say(format_args!("radixkv: {errors} blocks of hits hold tokens that differ from the match, for example:"));
    for mismatch in &replayed.mismatches {
        let (row, at, block) = (mismatch.row, mismatch.at, mismatch.block);
        console::say(format_args!("  row {row}, block {at} of the request (both counted from 0): block id {block}"));
    }
    Some(ExitCode::from(BROKEN))
}
