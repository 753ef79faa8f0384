"""What the refusal of an argument says, and which exceptions of the caller's own code propagate."""

import contextlib
import math

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)
HUGE = 10**5000
FILES = {"type": "files", "folder": "f", "bytes": 1 << 20}


class Raises:
    """An object whose methods raise an exception."""

    def __init__(self, error):
        self.error = error

    def fail(self, *args, **kwargs):
        raise self.error


class Index(Raises):
    __index__ = Raises.fail


class Float(Raises):
    __float__ = Raises.fail


class Array(Raises):
    __array__ = Raises.fail


class Dlpack(Raises):
    __dlpack__ = Raises.fail

    def __dlpack_device__(self):
        return (1, 0)


class NoText(Raises):
    __repr__ = Raises.fail


class Mapped(Raises):
    keys = Raises.fail


@pytest.fixture
def quiet(capfd):
    """Nothing is printed."""
    yield
    assert capfd.readouterr() == ("", "")


OWN = [KeyboardInterrupt(), SystemExit(), MemoryError(), RuntimeError("own"), LookupError("own")]


@pytest.mark.parametrize("error", [*OWN, TypeError("own"), OverflowError("own")], ids=repr)
def test_exceptions_of_an_integer_propagate(cache, error):
    given = Index(error)
    for call in (
        lambda: cache.peek([1, given]),
        lambda: cache.reserve(given),
        lambda: cache.acquire([1], given),
        lambda: radixkv.PrefixCache(4, 8, eviction=(given, 2)),
        lambda: radixkv.HostTier(4, 8, rank=(0, given)),
        lambda: radixkv.replay("nowhere", capacity=given),
        lambda: radixkv.HostTier(4, 8, tiers=[{"type": "files", "folder": "f", "bytes": given}]),
        lambda: radixkv.PrefixCache(4, 8, clock="logical", time_to_idle=given),
    ):
        with pytest.raises(type(error), match=str(error) or None):
            call()


@pytest.mark.parametrize("error", OWN, ids=repr)
def test_exceptions_of_other_conversions_propagate(cache, error):
    for call in (
        lambda: cache.peek(Array(error)),
        lambda: cache.peek(Dlpack(error)),
        lambda: cache.reserve(1, timeout=Float(error)),
        lambda: cache.reserve(1, timeout=Index(error)),
        lambda: radixkv.replay("nowhere", prefill_rate=Float(error)),
        lambda: radixkv.HostTier(4, 8, tiers=[Mapped(error)]),
    ):
        with pytest.raises(type(error)) as raised:
            call()
        assert raised.value is error


def test_objects_that_are_no_arrays_of_the_processor_are_refused(cache):
    for error in (BufferError("on a device"), TypeError("on a device")):
        for given in (Array(error), Dlpack(error)):
            with pytest.raises(TypeError, match="CPU memory") as refused:
                cache.peek(given)
            assert refused.value.__cause__ is error
    on_device = type("OnDevice", (), {
        "__dlpack__": lambda self, **how: PROMPT.copy().__dlpack__(), "__dlpack_device__": lambda self: (2, 0),
    })
    with contextlib.suppress(TypeError):  # older versions of numpy do not ask where the data are
        cache.peek(on_device())


@pytest.mark.parametrize("given", [HUGE, -HUGE], ids=["huge", "-huge"])
def test_a_huge_int_is_refused_with_its_size(cache, given, quiet):
    lease = store(cache, PROMPT)
    for call in (
        lambda: cache.reserve(given),
        lambda: cache.peek([given]),
        lambda: cache.retain(lease, given),
        lambda: cache.reserve(1, timeout=given),
        lambda: radixkv.PrefixCache(4, 8, clock="logical", time_to_idle=given),
        lambda: radixkv.replay("nowhere", capacity=given),
        lambda: radixkv.replay("nowhere", prefill_rate=given),
        lambda: radixkv.HostTier(4, 8, tiers=[{"type": "files", "folder": "f", "bytes": given}]),
    ):
        with pytest.raises(ValueError, match="an int of 16610 bits"):
            call()


def test_objects_without_a_text_are_refused_by_their_type(quiet):
    given = NoText(RuntimeError("no text"))
    for call in (
        lambda: radixkv.PrefixCache(4, 8, eviction=given),
        lambda: radixkv.PrefixCache(4, 8, time_to_idle=given),
        lambda: radixkv.PrefixCache(4, 8, clock="logical", time_to_idle=given),
        lambda: radixkv.HostTier(4, 8, rank=given),
        lambda: radixkv.HostTier(4, 8, tiers=[given]),
        lambda: radixkv.HostTier(4, 8, tiers=[{"type": given}]),
        lambda: radixkv.HostTier(4, 8, tiers=[{"type": "files", "folder": "f", "bytes": 1, given: 1}]),
        lambda: radixkv.replay("nowhere", capacity=given),
        lambda: radixkv.replay("nowhere", prefill_rate=given),
    ):
        with pytest.raises(TypeError, match="an object of type NoText"):
            call()
    with pytest.raises(ValueError, match="an object of type tuple"):
        radixkv.PrefixCache(4, 8, eviction=(HUGE, 1))
    with pytest.raises(KeyboardInterrupt):
        radixkv.PrefixCache(4, 8, eviction=NoText(KeyboardInterrupt()))


def test_a_long_text_is_cut(quiet):
    with pytest.raises(TypeError, match=r"eviction is \[0, 0, .*\.\.\.: must be") as refused:
        radixkv.PrefixCache(4, 8, eviction=[0] * 100_000)
    assert len(str(refused.value)) < 400
    with pytest.raises(ValueError, match="eviction is"):
        radixkv.PrefixCache(4, 8, eviction="\ud800")


def test_pairs_and_texts_are_refused_with_what_is_accepted():
    facts = {"key_bytes": 32, "block_bytes": 64, "model": "m", "dtype": "bf16", "hash_scheme": "sha256"}
    region = radixkv.DigestRegion(None, 64, 1 << 20)
    ranks = "must be (rank, ranks) of ints from 0 to 2^32 - 1"
    watermarks = 'must be "inline", "background", or (low, high) of ints that are not negative'
    for make, accepted in [
        (lambda given: radixkv.PrefixCache(4, 8, eviction=given), watermarks),
        (lambda given: radixkv.HostTier(4, 8, rank=given), ranks),
        (lambda given: radixkv.DigestStore(region, "tests", **facts, rank=given), ranks),
    ]:
        for given, error in [
            ((-1, 2), ValueError), ((0, 2**64), ValueError), ((1,), ValueError), ((1, 2, 3), ValueError),
            ((1, "a"), TypeError), ((1.0, 2), TypeError), ([1, 2], TypeError), (7, TypeError),
        ]:
            with pytest.raises(error) as refused:
                make(given)
            assert f" is {given}: {accepted}" in str(refused.value)
    with pytest.raises(ValueError, match='eviction is "sometimes": must be "inline"'):
        radixkv.PrefixCache(4, 8, eviction="sometimes")
    for name in ("capacity", "warm_up"):
        for given, error in [(-1, ValueError), (2**64, ValueError), (0.5, TypeError), (None, None)]:
            words = f"{name} is {given}: must be a number of" if error else "nowhere"
            with pytest.raises(error or radixkv.ReplayError, match=words):
                radixkv.replay("/nowhere", **{name: given})
    for given in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"prefill_rate is {given}: must be a finite number of at least 1e-6"):
            radixkv.replay("/nowhere", prefill_rate=given)
    for given, error in [(-1, ValueError), (2**64, ValueError), ("much", TypeError)]:
        with pytest.raises(error, match=r"bytes of tiers\[0\] is .*: it must be an int from 0 to 2\^64 - 1"):
            radixkv.HostTier(4, 8, tiers=[{**FILES, "bytes": given}])
    for given, error in [(-1, ValueError), ("any", ValueError), ([], TypeError)]:
        with pytest.raises(error, match="remote_wait is"):
            radixkv.TieredCache(radixkv.PrefixCache(4, 8), radixkv.HostTier(4, 8), None, remote_wait=given)
