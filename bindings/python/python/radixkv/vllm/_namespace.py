"""Derives a `DigestStore`'s namespace, the meaning of a chunk's bytes, from vLLM's configuration.

A chunk is one row of vLLM's CPU memory, with the results of all workers of the engine. So the
namespace has no rank. With multi-head latent attention, vLLM keeps one copy for all ranks, and so
does the region.
"""

import hashlib
import json

from radixkv.vllm._hashing import KEY_BYTES
from radixkv.vllm._version import TESTED_WITH, release

# Maximum bytes of a text in a namespace's settings.
LONGEST = 120


def describe(config, block_bytes, engine_hash, name=None):
    """The arguments of `DigestStore` that an `OffloadingConfig` determines."""
    model = shorten(config.model.name)
    tokens = config.groups[0].tokens_per_block if config.groups else config.cache.tokens_per_hash
    return {
        "namespace": name or shorten(f"vllm {release(TESTED_WITH)} {model}"),
        "key_bytes": KEY_BYTES,
        "block_bytes": block_bytes,
        "model": model,
        "dtype": shorten(str(config.model.dtype)),
        "layout": shorten(layout_of(config)),
        "hash_scheme": engine_hash.scheme,
        "hash_seed": shorten(engine_hash.seed),
        "rank": None,
        "block_tokens": tokens * config.cache.blocks_per_chunk,
    }


def layout_of(config):
    """The arrangement of keys and values in a chunk.

    Omits the numbers of ranks if vLLM reports that they do not change a chunk's bytes.
    """
    parallel = config.parallel
    if config.replicated_layout or parallel.is_parallelism_agnostic:
        ranks = "any"
    else:
        ranks = f"tp{parallel.tp_size}.pp{parallel.pp_size}.pcp{parallel.pcp_size}.dcp{parallel.dcp_size}"
    groups = [(group.tokens_per_block, *group.layer_names) for group in config.groups]
    digest = hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16]
    kind = "canonical" if config.canonical_layout else "direct"
    return (
        f"{kind} {config.kv_cache_layout} ranks={ranks} hash={config.cache.tokens_per_hash} "
        f"blocks={config.cache.blocks_per_chunk} groups={digest}"
    )


def shorten(text):
    """Shortens a text that is too long for a namespace to its digest and its end."""
    raw = text.encode()
    if len(raw) <= LONGEST:
        return text
    end = raw[-(LONGEST - 33) :].decode(errors="ignore")
    return f"{hashlib.sha256(raw).hexdigest()[:32]} {end}"
