"""`OffloadingSpec` of vLLM 0.33 whose cache is one region for all replicas of the host.

vLLM's CPU memory, which its workers copy from and to the GPU, is a window to the region: chunks are
there while they are copied, and as long as there is room. What one replica stored another one does
not copy into its window again, as far as it looks before it stores.
"""

import dataclasses
import itertools
from contextlib import ExitStack

from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

TIER = {"type": "RadixKVTier", "module_path": "radixkv.vllm"}
# Of a call, so many keys are looked up in the region; the rest is stored. It is the time of the
# scheduler's thread.
ASKED = 256
# Where `kv_connector_extra_config` has the tier's options.
OPTION = "radixkv"


class RegionOffloadingManager(TieringOffloadingManager):
    """A window of CPU memory over one `RadixKVTier`."""

    def prepare_store(self, keys, req_context):
        """Leaves out what the region has, and counts it as used."""
        (tier,) = self.secondary_tiers
        keys = list(keys)
        present = tier.present(keys[:ASKED])
        if any(present):
            tier.touch(list(itertools.compress(keys, present)), req_context)
            keys = [key for key, there in itertools.zip_longest(keys, present) if not there]
        return super().prepare_store(keys, req_context)


class RadixKVOffloadingSpec(TieringOffloadingSpec):
    """vLLM's tiering with a region as the only tier below the CPU memory.

    `kv_connector_extra_config` has `cpu_bytes_to_use`, the window of each replica, and `radixkv`, the
    options of `RadixKVTier`.
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
                raise ValueError("store_threshold is not there with RadixKVOffloadingSpec: leave it out")
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
            f"RadixKVOffloadingSpec has one tier, of the options in {OPTION!r}, and secondary_tiers has {named!r}: "
            "leave it out, or use TieringOffloadingSpec with the tier 'radixkv'"
        )
    return {**extra_config, "secondary_tiers": [{**TIER, **extra_config.get(OPTION, {})}]}
