"""Sequences as tokens, ids and offsets: every one is accepted, also those whose length and items
contradict each other."""

import collections
import ctypes

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)


class Items(collections.abc.Sequence):
    def __init__(self, items, length=None):
        self.items, self.length = items, length

    def __len__(self):
        return len(self.items) if self.length is None else self.length

    def __getitem__(self, at):
        return self.items[at]


class Endless(Items):
    def __getitem__(self, at):
        return 1


class Changes:
    """An integer that changes the sequence which it is in."""

    def __init__(self, change):
        self.change = change

    def __index__(self):
        self.change()
        return 1


@pytest.mark.parametrize(
    "prompt",
    [range(8), collections.deque(range(8)), collections.UserList(range(8)), Items(range(8)), Items([*PROMPT])],
    ids=["range", "deque", "UserList", "a class", "a class of numpy integers"],
)
def test_every_sequence_is_accepted(cache, prompt):
    hit, blocks = cache.acquire(prompt)
    inserted = cache.insert(hit, prompt, blocks)
    assert cache.peek(prompt) == cache.peek(PROMPT) == cache.match_prefix(prompt).len_tokens == 8
    assert cache.resume(cache.match_prefix(PROMPT[:4]), prompt).len_tokens == 8
    inserted.release()
    assert cache.invalidate_blocks(collections.deque(inserted.blocks().tolist())) == 2
    pool = radixkv.PrefixCache(4, 8, external=True)
    assert len(pool.adopt(range(3))) == 3


@pytest.mark.parametrize(
    "prompt", [{1: 2}, {1, 2}, "12", b"12", (n for n in [1]), iter([1]), map(int, "12"), {1: 2}.keys()], ids=repr
)
def test_what_is_no_sequence_of_integers_is_refused(cache, prompt):
    for call in (cache.peek, cache.match_prefix, cache.acquire, cache.invalidate_blocks):
        with pytest.raises(TypeError, match=f"is {type(prompt).__name__}|buffer of format"):
            call(prompt)


@pytest.mark.parametrize("length", [0, 1, 7, 9, 2**45, 2**62])
@pytest.mark.parametrize("kind", [Items, Endless])
def test_a_length_that_is_wrong_is_refused(cache, kind, length):
    if kind is Endless and length > 9:
        pytest.skip("never ends")
    store(cache, PROMPT).release()
    with pytest.raises(ValueError, match=f"tokens has length {length}, but (more|fewer) items"):
        cache.peek(kind(range(8), length))
    with pytest.raises(ValueError, match=f"leases has length {length}"):
        cache.shared_spans(Items([cache.match_prefix(PROMPT)] * 8, length))
    assert cache.peek(PROMPT) == 8


def test_a_sequence_that_changes_while_it_is_read_is_refused(cache):
    for make in (list, collections.deque, collections.UserList):
        for name in ("append", "clear"):
            prompt = make()
            change = getattr(prompt, name)
            prompt.extend([Changes(lambda change=change, name=name: change(*[4][: name == "append"])), 2, 3])
            with pytest.raises((ValueError, RuntimeError)):
                cache.peek(prompt)
    grows = []
    grows.append(Changes(lambda: grows.append(grows[0])))
    with pytest.raises(ValueError, match="tokens has length 1, but more items"):
        cache.peek(grows)


def test_exceptions_of_a_sequence_propagate(cache):
    class Raises(Items):
        def __getitem__(self, at):
            raise KeyboardInterrupt

    class NoLength(Items):
        def __len__(self):
            raise RuntimeError("no length")

    with pytest.raises(KeyboardInterrupt):
        cache.peek(Raises([1]))
    with pytest.raises(RuntimeError, match="no length"):
        cache.peek(NoLength([1]))
    with pytest.raises(ValueError):
        cache.peek(Items([1], -1))


def test_leases_offsets_and_keys_are_any_sequence(cache):
    lease = store(cache, PROMPT)
    assert cache.shared_spans(collections.deque([lease, lease])) == cache.shared_spans([lease, lease])
    with pytest.raises(TypeError, match="leases is set"):
        cache.shared_spans({lease})
    with pytest.raises(TypeError):
        cache.shared_spans([7])
    facts = {"key_bytes": 32, "block_bytes": 64, "model": "m", "dtype": "bf16", "hash_scheme": "sha256"}
    region = radixkv.DigestRegion(None, 64, 1 << 20)
    with radixkv.DigestStore(region, "tests", **facts) as digests:
        pool, keys = (ctypes.c_uint8 * 192)(*range(192)), [b"a" * 32, b"b" * 32]
        assert digests.wait(digests.store(keys, pool, range(0, 192, 128))) == b"\1\1"
        loaded = (ctypes.c_uint8 * 128)()
        assert digests.wait(digests.load(keys, loaded, collections.deque([0, 64]))) == b"\1\1"
        assert loaded[:] == [*range(64), *range(128, 192)]
        for offsets, error, words in [
            (Items([0, 64], 2**45), ValueError, "offsets has length"),
            ({0, 64}, TypeError, "offsets is set"),
            ([0, 2**64], ValueError, r"offsets\[1\] is 18446744073709551616"),
            ([0, "a"], TypeError, r"offsets\[1\] is str"),
        ]:
            with pytest.raises(error, match=words):
                digests.store(keys, pool, offsets)
        with pytest.raises(ValueError, match="keys has length"):
            digests.exists(type("Keys", (list,), {"__len__": lambda self: 1})(keys))
