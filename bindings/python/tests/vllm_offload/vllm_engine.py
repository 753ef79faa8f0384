"""A vLLM without a model: prompts are hashed as vLLM hashes them, and vLLM's scheduler-side classes
are called as its scheduler calls them. The bytes of a chunk are a function of its key, so that every
load can be checked.
"""

import hashlib
import time

import vllm_sources

vllm_sources.load()

import numpy as np  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key  # noqa: E402
from vllm.v1.kv_offload.config import (  # noqa: E402
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402

TOKENS = 16
CHUNK = 4096
# Seconds after which a transfer that does not end is an error.
PATIENCE = 30


def config(engine="engine", chunks=64, chunk=CHUNK, model="model", dtype="bfloat16", tp=1, replicated=False, **extra):
    """What vLLM hands to an `OffloadingSpec`."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(TOKENS, ("layers.0", "layers.1"), 0),),
        worker_kv_bytes_per_block=chunk if replicated else chunk // tp,
        enable_kv_cache_events=extra.pop("events", False),
        extra_config={"cpu_bytes_to_use": chunks * chunk, **extra},
        engine_id=engine,
        model=OffloadingModelConfig(model, dtype, 4096),
        cache=OffloadingCacheConfig(TOKENS, 1),
        parallel=OffloadingParallelConfig(0, tp, tp, 1, 1, 1, 0, 1, None, False),
        replicated_layout=replicated,
        kv_cache_layout="NHD",
    )


def tiering(engine="engine", tier=(), **how):
    """The configuration of vLLM's tiering over a `RadixKVTier`."""
    named = {"type": "RadixKVTier", "module_path": "radixkv.vllm", **dict(tier)}
    return config(engine, spec_name="TieringOffloadingSpec", secondary_tiers=[named], **how)


def window(engine="engine", tier=(), **how):
    """The configuration of a `RadixKVOffloadingSpec`."""
    named = {"spec_name": "RadixKVOffloadingSpec", "spec_module_path": "radixkv.vllm"}
    return config(engine, **named, radixkv=dict(tier), **how)


def content(key, chunk=CHUNK):
    """The bytes that the model computed for a key."""
    return np.frombuffer(hashlib.shake_128(key).digest(chunk), dtype=np.int8)


def start_hashing(algorithm="sha256"):
    """What the engine's core does after it has made the scheduler."""
    kv_cache_utils.init_none_hash(get_hash_fn_by_name(algorithm))


def keys_of(tokens, group=0, algorithm="sha256"):
    """The keys of a prompt's whole chunks."""
    hash_fn, parent, keys = get_hash_fn_by_name(algorithm), None, []
    for start in range(0, len(tokens) - TOKENS + 1, TOKENS):
        parent = kv_cache_utils.hash_block_tokens(hash_fn, parent, tokens[start : start + TOKENS])
        keys.append(make_offload_key(parent, group))
    return keys


class Wrong(AssertionError):
    """Other bytes than those that were computed."""


class Replica:
    """One engine: its manager, and its CPU memory, which it writes and reads as a worker does."""

    def __init__(self, configuration):
        self.spec = OffloadingSpecFactory.create_spec(configuration)
        self.manager = self.spec.get_manager()
        self.view = np.asarray(self.manager.primary_tier.get_kv_memoryview())
        self.requests = self.loaded = self.stored = 0

    @property
    def tier(self):
        return self.manager.secondary_tiers[0]

    def run(self, prompt):
        """One request: loads what is there, computes and stores the rest. The number of chunks that
        were loaded."""
        self.requests += 1
        keys = keys_of(prompt)
        context = ReqContext(req_id=f"{self.spec.config.engine_id}-{self.requests}")
        for number, key in enumerate(keys, 1):
            context.set_offload_key_position(key, number * TOKENS)
        self.manager.on_new_request(context)
        hits = self._wait_for_hits(keys, context)
        if hits:
            self._load(keys[:hits], context)
        if hits < len(keys):
            self._store(keys[hits:], context)
        self.manager.on_request_finished(context)
        self.step()
        return hits

    def _wait_for_hits(self, keys, context):
        """The scheduler's look-up of a prefix, in one step after the other until none is deferred."""
        for _ in self._steps():
            hits, is_deferred = 0, False
            for key in keys:
                result = self.manager.lookup(key, context)
                if result is LookupResult.MISS:
                    break
                hits += result is not LookupResult.RETRY
                is_deferred |= result is not LookupResult.HIT
            if not is_deferred:
                return hits

    def _steps(self):
        """Steps until the caller has what it waits for, or too much time is over."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            yield
            self.step()
            time.sleep(0.0002)
        raise TimeoutError(f"nothing came of {PATIENCE} seconds of steps")

    def _load(self, keys, context):
        load = self.manager.prepare_load(keys, context)
        for key, chunk in zip(keys, load.chunk_ids, strict=True):
            if not np.array_equal(self.view[chunk], content(key, self.view.shape[1])):
                raise Wrong(f"chunk {chunk} has other bytes than those of {key.hex()}")
        self.manager.complete_load(keys, context)
        self.loaded += len(keys)

    def _store(self, keys, context):
        output = self.manager.prepare_store(keys, context)
        if output is None or not output.keys_to_store:
            return
        for key, chunk in zip(output.keys_to_store, output.store_spec.chunk_ids, strict=True):
            self.view[chunk] = content(key, self.view.shape[1])
        self.manager.complete_store(output.keys_to_store, context)
        self.stored += len(output.keys_to_store)

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def settle(self):
        """Steps until no transfer is under way."""
        for _ in self._steps():
            if not self.manager.has_pending_work():
                return

    def close(self):
        self.view = None
        self.manager.shutdown()
