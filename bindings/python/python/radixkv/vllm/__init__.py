"""Adapters of radixkv for vLLM's KV offloading. VLLM.md has the installation and the commands.

- `RadixKVTier`: a secondary tier. One region of shared memory for all replicas of the host, with
  files, Redis and object stores below it.
- `RadixKVCachePolicy`: the eviction policy of vLLM's own CPU memory.
- `RadixKVOffloadingSpec`: the region is the only cache, and vLLM's CPU memory is a staging area.

Importing this module checks the version of vLLM; the tests run with version `TESTED_WITH`.
"""

from radixkv.vllm._version import TESTED_WITH, check_version

_ADAPTERS = {
    "RadixKVCachePolicy": "radixkv.vllm._policy",
    "RadixKVOffloadingSpec": "radixkv.vllm._spec",
    "RadixKVTier": "radixkv.vllm._tier",
}

__all__ = ["TESTED_WITH", "RadixKVCachePolicy", "RadixKVOffloadingSpec", "RadixKVTier"]

check_version()


def __getattr__(name):
    """Imports an adapter at its first use: the specification needs vLLM's worker, the tier does
    not."""
    if name not in _ADAPTERS:
        raise AttributeError(f"module 'radixkv.vllm' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ADAPTERS[name]), name)
