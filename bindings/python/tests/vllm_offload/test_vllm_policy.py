"""`RadixKVCachePolicy`: what it evicts first, and that it agrees with itself over random calls."""

import random

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import vllm_engine
from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory

import radixkv.vllm

TOKENS = vllm_engine.TOKENS


class Engine:
    """vLLM's manager with the policy, called as for whole requests."""

    def __init__(self, chunks):
        self.manager = CPUOffloadingManager(chunks, "RadixKVCachePolicy", "radixkv.vllm")
        self.policy, self.number = self.manager._policy, 0

    def begin(self, keys):
        self.number += 1
        context = ReqContext(req_id=str(self.number))
        for at, key in enumerate(keys, 1):
            context.set_offload_key_position(key, at * TOKENS)
        self.manager.on_new_request(context)
        return context

    def run(self, keys):
        """The number of chunks of the prefix that were there."""
        context = self.begin(keys)
        hits = next((at for at, key in enumerate(keys) if self.policy.get(key) is None), len(keys))
        if hits:
            self.manager.prepare_load(keys[:hits], context)
            self.manager.complete_load(keys[:hits], context)
        output = self.manager.prepare_store(keys[hits:], context)
        if output is not None:
            self.manager.complete_store(output.keys_to_store, context)
        self.manager.on_request_finished(context)
        return hits


def keys(name, count):
    return [f"{name}{at:4}".encode().ljust(36, b".") for at in range(count)]


def evicted(engine, count):
    found = engine.policy.evict(count, set())
    return [key for key, _ in found]


@pytest.fixture(autouse=True)
def _hashing():
    vllm_engine.start_hashing()


def test_vllm_finds_the_policy():
    found = CachePolicyFactory.get_cache_policy_cls("RadixKVCachePolicy", "radixkv.vllm")
    assert found is radixkv.vllm.RadixKVCachePolicy and found.__abstractmethods__ == frozenset()


def test_the_oldest_request_goes_first_and_its_end_before_its_beginning():
    engine = Engine(9)
    one, two = keys("one", 4), keys("two", 4)
    engine.run(one)
    engine.run(two)
    assert evicted(engine, 6) == [*reversed(one), two[3], two[2]]


def test_a_request_that_has_not_ended_is_newer_than_all_that_have():
    engine = Engine(12)
    one, two, three = keys("one", 4), keys("two", 4), keys("three", 4)
    engine.run(one)
    running = engine.begin(two)
    output = engine.manager.prepare_store(two, running)
    engine.manager.complete_store(output.keys_to_store, running)
    engine.run(three)
    assert evicted(engine, 8) == [*reversed(one), *reversed(two)]


def store(engine, request, stored):
    output = engine.manager.prepare_store(stored, request)
    engine.manager.complete_store(output.keys_to_store, request)


def test_a_use_by_a_request_that_began_earlier_makes_nothing_older():
    engine, (old_key, cold, shared) = Engine(3), keys("key", 3)
    old = engine.begin([old_key, shared])
    store(engine, old, [old_key])
    store(engine, engine.begin([cold]), [cold])
    store(engine, engine.begin([shared]), [shared])
    engine.manager.prepare_load([old_key, shared], old)
    engine.manager.complete_load([old_key, shared], old)
    assert evicted(engine, 3) == [old_key, cold, shared]


def test_positions_count_and_not_the_order_of_stores():
    engine, stored = Engine(4), keys("key", 4)
    request = engine.begin(stored)
    for at in (0, 3, 1, 2):
        store(engine, request, [stored[at]])
    assert evicted(engine, 3) == [stored[3], stored[2], stored[1]]


def test_what_was_reused_stays_when_prompts_come_once():
    engine = Engine(16)
    system = keys("system", 8)
    engine.run(system)
    assert engine.run(system) == 8
    for number in range(50):
        engine.run(keys(f"once{number} ", 8))
    assert engine.run(system) == 8


def test_reused_chunks_are_protected_up_to_a_part_of_the_capacity():
    engine = Engine(20)
    for number in range(5):
        for _ in range(2):
            engine.run(keys(f"twice{number} ", 4))
    # 16 of 20 are protected; the oldest request is not.
    assert evicted(engine, 4) == list(reversed(keys("twice0 ", 4)))


def test_chunks_in_use_and_protected_ones_are_passed_over():
    engine = Engine(4)
    one = keys("one", 4)
    engine.run(one)
    reader = engine.begin(one)
    engine.manager.prepare_load(one[:2], reader)
    assert engine.policy.evict(3, set()) is None
    assert engine.policy.evict(2, {one[3]}) is None
    assert [key for key, _ in engine.policy.evict(1, {one[3]})] == [one[2]]
    assert engine.policy.evict(0, set()) == []


def test_touching_makes_recent():
    engine = Engine(9)
    one, two = keys("one", 4), keys("two", 4)
    engine.run(one)
    engine.run(two)
    engine.manager.touch([*one, b"unknown"], ReqContext(req_id="t"))
    assert evicted(engine, 5) == [*reversed(two), one[3]]


def test_unknown_keyword_arguments_are_accepted():
    assert radixkv.vllm.RadixKVCachePolicy(cache_capacity=4, layers=3).cache_capacity == 4


@pytest.mark.parametrize("seed", range(20))
def test_random_calls_keep_the_books(seed):
    draw, engine = random.Random(seed), Engine(24)
    for _ in range(300):
        depth = draw.randrange(1, 6)
        prompt, name = [], ""
        for _ in range(depth):
            name += str(draw.randrange(3))
            prompt += keys(name, 2)
        engine.run(prompt)
        policy = engine.policy
        if draw.random() < 0.05:
            engine.manager.reset_cache()
        segments = (policy._once, policy._reused)
        placed = [key for segment in segments for bucket in segment.buckets for key in bucket.keys]
        assert sorted(placed) == sorted(policy._chunks) and len(placed) <= 24
        assert [segment.size for segment in segments] == [
            sum(len(bucket.keys) for bucket in segment.buckets) for segment in segments
        ]
        assert all(bucket.keys and bucket.segment is segment for segment in segments for bucket in segment.buckets)
        assert policy._reused.size <= 0.8 * 24
