"""An SGLang without an engine: an allocator, a table of rows, and the two caches to compare."""

import types
from array import array

import loader

loader.load()

import torch  # noqa: E402
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402

from radixkv.sglang._cache import RadixKVCache  # noqa: E402


class Allocator:
    """Hands out whole pages of slots, and refuses to take a page twice."""

    device = torch.device("cpu")

    def __init__(self, pages, page_size):
        self.size, self.page_size = pages * page_size, page_size
        self._free, self.used = list(range(pages, 0, -1)), set()

    def alloc(self, tokens):
        """The slots of so many tokens, from the beginning of a page on."""
        pages = [self._free.pop() for _ in range(-(-tokens // self.page_size))]
        self.used.update(pages)
        slots = [page * self.page_size + at for page in pages for at in range(self.page_size)]
        return torch.tensor(slots[:tokens], dtype=torch.int64)

    def free_segment(self, slots, start_pos=0):
        pages = {slot // self.page_size for slot in slots.tolist()}
        assert pages <= self.used, f"pages {pages - self.used} were freed twice"
        self.used -= pages
        # Sorted: so that the next allocations do not depend on the order of frees.
        self._free = sorted({*self._free, *pages}, reverse=True)

    def available_size(self):
        return len(self._free) * self.page_size


class Rows:
    """`ReqToTokenPool`: the slots of each request's tokens."""

    def __init__(self, rows, length):
        self.req_to_token = torch.zeros((rows, length), dtype=torch.int32)

    def write(self, where, slots):
        self.req_to_token[where] = slots


def key(tokens, extra_key=None, salt=None, bigrams=False, limit=None):
    return RadixKey(array("q", tokens), extra_key, is_bigram=bigrams, limit=limit, cache_salt=salt)


def params(page_size, pages=1 << 14, rows=64, length=1024, **changes):
    allocator = Allocator(pages, page_size)
    return CacheInitParams(
        disable=False,
        req_to_token_pool=Rows(rows, length),
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
        tree_components=(ComponentType.FULL,),
        **changes,
    )


def ours(**arguments):
    return RadixKVCache(params(**arguments))


def theirs(**arguments):
    cache = UnifiedRadixCache(params(**arguments))
    cache.session = loader.no_sessions()
    return cache


class Request:
    """What a cache reads and writes of a request."""

    def __init__(self, row, tokens, prompt, extra_key=None, salt=None, priority=0):
        self.rid, self.priority, self.session_id, self.kv_rotation_base = f"r{row}", priority, None, None
        self.full_untruncated_fill_ids, self.origin_input_ids = array("q", tokens), array("q", tokens[:prompt])
        self.extra_key, self.cache_salt, self.lock, self.last_node = extra_key, salt, None, None
        self.kv = types.SimpleNamespace(req_pool_idx=row, cache_protected_len=0, cache_inserted_len=0)
        self.is_finished = False

    def finished(self):
        return self.is_finished
