"""Handles: released in any order, never copied, of one cache and one process."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)


def handles(cache):
    """One of every class."""
    space = cache.namespace("tenant")
    lease = store(cache, PROMPT)
    hit = cache.match_prefix(np.array([0, 1, 2, 3, 4, 9, 9, 9], dtype=np.int32))
    partial = cache.match_partial(hit, np.array([0, 1, 2, 3, 4, 9, 9, 9], dtype=np.int32))
    blocks, fresh = cache.reserve(2), cache.reserve(1)
    fork = blocks.fork()
    pending = fork.make_unique(0, fresh)
    assert pending.destination == fork.blocks()[0] and pending.source == blocks.blocks()[0]
    return [space, lease, lease.clone(), lease.downgrade(), hit, partial, blocks, fork, pending, cache.subscribe(4)]


def test_nothing_can_be_pickled_or_copied(cache):
    for handle in [cache, *handles(cache)]:
        for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied: it "):
                refuse(handle)


def test_handles_of_another_cache_are_refused(cache):
    other = radixkv.PrefixCache(4, 64)
    space, lease, _, weak, *_ = handles(other)
    blocks, own, hit = other.reserve(1), cache.reserve(2), cache.match_prefix(PROMPT)
    before = cache.stats(), other.stats()
    for what, call in {
        "namespace": lambda: cache.match_prefix(PROMPT, space),
        " namespace": lambda: cache.peek(PROMPT, space),
        "the namespace": lambda: cache.reserve(1, paid_by=space),
        "namespace ": lambda: cache.acquire(PROMPT, 1, space),
        "lease": lambda: cache.insert(lease, PROMPT, own),
        "the lease": lambda: cache.resume(lease, PROMPT),
        "lease belongs": lambda: cache.match_partial(lease, PROMPT),
        "lease belongs ": lambda: cache.retain(lease, 1.0),
        "the lease ": lambda: cache.prioritize(lease, 1),
        "lease ": lambda: cache.shared_spans([hit, lease]),
        "weak lease": lambda: cache.upgrade(weak),
        "reservation": lambda: cache.insert(hit, PROMPT, blocks),
        "other reservation": lambda: own.append(blocks),
        "fresh reservation": lambda: own.make_unique(0, blocks),
    }.items():
        with pytest.raises(radixkv.ForeignHandleError, match=what.strip()) as refused:
            call()
        assert isinstance(refused.value, ValueError)
    assert (cache.stats(), other.stats()) == before
    assert (len(own), len(blocks), lease.released, hit.released) == (2, 1, False, False)


def test_released_handles_are_refused(cache):
    _, lease, _, _, hit, partial, blocks, fork, pending, events = handles(cache)
    for handle in (lease, hit, partial, blocks, fork, pending):
        handle.release()
        handle.release()
    events.close()
    for call in [
        lambda: cache.resume(lease, PROMPT),
        lambda: cache.insert(hit, PROMPT, cache.reserve(1)),
        lambda: lease.clone(),
        lambda: lease.downgrade(),
        lambda: lease.is_invalidated(),
        lambda: blocks.blocks(),
        lambda: blocks.split(0),
        lambda: blocks.fork(),
        lambda: len(fork),
        lambda: next(events),
    ]:
        with pytest.raises(radixkv.ReleasedError):
            call()


def test_a_reservation_is_no_other_one(cache):
    blocks = cache.reserve(2)
    for call in (lambda: blocks.append(blocks), lambda: blocks.make_unique(0, blocks)):
        with pytest.raises(ValueError, match="itself"):
            call()
    for index in (2, 1 << 40):
        with pytest.raises(IndexError, match=f"block {index} of a reservation of 2"):
            blocks.is_shared(index)
    with pytest.raises(ValueError, match="3 blocks of a reservation of 2"):
        blocks.split(3)
    fork = blocks.fork()
    with pytest.raises(ValueError, match="no block"):
        blocks.make_unique(0, cache.reserve(0))
    with pytest.raises(ValueError, match="also holds"):
        blocks.make_unique(0, cache.reserve(1).fork() and fork)
    with pytest.raises(radixkv.InsertError) as refused:
        cache.insert(cache.match_prefix(PROMPT), PROMPT, blocks)
    assert (refused.value.kind, refused.value.index) == ("shared_block", 0)


def test_handles_keep_the_cache_and_go_in_any_order():
    for order in range(8):
        cache = radixkv.PrefixCache(4, 16, eviction="background")
        lease, blocks, space = store(cache, PROMPT), cache.reserve(2), cache.namespace("a")
        dropped = [[cache, lease, blocks], [lease, cache, blocks], [blocks, lease, cache], [space, cache, lease, blocks]]
        del cache, lease, blocks, space
        rest = dropped[order % 4]
        while rest:
            rest.pop(order % len(rest))


def test_cycles_are_collected(cache):
    class Request:
        pass

    request = Request()
    request.lease, request.blocks, request.self = store(cache, PROMPT), cache.reserve(60), request
    gone = weakref.ref(request.lease)
    del request
    gc.collect()
    assert gone() is None and cache.stats()["reserved_blocks"] == 0
    assert cache.evict(64) == 2


def test_a_forked_child_is_refused_and_may_drop_everything(cache):
    parents = handles(cache)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            space, lease, again, weak, hit, partial, blocks, fork, pending, events = parents
            for call in [
                lambda: cache.match_prefix(PROMPT),
                lambda: cache.peek(PROMPT),
                lambda: cache.stats(),
                lambda: cache.reserve(1),
                lambda: cache.insert(lease, PROMPT, blocks),
                lambda: cache.settle(),
                lambda: cache.namespace("new"),
                lambda: space.clear(),
                lambda: lease.release(),
                lambda: lease.clone(),
                lambda: blocks.split(1),
                lambda: blocks.release(),
                lambda: partial.release(),
                lambda: pending.release(),
                lambda: cache.upgrade(weak),
                lambda: next(events),
                lambda: repr(cache),
            ]:
                try:
                    call()
                except radixkv.ForkError:
                    continue
                os._exit(2)
            own = radixkv.PrefixCache(4, 4)
            assert store(own, PROMPT).len_tokens == 8
            parents.clear()
            del space, lease, again, weak, hit, partial, blocks, fork, pending, events, cache
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.peek(PROMPT) == 8


@pytest.mark.parametrize(
    "program",
    [
        "blocks = cache.reserve(1)",
        "keep = cache.subscribe(4); lease = cache.match_prefix([1, 2, 3, 4])",
        "import threading; threading.Thread(target=cache.peek, args=([1],)).start()",
        "import threading; threading.Thread(target=lambda: cache.reserve(8, timeout=60), daemon=True).start()",
        "import sys; sys.modules['kept'] = cache",
        "import asyncio; loop = asyncio.new_event_loop(); task = loop.create_task(cache.reserve_async(8)); loop.stop()",
    ],
)
def test_an_interpreter_ends_with_handles_left(program):
    begin = "import radixkv\ncache = radixkv.PrefixCache(4, 8, eviction='background')\nheld = cache.reserve(4)\n"
    done = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
