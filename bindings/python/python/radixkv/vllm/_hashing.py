"""The hash of vLLM's keys: the scheme, and the seed of `NONE_HASH`.

The region compares no tokens, so correct answers need a hash without known collisions. Keys with
different seeds never match.
"""

from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils

# A SHA-256 digest, and the index of a group of layers.
KEY_BYTES = 36
SCHEMES = ("sha256", "sha256_cbor")


class EngineHash:
    """The scheme and the seed of an engine, possibly before it computes its first hash.

    Raises ValueError for xxHash, and if the option, vLLM's configuration and vLLM's actual hash
    differ.
    """

    def __init__(self, option=None):
        self.scheme = _resolve_scheme(option)
        # vLLM computes `NONE_HASH` after it has created its tiers.
        self.seed = kv_cache_utils.resolve_none_hash_seed(get_hash_fn_by_name(self.scheme))
        self.is_checked = False
        self.check()

    def check(self):
        """Compares with vLLM's actual hash, once vLLM has computed `NONE_HASH`."""
        none_hash = getattr(kv_cache_utils, "NONE_HASH", None)
        if self.is_checked or none_hash is None:
            return
        if none_hash != get_hash_fn_by_name(self.scheme)(self.seed):
            self._refuse(none_hash)
        self.is_checked = True

    def _refuse(self, none_hash):
        found, seed = _found_scheme(none_hash), kv_cache_utils.get_none_hash_seed()
        if found not in SCHEMES:
            raise ValueError(_refusal(found))
        raise ValueError(
            f"vLLM hashes with {found!r} and the seed {seed!r}, but the namespace has {self.scheme!r} and the "
            f"seed {self.seed!r}: set hash_algo to {found!r}, and PYTHONHASHSEED before vLLM starts"
        )


def _resolve_scheme(option):
    """The scheme: the option or vLLM's configuration, which must agree, or else vLLM's default."""
    configured = _configured_scheme()
    if option is not None and configured is not None and option != configured:
        raise ValueError(
            f"hash_algo is {option!r}, but vLLM hashes with --prefix-caching-hash-algo {configured!r}: "
            "remove hash_algo"
        )
    scheme = option or configured or SCHEMES[0]
    if scheme not in SCHEMES:
        raise ValueError(_refusal(scheme))
    return scheme


def _configured_scheme():
    from vllm.config import get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    scheme = config.cache_config.prefix_caching_hash_algo if config is not None else None
    return scheme if isinstance(scheme, str) else None


def _found_scheme(none_hash):
    seed = kv_cache_utils.get_none_hash_seed()
    for scheme in SCHEMES:
        if none_hash == get_hash_fn_by_name(scheme)(seed):
            return scheme
    return "xxhash" if len(none_hash) == 16 else "an unknown hash"


def _refusal(scheme):
    return (
        f"vLLM hashes prefixes with {scheme!r}, which is not collision-resistant, but radixkv identifies blocks "
        f"only by their hash: start vLLM with --prefix-caching-hash-algo {SCHEMES[0]} or {SCHEMES[1]}"
    )
