"""SGLang's prefix caches from the sources of its wheel, without what a whole SGLang needs.

`load()` imports the modules of `mem_cache` that hold trees and their interface, and those that hold
host pools and storage backends. Every other module, of SGLang or not, is replaced by one whose names are `Nothing`; torch is replaced by a stand-in, or
is the real one with `RADIXKV_TORCH=real`. Then `RADIXKV_SGLANG_CORE=rust` takes SGLang's core in
Rust instead of the one in Python. The folder that has `sglang` is named by the environment variable
`RADIXKV_SGLANG`.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from array import array
from pathlib import Path

CACHE = "sglang.srt.mem_cache."
REAL = {CACHE + name for name in "base_prefix_cache cache_init_params common events evict_policy hicache_storage radix_cache registry "
        "unified_radix_cache utils storage storage.backend_factory pool_host pool_host.base pool_host.common pool_host.hisparse "
        "pool_host.mha pool_host.mla pool_host.page_unified hybrid_cache hybrid_cache.hybrid_cache_controller".split()} | {
    "sglang.srt.disaggregation.kv_events", "sglang.srt.environ", "sglang.srt.managers.cache_controller"}
RUST = CACHE + "rust_tree_core"
STUBBED = {"orjson", "org", "psutil", "pydantic", "sglang", "torch", "transformers", "triton", "zmq"}
INSTALLED = {"msgspec", "numpy", "radixkv", "typing_extensions"}
FOLDERS = ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.disaggregation", "sglang.srt.managers")


class Nothing:
    """Anything that is only mentioned. As a decorator it leaves functions as they are."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return Nothing()

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __mro_entries__(self, bases):
        return ()

    def __or__(self, other):
        return Nothing()

    __ror__ = __or__

    def __getitem__(self, key):
        return Nothing()

    def __iter__(self):
        return iter(())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def __bool__(self):
        return False

    def __gt__(self, other):
        return False

    def __lt__(self, other):
        return False

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


class _Module(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        is_real = top in INSTALLED or top in sys.stdlib_module_names or name in REAL
        if is_real or name.startswith((CACHE + "unified_cache", RUST)):
            return None
        if top not in STUBBED:
            return None
        if top == "torch" and os.environ.get("RADIXKV_TORCH") == "real":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        if spec.name == "torch":
            import standin_torch

            standin_torch.__path__ = []
            return standin_torch
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def sources():
    """The folder that has `sglang`; None if there is none."""
    folder = os.environ.get("RADIXKV_SGLANG")
    return Path(folder) if folder and (Path(folder) / "sglang/srt/mem_cache").is_dir() else None


def no_sessions():
    """In place of the sessions of SGLang's tree, whose module is not there: none is open."""
    return types.SimpleNamespace(
        try_match_prefix=lambda params: None,
        try_checkpoint=lambda req, **rest: False,
        any_holding_kv=lambda: False,
        slots={},
    )


def load(more=()):
    """Makes `sglang.srt.mem_cache` importable, and the modules `more` of SGLang; once."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    REAL.update(more)
    for name in (*FOLDERS, *sorted({name.rpartition(".")[0] for name in more} - REAL - {*FOLDERS})):
        module = types.ModuleType(name)
        module.__path__ = [str(sources().joinpath(*name.split(".")))]
        sys.modules[name] = module
    hashes = types.ModuleType(CACHE + "cpp_utils.native_hash")
    hashes.get_native_hash = _hash
    sys.modules[hashes.__name__] = hashes
    os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = core = os.environ.get("RADIXKV_SGLANG_CORE", "python")
    if core == "rust":
        _load_rust()


def _load_rust():
    """SGLang's extension as it lies in the wheel, without a look at whether it should be built
    anew."""
    import torch  # noqa: F401  The extension needs its libraries.

    built = importlib.import_module(RUST + ".mem_cache")
    extension = types.ModuleType(RUST + ".extension")
    extension.bindings = built
    extension.__dict__.update({name: getattr(built, name) for name in dir(built) if not name.startswith("__")})
    sys.modules[extension.__name__] = extension
    registry = importlib.import_module(CACHE + "unified_cache.tree_core_registry")
    registry._rust_fallback_reason = lambda params: None


def _hash(key, prior, page_size=None):
    """What SGLang's extension in C++ computes: a chain of hashes of pages, as hexadecimal digits."""
    units, digest, chain = list(key), prior or b"", []
    length = page_size or max(len(units), 1)
    for start in range(0, max(len(units), 1), length):
        page = units[start : start + length]
        words = [word for unit in page for word in (unit if isinstance(unit, tuple) else (unit,))]
        tag, kind = (b"\xff", "Q") if any(word >> 32 for word in words) else (b"", "I")
        digest = hashlib.sha256(digest + tag + array(kind, words).tobytes()).digest()
        chain.append(digest.hex())
    return chain if page_size else chain[-1]
