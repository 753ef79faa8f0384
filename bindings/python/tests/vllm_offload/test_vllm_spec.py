"""`RadixKVOffloadingSpec`: one region as the cache of all replicas."""

import os
from pathlib import Path

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import numpy as np
import vllm_engine
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

import radixkv.vllm

SIZE = 4 << 20
PROMPT = list(range(1, 1 + 8 * vllm_engine.TOKENS))


@pytest.fixture
def replica(region):
    vllm_engine.start_hashing()
    made = []

    def make(**how):
        options = {"region": region, "region_bytes": SIZE, **how.pop("options", {})}
        engine = f"radixkv-spec-{os.getpid()}-{len(made)}"
        made.append(vllm_engine.Replica(vllm_engine.window(engine, options, **how)))
        return made[-1]

    yield make
    for opened in made:
        opened.close()
    assert not list(Path("/dev/shm").glob(f"vllm_offload_radixkv-spec-{os.getpid()}-*"))


def test_what_one_replica_stored_the_others_load_and_do_not_store_again(replica):
    one, other = replica(), replica()
    assert one.run(PROMPT) == 0
    one.settle()
    assert other.run(PROMPT) == 8
    # A prompt whose beginning the other replica did not look up, as after a hit in the GPU's
    # memory.
    third = replica()
    third._wait_for_hits = lambda keys, context: 0
    third.run(PROMPT)
    assert (third.loaded, third.stored) == (0, 0)
    third.run([*PROMPT, *range(500, 500 + 2 * vllm_engine.TOKENS)])
    assert third.stored == 2


def test_it_looks_so_many_chunks_up_before_it_stores(replica, monkeypatch):
    from radixkv.vllm import _spec

    monkeypatch.setattr(_spec, "ASKED", 3)
    one, other = replica(), replica()
    one.run(PROMPT)
    one.settle()
    other._wait_for_hits = lambda keys, context: 0
    other.run(PROMPT)
    assert other.stored == 5


def test_the_window_is_smaller_than_what_is_cached(replica):
    one = replica(chunks=8)
    prompts = [[start + token for token in PROMPT] for start in range(0, 8000, 1000)]
    for prompt in prompts:
        one.run(prompt)
        one.settle()
    assert [one.run(prompt) for prompt in prompts] == [8] * 8


def test_workers_get_tensors_over_the_window(replica):
    one = replica(tp=2)
    spec = one.spec
    # What `create_worker` opens in each worker's process.
    workers = [
        SharedOffloadRegion(spec.config.engine_id, spec.num_chunks, rank, spec.kv_bytes_per_chunk,
                            spec.cpu_page_size_per_worker)
        for rank in range(2)
    ]
    half = spec.cpu_page_size_per_worker
    tensors = [worker.create_next_worker_view(half) for worker in workers]
    one.run(PROMPT)
    key = vllm_engine.keys_of(PROMPT)[0]
    chunk = one.manager.primary_tier._policy.get(key).chunk_id
    both = np.concatenate([np.asarray(tensor[chunk]) for tensor in tensors])
    assert np.array_equal(both, vllm_engine.content(key))
    del tensors, both
    for worker in workers:
        worker.cleanup()


def test_other_tiers_and_thresholds_are_refused(replica):
    with pytest.raises(ValueError, match="secondary_tiers.*fs"):
        replica(secondary_tiers=[{"type": "fs", "root_dir": "/tmp"}])
    with pytest.raises(ValueError, match="store_threshold"):
        replica(store_threshold=2)


def test_a_refused_region_leaves_nothing_behind(replica):
    replica()
    with pytest.raises(radixkv.RegionError, match="capacity"):
        replica(options={"region_bytes": 2 * SIZE})


def test_metrics_are_of_the_tier():
    extra = {"radixkv": {"region": "x"}}
    spec = OffloadingSpecFactory.get_spec_cls(
        {"spec_name": "RadixKVOffloadingSpec", "spec_module_path": "radixkv.vllm"}
    )
    assert spec is radixkv.vllm.RadixKVOffloadingSpec
    assert "vllm:kv_offload_radixkv_loaded" in spec.build_metric_definitions(extra)
    assert "radixkv_region" in spec.config_info_keys(extra)


def test_an_encrypted_region_counts_no_uses_and_refuses_nothing(replica, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    try:
        one = replica(options={"encryption_key_file": str(key)})
    except radixkv.RegionError as refused:
        if refused.kind != "not_built":
            raise
        pytest.skip(str(refused))
    assert one.run(PROMPT) == 0
    one.settle()
    # As after a hit in the GPU's memory: what the region has is not stored again.
    other = replica(options={"encryption_key_file": str(key)})
    other._wait_for_hits = lambda keys, context: 0
    other.run(PROMPT)
    assert (other.loaded, other.stored) == (0, 0)
