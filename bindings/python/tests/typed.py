"""A program that the type checkers read: every line that is right passes, and each `expect` is
refused."""

from typing import assert_type

import numpy as np
import numpy.typing as npt

import radixkv


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
    cache.match_prefix("text")  # type: ignore[arg-type]
    cache.reserve(1.5)  # type: ignore[arg-type]
    cache.insert(hit, tokens, hit)  # type: ignore[arg-type]
