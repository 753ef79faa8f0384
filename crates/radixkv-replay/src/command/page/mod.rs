//! The report of a replay as a page: one file, with its plots inside, that asks for nothing from anywhere.
//!
//! Every figure of the page is in the output of `--json`, under `details` where it is none of the totals.

mod plots;

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use radixkv_replay::{Details, Report};

use crate::figures::{grouped, percent};
use plots::{Bar, Line};

const STYLE: &str = "body{font:15px/1.5 sans-serif;color:#20242c;max-width:960px;margin:24px auto;padding:0 12px}\
h1{font-size:22px;margin:0;overflow-wrap:anywhere}h2{font-size:17px;margin:28px 0 4px}p{margin:4px 0 8px;color:#4a5160}\
svg{display:block;max-width:100%;height:auto}.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}\
.tile{border:1px solid #d5d9e2;border-radius:6px;padding:6px 12px;min-width:120px}.tile b{display:block;font-size:19px}\
table{border-collapse:collapse;margin:6px 0}th,td{padding:2px 14px 2px 0;text-align:right;font-variant-numeric:tabular-nums}\
th:first-child,td:first-child{text-align:left}td.words,th.words{text-align:left}th{border-bottom:1px solid #d5d9e2;font-weight:600}\
.scroll{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:8px}";

/// The page of one replay.
pub(crate) fn page(trace: &str, report: &Report, details: &Details) -> Result<String, fmt::Error> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "radixkv replay: " (trace) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(trace, report))
                (tiles(report))
                (course(report, details)?)
                (tiers(report)?)
                (misses(details)?)
                (evictions(details)?)
                (prefixes(details)?)
                (latencies(report, details)?)
                (service(report))
                p { "Every figure is in the output of " code { "radixkv replay --json" } ", which is made in the same run." }
            }
        }
    };
    Ok(page.into_string())
}

fn head(trace: &str, report: &Report) -> Markup {
    html! {
        h1 { "Replay of " (trace) }
        p {
            (report.cache) " cache of " (count(report.capacity as u64)) " blocks of " (count(report.block_size as u64))
            " tokens, " (report.policy) ", " (report.eviction) " eviction, " (count(report.threads as u64))
            @if report.threads == 1 { " thread" } @else { " threads" }
            @if report.warm_up_requests > 0 {
                "; the first " (count(report.warm_up_requests as u64)) " requests warm the cache up and are left out of \
                 rates, misses and prefixes"
            }
            "."
        }
    }
}

fn tiles(report: &Report) -> Markup {
    let tiles = [
        ("hit rate", rate(report.hit_rate)),
        ("last token computed", rate(report.hit_rate_capped)),
        ("requests", count(report.requests as u64)),
        ("prompt tokens", count(report.prompt_tokens)),
        ("hit tokens", count(report.hit_tokens)),
        ("bypassed requests", count(report.bypassed_requests as u64)),
        ("inserted blocks", count(report.inserted_blocks)),
        ("evicted blocks", count(report.evicted_blocks)),
        ("most blocks cached", count(report.peak_blocks as u64)),
        ("index bytes, most", count(report.index_bytes_peak as u64)),
    ];
    html! {
        div class="tiles" { @for (name, value) in tiles { div class="tile" { b { (value) } (name) } } }
    }
}

fn course(report: &Report, details: &Details) -> Result<Markup, fmt::Error> {
    let along = |of: &dyn Fn(&radixkv_replay::details::Sample) -> f64| -> Vec<(f64, f64)> {
        details.series.iter().map(|part| (part.requests as f64, of(part))).collect()
    };
    let rates = [
        Line { name: "in each part", points: along(&|part| 100.0 * part.hit_rate) },
        Line { name: "from the beginning", points: along(&|part| 100.0 * part.hit_rate_so_far) },
    ];
    let blocks = [
        Line { name: "cached", points: along(&|part| f64::from(part.cached_blocks)) },
        Line { name: "protected by leases", points: along(&|part| f64::from(part.protected_blocks)) },
    ];
    let parts = details.series.len();
    Ok(html! {
        h2 { "Over the trace" }
        p { "Requests from left to right, in " (parts) " parts of equally many (" code { "details.series" } ")." }
        (PreEscaped(plots::lines("hit rate, percent of prompt tokens", &rates, 100.0)?))
        (PreEscaped(plots::lines("occupancy, blocks", &blocks, report.capacity as f64)?))
    })
}

/// Of a replay over a host tier.
fn tiers(report: &Report) -> Result<Markup, fmt::Error> {
    let Some(tiers) = &report.tiers else { return Ok(html! {}) };
    let remote = tiers.remote.as_ref();
    let mut rows = vec![("device", tiers.first_hit_tokens), ("host", tiers.host_hit_tokens)];
    rows.extend(remote.map(|remote| ("remote", remote.remote_hit_tokens)));
    let bars: Vec<Bar> = rows.iter().map(|&(name, tokens)| Bar::new(name, tokens)).collect();
    let host = format!("{}, {}, write-{}", tiers.host_kind, tiers.tier_mode, tiers.write_policy);
    Ok(html! {
        h2 { "Hits by tier" }
        p { "The host tier (" (host) ") has " (count(tiers.host_capacity as u64)) " blocks of " (tiers.host_block_size) " tokens." }
        (PreEscaped(plots::bars("hit tokens, by where they were found", &bars)?))
        div class="scroll" { table {
            tr { th { "tier" } th { "tokens" } }
            @for (name, tokens) in rows { tr { td { (name) } td { (count(tokens)) } } }
        } }
        div class="scroll" { table {
            tr { th { "host tier" } th { "" } }
            tr { td { "bytes to it" } td { (count(tiers.offloaded_bytes)) } }
            tr { td { "bytes from it" } td { (count(tiers.onboarded_bytes)) } }
            tr { td { "evicted blocks" } td { (count(tiers.host_evicted_blocks)) } }
            tr { td { "most blocks" } td { (count(tiers.host_peak_blocks as u64)) } }
        } }
        @if let Some(remote) = remote {
            p { "The remote tier has " (count(remote.remote_capacity as u64)) " blocks of the same size." }
            div class="scroll" { table {
                tr { th { "remote tier" } th { "" } }
                tr { td { "bytes to it" } td { (count(remote.remote_put_bytes)) } }
                tr { td { "bytes from it" } td { (count(remote.remote_fetched_bytes)) } }
                tr { td { "evicted blocks" } td { (count(remote.remote_evicted_blocks)) } }
                tr { td { "most blocks" } td { (count(remote.remote_peak_blocks as u64)) } }
            } }
        }
    })
}

fn misses(details: &Details) -> Result<Markup, fmt::Error> {
    let bars: Vec<Bar> = details.misses.iter().map(|miss| Bar::new(miss.reason.name(), miss.tokens)).collect();
    let means = |name| match name {
        "evicted" => "were cached, and evicted since",
        "computing" => "an earlier request was computing them",
        "new" => "no request had inserted them",
        "partial" => "do not fill a block",
        _ => "of requests too large for the cache",
    };
    Ok(html! {
        h2 { "Misses by reason" }
        (PreEscaped(plots::bars("prompt tokens that were not cached", &bars)?))
        div class="scroll" { table {
            tr { th { "reason" } th { "tokens" } th { "requests that miss it first" } th class="words" { "tokens that" } }
            @for miss in &details.misses {
                tr {
                    td { (miss.reason.name()) } td { (count(miss.tokens)) } td { (count(miss.requests as u64)) }
                    td class="words" { (means(miss.reason.name())) }
                }
            }
        } }
    })
}

fn evictions(details: &Details) -> Result<Markup, fmt::Error> {
    let evictions = &details.evictions;
    let rows = [
        ("asked for again later", evictions.asked_again_blocks),
        ("not asked for again", evictions.not_asked_again_blocks),
    ];
    let bars: Vec<Bar> = rows.iter().map(|&(name, blocks)| Bar::new(name, blocks)).collect();
    Ok(html! {
        h2 { "Evictions by reason" }
        p { "All were evicted for " (evictions.reason) ". Those that were asked for again are the misses by eviction." }
        (PreEscaped(plots::bars("evicted blocks", &bars)?))
        div class="scroll" { table {
            tr { th { (evictions.reason) } th { "blocks" } }
            @for (name, blocks) in rows { tr { td { (name) } td { (count(blocks)) } } }
        } }
    })
}

fn prefixes(details: &Details) -> Result<Markup, fmt::Error> {
    let name = |prefix: &radixkv_replay::details::HotPrefix| {
        format!("row {}, {}-{}", prefix.row, prefix.from_token, prefix.to_token)
    };
    let bars: Vec<Bar> = details.top_prefixes.iter().map(|prefix| Bar::new(&name(prefix), prefix.hit_tokens)).collect();
    Ok(html! {
        h2 { "Top prefixes" }
        p { "Pieces of prompts with the most hit tokens, each by the first row that has it and its place in that prompt." }
        (PreEscaped(plots::bars("hit tokens", &bars)?))
        div class="scroll" { table {
            tr { th { "row" } th { "from token" } th { "to token" } th { "requests" } th { "hit tokens" } }
            @for prefix in &details.top_prefixes {
                tr {
                    td { (count(prefix.row as u64)) } td { (count(prefix.from_token as u64)) }
                    td { (count(prefix.to_token as u64)) } td { (count(prefix.requests)) } td { (count(prefix.hit_tokens)) }
                }
            }
        } }
    })
}

fn latencies(report: &Report, details: &Details) -> Result<Markup, fmt::Error> {
    let rows = [
        ("match", report.match_ns, &details.latencies.match_ns),
        ("insert", report.insert_ns, &details.latencies.insert_ns),
        ("reserve, evicting", report.evict_ns, &details.latencies.evict_ns),
    ];
    Ok(html! {
        h2 { "Latencies" }
        p { "Calls by the time that they took, on this machine; each bar is twice as far as the one before." }
        div class="plots" {
            @for (name, _, bars) in rows { (PreEscaped(plots::histogram(name, bars)?)) }
        }
        div class="scroll" { table {
            tr { th { "nanoseconds" } th { "p50" } th { "p99" } th { "p99.9" } }
            @for (name, of, _) in rows {
                tr { td { (name) } td { (count(of.p50)) } td { (count(of.p99)) } td { (count(of.p999)) } }
            }
        } }
    })
}

/// What requests waited for, if they were served in trace time.
fn service(report: &Report) -> Markup {
    html! {
        @if let Some(served) = &report.service {
            h2 { "Waits in trace time" }
            p {
                (count(served.slots as u64)) " slots, " (figure(served.prefill_rate)) " tokens a second in prefill, "
                (figure(served.decode_rate)) " in decode; at most " (count(served.peak_running as u64))
                " requests at once, over " (figure(served.trace_seconds)) " seconds."
            }
            table {
                tr { th { "seconds" } th { "mean" } th { "p50" } th { "p99" } }
                @for (name, waits) in [("in the queue", served.queue_wait), ("to the first token", served.first_token)] {
                    tr { td { (name) } @for wait in [waits.mean, waits.p50, waits.p99] { td { (figure(wait)) } } }
                }
            }
        }
    }
}

/// A whole number, with the same number for programs.
fn count(number: u64) -> Markup {
    html! { data value=(number) { (grouped(number)) } }
}

fn rate(rate: f64) -> Markup {
    html! { data value=(rate) { (percent(rate)) } }
}

fn figure(number: f64) -> Markup {
    html! { data value=(number) { (format!("{number:.3}")) } }
}
