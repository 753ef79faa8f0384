"""radixkv as SGLang's prefix cache: install the package, and pass `--radix-cache-backend radixkv`.

SGLang 0.5.23 loads `register` in every process through the entry-point group `sglang.srt.plugins`.
"""

NAME = "radixkv"

LOST = """\
radixkv is the prefix cache (--radix-cache-backend radixkv). These features of SGLang 0.5.23 need its own tree:
  hierarchical cache (--enable-hierarchical-cache), storage backends   refused
  LMCache (--enable-lmcache), FlexKV (--enable-flexkv)                 refused
  models with sliding windows or Mamba state                           refused
  host-pool retraction (disaggregated decoding)                        refused
  sweeps of the KV canary (--kv-canary-sweep-interval)                 refused
  eviction policy tlru                                                 refused
  external cache linker                                                refused by SGLang
  KV sharding by logical pages, int8 Mamba checkpoints                 refused by SGLang
  session radix cache, streaming sessions                              refused by SGLang"""

_has_told = False


def register():
    """Registers the backend, once in each process."""
    from sglang.srt.mem_cache import registry

    if registry.get_radix_cache_factory(NAME) is None:
        registry.register_radix_cache_backend(NAME, create)


def create(context):
    """Creates the cache for a `TreeCacheBuildContext`. Raises ValueError for features that only
    SGLang's own tree has."""
    from sglang.srt.runtime_context import get_disagg, get_memory, get_observability

    from radixkv.sglang._cache import RadixKVCache

    memory, disaggregated, observed = get_memory(), get_disagg(), get_observability()
    refused = {
        "--enable-hierarchical-cache needs SGLang's own tree": context.enable_hierarchical_cache,
        # A decode server does not prefetch: there the storage backend is for its own offloading.
        "--hicache-storage-backend needs SGLang's own tree": memory.hicache_storage_backend
        and disaggregated.disaggregation_mode != "decode",
        "--enable-lmcache needs LMCache's own tree": memory.enable_lmcache,
        "--enable-flexkv needs FlexKV's own tree": memory.enable_flexkv,
        "--kv-canary-sweep-interval needs SGLang's own tree": observed.kv_canary_sweep_interval
        and observed.kv_canary != "none",
        "models with sliding windows are not supported": context.is_hybrid_swa,
        "models with Mamba state are not supported": context.is_hybrid_ssm,
    }
    for reason, is_asked in refused.items():
        if is_asked:
            raise ValueError(f"--radix-cache-backend {NAME}: {reason}; remove one of the two")
    if disaggregated.disaggregation_decode_retraction_backup == "host_pool":
        # SGLang's default on most decode servers.
        raise ValueError(
            f"--radix-cache-backend {NAME}: host-pool retraction needs SGLang's own tree; "
            "pass --disaggregation-decode-retraction-backup cpu_tensor"
        )
    cache = RadixKVCache(context.params)
    _tell_once(context)
    return cache


def _tell_once(context):
    from radixkv.sglang import _tested

    global _has_told
    params = context.params
    if context.tp_rank == params.pp_rank == params.attn_cp_rank == 0 and not _has_told:
        print(LOST, flush=True)
        _tested.check()
        _has_told = True
