"""Memory of Python objects and pointers is refused by every method that reads or writes a caller's
memory, before anything is done."""

import ctypes

import numpy as np
import pytest

import radixkv

BLOCK, KEY = 4096, bytes(32)
FACTS = {"key_bytes": 32, "block_bytes": BLOCK, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}


class Fields(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int64), ("object", ctypes.py_object)]


class Union(ctypes.Union):
    _fields_ = [("number", ctypes.c_int64), ("object", ctypes.py_object)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("object", ctypes.py_object), ("number", ctypes.c_int64)]


MEMORIES = {
    "objects": lambda: np.zeros(BLOCK // 8, dtype=object),
    "a field of objects": lambda: np.zeros(BLOCK // 8, dtype=[("a", "O")]),
    "a second field of objects": lambda: np.zeros(BLOCK // 8, dtype=[("number", "i8"), ("object", "O", 2)]),
    "a view of objects": lambda: memoryview(np.zeros(BLOCK // 8, dtype=object)),
    "ctypes objects": lambda: memoryview((ctypes.py_object * (BLOCK // 8))()),
    "ctypes fields": lambda: memoryview((Fields * (BLOCK // 8))()),
    "a ctypes union": lambda: (Union * (BLOCK // 8))(),
    "packed ctypes fields": lambda: memoryview((Packed * (BLOCK // 8))()),
    "pointers": lambda: memoryview((ctypes.c_void_p * (BLOCK // 8))()),
    "typed pointers": lambda: memoryview((ctypes.POINTER(ctypes.c_int) * (BLOCK // 8))()),
    "text pointers": lambda: memoryview((ctypes.c_char_p * (BLOCK // 8))()),
    "wide text pointers": lambda: memoryview((ctypes.c_wchar_p * (BLOCK // 8))()),
    "functions": lambda: memoryview((ctypes.CFUNCTYPE(None) * (BLOCK // 8))()),
}


@pytest.fixture(params=MEMORIES)
def memory(request):
    """Refused memory, whose bytes must stay as they are."""
    made = MEMORIES[request.param]()
    view = np.frombuffer(memoryview(made), dtype=np.dtype("V8")) if "ctypes" not in request.param else None
    before = None if view is None else view.tobytes()
    yield made
    assert before is None or view.tobytes() == before


@pytest.fixture
def store():
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as region:
        with radixkv.DigestStore(region, "tests", **FACTS) as store:
            yield store


def test_stores_and_loads_refuse_it(store, memory):
    assert store.wait(store.store([KEY], b"a" * BLOCK), 60) == bytes([store.DONE])
    for call in (
        lambda: store.load([KEY], memory),
        lambda: store.store([bytes(31) + b"1"], memory),
        lambda: store.load([KEY], bytearray(BLOCK), memory),
        lambda: store.store_from([KEY], memory),
        lambda: store.load_into([KEY], memory),
    ):
        with pytest.raises(TypeError, match="holds Python objects or pointers|an array of"):
            call()
    assert store.in_flight == 0 and store.exists([KEY, bytes(31) + b"1"]) == b"\1\0"


def test_host_tiers_and_movers_refuse_it(memory):
    with pytest.raises(TypeError, match="memory is .* holds Python objects or pointers"):
        radixkv.HostTier(4, 8, block_bytes=64, memory=memory)
    cache, host = radixkv.PrefixCache(4, 8), radixkv.HostTier(4, 8, block_bytes=64)
    with pytest.raises(TypeError, match="mover is .* holds Python objects or pointers"):
        radixkv.TieredCache(cache, host, memory)


def test_tokens_and_outputs_refuse_it(cache, memory):
    with pytest.raises(TypeError, match="tokens is "):
        cache.match_prefix(memory)
    with cache.reserve(2) as blocks:
        for write in (blocks.blocks_into, blocks.slots_into):
            with pytest.raises(TypeError, match="out is "):
                write(memory)


@pytest.mark.parametrize("dtype", ["c8", "c16", "?", "M8[s]", [("Objects", "u1", 8)], [("P", "c16"), ("O", "f8", 2)]])
def test_numbers_are_accepted_whatever_their_fields_are_called(store, dtype):
    content = np.arange(BLOCK, dtype=np.uint8) % 2
    memory = np.zeros(BLOCK // np.dtype(dtype).itemsize, dtype=dtype)
    if dtype == "M8[s]":
        # numpy exports no dates as buffers.
        memory = memory.view("i8")
    assert store.wait(store.store([KEY], content), 60) == bytes([store.DONE])
    assert store.wait(store.load([KEY], memory), 60) == bytes([store.DONE])
    assert memory.tobytes() == content.tobytes()
    assert store.wait(store.store([bytes(31) + b"1"], memory), 60) == bytes([store.DONE])
