"""One rank of several: a seeded list of calls, and a digest of everything that a scheduler sees of
their answers."""

import hashlib
import random

import world
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams


def digest(seed, steps):
    draw, cache, seen = random.Random(seed), world.ours(page_size=4, pages=200), hashlib.sha256()
    locks, prompts = [], [[]]
    for _ in range(steps):
        tokens = [*draw.choice(prompts)[: draw.randint(0, 60)], *(draw.randint(0, 2) for _ in range(draw.randint(1, 20)))]
        prompts = [*prompts[-20:], tokens]
        key = world.key(tokens, draw.choice([None, "lora"]))
        answer = []
        if draw.random() < 0.5:
            hit = cache.match_prefix(MatchPrefixParams(key=key))
            node = hit.last_device_node
            answer = [hit.device_prefix_len, node.id, node.pages.tolist(), cache.path_device_indices(node).tolist()]
            if draw.random() < 0.3:
                locks.append(cache.lock(node))
        else:
            length = len(tokens) // 4 * 4
            if cache.token_to_kv_pool_allocator.available_size() < length:
                answer.append(cache.evict(EvictParams(num_tokens=length)).num_tokens_evicted)
            if cache.token_to_kv_pool_allocator.available_size() >= length:
                slots = cache.token_to_kv_pool_allocator.alloc(length)
                stored = cache.insert(InsertParams(key=key, value=slots))
                answer += [stored.prefix_len, stored.last_device_node.id, stored.last_device_node.pages.tolist()]
        while len(locks) > 3:
            cache.unlock(locks.pop(draw.randrange(len(locks))))
        answer += [cache.evictable_size(), cache.protected_size()]
        seen.update(repr(answer).encode())
    return seen.hexdigest()
