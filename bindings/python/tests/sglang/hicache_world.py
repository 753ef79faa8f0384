"""A server of SGLang's without an engine: its own host pool, storage factory and cache controller,
and what they need of everything else."""

import contextlib
import hashlib
import queue
import sys
import types

import loader

loader.load()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from sglang.srt.managers.cache_controller import (  # noqa: E402
    HiCacheController,
    PrefetchOperation,
    StorageOperation,
)
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName  # noqa: E402
from sglang.srt.mem_cache.hybrid_cache import hybrid_cache_controller as hybrid  # noqa: E402
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory  # noqa: E402
from sglang.srt.mem_cache.utils import get_storage_hash_str  # noqa: E402

PAGE, LAYERS, HEADS, WIDTH = 4, 3, 2, 8


def pool(layout, *, mla=False, pages=8, dtype="float16"):
    """A host pool of SGLang's, over memory of numpy's."""
    made = object.__new__(MLATokenToKVPoolHost if mla else MHATokenToKVPoolHost)
    made.layout, made.page_size, made.page_num, made.size = layout, PAGE, pages, pages * PAGE
    made.layer_num, made.start_layer, made.end_layer = LAYERS, 0, LAYERS
    made.head_num, made.head_dim, made.v_head_dim, made.kv_cache_dim = HEADS, WIDTH, WIDTH, WIDTH
    # The stand-in for torch has numpy's types.
    made.dtype = np.dtype(dtype) if torch.__version__ == "0.0" else getattr(torch, dtype)
    made.device, made.pin_memory = "cpu", False
    heads, halves = (1, ()) if mla else (HEADS, (2,))
    shape = {
        "layer_first": (LAYERS, pages * PAGE, heads, WIDTH),
        "page_first": (pages * PAGE, LAYERS, heads, WIDTH),
        "page_first_direct": (pages, LAYERS, PAGE, heads, WIDTH),
        "page_head": (pages, heads, PAGE, LAYERS, WIDTH),
    }[layout]
    made.kv_buffer = torch.from_numpy(np.zeros(halves + shape, dtype=dtype))
    return made


def config(*, mla=False, rank=0, ranks=1, extra=None, model="a/model", layout="page_first"):
    return HiCacheStorageConfig(
        tp_rank=rank,
        tp_size=ranks,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=mla,
        enable_storage_metrics=False,
        is_page_first_layout=layout == "page_first",
        model_name=model,
        extra_config=extra,
    )


class Server:
    """One rank of a server, with its storage backend made and called as SGLang does it."""

    def __init__(
        self, region, layout="page_first", *, mla=False, rank=0, ranks=1, in_place=True, pages=8, model="a/model",
        **extra,
    ):
        self.pool = pool(layout, mla=mla, pages=pages)
        extra = {
            "backend_name": "radixkv",
            "module_path": "radixkv.sglang.hicache",
            "class_name": "RadixKVStorage",
            "interface_v1": int(in_place),
            "region": str(region),
            "size": "1MiB",
            **extra,
        }
        made = config(mla=mla, rank=rank, ranks=ranks, extra=extra, model=model, layout=layout)
        self.storage = StorageBackendFactory.create_backend("dynamic", made, self.pool)
        self.storage.register_mem_pool_host(self.pool)
        self.storage.register_mem_host_pool_v2(self.pool, PoolName.KV)
        self.storage.on_host_pools_registered()
        self.controller = object.__new__(HiCacheController)
        self.controller.storage_backend, self.controller.storage_config = self.storage, made
        self.controller.storage_host_pool = self.controller.mem_pool_host = self.pool
        self.controller.page_size, self.controller.prefetch_sync_queue = PAGE, queue.Queue()
        kind = "zero_copy" if in_place else "x"
        self.controller.page_get_func = getattr(self.controller, f"_page_get_{kind}", self.controller._generic_page_get)
        self.controller.page_set_func = getattr(self.controller, f"_page_set_{kind}", self.controller._generic_page_set)

    def back_up(self, tokens, pages):
        """Stores the whole pages of tokens, which are these pages of the pool; how many tokens."""
        operation = StorageOperation(indices(pages), tokens, hash_value=hashes(tokens))
        self.controller._page_backup(operation)
        return operation.completed_tokens

    def prefetch(self, tokens, pages):
        """Loads what is stored of tokens into pages of the pool; how many tokens."""
        operation = PrefetchOperation("a request", tokens)
        operation.hash_value, hit = self.controller._storage_hit_query(operation)
        operation.host_indices = indices(pages[: hit // PAGE])
        completed = self.controller._page_transfer(operation)
        assert completed * PAGE == hit, (completed, hit)
        return hit

    def fill(self, seed):
        values = self.pool.kv_buffer.numpy()
        values[...] = np.random.default_rng(seed).integers(-1000, 1000, values.shape)

    def page(self, number):
        """All bytes of a page."""
        return self.pool.get_data_page(number * PAGE).numpy().tobytes()


class HybridServer(Server):
    """A server of a hybrid model: pools beside that of keys and values, and the controller of
    SGLang's for these."""

    def __init__(self, region, sides, **how):
        super().__init__(region, **how)
        one, self.controller = self.controller, object.__new__(hybrid.HybridCacheController)
        vars(self.controller).update(vars(one))
        self.controller.storage_backend_type = "dynamic"
        self.controller.mem_pool_host = types.SimpleNamespace(layout_lease=contextlib.nullcontext, entry_map={})
        for name, side in sides.items():
            self.storage.register_mem_host_pool_v2(side, name)

    def back_up(self, tokens, pages, transfers):
        operation = hybrid.StorageOperation(
            indices(pages), tokens, hash_value=hashes(tokens), pool_transfers=transfers
        )
        self.controller._page_backup(operation)
        return operation.completed_tokens

    def prefetch(self, tokens, pages, transfers):
        """Loads pages of all pools; the pages of keys and values, and those of each side pool."""
        handle = types.SimpleNamespace(rid="a request")
        operation = hybrid.PrefetchOperation(handle, tokens, pool_transfers=transfers)
        operation.hash_value, hit = self.controller._storage_hit_query(operation)
        operation.host_indices = indices(pages[: hit // PAGE])
        operation.pool_transfers = transfers
        self.controller._page_transfer(operation)
        *kv, sides = list(self.controller.prefetch_sync_queue.queue)
        return (kv[-1].completed_tokens // PAGE if kv else 0), sides.pool_hits


def hashes(tokens):
    return get_storage_hash_str(tokens, page_size=PAGE)[: len(tokens) // PAGE]


def indices(pages):
    return torch.tensor([page * PAGE + at for page in pages for at in range(PAGE)], dtype=torch.int64)


def main(verb, region, layout, seed):
    """Another server: stores three pages, and says so; or loads them, and says what they are."""
    server = Server(region, layout)
    server.fill(int(seed))
    if verb == "store":
        print(server.back_up(list(range(3 * PAGE)), [5, 2, 7]), flush=True)
        sys.stdin.read()
    else:
        print(server.prefetch(list(range(4 * PAGE)), [1, 4, 0, 3]))
        print(hashlib.sha256(b"".join(server.page(page) for page in (1, 4, 0))).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
