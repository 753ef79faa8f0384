"""Stores that are opened with tiers: a refused one changes no region, and no text is taken for another."""

import hashlib

import numpy as np
import pytest

import radixkv

BLOCK = 4096
FACTS = {"key_bytes": 32, "block_bytes": BLOCK, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}
NAMESPACES = 256


@pytest.fixture
def region():
    with radixkv.DigestRegion(None, BLOCK, 4 << 20) as region:
        yield region


def files(folder):
    return [{"type": "files", "folder": str(folder), "bytes": 1 << 20}]


def test_a_store_whose_tier_is_refused_adds_no_namespace(region, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    for number in range(NAMESPACES + 1):
        with pytest.raises(radixkv.RegionError) as refused:
            radixkv.DigestStore(region, f"tests {number}", **FACTS, block_tokens=16, tiers=files(file))
        assert refused.value.kind == "io"
    for number in range(NAMESPACES):
        radixkv.DigestStore(region, f"tests {number}", **FACTS, block_tokens=32).close()
    # What the region refuses is refused before a tier is opened.
    with pytest.raises(radixkv.RegionError) as refused:
        radixkv.DigestStore(region, "tests 0", **FACTS, block_tokens=16, tiers=files(tmp_path / "new"))
    assert (refused.value.kind, refused.value.stored, refused.value.asked) == ("mismatch", "32", "16")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ({"hash_scheme": "a, seed b", "hash_seed": "c"}, {"hash_scheme": "a", "hash_seed": "b, seed c"}, "keys"),
        ({"layout": "a", "namespace": "b of c"}, {"layout": "a of b", "namespace": "c"}, "kv layout"),
        ({"layout": "a\\", "namespace": "b of c"}, {"layout": "a\\ of b", "namespace": "c"}, "kv layout"),
        ({"layout": "a of b", "namespace": "c"}, {"layout": "a\\", "namespace": "b of c"}, "kv layout"),
    ],
)
def test_texts_with_a_separator_are_not_confused(region, tmp_path, one, other, field):
    one, other = ({"namespace": "tests", **FACTS, **changes} for changes in (one, other))
    key, block = hashlib.sha256(b"").digest(), np.full(BLOCK, 7, dtype=np.uint8)
    with radixkv.DigestStore(region, **one, tiers=files(tmp_path)) as store:
        assert store.wait(store.store([key], block), 60) == bytes([store.DONE])
    (folder,) = tmp_path.iterdir()
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as fresh:
        # Each namespace has its own folder: this one is put where the other store looks for its own.
        with radixkv.DigestStore(fresh, **other, tiers=files(tmp_path / "other")):
            pass
        (own,) = (tmp_path / "other").iterdir()
        folder.rename(tmp_path / own.name)
        with pytest.raises(radixkv.RegionError, match=f"holds blocks of {field} ") as refused:
            radixkv.DigestStore(fresh, **other, tiers=files(tmp_path))
    assert refused.value.stored != refused.value.asked
