"""What SGLang's own tests of its prefix cache import, with SGLang's tree or ours behind the names.

`load(tree)` makes SGLang importable on a machine that has only torch, and puts one of the two
behind `UnifiedRadixCache` and `RadixCache`. Ours raises `Missing` for everything that is no part of
the interface of the cache: SGLang's `BasePrefixCache`, with handles for nodes.
"""

import importlib
import inspect
import re
import sys
import types
import unittest
import unittest.mock
from pathlib import Path

import loader
from upstream_older import RENAMED, Older, row_of, spelled

CACHE, KITS = "sglang.srt.mem_cache.", "sglang.test.kits.unified_radix_cache."
FOLDERS = ("", "allocator", "layout", "pool_host", "hybrid_cache")
MORE = {
    "sglang.srt.dllm.mixin.req",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.sampling.sampling_params",
    "sglang.test.mem_cache_utils",
}

# The caches of the test that runs.
built = []


class Missing(AttributeError):
    """A test uses what no custom backend has. `kind` is a column of the runner's table."""

    def __init__(self, kind, name):
        super().__init__(f"{kind}: {name}")
        self.kind, self.name = kind, name


class Gone:
    """A name that this version of SGLang does not have."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise Missing("does not fit", self.name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise Missing("does not fit", f"{self.name}.{name}")

    def __mro_entries__(self, bases):
        return ()


def load(tree):
    """Puts `tree`, "ours" or "theirs", behind SGLang's names."""
    loader.load(MORE | {*_modules(CACHE, FOLDERS), *_modules(KITS, ("",))})
    importlib.import_module("sglang.srt.utils").get_device = lambda *args: "cpu"
    importlib.import_module("sglang.test.test_utils").CustomTestCase = unittest.TestCase
    # The cache keeps numbers of slots; no test of the interface needs the keys and values in them.
    memory = importlib.import_module(CACHE + "memory_pool")
    windows = importlib.import_module(CACHE + "swa_memory_pool")
    memory.MHATokenToKVPool = memory.HybridLinearKVPool = memory.HybridReqToTokenPool = loader.Nothing
    windows.SWAKVPool = importlib.import_module(CACHE + "allocator.swa").SWATokenToKVPoolAllocator = loader.Nothing
    for module, name in (("unified_radix_cache", "UnifiedRadixCache"), ("radix_cache", "RadixCache")):
        module = importlib.import_module(CACHE + module)
        own = getattr(module, name)
        new = _theirs(own) if tree == "theirs" else _ours(own)
        new.__name__ = new.__qualname__ = name
        new.create_simulated = classmethod(_create_simulated)
        setattr(module, name, new)
    fixtures = loader.sources() / KITS.replace(".", "/") / "fixtures.py"
    if fixtures.exists():
        # Without its assertions: the two say that the cache has the core of SGLang's tree.
        _execute(KITS + "fixtures", fixtures, optimize=1)


def _modules(package, folders):
    root = loader.sources() / package.replace(".", "/")
    for folder in folders:
        for path in (root / folder).glob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            if parts != ("__init__",):
                yield package + ".".join(parts).removesuffix(".__init__")


def _execute(name, path, source=None, **options):
    module = types.ModuleType(name)
    module.__file__, module.row_of = str(path), row_of
    sys.modules[name] = module
    exec(compile(source or path.read_text(), str(path), "exec", **options), vars(module))
    return module


def _theirs(own):
    class Theirs(Older, own):
        def __init__(self, params):
            built.append(self)
            super().__init__(params)
            if hasattr(self, "session"):
                self.session = loader.no_sessions()

    return Theirs


def _ours(own):
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

    from radixkv.sglang import _cache

    def missing(name):
        """A public method that only SGLang's tree has is a feature; the rest is its inside."""
        if name.startswith("__"):
            return AttributeError(name)
        is_feature = not name.startswith("_") and inspect.isroutine(inspect.getattr_static(own, name, None))
        return Missing("feature" if is_feature else "private", name)

    class Kind(type(_cache.RadixKVCache)):
        def __getattr__(cls, name):
            raise missing(name)

    class Ours(Older, _cache.RadixKVCache, metaclass=Kind):
        def __init__(self, params):
            built.append(self)
            for component in params.tree_components or ():
                if component is not ComponentType.FULL:
                    raise Missing("SWA, Mamba", component.name)
            for field in ("component_registry_override", "enable_session_radix_cache"):
                if getattr(params, field, None):
                    raise Missing("feature", field)
            super().__init__(params)

        def total_size(self):
            # One number in `RadixCache`; in `UnifiedRadixCache` that of other components as well.
            total = super().total_size()
            return total[0] if own.__name__ == "RadixCache" else total

        def __getattr__(self, name):
            raise missing(name)

    _cache.Node.__getattribute__ = _closed_to_tests(_cache.Node)
    return Ours


def _closed_to_tests(node):
    """Nodes are handles: only the cache looks into them."""
    insides = str(Path(sys.modules[node.__module__].__file__).parent)

    def attribute(self, name):
        if not name.startswith("__") and not sys._getframe(1).f_code.co_filename.startswith(insides):
            raise Missing("private", f"node.{name}")
        return object.__getattribute__(self, name)

    return attribute


def _create_simulated(cls, disable=False, mock_allocator=None, page_size=1, enable_kv_cache_events=False, **rest):
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams

    if isinstance(mock_allocator, unittest.mock.Mock):
        mock_allocator.page_size = page_size
    return cls(
        CacheInitParams(
            disable=disable,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=mock_allocator,
            page_size=page_size,
            enable_kv_cache_events=enable_kv_cache_events,
            **rest,
        )
    )


def import_test(path):
    """The module of a file of tests. Names that SGLang does not have are there, and raise."""
    source = spelled(path.read_text())
    sys.path.insert(0, str(path.parent))
    for found in re.finditer(r"^[ \t]*from (sglang[\w.]*) import (\([^)]*\)|[^\n]*)", source, re.MULTILINE):
        name, imported = found.groups()
        now = CACHE + RENAMED[name[len(CACHE) :]] if name[len(CACHE) :] in RENAMED else name
        try:
            module = importlib.import_module(now)
        except ModuleNotFoundError:
            module = types.ModuleType(name)
        sys.modules[name] = module
        for part in re.sub(r"#[^\n]*|[()]", "", imported).split(","):
            part = part.strip().split(" as ")[0]
            if part and not hasattr(module, part):
                setattr(module, part, Gone(f"{name}.{part}"))
    return _execute(path.stem, path, source)
