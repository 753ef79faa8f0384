"""Replicas of one region that are killed at random moments.

`RADIXKV_VLLM_KILLS` is how many of each of the two (3).
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import replica
import vllm_engine

import radixkv

KILLS = int(os.environ.get("RADIXKV_VLLM_KILLS", "3"))
# For fewer chunks than the prompts of `replica.py` have, so that it evicts.
SIZE = 1 << 20


class Process:
    """`replica.py`, started."""

    started = 0

    def __init__(self, region, seed, *seconds):
        Process.started += 1
        self.engine = f"radixkv-killed-{os.getpid()}-{Process.started}"
        command = [sys.executable, Path(__file__).with_name("replica.py"), region, SIZE, self.engine, seed, *seconds]
        # With the stand-in for torch: the real one takes seconds to import.
        environment = {name: value for name, value in os.environ.items() if name != "RADIXKV_TORCH"}
        self._running = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.told = []

    def wait_until_ready(self):
        line = self._running.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"{line}{self._running.stderr.read()}")

    def wait_until_it_has_stored(self):
        """How many chunks it had stored by its first report."""
        line = self._running.stdout.readline()
        if not line:
            raise AssertionError(self._running.stderr.read())
        return int(line.split()[2])

    def kill(self):
        assert self._running.poll() is None, self._running.stderr.read()
        self._running.kill()
        return self._end()

    def end(self):
        """Waits until it has closed everything."""
        counts = self._end()
        assert self._running.returncode == 0 and self.told[-1] == ["closed"], self.told
        return counts

    def _end(self):
        """What it told at last: requests, loaded and stored chunks."""
        out, errors = self._running.communicate(timeout=60)
        # Memory of vLLM's that a killed engine leaves.
        Path(f"/dev/shm/vllm_offload_{self.engine}.mmap").unlink(missing_ok=True)
        assert not errors, errors
        self.told = [line.split() for line in out.splitlines() if line.endswith(tuple("0123456789d"))]
        counts = [line for line in self.told if len(line) == 3]
        return tuple(map(int, counts[-1])) if counts else (0, 0, 0)


def stored_of_as_many_as_fit(region):
    """How many of `capacity_blocks` blocks a region without blocks has, after they were stored."""
    region.clear()
    count = region.capacity_blocks
    keys = [number.to_bytes(36, "big") for number in range(1, count + 1)]
    described = {"key_bytes": 36, "block_bytes": vllm_engine.CHUNK, "model": "m", "dtype": "d", "hash_scheme": "sha256"}
    with radixkv.DigestStore(region, "fill", **described) as store:
        for at in range(0, count, 64):
            part = keys[at : at + 64]
            store.wait(store.store(part, bytes(len(part) * vllm_engine.CHUNK)))
        return sum(store.exists(keys))


def test_killed_replicas_leave_the_region_whole(region):
    draw = random.Random(int.from_bytes(os.urandom(4)))
    seed = iter(range(1 << 30))
    running = [Process(region, next(seed)) for _ in range(2)]
    loaded = stored = 0
    for _ in range(KILLS):
        for at in range(2):
            if draw.random() < 0.8:
                running[at].wait_until_ready()
            time.sleep(draw.random() * 0.3)
            _, more_loaded, more_stored = running[at].kill()
            loaded, stored = loaded + more_loaded, stored + more_stored
            running[at] = Process(region, next(seed))
    for process in running:
        process.wait_until_ready()
        process.kill()
    # Two more that are not killed, side by side; each compares every chunk that it loads.
    last = [Process(region, next(seed), 0.5) for _ in range(2)]
    for _, more_loaded, more_stored in [process.end() for process in last]:
        loaded, stored = loaded + more_loaded, stored + more_stored
    assert loaded and stored

    with radixkv.DigestRegion(region) as whole:
        whole.recover()
        stats = whole.stats()
        assert stats["in_flight"] == 0 and stats["processes"] <= 1, stats
        fits = stored_of_as_many_as_fit(whole)
    with radixkv.DigestRegion(region + "-fresh", vllm_engine.CHUNK, SIZE) as fresh:
        assert fits == stored_of_as_many_as_fit(fresh)


def test_a_killed_replica_leaves_what_it_had_stored(region, replicas):
    first = Process(region, 1)
    first.wait_until_ready()
    stored = first.wait_until_it_has_stored()
    first.kill()
    second = replicas(chunks=24, tier={"region": region, "region_bytes": SIZE})
    draw = random.Random(1)
    for _ in range(40):
        second.run(replica.prompt(draw))
    assert stored and second.loaded
