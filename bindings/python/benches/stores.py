"""What a scheduler's thread spends on a store of digest-keyed blocks, and what copies cost.

    python benches/stores.py                        # radixkv alone
    RADIXKV_SGLANG=FOLDER python benches/stores.py  # and the HiCache backend, on the tests' stand-in for torch

Prints Markdown. FOLDER has `sglang`, as unpacked from its wheel. Calls are in processor time of
the calling thread, copies in wall time beside `numpy.copyto`.
"""

import hashlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import radixkv

FACTS = {"key_bytes": 32, "model": "m", "dtype": "bf16", "hash_scheme": "sha256"}
CALLS, BLOCKS, SMALL, LARGE, COPIED = 2000, 100_000, 4096, 1 << 20, 128
KEYS = [hashlib.sha256(str(number).encode()).digest() for number in range(BLOCKS)]


def spent(call):
    """Processor time of this thread in a call, in microseconds."""
    began = time.thread_time_ns()
    result = call()
    return (time.thread_time_ns() - began) / 1000, result


def row(name, samples):
    samples.sort()
    print(f"| {name} | {samples[len(samples) // 2]:.1f} | {samples[-len(samples) // 1000]:.1f} | {samples[-1]:.1f} |")


def calls():
    region = radixkv.DigestRegion(None, SMALL, 600 << 20)
    store = radixkv.DigestStore(region, "calls", block_bytes=SMALL, **FACTS)
    memory, draw = np.ones((10_000, SMALL), dtype=np.uint8), random.Random(1)
    for start in range(0, BLOCKS, len(memory)):
        store.wait(store.store(KEYS[start : start + len(memory)], memory))
    print("| call | median, us | p99.9, us | longest, us |\n|---|---:|---:|---:|")
    for keys in (1, 32, 256):
        some = [draw.sample(KEYS, keys) for _ in range(100)]
        row(f"`exists`, {keys} keys", [spent(lambda at=at: store.exists(some[at % 100]))[0] for at in range(CALLS)])
    some, submits, polls = [draw.sample(KEYS, 32) for _ in range(100)], [], []
    for at in range(CALLS):
        submits.append(spent(lambda at=at: store.load(some[at % 100], memory[:32]))[0])
        while True:
            took, handed = spent(store.poll)
            polls.append(took)
            if handed:
                break
            time.sleep(0.0001)
    row("`load`, 32 blocks", submits)
    row("`poll`", polls)


def copies():
    region = radixkv.DigestRegion(None, LARGE, 300 << 20)
    source, target = np.ones((COPIED, LARGE), dtype=np.uint8), np.zeros((COPIED, LARGE), dtype=np.uint8)
    print("\n| checksum | store, GB/s | load, GB/s | `numpy.copyto`, GB/s |\n|---|---:|---:|---:|")
    for checksum in (True, False):
        with radixkv.DigestStore(region, f"copies {checksum}", block_bytes=LARGE, checksum=checksum, **FACTS) as store:
            best, keys = [9.0] * 3, KEYS[:COPIED]
            for _ in range(8):
                steps = (
                    lambda: store.wait(store.store(keys, source)),
                    lambda: store.wait(store.load(keys, target)),
                    lambda: np.copyto(target, source),
                )
                for at, step in enumerate(steps):
                    began = time.perf_counter()
                    step()
                    best[at] = min(best[at], time.perf_counter() - began)
                store.wait(store.remove(keys))
            store.clear()
        rates = " | ".join(f"{COPIED * LARGE / took / 1e9:.1f}" for took in best)
        print(f"| {'yes' if checksum else 'no'} | {rates} |")


def hicache():
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "sglang"))
    import hicache_world as world

    with tempfile.TemporaryDirectory() as folder:
        server = world.Server(Path(folder) / "region", size="16MiB", pages=128)
        keys = world.hashes(list(range(world.PAGE * 128)))
        server.storage.batch_set_v1(keys, world.indices(range(128)))
        print("\n| HiCache, 128 pages of two blocks | median, us | p99.9, us | longest, us |\n|---|---:|---:|---:|")
        row("`batch_exists`", [spent(lambda: server.storage.batch_exists(keys))[0] for _ in range(CALLS)])
        indices = world.indices(range(128))
        row("`batch_get_v1`", [spent(lambda: server.storage.batch_get_v1(keys, indices))[0] for _ in range(CALLS)])


if __name__ == "__main__":
    calls()
    copies()
    if os.environ.get("RADIXKV_SGLANG"):
        hicache()
