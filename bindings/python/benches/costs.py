"""What a call costs: 41 samples of 200 calls, in one process; beside SGLang's tree where its
sources are named.

    python benches/costs.py                                     # radixkv alone
    RADIXKV_SGLANG=FOLDER python benches/costs.py               # beside SGLang's Python core, on the tests' stand-in for torch
    RADIXKV_SGLANG=FOLDER RADIXKV_TORCH=real RADIXKV_SGLANG_CORE=rust python benches/costs.py

Prints Markdown. FOLDER has `sglang`, as unpacked from its wheel.
"""

import gc
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import radixkv

SAMPLES, CALLS = 41, 200
TOKENS, BLOCK, TAIL, LEAVES = 2496, 16, 256, 10_000

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "sglang"))
import loader  # noqa: E402


def measure(prepare, call):
    """The median and the least of the samples, in microseconds a call; `prepare` makes the
    arguments of one sample's calls."""
    samples = []
    for _ in range(SAMPLES):
        arguments = prepare()
        began = time.perf_counter()
        for argument in arguments:
            call(argument)
        samples.append((time.perf_counter() - began) / CALLS * 1e6)
    return statistics.median(samples), min(samples)


def again(argument):
    return lambda: [argument] * CALLS


def tails(base, draw):
    return [np.concatenate([base, draw.integers(10**6, 2**31, TAIL, dtype=np.int32)]) for _ in range(CALLS)]


def own_rows():
    cache = radixkv.PrefixCache(BLOCK, 1 << 16)
    prompt, draw = np.arange(TOKENS, dtype=np.int32), np.random.default_rng(1)
    hit, blocks = cache.acquire(prompt)
    kept = cache.insert(hit, prompt, blocks)
    wide, out = prompt.astype(np.int64), np.empty(TOKENS // BLOCK, dtype=np.int32)
    yield "match, lease and ids, int32", 0.45, measure(again(prompt), lambda tokens: cache.match_prefix(tokens).blocks())
    yield "the same into our array", 0.45, measure(
        again(prompt), lambda tokens: cache.match_prefix(tokens).blocks_into(out)
    )
    yield "match, lease and ids, int64", 0.7, measure(again(wide), lambda tokens: cache.match_prefix(tokens).blocks())
    yield "peek, int32", 0.35, measure(again(prompt), cache.peek)

    base = prompt[: TOKENS - TAIL]
    stored = []

    def inserts():
        stored.clear()
        cache.evict(1 << 16)
        return [(cache.match_prefix(tokens), tokens, cache.reserve(TAIL // BLOCK)) for tokens in tails(base, draw)]

    row = measure(inserts, lambda arguments: stored.append(cache.insert(*arguments)))
    yield f"insert of a tail of {TAIL} tokens", 2.0, row
    del kept

    full = radixkv.PrefixCache(BLOCK, 1 << 16)
    number = iter(range(1 << 30))

    def leaves(count):
        for _ in range(count):
            tokens = np.full(BLOCK, next(number), dtype=np.int32)
            hit, blocks = full.acquire(tokens)
            full.insert(hit, tokens, blocks).release()
            hit.release()
        full.settle()

    leaves(LEAVES - CALLS)

    def refilled():
        leaves(CALLS)
        return [1] * CALLS

    yield f"evict one leaf of {LEAVES:,}", 1.2, measure(refilled, full.evict)


def sglang_rows():
    import world
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams

    for make in (world.ours, world.theirs):
        cache = make(page_size=BLOCK, pages=1 << 16)
        alloc = cache.token_to_kv_pool_allocator.alloc
        tokens = list(range(TOKENS))
        cache.insert(InsertParams(key=world.key(tokens), value=alloc(TOKENS)))
        key = world.key([*tokens, 7])
        params = MatchPrefixParams(key=key)
        yield "match_prefix", measure(again(params), cache.match_prefix)
        node = cache.match_prefix(params).last_device_node
        yield "path_device_indices", measure(again(node), cache.path_device_indices)
        yield "lock and unlock", measure(again(node), lambda node: cache.unlock(cache.lock(node)))
        yield "evictable_size", measure(again(None), lambda _: cache.evictable_size())
        number = iter(range(10**6, 1 << 30))

        def leaves(count):
            return [
                InsertParams(key=world.key([next(number)] * BLOCK), value=alloc(BLOCK)) for _ in range(count)
            ]

        for leaf in leaves(LEAVES - CALLS):
            cache.insert(leaf)
        yield "insert of a new page", measure(lambda: leaves(CALLS), cache.insert)
        cache.evict(EvictParams(num_tokens=(SAMPLES - 1) * CALLS * BLOCK))
        few, one = 5, EvictParams(num_tokens=BLOCK)
        samples = []
        for _ in range(SAMPLES):
            began = time.perf_counter()
            for _ in range(few):
                cache.evict(one)
            samples.append((time.perf_counter() - began) / few * 1e6)
        yield f"evict one leaf of {LEAVES:,}", (statistics.median(samples), min(samples))


def step_times(make, running=256, steps=200, changes=4):
    """Microseconds in the cache in each step of a scheduler: some requests end, as many begin, and
    it asks for the sizes."""
    import random

    import world
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams

    draw, system = random.Random(3), list(range(1024))
    cache = make(page_size=BLOCK, pages=24_000, rows=running + 1, length=2048)
    allocator, table, spent = cache.token_to_kv_pool_allocator, cache.req_to_token_pool.req_to_token, 0.0

    def timed(call, *arguments, **named):
        nonlocal spent
        began = time.perf_counter()
        result = call(*arguments, **named)
        spent += time.perf_counter() - began
        return result

    def begin(row):
        tokens = system + [draw.randint(2000, 10**6) for _ in range(512)]
        request = world.Request(row, tokens + [draw.randint(2000, 10**6) for _ in range(128)], len(tokens))
        hit = timed(cache.match_prefix, MatchPrefixParams(key=world.key(tokens[:-1])))
        request.last_node, length = hit.last_device_node, hit.device_prefix_len
        request.lock = timed(cache.lock, request.last_node)
        table[row, :length] = timed(cache.path_device_indices, request.last_node)
        needed = len(request.full_untruncated_fill_ids) - length
        if allocator.available_size() < needed + BLOCK:
            timed(cache.evict, EvictParams(num_tokens=needed + BLOCK))
        table[row, length : length + needed] = allocator.alloc(needed)
        request.kv.cache_protected_len = length
        timed(cache.checkpoint, request, up_to=len(tokens))
        return request

    def end(request):
        request.is_finished, length = True, len(request.full_untruncated_fill_ids)
        timed(cache.checkpoint, request, up_to=length)
        allocator.free_segment(table[request.kv.req_pool_idx, request.kv.cache_protected_len : length])
        timed(cache.unlock, request.lock)
        return request.kv.req_pool_idx

    requests = [begin(row) for row in range(running)]
    spent = 0.0
    for _ in range(steps):
        for _ in range(changes):
            requests.append(begin(end(requests.pop(draw.randrange(running)))))
        timed(cache.evictable_size)
        timed(cache.protected_size)
    return spent / steps * 1e6


def free_segment(allocator, slots, start_pos=0):
    """In place of the tests' allocator, which sorts and checks: the same for both caches, and as
    cheap as can be."""
    allocator._free.extend((slots.numpy()[::BLOCK] // BLOCK).tolist())


def main():
    gc.disable()
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, CPython {platform.python_version()}")
    print(f"\n| call ({TOKENS:,} tokens, block {BLOCK}) | at most, us | median, us | least, us |\n|---|---:|---:|---:|")
    for name, most, (middle, least) in own_rows():
        print(f"| {name} | {most:.2f} | {middle:.2f} | {least:.2f} |", flush=True)
    if loader.sources() is None:
        return
    import world

    world.Allocator.free_segment = free_segment
    if os.environ.get("RADIXKV_TORCH") == "real":
        # Small tensors: other threads would only be waited for.
        world.torch.set_num_threads(1)
    rows = list(sglang_rows())
    half = len(rows) // 2
    core = os.environ.get("RADIXKV_SGLANG_CORE", "python").capitalize()
    print(f"\n| call of SGLang's interface; least | radixkv, us | SGLang's {core} core, us |\n|---|---:|---:|")
    for (name, (_, ours)), (_, (_, theirs)) in zip(rows[:half], rows[half:], strict=True):
        print(f"| {name} | {ours:.2f} | {theirs:.2f} |")
    ours, theirs = (min(step_times(make) for _ in range(3)) for make in (world.ours, world.theirs))
    print(f"| a step of 256 running requests, 4 of which change | {ours:.0f} | {theirs:.0f} |")


main()
