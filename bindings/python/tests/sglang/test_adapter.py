"""The SGLang backend by itself: the plugin, the factory, locks, events, ranks in lockstep."""

import subprocess
import sys
import types
import warnings
from importlib.metadata import entry_points

import loader
import pytest

if loader.sources() is None:
    pytest.skip("RADIXKV_SGLANG does not name SGLang's sources", allow_module_level=True)

import world
from sglang.srt.disaggregation.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from sglang.srt.mem_cache import registry
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams

import radixkv.sglang
from radixkv.sglang import _tested

ALL = EvictParams(num_tokens=1 << 40)


def insert(cache, tokens, **how):
    slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
    params = {name: how.pop(name) for name in ("priority", "session_id") if name in how}
    return cache.insert(InsertParams(key=world.key(tokens, **how), value=slots, **params))


def match(cache, tokens, **how):
    return cache.match_prefix(MatchPrefixParams(key=world.key(tokens, **how)))


def context(**changes):
    fields = {"params": world.params(16), "is_hybrid_swa": False, "is_hybrid_ssm": False, "tp_rank": 0,
              "enable_hierarchical_cache": False}
    return types.SimpleNamespace(**{**fields, **changes})


def test_sglang_finds_the_plugin(monkeypatch):
    (plugin,) = [found for found in entry_points(group="sglang.srt.plugins") if found.name == "radixkv"]
    monkeypatch.setattr(registry, "_RADIX_CACHE_REGISTRY", {})
    register = plugin.load()
    register()
    register()
    assert registry.registered_radix_cache_backends() == ["radixkv"]
    assert registry.get_radix_cache_factory("radixkv") is radixkv.sglang.create


def test_the_factory_tells_what_is_lost_once_on_rank_0(capsys, monkeypatch):
    monkeypatch.setattr(radixkv.sglang, "_has_told", False)
    radixkv.sglang.create(context(tp_rank=1))
    assert capsys.readouterr().out == ""
    cache = radixkv.sglang.create(context())
    told = capsys.readouterr().out
    assert "--enable-hierarchical-cache" in told and "external cache linker" in told and "tlru" in told
    radixkv.sglang.create(context())
    assert capsys.readouterr().out == ""
    assert cache.supports_fast_match_prefix() and not cache.supports_mamba() and not cache.supports_swa()


def test_the_factory_warns_once_of_another_version(monkeypatch):
    monkeypatch.setattr(radixkv.sglang, "_has_told", False)
    monkeypatch.setattr(_tested.metadata, "version", lambda name: "0.5.24")
    with pytest.warns(UserWarning, match="tested with SGLang 0.5.23, and this is 0.5.24"):
        radixkv.sglang.create(context())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        radixkv.sglang.create(context())


def test_policies_are_sglangs():
    for policy in ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority", "LRU"):
        assert world.ours(page_size=1, eviction_policy=policy)._cache.policy == policy.lower()
    slru = world.ours(page_size=1, eviction_policy="slru", eviction_policy_config={"protected_threshold": 3})
    assert slru._cache.policy == "slru:3"
    for arguments in ({"eviction_policy": "tlru"}, {"eviction_policy_config": {"threshold": 1}}):
        with pytest.raises(ValueError, match="has no"):
            world.ours(page_size=1, **arguments)


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_a_match_may_be_locked_later(page_size):
    cache = world.ours(page_size=page_size)
    tokens = list(range(page_size * 3))
    stored = insert(cache, tokens)
    node = match(cache, tokens + [7]).last_device_node
    assert (stored.prefix_len, node.length, node) == (0, page_size * 3, stored.last_device_node)
    lock, again = cache.lock(node), cache.lock(node)
    assert (cache.protected_size(), cache.evictable_size(), node.lock_ref) == (page_size * 3, 0, 2)
    assert cache.evict(ALL).num_tokens_evicted == 0
    cache.unlock(lock)
    assert cache.evict(ALL).num_tokens_evicted == 0
    cache.unlock(again)
    with pytest.raises(AssertionError, match="not locked"):
        cache.unlock(again)
    assert cache.evict(EvictParams(num_tokens=1)).num_tokens_evicted == page_size
    with pytest.raises(RuntimeError, match="was evicted after it was matched"):
        cache.lock(node)
    assert match(cache, tokens).device_prefix_len == page_size * 2
    other = insert(cache, [9] * page_size).last_device_node
    with pytest.raises(AssertionError, match="lock receipt"):
        cache.dec_lock_ref(other, cache.inc_lock_ref(match(cache, tokens).last_device_node).to_dec_params())


def test_an_evicted_handle_is_not_the_next_prefix_in_its_page():
    cache = world.ours(page_size=1)
    old = insert(cache, [1]).last_device_node
    cache.evict(ALL)
    new = insert(cache, [3]).last_device_node
    assert new.pages.tolist() == old.pages.tolist() and new is not old and new.id != old.id
    with pytest.raises(RuntimeError, match="evicted"):
        cache.lock(old)
    cache.unlock(cache.lock(new))


def test_priorities_and_recency_choose_the_victim():
    cache = world.ours(page_size=1, eviction_policy="priority")
    insert(cache, [1], priority=5)
    insert(cache, [2], priority=1)
    cache.evict(EvictParams(num_tokens=1))
    assert [match(cache, [token]).device_prefix_len for token in (1, 2)] == [1, 0]
    cache = world.ours(page_size=1)
    insert(cache, [1])
    insert(cache, [2])
    cache.touch_prefix(world.key([1]))
    cache.evict(EvictParams(num_tokens=1))
    assert [match(cache, [token]).device_prefix_len for token in (1, 2)] == [1, 0]


def test_it_grows_when_the_allocator_does_not_say_how_much_there_is():
    cache = world.ours(page_size=1)
    cache.token_to_kv_pool_allocator.size = 10
    cache.reset()
    first = insert(cache, list(range(8))).last_device_node
    tokens = list(range(100, 200))
    second = insert(cache, tokens).last_device_node
    assert cache.evictable_size() == 108
    assert cache.path_device_indices(first).tolist() != cache.path_device_indices(second).tolist()[:8]
    used = sorted(cache.token_to_kv_pool_allocator.used)
    assert sorted(cache.all_values_flatten().tolist()) == used
    assert cache.evict(ALL).num_tokens_evicted == 108 and not cache.token_to_kv_pool_allocator.used


@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_order_of_requests_is_depth_first(policy):
    ours, theirs = world.ours(page_size=1, eviction_policy=policy), world.theirs(page_size=1, eviction_policy=policy)
    prompts = [[1, 2, 3], [9], [1, 2, 4, 5], [1, 2], [9, 8], [1, 2, 3, 6], [7], [1, 2, 3]]
    orders = []
    for cache in (ours, theirs):
        for tokens in prompts:
            insert(cache, tokens)
        orders.append(cache.dfs_weight_order([match(cache, tokens).last_device_node for tokens in prompts]))
    assert orders[0] == orders[1]


def flat(events):
    """The stores and removals, page by page."""
    listed = []
    for event in events:
        if isinstance(event, BlockStored):
            named = (event.cache_salt, event.session_id, event.lora_name)
            listed.append(("stored", event.parent_block_hash, *event.block_hashes, *named, event.token_ids))
        elif isinstance(event, BlockRemoved):
            listed.append(("removed", sorted(event.block_hashes)))
        else:
            assert isinstance(event, AllBlocksCleared)
            listed.append(("cleared",))
    return listed


@pytest.mark.parametrize("bigrams", [False, True], ids=["tokens", "bigrams"])
def test_events_are_those_of_sglang(bigrams):
    told = []
    for make in (world.ours, world.theirs):
        cache = make(page_size=2, enable_kv_cache_events=True, is_eagle=bigrams)
        cache.take_events()
        for tokens, how in [
            ([1, 2, 3, 4, 5], {}),
            ([1, 2, 3, 4, 8, 9, 9], {}),
            ([1, 2, 3, 4, 8, 8], {"session_id": "a"}),
            ([1, 2, 3], {"extra_key": "lora"}),
            ([1, 2, 3, 4, 5, 6, 7], {"salt": "tenant"}),
            ([1, 2, 1 << 40, 4, 5], {}),
        ]:
            insert(cache, tokens, bigrams=bigrams, **how)
        stored = flat(cache.take_events())
        cache.evict(ALL)
        removed = sorted(hash for event in cache.take_events() for hash in event.block_hashes)
        cache.reset()
        told.append((stored, removed, flat(cache.take_events())))
    assert told[0] == told[1] and told[0][1] and told[0][2] == [("cleared",)]


def test_two_processes_in_lockstep_get_equal_answers():
    program = (
        "import sys; sys.path[:0] = [{folder!r}]; import lockstep; print(lockstep.digest(seed=7, steps=1500))"
    ).format(folder=str(loader.Path(__file__).parent))
    ranks = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
    assert said[0] == said[1] and len(said[0]) == 64


@pytest.mark.parametrize("bigrams", [False, True], ids=["tokens", "bigrams"])
@pytest.mark.parametrize("page_size", [1, 2])
def test_tokens_of_64_bits_are_told_apart(page_size, bigrams):
    """Also where only one half of the first, of the last or of a middle token differs."""
    length = 3 * page_size
    wide = [1 << 31, (1 << 31) + 1, 1 << 32, (1 << 32) + 1, (1 << 61) + 5, (1 << 61) + (1 << 31), -1, -(1 << 63), 5, 0]
    cache = world.ours(page_size=page_size, is_eagle=bigrams)
    expected, like_it = {}, world.theirs(page_size=page_size, is_eagle=bigrams)
    for place in (0, page_size, length - 1 + bigrams):
        for token in wide:
            tokens = [7] * (length + bigrams)
            tokens[place] = token
            for one in (cache, like_it):
                found = match(one, tokens).device_prefix_len
                expected.setdefault((place, token), []).append(found)
                slots = one.token_to_kv_pool_allocator.alloc(length)
                one.insert(InsertParams(key=world.key(tokens), value=slots))
                assert match(one, tokens).device_prefix_len == length
    assert all(ours == theirs < length for ours, theirs in expected.values()), expected
    cache.sanity_check()


def test_a_token_of_a_client_is_no_image():
    """A token of 2^31 or more, cached before the first image, is not found for that image."""
    cache = world.ours(page_size=1)
    insert(cache, [1, 1 << 31, 2])
    image = (1 << 61) + 5
    assert match(cache, [1, image, 2]).device_prefix_len == 1
    insert(cache, [1, image, 2])
    assert [match(cache, [1, token, 2]).device_prefix_len for token in (1 << 31, image, (1 << 31) + 1)] == [3, 3, 1]


def test_what_a_client_may_send_does_not_end_the_scheduler():
    cache = world.ours(page_size=1, eviction_policy="priority", enable_kv_cache_events=True)
    names = ["\udc80", "\\udc80", "\ud83d", "", None, "None", "'a'", "a"]
    spaces = [{"extra_key": extra_key, "salt": salt} for extra_key in names for salt in ("", None, "a", "\udc80")]
    for space in spaces:
        found = match(cache, [1, 2], **space).device_prefix_len
        # SGLang takes an empty salt for none.
        assert found == (2 if space["salt"] is None else 0), space
        insert(cache, [1, 2], session_id="\udc80", **space)
    insert(cache, [1, -1, -(1 << 63), 3])
    insert(cache, [1, -1, 3])
    assert [match(cache, [1, token, 3]).device_prefix_len for token in (-1, -2)] == [3, 1]
    for event in cache.take_events():
        if isinstance(event, BlockStored):
            assert [text and text.encode() for text in (event.cache_salt, event.session_id)]
    for token, priority in enumerate([1 << 64, -(1 << 64), (1 << 63) - 1, None], start=10):
        request = world.Request(0, [token, 1, 2], 1, priority=priority)
        slots = cache.token_to_kv_pool_allocator.alloc(3)
        cache.req_to_token_pool.req_to_token[0, :3] = slots
        cache.checkpoint(request, up_to=3)
        cache.unlock(request.lock)
    cache.evict(EvictParams(num_tokens=3))
    assert [match(cache, [token]).device_prefix_len for token in (10, 11, 12, 13)] == [1, 0, 1, 1]
    cache.sanity_check()


def test_a_checkpoint_of_less_than_was_cached_is_refused_as_by_sglang():
    """SGLang frees what lies beyond the checkpoint, which the cache has already."""
    for cache in (world.ours(page_size=2), world.theirs(page_size=2)):
        request = world.Request(0, range(8), 4)
        cache.req_to_token_pool.req_to_token[0, :8] = cache.token_to_kv_pool_allocator.alloc(8)
        cache.checkpoint(request, up_to=8)
        with pytest.raises(AssertionError):
            cache.checkpoint(request, up_to=4)
        assert request.kv.cache_protected_len == 8 and cache.protected_size() == 8


def test_freed_slots_stay_what_they_were_when_pages_are_used_again():
    cache = world.ours(page_size=1)
    kept, allocator = [], cache.token_to_kv_pool_allocator
    free_segment = allocator.free_segment

    def free_later(slots, start_pos=0):
        kept.append((slots, slots.tolist()))
        free_segment(slots)

    allocator.free_segment = free_later
    allocator.alloc(50)
    for begin in (0, 100, 200):
        insert(cache, list(range(begin, begin + 20)))
        cache.evict(ALL)
        allocator.alloc(7)
    assert len(kept) == 3 and all(slots.tolist() == seen for slots, seen in kept)


def test_an_insert_says_which_tokens_it_adopted():
    cache = world.ours(page_size=4)
    insert(cache, range(8))
    slots = cache.token_to_kv_pool_allocator.alloc(16)
    key = world.key(range(16))
    assert cache.insert(InsertParams(key=key, value=slots)).adopted_ranges is None
    longer = world.key(range(24))
    slots = cache.token_to_kv_pool_allocator.alloc(24)
    result = cache.insert(InsertParams(key=longer, value=slots, track_adopted_ranges=True))
    assert result.adopted_ranges == {world.ComponentType.FULL: [(16, 24)]}
    again = cache.token_to_kv_pool_allocator.alloc(24)
    assert cache.insert(InsertParams(key=longer, value=again, track_adopted_ranges=True)).adopted_ranges == {}


def counts(cache):
    inner = cache._cache
    return cache._top, inner.capacity_blocks, inner.block_counts(), cache.token_to_kv_pool_allocator.available_size()


def test_an_insert_with_too_few_slots_is_refused_and_changes_nothing():
    cache = world.ours(page_size=4, pages=8)
    insert(cache, range(4))
    slots = cache.token_to_kv_pool_allocator.alloc(12)
    params = {"key": world.key(range(12)), "prev_prefix_len": 4}
    before = counts(cache)
    for given in (0, 3, 6, 11):
        with pytest.raises(ValueError, match=f"{given} slots given for 12 tokens"):
            cache.insert(InsertParams(value=slots[:given], **params))
        assert counts(cache) == before
    assert cache.insert(InsertParams(value=slots, **params)).prefix_len == 4
    found = match(cache, range(12)).last_device_node
    assert cache.path_device_indices(found).tolist()[4:] == slots.tolist()[4:]
    cache.sanity_check()


@pytest.mark.parametrize("fails", ["_write_slots", "adopt", "insert"])
def test_an_insert_that_fails_later_keeps_its_pages(monkeypatch, fails):
    cache = world.ours(page_size=4, pages=8)
    insert(cache, range(4))

    def fail(*arguments):
        raise {"insert": radixkv.InsertError, "adopt": radixkv.AdoptError}.get(fails, RuntimeError)("no")

    class Failing:
        def __getattr__(self, name):
            return fail if name == fails else getattr(inner, name)

    inner, slots = cache._cache, cache.token_to_kv_pool_allocator.alloc(12)
    before = counts(cache)
    with monkeypatch.context() as changed:
        changed.setattr(cache, *(("_write_slots", fail) if fails == "_write_slots" else ("_cache", Failing())))
        with pytest.raises((radixkv.Error, RuntimeError), match="no"):
            cache.insert(InsertParams(key=world.key(range(12)), value=slots, prev_prefix_len=4))
    assert counts(cache) == before
    assert cache.insert(InsertParams(key=world.key(range(12)), value=slots, prev_prefix_len=4)).prefix_len == 4
    cache.sanity_check()


def test_slots_of_32_bits_are_taken():
    cache = world.ours(page_size=1)
    slots = cache.token_to_kv_pool_allocator.alloc(3)
    cache.insert(InsertParams(key=world.key([1, 2, 3]), value=slots.to(dtype=world.torch.int32)))
    found = match(cache, [1, 2, 3])
    assert cache.path_device_indices(found.last_device_node).tolist() == slots.tolist()


def test_the_line_for_a_lack_of_memory_is_that_of_sglangs_tree():
    ours, theirs = world.ours(page_size=4), world.theirs(page_size=4)
    for cache in (ours, theirs):
        insert(cache, range(8))
    assert ours.available_and_evictable_str() == theirs.available_and_evictable_str()


def test_pages_grow_to_the_limit_where_the_allocator_does_not_say_its_size():
    params = world.params(1, pages=1)
    params.token_to_kv_pool_allocator.size = None
    cache = world.RadixKVCache(params)
    for first, length in ((0, 700_000), (1 << 21, 300_000)):
        tokens = range(first, first + length)
        cache.insert(InsertParams(key=world.key(tokens), value=world.torch.arange(length, dtype=world.torch.int64)))
    assert cache.evictable_size() == 1_000_000
