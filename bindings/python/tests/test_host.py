"""Host tiers: what a cache evicts comes back with its content."""

import asyncio
import concurrent.futures
import ctypes
import faulthandler
import gc
import hashlib
import multiprocessing.pool
import os
import subprocess
import sys
import threading
import time
import weakref
from multiprocessing.sharedctypes import RawArray

import numpy as np
import pytest
from kept_exceptions import check_exception_is_kept

import radixkv

BLOCK, DEVICE, HOST, BYTES = 4, 8, 64, 64


def prompt(first, tokens=16):
    return np.arange(first, first + tokens, dtype=np.int32)


def stamp(tokens, blocks):
    """What a block holds: bytes that all tokens up to its end decide."""
    digest = hashlib.sha256(np.asarray(tokens[: blocks * BLOCK], dtype=np.uint32).tobytes()).digest()
    return np.frombuffer(digest * 2, dtype=np.uint8)


class Methods:
    """A mover by methods."""

    def __init__(self, device):
        self.device = device

    def offload(self, copies):
        for copy in copies:
            part = self.device[copy.block].reshape(BLOCK, -1)[copy.tokens.start : copy.tokens.stop]
            copy.bytes[:] = part.tobytes()

    def onboard(self, copies):
        for copy in copies:
            part = self.device[copy.block].reshape(BLOCK, -1)[copy.tokens.start : copy.tokens.stop]
            part[:] = np.frombuffer(copy.bytes, dtype=np.uint8).reshape(part.shape)


class Engine:
    """A device whose blocks are rows of an array, over a host tier."""

    def __init__(self, kind="array", *, mover=None, eviction="inline", blocks=DEVICE, host=None, host_block=BLOCK,
                 **settings):
        self.device = np.zeros((blocks, BYTES), dtype=np.uint8)
        memory = None
        if kind == "own memory":
            memory, settings["views"] = np.zeros((HOST, BYTES), dtype=np.uint8), False
        if host is None:
            host = radixkv.HostTier(host_block, HOST * BLOCK // host_block, memory=memory,
                                    block_bytes=BYTES * host_block // BLOCK)
        methods = Methods(self.device)
        movers = {"array": self.device, "methods": methods,
                  "function": lambda direction, copies: getattr(methods, direction)(copies)}
        if kind == "own memory":
            def move(direction, copies):
                for copy in copies:
                    assert copy.bytes is None
                    rows = memory[copy.host_block], self.device[copy.block]
                    to, of = rows if direction == "offload" else rows[::-1]
                    to[:] = of
            movers[kind] = move
        self.cache = radixkv.PrefixCache(BLOCK, blocks, eviction=eviction)
        self.tiers = radixkv.TieredCache(self.cache, host, movers[kind] if mover is None else mover, **settings)

    def check(self, blocks, tokens, first=0):
        for at, block in enumerate(blocks.tolist()):
            assert (self.device[block] == stamp(tokens, first + at + 1)).all(), f"block {block} holds other tokens"

    def finish(self, tokens, start, namespace=None):
        """Computes what is missing, and caches it; where the tokens were."""
        self.check(start.lease.blocks(), tokens)
        whole = start.blocks.split(len(tokens) // BLOCK - start.lease.len_blocks)
        for at, block in enumerate(whole.blocks().tolist()):
            self.device[block] = stamp(tokens, start.lease.len_blocks + at + 1)
        with start, self.tiers.insert(start.lease, tokens, whole, namespace) as inserted:
            self.check(inserted.blocks(), tokens, inserted.len_blocks - len(inserted.blocks()))
        return start.device_tokens, start.host_tokens, start.remote_tokens

    def evict_all(self):
        """Evicts everything, and waits for the copies that the background thread has begun."""
        blocks = len(self.device)
        self.tiers.evict(blocks)
        until = time.monotonic() + 60
        while self.cache.free_blocks < blocks and time.monotonic() < until:
            time.sleep(0.001)

    def serve(self, tokens, namespace=None, **how):
        return self.finish(tokens, self.tiers.acquire(tokens, 0, namespace, **how), namespace)


KINDS = ["array", "methods", "function", "own memory"]


@pytest.mark.parametrize("mover_thread", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_evicted_comes_back(kind, mover_thread):
    engine = Engine(kind, mover_thread=mover_thread)
    assert [engine.serve(prompt(first)) for first in (0, 100, 200)] == [(0, 0, 0)] * 3
    assert engine.serve(prompt(0)) == (0, 16, 0)
    assert engine.serve(prompt(0), timeout=60) == (16, 0, 0)
    stats = engine.tiers.stats()
    assert stats["onboarded_tokens"] == 16 and stats["onboarded_bytes"] == 4 * BYTES
    assert stats["offloaded_tokens"] >= 16 and stats["failed_offload_blocks"] == 0
    assert stats["host"]["hit_blocks"] == 4 and stats["host"]["remote"] is None
    engine.tiers.host.validate()
    engine.cache.validate()


@pytest.mark.parametrize("kind", ["array", "methods"])
@pytest.mark.parametrize("host_block", [1, 8])
def test_the_sizes_of_blocks_may_differ(kind, host_block):
    engine = Engine(kind, host_block=host_block, mode="shared")
    for first in (0, 100, 200, 300, 0):
        found = engine.serve(prompt(first))
    assert found == (0, 16, 0)


@pytest.mark.parametrize("kind", ["array", "methods"])
def test_write_through_demote_prefetch_and_clear(kind):
    engine = Engine(kind, mode="shared", write_policy="through", mover_thread=8)
    tiers, host = engine.tiers, engine.tiers.host
    engine.serve(prompt(0))
    engine.evict_all()
    assert host.peek(prompt(0)) == 16 and engine.cache.peek(prompt(0)) == 0
    assert host.leftovers() == [{"namespace": (), "blocks": 4, "tokens": 16, "bytes": 4 * BYTES}]
    until = time.monotonic() + 60
    # The mover's thread may still be at what was evicted: then it has no room for a hint.
    while not tiers.prefetch(prompt(0)):
        assert time.monotonic() < until
        time.sleep(0.001)
    assert engine.serve(prompt(0), timeout=60)[2] == 0
    assert tiers.demote(prompt(0)) == 16
    space = engine.cache.namespace("tenant")
    engine.serve(prompt(0), space)
    engine.evict_all()
    assert host.peek(prompt(0), namespace=space) == 16
    tiers.clear_namespace(space)
    assert host.peek(prompt(0), namespace=space) == 0 and host.peek(prompt(0)) == 16
    tiers.clear()
    assert host.peek(prompt(0)) == 0
    host.clear()
    assert host.leftovers() == [] and not tiers.prefetch(prompt(0))


def test_a_lease_of_another_namespace_is_refused():
    engine, tokens = Engine(mode="shared", write_policy="through"), prompt(0)
    space, blocks = engine.cache.namespace("tenant"), engine.tiers.reserve(4)
    for lease in (engine.cache.match_prefix(tokens), engine.tiers.acquire(tokens).lease):
        with pytest.raises(ValueError, match=r'the lease is of namespace \[\], \["tenant"\] was given'):
            engine.tiers.insert(lease, tokens, blocks, space)
    assert len(blocks) == 4 and engine.cache.peek(tokens, space) == 0
    lease = engine.cache.match_prefix(tokens, space)
    engine.tiers.insert(lease, tokens, blocks, space).release()
    assert engine.cache.peek(tokens, space) == engine.tiers.host.peek(tokens, namespace=space) == 16
    assert engine.cache.peek(tokens) == engine.tiers.host.peek(tokens) == 0


@pytest.mark.parametrize("kind", ["array", "methods"])
def test_an_awaited_request_comes_back_too(kind):
    engine = Engine(kind, mover_thread=4)
    for first in (0, 100, 200):
        engine.serve(prompt(first))

    async def main():
        held = engine.tiers.reserve(DEVICE)
        waiting = asyncio.ensure_future(engine.tiers.acquire_async(prompt(0)))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        held.release()
        async with asyncio.timeout(20):
            return engine.finish(prompt(0), await waiting)

    assert asyncio.run(main()) == (0, 16, 0)


class Raises:
    def __init__(self, direction):
        self.direction = direction

    def offload(self, copies):
        if self.direction == "offload":
            raise RuntimeError("planned")

    def onboard(self, copies):
        if self.direction == "onboard":
            raise KeyboardInterrupt


@pytest.mark.parametrize("eviction", ["inline", (2, 4)])
@pytest.mark.parametrize("mover_thread", [None, 4])
def test_an_exception_in_the_mover_is_a_failed_move(monkeypatch, mover_thread, eviction):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_type))
    for direction, error, failed in [("offload", RuntimeError, "failed_offload_blocks"),
                                     ("onboard", KeyboardInterrupt, "failed_onboard_tokens")]:
        seen.clear()
        engine = Engine(mover=Raises(direction), eviction=eviction, mover_thread=mover_thread)
        for first in (0, 100, 200):
            engine.serve(prompt(first), timeout=60)
        engine.evict_all()
        # Once more, and no more blocks at once than the thread copies: others are evicted without a
        # copy.
        engine.serve(prompt(0), timeout=60)
        engine.evict_all()
        assert engine.serve(prompt(0), timeout=60)[1] == 0
        assert set(seen) == {error} and engine.tiers.stats()[failed] > 0
        engine.evict_all()
        engine.cache.settle()
        engine.cache.validate()
        engine.tiers.host.validate()


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_mover_that_has_not_copied_when_it_returns_is_refused(monkeypatch):
    class Asynchronous(Methods):
        async def offload(self, copies):
            super().offload(copies)

    class Callable:
        async def __call__(self, direction, copies):
            pass

    async def function(direction, copies):
        pass

    for mover in (Asynchronous(None), Callable(), function):
        with pytest.raises(TypeError, match="async def"):
            Engine(mover=mover)
    seen, pool = [], multiprocessing.pool.ThreadPool(1)
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_type))
    late = [
        lambda direction, copies: asyncio.sleep(0),
        lambda direction, copies: (copy for copy in copies),
        lambda direction, copies: concurrent.futures.Future(),
        lambda direction, copies: pool.apply_async(len, (copies,)),
    ]
    for mover in late:
        seen.clear()
        engine = Engine(mover=mover)
        for first in (0, 100, 200):
            engine.serve(prompt(first))
        assert engine.serve(prompt(0)) == (0, 0, 0)
        assert TypeError in seen and engine.tiers.stats()["failed_offload_blocks"] > 0
        engine.tiers.host.validate()
    pool.terminate()


def test_a_view_that_outlives_its_call_sees_and_changes_nothing():
    kept = []

    class Keeps(Methods):
        def offload(self, copies):
            super().offload(copies)
            kept.extend((copy.bytes, np.frombuffer(copy.bytes, dtype=np.uint8)) for copy in copies)

        def onboard(self, copies):
            super().onboard(copies)
            assert all(copy.bytes.readonly for copy in copies)
            kept.extend((copy.bytes, None) for copy in copies)

    keeps = Keeps(None)
    engine = Engine(mover=keeps)
    keeps.device = engine.device
    for first in (0, 100, 200):
        engine.serve(prompt(first))
    early = list(kept)
    for _, array in early:
        array[:] = 255
    assert engine.serve(prompt(0)) == (0, 16, 0)
    del engine
    gc.collect()
    assert early and all((array == 255).all() for _, array in early)
    refused = 0
    for view, array in kept:
        try:
            bytes(view)
        except ValueError:
            refused += 1
    assert refused == len(kept)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    cache, host = radixkv.PrefixCache(BLOCK, DEVICE), radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES)
    good = np.zeros((DEVICE, BYTES), dtype=np.uint8)
    read_only = good.copy()
    read_only.flags.writeable = False
    shared = np.zeros((HOST, BYTES), dtype=np.uint8)
    over_shared = radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES, memory=shared)
    for mover, error, words in [
        (good[:-1], ValueError, "it has 7 blocks of 64 bytes, the cache has 8 blocks"),
        (good[:, ::2], ValueError, "C-contiguous"),
        (np.zeros((DEVICE, 2 * BYTES), dtype=np.uint8), ValueError, "blocks of 128 bytes, 64 are needed"),
        (np.zeros(DEVICE * BYTES - 1, dtype=np.uint8), ValueError, "it has 7 blocks"),
        (read_only, ValueError, "read-only"),
        (bytes(DEVICE * BYTES), ValueError, "read-only"),
        (7, TypeError, "mover is int"),
        (None, ValueError, "the host tier has bytes"),
    ]:
        with pytest.raises(error, match=words):
            radixkv.TieredCache(cache, host, mover)
    with pytest.raises(ValueError, match="overlap"):
        radixkv.TieredCache(cache, over_shared, shared)
    with pytest.raises(ValueError, match="views=False"):
        radixkv.TieredCache(cache, host, print, views=False)
    for settings, kind in [({"write_policy": "through"}, "exclusive_through"), ({"mover_thread": 0}, "nothing_in_flight")]:
        with pytest.raises(radixkv.TierError) as refused:
            radixkv.TieredCache(cache, host, good, **settings)
        assert refused.value.kind == kind
    for settings in [{"mode": "both"}, {"write_policy": "never"}, {"remote_wait": "some"}, {"remote_wait": -1}]:
        with pytest.raises(ValueError):
            radixkv.TieredCache(cache, host, good, **settings)
    with pytest.raises(radixkv.TierError) as refused:
        radixkv.TieredCache(cache, radixkv.HostTier(3, 8, block_bytes=BYTES), good)
    assert (refused.value.kind, refused.value.device, refused.value.host) == ("block_sizes", 4, 3)
    assert cache.reserve(DEVICE).blocks().tolist() and host.stats()["arrived_blocks"] == 0
    tiers = radixkv.TieredCache(cache, host, good)
    with pytest.raises(radixkv.TierError) as refused:
        radixkv.TieredCache(cache, host, good)
    assert refused.value.kind == "has_sink"
    other = radixkv.PrefixCache(BLOCK, DEVICE)
    with pytest.raises(radixkv.ForeignHandleError):
        tiers.acquire(prompt(0), 0, other.namespace("x"))
    with pytest.raises(radixkv.ForeignHandleError):
        tiers.insert(other.match_prefix(prompt(0)), prompt(0), cache.reserve(4))
    with pytest.raises(radixkv.TooLargeError):
        tiers.acquire(prompt(0, 1000))


@pytest.mark.parametrize("make", [lambda bytes: RawArray("b", bytes), lambda bytes: (ctypes.c_uint8 * bytes)()])
def test_the_memory_of_ctypes_is_memory(make):
    memory, device = make(HOST * BYTES), make(DEVICE * BYTES)
    host = radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES, memory=memory)
    engine = Engine(host=host, mover=device)
    engine.device = np.frombuffer(device, dtype=np.uint8).reshape(DEVICE, BYTES)
    assert engine.serve(prompt(0)) == (0, 0, 0)
    engine.evict_all()
    assert any(memory) and engine.serve(prompt(0))[1] > 0


def test_tiers_that_make_no_sense_are_refused():
    memory = bytearray(HOST * BYTES - 1)
    with pytest.raises(radixkv.TierError) as refused:
        radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES, memory=memory)
    assert (refused.value.kind, refused.value.needed) == ("too_little_memory", HOST * BYTES)
    memory.append(0)  # it is not exported any more
    tier = radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES, memory=memory)
    with pytest.raises(ValueError, match="another host tier uses the memory"):
        radixkv.HostTier(BLOCK, 1, block_bytes=BYTES, memory=memoryview(memory)[BYTES : 2 * BYTES])
    del tier
    radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES, memory=memory)
    assert radixkv.HostTier(BLOCK, capacity_bytes=10 * BYTES + 1, block_bytes=BYTES).capacity_blocks == 10
    files = {"type": "files", "folder": "/nowhere", "bytes": 1 << 20}
    for how, error in [
        ({}, TypeError),
        ({"capacity_blocks": 1, "capacity_bytes": 1}, TypeError),
        ({"capacity_bytes": 1}, ValueError),
        ({"capacity_blocks": 0}, radixkv.TierError),
        ({"capacity_blocks": -1}, ValueError),
        ({"capacity_blocks": 1, "memory": bytearray(4)}, ValueError),
        ({"capacity_blocks": 1, "block_bytes": 4, "memory": bytes(4)}, ValueError),
        ({"capacity_blocks": 1, "block_bytes": 4, "memory": 7}, TypeError),
        ({"capacity_blocks": 1, "admission": "none"}, ValueError),
        ({"capacity_blocks": 1, "tiers": [files]}, ValueError),
        ({"capacity_blocks": 1, "tiers": ["files"]}, TypeError),
        ({"capacity_blocks": 1, "tiers": [{"type": "tape"}]}, radixkv.RegionError),
        ({"capacity_blocks": 1, "tiers": [{"type": "region", "path": "x", "blocks": 1 << 40}]}, ValueError),
        ({"capacity_blocks": 1, "block_bytes": 1 << 62}, radixkv.TierError),
    ]:
        with pytest.raises(error):
            radixkv.HostTier(BLOCK, **how)


RESTART = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from test_host import *
host = radixkv.HostTier(BLOCK, 4, block_bytes=BYTES, tiers=[{tier!r}], model="m", dtype="u8")
engine = Engine(host=host, remote_wait="all")
print(*[engine.serve(prompt(first)) for first in {firsts!r}])
assert host.settle(20)
print(host.stats()["remote"]["put_blocks"] > 0)
"""


@pytest.mark.parametrize("kind", ["files", "region"])
def test_remote_tiers_survive_a_restart(tmp_path, kind):
    tier = {"type": "files", "folder": str(tmp_path / "kv"), "bytes": 1 << 20}
    if kind == "region":
        tier = {"type": "region", "path": str(tmp_path / "kv"), "blocks": 64}

    def run(firsts, **facts):
        program = RESTART.format(tests=os.path.dirname(__file__), tier=tier, firsts=firsts)
        for name, value in facts.items():
            program = program.replace(*value)
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    done = run([0, 100, 200, 300, 400])
    assert done.stdout.splitlines() == [" ".join(["(0, 0, 0)"] * 5), "True"], done.stderr
    done = run([0])
    assert done.stdout.startswith("(0, 0, 16)"), done.stdout + done.stderr
    done = run([0], model=('model="m"', 'model="other"'))
    assert "RegionError" in done.stderr and "other" in done.stderr


def work_on(engine, seed, until, found):
    """Adds to `found` how many tokens of each request were in the host."""
    draw = np.random.default_rng(seed)
    cache, tiers = engine.cache, engine.tiers
    spaces = [None, cache.namespace("tenant")]
    spaces[1].set_quota(cached_blocks=4)
    while not until.is_set():
        tokens, space = prompt(100 * int(draw.integers(12)), int(draw.integers(4, 20))), spaces[int(draw.integers(2))]
        verb = draw.integers(10)
        try:
            if verb < 6:
                found.append(engine.serve(tokens, space, **({"timeout": 5} if verb < 3 else {}))[1])
            elif verb == 6:  # the cache's own verbs evict to the host as well
                hit, blocks = cache.acquire(tokens, 0, space)
                engine.check(hit.blocks(), tokens)
                blocks.release()
            elif verb == 7:
                cache.reserve(2).release()
                cache.evict(1)
            elif verb == 8:
                tiers.demote(tokens, space)
                tiers.prefetch(tokens, space)
            else:
                spaces[1].set_quota(cached_blocks=int(draw.integers(2, 6)))
                tiers.stats()
        except radixkv.ReserveError:
            pass


@pytest.mark.parametrize("eviction", ["inline", (4, 8)])
@pytest.mark.parametrize("kind, mover_thread", [("array", None), ("methods", None), ("methods", 4), ("own memory", 4)])
def test_every_hit_of_four_threads_holds_its_tokens(kind, mover_thread, eviction):
    blocks = 40
    engine = Engine(kind, blocks=blocks, eviction=eviction, mover_thread=mover_thread)
    until, failures, found = threading.Event(), [], []

    def work(seed):
        try:
            work_on(engine, seed, until, found)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    seconds = float(os.environ.get("RADIXKV_STRESS_SECONDS", "2")) / 4
    # A verb that waits for the mover and keeps the interpreter would stop this thread as well.
    faulthandler.dump_traceback_later(seconds + 180, exit=True)
    for thread in threads:
        thread.start()
    until.wait(seconds)
    # Slow threads may take longer until one finds something in the host.
    latest = time.monotonic() + 60
    while not (any(found) or failures) and time.monotonic() < latest:
        time.sleep(0.01)
    until.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    faulthandler.cancel_dump_traceback_later()
    if failures:
        raise failures[0]
    assert sum(found) > 0
    engine.evict_all()
    engine.cache.settle()
    engine.cache.validate()
    engine.tiers.host.validate()
    assert engine.cache.free_blocks == blocks and engine.tiers.stats()["failed_offload_blocks"] == 0


def test_a_mover_that_refers_to_its_tiers_is_collected():
    engine = Engine("methods")
    mover = Methods(engine.device)
    del engine.tiers
    tiers = radixkv.TieredCache(engine.cache, radixkv.HostTier(BLOCK, HOST, block_bytes=BYTES), mover)
    mover.tiers, gone = tiers, weakref.ref(tiers)
    start = tiers.acquire(prompt(0))
    del tiers, mover
    gc.collect()
    assert gone() is None
    # Without tiers the cache goes on.
    engine.cache.insert(start.lease, prompt(0), start.blocks).release()
    start.release()
    assert engine.cache.evict(DEVICE) == 4


def test_handles_may_be_dropped_in_any_order():
    for order in ("tiers", "cache", "host", "start"), ("host", "cache", "tiers", "start"), ("start", "host", "tiers", "cache"):
        engine = Engine("methods", eviction="background", mover_thread=2)
        held = {"tiers": engine.tiers, "cache": engine.cache, "host": engine.tiers.host,
                "start": engine.tiers.acquire(prompt(0))}
        del engine
        for name in order:
            del held[name]
    gc.collect()


def test_nothing_of_it_can_be_pickled():
    import copy

    engine = Engine()
    for handle in (engine.tiers, engine.tiers.host, engine.tiers.acquire(prompt(0))):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy.copy(handle)


def test_a_forked_child_is_refused():
    engine = Engine("methods", mover_thread=2, eviction="background")
    start = engine.tiers.acquire(prompt(0))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for verb in (lambda: engine.tiers.acquire(prompt(0)), lambda: engine.tiers.stats(), start.release,
                         lambda: engine.tiers.evict(1), lambda: engine.tiers.host.stats(),
                         lambda: engine.tiers.reserve(1)):
                try:
                    verb()
                except radixkv.ForkError:
                    refused += 1
            del start, engine
            own = Engine("methods")
            own.serve(prompt(0))
            status = 0 if refused == 6 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    start.release()


@pytest.mark.parametrize("in_child", [False, True])
@pytest.mark.parametrize("dropped", ["tiers", "host"])
def test_a_drop_keeps_the_exception_that_python_handles(dropped, in_child):
    engine = Engine("methods")
    engine.serve(prompt(0))
    last = [engine.tiers.host if dropped == "host" else engine.tiers]
    del engine
    gc.collect()
    check_exception_is_kept(last, in_child)


SHUTDOWN = """
import sys, threading
sys.path.insert(0, {tests!r})
from test_host import *
engine = Engine("methods", blocks=40, eviction=(4, 8), mover_thread={mover_thread!r})
never = threading.Event()
for seed in range(3):
    threading.Thread(target=work_on, args=(engine, seed, never, []), daemon=True).start()
never.wait(0.2)
print("ends")
"""


@pytest.mark.parametrize("mover_thread", [None, 4])
def test_the_interpreter_ends_while_threads_move_blocks(mover_thread):
    program = SHUTDOWN.format(tests=os.path.dirname(__file__), mover_thread=mover_thread)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
