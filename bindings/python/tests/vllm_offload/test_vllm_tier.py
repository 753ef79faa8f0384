"""`RadixKVTier` below vLLM's own `TieringOffloadingManager`."""

import os
import time
from pathlib import Path

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import numpy as np
import vllm_engine
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager, TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

import radixkv
import radixkv.vllm

SIZE = 4 << 20
PROMPT = list(range(1, 1 + 8 * vllm_engine.TOKENS))


def context(name="request"):
    return ReqContext(req_id=name)


def job(number, keys, chunks, is_promotion=False, name="request"):
    return TransferJob(number, keys, np.array(chunks, dtype=np.int32), is_promotion, context(name))


def finished(tier):
    """The results of all jobs."""
    tier.drain_jobs()
    return sorted(tier.get_finished_jobs(), key=lambda result: result.job_id)


def test_the_interface_is_vllms():
    abstract = {"lookup", "submit_store", "submit_load", "get_finished_jobs", "on_new_request", "drain_jobs"}
    assert SecondaryTierManager.__abstractmethods__ == abstract
    assert radixkv.vllm.RadixKVTier.__abstractmethods__ == frozenset()


def test_what_one_replica_stored_the_other_one_loads(replicas, region):
    tier = {"region": region, "region_bytes": SIZE}
    one, other = replicas(tier=tier), replicas(tier=tier)
    assert one.run(PROMPT) == 0
    one.settle()
    # `Replica` compares the bytes of each chunk.
    assert other.run(PROMPT) == 8
    assert other.run(PROMPT[: 5 * vllm_engine.TOKENS]) == 5
    assert (one.stored, other.stored, other.loaded) == (8, 0, 13)


def test_a_chunk_that_vllms_memory_evicted_comes_back(replicas, region):
    replica = replicas(chunks=8, tier={"region": region, "region_bytes": SIZE})
    prompts = [[start + token for token in PROMPT] for start in range(0, 4000, 1000)]
    for prompt in prompts:
        replica.run(prompt)
        replica.settle()
    assert [replica.run(prompt) for prompt in prompts] == [8, 8, 8, 8]


def test_memory_of_the_process_alone(replicas):
    replica = replicas(chunks=8, tier={"region": None, "region_bytes": SIZE})
    replica.run(PROMPT)
    replica.settle()
    replica.manager.primary_tier.reset_cache()
    assert replica.run(PROMPT) == 8


def test_files_below_the_region(replicas, tmp_path):
    files = {"type": "files", "folder": str(tmp_path / "files"), "bytes": SIZE, "direct_io": False}
    first = replicas(tier={"region": None, "region_bytes": SIZE, "tiers": [files]})
    first.run(PROMPT)
    first.settle()
    first.manager.shutdown = lambda: None
    first.tier.shutdown()
    # The second process has a region of its own, so that only the files have the chunks.
    second = replicas(tier={"region": None, "region_bytes": SIZE, "tiers": [files]})
    assert second.run(PROMPT) == 8
    assert second.run([7, *PROMPT]) == 0
    first.view = None
    first.manager.primary_tier.shutdown()


def test_a_chunk_that_came_from_files_expires_in_the_region(replicas, tmp_path):
    files = {"type": "files", "folder": str(tmp_path / "files"), "bytes": SIZE, "direct_io": False}
    options = {"region": None, "region_bytes": SIZE, "tiers": [files], "time_to_live": 0.05}
    tier = replicas(tier=options).tier
    keys = vllm_engine.keys_of(PROMPT)
    # The files have the chunks without a limit, the region does not have them.
    tier._store.wait(tier._store.store(keys, tier._primary_kv_view))
    tier._store.clear()
    tier.submit_load(job(0, keys, range(8), is_promotion=True))
    (loaded,) = finished(tier)
    time.sleep(0.1)
    assert loaded.success and tier.present(keys) == [False] * 8


def if_built(make, **how):
    """Skips the test where the wheel was built without a feature that it needs."""
    try:
        return make(**how)
    except radixkv.RegionError as refused:
        if refused.kind != "not_built":
            raise
        pytest.skip(str(refused))


def test_an_object_store_below_the_region(replicas, tmp_path):
    objects = {"type": "objects", "url": f"file://{tmp_path}"}
    first = if_built(replicas, tier={"region": None, "region_bytes": SIZE, "tiers": [objects]})
    first.run(PROMPT)
    first.settle()
    second = replicas(tier={"region": None, "region_bytes": SIZE, "tiers": [objects]})
    assert second.run(PROMPT) == 8


def test_encrypted_chunks_are_of_those_who_have_the_key(replicas, region, tmp_path):
    keys = [tmp_path / "key", tmp_path / "another"]
    for path in keys:
        path.write_bytes(os.urandom(32))
    tiers = [{"region": region, "region_bytes": SIZE, "encryption_key_file": str(path)} for path in keys]
    one = if_built(replicas, tier=tiers[0])
    one.run(PROMPT)
    one.settle()
    raw = Path(region).read_bytes()
    assert not any(vllm_engine.content(key)[:64].tobytes() in raw for key in vllm_engine.keys_of(PROMPT))
    assert replicas(tier=tiers[0]).run(PROMPT) == 8
    # Found, but not loaded: computed again.
    assert replicas(tier=tiers[1]).run(PROMPT) == 0


def test_tiers_are_asked_once_a_step_and_answer_later(replicas, tmp_path):
    files = {"type": "files", "folder": str(tmp_path / "files"), "bytes": SIZE, "direct_io": False}
    tier = replicas(tier={"region": None, "region_bytes": SIZE, "tiers": [files]}).tier
    keys = vllm_engine.keys_of(PROMPT)
    tier.on_new_request(context())
    assert {tier.lookup(key, context()) for key in keys} == {LookupResult.RETRY}
    tier.on_schedule_end(ScheduleEndContext((), ()))
    deadline = time.monotonic() + 60
    while tier.lookup(keys[0], context()) is LookupResult.RETRY:
        assert time.monotonic() < deadline
        list(tier.get_finished_jobs())
    assert {tier.lookup(key, context()) for key in keys} == {LookupResult.MISS}
    tier.on_request_finished(context())
    assert not tier._lookups._pending and not tier._lookups._answers_of


def answers(tier, keys, name):
    """What a request is told in the end."""
    deadline = time.monotonic() + 60
    while any(tier.lookup(key, context(name)) is LookupResult.RETRY for key in keys):
        assert time.monotonic() < deadline
        list(tier.get_finished_jobs())
        tier.on_schedule_end(ScheduleEndContext((), ()))
    return [tier.lookup(key, context(name)) for key in keys]


def test_a_later_request_asks_the_tiers_again(replicas, tmp_path):
    files = {"type": "files", "folder": str(tmp_path / "files"), "bytes": SIZE, "direct_io": False}
    tier = replicas(tier={"region": None, "region_bytes": SIZE, "tiers": [files]}).tier
    keys = vllm_engine.keys_of(PROMPT[: 2 * vllm_engine.TOKENS])
    tier.on_new_request(context("first"))
    assert answers(tier, keys, "first") == [LookupResult.MISS] * 2
    # The first request stores them, and goes on; the region evicts them.
    tier.submit_store(job(0, keys, [0, 1], name="first"))
    finished(tier)
    tier._store.clear()
    tier.on_new_request(context("second"))
    assert answers(tier, keys, "second") == [LookupResult.HIT] * 2
    assert answers(tier, keys, "first") == [LookupResult.MISS] * 2
    # No request needs this answer any more when the step ends: the tiers are not asked.
    tier.on_new_request(context("third"))
    assert tier.lookup(keys[0], context("third")) is LookupResult.RETRY
    for name in ("first", "second", "third"):
        tier.on_request_finished(context(name))
    tier.on_schedule_end(ScheduleEndContext((), ()))
    assert not tier._lookups._pending and not tier._lookups._asked and not tier._lookups._answers_of


def test_a_step_with_more_keys_than_may_be_in_flight_gets_answers(replicas, tmp_path):
    files = {"type": "files", "folder": str(tmp_path / "files"), "bytes": SIZE, "direct_io": False}
    options = {"region": None, "region_bytes": SIZE, "tiers": [files], "max_in_flight": 3}
    tier = replicas(tier=options).tier
    keys = vllm_engine.keys_of(PROMPT)
    tier.submit_store(job(0, keys[:2], [0, 1]))
    tier.on_new_request(context())
    assert {tier.lookup(key, context()) for key in keys[2:]} == {LookupResult.RETRY}
    # One more fits beside the store.
    tier.on_schedule_end(ScheduleEndContext((), ()))
    assert [len(asked) for asked in tier._lookups._asked.values()] == [1]
    assert answers(tier, keys, "request") == [LookupResult.HIT] * 2 + [LookupResult.MISS] * 6
    tier.on_request_finished(context())
    # The tiers may still be asked for a chunk of the store, which the region has by now.
    deadline = time.monotonic() + 60
    while tier._lookups._pending or tier._lookups._unasked:
        assert time.monotonic() < deadline
        list(tier.get_finished_jobs())
        tier.on_schedule_end(ScheduleEndContext((), ()))


def test_a_chunk_that_cannot_be_loaded_is_a_miss_until_the_request_ends(replicas, region):
    tier = replicas(tier={"region": region, "region_bytes": SIZE}).tier
    keys = vllm_engine.keys_of(PROMPT[: 3 * vllm_engine.TOKENS])
    tier.on_new_request(context())
    tier.submit_store(job(0, keys, [0, 1, 2]))
    (stored,) = finished(tier)
    assert stored.success and stored.transfer_bytes == 3 * vllm_engine.CHUNK
    assert [tier.lookup(key, context()) for key in keys] == [LookupResult.HIT] * 3
    # The middle one is lost between the look-up and the load.
    tier._store.wait(tier._store.remove([keys[1]]))
    tier.submit_load(job(1, keys, [3, 4, 5], is_promotion=True))
    (loaded,) = finished(tier)
    assert (loaded.success, loaded.successful_keys) == (False, [keys[0], keys[2]])
    tier.submit_store(job(2, keys, [0, 1, 2]))
    finished(tier)
    assert tier.lookup(keys[1], context()) is LookupResult.MISS
    assert tier.lookup(keys[0], context()) is LookupResult.HIT
    # Another request finds what was stored again.
    assert tier.lookup(keys[1], context("meanwhile")) is LookupResult.HIT
    tier.on_request_finished(context())
    assert tier.lookup(keys[1], context("another")) is LookupResult.HIT
    assert not tier._lookups._failed_of


def test_a_load_that_ends_after_its_request_is_not_remembered(replicas, region):
    tier = replicas(tier={"region": region, "region_bytes": SIZE}).tier
    keys = vllm_engine.keys_of(PROMPT)
    tier.on_new_request(context())
    tier.submit_load(job(0, keys, range(8), is_promotion=True))
    tier.on_request_finished(context())
    (loaded,) = finished(tier)
    assert (loaded.success, loaded.successful_keys) == (False, None)
    assert not tier._lookups._failed_of


def test_a_full_queue_gives_a_store_up(replicas, region):
    tier = replicas(tier={"region": region, "region_bytes": SIZE, "max_in_flight": 4}).tier
    keys = vllm_engine.keys_of(PROMPT)
    tier.on_new_request(context())
    tier.submit_store(job(0, keys[:4], range(4)))
    tier.submit_store(job(1, keys[4:], range(4, 8)))
    tier.submit_load(job(2, keys[:4], range(4), is_promotion=True))
    assert [result.success for result in finished(tier)] == [True, False, False]
    assert [tier.lookup(keys[at], context()) for at in (0, 4)] == [LookupResult.HIT, LookupResult.MISS]
    tier.submit_store(job(3, keys[4:], range(4, 8)))
    assert [result.success for result in finished(tier)] == [True]


def test_of_a_job_larger_than_may_be_in_flight_the_first_chunks_are_copied(replicas, region):
    options = {"region": region, "region_bytes": SIZE}
    tier = replicas(tier={**options, "max_in_flight": 3}).tier
    keys = vllm_engine.keys_of(PROMPT[::-1])
    tier.submit_store(job(0, keys, range(8)))
    (stored,) = finished(tier)
    assert (stored.success, stored.transfer_bytes) == (False, 3 * vllm_engine.CHUNK)
    assert tier.present(keys) == [True] * 3 + [False] * 5
    keys = vllm_engine.keys_of(PROMPT)
    replica = replicas(tier=options)
    replica.run(PROMPT)
    replica.settle()
    tier.on_new_request(context())
    tier.submit_load(job(1, keys, range(8), is_promotion=True))
    (loaded,) = finished(tier)
    assert (loaded.success, loaded.successful_keys) == (False, keys[:3])
    # The rest is loaded by later jobs.
    assert {tier.lookup(key, context()) for key in keys} == {LookupResult.HIT}
    small = replicas(tier={**options, "max_in_flight": 3})
    assert small.run(PROMPT) == 8


def test_events_and_metrics(replicas, region):
    tier = {"region": region, "region_bytes": SIZE, "enable_kv_events": True, "locality": "LOCAL"}
    replica = replicas(tier=tier, events=True)
    list(replica.manager.take_events())
    replica.run(PROMPT)
    replica.settle()
    stored = [event for event in replica.manager.take_events() if event.locality is not None]
    assert [(len(event.keys), event.removed, event.locality.value) for event in stored] == [(8, False, "LOCAL")]
    assert not list(replica.tier.take_events())
    reduced = replica.tier.get_stats().reduce()
    label = (replica.tier.tier_type,)
    assert reduced[f"vllm:kv_offload_radixkv_stored:{label}"] == 8
    assert replica.tier.get_stats() is None
    definitions = type(replica.spec).build_metric_definitions(replica.spec.extra_config)
    assert {name for name in definitions if "radixkv" in name} >= {"vllm:kv_offload_radixkv_loaded"}
    infos = replica.manager.config_info()
    assert set(infos[1]) <= set(type(replica.spec).config_info_keys(replica.spec.extra_config))
    assert infos[1]["radixkv_region"] == region and infos[1]["radixkv_chunk_bytes"] == vllm_engine.CHUNK


def test_unknown_options_are_told_and_left_out(replicas, region, monkeypatch):
    from radixkv.vllm import _tier

    told = []
    monkeypatch.setattr(_tier.logger, "warning", lambda text, *values: told.append(text % values))
    replica = replicas(tier={"region": region, "region_bytes": SIZE, "prefetch_layers": 3})
    assert told and "prefetch_layers" in told[0]
    assert replica.run(PROMPT) == 0


def test_the_plugin_names_the_adapters(replicas, region, monkeypatch):
    from importlib.metadata import entry_points

    (plugin,) = [found for found in entry_points(group="vllm.general_plugins") if found.name == "radixkv"]
    monkeypatch.setattr(SecondaryTierFactory, "_registry", dict(SecondaryTierFactory._registry))
    plugin.load()()
    plugin.load()()
    assert SecondaryTierFactory.get_tier_class({"type": "radixkv"}) is radixkv.vllm.RadixKVTier
    replica = replicas(tier={"type": "radixkv", "region": region, "region_bytes": SIZE})
    assert replica.tier.tier_type == "radixkv"


def test_reset_drains_and_keeps_the_region(replicas, region):
    replica = replicas(tier={"region": region, "region_bytes": SIZE})
    replica.run(PROMPT)
    replica.manager.reset_cache()
    assert not replica.manager.has_pending_work()
    replica.manager.on_reset_flushed()
    assert replica.run(PROMPT) == 8


def test_it_touches_at_most_so_many_keys(replicas, region):
    replica = replicas(tier={"region": region, "region_bytes": SIZE})
    replica.run(PROMPT)
    replica.settle()
    keys = vllm_engine.keys_of(PROMPT)
    replica.manager.touch(keys, context())
    replica.manager.touch([], context())
    assert replica.tier.present(keys) == [True] * 8 and replica.tier.present([]) == []


def test_shutting_down_amid_transfers_lets_go_of_vllms_memory(replicas, region):
    replica = replicas(chunks=512, tier={"region": region, "region_bytes": SIZE})
    keys = vllm_engine.keys_of(list(range(1, 1 + 512 * vllm_engine.TOKENS)))
    for number in range(8):
        replica.tier.submit_store(job(number, keys, range(512)))
    view = replica.manager.primary_tier.get_kv_memoryview()
    replica.view = None
    replica.manager.shutdown()
    # It is released, which fails where a thread still refers to it.
    with pytest.raises(ValueError, match="released"):
        len(view)
    replica.manager.shutdown = lambda: None
