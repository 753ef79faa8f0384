"""The rest of the surface: each verb does what the core's does."""

import asyncio
import inspect
import threading

import numpy as np
import pytest
from conftest import store, tokens

import radixkv


def prompt(begin, blocks=1):
    return np.arange(begin, begin + 4 * blocks, dtype=np.int32)


def test_a_partial_hit_is_a_block_to_copy_from(cache):
    inserted = store(cache, prompt(0, 2))
    ours = tokens(0, 1, 2, 3, 4, 5, 9, 9)
    with cache.match_prefix(ours) as hit, cache.match_partial(hit, ours) as partial:
        assert (hit.len_tokens, partial.len_tokens, partial.block) == (4, 2, inserted.blocks()[1])
        assert cache.match_partial(hit, ours, 3) is None
        inserted.release()
        assert cache.evict(64) == 0
    assert cache.stats()["partial_tokens"] == 2 and cache.evict(64) == 2


def test_resume_goes_on_from_a_lease(cache):
    store(cache, prompt(0, 4)).release()
    lease = cache.match_prefix(prompt(0, 2))
    hit = cache.resume(lease, prompt(0, 4))
    assert lease.released and hit.len_tokens == 16 and hit.len_blocks == 4
    assert hit.blocks().tolist() == cache.match_prefix(prompt(0, 4)).blocks().tolist()
    assert cache.stats()["resumed_tokens"] == 8


def test_forks_share_blocks_until_they_write(cache):
    one, fresh = cache.reserve(2), cache.reserve(2)
    two = one.fork()
    assert one.is_shared(1) and cache.free_blocks == 60
    with two.make_unique(1, fresh) as copy:
        assert (copy.source, copy.destination) == (one.blocks()[1], two.blocks()[1])
    assert len(fresh) == 1 and not one.is_shared(1) and one.is_shared(0)
    assert two.make_unique(1, fresh) is None
    one.release()
    assert not two.is_shared(0)


def test_a_weak_lease_protects_nothing_and_knows_when_it_is_gone(cache):
    weak = store(cache, prompt(0, 2)).downgrade()
    assert weak.len_tokens == 8
    lease = cache.upgrade(weak)
    assert lease.len_tokens == 8 and cache.evict(64) == 0
    lease.release()
    assert cache.evict(1) == 1 and cache.upgrade(weak) is None


def test_recency_priority_retention_and_demotion_choose_the_victim():
    for policy, favour in {
        "lru": lambda cache, lease: cache.renew(lease),
        "lfu": lambda cache, lease: cache.count_use(lease),
        "priority": lambda cache, lease: cache.prioritize(lease, 80, ttl=100),
        "fifo": lambda cache, lease: cache.retain(lease, 100),
    }.items():
        cache = radixkv.PrefixCache(4, 8, policy=policy, clock="logical")
        for now, begin in enumerate((0, 100)):
            cache.set_time(now + 1)
            store(cache, prompt(begin)).release()
        cache.set_time(3)
        with cache.match_prefix(prompt(0), counted=False) as lease:
            favour(cache, lease)
        assert cache.evict(1) == 1
        assert (cache.peek(prompt(0)), cache.peek(prompt(100))) == (4, 0), policy
    cache = radixkv.PrefixCache(4, 8)
    first, second = store(cache, prompt(0)), store(cache, prompt(100))
    cache.demote(second)
    first.release()
    second.release()
    cache.evict(1)
    assert (cache.peek(prompt(0)), cache.peek(prompt(100))) == (4, 0)


def test_a_retention_ends_when_it_says(cache):
    cache = radixkv.PrefixCache(4, 8, clock="logical")
    with store(cache, prompt(0)) as lease:
        cache.retain(lease, 10)
        with pytest.raises(TypeError, match="duration is 1.5"):
            cache.retain(lease, 1.5)
        with pytest.raises(ValueError, match="duration is -1"):
            cache.retain(lease, -1)
    assert cache.evict(1) == 0
    cache.set_time(10)
    assert cache.evict(1) == 1
    with pytest.raises(radixkv.RetainError) as refused:
        lease = store(cache, prompt(0))
        cache.clear()
        cache.retain(lease, 1)
    assert refused.value.kind == "namespace_dropped"
    wall = radixkv.PrefixCache(4, 8)
    with store(wall, prompt(0)) as lease:
        wall.retain(lease, 600)
    assert wall.evict(1) == 0
    with wall.match_prefix(prompt(0)) as lease:
        wall.release_retained(lease)
    assert wall.evict(1) == 1
    with pytest.raises(ValueError, match="logical"):
        wall.set_time(1)


def test_quotas_limit_a_namespace(cache):
    tenant = cache.namespace("tenant")
    assert tenant.quota == {"cached_blocks": None, "pinned_blocks": None, "time_to_idle": None}
    tenant.set_quota(cached_blocks=2, pinned_blocks=3, time_to_idle=600.5)
    assert tenant.quota == {"cached_blocks": 2, "pinned_blocks": 3, "time_to_idle": 600.5}
    with pytest.raises(radixkv.OverQuotaError) as refused:
        cache.acquire(prompt(0, 4), namespace=tenant)
    assert (refused.value.requested, refused.value.pinned, refused.value.limit) == (4, 0, 3)
    for begin in (0, 100):
        hit, blocks = cache.acquire(prompt(begin, 2), namespace=tenant)
        assert tenant.stats()["reserved_blocks"] == 2
        cache.insert(hit, prompt(begin, 2), blocks).release()
        hit.release()
    cache.settle()
    assert tenant.stats()["cached_blocks"] == 2 and cache.stats()["evicted_for_quota_blocks"] == 2
    assert tenant.stats()["lookups"]["lookups"] == 2
    blocks = cache.reserve(4)
    with pytest.raises(radixkv.InsertError) as refused:
        cache.insert(cache.match_prefix(prompt(500, 4), tenant), prompt(500, 4), blocks)
    assert (refused.value.requested, refused.value.limit, len(blocks)) == (4, 3, 4)
    assert refused.value.kind == "over_quota"


def test_namespaces_are_emptied_and_removed(cache):
    old = cache.namespace("model-v1")
    lease = store(cache, prompt(0), old)
    with pytest.raises(radixkv.NamespaceInUseError) as refused:
        old.clear_if_unused()
    assert (refused.value.leased, refused.value.reserved) == (1, 0)
    lease.release()
    assert old.evict(5) == 1
    store(cache, prompt(0), old).release()
    old.remove()
    assert old != cache.namespace("model-v1") and cache.match_prefix(prompt(0), old).len_tokens == 0
    cache.clear()
    assert cache.free_blocks == 64


def test_threads_evict_from_shards_of_their_own():
    cache = radixkv.PrefixCache(4, 32, shards=4)

    def work(thread):
        for number in range(200):
            tokens = np.array([thread, number] * 4, dtype=np.int32)
            hit = cache.match_prefix(tokens)
            cache.insert(hit, tokens, cache.reserve(2)).release()
            hit.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.settle()
    cache.validate()
    stats = cache.stats()
    assert stats["evicted_blocks"] == 4 * 200 * 2 - stats["evictable_blocks"]


def test_an_engine_lends_its_own_blocks():
    cache = radixkv.PrefixCache(4, 4, external=True, growable_to=8)
    with pytest.raises(radixkv.ExternalPoolError):
        cache.reserve(1)
    for blocks, kind, block in [([4], "out_of_range", 4), ([1, 1], "held", 1)]:
        with pytest.raises(radixkv.AdoptError) as refused:
            cache.adopt(np.array(blocks))
        assert (refused.value.kind, refused.value.block) == (kind, block)
    with pytest.raises(ValueError, match=r"blocks\[0\] is -1"):
        cache.adopt(np.array([-1]))
    assert cache.grow(2) == range(4, 6)
    with pytest.raises(radixkv.GrowError) as refused:
        cache.grow(3)
    assert vars(refused.value) == {"requested": 3, "capacity": 6, "limit": 8}
    hit = cache.match_prefix(prompt(0, 2))
    first = cache.insert(hit, prompt(0, 2), cache.adopt(np.array([5, 3], dtype=np.int32)))
    assert first.blocks().tolist() == [5, 3]
    second = cache.insert(hit, prompt(0, 2), cache.adopt([0, 1]))
    assert second.take_duplicates().take_blocks().tolist() == [0, 1]
    first.release()
    second.release()
    hit.release()
    assert cache.evict(1) == 1
    assert cache.take_evicted().tolist() == [3] and cache.take_evicted().tolist() == []
    inner = radixkv.PrefixCache(4, 4)
    for refuse in (lambda: inner.adopt([1]), lambda: inner.take_evicted()):
        with pytest.raises(radixkv.ExternalPoolError):
            refuse()
    with pytest.raises(ValueError, match="owns its blocks"):
        inner.reserve(1).take_blocks()


def test_evicted_blocks_stay_until_they_are_copied(cache):
    inserted = store(cache, prompt(0, 3), cache.namespace("a"))
    ids = inserted.blocks().tolist()
    inserted.release()
    (evicted,) = cache.evict_into(2)
    assert (evicted.namespace, evicted.start, evicted.reason) == (("a",), 4, "capacity")
    assert evicted.tokens.tolist() == list(range(12)) and evicted.blocks.blocks().tolist() == ids[1:]
    assert cache.free_blocks == 61
    evicted.blocks.release()
    assert cache.free_blocks == 63


def test_invalidated_blocks_are_not_found(cache):
    lease = store(cache, prompt(0, 3))
    assert cache.invalidate_blocks(lease.blocks()[1:2]) == 2
    assert lease.is_invalidated() and cache.peek(prompt(0, 3)) == 4
    with pytest.raises(radixkv.InsertError) as refused:
        cache.insert(lease, prompt(0, 4), cache.reserve(1))
    assert refused.value.kind == "invalidated"


def test_settings_change_while_it_runs(cache):
    assert (cache.policy, cache.watermarks) == ("lru", None)
    cache.set_policy("slru:3")
    cache.settle()
    assert cache.policy == "slru:3"
    with pytest.raises(radixkv.SettingError) as refused:
        cache.set_watermarks(1, 2)
    assert refused.value.kind == "not_background"
    with pytest.raises(ValueError, match="unknown policy|best"):
        cache.set_policy("best")
    background = radixkv.PrefixCache(4, 64, eviction=(2, 4))
    assert background.watermarks == (2, 4)
    background.set_watermarks(4, 8)
    with pytest.raises(radixkv.SettingError) as refused:
        background.set_watermarks(9, 8)
    assert (refused.value.kind, refused.value.low, refused.value.high) == ("watermarks", 9, 8)
    idle = radixkv.PrefixCache(4, 8, clock="logical", time_to_idle=10)
    store(idle, prompt(0)).release()
    idle.set_time(10)
    idle.settle()
    assert idle.peek(prompt(0)) == 0 and idle.stats()["aged_blocks"] == 1
    idle.set_time_to_idle(None)
    while idle.run_once():
        pass


def test_a_background_evictor_keeps_blocks_free():
    cache = radixkv.PrefixCache(4, 64, eviction=(8, 16))
    for begin in range(0, 64 * 40, 40):
        store(cache, prompt(begin)).release()

    async def main():
        for _ in range(6000):
            if cache.free_blocks >= 8:
                return True
            await asyncio.sleep(0.01)

    assert asyncio.run(main())


def test_a_walk_lists_what_is_cached(cache):
    space = cache.namespace("a")
    first = store(cache, prompt(0, 2), space)
    second = store(cache, np.concatenate([prompt(0), prompt(100)]), space)
    runs = space.walk()
    assert [(run.id, run.parent, run.start, len(run.tokens)) for run in runs] == [(0, None, 0, 8), (1, 0, 4, 4)]
    assert runs[0].tokens.dtype == np.uint32 and runs[0].blocks.tolist() == first.blocks().tolist()
    assert runs[1].tokens.tolist() == prompt(100).tolist() and runs[1].blocks.tolist() == second.blocks().tolist()
    assert cache.namespace("b").walk() == []


def test_events_come_in_batches(cache):
    with cache.subscribe(8) as events:
        assert list(events) == [] and events.next_number == cache.snapshot().number
        inserted = store(cache, prompt(0, 2), cache.namespace("a"))
        cache.settle()
        (stored,) = [event for batch in events for event in batch.events]
        assert isinstance(stored, radixkv.Stored)
        assert (stored.namespace, stored.parent, stored.start) == (("a",), None, 0)
        assert stored.tokens.tolist() == list(range(8)) and stored.blocks.tolist() == inserted.blocks().tolist()
        (seen,) = cache.snapshot().events
        assert seen.tokens.tolist() == list(range(8))
        inserted.release()
        cache.evict(1)
        (removed,) = [event for batch in events for event in batch.events]
        assert isinstance(removed, radixkv.Removed)
        assert (removed.start, removed.reason, removed.blocks.tolist()) == (4, "capacity", stored.blocks[1:].tolist())
        cache.namespace("a").clear()
        assert [type(event) for batch in events for event in batch.events] == [radixkv.Cleared]
        assert (events.lost_batches, events.has_ended) == (0, False)


def test_statistics_add_up(cache):
    held = store(cache, prompt(0, 3)), cache.reserve(2)
    stats = cache.stats()
    assert (stats["free_blocks"], stats["reserved_blocks"], stats["protected_blocks"]) == (59, 2, 3)
    assert cache.block_counts() == (59, 2, 0, 3) and stats["is_settled"] is True
    assert stats["capacity_blocks"] == 64 and stats["inserts"] == 1
    del held
    assert cache.block_counts() == (61, 0, 3, 0)
    cache.match_prefix(prompt(0, 3), cache.namespace("a"))
    by_name = dict(cache.lookups_by_namespace())
    assert by_name[()]["lookups"] == 1 and by_name[("a",)]["missed_elsewhere_tokens"] == 12 and None in by_name


def test_shared_spans_count_leases(cache):
    leases = [store(cache, np.concatenate([prompt(0), prompt(begin)])) for begin in (100, 200)]
    assert cache.shared_spans(leases) == [[(1, 2), (1, 1)]] * 2
    assert cache.shared_spans([leases[0], leases[0]]) == [[(2, 2)]] * 2


def test_the_docstring_of_a_cache_names_every_argument():
    doc = radixkv.PrefixCache.__doc__
    shown = doc[doc.index("PrefixCache(") : doc.index(")\n", doc.index("PrefixCache("))]
    assert all(name in shown for name in inspect.signature(radixkv.PrefixCache).parameters)
    assert "shards (`shards`, `most`)" in radixkv.BuildError.__doc__
