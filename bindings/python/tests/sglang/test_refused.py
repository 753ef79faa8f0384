"""Features that need another tree are refused when a server starts: by radixkv, or by SGLang."""

import importlib.util
import types

import loader
import pytest

if loader.sources() is None:
    pytest.skip("RADIXKV_SGLANG does not name SGLang's sources", allow_module_level=True)

import world
from sglang.srt import runtime_context
from sglang.srt.mem_cache import registry
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

import radixkv.sglang


class Options:
    """SGLang's options: those that are not given are None."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        return None


@pytest.fixture
def choose(monkeypatch):
    """Sets options where radixkv and SGLang's registry read them."""

    def set_options(**options):
        for module in (runtime_context, registry):
            for name in ("get_memory", "get_disagg", "get_serving", "get_observability"):
                chosen = Options(radix_cache_backend="radixkv", **options)
                monkeypatch.setattr(module, name, lambda chosen=chosen: chosen, raising=False)

    return set_options


def context(eviction_policy="lru", **changes):
    fields = {"params": world.params(16, eviction_policy=eviction_policy), "is_hybrid_swa": False,
              "is_hybrid_ssm": False, "tp_rank": 1, "enable_hierarchical_cache": False}
    return types.SimpleNamespace(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache needs SGLang's own tree; remove one"),
        ({"is_hybrid_swa": True}, "sliding windows"),
        ({"is_hybrid_ssm": True}, "Mamba"),
        ({"eviction_policy": "tlru"}, "no eviction policy 'tlru'"),
    ],
)
def test_the_factory_refuses_what_the_cache_cannot_do(choose, changes, words):
    choose()
    with pytest.raises(ValueError, match=words):
        radixkv.sglang.create(context(**changes))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enable_lmcache": True}, "--radix-cache-backend radixkv: --enable-lmcache needs LMCache's own tree; remove"),
        ({"enable_flexkv": True}, "--radix-cache-backend radixkv: --enable-flexkv needs FlexKV's own tree; remove"),
        ({"hicache_storage_backend": "file"}, "--hicache-storage-backend needs SGLang's own tree"),
        ({"kv_canary": "log", "kv_canary_sweep_interval": 9}, "--kv-canary-sweep-interval needs SGLang's own tree"),
        ({"disaggregation_decode_retraction_backup": "host_pool"}, "retraction-backup cpu_tensor"),
    ],
)
def test_the_factory_refuses_options_that_need_another_tree(choose, options, words):
    choose(**options)
    with pytest.raises(ValueError, match=words):
        radixkv.sglang.create(context())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"disaggregation_decode_retraction_backup": "cpu_tensor", "disaggregation_mode": "decode"},
        {"hicache_storage_backend": "file", "disaggregation_mode": "decode"},
        {"enable_unified_memory": True},
        {"kv_canary": "log", "kv_canary_sweep_interval": 0},
        {"kv_canary": "none", "kv_canary_sweep_interval": 9},
    ],
)
def test_the_factory_accepts_what_works(choose, options):
    choose(**options)
    assert radixkv.sglang.create(context()).evict(EvictParams(num_tokens=1)).num_tokens_evicted == 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"enable_session_radix_cache": True}, ValueError, "--enable-session-radix-cache requires UnifiedRadixCache"),
        ({"enable_streaming_session": True}, NotImplementedError, "not verified with RadixKVCache"),
        ({"radix_eviction_policy": "tlru"}, ValueError, "tlru requires UnifiedRadixCache"),
    ],
)
def test_sglangs_registry_refuses_what_needs_its_own_tree(choose, monkeypatch, options, error, words):
    monkeypatch.setattr(registry, "_RADIX_CACHE_REGISTRY", {})
    radixkv.sglang.register()
    choose()
    assert registry.create_tree_cache(context()).disable is False
    choose(**options)
    with pytest.raises(error, match=words):
        registry.create_tree_cache(context())


@pytest.mark.parametrize(
    ("file", "check", "options", "words"),
    [
        ("hicache_hook", "handle_hicache", {"enable_unified_cache_external_linker": True},
         "external-linker requires the default UnifiedRadixCache"),
        ("kv_shard_hook", "handle_kv_cache_sharding",
         {"enable_kv_cache_sharding": True, "disaggregation_mode": "prefill"},
         "does not support --radix-cache-backend"),
        ("mamba_hook", "handle_int8_mamba_checkpoint", {"enable_int8_mamba_checkpoint": True}, "is not int8-aware"),
    ],
)
def test_sglangs_options_refuse_what_needs_its_own_tree(file, check, options, words):
    path = loader.sources() / "sglang/srt/arg_groups" / f"{file}.py"
    spec = importlib.util.spec_from_file_location(file, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.resolving_view = lambda given: given
    getattr(module, check)(Options(radix_cache_backend="radixkv"))
    with pytest.raises(ValueError, match=words):
        getattr(module, check)(Options(radix_cache_backend="radixkv", **options))


def test_joint_reclaim_is_refused():
    with pytest.raises(NotImplementedError, match="joint reclaim"):
        world.ours(page_size=1).evict_for_alloc(EvictParams(num_tokens=1), allocation_reclaim_satisfied=lambda: True)


def test_the_page_lists_what_the_printed_table_lists():
    page = (loader.Path(__file__).parents[2] / "SGLANG.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.endswith(("| radixkv |", "| SGLang |"))]
    printed = radixkv.sglang.LOST.splitlines()[1:]
    assert len(rows) == len(printed)
    for (feature, by), line in zip(rows, printed, strict=True):
        assert line.endswith("refused" if by.strip() == "radixkv" else "refused by SGLang"), (feature, line)
