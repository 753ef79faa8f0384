"""Counters and labels of a tier, for vLLM's metrics."""

from importlib.metadata import version

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata
from vllm.v1.kv_offload.tiering.base import TIER_LABEL

_COUNTERS = {
    "loaded": "Chunks that were loaded from radixkv.",
    "missed": "Chunks requested from radixkv that were not found, or not intact.",
    "stored": "Chunks that were stored in radixkv.",
    "failed": "Chunks that radixkv could not store or load.",
}

INFO_KEYS = ("radixkv_version", "radixkv_region", "radixkv_namespace", "radixkv_chunks", "radixkv_chunk_bytes")


def definitions():
    return {
        _name(counter): OffloadingCounterMetadata(documentation=text, labelnames=(TIER_LABEL,))
        for counter, text in _COUNTERS.items()
    }


def info(region, store, chunk_bytes):
    values = (version("radixkv"), region.path or "", store.namespace, region.capacity_blocks, chunk_bytes)
    return dict(zip(INFO_KEYS, values, strict=True))


class Counted:
    """The counters of a store, as differences."""

    def __init__(self, store):
        self._store = store
        self._told = self._now()

    def since_last(self, tier_type):
        """The increments since the last call; None if all are zero."""
        now = self._now()
        added = {counter: value - self._told[counter] for counter, value in now.items()}
        self._told = now
        if not any(added.values()):
            return None
        stats = OffloadingConnectorStats()
        for counter, value in added.items():
            if value:
                stats.increase_counter(_name(counter), value, (tier_type,))
        return stats

    def _now(self):
        stats = self._store.stats()
        return {counter: stats[counter] for counter in _COUNTERS}


def _name(counter):
    return f"vllm:kv_offload_radixkv_{counter}"
