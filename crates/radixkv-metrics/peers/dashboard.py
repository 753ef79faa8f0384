#!/usr/bin/env python3
"""Asks a real Prometheus every expression of the dashboard: each must give numbers, and few series.

    dashboard.py PROMETHEUS PROGRAM     the binary `prometheus`, and the example `serve`
    dashboard.py PROMETHEUS HOST:PORT   a server that runs already; panels of collapsed rows may be empty
"""

import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

DASHBOARD = Path(__file__).resolve().parent.parent / "grafana/radixkv.json"
# Where Prometheus listens.
ADDRESS = "127.0.0.1:19419"
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$__range": "30s", "$instance": ".*", "$model": ".*"}
# Series of one query.
MOST = 10
SECONDS = 15


def expressions():
    """Title, expression, and whether a collapsed row has it."""
    for outer in json.loads(DASHBOARD.read_text())["panels"]:
        for panel in [outer, *outer.get("panels", [])]:
            for target in panel.get("targets", []):
                expression = target["expr"]
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                yield panel["title"], expression, panel is not outer


def ask(path, **query):
    with urllib.request.urlopen(f"http://{ADDRESS}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def check(may_lack_collapsed):
    """The expressions that give nothing, or nothing that can be drawn."""
    count, broken = 0, []
    for title, expression, is_collapsed in expressions():
        count += 1
        series = ask("/api/v1/query", query=expression)["result"]
        values = [float(each["value"][1]) for each in series]
        if not values and not (is_collapsed and may_lack_collapsed):
            broken.append(f"{title}: nothing for {expression}")
        if any(math.isnan(value) for value in values) or len(values) > MOST:
            broken.append(f"{title}: {values} for {expression}")
    return count, broken


def main():
    prometheus, target = sys.argv[1:]
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            if is_program := Path(target).exists():
                server = subprocess.Popen([target, "127.0.0.1:0", "60"], stdout=subprocess.PIPE, text=True)
                processes.append(server)
                target = server.stdout.readline().strip().removeprefix("http://").removesuffix("/metrics")
            config = Path(folder, "prometheus.yml")
            config.write_text(
                "global: {scrape_interval: 1s}\n"
                f"scrape_configs: [{{job_name: radixkv, static_configs: [{{targets: ['{target}']}}]}}]\n"
            )
            command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={ADDRESS}"]
            processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            time.sleep(SECONDS)
            health = ask("/api/v1/targets")["activeTargets"][0]
            assert health["health"] == "up", health
            count, broken = check(may_lack_collapsed=not is_program)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if broken:
        sys.exit("broken: the dashboard's expressions give numbers\n" + "\n".join(broken))
    print(f"holds: {count} expressions of the dashboard, in Prometheus")


if __name__ == "__main__":
    main()
