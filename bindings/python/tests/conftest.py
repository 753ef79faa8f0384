"""Fixtures and helpers of all tests."""

import os
import weakref

import numpy as np
import pytest

import radixkv


@pytest.fixture
def cache():
    """A cache of 64 blocks of four tokens, which must be whole when a test ends."""
    cache = radixkv.PrefixCache(4, 64)
    yield cache
    cache.settle()
    cache.validate()


@pytest.fixture
def fill():
    return store


def tokens(*numbers):
    return np.array(numbers, dtype=np.int32)


def store(cache, prompt, namespace=None):
    """Caches the whole blocks of a prompt; the lease on them."""
    with cache.match_prefix(prompt, namespace) as hit:
        blocks = cache.reserve(len(prompt) // cache.block_size - hit.len_blocks)
        return cache.insert(hit, prompt, blocks)


def raises():
    raise KeyError("kept")


def check_exception_is_kept(last, in_child):
    """Drops the handle in the list `last`, its last reference, while an exception is raised: in a
    forked child, or here."""
    gone = weakref.ref(last[0])
    child = os.fork() if in_child else 0
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return
    kept = None
    try:
        (last.pop(), raises())
    except KeyError as error:
        kept = error.args
    finally:
        if in_child:
            os._exit(0 if (kept, gone()) == (("kept",), None) else 1)
    assert (kept, gone()) == (("kept",), None)
