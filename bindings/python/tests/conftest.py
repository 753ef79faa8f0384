"""Fixtures and helpers of all tests."""

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
