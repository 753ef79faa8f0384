"""An `OffloadingSpec` for vLLM 0.33 whose cache is one region for all replicas of the host.

vLLM's CPU memory, from and to which its workers copy, is a staging area of the region, called the
window: chunks stay there while they are copied, and as long as there is room. Before a replica
stores, it looks up the first keys, and does not copy chunks that another replica has stored.
"""

import dataclasses
import itertools
from contextlib import ExitStack

from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

TIER = {"type": "RadixKVTier", "module_path": "radixkv.vllm"}
# Maximum keys of a call that are looked up in the region; the rest are stored without a lookup.
# This bounds the time on the scheduler's thread.
ASKED = 256
# The field of `kv_connector_extra_config` with the tier's options.
OPTION = "radixkv"


class RegionOffloadingManager(TieringOffloadingManager):
    """A window of CPU memory over one `RadixKVTier`."""

    def prepare_store(self, keys, req_context):
        """Skips chunks that the region has, and counts them as used."""
        (tier,) = self.secondary_tiers
        keys = list(keys)
        present = tier.present(keys[:ASKED])
        if any(present):
            tier.touch(list(itertools.compress(keys, present)), req_context)
            keys = [key for key, there in itertools.zip_longest(keys, present) if not there]
        return super().prepare_store(keys, req_context)


class RadixKVOffloadingSpec(TieringOffloadingSpec):
    """vLLM's tiering with a region as the only tier below the CPU memory.

    Fields of `kv_connector_extra_config`: `cpu_bytes_to_use`, the size of each replica's window, and
    `radixkv`, the options of `RadixKVTier`.
    """

    def __init__(self, config, **unknown):
        super().__init__(dataclasses.replace(config, extra_config=_with_tier(config.extra_config)))

    @classmethod
    def build_metric_definitions(cls, extra_config):
        return super().build_metric_definitions(_with_tier(extra_config))

    @classmethod
    def config_info_keys(cls, extra_config):
        return super().config_info_keys(_with_tier(extra_config))

    def get_manager(self):
        if self._manager is None:
            if int(self.extra_config.get("store_threshold", 0)) >= 2:
                raise ValueError("RadixKVOffloadingSpec does not support store_threshold: remove it")
            with ExitStack() as undo:
                self._manager = self._open_manager(undo)
                undo.pop_all()
        return self._manager

    def _open_manager(self, undo):
        window = SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=None,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        undo.callback(window.cleanup)
        self._scheduler_mmap = window
        primary = CPUPrimaryTierOffloadingManager(
            num_chunks=self.num_chunks,
            cache_policy=self.eviction_policy,
            cache_policy_module_path=self.cache_policy_module_path,
            enable_events=self.kv_events_config.enable_kv_cache_events,
            mmap_region=window,
            info=self.cpu_info,
        )
        undo.callback(primary.shutdown)
        (tier_config,) = self.secondary_tier_configs
        tier = SecondaryTierFactory.create_secondary_tier(tier_config, primary.get_kv_memoryview(), self)
        return RegionOffloadingManager(primary, [tier], tier_poll_interval_s=self.tier_poll_interval_s)


def _with_tier(extra_config):
    """vLLM's options, with the region as the only tier. Raises ValueError if they name tiers."""
    named = extra_config.get("secondary_tiers")
    if named:
        raise ValueError(
            f"RadixKVOffloadingSpec has one tier, with the options in {OPTION!r}, but secondary_tiers is {named!r}: "
            "remove it, or use TieringOffloadingSpec with the tier 'radixkv'"
        )
    return {**extra_config, "secondary_tiers": [{**TIER, **extra_config.get(OPTION, {})}]}
