"""radixkv beside SGLang's own `UnifiedRadixCache`: equal calls get equal lengths, sizes and sets of
slots.

Deliberate differences, none in lengths or locks:

1. Handles are objects and not numbers. A handle whose prefix was evicted raises when it is locked,
   also if the prefix has come back.
2. `evict` frees as many whole pages as it is asked for; SGLang's tree frees whole nodes. Here
   everything is evicted.
3. One call of `free_segment` frees what several calls free there.
4. `total_size` counts tokens without walking; `sanity_check` does not demand that nothing is
   locked.
5. Of requests with equal weights `dfs_weight_order` puts the one that comes first first, not the
   one that was cached first.
6. With lfu and slru a request that inserts twice counts twice.
"""

import random

import loader
import pytest

if loader.sources() is None:
    pytest.skip("RADIXKV_SGLANG does not name SGLang's sources", allow_module_level=True)

import world
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams

STEPS = 6000
ALL = 1 << 40


class Pair:
    """Both caches, each with an allocator of its own that hands out the same slots."""

    def __init__(self, seed, **arguments):
        self.caches = [world.ours(**arguments), world.theirs(**arguments)]
        self.random, self.page_size = random.Random(seed), arguments["page_size"]
        self.bigrams = arguments.get("is_eagle", False)
        self.locks, self.requests, self.prompts, self.rows = [], [], [[]], list(range(64))

    def both(self, call):
        return [call(cache) for cache in self.caches]

    def agree(self, call, what):
        one, two = self.both(call)
        assert one == two, f"{what}: radixkv {one}, SGLang {two}"
        return one

    def check(self):
        self.agree(lambda cache: (cache.evictable_size(), cache.protected_size()), "sizes")
        self.agree(lambda cache: (cache.full_evictable_size(), cache.full_protected_size()), "full sizes")
        self.agree(lambda cache: sorted(cache.token_to_kv_pool_allocator.used), "slots in use")

    def tokens(self):
        """A sequence that often goes on from an earlier one."""
        draw = self.random
        base = list(draw.choice(self.prompts))
        cut = base[: draw.randint(0, len(base))] if draw.random() < 0.5 else base
        tokens = cut + [self.token() for _ in range(draw.randint(0, 4 * self.page_size + 3))]
        self.prompts.append(tokens[: 40 * self.page_size])
        del self.prompts[:-50]
        return self.prompts[-1]

    def token(self):
        """One of four tokens; now and then the number of an image, or one that no text has."""
        wide = [1 << 31, 1 << 40, (1 << 40) + 1, (1 << 61) + 1, -1]
        return self.random.choice(wide) if self.random.random() < 0.03 else self.random.randint(0, 3)

    def names(self):
        draw = self.random
        return draw.choice([None, None, None, "lora", ""]), draw.choice([None, None, "salt"])

    def key(self):
        tokens, (extra_key, salt) = self.tokens(), self.names()
        limit = self.random.randint(0, len(tokens)) if self.random.random() < 0.2 else None
        return lambda: world.key(tokens, extra_key, salt, self.bigrams, limit)

    def match(self, key):
        found = self.both(lambda cache: cache.match_prefix(MatchPrefixParams(key=key())))
        lengths = [(hit.device_prefix_len, hit.host_hit_length, hit.full_kv_hit_length) for hit in found]
        assert lengths[0] == lengths[1], f"match: radixkv {lengths[0]}, SGLang {lengths[1]}"
        nodes = [hit.last_device_node for hit in found]
        self.same_path(nodes)
        return nodes, lengths[0][0]

    def same_path(self, nodes):
        paths = [
            cache.path_device_indices(node).tolist() for cache, node in zip(self.caches, nodes, strict=True)
        ]
        assert paths[0] == paths[1], "the slots of a path"

    # Steps.

    def step_match(self):
        self.match(self.key())

    def step_touch(self):
        key = self.key()
        self.both(lambda cache: cache.touch_prefix(key()))

    def step_lock(self):
        nodes, _ = self.match(self.key())
        self.locks.append([cache.lock(node) for cache, node in zip(self.caches, nodes, strict=True)])

    def step_unlock(self):
        if self.locks:
            pair = self.locks.pop(self.random.randrange(len(self.locks)))
            for cache, lock in zip(self.caches, pair, strict=True):
                cache.unlock(lock)

    def step_insert(self):
        """Slots for all of it: the cache frees those that it has in other slots already."""
        key = self.key()
        length = len(key()) // self.page_size * self.page_size
        results = []
        for cache in self.caches:
            slots = cache.token_to_kv_pool_allocator.alloc(length)
            results.append(cache.insert(InsertParams(key=key(), value=slots, priority=0)))
        assert results[0].prefix_len == results[1].prefix_len, "the length that was cached"
        self.same_path([result.last_device_node for result in results])

    def step_begin(self):
        """A request: matched, locked, and given slots for the rest."""
        if not self.rows:
            return
        tokens, (extra_key, salt) = self.tokens(), self.names()
        if len(tokens) < 2:
            return
        prompt = self.random.randint(1, len(tokens) - 1)
        nodes, length = self.match(lambda: world.key(tokens[: prompt - 1], extra_key, salt, self.bigrams))
        row, pair = self.rows.pop(), []
        for cache, node in zip(self.caches, nodes, strict=True):
            request = world.Request(row, tokens, prompt, extra_key, salt)
            request.last_node, request.lock = node, cache.lock(node)
            request.kv.cache_protected_len = length
            cache.req_to_token_pool.req_to_token[row, :length] = cache.path_device_indices(node)
            slots = cache.token_to_kv_pool_allocator.alloc(len(tokens) - length)
            cache.req_to_token_pool.req_to_token[row, length : len(tokens)] = slots
            pair.append(request)
        self.requests.append((row, pair, length))

    def step_checkpoint(self):
        if not self.requests:
            return
        row, pair, reached = self.random.choice(self.requests)
        end = self.random.randint(reached, len(pair[0].full_untruncated_fill_ids))
        if end - self.bigrams < pair[0].kv.cache_protected_len:
            return
        self.checkpoint(pair, end)

    def checkpoint(self, pair, end):
        for cache, request in zip(self.caches, pair, strict=True):
            cache.checkpoint(request, up_to=end)
        rows = [cache.req_to_token_pool.req_to_token[request.kv.req_pool_idx].tolist() for cache, request in
                zip(self.caches, pair, strict=True)]
        assert rows[0] == rows[1], "the request's row"
        assert pair[0].kv == pair[1].kv, "the request's lengths"
        self.same_path([request.last_node for request in pair])

    def step_finish(self):
        """Ends a request: its output is cached, or it is aborted; then what the tree does not have
        is freed."""
        if not self.requests:
            return
        row, pair, _ = self.requests.pop(self.random.randrange(len(self.requests)))
        length, is_aborted = len(pair[0].full_untruncated_fill_ids), self.random.random() < 0.3
        if not is_aborted:
            for request in pair:
                request.is_finished = True
            self.checkpoint(pair, length)
        for cache, request in zip(self.caches, pair, strict=True):
            slots = cache.req_to_token_pool.req_to_token[row, request.kv.cache_protected_len : length]
            cache.token_to_kv_pool_allocator.free_segment(slots)
            cache.unlock(request.lock)
            cache.on_release(request, checkpointed=not is_aborted)
        self.rows.append(row)

    def step_evict(self):
        self.agree(lambda cache: cache.evict(EvictParams(num_tokens=ALL)).num_tokens_evicted, "evicted tokens")

    def step_values(self):
        self.agree(lambda cache: sorted(cache.all_values_flatten().tolist()), "all cached slots")
        self.agree(lambda cache: cache.total_size()[0], "total size")

    def run(self, steps):
        weights = {"match": 20, "touch": 3, "lock": 8, "unlock": 8, "insert": 20, "begin": 12, "checkpoint": 12,
                   "finish": 10, "evict": 1, "values": 1}
        for _ in range(steps):
            (step,) = self.random.choices(list(weights), weights.values())
            if self.caches[0].token_to_kv_pool_allocator.available_size() < 200 * self.page_size:
                step = "evict"
            getattr(self, "step_" + step)()
            self.check()
        while self.requests:
            self.step_finish()
        while self.locks:
            self.step_unlock()
        self.step_evict()
        self.check()
        assert not self.caches[0].token_to_kv_pool_allocator.used
        self.both(lambda cache: cache.sanity_check())


@pytest.mark.parametrize("bigrams", [False, True], ids=["tokens", "bigrams"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_equal_calls_get_equal_answers(page_size, bigrams):
    Pair(seed=page_size * 2 + bigrams, page_size=page_size, pages=1500, is_eagle=bigrams).run(STEPS)
