"""A program that the type checkers read: every line that is right passes, and each `expect` is
refused."""

from collections import deque
from typing import assert_type

import numpy as np
import numpy.typing as npt

import radixkv


def move(direction: str, copies: list[radixkv.BlockCopy]) -> None:
    for copy in copies:
        assert_type(copy.tokens, range)
        assert_type(copy.bytes, memoryview | None)


async def use(cache: radixkv.PrefixCache, tokens: npt.NDArray[np.int32]) -> None:
    space = cache.namespace("a", "b", bigrams=True)
    with cache.match_prefix(tokens, space, counted=False) as hit:
        assert_type(hit, radixkv.PrefixMatch)
        assert_type(hit.blocks(), npt.NDArray[np.int32])
    blocks = await cache.reserve_async(4, paid_by=space)
    assert_type(blocks, radixkv.Reservation)
    inserted = cache.insert(hit.clone(), [1, 2, 3, 4], blocks)
    assert_type(inserted.dropped_tokens, int)
    for batch in cache.subscribe():
        for event in batch.events:
            if isinstance(event, radixkv.Stored):
                assert_type(event.blocks, npt.NDArray[np.int32])
    with radixkv.DigestRegion("name", 4096, 1 << 30) as region, radixkv.DigestStore(
        region, "a", key_bytes=32, block_bytes=4096, model="m", dtype="bf16", hash_scheme="sha256", rank=(0, 2)
    ) as store:
        assert_type(store.load([b"key"], np.zeros(4096, dtype=np.uint8), [0]), int)
        for _, outcomes in store.poll(1.5):
            assert_type(outcomes, bytes)
        assert_type(store.reserve(b"keys").addresses, npt.NDArray[np.uint64])
        store.load(["key"], bytearray(4096))  # type: ignore[list-item]
    host = radixkv.HostTier(16, capacity_bytes=1 << 30, block_bytes=4096, tiers=[{"type": "files", "folder": "kv"}])
    tiers = radixkv.TieredCache(cache, host, np.zeros((4, 4096), dtype=np.uint8), mode="shared", remote_wait="all")
    with tiers.acquire(tokens, namespace=space, timeout=1) as start:
        assert_type(start.lease, radixkv.PrefixMatch)
        assert_type(tiers.insert(start.lease, tokens, start.blocks, space), radixkv.Inserted)
    assert_type(await tiers.acquire_async(tokens), radixkv.TieredStart)
    radixkv.TieredCache(cache, host, move, views=False)
    radixkv.TieredCache(cache, host, 7)  # type: ignore[arg-type]
    radixkv.TieredCache(cache, host, None, mode="both")  # type: ignore[arg-type]
    cache.match_prefix("text")  # type: ignore[arg-type]
    cache.peek(range(8))
    cache.peek(deque([1]))
    cache.peek({1, 2})  # type: ignore[arg-type]
    cache.reserve(1.5)  # type: ignore[arg-type]
    cache.insert(hit, tokens, hit)  # type: ignore[arg-type]
