"""Several threads use one handle at the same time; and free-threaded Python stays free-threaded."""

import contextlib
import hashlib
import itertools
import os
import random
import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)
LONGER = np.array([0, 1, 2, 3, 4, 9, 9, 9], dtype=np.int32)
THREADS, CALLS = 4, 5000
FACTS = dict(key_bytes=32, block_bytes=64, model="m", dtype="bf16", hash_scheme="sha256")
KEYS = [hashlib.sha256(bytes([key])).digest() for key in range(4)]

is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def switches_often():
    """Lets the threads of a build with the GIL take turns often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run(work):
    """Runs `work(number)` on several threads, which begin together; raises what one of them raised."""
    failures, begin = [], threading.Barrier(THREADS)

    def guarded(number):
        try:
            begin.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def share(make):
    """Lets all threads make calls on the same handles. `make` returns the calls on new handles."""
    current = [make()]

    def work(number):
        draw = random.Random(number)
        for _ in range(CALLS):
            # Another thread may have ended the handle, or have all blocks.
            with contextlib.suppress(radixkv.ReleasedError, radixkv.ReserveError):
                if draw.random() < 0.05:
                    current[0] = make()
                draw.choice(current[0])()

    run(work)


@pytest.mark.skipif(not is_free_threaded, reason="this interpreter always has the GIL")
def test_the_gil_stays_off():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    program = "import radixkv, sys; sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_threads_share_a_lease(cache):
    kept, numbers = store(cache, PROMPT), itertools.count(100)

    def make():
        longer = np.array([0, 1, 2, 3, *[next(numbers)] * 4], dtype=np.int32)
        lease, other = cache.match_prefix(longer), cache.match_prefix(PROMPT)

        def insert():
            with cache.reserve(1) as blocks:
                cache.insert(lease, longer, blocks).release()

        def drop_duplicates():
            with cache.reserve(2) as blocks, cache.insert(cache.match_prefix([9, 9, 9, 9]), PROMPT, blocks) as inserted:
                inserted.take_duplicates().release()

        return [
            lambda: lease.release(),
            lambda: lease.released,
            lambda: repr(lease),
            lambda: lease.namespace,
            lambda: lease.clone().release(),
            lambda: cache.upgrade(lease.downgrade()),
            lambda: lease.is_invalidated(),
            lambda: cache.renew(lease),
            lambda: cache.retain(lease, 0.0),
            lambda: cache.release_retained(lease),
            lambda: cache.match_partial(lease, longer),
            lambda: cache.shared_spans([lease, other, lease]),
            lambda: cache.shared_spans([other, lease, other]),
            lambda: cache.resume(lease, longer),
            insert,
            drop_duplicates,
        ]

    share(make)
    kept.release()
    cache.evict(64)
    assert cache.stats()["protected_blocks"] == cache.stats()["reserved_blocks"] == 0


def test_threads_share_reservations(cache):
    def make():
        one, two, hit = cache.reserve(3), cache.reserve(3), cache.match_prefix(PROMPT)

        def unique(of, fresh):
            try:
                with of.make_unique(0, fresh) or one as copy:
                    return copy
            except (ValueError, IndexError):  # a fork holds the last block, or there is none left
                pass

        def insert(blocks):
            try:
                cache.insert(hit, PROMPT, blocks).release()
            except radixkv.InsertError:  # another thread has changed the number of blocks, or forked
                pass

        def split(blocks):
            try:
                blocks.split(1).release()
            except ValueError:
                pass

        return [
            lambda: one.release(),
            lambda: (one.released, repr(two), len(one)),
            lambda: (one.blocks(), two.slots(), one.blocks_into(np.empty(64, dtype=np.int64))),
            lambda: one.append(two),
            lambda: two.append(one),
            lambda: one.fork().release(),
            lambda: two.is_shared(0),
            lambda: unique(one, two),
            lambda: unique(two, one),
            lambda: split(one),
            lambda: insert(two),
        ]

    share(make)
    cache.evict(64)
    assert cache.free_blocks == 64


def test_threads_share_partial_hits_and_copies(cache):
    store(cache, PROMPT).release()

    def make():
        hit = cache.match_prefix(LONGER)
        partial, blocks = cache.match_partial(hit, LONGER), cache.reserve(1)
        copy = blocks.fork().make_unique(0, cache.reserve(1)) or partial
        return [lambda: partial.release(), lambda: partial.block, lambda: copy.release(), lambda: repr(copy)]

    share(make)


def test_threads_share_a_subscription(cache):
    events, seen = cache.subscribe(1 << 16), []

    def work(number):
        for at in range(300):
            store(cache, np.full(4, 1 + number * 300 + at, dtype=np.int32)).release()
            seen.extend(batch.number for batch in events)
            assert events.lost_batches == 0 and not events.has_ended and events.next_number >= 0

    run(work)
    seen.extend(batch.number for batch in events)
    assert len(seen) == len(set(seen)) == max(seen) + 1 - min(seen)
    run(lambda number: events.close())


def test_threads_share_rooms():
    region = radixkv.DigestRegion(None, block_bytes=64, size=1 << 20)
    with radixkv.DigestStore(region, "threads", **FACTS) as blocks:

        def make():
            rooms, sources = blocks.reserve(KEYS), blocks.locate(KEYS)
            return [
                lambda: rooms.publish(),
                lambda: (rooms.addresses, rooms.outcomes),
                lambda: rooms.release(),
                lambda: sources.intact(),
                lambda: blocks.remove(KEYS),
                lambda: blocks.poll(),
            ]

        share(make)
