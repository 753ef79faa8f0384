"""Seconds and timeouts: every number below the limit is accepted, others are refused with it."""

import math
import sys

import numpy as np
import pytest
from conftest import store

import radixkv

PROMPT = np.arange(8, dtype=np.int32)
HUGE = 10**5000
BEYOND = [1e20, 2.0**64, 2**64, math.inf, math.nan, -1, -1e-9, HUGE, -HUGE, sys.float_info.max]
FILES = {"type": "files", "folder": "f", "bytes": 1 << 20}


@pytest.mark.parametrize("seconds", BEYOND, ids=lambda seconds: "huge" if seconds in (HUGE, -HUGE) else str(seconds))
def test_seconds_out_of_range_are_refused_with_the_limit(cache, seconds, capfd):
    tenant, lease = cache.namespace("tenant"), store(cache, PROMPT)
    host = radixkv.HostTier(4, 8)
    for name, call in {
        "duration": lambda: cache.retain(lease, seconds),
        "ttl": lambda: cache.prioritize(lease, 1, ttl=seconds),
        "time_to_idle": lambda: cache.set_time_to_idle(seconds),
        "idle": lambda: tenant.evict_idle(seconds),
        "timeout": lambda: cache.reserve(1, timeout=seconds),
        "time_to_live": lambda: radixkv.HostTier(4, 8, time_to_live=seconds),
        "tiers_timeout": lambda: radixkv.HostTier(4, 8, tiers_timeout=seconds),
        "remote_wait": lambda: radixkv.TieredCache(cache, host, None, remote_wait=seconds),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name} is .* s: it must be at least 0 and below 2\^64 s"):
            call()
    with pytest.raises(ValueError, match=r"timeout is .* below 2\^64 s"):
        host.settle(seconds)
    with pytest.raises(ValueError, match=r"timeout is .* below 2\^64 s"):
        radixkv.HostTier(4, 8, block_bytes=64, model="m", dtype="f", tiers=[{**FILES, "timeout": seconds}])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seconds", [0, 1e9, 1e19, 2**64 - 2**12])
def test_every_number_of_seconds_below_the_limit_is_accepted(tmp_path, seconds):
    cache = radixkv.PrefixCache(4, 8, time_to_idle=seconds)
    tenant, lease = cache.namespace("tenant"), store(cache, PROMPT)
    cache.retain(lease, seconds)
    cache.prioritize(lease, 1, ttl=seconds)
    cache.reserve(1, timeout=seconds).release()
    tenant.set_quota(time_to_idle=seconds)
    assert tenant.evict_idle(seconds) == 0
    files = {**FILES, "folder": str(tmp_path / "files"), "timeout": max(seconds, 1)}
    host = radixkv.HostTier(4, 8, block_bytes=64, time_to_live=seconds, tiers_timeout=max(seconds, 1), model="m",
                            dtype="f", tiers=[files], tier_write="through")
    device = np.zeros((8, 64), dtype=np.uint8)
    tiers = radixkv.TieredCache(cache, host, device, remote_wait=seconds)
    lease.release()
    cache.release_retained(cache.match_prefix(PROMPT))
    tiers.evict(8)
    with tiers.acquire(PROMPT, timeout=seconds):
        pass
    assert host.settle(max(seconds, 10))
    region = radixkv.DigestRegion(None, 64, 1 << 20)
    facts = {"key_bytes": 32, "block_bytes": 64, "model": "m", "dtype": "bf16", "hash_scheme": "sha256"}
    files["folder"] = str(tmp_path / "digests")
    with radixkv.DigestStore(region, "tests", **facts, tiers=[files]) as digests:
        batch = digests.store([b"k" * 32], bytes(64), time_to_live=seconds)
        assert digests.wait(batch, max(seconds, 10)) == b"\1"
        digests.load([b"k" * 32], bytearray(64), time_to_live=seconds)
        assert len(digests.poll(max(seconds, 10))) == 1
        digests.reserve([b"l" * 32], time_to_live=seconds).release()
