"""What vLLM's scheduler thread pays for radixkv's tier: processor time of its calls, while a thread
stores and loads.

    RADIXKV_VLLM=FOLDER python benches/vllm_calls.py [BLOCKS [STEPS]]

Prints Markdown. FOLDER has `vllm`, as unpacked from its wheel. BLOCKS is how many chunks of 4 KiB the
region has (1,000,000: 5 GB of memory), STEPS how many steps of the scheduler are measured (20,000).
"""

import gc
import os
import platform
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "vllm_offload"))
import vllm_engine  # noqa: E402
from vllm.v1.kv_offload.base import ReqContext, ScheduleEndContext  # noqa: E402
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager  # noqa: E402
from vllm.v1.kv_offload.tiering.base import TransferJob  # noqa: E402

import radixkv.vllm  # noqa: E402
from radixkv.vllm._namespace import describe  # noqa: E402
from radixkv.vllm._spec import ASKED  # noqa: E402

CHUNK, JOB = 4096, 512
WARM_UP = 100
MOST = 200.0


class Measured:
    """Processor time of the calling thread, in microseconds, by call."""

    def __init__(self):
        self.times = {}

    def __call__(self, name, call, *arguments):
        began = time.thread_time_ns()
        result = call(*arguments)
        self.times.setdefault(name, []).append((time.thread_time_ns() - began) / 1e3)
        return result


def keys_from(start, count):
    return [number.to_bytes(32, "big") + bytes(4) for number in range(start, start + count)]


def fill(store, blocks):
    """Stores so many chunks."""
    memory, waiting = np.zeros(JOB * CHUNK, dtype=np.int8), []
    for start in range(0, blocks, JOB):
        waiting.append(store.store(keys_from(start, min(JOB, blocks - start)), memory))
        if len(waiting) > 32:
            store.wait(waiting.pop(0))
    for batch in waiting:
        store.wait(batch)


def in_background(store, blocks, stop):
    """Stores and loads, as fast as it goes."""
    memory, draw = np.zeros(JOB * CHUNK, dtype=np.int8), random.Random(2)
    while not stop.is_set():
        start = draw.randrange(blocks - JOB)
        store.wait(store.load(keys_from(start, JOB), memory))
        store.wait(store.store(keys_from(2 * blocks + start, JOB), memory))


def run(tier, blocks, steps, measured):
    """Scheduler's steps; each waits for the jobs of the one before, as long as they take."""
    draw, number = random.Random(1), 0
    for step in range(steps):
        if step == WARM_UP:
            measured.times.clear()
        start = draw.randrange(blocks - JOB)
        context = ReqContext(req_id=str(step))
        measured("on_new_request", tier.on_new_request, context)
        for key in keys_from(start, 16):
            measured("lookup, a hit", tier.lookup, key, context)
            measured("lookup, a miss", tier.lookup, b"none" + key[4:], context)
        for name, verb, base in (("submit_load", tier.submit_load, 0), ("submit_store", tier.submit_store, 4 * blocks)):
            size = JOB if step % 4 == 0 else 64
            number += 1
            keys, chunks = keys_from(base + start, size), np.arange(size, dtype=np.int32) + number % 2 * JOB
            job = TransferJob(number, keys, chunks, verb == tier.submit_load, context)
            measured(f"{name}, {size} chunks", verb, job)
        measured(f"touch, {JOB} chunks", tier.touch, keys_from(start, JOB), context)
        measured(f"present, {ASKED} chunks", tier.present, keys_from(start, ASKED))
        measured("on_schedule_end", tier.on_schedule_end, ScheduleEndContext((), ()))
        while tier._jobs:
            measured("get_finished_jobs", tier.get_finished_jobs)
            time.sleep(0.0005)
        measured("get_stats", tier.get_stats)
        measured("on_request_finished", tier.on_request_finished, context)


def run_policy(name, module, blocks, measured):
    """Requests of new chunks in vLLM's full CPU memory, of which each call is one of the manager's."""
    manager = CPUOffloadingManager(blocks, name, module)

    def request(number, call):
        keys = keys_from(number * JOB, JOB)
        context = ReqContext(req_id=str(number))
        for at, key in enumerate(keys, 1):
            context.set_offload_key_position(key, at)
        call("on_new_request", manager.on_new_request, context)
        output = call("prepare_store", manager.prepare_store, keys, context)
        call("complete_store", manager.complete_store, output.keys_to_store, context)
        call("on_request_finished", manager.on_request_finished, context)

    for number in range(blocks // JOB):
        request(number, lambda _, call, *arguments: call(*arguments))
    gc.collect()
    gc.freeze()
    for number in range(blocks // JOB, 2 * (blocks // JOB)):
        request(number, lambda call, *rest: measured(f"{name}: {call}", *rest))


def show(measured):
    print("\n| call | calls | median, us | p99.9, us | longest, us |\n|---|---:|---:|---:|---:|")
    for name, times in measured.times.items():
        middle, most = np.percentile(times, (50, 99.9))
        print(f"| {name} | {len(times):,} | {middle:.1f} | {most:.1f} | {max(times):.1f} |")


def main(blocks=1_000_000, steps=20_000):
    view = memoryview(np.zeros((2 * JOB, CHUNK), dtype=np.int8))
    spec = type("Spec", (), {"config": vllm_engine.config()})
    began = time.monotonic()
    tier = radixkv.vllm.RadixKVTier(
        spec, view, "radixkv", region=None, region_bytes=int(blocks * 1.1) * (CHUNK + 256), threads=1
    )
    described = describe(spec.config, CHUNK, tier._hash)
    other = radixkv.DigestStore(tier._region, **described, threads=1)
    fill(other, blocks)
    told = f"{tier._region.stats()['blocks']:,} chunks of {CHUNK} bytes, stored in {time.monotonic() - began:.0f} s"
    measured, stop = Measured(), threading.Event()
    thread = threading.Thread(target=in_background, args=(other, blocks, stop))
    thread.start()
    # As vLLM does once it has started.
    gc.collect()
    gc.freeze()
    run(tier, blocks, steps, measured)
    stop.set()
    thread.join()
    other.close()
    tier.shutdown()
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, "
          f"CPython {platform.python_version()}; {told}")
    show(measured)
    worst = max(np.percentile(times, 99.9) for times in measured.times.values())
    print(f"\nThe longest p99.9 is {worst:.0f} us; at most {MOST:.0f} us is the goal.")
    print(f"\nvLLM's manager of {blocks:,} chunks in use, with each policy; each call is of {JOB} chunks:")
    measured = Measured()
    for name, module in (("RadixKVCachePolicy", "radixkv.vllm"), ("lru", None)):
        run_policy(name, module, blocks, measured)
    show(measured)


main(*map(int, sys.argv[1:]))
