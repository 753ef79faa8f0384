"""What is accepted as tokens and as an output, and what is refused: nothing has changed then."""

import array
import ctypes
from multiprocessing.sharedctypes import RawArray

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)


class WithDlpack:
    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **arguments):
        return self._values.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class WithArray:
    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values


class OnDevice(WithDlpack):
    def __dlpack__(self, **arguments):
        raise BufferError("the data are on a device")

    def __dlpack_device__(self):
        return (2, 0)


GOOD = {
    "int32": PROMPT,
    "uint32": PROMPT.astype(np.uint32),
    "int64": PROMPT.astype(np.int64),
    "uint64": PROMPT.astype(np.uint64),
    "longlong": PROMPT.astype(np.longlong),
    "a view": np.arange(20, dtype=np.int32)[4:12] - 4,
    "read-only": np.frombuffer(PROMPT.tobytes(), dtype=np.int32),
    "array.array i": array.array("i", PROMPT.tolist()),
    "array.array q": array.array("q", PROMPT.tolist()),
    "array.array L": array.array("L", PROMPT.tolist()),
    "memoryview": memoryview(PROMPT),
    "ctypes": (ctypes.c_int32 * 8)(*range(8)),
    "ctypes, unsigned, 64 bits": (ctypes.c_uint64 * 8)(*range(8)),
    "shared ctypes": RawArray("i", range(8)),
    "shared ctypes, 64 bits": RawArray("q", range(8)),
    "bytes as a view": memoryview(PROMPT.tobytes()).cast("I"),
    "dlpack": WithDlpack(PROMPT.copy()),
    "__array__": WithArray(PROMPT),
    "list": PROMPT.tolist(),
    "tuple": tuple(PROMPT.tolist()),
    "list of numpy integers": list(PROMPT),
}

BAD = {
    "floats": (PROMPT.astype(np.float32), TypeError, "float32"),
    "an empty list": ([], ValueError, "empty"),
    "a scalar of numpy": (np.int32(3), TypeError, "tokens is int32"),
    "a view without a dimension": (memoryview(b"1234").cast("i", shape=[]), TypeError, "tokens is memoryview"),
    "an empty array": (PROMPT[:0], ValueError, "empty"),
    "an empty array of floats": (np.array([]), TypeError, "float64"),
    "bools": (np.ones(8, dtype=bool), TypeError, "bool"),
    "16 bits": (PROMPT.astype(np.int16), TypeError, "int16"),
    "8 bits": (b"12345678", TypeError, "format"),
    "the other byte order": (PROMPT.astype(">i4"), TypeError, ">i4"),
    "the other byte order in ctypes": ((ctypes.c_int32.__ctype_be__ * 8)(), TypeError, "format \">i\".*native byte order"),
    "doubles in ctypes": ((ctypes.c_double * 8)(), TypeError, "format"),
    "a number in ctypes": (ctypes.c_int32(3), TypeError, "tokens is c_int"),
    "two dimensions in ctypes": (((ctypes.c_int32 * 4) * 2)(), ValueError, r"shape \[2, 4\]"),
    "no items in ctypes": ((ctypes.c_int32 * 0)(), ValueError, "empty"),
    "objects": (PROMPT.astype(object), TypeError, "object"),
    "a struct": (np.zeros(8, dtype="i4,i4"), TypeError, "array of"),
    "dates": (PROMPT.astype("M8[s]"), TypeError, "datetime"),
    "every second one": (np.arange(16, dtype=np.int32)[::2], ValueError, r"strides \[8\]"),
    "backwards": (PROMPT[::-1], ValueError, r"strides \[-4\]"),
    "two dimensions": (PROMPT.reshape(2, 4), ValueError, r"shape \[2, 4\]"),
    "no dimension": (np.array(3, dtype=np.int32), ValueError, r"shape \[\]"),
    "not aligned": (np.frombuffer(b"x" + PROMPT.tobytes(), dtype=np.int32, offset=1), ValueError, "strides"),
    "a strided view": (memoryview(np.arange(16, dtype=np.int32))[::2], ValueError, "strides"),
    "a negative int32": (np.array([1, 2, -3], dtype=np.int32), ValueError, r"tokens\[2\] is -3"),
    "a negative int64": (np.array([1, -(2**40)], dtype=np.int64), ValueError, r"tokens\[1\] is -1099511627776"),
    "above 2**32": (np.array([1] * 300 + [2**32], dtype=np.int64), ValueError, r"tokens\[300\] is 4294967296"),
    "far above 2**32": (np.array([2**63], dtype=np.uint64), ValueError, r"tokens\[0\] is 9223372036854775808"),
    "a negative in a list": ([1, -1], ValueError, r"tokens\[1\] is -1"),
    "above 2**32 in a list": ([2**32], ValueError, r"tokens\[0\] is 4294967296"),
    "a float in a list": ([1, 2.0], TypeError, r"tokens\[1\] is float"),
    "a str in a list": (["a"], TypeError, r"tokens\[0\] is str"),
    "None": (None, TypeError, "NoneType"),
    "a str": ("tokens", TypeError, "str"),
    "a generator": ((token for token in [1, 2]), TypeError, "generator"),
    "a number": (7, TypeError, "int"),
    "memory of a device": (OnDevice(PROMPT), TypeError, "CPU memory"),
    "a cache": (radixkv.PrefixCache(4, 4), TypeError, "PrefixCache"),
}


@pytest.mark.parametrize("prompt", GOOD.values(), ids=GOOD.keys())
def test_tokens_of_every_kind_are_the_same_tokens(cache, prompt):
    hit, blocks = cache.acquire(prompt)
    inserted = cache.insert(hit, prompt, blocks)
    assert inserted.len_tokens == 8
    assert cache.peek(PROMPT) == cache.peek(prompt) == 8
    assert cache.match_prefix(prompt).blocks().tolist() == inserted.blocks().tolist()
    assert cache.acquire(prompt)[0].len_tokens == 8


@pytest.mark.parametrize("prompt, error, words", BAD.values(), ids=BAD.keys())
def test_other_tokens_are_refused_with_what_was_given(cache, prompt, error, words):
    store(cache, PROMPT).release()
    before = cache.stats()
    lease = cache.match_prefix(PROMPT, counted=False)
    blocks = cache.reserve(1)
    calls = [
        lambda: cache.peek(prompt),
        lambda: cache.match_prefix(prompt),
        lambda: cache.resume(lease, prompt),
        lambda: cache.insert(lease, prompt, blocks),
        lambda: cache.match_partial(lease, prompt),
    ]
    for call in calls:
        with pytest.raises(error, match=words):
            call()
    if words != "empty":
        with pytest.raises(error, match=words):
            cache.acquire(prompt, 1)
    assert len(blocks) == 1 and not lease.released
    blocks.release()
    lease.release()
    after = cache.stats()
    assert {name: after[name] for name in after if "reserv" not in name and "taken" not in name} == {
        name: before[name] for name in before if "reserv" not in name and "taken" not in name
    }


def test_the_largest_token_is_a_token(cache):
    prompt = np.full(4, 2**32 - 1, dtype=np.int64)
    store(cache, prompt)
    assert cache.peek(prompt) == cache.peek(prompt.astype(np.uint32)) == cache.peek([2**32 - 1] * 4) == 4


OUTPUTS = {
    "read-only": (np.frombuffer(bytes(64), dtype=np.int64), ValueError, "read-only"),
    "too short": (np.zeros(1, dtype=np.int64), ValueError, "1 places"),
    "floats": (np.zeros(8), TypeError, "float64"),
    "16 bits": (np.zeros(8, dtype=np.int16), TypeError, "int16"),
    "every second one": (np.zeros(16, dtype=np.int64)[::2], ValueError, "strides"),
    "a list": ([0] * 8, TypeError, "neither an array nor a buffer"),
    "None": (None, TypeError, "neither an array nor a buffer"),
    "bytes": (bytes(64), TypeError, "format"),
}


@pytest.mark.parametrize("out, error, words", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_outputs_that_cannot_be_written_to_are_refused(cache, out, error, words):
    hit = store(cache, PROMPT) and cache.match_prefix(PROMPT)
    blocks = cache.reserve(2)
    for write in (hit.blocks_into, hit.slots_into, blocks.blocks_into, blocks.slots_into):
        with pytest.raises(error, match=words):
            write(out)
    if isinstance(out, np.ndarray):
        assert not out.any()


def test_memory_of_ctypes_is_written_to(cache):
    hit = store(cache, PROMPT) and cache.match_prefix(PROMPT)
    for out in (RawArray("q", 9), (ctypes.c_int64 * 9)()):
        assert hit.slots_into(out) == 8 and out[:] == [*hit.slots(), 0]
        assert hit.blocks_into(out) == 2 and out[:2] == hit.blocks().tolist()
    out = RawArray("i", 2)
    assert hit.blocks_into(out) == 2 and out[:] == hit.blocks().tolist()
    with pytest.raises(TypeError, match="64-bit"):
        hit.slots_into(RawArray("i", 8))


def test_slots_need_64_bits(cache):
    hit = store(cache, PROMPT) and cache.match_prefix(PROMPT)
    with pytest.raises(TypeError, match="64-bit"):
        hit.slots_into(np.zeros(8, dtype=np.int32))


def test_the_tokens_of_a_verb_may_release_its_handle(cache):
    class Releases:
        """Gives its tokens, and releases the lease that the verb was given."""

        def __array__(self, dtype=None, copy=None):
            lease.release()
            return PROMPT

    lease = cache.match_prefix(PROMPT)
    blocks = cache.reserve(2)
    with pytest.raises(radixkv.ReleasedError):
        cache.insert(lease, Releases(), blocks)
    assert lease.released and len(blocks) == 2
