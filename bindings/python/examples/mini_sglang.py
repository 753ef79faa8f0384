"""radixkv as Mini-SGLang's prefix cache: import this module, and choose the cache manager
`radixkv`.

Written for Mini-SGLang at 20fcd7f. Its pages are the cache's blocks: block `i` is the slots from `i
* page_size` on.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from minisgl.core import get_global_ctx
from minisgl.kvcache import SUPPORTED_CACHE_MANAGER
from minisgl.kvcache.base import BaseCacheHandle, BasePrefixCache, InsertResult, MatchResult, SizeInfo

import radixkv

MOST_PAGES = 1 << 24  # Mini-SGLang does not say how many pages there are.


@dataclass(frozen=True)
class Handle(BaseCacheHandle):
    cache: "RadixKVPrefixCache"
    weak: radixkv.WeakLease
    pages: np.ndarray
    leases: list = field(default_factory=list)

    def get_matched_indices(self):
        return self.cache.slots(self.pages)


@SUPPORTED_CACHE_MANAGER.register("radixkv")
class RadixKVPrefixCache(BasePrefixCache):
    def __init__(self, device):
        self.device, self.page_size = device, get_global_ctx().page_size
        self.reset()

    def reset(self):
        self.kv = radixkv.PrefixCache(self.page_size, 1024, external=True, growable_to=MOST_PAGES)

    def slots(self, pages):
        slots = pages[:, None] * self.page_size + np.arange(self.page_size, dtype=np.int32)
        return torch.from_numpy(slots.reshape(-1)).to(self.device)

    def match_prefix(self, input_ids):
        if len(input_ids) == 0:
            return MatchResult(Handle(0, self, None, np.empty(0, dtype=np.int32)))
        with self.kv.match_prefix(input_ids) as hit:
            return MatchResult(Handle(hit.len_tokens, self, hit.downgrade(), hit.blocks()))

    def lock_handle(self, handle, unlock=False):
        if unlock:
            handle.leases.pop()
        else:
            lease = handle.weak and self.kv.upgrade(handle.weak)
            assert lease or handle.cached_len == 0, "evicted before it was locked"
            handle.leases.append(lease)

    def insert_prefix(self, input_ids, indices):
        length = len(input_ids) // self.page_size * self.page_size
        if length == 0:
            return InsertResult(0, self.match_prefix(input_ids[:0]).cuda_handle)
        with self.kv.match_prefix(input_ids[:length]) as hit:
            pages = indices[hit.len_tokens : length : self.page_size].cpu().numpy() // self.page_size
            if len(pages) and pages.max() >= self.kv.capacity_blocks:
                self.kv.grow(max(int(pages.max()) + 1, 2 * self.kv.capacity_blocks) - self.kv.capacity_blocks)
            with self.kv.insert(hit, input_ids[:length], self.kv.adopt(pages)) as inserted:
                path = np.concatenate([hit.blocks(), inserted.blocks()])
                return InsertResult(hit.len_tokens, Handle(length, self, inserted.downgrade(), path))

    def evict(self, size):
        pages = -(-size // self.page_size)
        assert pages <= self.kv.block_counts()[2], f"cannot evict {size}: {self.size_info.evictable_size} are evictable"
        self.kv.evict(pages)
        return self.slots(self.kv.take_evicted())

    @property
    def size_info(self):
        _, _, evictable, protected = self.kv.block_counts()
        return SizeInfo(evictable * self.page_size, protected * self.page_size)

    def check_integrity(self):
        self.kv.validate()
