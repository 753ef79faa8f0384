"""Registers names for vLLM's configuration: `radixkv` as a tier and as an eviction policy, and
`RadixKVOffloadingSpec`.

vLLM calls `register` in every process, through the entry-point group `vllm.general_plugins`.
No other part of radixkv is imported until a configuration names it.
"""


def register():
    """Registers the names, once in each process. Does nothing if vLLM lacks these interfaces."""
    try:
        from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
        from vllm.v1.kv_offload.factory import OffloadingSpecFactory
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
    except ImportError:
        return
    for add, name, adapter in (
        (SecondaryTierFactory.register_tier, "radixkv", "RadixKVTier"),
        (CachePolicyFactory.register_cache_policy, "radixkv", "RadixKVCachePolicy"),
        (OffloadingSpecFactory.register_spec, "RadixKVOffloadingSpec", "RadixKVOffloadingSpec"),
    ):
        try:
            add(name, "radixkv.vllm", adapter)
        except ValueError:
            # Already registered.
            pass
