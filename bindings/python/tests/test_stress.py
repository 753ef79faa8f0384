"""Four threads and random verbs: every block of every hit holds what its tokens say.
`RADIXKV_STRESS_SECONDS` (2) is how long."""

import asyncio
import itertools
import os
import random
import threading
import time

import numpy as np
import pytest

import radixkv

SECONDS = float(os.environ.get("RADIXKV_STRESS_SECONDS", "2"))
BLOCK, BLOCKS, THREADS = 4, 96, 4


def stamp(tokens, blocks):
    return tokens[: blocks * BLOCK].astype(np.uint32).tobytes()


class Memory:
    """The engine's blocks: each is stamped with the tokens of its prefix."""

    def __init__(self):
        self.stamps = [None] * BLOCKS

    def fill(self, blocks, tokens, first):
        for at, block in enumerate(blocks.tolist()):
            self.stamps[block] = stamp(tokens, first + at + 1)

    def check(self, blocks, tokens, first=0):
        for at, block in enumerate(blocks.tolist()):
            assert self.stamps[block] == stamp(tokens, first + at + 1), f"block {block} holds other tokens"


class Worker:
    def __init__(self, cache, memory, seed):
        self.cache, self.memory, self.draw = cache, memory, random.Random(seed)
        self.held = []

    def tokens(self):
        draw = self.draw
        tokens = [draw.randint(0, 1) for _ in range(draw.randint(1, 40))]
        return np.array(tokens, dtype=draw.choice([np.int32, np.uint32, np.int64]))

    def serve(self, **how):
        tokens = self.tokens()
        try:
            hit, blocks = self.cache.acquire(tokens, **how)
        except radixkv.ReserveError:
            return self.drop_all()
        self.fill(tokens, hit, blocks)

    def fill(self, tokens, hit, blocks):
        self.memory.check(hit.blocks(), tokens)
        whole = blocks.split(len(tokens) // BLOCK - hit.len_blocks)
        self.memory.fill(whole.blocks(), tokens, hit.len_blocks)
        with self.cache.insert(hit, tokens, whole) as inserted:
            self.memory.check(inserted.blocks(), tokens, hit.len_blocks)
            self.held.append((inserted.clone(), tokens))

    def wait(self):
        self.drop_all()
        self.serve(timeout=5)

    def wait_async(self):
        self.drop_all()
        tokens = self.tokens()

        async def main():
            async with asyncio.timeout(60):
                self.fill(tokens, *await self.cache.acquire_async(tokens))

        asyncio.run(main())

    def look(self):
        tokens = self.tokens()
        with self.cache.match_prefix(tokens, counted=self.draw.random() < 0.5) as hit:
            assert hit.len_tokens >= 0
            self.memory.check(hit.blocks(), tokens)
            with self.cache.match_partial(hit, tokens) or self.cache.match_prefix(tokens) as partial:
                assert partial.len_tokens >= 0
            weak = hit.downgrade()
        lease = self.cache.upgrade(weak)
        assert lease is None or lease.len_tokens == weak.len_tokens

    def go_on(self):
        if self.held:
            lease, tokens = self.held.pop()
            longer = np.concatenate([tokens, self.tokens().astype(tokens.dtype)])
            with self.cache.resume(lease, longer) as hit:
                self.memory.check(hit.blocks(), longer)
            assert lease.released

    def fork(self):
        try:
            one, fresh = self.cache.reserve(2), self.cache.reserve(1)
        except radixkv.ReserveError:
            return self.drop_all()
        with one.fork() as two, two.make_unique(self.draw.randint(0, 1), fresh) as copy:
            assert copy.source != copy.destination

    def control(self):
        if not self.held:
            return
        lease, _ = self.draw.choice(self.held)
        self.draw.choice([
            lambda: self.cache.retain(lease, 0.001),
            lambda: self.cache.release_retained(lease),
            lambda: self.cache.prioritize(lease, self.draw.randint(0, 99), ttl=0.01),
            lambda: self.cache.renew(lease),
            lambda: self.cache.demote(lease),
            lambda: self.cache.count_use(lease),
        ])()

    def evict(self):
        self.cache.evict(self.draw.choice([1, 3, 200]))

    def keep_evicted(self):
        for evicted in self.cache.evict_into(2):
            self.memory.check(evicted.blocks.blocks(), evicted.tokens, evicted.start // BLOCK)
            evicted.blocks.release()

    def observe(self):
        self.draw.choice([self.cache.stats, self.cache.settle, self.cache.snapshot, self.cache.run_once,
                          self.cache.default_namespace.walk, lambda: list(self.events)])()

    def change(self):
        self.cache.set_policy(self.draw.choice(["lru", "lfu", "priority", "slru"]))

    def drop_some(self):
        self.draw.shuffle(self.held)
        del self.held[: self.draw.randint(0, len(self.held))]

    def drop_all(self):
        self.held.clear()

    def run(self, until):
        verbs = {self.serve: 30, self.look: 20, self.go_on: 10, self.fork: 5, self.control: 10, self.evict: 3,
                 self.keep_evicted: 2, self.observe: 3, self.change: 1, self.drop_some: 10, self.wait: 2, self.wait_async: 1}
        self.events = self.cache.subscribe(8)
        for number in itertools.count():
            # Enough of them for hits, however slow the thread is.
            if number >= 100 and time.monotonic() >= until:
                break
            (verb,) = self.draw.choices(list(verbs), verbs.values())
            verb()
            if len(self.held) > 6:
                self.drop_some()
        self.drop_all()


@pytest.mark.parametrize("eviction", ["inline", "background"])
def test_every_hit_holds_its_tokens(eviction):
    cache, memory, failures = radixkv.PrefixCache(BLOCK, BLOCKS, eviction=eviction), Memory(), []
    until = time.monotonic() + SECONDS / 2

    def work(seed):
        try:
            Worker(cache, memory, seed).run(until)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 120)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
    time.sleep(0.01)
    cache.settle()
    cache.validate()
    latest = time.monotonic() + 60
    # A background evictor may free blocks while the numbers are read.
    while (stats := cache.stats())["reserved_blocks"] and time.monotonic() < latest:
        time.sleep(0.001)
    assert stats["reserved_blocks"] == stats["protected_blocks"] == stats["waiting_requests"] == 0
    cache.evict(BLOCKS)
    assert cache.free_blocks == BLOCKS and stats["hit_tokens"] > 0
