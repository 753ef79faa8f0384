"""Calls leave no object and no memory behind."""

import asyncio
import gc
import resource
import sys

import numpy as np
import pytest

import radixkv

PROMPT = np.arange(64, dtype=np.int64)


def rounds(cache, count):
    """Every kind of object, made and dropped; and refusals."""

    async def waits():
        return [await cache.reserve_async(1), await cache.acquire_async(PROMPT)]

    for _ in range(count):
        hit, blocks = cache.acquire(PROMPT, 1)
        inserted = cache.insert(hit, PROMPT, blocks.split(16 - hit.len_blocks))
        inserted.blocks(), hit.slots(), blocks.blocks_into(np.empty(4, dtype=np.int32))
        weak, fork = inserted.downgrade(), blocks.fork()
        cache.upgrade(weak), fork.is_shared(0), cache.match_partial(hit, PROMPT)
        with cache.subscribe(2) as events:
            list(events)
        cache.stats(), cache.default_namespace.walk(), cache.snapshot(), cache.lookups_by_namespace()
        asyncio.run(waits())
        for refused in (
            lambda: cache.reserve(1000),
            lambda: cache.peek(["a"]),
            lambda: cache.insert(hit, PROMPT, cache.reserve(1)),
            lambda: cache.match_prefix(PROMPT.astype(float)),
        ):
            with pytest.raises((radixkv.Error, TypeError)):
                refused()
        del hit, blocks, inserted, weak, fork
        for evicted in cache.evict_into(64):
            evicted.blocks.release()


def test_objects_do_not_pile_up(cache):
    growths = []
    rounds(cache, 400)
    for _ in range(3):
        gc.collect()
        before = sys.getallocatedblocks()
        rounds(cache, 200)
        gc.collect()
        growths.append(sys.getallocatedblocks() - before)
    # Free lists and tables grow now and then; one object in each round would be 200 each time.
    assert min(growths) < 100, growths


def test_memory_does_not_pile_up(cache):
    rounds(cache, 50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds(cache, 200)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
