//! Formats the report of a replay as an HTML page: one file, with its plots inside, that loads
//! nothing else.
//!
//! Every figure of the page is also in the output of `--json`: totals at the top level, others
//! under `details`.

mod plots;

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use radixkv_replay::{Details, Report};

use crate::{
    bytes::shown,
    figures::{grouped, percent},
};
use plots::Line;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 sans-serif;background:#fff;color:#20242c;max-width:960px;\
margin:24px auto;padding:0 12px}h1{font-size:22px;margin:0;overflow-wrap:anywhere}h2{font-size:17px;margin:28px 0 4px}\
p{margin:4px 0 8px;color:#4a5160}svg{display:block;max-width:100%;height:auto}figure{margin:8px 0 14px}\
figcaption{margin-bottom:4px}.key{white-space:nowrap;margin-left:14px}.key i{display:inline-block;width:16px;height:3px;\
margin-right:6px;vertical-align:middle}.narrow{display:none}.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}\
.tile{border:1px solid #d5d9e2;border-radius:6px;padding:6px 12px;min-width:120px}.tile b{display:block;font-size:19px}\
.bar{display:grid;grid-template-columns:230px 110px 1fr;column-gap:12px;align-items:center}.bar span{overflow-wrap:anywhere}\
.bar span+span{text-align:right;font-variant-numeric:tabular-nums}.bar i{display:block;height:14px;min-width:1px}\
table{border-collapse:collapse;margin:6px 0}th,td{padding:2px 14px 2px 0;text-align:right;font-variant-numeric:tabular-nums}\
th:first-child,td:first-child{text-align:left}td.words,th.words{text-align:left}th{border-bottom:1px solid #d5d9e2;font-weight:600}\
.scroll{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:8px}";
/// Rules for screens that are no wider than a phone.
const NARROW: &str = ".wide{display:none}.narrow{display:block}.key:first-of-type{margin-left:0}figcaption b{display:block}\
.tile{flex:1 1 130px;min-width:0}.bar{grid-template-columns:1fr auto;margin-bottom:6px}.bar i{grid-column:1/-1;height:10px;justify-self:start}";
const DARK: &str = "body{background:#14171d;color:#e2e6ee}p{color:#aab1bf}.tile,th{border-color:#3a404c}";

/// The page of one replay; `trace` is the name of the file without its folders.
pub(crate) fn page(trace: &str, report: &Report, details: &Details) -> Result<String, fmt::Error> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "radixkv replay: " (trace) }
                style { (PreEscaped(style())) }
            }
            body {
                (head(trace, report))
                (tiles(report))
                (course(report, details)?)
                (tiers(report))
                (misses(details))
                (evictions(details))
                (prefixes(details))
                (latencies(report, details)?)
                (service(report))
                p { "Every figure is in the output of " code { "radixkv replay --json" } ", which is made in the same run." }
            }
        }
    };
    Ok(page.into_string())
}

fn style() -> String {
    let (light, dark) = (plots::light_style(), plots::dark_style());
    format!("{STYLE}{light}@media(max-width:640px){{{NARROW}}}@media(prefers-color-scheme:dark){{{DARK}{dark}}}")
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
        ("hit rate without last tokens", rate(report.hit_rate_capped)),
        ("requests", count(report.requests as u64)),
        ("prompt tokens", count(report.prompt_tokens)),
        ("hit tokens", count(report.hit_tokens)),
        ("bypassed requests", count(report.bypassed_requests as u64)),
        ("inserted blocks", count(report.inserted_blocks)),
        ("evicted blocks", count(report.evicted_blocks)),
        ("peak cached blocks", count(report.peak_blocks as u64)),
        ("peak index memory", bytes(report.index_bytes_peak as u64)),
    ];
    html! {
        div class="tiles" { @for (name, value) in tiles { div class="tile" { b { (value) } (name) } } }
        p {
            "The hit rate is the share of prompt tokens that were found in the cache. An engine computes the last token of a \
             prompt even if all of it is cached: the rate without last tokens counts none of those as a hit."
        }
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
        p { "Requests from left to right, in " (parts) " parts of equally many." }
        (plots::lines("hit rate, percent of prompt tokens", &rates, 100.0)?)
        (plots::lines("occupancy, blocks", &blocks, report.capacity as f64)?)
    })
}

/// The section on tiers; empty without a host tier.
fn tiers(report: &Report) -> Markup {
    let Some(tiers) = &report.tiers else { return html! {} };
    let remote = tiers.remote.as_ref();
    let mut rows = vec![("device", tiers.first_hit_tokens), ("host", tiers.host_hit_tokens)];
    rows.extend(remote.map(|remote| ("remote", remote.remote_hit_tokens)));
    let bars: Vec<_> = rows.iter().map(|&(name, tokens)| (name.to_owned(), tokens)).collect();
    let host = format!("{}, {}, write-{}", tiers.host_kind, tiers.tier_mode, tiers.write_policy);
    html! {
        h2 { "Hits by tier" }
        p { "The host tier (" (host) ") has " (count(tiers.host_capacity as u64)) " blocks of " (tiers.host_block_size) " tokens." }
        (plots::bars("hit tokens, by where they were found", &bars))
        div class="scroll" { table {
            tr { th { "host tier" } th { "" } }
            tr { td { "copied to it" } td { (bytes(tiers.offloaded_bytes)) } }
            tr { td { "copied from it" } td { (bytes(tiers.onboarded_bytes)) } }
            tr { td { "evicted blocks" } td { (count(tiers.host_evicted_blocks)) } }
            tr { td { "most blocks" } td { (count(tiers.host_peak_blocks as u64)) } }
        } }
        @if let Some(remote) = remote {
            p { "The remote tier has " (count(remote.remote_capacity as u64)) " blocks of the same size." }
            div class="scroll" { table {
                tr { th { "remote tier" } th { "" } }
                tr { td { "copied to it" } td { (bytes(remote.remote_put_bytes)) } }
                tr { td { "copied from it" } td { (bytes(remote.remote_fetched_bytes)) } }
                tr { td { "evicted blocks" } td { (count(remote.remote_evicted_blocks)) } }
                tr { td { "most blocks" } td { (count(remote.remote_peak_blocks as u64)) } }
            } }
        }
    }
}

fn misses(details: &Details) -> Markup {
    let bars: Vec<_> = details.misses.iter().map(|miss| (miss.reason.name().to_owned(), miss.tokens)).collect();
    let means = |name| match name {
        "evicted" => "were cached, and evicted since",
        "computing" => "an earlier request was computing them",
        "new" => "no request had inserted them",
        "partial" => "do not fill a block",
        _ => "of requests too large for the cache",
    };
    html! {
        h2 { "Misses by reason" }
        (plots::bars("prompt tokens that were not cached", &bars))
        div class="scroll" { table {
            tr { th { "reason" } th { "tokens" } th { "requests that miss it first" } th class="words" { "tokens that" } }
            @for miss in &details.misses {
                tr {
                    td { (miss.reason.name()) } td { (count(miss.tokens)) } td { (count(miss.requests as u64)) }
                    td class="words" { (means(miss.reason.name())) }
                }
            }
        } }
    }
}

fn evictions(details: &Details) -> Markup {
    let evictions = &details.evictions;
    let rows = [
        ("requested again later", evictions.asked_again_blocks),
        ("not requested again", evictions.not_asked_again_blocks),
    ];
    let bars: Vec<_> = rows.iter().map(|&(name, blocks)| (name.to_owned(), blocks)).collect();
    html! {
        h2 { "Evictions by reason" }
        p { "All were evicted for " (evictions.reason) ". Those that were requested again are the misses by eviction." }
        (plots::bars("evicted blocks", &bars))
    }
}

fn prefixes(details: &Details) -> Markup {
    let name = |prefix: &radixkv_replay::details::HotPrefix| {
        format!("row {}, tokens {}-{}", prefix.row, prefix.from_token, prefix.to_token)
    };
    let bars: Vec<_> = details.top_prefixes.iter().map(|prefix| (name(prefix), prefix.hit_tokens)).collect();
    html! {
        h2 { "Top prefixes" }
        p { "Pieces of prompts with the most hit tokens, each by the first row that has it and its place in that prompt." }
        (plots::bars("hit tokens", &bars))
        div class="scroll" { table {
            tr { th { "row" } th { "from token" } th { "to token" } th { "requests" } th { "hit tokens" } }
            @for prefix in &details.top_prefixes {
                tr {
                    td { (count(prefix.row as u64)) } td { (count(prefix.from_token as u64)) }
                    td { (count(prefix.to_token as u64)) } td { (count(prefix.requests)) } td { (count(prefix.hit_tokens)) }
                }
            }
        } }
    }
}

fn latencies(report: &Report, details: &Details) -> Result<Markup, fmt::Error> {
    let rows = [
        ("match", report.match_ns, &details.latencies.match_ns),
        ("insert", report.insert_ns, &details.latencies.insert_ns),
        ("reserve, evicting", report.evict_ns, &details.latencies.evict_ns),
    ];
    Ok(html! {
        h2 { "Latencies" }
        p { "Calls by their latency on this machine; the end of each bar is twice that of the one before." }
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

/// The waits of requests; empty unless they were served in trace time.
fn service(report: &Report) -> Markup {
    html! {
        @if let Some(served) = &report.service {
            h2 { "Waits in trace time" }
            p {
                (count(served.slots as u64)) " slots, " (figure(served.prefill_rate)) " tokens a second in prefill, "
                (figure(served.decode_rate)) " in decode; at most " (count(served.peak_running as u64))
                " requests at once, over " (figure(served.trace_seconds)) " seconds."
            }
            div class="scroll" { table {
                tr { th { "seconds" } th { "mean" } th { "p50" } th { "p99" } }
                @for (name, waits) in [("in the queue", served.queue_wait), ("to the first token", served.first_token)] {
                    tr { td { (name) } @for wait in [waits.mean, waits.p50, waits.p99] { td { (figure(wait)) } } }
                }
            } }
        }
    }
}

/// A whole number, with its machine-readable value.
fn count(number: u64) -> Markup {
    html! { data value=(number) { (grouped(number)) } }
}

/// A number of bytes in the largest unit that does not exceed it.
fn bytes(number: u64) -> Markup {
    html! { data value=(number) { (shown(number)) } }
}

fn rate(rate: f64) -> Markup {
    html! { data value=(rate) { (percent(rate)) } }
}

/// A number with three decimals, or with none if it is whole.
fn figure(number: f64) -> Markup {
    let text = if number.fract() == 0.0 { grouped(number as u64) } else { format!("{number:.3}") };
    html! { data value=(number) { (text) } }
}
