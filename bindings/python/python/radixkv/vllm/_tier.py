"""A `SecondaryTierManager` for vLLM 0.33 over a region, with files, Redis and object stores below.

vLLM calls it on the scheduler's thread, which copies nothing: threads of the `DigestStore` copy
chunks directly from and to vLLM's CPU memory.
"""

import itertools
import logging
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from vllm.v1.kv_offload.base import Locality, Medium, OffloadingEvent, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

import radixkv
from radixkv.vllm import _metrics
from radixkv.vllm._hashing import EngineHash
from radixkv.vllm._lookups import Lookups
from radixkv.vllm._namespace import describe

logger = logging.getLogger("vllm.radixkv")

# Maximum keys of a call that count as used: the first ones, because the rest needs them.
TOUCHED = 64
# Translation tables for outcomes.
_IS_DONE = bytes(outcome == radixkv.DigestStore.DONE for outcome in range(256))
_IS_LOST = bytes(outcome != radixkv.DigestStore.DONE for outcome in range(256))


class RadixKVTier(SecondaryTierManager):
    """Stores chunks in a region that all replicas of the host share.

    - region: its name, a file in `/dev/shm`, or a path; None: memory of this process.
    - region_bytes: its size. None: the region must exist.
    - region_block_bytes: the largest chunk of all models in it; default: a chunk of this model.
    - tiers: dicts of the tiers below the region, from top to bottom, as for `DigestStore`.
      `{replica}` in a folder is the number of the data-parallel replica.
    - namespace: its name; default: one for each model. Models with the same name but other weights
      need different names.
    - hash_algo: vLLM's `--prefix-caching-hash-algo`, if that is not the default.
    - checksum: whether each chunk has a checksum.
    - threads: number of copying threads. max_in_flight: maximum chunks in flight.
    - time_to_live: seconds. quota, process_quota: maximum chunks of the namespace and of this
      process.
    - encryption_key_file: a file of 32 bytes.
    - enable_kv_events, locality: as for vLLM's own tiers.
    """

    medium = Medium.CPU

    def __init__(
        self,
        offloading_spec,
        primary_kv_view,
        tier_type,
        backpressure_detector=None,
        *,
        region="vllm",
        region_bytes=None,
        region_block_bytes=None,
        tiers=(),
        namespace=None,
        hash_algo=None,
        checksum=True,
        threads=2,
        max_in_flight=65_536,
        time_to_live=None,
        quota=None,
        process_quota=None,
        encryption_key_file=None,
        enable_kv_events=False,
        locality=None,
        **unknown,
    ):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if unknown:
            logger.warning("radixkv: tier %r ignores unknown options: %s", tier_type, ", ".join(unknown))
        _check_view(primary_kv_view)
        self.locality = Locality(locality) if locality is not None else None
        if time_to_live is not None and not time_to_live > 0:
            raise ValueError(f"time_to_live is {time_to_live!r}: must be more than 0 seconds, or None")
        for name, limit in (("quota", quota), ("process_quota", process_quota)):
            if limit is not None and limit < 1:
                raise ValueError(f"{name} is {limit!r}: must be at least 1, or None for no limit")
        self._time_to_live = time_to_live
        self._hash = EngineHash(hash_algo)
        secrets = {"encryption_key": Path(encryption_key_file).read_bytes()} if encryption_key_file else {}
        # An encrypted namespace refuses `touch`: there only loads count as uses.
        self._counts_uses = not secrets
        self._region, self._store = _open_store(
            (region, region_block_bytes or self.block_size_bytes, region_bytes),
            quota,
            process_quota,
            **describe(offloading_spec.config, self.block_size_bytes, self._hash, namespace),
            checksum=checksum,
            tiers=[_of_replica(below, offloading_spec.config) for below in tiers],
            threads=threads,
            max_in_flight=max_in_flight,
            **secrets,
        )
        self._lookups = Lookups(self._store, bool(tiers))
        self._jobs, self._most = {}, max_in_flight
        # Results that `get_finished_jobs` has not returned.
        self.completed_jobs = []
        self._counted = _metrics.Counted(self._store)
        has_events = enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events
        self.events = [] if has_events else None
        logger.info(
            "radixkv: tier %r opened namespace %r of region %r: %d chunks of %d bytes",
            tier_type,
            self._store.namespace,
            self._region.path or "of this process",
            self._region.capacity_blocks,
            self.block_size_bytes,
        )

    # Requests and lookups.

    def on_new_request(self, req_context):
        self._hash.check()
        self._lookups.begin(req_context.req_id)
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        return self._lookups.find(key, req_context.req_id)

    def present(self, keys):
        """For each key, whether the region has its block. Does not ask the tiers below."""
        return [state == 1 for state in self._store.exists(keys)] if keys else []

    def touch(self, keys, req_context):
        first = list(keys)[:TOUCHED] if self._counts_uses else ()
        if first:
            self._store.touch(first)

    def on_request_finished(self, req_context):
        self._lookups.forget(req_context.req_id)

    def on_schedule_end(self, context):
        self._lookups.ask_tiers()

    # Jobs.

    def submit_store(self, job_metadata):
        self._submit(job_metadata, self._store.store)

    def submit_load(self, job_metadata):
        self._submit(job_metadata, self._store.load)

    def _submit(self, job, verb):
        # The first keys, if more can never be in flight. A store abandons the rest. A load is
        # repeated for the rest when its keys are looked up again.
        keys = list(job.keys)[: self._most]
        chunks = job.chunk_ids[: self._most].astype(np.int64)
        if chunks.min(initial=0) < 0:
            self._refuse(job, f"chunk {chunks.min()} is negative")
            return
        offsets = chunks * self.block_size_bytes
        try:
            # For a load, the time to live of chunks that it puts into the region.
            batch = verb(keys, self._primary_kv_view, offsets, time_to_live=self._time_to_live)
            self._jobs[batch] = (job, keys)
        except radixkv.FullError:
            # A store is abandoned. A load is repeated when its keys are looked up again.
            self._fail(job)
        except radixkv.BatchError as refused:
            self._refuse(job, refused)

    def _refuse(self, job, why):
        logger.error("radixkv: job %d of tier %r was refused: %s", job.job_id, self.tier_type, why)
        self._fail(job, job.keys)

    def _fail(self, job, lost=()):
        if job.is_promotion:
            self._lookups.load_failed(lost, job.req_context.req_id)
        self.completed_jobs.append(JobResult(job_id=job.job_id, success=False))

    def get_finished_jobs(self):
        if self._jobs or self._lookups.waiting:
            for batch, outcomes in self._store.poll():
                self._take(batch, outcomes)
        finished, self.completed_jobs = self.completed_jobs, []
        return finished

    def drain_jobs(self):
        """Waits until no thread accesses vLLM's memory, at most a tier's longest timeout."""
        for batch in list(self._jobs):
            self._take(batch, self._store.wait(batch))

    def _take(self, batch, outcomes):
        if self._lookups.answered(batch, outcomes):
            return
        job, keys = self._jobs.pop(batch)
        count = outcomes.count(radixkv.DigestStore.DONE)
        result = JobResult(job.job_id, count == len(job.keys), transfer_bytes=count * self.block_size_bytes)
        self.completed_jobs.append(result)
        if not job.is_promotion:
            self._tell_stored(keys, outcomes)
        elif not result.success:
            loaded, lost = _divide(keys, outcomes)
            result.successful_keys = loaded or None
            self._lookups.load_failed(lost, job.req_context.req_id)

    def _tell_stored(self, keys, outcomes):
        if self.events is not None:
            stored, _ = _divide(keys, outcomes)
            if stored:
                self.events.append(
                    OffloadingEvent(keys=stored, medium=self.medium, removed=False, locality=self.locality)
                )

    def take_events(self):
        if self.events:
            events, self.events = self.events, []
            yield from events

    def shutdown(self):
        self._store.close()
        self._region.close()

    # Metrics.

    @classmethod
    def build_metric_definitions(cls, extra_config):
        return _metrics.definitions()

    def get_stats(self):
        return self._counted.since_last(self.tier_type)

    @classmethod
    def config_info_keys(cls, tier_config):
        return _metrics.INFO_KEYS

    def config_info(self):
        return _metrics.info(self._region, self._store, self.block_size_bytes)


def _open_store(region, quota, process_quota, **described):
    """Opens the region and a namespace in it."""
    name, block_bytes, size = region
    with ExitStack() as undo:
        opened = undo.enter_context(radixkv.DigestRegion(name, None if size is None else block_bytes, size))
        store = undo.enter_context(radixkv.DigestStore(opened, **described))
        if quota is not None:
            store.set_quota(quota)
        if process_quota is not None:
            opened.set_process_quota(process_quota)
        undo.pop_all()
    return opened, store


def _divide(keys, outcomes):
    """Splits the keys into those that are done, and the rest."""
    is_done, is_lost = outcomes.translate(_IS_DONE), outcomes.translate(_IS_LOST)
    return list(itertools.compress(keys, is_done)), list(itertools.compress(keys, is_lost))


def _of_replica(below, config):
    """A tier's settings for this replica."""
    if "folder" not in below:
        return below
    return {**below, "folder": below["folder"].replace("{replica}", str(config.parallel.data_parallel_index))}


def _check_view(view):
    """Raises ValueError if chunks cannot be copied from and to the memory in place."""
    chunk = view.nbytes // len(view) if len(view) else 0
    if view.readonly or not view.c_contiguous or view.strides[0] != chunk:
        raise ValueError(
            "radixkv needs CPU memory that is writable and contiguous: it is "
            f"{'read-only' if view.readonly else 'writable'}, with chunks of {chunk} bytes "
            f"every {view.strides[0]} bytes"
        )
