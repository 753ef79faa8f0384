#!/usr/bin/env python3
"""Writes radixkv.json, the dashboard: `python3 make.py`. Grafana's own export of it is as good; this is shorter to read."""

import json
from pathlib import Path

WINDOW = "[$__rate_interval]"
WIDTH, HEIGHT = 8, 7

# Title, unit of Grafana, and the curves: expression and legend.
PANELS = [
    ("Hit rate", "percentunit", [
        (f"sum(rate(vllm:prefix_cache_hits_total{WINDOW})) / sum(rate(vllm:prefix_cache_queries_total{WINDOW}))", "tokens found"),
    ]),
    ("Tokens a second", "short", [
        (f"sum(rate(radixkv_query_tokens_total{WINDOW}))", "looked up"),
        (f"sum(rate(radixkv_hit_tokens_total{WINDOW}))", "found"),
        (f"sum(rate(radixkv_resumed_tokens_total{WINDOW}))", "found later"),
        (f"sum(rate(radixkv_partial_tokens_total{WINDOW}))", "inside a block"),
    ]),
    ("Lookups and inserts a second", "ops", [
        (f"sum(rate(radixkv_lookups_total{WINDOW}))", "lookups"),
        (f"sum(rate(radixkv_inserts_total{WINDOW}))", "inserts"),
    ]),
    ("Blocks", "short", [
        ("sum by (state) (radixkv_blocks)", "{{state}}"),
        ("sum(radixkv_capacity_blocks)", "capacity"),
    ]),
    ("In use", "percentunit", [("avg(vllm:kv_cache_usage_perc)", "leases and reservations")]),
    ("Evicted blocks a second", "short", [
        (f"sum by (reason) (rate(radixkv_evicted_blocks_total{WINDOW}))", "{{reason}}"),
    ]),
    ("Inserted blocks a second", "short", [
        (f"sum(rate(radixkv_inserted_blocks_total{WINDOW}))", "cached"),
        (f"sum(rate(radixkv_duplicate_blocks_total{WINDOW}))", "cached already"),
    ]),
    ("Requests for blocks a second", "ops", [
        (f"sum(rate(radixkv_reservations_total{WINDOW}))", "served"),
        (f"sum by (reason) (rate(radixkv_refusals_total{WINDOW}))", "refused: {{reason}}"),
    ]),
    ("Waiting", "short", [
        ("sum(radixkv_waiting_requests)", "requests"),
        (f"sum(rate(radixkv_wait_seconds_total{WINDOW})) / sum(rate(radixkv_waits_total{WINDOW}))", "mean wait, s"),
    ]),
    ("Allocation, sampled", "s", [
        (f"histogram_quantile(0.5, sum by (le) (rate(radixkv_allocation_seconds_bucket{WINDOW})))", "median"),
        (f"histogram_quantile(0.99, sum by (le) (rate(radixkv_allocation_seconds_bucket{WINDOW})))", "99 %"),
    ]),
    ("Eviction, sampled", "s", [
        (f"histogram_quantile(0.5, sum by (le) (rate(radixkv_eviction_seconds_bucket{WINDOW})))", "median"),
        (f"histogram_quantile(0.99, sum by (le) (rate(radixkv_eviction_seconds_bucket{WINDOW})))", "99 %"),
    ]),
    ("Lives of blocks, sampled: medians", "s", [
        (f"histogram_quantile(0.5, sum by (le) (rate(vllm:kv_block_lifetime_seconds_bucket{WINDOW})))", "cached"),
        (f"histogram_quantile(0.5, sum by (le) (rate(vllm:kv_block_idle_before_evict_seconds_bucket{WINDOW})))", "idle at the end"),
        (f"histogram_quantile(0.5, sum by (le) (rate(vllm:kv_block_reuse_gap_seconds_bucket{WINDOW})))", "between uses"),
    ]),
    ("Index memory", "bytes", [
        ("sum(radixkv_index_bytes)", "in use"),
        ("sum(radixkv_garbage_bytes)", "garbage"),
        ("sum(radixkv_slab_bytes)", "from the system"),
    ]),
    ("Index", "short", [("sum(radixkv_runs)", "runs"), ("sum(radixkv_points)", "points")]),
    ("Retention and hot points a second", "ops", [
        (f"sum(rate(radixkv_retentions_total{WINDOW}))", "retained prefixes"),
        (f"sum(rate(radixkv_deflations_total{WINDOW}))", "deflations"),
    ]),
]


def panel(number, title, unit, curves):
    """A panel, three to a row."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"x": WIDTH * (number % 3), "y": HEIGHT * (number // 3), "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": source, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(curves)
        ],
    }


DASHBOARD = {
    "title": "radixkv",
    "uid": "radixkv",
    "schemaVersion": 39,
    "editable": True,
    "refresh": "10s",
    "time": {"from": "now-1h", "to": "now"},
    "templating": {"list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]},
    "panels": [panel(i, *each) for i, each in enumerate(PANELS)],
}

if __name__ == "__main__":
    Path(__file__).with_name("radixkv.json").write_text(json.dumps(DASHBOARD, indent=1) + "\n")
