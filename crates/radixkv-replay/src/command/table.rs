//! Formats reports as tables.

use radixkv_replay::{
    Report,
    replay::{Percentiles, RemoteReport, TierReport, TtftPercentiles, Waits},
    workload::{BAND_BLOCK_SIZE, Band},
};

use crate::{
    bytes::shown,
    figures::{counted, grouped, percent},
    grid::{Cell, Column, Grid},
    report::ClassReport,
};

/// The report of one replay, with a row for each figure.
pub(crate) fn report(trace: &str, report: &Report) -> Grid {
    let mut table = Grid::of_pairs();
    let mut row = |what: &str, value: String| table.row([what.into(), value.into()]);
    row("trace", trace.to_owned());
    row("tokens per hash id", report.unit.map_or("-".to_owned(), |unit| unit.to_string()));
    row("cache", format!("{}, {}, {} eviction", report.cache, report.policy, report.eviction));
    row(
        "capacity",
        format!("{} of {}", counted(report.capacity as u64, "block"), counted(report.block_size as u64, "token")),
    );
    if let Some(field) = &report.priority_from {
        row("priority from", field.clone());
    }
    if report.hold {
        row("leases", format!("held for output_length steps, {} dropped early", grouped(report.given_up_leases)));
    }
    row("threads", report.threads.to_string());
    if report.warm_up_requests > 0 {
        row("warm-up", counted(report.warm_up_requests as u64, "request"));
    }
    row("requests", grouped(report.requests as u64));
    row("prompt tokens", grouped(report.prompt_tokens));
    row("hit tokens", format!("{} ({})", grouped(report.hit_tokens), percent(report.hit_rate)));
    row(
        "hits without last tokens",
        format!("{} ({})", grouped(report.hit_tokens_capped), percent(report.hit_rate_capped)),
    );
    row("inserted blocks", grouped(report.inserted_blocks));
    row("evicted blocks", grouped(report.evicted_blocks));
    row("blocks, peak / end", both(report.peak_blocks, report.final_blocks));
    row("bypassed", bypassed(report));
    row("match digest", report.match_digest.clone());
    row("seconds", format!("{:.3}", report.seconds));
    row("tokens / second", grouped(report.tokens_per_second as u64));
    row("match p50 / p99 / p99.9", latency(report.match_ns));
    row("insert p50 / p99 / p99.9", latency(report.insert_ns));
    row("evict p50 / p99 / p99.9", latency(report.evict_ns));
    row("index bytes, peak / end", both(report.index_bytes_peak, report.index_bytes));
    let cached_tokens = report.final_blocks * report.block_size;
    if cached_tokens > 0 {
        row("index bytes / cached token", format!("{:.2}", report.index_bytes as f64 / cached_tokens as f64));
    }
    if let Some(errors) = report.verify_errors {
        row("verify errors", grouped(errors));
    }
    if let Some(served) = report.service {
        let rates = format!("{} / {} tokens / s", served.prefill_rate, served.decode_rate);
        row("service, prefill / decode", rates);
        row("slots / most at once", both(served.slots, served.peak_running));
        row("queue wait", waits(served.queue_wait));
        row("first token", waits(served.first_token));
    }
    if let Some(tiers) = &report.tiers {
        tier_rows(tiers, &mut row);
    }
    if let Some(ttft) = report.ttft {
        row("prefill rate", format!("{} tokens / s", ttft.prefill_rate));
        row("ttft with cache", seconds(ttft.cached));
        row("ttft without cache", seconds(ttft.uncached));
        row("ttft speedup, mean", format!("{:.2} x", ttft.speedup));
    }
    table
}

/// Adds the rows of a host tier.
fn tier_rows(tiers: &TierReport, row: &mut impl FnMut(&str, String)) {
    let blocks = counted(tiers.host_capacity as u64, "block");
    let size = counted(tiers.host_block_size as u64, "token");
    row("host tier", format!("{}, {}, write-{}", tiers.host_kind, tiers.tier_mode, tiers.write_policy));
    row("host capacity", format!("{blocks} of {size}"));
    row("instances", format!("{}, {}", tiers.instances, tiers.route));
    row("device hit tokens", format!("{} ({})", grouped(tiers.first_hit_tokens), percent(tiers.first_hit_rate)));
    row("host hit tokens", format!("{} ({})", grouped(tiers.host_hit_tokens), percent(tiers.host_hit_rate)));
    row("device match digest", tiers.first_digest.clone());
    row("host blocks, peak / end", both(tiers.host_peak_blocks, tiers.host_final_blocks));
    row("host evicted blocks", grouped(tiers.host_evicted_blocks));
    row("bytes to host / to device", format!("{} / {}", shown(tiers.offloaded_bytes), shown(tiers.onboarded_bytes)));
    if let Some(remote) = &tiers.remote {
        remote_rows(remote, &size, row);
    }
    row("copies to the device", format!("{:.3} s", tiers.onboard_seconds));
    if let Some(saved) = tiers.saved_seconds {
        let by = if tiers.remote.is_some() { "prefill saved by both tiers" } else { "prefill saved by the host" };
        row(by, format!("{saved:.3} s, minus the copies"));
    }
    for left in &tiers.leftovers {
        let name =
            if left.namespace.is_empty() { "the default namespace".to_owned() } else { left.namespace.join(", ") };
        row("left in the host", format!("{name}: {}", counted(left.blocks as u64, "block")));
    }
}

/// Adds the rows of a remote tier.
fn remote_rows(remote: &RemoteReport, size: &str, row: &mut impl FnMut(&str, String)) {
    let hits = format!("{} ({})", grouped(remote.remote_hit_tokens), percent(remote.remote_hit_rate));
    let bytes = format!("{} / {}", shown(remote.remote_put_bytes), shown(remote.remote_fetched_bytes));
    row("remote capacity", format!("{} of {size}", counted(remote.remote_capacity as u64, "block")));
    row("remote hit tokens", hits);
    row("remote blocks, peak / end", both(remote.remote_peak_blocks, remote.remote_final_blocks));
    row("remote evicted blocks", grouped(remote.remote_evicted_blocks));
    row("bytes to remote / from it", bytes);
    row("copies from remote", format!("{:.3} s", remote.fetch_seconds));
}

/// A row for each class of the built-in workloads.
pub(crate) fn classes(reports: &[ClassReport]) -> Grid {
    let mut table = Grid::new([
        Column::words("class"),
        Column::words("strains").rank(3),
        Column::figures("requests").rank(2),
        Column::figures("prompt tokens").rank(4),
        Column::figures("blocks").rank(5),
        Column::figures("hit rate"),
        Column::figures("infinite cache"),
        Column::words(""),
        Column::figures("Mtok/s").rank(1),
        Column::figures("evicted").rank(1),
    ]);
    for ClassReport { class, strains, band, report } in reports {
        table.row([
            (*class).into(),
            (*strains).into(),
            grouped(report.requests as u64).into(),
            grouped(report.prompt_tokens).into(),
            grouped(report.capacity as u64).into(),
            percent(report.hit_rate).into(),
            format!("{} - {}", percent(band.low), percent(band.high)).into(),
            verdict(*band, report),
            format!("{:.1}", report.tokens_per_second / 1e6).into(),
            grouped(report.evicted_blocks).into(),
        ]);
    }
    table
}

/// Whether the hit rate is within the band; empty if the band does not apply.
fn verdict(band: Band, report: &Report) -> Cell {
    let applies = report.cache == "radix"
        && report.block_size == BAND_BLOCK_SIZE
        && report.evicted_blocks == 0
        && report.bypassed_requests == 0;
    match (applies, band.contains(report.hit_rate)) {
        (false, _) => Cell::default(),
        (true, true) => Cell::good("ok"),
        (true, false) => Cell::bad("off"),
    }
}

fn both(peak: usize, end: usize) -> String {
    format!("{} / {}", grouped(peak as u64), grouped(end as u64))
}

fn latency(ns: Percentiles) -> String {
    format!("{} / {} / {} ns", grouped(ns.p50), grouped(ns.p99), grouped(ns.p999))
}

fn seconds(ttft: TtftPercentiles) -> String {
    format!("mean {:.3} s, p50 {:.3} s, p99 {:.3} s", ttft.mean, ttft.p50, ttft.p99)
}

fn waits(waits: Waits) -> String {
    format!("mean {:.3} s, p50 {:.3} s, p99 {:.3} s", waits.mean, waits.p50, waits.p99)
}

fn bypassed(report: &Report) -> String {
    let requests = counted(report.bypassed_requests as u64, "request");
    format!("{requests}, {}", counted(report.bypassed_tokens, "token"))
}
