//! Reports as tables.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use radixkv_replay::{
    Report,
    replay::{Percentiles, TtftPercentiles},
    workload::{BAND_BLOCK_SIZE, Band},
};

use crate::report::ClassReport;

/// The report of one replay, a line for each figure.
pub(crate) fn report(trace: &str, report: &Report) -> Table {
    let mut table = empty();
    let mut row = |what: &str, value: String| {
        table.add_row([what, &value]);
    };
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
    row("requests", grouped(report.requests as u64));
    row("prompt tokens", grouped(report.prompt_tokens));
    row("hit tokens", format!("{} ({})", grouped(report.hit_tokens), percent(report.hit_rate)));
    row(
        "hit, last token computed",
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
    if let Some(ttft) = report.ttft {
        row("prefill rate", format!("{} tokens / s", ttft.prefill_rate));
        row("ttft with cache", seconds(ttft.cached));
        row("ttft without cache", seconds(ttft.uncached));
        row("ttft speedup, mean", format!("{:.2} x", ttft.speedup));
    }
    align(&mut table);
    table
}

/// One line for each class of the built-in workloads.
pub(crate) fn classes(reports: &[ClassReport]) -> Table {
    let mut table = empty();
    table.set_header([
        "class",
        "strains",
        "requests",
        "prompt tokens",
        "blocks",
        "hit rate",
        "infinite cache",
        "",
        "Mtok/s",
        "evicted",
    ]);
    for ClassReport { class, strains, band, report } in reports {
        table.add_row([
            (*class).to_owned(),
            (*strains).to_owned(),
            grouped(report.requests as u64),
            grouped(report.prompt_tokens),
            grouped(report.capacity as u64),
            percent(report.hit_rate),
            format!("{} - {}", percent(band.low), percent(band.high)),
            verdict(*band, report).to_owned(),
            format!("{:.1}", report.tokens_per_second / 1e6),
            grouped(report.evicted_blocks),
        ]);
    }
    align(&mut table);
    for column in table.column_iter_mut().take(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// Whether the hit rate is as predicted; empty where the prediction does not apply.
fn verdict(band: Band, report: &Report) -> &'static str {
    let applies = report.cache == "radix"
        && report.block_size == BAND_BLOCK_SIZE
        && report.evicted_blocks == 0
        && report.bypassed_requests == 0;
    match (applies, band.contains(report.hit_rate)) {
        (false, _) => "",
        (true, true) => "ok",
        (true, false) => "off",
    }
}

fn empty() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table
}

/// Aligns names to the left, numbers to the right.
fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn percent(rate: f64) -> String {
    format!("{:.2} %", 100.0 * rate)
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

fn bypassed(report: &Report) -> String {
    let requests = counted(report.bypassed_requests as u64, "request");
    format!("{requests}, {}", counted(report.bypassed_tokens, "token"))
}

/// A number with its unit, in the singular for one.
fn counted(number: u64, unit: &str) -> String {
    format!("{} {unit}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{counted, grouped};

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(144_793_823), "144,793,823");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0, "block"), "0 blocks");
        assert_eq!(counted(1, "block"), "1 block");
        assert_eq!(counted(16_000, "token"), "16,000 tokens");
    }
}
