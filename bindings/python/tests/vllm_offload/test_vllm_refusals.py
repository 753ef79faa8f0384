"""What the adapters refuse, and that they name both values."""

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import importlib
import sys

import numpy as np
import vllm_engine
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.kv_offload.tiering.base import TransferJob

import radixkv
import radixkv.vllm
from radixkv.vllm import _tier
from radixkv.vllm._hashing import EngineHash

SIZE = 4 << 20
PROMPT = list(range(1, 65))


@pytest.fixture(autouse=True)
def _hashes_again(monkeypatch):
    """Each test begins before the engine hashes."""
    monkeypatch.delattr(kv_cache_utils, "NONE_HASH", raising=False)
    monkeypatch.setattr(kv_cache_utils, "_NONE_HASH_SEED", None)
    yield
    vllm_engine.start_hashing()


@pytest.fixture
def opened(replicas, region):
    """A replica that was made before the engine hashed."""

    def make(**how):
        tier = {"region": region, "region_bytes": SIZE, **how.pop("tier", {})}
        kv_cache_utils.__dict__.pop("NONE_HASH", None)
        kv_cache_utils._NONE_HASH_SEED = None
        return replicas(tier=tier, **how)

    return make


@pytest.mark.parametrize("algorithm", ["xxhash", "xxhash_cbor"])
def test_xxhash_is_refused_where_it_is_configured(opened, algorithm, monkeypatch):
    with pytest.raises(ValueError, match=f"'{algorithm}'.*sha256"):
        opened(tier={"hash_algo": algorithm})
    config = type("Config", (), {})()
    config.cache_config = type("Cache", (), {"prefix_caching_hash_algo": algorithm})()
    monkeypatch.setattr(sys.modules["vllm.config"], "get_current_vllm_config_or_none", lambda: config)
    with pytest.raises(ValueError, match=f"'{algorithm}'.*sha256"):
        opened()
    with pytest.raises(ValueError, match=f"'sha256'.*'{algorithm}'"):
        opened(tier={"hash_algo": "sha256"})


def test_xxhash_is_refused_at_the_first_request(opened, monkeypatch):
    replica = opened()
    # Sixteen bytes, as of xxHash.
    kv_cache_utils.NONE_HASH, kv_cache_utils._NONE_HASH_SEED = b"x" * 16, "seed"
    with pytest.raises(ValueError, match="'xxhash'.*sha256"):
        replica.manager.on_new_request(ReqContext(req_id="first"))
    with pytest.raises(ValueError, match="'xxhash'.*sha256"):
        view = replica.manager.primary_tier.get_kv_memoryview()
        radixkv.vllm.RadixKVTier(replica.spec, view, "tier", region=None, region_bytes=SIZE)


def test_keys_of_another_length_are_refused_with_both(opened):
    replica = opened()
    vllm_engine.start_hashing()
    context = ReqContext(req_id="first")
    replica.manager.on_new_request(context)
    with pytest.raises(radixkv.BatchError, match="20.*36|36.*20"):
        replica.manager.lookup(b"k" * 20, context)


@pytest.mark.parametrize("is_load", [False, True])
@pytest.mark.parametrize("chunk, words", [(64, str(64 * vllm_engine.CHUNK)), (-1, "chunk -1 is negative")])
def test_a_job_outside_of_the_memory_fails_and_is_told(opened, monkeypatch, chunk, words, is_load):
    replica, told = opened(), []
    monkeypatch.setattr(_tier.logger, "error", lambda text, *values: told.append(text % values))
    assert len(replica.view) == 64
    job = TransferJob(7, [b"k" * 36], np.array([chunk], dtype=np.int32), is_load, ReqContext(req_id="first"))
    (replica.tier.submit_load if is_load else replica.tier.submit_store)(job)
    assert [(result.job_id, result.success) for result in replica.tier.get_finished_jobs()] == [(7, False)]
    assert words in told[0]


def test_another_hash_or_seed_than_declared_is_refused_at_the_first_request(opened, monkeypatch):
    replica = opened()
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    vllm_engine.start_hashing()
    with pytest.raises(ValueError, match="'17'.*'vllm-none-hash'"):
        replica.manager.on_new_request(ReqContext(req_id="first"))


def test_the_seed_is_part_of_the_namespace(opened, monkeypatch):
    opened()
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    with pytest.raises(radixkv.RegionError) as refused:
        opened()
    assert (refused.value.kind, refused.value.stored, refused.value.asked) == ("mismatch", "vllm-none-hash", "17")
    assert "vllm-none-hash" in str(refused.value) and "17" in str(refused.value)


@pytest.mark.parametrize(
    "change, stored, asked",
    [
        ({"dtype": "float16"}, "bfloat16", "float16"),
        ({"chunk": 8192}, "4096", "8192"),
        ({"tp": 2}, "ranks=tp1", "ranks=tp2"),
    ],
)
def test_another_meaning_of_the_bytes_is_refused_with_both(opened, change, stored, asked):
    opened(tier={"region_block_bytes": 8192})
    with pytest.raises(radixkv.RegionError) as refused:
        opened(tier={"region_block_bytes": 8192}, **change)
    assert refused.value.kind == "mismatch"
    assert stored in str(refused.value) and asked in str(refused.value)
    # A namespace of its own is what helps.
    opened(tier={"region_block_bytes": 8192, "namespace": "another"}, **change)


@pytest.mark.parametrize(
    "option, words",
    [
        ({"time_to_live": 0}, "time_to_live is 0"),
        ({"quota": -1}, "quota is -1"),
        ({"quota": 0}, "quota is 0: must be at least 1, or None"),
        ({"process_quota": 0}, "process_quota is 0: must be at least 1, or None"),
        ({"threads": 0}, "0"),
        ({"locality": "moon"}, "moon"),
    ],
)
def test_options_without_a_meaning_are_refused(opened, option, words):
    with pytest.raises((ValueError, OverflowError), match=words):
        opened(tier=option)
    # Nothing is left open.
    opened()


def test_another_model_has_a_namespace_of_its_own(opened):
    one, other = opened(), opened(model="another")
    vllm_engine.start_hashing()
    one.run(PROMPT)
    one.settle()
    assert other.run(PROMPT) == 0


def test_ranks_of_a_replicated_layout_share_one_copy(opened):
    one, other = opened(replicated=True, tp=2), opened(replicated=True, tp=4)
    vllm_engine.start_hashing()
    one.run(PROMPT)
    one.settle()
    assert other.run(PROMPT) == 4


def test_another_size_of_the_region_is_refused_with_both(opened):
    chunks = opened().tier._region.capacity_blocks
    with pytest.raises(radixkv.RegionError, match=rf"{chunks} in the region, \d+ was requested"):
        opened(tier={"region_bytes": 2 * SIZE})


def test_an_unknown_kind_of_tier_is_refused_by_name(opened):
    with pytest.raises(radixkv.RegionError, match="tape"):
        opened(tier={"tiers": [{"type": "tape", "url": "x"}]})


@pytest.mark.parametrize("spoil", ["read-only", "strided"])
def test_memory_that_cannot_be_copied_in_place_is_refused(opened, spoil):
    replica = opened()
    rows = np.zeros((4, 2 * vllm_engine.CHUNK), dtype=np.int8)
    if spoil == "read-only":
        rows.flags.writeable = False
    view = memoryview(rows if spoil == "read-only" else rows[:, : vllm_engine.CHUNK])
    with pytest.raises(ValueError, match="contiguous"):
        radixkv.vllm.RadixKVTier(replica.spec, view, "tier", region=None, region_bytes=SIZE)


def test_long_names_are_told_apart(opened):
    from radixkv.vllm._namespace import LONGEST, shorten

    one, other = "a" * 200 + "/snapshots/1", "b" * 200 + "/snapshots/1"
    assert shorten("short") == "short"
    assert shorten(one) != shorten(other) and shorten(one).endswith("/snapshots/1")
    assert max(len(shorten(text).encode()) for text in (one, "ü" * 100)) <= LONGEST
    opened(model=one)


def test_another_version_of_vllm_is_refused_with_both(monkeypatch):
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.33.2")
    importlib.reload(radixkv.vllm)
    monkeypatch.setattr(vllm, "__version__", "0.41.0")
    with pytest.raises(ImportError, match=r"0\.33\.0.*0\.41\.0"):
        importlib.reload(radixkv.vllm)
    monkeypatch.setenv("RADIXKV_VLLM_UNTESTED", "1")
    with pytest.warns(RuntimeWarning, match=r"0\.33\.0.*0\.41\.0"):
        importlib.reload(radixkv.vllm)


def test_the_hash_is_checked_once_the_engine_hashes():
    engine = EngineHash()
    assert (engine.scheme, engine.seed, engine.is_checked) == ("sha256", "vllm-none-hash", False)
    vllm_engine.start_hashing()
    engine.check()
    assert engine.is_checked and EngineHash().is_checked
