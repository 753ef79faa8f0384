"""The example for Mini-SGLang beside Mini-SGLang's own tree.

`RADIXKV_MINISGL` names the folder `python` of a clone of Mini-SGLang's repository, at the commit
that the example names. No other package is needed.
"""

import os
import random
import sys
import types
from pathlib import Path

import loader
import pytest

if "RADIXKV_MINISGL" not in os.environ:
    pytest.skip("RADIXKV_MINISGL does not name Mini-SGLang's sources", allow_module_level=True)

sys.modules.setdefault("torch", __import__("torch" if os.environ.get("RADIXKV_TORCH") == "real" else "standin_torch"))
import torch

STEPS = 2400


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


class Registry(dict):
    def __init__(self, name):
        super().__init__()

    def __class_getitem__(cls, kind):
        return cls

    def register(self, name):
        return lambda made: self.setdefault(name, made)


def first_difference(one, two):
    short = min(len(one), len(two))
    differs = [at for at in range(short) if int(one[at]) != int(two[at])]
    return differs[0] if differs else short


def load(page_size):
    sources = Path(os.environ["RADIXKV_MINISGL"])
    module("minisgl").__path__ = [str(sources / "minisgl")]
    module("minisgl.core", get_global_ctx=lambda: types.SimpleNamespace(page_size=page_size))
    module("minisgl.utils", Registry=Registry, align_down=lambda length, to: length // to * to)
    module("minisgl.kernel", fast_compare_key=first_difference)
    for name in [name for name in sys.modules if name.startswith("minisgl.kvcache") or name == "mini_sglang"]:
        del sys.modules[name]
    examples = str(loader.Path(__file__).parents[2] / "examples")
    if examples not in sys.path:
        sys.path.append(examples)
    import mini_sglang
    from minisgl.kvcache.radix_cache import RadixPrefixCache

    return mini_sglang.RadixKVPrefixCache(torch.device("cpu")), RadixPrefixCache(torch.device("cpu"))


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_equal_calls_get_equal_answers(page_size):
    caches, draw = load(page_size), random.Random(page_size)
    locks, prompts, next_page = [], [[]], 0

    def both(call):
        return [call(cache) for cache in caches]

    def agree(call, what):
        one, two = both(call)
        assert one == two, f"{what}: radixkv {one}, Mini-SGLang {two}"
        return one

    for _ in range(STEPS):
        cut = draw.choice(prompts)
        tokens = cut[: draw.randint(0, len(cut))] + [draw.randint(0, 2) for _ in range(draw.randint(1, 3 * page_size))]
        prompts = [*prompts[-30:], tokens]
        ids = torch.tensor(tokens, dtype=torch.int32)
        step = draw.random()
        if step < 0.4:
            handles = [cache.match_prefix(ids).cuda_handle for cache in caches]
            assert handles[0].cached_len == handles[1].cached_len
            if handles[0].cached_len:
                assert handles[0].get_matched_indices().tolist() == handles[1].get_matched_indices().tolist()
                if draw.random() < 0.5:
                    for cache, handle in zip(caches, handles, strict=True):
                        cache.lock_handle(handle)
                    locks.append(handles)
        elif step < 0.75:
            count = -(-len(tokens) // page_size)
            slots = torch.arange(next_page * page_size, (next_page + count) * page_size, dtype=torch.int32)
            next_page += count
            results = [cache.insert_prefix(ids, slots[: len(tokens)]) for cache in caches]
            assert results[0].cached_len == results[1].cached_len
        elif step < 0.95 and locks:
            for cache, handle in zip(caches, locks.pop(draw.randrange(len(locks))), strict=True):
                cache.lock_handle(handle, unlock=True)
        elif step > 0.99:
            size = agree(lambda cache: cache.size_info.evictable_size, "evictable size")
            if size:
                agree(lambda cache: sorted(cache.evict(size).tolist()), "evicted slots")
        agree(lambda cache: tuple(cache.size_info), "sizes")
        both(lambda cache: cache.check_integrity())
