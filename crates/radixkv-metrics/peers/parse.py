#!/usr/bin/env python3
"""Reads the metrics of `serve` twice over HTTP and holds them against what OpenMetrics and Prometheus ask for.

    parse.py PROGRAM      the example `serve`
"""

import subprocess
import sys
import time
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus


def scrape(url, accept="application/openmetrics-text; version=1.0.0"):
    """The text, and the content type that it has."""
    request = urllib.request.Request(url, headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode(), answer.headers["content-type"]


def samples(text):
    """Every sample by name and labels: by the strict parser of OpenMetrics."""
    found = {}
    for family in openmetrics(text):
        assert family.documentation, f"{family.name} says nothing"
        assert family.type in ("counter", "gauge", "histogram"), f"{family.name} is a {family.type}"
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} stands twice"
            found[key] = (sample.value, family.type)
    return found


def main():
    process = subprocess.Popen([sys.argv[1], "127.0.0.1:0", "20"], stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        first, kind = scrape(url)
        assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
        time.sleep(0.5)
        second = scrape(url)[0]
        plain, kind = scrape(url, accept="*/*")
        assert kind.startswith("text/plain; version=0.0.4"), kind
    finally:
        process.kill()
        process.wait()
    before, after = samples(first), samples(second)
    # A label that has not been seen yet, such as a namespace's, has no sample; none may vanish.
    vanished = before.keys() - after.keys()
    assert not vanished, vanished
    for key, (value, kind) in after.items():
        falls = kind == "counter" and value < before.get(key, (0, kind))[0]
        assert not falls, f"{key} fell from {before[key][0]} to {value}"
    value = {name: value for (name, labels), (value, _) in after.items() if labels == (("model_name", "example"),)}
    assert value["vllm:prefix_cache_queries_total"] > value["vllm:prefix_cache_hits_total"] > 0
    rate = value["vllm:prefix_cache_hits_total"] / value["vllm:prefix_cache_queries_total"]
    assert abs(value["sglang:cache_hit_rate"] - rate) < 1e-9
    states = [value for (name, _), (value, _) in after.items() if name == "radixkv_blocks"]
    assert sum(states) == value["radixkv_capacity_blocks"] == 2000
    assert value["radixkv_allocation_seconds_count"] > 0
    # The older parser reads the same numbers, and the older text has the same samples with their
    # help and types.
    older = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in prometheus(second) for s in family.samples}
    differing = [key for key, (value, _) in after.items() if older.get(key) != value]
    assert not differing, differing
    families = list(prometheus(plain))
    assert {(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples} == after.keys()
    lacking = [family.name for family in families if not family.documentation or family.type == "unknown"]
    assert not lacking, lacking
    print(f"holds: {len(after)} samples, by both parsers")


if __name__ == "__main__":
    main()
