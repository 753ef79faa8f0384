"""Implements `BasePrefixCache` of SGLang 0.5.23 with a `PrefixCache`.

Block ids are page numbers here: SGLang allocates the slots of tokens itself, and a table on its
device has the slots of each page. Equal calls have equal results, including ids, so that ranks in
lockstep agree: evictions run in the calling thread, and the number of the call is the time.
"""

import collections
import functools
import itertools
import time
import weakref
from array import array

import numpy as np
import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    BasePrefixCache,
    DecLockRefResult,
    EvictResult,
    IncLockRefResult,
    InsertParams,
    InsertResult,
    MatchResult,
)
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

import radixkv
from radixkv.sglang._events import Hashes
from radixkv.sglang._order import depth_first

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority")

# Initial and maximum number of pages if the allocator has no number of slots.
UNKNOWN_PAGES, MOST_UNKNOWN_PAGES = 1 << 12, 1 << 20
# Number of namespaces whose handles are kept.
KEPT_NAMESPACES = 1024
# Number of nodes that are kept after their last request, with the slots of their paths.
KEPT_NODES = 256
# SGLang's tokens have 64 bits (images are numbers of 62 bits): each is two tokens of the cache.
WORDS = 2


class Node:
    """A cached prefix in a match result. It is not protected until it is locked."""

    __slots__ = ("__weakref__", "_parts", "_slots", "id", "leases", "length", "weak")

    def __init__(self, number, weak, length, *parts):
        self.id, self.weak, self.length, self.leases = number, weak, length, []
        self._parts = parts
        # The slots of its path on the device, in parts; empty if unknown.
        self._slots = ()

    @property
    def pages(self):
        """The pages of its path."""
        if len(self._parts) > 1:
            self._parts = (np.concatenate(self._parts),)
        return self._parts[0]

    @property
    def slots(self):
        """The slots of its path, if they are known; else None."""
        if len(self._slots) > 1:
            self._slots = (torch.cat(self._slots),)
        return self._slots[0] if self._slots else None

    def know_slots(self, *parts):
        self._slots = parts

    @property
    def lock_ref(self):
        return len(self.leases)

    def __repr__(self):
        return f"<radixkv.sglang.Node {self.id}: {self.length} tokens, {self.lock_ref} locks>"


def _policy(params):
    name = params.eviction_policy.lower()
    if params.disable:
        return "lru"
    if name not in POLICIES:
        raise ValueError(f"radixkv has no eviction policy {name!r}: use one of {', '.join(POLICIES)}")
    config = dict(params.eviction_policy_config or {})
    if name == "slru" and (uses := config.pop("protected_threshold", None)) is not None:
        name = f"slru:{uses}"
    if config:
        raise ValueError(f"radixkv's policy {name} has no setting {', '.join(config)}")
    return name


def _level(priority):
    """The nearest level of the cache, which has 64 bits."""
    return max(-(1 << 63), min(priority or 0, (1 << 63) - 1))


class RadixKVCache(BasePrefixCache):
    """SGLang's prefix cache on radixkv."""

    sliding_window_size = None

    def __init__(self, params):
        from sglang.srt.mem_cache.events import KVCacheEventRecorder

        self.disable = params.disable
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size = params.page_size
        self.is_eagle = params.is_eagle
        self.policy = _policy(params)
        self.device = getattr(self.token_to_kv_pool_allocator, "device", None) or torch.device("cpu")
        self.kv_events = KVCacheEventRecorder(
            enabled=params.enable_kv_cache_events and not self.disable,
            page_size=self.page_size,
            dynamo_format=params.dynamo_kv_event_format,
            lora_names=params.kv_event_lora_names,
        )
        if params.enable_metrics:
            self.init_metrics_collector()
        self.reset()

    def reset(self):
        size = getattr(self.token_to_kv_pool_allocator, "size", None)
        pages = size // self.page_size + 1 if isinstance(size, int) and size > 0 else UNKNOWN_PAGES
        self._most_pages = max(2 * pages, MOST_UNKNOWN_PAGES)
        self._cache = radixkv.PrefixCache(
            self.page_size * WORDS,
            pages,
            policy=self.policy,
            clock="logical",
            external=True,
            growable_to=self._most_pages,
        )
        self._space = functools.lru_cache(KEPT_NAMESPACES)(self._named_space)
        # A stack of free pages; `_top` is their number.
        self._free, self._top = np.arange(pages, dtype=np.int32), pages
        self._slots = torch.zeros((pages, self.page_size), dtype=torch.int64, device=self.device)
        self._nodes, self._recent = weakref.WeakValueDictionary(), collections.deque(maxlen=KEPT_NODES)
        self._numbers, self._now = itertools.count(1), 0
        self._hashes = Hashes(self.kv_events) if self.kv_events.enabled else None
        self._no_slots = torch.empty((0,), dtype=torch.int64, device=self.device)
        self.root_node = Node(0, None, 0, np.empty(0, dtype=np.int32))
        self.root_node.know_slots(self._no_slots)
        self._miss = self._found(self.root_node)
        self.kv_events.record_all_cleared()

    # Lookups.

    def match_prefix(self, params):
        key, _ = params.key.maybe_to_bigram_view(self.is_eagle)
        if self.disable or len(key) < self.page_size:
            return self._miss
        hit, _ = self._look_up(key, len(key))
        node = self._node(hit, hit.blocks())
        hit.release()
        return self._found(node) if node is not self.root_node else self._miss

    def touch_prefix(self, key):
        key, _ = key.maybe_to_bigram_view(self.is_eagle)
        if not self.disable and len(key) >= self.page_size:
            self._look_up(key, len(key))[0].release()

    def supports_fast_match_prefix(self):
        return True

    def supports_prefix_sharing(self):
        return not self.disable

    def _look_up(self, key, length):
        """Leases the cached part of the first `length` units of the key, and makes it recent, but
        counts no use. Also returns the words of the tokens."""
        self._now += 1
        self._cache.set_time(self._now)
        words, rest = self._words(key, length)
        space = self._space(key.extra_key, key.cache_salt, key.is_bigram, rest)
        hit = self._cache.match_prefix(words, space, counted=False)
        self._cache.renew(hit)
        return hit, words

    @staticmethod
    def _words(key, length):
        """The tokens as words of 32 bits, and the part of the first token that is in none of them.

        A page of bigrams ends with the first word of its last token. So the words begin one later,
        and each page has both words of that token.
        """
        raw = key.token_ids
        if not isinstance(raw, array) or raw.typecode != "q":
            raw = array("q", raw)
        raw = memoryview(raw)[: length + key.is_bigram]
        if not key.is_bigram:
            return raw.cast("B").cast("I"), 0
        words = np.asarray(raw).view(np.uint32)[1:].copy()
        words[0] = raw[0] & 0xFFFFFFFF
        return words, raw[0] >> 32

    def _named_space(self, extra_key, cache_salt, is_bigram, rest):
        parts = []
        if extra_key is not None or cache_salt is not None:
            # Differs for None and "None", and has no lone surrogates.
            parts = [repr(part) for part in (extra_key, cache_salt)]
        if rest:
            parts.append(f"^{rest}")
        return self._cache.namespace(*parts, bigrams=is_bigram)

    def _node(self, lease, *parts):
        """The node at the end of a leased path: the same object while its last page is cached."""
        if lease.len_tokens == 0:
            return self.root_node
        last = int(parts[-1][-1])
        node = self._nodes.get(last)
        if node is None:
            node = Node(next(self._numbers), lease.downgrade(), lease.len_tokens // WORDS, *parts)
            self._nodes[last] = node
            self._recent.append(node)
        return node

    @staticmethod
    def _found(node):
        return MatchResult(
            device_prefix_len=node.length,
            last_device_node=node,
            last_host_node=node,
            best_match_node=node,
            full_kv_hit_length=node.length,
            last_visited_node_id=node.id or None,
        )

    def path_device_indices(self, node):
        slots = node.slots
        if slots is None:
            slots = self._slots_of(node.pages)
            node.know_slots(slots)
        return slots

    def _slots_of(self, pages):
        """A copy of the slots: the allocator may keep it while rows of the table are reused."""
        return self._slots[torch.from_numpy(pages).to(self.device)].reshape(-1)

    def dfs_weight_order(self, node_handles):
        return depth_first([node.pages for node in node_handles])

    # Inserts and evictions.

    def insert(self, params):
        if self.disable:
            return InsertResult(prefix_len=0)
        key, value = params.key.maybe_to_bigram_view(self.is_eagle, params.value)
        length = len(key) // self.page_size * self.page_size
        if length == 0:
            return InsertResult(prefix_len=0, last_device_node=self.root_node)
        if value is None:
            value = torch.tensor(list(key.token_ids[:length]), dtype=torch.int64)
        if len(value) < length:
            raise ValueError(f"{len(value)} slots given for {length} tokens: each token needs a slot")
        hit, words = self._look_up(key, length)
        with hit:
            before = hit.len_tokens // WORDS
            if before == length:
                if length > params.inserted_len:
                    self._cache.count_use(hit)
                end, node = hit, self._node(hit, hit.blocks())
            else:
                end, node = self._store(key, words, value, length, hit, params.session_id)
            if self.policy == "priority":
                self._cache.prioritize(end, _level(params.priority))
            end.release()
        if params.prev_prefix_len < before and self.token_to_kv_pool_allocator is not None:
            # Another request had cached these tokens: frees the slots of this request.
            self.token_to_kv_pool_allocator.free_segment(value[params.prev_prefix_len : before], start_pos=0)
        adopted = {} if params.track_adopted_ranges else None
        result = InsertResult(prefix_len=before, last_device_node=node, adopted_ranges=adopted)
        result.record_adopted_range(ComponentType.FULL, before, length)
        return result

    def _store(self, key, words, value, length, hit, session_id):
        before = hit.len_tokens // WORDS
        # A copy: the value is the caller's.
        tail = value[before:length].to(device=self.device, dtype=torch.int64, copy=True)
        pages = self._take_pages((length - before) // self.page_size)
        try:
            self._write_slots(pages, tail)
            adopted = self._cache.adopt(pages)
        except Exception:
            self._keep_pages(pages)
            raise
        try:
            inserted = self._cache.insert(hit, words, adopted)
        except radixkv.InsertError:
            # The request keeps its slots.
            self._keep_pages(adopted.take_blocks())
            raise
        old = hit.blocks()
        node = self._node(inserted, old, pages)
        if before == 0:
            node.know_slots(tail)
        elif (known := self._nodes.get(int(old[-1]))) is not None and known.slots is not None:
            node.know_slots(known.slots, tail)
        if self._hashes is not None:
            self._hashes.stored(key[:length], before, old, pages, session_id)
        return inserted, node

    def _write_slots(self, pages, slots):
        first, end = int(pages[0]), int(pages[-1]) + 1
        if end - first == len(pages):
            # The pages are consecutive: no index is copied to the device.
            self._slots.view(-1)[first * self.page_size : end * self.page_size] = slots
        else:
            self._slots[torch.from_numpy(pages).to(self.device)] = slots.reshape(-1, self.page_size)

    def _take_pages(self, count):
        """Takes free pages, in ascending order."""
        if self._top < count:
            capacity = self._cache.capacity_blocks
            # Doubles the number of pages, up to the limit.
            more = max(count - self._top, min(capacity, self._most_pages - capacity))
            added = np.array(self._cache.grow(more), dtype=np.int32)
            grown = np.empty(self._cache.capacity_blocks, dtype=np.int32)
            grown[: len(added)] = added
            grown[len(added) : len(added) + self._top] = self._free[: self._top]
            self._free, self._top = grown, self._top + len(added)
            empty = torch.zeros((len(added), self.page_size), dtype=torch.int64, device=self.device)
            self._slots = torch.cat([self._slots, empty])
        self._top -= count
        return np.sort(self._free[self._top : self._top + count])

    def evict(self, params):
        if self.disable or params.num_tokens <= 0:
            return EvictResult()
        start = time.perf_counter()
        evicted = self._cache.evict(-(-params.num_tokens // self.page_size))
        if evicted:
            self._give_back(self._cache.take_evicted())
        self.update_eviction_metrics(evicted * self.page_size, start)
        return EvictResult(num_tokens_evicted=evicted * self.page_size)

    def _give_back(self, pages):
        self.token_to_kv_pool_allocator.free_segment(self._slots_of(pages), start_pos=0)
        listed = pages.tolist()
        for page in listed:
            self._nodes.pop(page, None)
        if self._hashes is not None:
            self._hashes.removed(listed)
        self._keep_pages(pages)

    def _keep_pages(self, pages):
        self._free[self._top : self._top + len(pages)] = pages
        self._top += len(pages)

    def checkpoint(self, req, *, up_to, **kwargs):
        token_ids = req.full_untruncated_fill_ids[:up_to]
        if self.disable or len(token_ids) == 0:
            return
        kv, priority = req.kv, req.priority or 0
        row = self.req_to_token_pool.req_to_token[kv.req_pool_idx, : len(token_ids)]
        key = RadixKey(token_ids, req.extra_key, is_bigram=self.is_eagle, cache_salt=req.cache_salt)
        length = len(key) // self.page_size * self.page_size
        values = row[:length].to(dtype=torch.int64, copy=True)
        result = self.insert(
            InsertParams(
                key=key,
                value=values,
                prev_prefix_len=kv.cache_protected_len,
                inserted_len=kv.cache_inserted_len,
                priority=priority,
                session_id=req.session_id,
            )
        )
        kv.cache_inserted_len = max(kv.cache_inserted_len, length)
        if self.policy == "priority":
            self._prefer_prompt(req, length, priority)
        node = result.last_device_node
        indices = self.path_device_indices(node)
        if kv.cache_protected_len > len(indices) + self.page_size - 1:
            # The request would free slots that the cache has.
            raise AssertionError(f"{req.rid}: {kv.cache_protected_len} tokens are cached, {len(indices)} were given")
        self.req_to_token_pool.write(
            (kv.req_pool_idx, slice(kv.cache_protected_len, len(indices))), indices[kv.cache_protected_len :]
        )
        self.unlock(req.lock)
        req.lock, req.last_node = self.lock(node), node
        kv.cache_protected_len = len(indices)

    def _prefer_prompt(self, req, length, priority):
        """Keeps the prompt longer than the output. Other policies do so anyway, because they evict
        from the end of a path."""
        prompt = RadixKey(req.origin_input_ids, req.extra_key, is_bigram=self.is_eagle, cache_salt=req.cache_salt)
        whole = len(prompt) // self.page_size * self.page_size
        if 0 < whole < length:
            with self._look_up(prompt, whole)[0] as hit:
                self._cache.prioritize(hit, _level(priority + 1))

    # Locks.

    def inc_lock_ref(self, node):
        if not self.disable and node is not self.root_node:
            lease = self._cache.upgrade(node.weak)
            if lease is None:
                raise RuntimeError(f"{node} was evicted after it was matched: match again, and lock before evicting")
            node.leases.append(lease)
        return IncLockRefResult(node_id=node.id)

    def dec_lock_ref(self, node, params=None, **kwargs):
        if not self.disable and node is not self.root_node:
            if params is not None and params.node_id != node.id:
                raise AssertionError(f"lock receipt of node {params.node_id} released on {node}")
            if not node.leases:
                raise AssertionError(f"{node} is not locked")
            node.leases.pop().release()
        return DecLockRefResult()

    # Numbers.

    def evictable_size(self):
        return self._cache.block_counts()[2] * self.page_size

    def protected_size(self):
        return self._cache.block_counts()[3] * self.page_size

    full_evictable_size = evictable_size
    full_protected_size = protected_size

    def total_size(self):
        """The number of cached tokens, and that of other components (0)."""
        return sum(self._cache.block_counts()[2:]) * self.page_size, 0

    def available_and_evictable_str(self):
        free, evictable = self.token_to_kv_pool_allocator.available_size(), self.evictable_size()
        return (
            f"Available full tokens: {free + evictable} "
            f"(full_available_size={free} + full_evictable_size_={evictable})\n"
        )

    def all_values_flatten(self):
        stored = (event.blocks for event in self._cache.snapshot().events)
        pages = np.concatenate([np.empty(0, dtype=np.int32), *stored])
        return self._slots_of(pages) if len(pages) else self._no_slots

    def sanity_check(self):
        self._cache.settle()
        self._cache.validate()

    def pretty_print(self):
        print(self._cache, self._cache.stats())
