"""The core verbs: match, peek, reserve, insert, release."""

import numpy as np
import pytest
from conftest import store, tokens

import radixkv


def test_a_match_finds_what_was_inserted(cache):
    prompt = np.arange(10, dtype=np.int32)
    assert cache.match_prefix(prompt).len_tokens == 0
    inserted = store(cache, prompt)
    assert (inserted.len_tokens, inserted.dropped_tokens) == (8, 2)
    hit = cache.match_prefix(prompt)
    assert (hit.len_tokens, hit.len_blocks, cache.peek(prompt)) == (8, 2, 8)
    assert hit.blocks().tolist() == inserted.blocks().tolist()
    assert cache.peek(tokens(0, 1, 2, 3, 9, 9, 9, 9)) == 4


def test_ids_and_slots_come_as_new_arrays_or_into_ours(cache):
    prompt = np.arange(8, dtype=np.int32)
    hit = store(cache, prompt) and cache.match_prefix(prompt)
    ids = hit.blocks()
    assert ids.dtype == np.int32 and ids.shape == (2,)
    slots = (ids[:, None] * 4 + np.arange(4)).reshape(-1)
    assert hit.slots().dtype == np.int64 and hit.slots().tolist() == slots.tolist()
    for dtype in (np.int32, np.uint32, np.int64, np.uint64):
        out = np.full(3, 77, dtype)
        assert hit.blocks_into(out) == 2
        assert out.tolist() == [*ids.tolist(), 77]
    out = np.full(9, 77, np.int64)
    assert hit.slots_into(out) == 8
    assert out.tolist() == [*slots.tolist(), 77]
    buffer = memoryview(bytearray(64)).cast("q")
    assert hit.slots_into(buffer) == 8 and buffer.tolist() == slots.tolist()


def test_a_lease_protects_its_blocks_until_it_is_released(cache):
    prompt = np.arange(64 * 4, dtype=np.int32)
    lease = store(cache, prompt)
    with pytest.raises(radixkv.ExhaustedError) as refused:
        cache.reserve(1)
    assert (refused.value.requested, refused.value.available) == (1, 0)
    again = lease.clone()
    lease.release()
    lease.release()
    assert lease.released and not again.released
    assert cache.evict(64) == 0
    with again:
        pass
    assert again.released and cache.evict(64) == 64
    assert len(cache.reserve(64)) == 64


def test_reservations_are_given_back(cache):
    with cache.reserve(60) as blocks:
        assert (len(blocks), cache.free_blocks) == (60, 4)
        rest = blocks.split(50)
        assert (len(rest), len(blocks)) == (50, 10)
        blocks.append(rest)
        assert len(blocks) == 60 and rest.released is True
        del rest
        assert sorted(blocks.blocks().tolist()) == sorted(set(blocks.blocks().tolist()))
        with pytest.raises(radixkv.ExhaustedError):
            cache.reserve(5)
    assert blocks.released and cache.free_blocks == 64
    with pytest.raises(radixkv.TooLargeError) as refused:
        cache.reserve(65)
    assert (refused.value.requested, refused.value.capacity) == (65, 64)


def test_an_insert_that_is_refused_changes_nothing(cache):
    prompt = np.arange(8, dtype=np.int32)
    hit, blocks = cache.match_prefix(prompt), cache.reserve(1)
    with pytest.raises(radixkv.InsertError) as refused:
        cache.insert(hit, prompt, blocks)
    assert (refused.value.kind, refused.value.needed, refused.value.given) == ("block_count", 2, 1)
    assert len(blocks) == 1 and not hit.released
    blocks.append(cache.reserve(1))
    assert cache.insert(hit, prompt, blocks).len_tokens == 8
    assert blocks.released


def test_of_equal_inserts_the_first_stays(cache):
    prompt = np.arange(8, dtype=np.int32)
    hit = cache.match_prefix(prompt)
    first = cache.insert(hit, prompt, cache.reserve(2))
    second = cache.insert(hit, prompt, cache.reserve(2))
    assert second.blocks().tolist() == first.blocks().tolist()
    assert cache.stats()["reserved_blocks"] == 2
    duplicates = second.take_duplicates()
    assert len(duplicates) == 2 and not set(duplicates.blocks()) & set(first.blocks())
    with pytest.raises(radixkv.ReleasedError):
        second.take_duplicates()
    duplicates.release()
    third = cache.insert(hit, prompt, cache.reserve(2))
    third.release()
    assert cache.stats()["reserved_blocks"] == 0


def test_acquire_matches_and_reserves(cache):
    prompt = np.arange(10, dtype=np.int32)
    hit, blocks = cache.acquire(prompt[:-1], room=1)
    assert (hit.len_tokens, len(blocks)) == (0, 3)
    inserted = cache.insert(hit, prompt, blocks.split(2))
    hit, blocks = cache.acquire(prompt[:-1], 1)
    assert (hit.len_tokens, len(blocks)) == (8, 1)
    assert hit.blocks().tolist() == inserted.blocks().tolist()
    hit, blocks = cache.acquire(prompt[:0], 1)
    assert (hit.len_tokens, len(blocks)) == (0, 1)
    with pytest.raises(ValueError, match="nothing to acquire"):
        cache.acquire(prompt[:0])


def test_namespaces_share_nothing(cache):
    prompt = np.arange(8, dtype=np.int32)
    one, two = cache.namespace("a"), cache.namespace("a", "b")
    store(cache, prompt, one)
    assert [cache.peek(prompt, space) for space in (one, two, None)] == [8, 0, 0]
    assert one == cache.namespace("a") and one != two and hash(one) == hash(cache.namespace("a"))
    assert (two.parts, two.bigrams) == (("a", "b"), False)
    assert cache.namespace() == cache.default_namespace and cache.default_namespace.parts == ()
    one.clear()
    assert cache.peek(prompt, one) == 0


def test_bigrams_need_the_next_token(cache):
    pairs = cache.namespace("draft", bigrams=True)
    prompt = np.arange(9, dtype=np.int32)
    hit, blocks = cache.acquire(prompt, namespace=pairs)
    inserted = cache.insert(hit, prompt, blocks)
    assert inserted.len_tokens == 8 and inserted.namespace == ("draft",)
    assert cache.peek(prompt[:8], pairs) == 4
    with pytest.raises(radixkv.SequenceError) as refused:
        cache.resume(inserted, prompt[:8])
    assert (refused.value.given, refused.value.needed) == (8, 9)


def test_a_build_error_carries_its_numbers():
    for arguments, carried in [
        ((0, 8), {"kind": "zero_block_size"}),
        ((16, 0), {"kind": "zero_capacity"}),
        ((1 << 40, 8), {"kind": "block_size_too_large", "block_size": 1 << 40}),
        ((16, 1 << 31), {"kind": "capacity_too_large", "capacity": 1 << 31}),
    ]:
        with pytest.raises(radixkv.BuildError) as refused:
            radixkv.PrefixCache(*arguments)
        assert vars(refused.value) == carried
    with pytest.raises(radixkv.BuildError) as refused:
        radixkv.PrefixCache(16, 8, eviction=(4, 9))
    assert vars(refused.value) == {"kind": "watermarks", "low": 4, "high": 9, "capacity": 8}
    for shards in (0, 257):
        with pytest.raises(radixkv.BuildError) as refused:
            radixkv.PrefixCache(16, 8, shards=shards)
        assert vars(refused.value) == {"kind": "shards", "shards": shards, "most": 256}
    for arguments in ({"policy": "best"}, {"clock": "sundial"}, {"eviction": "never"}, {"time_to_idle": -1}):
        with pytest.raises(ValueError):
            radixkv.PrefixCache(16, 8, **arguments)


@pytest.mark.parametrize("number, error", [(-1, ValueError), (1 << 70, ValueError), (1.5, TypeError), ("2", TypeError)])
def test_numbers_out_of_range_are_refused(cache, number, error):
    prompt = np.arange(8, dtype=np.int32)
    blocks, space = cache.reserve(1), cache.namespace("a")
    before = cache.stats()
    for call in [
        lambda: radixkv.PrefixCache(number, 8),
        lambda: radixkv.PrefixCache(4, number),
        lambda: radixkv.PrefixCache(4, 8, growable_to=number),
        lambda: radixkv.PrefixCache(4, 8, shards=number),
        lambda: cache.reserve(number),
        lambda: cache.reserve_async(number),
        lambda: cache.acquire(prompt, number),
        lambda: cache.evict(number),
        lambda: cache.evict_into(number),
        lambda: cache.grow(number),
        lambda: cache.subscribe(number),
        lambda: cache.set_watermarks(number, 8),
        lambda: space.set_quota(pinned_blocks=number),
        lambda: space.evict(number),
        lambda: blocks.split(number),
        lambda: blocks.is_shared(number),
        lambda: cache.prioritize(cache.match_prefix(prompt), number) if number != -1 else cache.reserve(-1),
        lambda: radixkv.replay("trace", threads=number),
    ]:
        with pytest.raises(error):
            call()
    after = cache.stats()
    assert all(after[name] == before[name] for name in ("free_blocks", "reserved_blocks", "reservations", "waits"))
