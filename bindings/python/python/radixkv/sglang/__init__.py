"""radixkv as SGLang's prefix cache: install the package, and pass `--radix-cache-backend radixkv`.

SGLang 0.5.23 loads `register` in every process through the entry-point group `sglang.srt.plugins`.
"""

NAME = "radixkv"

LOST = """\
radixkv is the prefix cache (--radix-cache-backend radixkv). These features of SGLang 0.5.23 need its own tree:
  hierarchical cache (--enable-hierarchical-cache), storage backends   refused
  external cache linker                                                not used
  models with sliding windows or Mamba state                           refused
  host-pool retraction (disaggregated decoding)                        refused
  session radix cache, streaming sessions                              refused by SGLang
  eviction policy tlru                                                 refused by SGLang
  KV sharding by logical pages, int8 Mamba checkpoints                 not used"""

_has_told = False


def register():
    """Registers the backend, once in each process."""
    from sglang.srt.mem_cache import registry

    if registry.get_radix_cache_factory(NAME) is None:
        registry.register_radix_cache_backend(NAME, create)


def create(context):
    """Creates the cache for a `TreeCacheBuildContext`. Raises ValueError for features that only
    SGLang's own tree has."""
    from sglang.srt.runtime_context import get_disagg

    from radixkv.sglang._cache import RadixKVCache

    refused = {
        "--enable-hierarchical-cache needs SGLang's own tree": context.enable_hierarchical_cache,
        "models with sliding windows are not supported": context.is_hybrid_swa,
        "models with Mamba state are not supported": context.is_hybrid_ssm,
        "host-pool retraction needs SGLang's own tree": get_disagg().disaggregation_decode_retraction_backup
        == "host_pool",
    }
    for reason, is_asked in refused.items():
        if is_asked:
            raise ValueError(f"--radix-cache-backend {NAME}: {reason}; remove one of the two")
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
