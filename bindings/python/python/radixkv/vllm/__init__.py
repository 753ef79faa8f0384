"""radixkv below vLLM's KV offloading. VLLM.md says how to install it and has the commands.

- `RadixKVTier`: a secondary tier. One region of shared memory for all replicas of the host, with
  files, Redis and object stores below it.
- `RadixKVCachePolicy`: which blocks vLLM's own CPU memory keeps.
- `RadixKVOffloadingSpec`: the region as the one cache, and vLLM's CPU memory as a window to it.

Importing this module checks the version of vLLM: `TESTED_WITH` is what the tests run with.
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
    """Imports an adapter when it is asked for: the specification needs vLLM's worker, and the tier
    does not."""
    if name not in _ADAPTERS:
        raise AttributeError(f"module 'radixkv.vllm' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_ADAPTERS[name]), name)
