"""Stores of one process that have the same encryption key share one count of its uses."""

import secrets

import numpy as np
import pytest

import radixkv

BLOCK = 4096
FACTS = {"key_bytes": 32, "block_bytes": BLOCK, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}


def is_built():
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as region:
        try:
            radixkv.DigestStore(region, "tests", **FACTS, encryption_key=bytes(32)).close()
        except radixkv.RegionError as refused:
            return refused.kind != "not_built"
    return True


needs_encryption = pytest.mark.skipif(not is_built(), reason="the wheel was built without encryption")


@pytest.fixture
def region():
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as region:
        yield region


def keep(store, blocks, first=0):
    keys = [number.to_bytes(32, "big") for number in range(first, first + blocks)]
    batch = store.store(keys, np.zeros(blocks * BLOCK, dtype=np.uint8))
    assert store.wait(batch, 60) == bytes([store.DONE] * blocks)


def test_without_a_key_nothing_is_counted(region):
    with radixkv.DigestStore(region, "plain", **FACTS) as store:
        keep(store, 3)
        assert store.stats()["seals"] == 0


@needs_encryption
def test_stores_share_the_count_of_their_key(region):
    key, other = secrets.token_bytes(32), secrets.token_bytes(32)
    with (
        radixkv.DigestStore(region, "one", **FACTS, encryption_key=key) as one,
        radixkv.DigestStore(region, "two", **FACTS, encryption_key=key) as two,
        radixkv.DigestStore(region, "three", **FACTS, encryption_key=other) as three,
    ):
        keep(one, 2)
        keep(two, 3)
        keep(three, 4)
        assert [store.stats()["seals"] for store in (one, two, three)] == [5, 5, 4]


@needs_encryption
def test_a_count_goes_on_when_all_stores_were_closed(region):
    key = secrets.token_bytes(32)
    for turn in range(3):
        with radixkv.DigestStore(region, "one", **FACTS, encryption_key=key) as store:
            assert store.stats()["seals"] == 2 * turn
            keep(store, 2, first=2 * turn)
    # A store that is refused uses the key as well, and keeps no count of its own.
    with pytest.raises(radixkv.RegionError):
        radixkv.DigestStore(region, "one", **{**FACTS, "dtype": "another"}, encryption_key=key)
    with radixkv.DigestStore(region, "two", **FACTS, encryption_key=key) as store:
        assert store.stats()["seals"] == 6


@needs_encryption
def test_tiers_are_counted_too(region, tmp_path):
    tiers, key = [{"type": "files", "folder": str(tmp_path / "files"), "bytes": 1 << 20}], secrets.token_bytes(32)
    with radixkv.DigestStore(region, "one", **FACTS, encryption_key=key, tiers=tiers) as store:
        keep(store, 3)
        assert store.stats()["seals"] == 6
    with radixkv.DigestStore(region, "two", **FACTS, encryption_key=key) as store:
        assert store.stats()["seals"] == 6
