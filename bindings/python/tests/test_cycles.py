"""Dead reference cycles through every class that holds Python objects are collected.

These classes are TieredCache, TieredStart, HostTier, BlockCopy, Waiting and DigestStore.
"""

import asyncio
import gc
import time
import weakref

import numpy as np
import pytest

import radixkv

BLOCK, BLOCKS, BYTES = 4, 8, 64
PROMPT = np.arange(16, dtype=np.int32)
STORED = 4096
FACTS = {"key_bytes": 32, "block_bytes": STORED, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


class Array(np.ndarray):
    """An array with attributes."""


class Bytes(bytearray):
    """A bytearray with attributes."""


class Owner:
    """The owner of memory that a store gets by its address."""

    def __init__(self, size):
        self.memory = np.zeros(size, dtype=np.uint8)


class Mover:
    def __init__(self):
        self.seen = []

    def offload(self, copies):
        self.seen.append(copies)
        for copy in copies:
            if copy.bytes is not None:
                copy.bytes[:] = bytes(len(copy.bytes))

    def onboard(self, copies):
        self.seen.append(copies)


def array():
    """An array that owns its memory."""
    made = Array((BLOCKS, BYTES), np.uint8)
    made[:] = 0
    return made


def tiered(mover, memory=None):
    host = radixkv.HostTier(BLOCK, BLOCKS, block_bytes=BYTES, memory=memory)
    return radixkv.TieredCache(radixkv.PrefixCache(BLOCK, BLOCKS), host, mover)


def by_mover():
    mover = Mover()
    mover.tiers = tiered(mover)
    return mover, mover.tiers


def by_function():
    def move(direction, copies):
        assert tiers is not None

    tiers = tiered(move)
    return move, tiers


def by_device_array():
    device = array()
    device.tiers = tiered(device)
    return device, device.tiers


def by_device_bytearray():
    device = Bytes(BLOCKS * BYTES)
    device.tiers = tiered(device)
    return device, device.tiers


def by_host_memory():
    memory = array()
    memory.host = radixkv.HostTier(BLOCK, BLOCKS, block_bytes=BYTES, memory=memory)
    return memory, memory.host


def by_host_bytearray():
    memory = Bytes(BLOCKS * BYTES)
    memory.host = radixkv.HostTier(BLOCK, BLOCKS, block_bytes=BYTES, memory=memory)
    return memory, memory.host


def by_host_memory_of_tiers():
    memory = array()
    memory.tiers = tiered(Mover(), memory)
    return memory, memory.tiers, memory.tiers.host


def by_start():
    mover = Mover()
    mover.tiers = tiered(mover)
    mover.start = mover.tiers.acquire(PROMPT)
    return mover, mover.tiers, mover.start


def by_copies():
    mover = Mover()
    mover.tiers = tiered(mover)
    with mover.tiers.acquire(PROMPT) as start:
        mover.tiers.insert(start.lease, PROMPT, start.blocks).release()
    assert mover.tiers.evict(BLOCKS) == 4 and mover.seen
    return mover, mover.tiers


def by_coroutine():
    mover = Mover()
    mover.tiers = tiered(mover)
    mover.coroutine = mover.tiers.acquire_async(PROMPT)
    return mover, mover.tiers


def by_coroutine_only():
    """Only the waiting request refers to the tiers."""
    mover = Mover()
    tiers = tiered(mover)
    mover.coroutine = tiers.acquire_async(PROMPT)
    return mover, tiers


def by_task_of_a_closed_loop():
    mover = Mover()
    tiers, loop = tiered(mover), asyncio.new_event_loop()
    mover.blocks = tiers.reserve(BLOCKS)
    mover.task = loop.create_task(tiers.acquire_async(PROMPT))
    loop.run_until_complete(asyncio.sleep(0))
    assert tiers.cache.stats()["waiting_requests"] == 1
    loop.close()
    return mover, tiers, loop


def store_of(owner):
    region = radixkv.DigestRegion(None, STORED, 1 << 20)
    owner.store = radixkv.DigestStore(region, "tests", **FACTS)
    return owner.store


def finished(store, blocks):
    """Waits for a batch, whose outcomes stay in the store."""
    until = time.monotonic() + 60
    while store.stats()["stored"] < blocks and time.monotonic() < until:
        time.sleep(0.001)
    assert store.in_flight == 1


def by_owner_of_addresses():
    owner = Owner(STORED)
    store = store_of(owner)
    store.store_from([bytes(32)], [owner.memory.ctypes.data], owner=owner)
    finished(store, 1)
    return owner, store


def by_stored_array():
    memory = np.zeros(STORED, dtype=np.uint8).view(Array)
    store = store_of(memory)
    store.store([bytes(32)], memory)
    finished(store, 1)
    return memory, store


CYCLES = [
    by_mover, by_function, by_device_array, by_device_bytearray, by_host_memory, by_host_bytearray,
    by_host_memory_of_tiers, by_start, by_copies, by_coroutine, by_coroutine_only, by_task_of_a_closed_loop,
    by_owner_of_addresses, by_stored_array,
]


@pytest.mark.parametrize("make", CYCLES)
def test_a_dead_cycle_is_collected(make):
    gone = [weakref.ref(one) for one in make()]
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)


@pytest.mark.parametrize("make", CYCLES)
def test_a_live_cycle_stays(make):
    """One reference keeps all of it."""
    first, *others = make()
    kept = [weakref.ref(one) for one in others]
    del others
    for _ in range(3):
        gc.collect()
    assert None not in [one() for one in kept]


def referents(handle):
    return {id(one) for one in gc.get_referents(handle)}


def test_every_class_shows_the_python_objects_that_it_holds():
    mover = Mover()
    tiers = tiered(mover)
    assert referents(tiers) >= {id(mover), id(tiers.cache), id(tiers.host)}
    start = tiers.acquire(PROMPT)
    assert referents(start) >= {id(start.lease), id(start.blocks)}
    tiers.insert(start.lease, PROMPT, start.blocks).release()
    start.release()
    tiers.evict(BLOCKS)
    copy = mover.seen[0][0]
    assert isinstance(copy, radixkv.BlockCopy) and id(copy.bytes) in referents(copy)
    coroutine = tiers.acquire_async(PROMPT)
    assert id(tiers) in referents(coroutine.cr_frame.f_locals["request"])
    coroutine.close()


def test_a_batch_in_flight_keeps_its_owner_until_it_has_ended():
    blocks = 200
    owner = Owner(blocks * STORED)
    store = store_of(owner)
    keys = [number.to_bytes(32, "little") for number in range(blocks)]
    addresses = owner.memory.ctypes.data + STORED * np.arange(blocks, dtype=np.uint64)
    store.store_from(keys, addresses, owner=owner)
    gone = weakref.ref(store)
    del owner, store
    until = time.monotonic() + 60
    while gone() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.001)
    assert gone() is None


@pytest.mark.parametrize("make", [memoryview, np.asarray])
def test_memory_that_python_clears_early_is_kept_until_the_caller_ends_the_cycle(make):
    """The README's exception: a view of the memory, which the garbage collector cannot see through
    safely."""
    memory = array()
    memory.host = radixkv.HostTier(BLOCK, BLOCKS, block_bytes=BYTES, memory=make(memory))
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is not None
    del gone().host
    gc.collect()
    assert gone() is None


def test_verbs_work_in_a_finalizer():
    """A cycle that is being collected is whole until its finalizers have run."""

    class Last(Mover):
        def __del__(self):
            with self.tiers.acquire(PROMPT) as start:
                served.append((start.len_tokens, len(start.blocks), self.tiers.host.stats()["lookups"]))

    served, last = [], Last()
    last.tiers = tiered(last)
    gone = weakref.ref(last.tiers)
    del last
    gc.collect()
    assert [each[:2] for each in served] == [(0, 4)] and gone() is None
