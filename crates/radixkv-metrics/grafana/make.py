#!/usr/bin/env python3
"""Writes radixkv.json, the dashboard: `python3 make.py`. Grafana's own export of it is as good; this is shorter to read.

Every query names the cache's own metrics (or those of `BlockLives`) and filters by instance and model, so that servers
of vLLM and SGLang that the same Prometheus scrapes are not mixed in.
"""

import json
from pathlib import Path

FILTER = 'instance=~"$instance", model_name=~"$model"'
COLUMNS, HEIGHT = 3, 7
WIDTH = 24 // COLUMNS
SOURCE = {"type": "prometheus", "uid": "${source}"}


def metric(name, *labels):
    """A metric of the chosen instances and models."""
    return f"{name}{{{', '.join([FILTER, *labels])}}}"


def total(name, *labels, by=""):
    """The sum of a gauge."""
    return f"sum{f' by ({by})' if by else ''} ({metric(name, *labels)})"


def rate(name, by="", window="$__rate_interval", function="rate"):
    """What a counter gains in a second."""
    return f"sum{f' by ({by})' if by else ''} ({function}({metric(name)}[{window}]))"


def gain(name):
    """What a counter of namespaces gains in the time that is shown."""
    return rate(name, by="kind, namespace", window="$__range", function="increase")


def quantile(share, name):
    """A quantile of a histogram; the comparison drops the NaN of a time without observations."""
    return f"histogram_quantile({share}, {rate(name + '_bucket', by='le')}) >= 0"


# Rows: a title, whether the row is collapsed, and panels: title, unit of Grafana, description, and
# the curves with their legends.
ROWS = [
    ("Hits", False, [
        ("Hit rate", "percentunit", "Tokens found over tokens looked up. Empty while nothing is looked up.", [
            (f"{rate('radixkv_hit_tokens_total')} / ({rate('radixkv_query_tokens_total')} > 0)", "tokens found"),
        ]),
        ("Tokens a second", "short", "Tokens looked up, found by the lookup, found by a resumed lookup, and equal inside a block.", [
            (rate("radixkv_query_tokens_total"), "looked up"),
            (rate("radixkv_hit_tokens_total"), "found"),
            (rate("radixkv_resumed_tokens_total"), "found later"),
            (rate("radixkv_partial_tokens_total"), "inside a block"),
        ]),
        ("Missed tokens a second, by likely reason", "short", "Tokens of whole blocks that were not found. Many evicted ones: the pool is too small. Many diverged ones: prompts differ early.", [
            (rate("radixkv_missed_tokens_total", by="reason"), "{{reason}}"),
        ]),
    ]),
    ("Requests", False, [
        ("Lookups and inserts a second", "ops", "Calls that look a prompt up, and calls that insert one.", [
            (rate("radixkv_lookups_total"), "lookups"),
            (rate("radixkv_inserts_total"), "inserts"),
        ]),
        ("Requests for blocks a second", "ops", "Reservations that were served, and those that were refused: exhausted (the pool) or over a quota.", [
            (rate("radixkv_reservations_total"), "served"),
            (rate("radixkv_refusals_total", by="reason"), "refused: {{reason}}"),
        ]),
        ("Waiting requests", "short", "Requests that wait for blocks at this moment.", [
            (total("radixkv_waiting_requests"), "requests"),
        ]),
        ("Mean wait", "s", "Mean time that requests which had to wait for blocks have waited; 0 where none waited.", [
            (f"{rate('radixkv_wait_seconds_total')} / clamp_min({rate('radixkv_waits_total')}, 1e-9)", "mean wait"),
        ]),
    ]),
    ("Blocks", False, [
        ("Blocks by state", "short", "Free, reserved, evictable (cached and idle) and protected (leased or retained) blocks; they add up to the capacity.", [
            (total("radixkv_blocks", by="state"), "{{state}}"),
            (total("radixkv_capacity_blocks"), "capacity"),
        ]),
        ("In use", "percentunit", "Share of the blocks that leases, retentions and reservations hold. What is cached and evictable does not count.", [
            (f"""{total("radixkv_blocks", 'state=~"reserved|protected"')} / {total("radixkv_capacity_blocks")}""", "in use"),
        ]),
        ("Evicted blocks a second", "short", "Cached blocks that were removed, by reason.", [
            (rate("radixkv_evicted_blocks_total", by="reason"), "{{reason}}"),
        ]),
        ("Taken and inserted blocks a second", "short", "Blocks that requests took, that were cached, and that an insert did not need because they were cached already.", [
            (rate("radixkv_taken_blocks_total"), "taken"),
            (rate("radixkv_inserted_blocks_total"), "cached"),
            (rate("radixkv_duplicate_blocks_total"), "cached already"),
        ]),
        ("Retained blocks a second", "short", "Blocks of prefixes that were retained until a deadline.", [
            (rate("radixkv_retained_blocks_total"), "blocks"),
        ]),
    ]),
    ("Index", False, [
        ("Index memory", "bytes", "Memory of the index, the part that waits to be freed, and what the index has from the system.", [
            (total("radixkv_index_bytes"), "in use"),
            (total("radixkv_garbage_bytes"), "garbage"),
            (total("radixkv_slab_bytes"), "from the system"),
        ]),
        ("Runs and points", "short", "Nodes of the index: runs of blocks, and the points on them where prompts ended or part.", [
            (total("radixkv_runs"), "runs"),
            (total("radixkv_points"), "points"),
        ]),
        ("Retentions and deflations a second", "ops", "Prefixes that were retained, and hot points that became ordinary ones again.", [
            (rate("radixkv_retentions_total"), "retained prefixes"),
            (rate("radixkv_deflations_total"), "deflations"),
        ]),
    ]),
    ("Namespaces (NamespaceCollector)", True, [
        ("Busiest namespaces: lookups", "short", "The ten namespaces with the most lookups in the time that is shown.", [
            (f"topk(10, {gain('radixkv_namespace_lookups_total')} > 0)", "{{kind}} {{namespace}}"),
        ]),
        ("Busiest namespaces: hit rate", "percentunit", "Tokens found over tokens looked up, of the ten namespaces with the most lookups.", [
            (f"{gain('radixkv_namespace_hit_tokens_total')} / ({gain('radixkv_namespace_query_tokens_total')} > 0)"
             f" and topk(10, {gain('radixkv_namespace_lookups_total')} > 0)", "{{kind}} {{namespace}}"),
        ]),
        ("Namespaces with the most missed tokens", "short", "Tokens of whole blocks that were not found, of the ten namespaces with the most of them.", [
            (f"topk(10, {gain('radixkv_namespace_missed_tokens_total')} > 0)", "{{kind}} {{namespace}}"),
        ]),
    ]),
    ("Sampled times (Timers, BlockLives)", True, [
        ("Allocation", "s", "Time of a call that takes blocks, waits included. Needs an engine that registers `Timers`.", [
            (quantile(0.5, "radixkv_allocation_seconds"), "median"),
            (quantile(0.99, "radixkv_allocation_seconds"), "99 %"),
        ]),
        ("Eviction", "s", "Time of a call that evicts. Needs an engine that registers `Timers`.", [
            (quantile(0.5, "radixkv_eviction_seconds"), "median"),
            (quantile(0.99, "radixkv_eviction_seconds"), "99 %"),
        ]),
        ("Lives of blocks: medians", "s", "How long evicted blocks were cached, how long they were idle, and the time from one use to the next. Needs an engine that registers `BlockLives`.", [
            (quantile(0.5, "vllm:kv_block_lifetime_seconds"), "cached"),
            (quantile(0.5, "vllm:kv_block_idle_before_evict_seconds"), "idle at the end"),
            (quantile(0.5, "vllm:kv_block_reuse_gap_seconds"), "between uses"),
        ]),
    ]),
    ("Host tier and remote tiers (HostCollector)", True, [
        ("Host blocks by state", "short", "Blocks of host memory: cached, pinned by a copy, being filled, free; and the capacity.", [
            (total("radixkv_host_blocks", by="state"), "{{state}}"),
            (total("radixkv_host_capacity_blocks"), "capacity"),
        ]),
        ("Host lookups a second", "ops", "Lookups in the host tier.", [
            (rate("radixkv_host_lookups_total"), "lookups"),
        ]),
        ("Host blocks a second", "short", "Host blocks that were found, stored, stored already, refused, and removed by reason.", [
            (rate("radixkv_host_hit_blocks_total"), "found"),
            (rate("radixkv_host_arrived_blocks_total"), "stored"),
            (rate("radixkv_host_duplicate_blocks_total"), "stored already"),
            (rate("radixkv_host_refused_blocks_total", by="reason"), "refused: {{reason}}"),
            (rate("radixkv_host_removed_blocks_total", by="reason"), "removed: {{reason}}"),
        ]),
        ("Copied bytes a second", "Bps", "Bytes copied between the device and the host.", [
            (rate("radixkv_host_copied_bytes_total", by="to"), "to the {{to}}"),
        ]),
        ("Copied tokens a second", "short", "Tokens copied between the device and the host, those among them that came from remote tiers, and those computed again because a copy failed.", [
            (rate("radixkv_host_copied_tokens_total", by="to"), "to the {{to}}"),
            (rate("radixkv_remote_tokens_total"), "from remote tiers"),
            (rate("radixkv_host_failed_tokens_total"), "failed"),
        ]),
        ("Evicted blocks without a copy a second", "short", "Device blocks offered to the host tier, and blocks that were not copied there, by reason.", [
            (rate("radixkv_host_offered_blocks_total"), "offered"),
            (rate("radixkv_host_uncopied_blocks_total", by="reason"), "not copied: {{reason}}"),
            (rate("radixkv_host_bypassed_blocks_total"), "evicted, not offered to the host"),
        ]),
        ("Remote reads a second", "short", "Blocks that lookups asked remote tiers for, that these have, that came, and that did not come, by reason.", [
            (rate("radixkv_remote_asked_blocks_total"), "asked"),
            (rate("radixkv_remote_found_blocks_total"), "found"),
            (rate("radixkv_remote_fetched_blocks_total"), "fetched"),
            (rate("radixkv_remote_unfetched_blocks_total", by="reason"), "not fetched: {{reason}}"),
        ]),
        ("Remote writes a second", "short", "Blocks that remote tiers took, had already, and did not take, by reason.", [
            (rate("radixkv_remote_put_blocks_total"), "put"),
            (rate("radixkv_remote_present_blocks_total"), "there already"),
            (rate("radixkv_remote_unput_blocks_total", by="reason"), "not put: {{reason}}"),
        ]),
        ("Dropped remote fetches a second", "ops", "Fetches that were not begun because too many were under way, or given up because they were late.", [
            (rate("radixkv_remote_dropped_fetches_total", by="reason"), "{{reason}}"),
        ]),
        ("Silent remote tiers", "ops", "Times a second that a remote tier was left out for a while because it did not answer.", [
            (rate("radixkv_remote_left_out_tiers_total"), "left out"),
        ]),
        ("Remote blocks in flight", "short", "Blocks on their way to remote tiers (put) and from them (get).", [
            (total("radixkv_remote_blocks_in_flight", by="direction"), "{{direction}}"),
        ]),
    ]),
]


def panel(identifier, place, title, unit, description, curves):
    """A panel. One that looks at the whole time shown is a list of bars, the others are curves."""
    is_bars = "$__range" in curves[0][0]
    return {
        "id": identifier,
        "type": "bargauge" if is_bars else "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, **({"max": 1} if unit == "percentunit" else {})}, "overrides": []},
        **({"options": {"orientation": "horizontal"}} if is_bars else {}),
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"instant": True, "range": False} if is_bars else {}),
            }
            for i, (expression, legend) in enumerate(curves)
        ],
    }


def panels():
    """The rows and their panels; those of a collapsed row are part of it."""
    listed, y, identifier = [], 0, 0
    for title, is_collapsed, shown in ROWS:
        identifier += 1
        row = {"id": identifier, "type": "row", "title": title, "collapsed": is_collapsed,
               "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        listed.append(row)
        y += 1
        for i, each in enumerate(shown):
            identifier += 1
            place = {"x": WIDTH * (i % COLUMNS), "y": y + HEIGHT * (i // COLUMNS), "w": WIDTH, "h": HEIGHT}
            (row["panels"] if is_collapsed else listed).append(panel(identifier, place, *each))
        y += HEIGHT * -(-len(shown) // COLUMNS)
    return listed


def variable(name, label, query, **others):
    """A variable with the values of a label; all of them by default."""
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]}, **others,
    }


DASHBOARD = {
    "title": "radixkv",
    "uid": "radixkv",
    "description": "Prefix caches of radixkv, by the metrics of the package radixkv-metrics.",
    "schemaVersion": 39,
    "editable": True,
    "refresh": "10s",
    "time": {"from": "now-1h", "to": "now"},
    "templating": {"list": [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        # "All" means the listed values: those that have a cache of radixkv.
        variable("instance", "Instance", "label_values(radixkv_capacity_blocks, instance)"),
        # A registry may have no such label.
        variable("model", "Model", 'label_values(radixkv_capacity_blocks{instance=~"$instance"}, model_name)', allValue=".*"),
    ]},
    "panels": panels(),
}

if __name__ == "__main__":
    Path(__file__).with_name("radixkv.json").write_text(json.dumps(DASHBOARD, indent=1) + "\n")
