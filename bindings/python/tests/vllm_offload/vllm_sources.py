"""vLLM's offloading classes from the sources of its wheel, without what a whole vLLM needs.

`load()` makes the scheduler's side importable: managers, policies, tiers and specifications. Every
other module of vLLM is replaced by one whose names are `Nothing`; torch is replaced by the stand-in
of the tests for SGLang, or is the real one with `RADIXKV_TORCH=real`. The folder that has `vllm` is
named by the environment variable `RADIXKV_VLLM`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sglang"))
from loader import _Module  # noqa: E402

CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1."
REAL = (
    "vllm.v1.kv_offload",
    "vllm.v1.kv_hints",
    "vllm.v1.metrics.cache_hit_source",
    "vllm.v1.core.kv_cache_utils",
    "vllm.utils.hashing",
    "vllm.utils.math_utils",
    CONNECTOR + "metrics",
    CONNECTOR + "offloading",
)
# Of these, what only copies from and to a GPU.
DEVICE = ("vllm.v1.kv_offload.cpu.gpu_worker",)
# Packages whose own code is not run.
FOLDERS = (
    "vllm",
    "vllm.v1",
    "vllm.v1.core",
    "vllm.v1.metrics",
    "vllm.utils",
    "vllm.distributed",
    "vllm.distributed.kv_transfer",
    "vllm.distributed.kv_transfer.kv_connector",
    "vllm.distributed.kv_transfer.kv_connector.v1",
)
OTHERS = {"cbor2", "prometheus_client", "torch", "vllm", "zmq"}
# Of those, what is used as it is where it is installed.
INSTALLED = {"cbor2", "prometheus_client"}


class Logger(logging.Logger):
    """vLLM's loggers tell some things once."""

    info_once = logging.Logger.info
    warning_once = logging.Logger.warning


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top not in OTHERS or name not in DEVICE and any(f"{name}.".startswith(real + ".") for real in REAL):
            return None
        if top == "torch" and os.environ.get("RADIXKV_TORCH") == "real":
            return None
        if top in INSTALLED and _is_installed(top):
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


def _is_installed(name):
    return any(
        finder.find_spec(name, None) for finder in sys.meta_path if not isinstance(finder, _Finder)
    )


def sources():
    """The folder that has `vllm`; None if there is none."""
    folder = os.environ.get("RADIXKV_VLLM")
    return Path(folder) if folder and (Path(folder) / "vllm/v1/kv_offload").is_dir() else None


def load():
    """Makes vLLM's offloading classes importable; once."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in FOLDERS:
        module = types.ModuleType(name)
        module.__path__ = [str(sources().joinpath(*name.split(".")))]
        _add(module)
    sys.modules["vllm"].__version__ = _version()
    told = types.ModuleType("vllm.logger")
    told.init_logger = lambda name: Logger(name, logging.ERROR)
    _add(told)
    config = _Module("vllm.config")
    config.get_current_vllm_config_or_none = lambda: None
    _add(config)


def _add(module):
    """Makes a module importable, and an attribute of its package."""
    sys.modules[module.__name__] = module
    package, _, name = module.__name__.rpartition(".")
    if package:
        setattr(sys.modules[package], name, module)


def _version():
    path = sources() / "vllm/_version.py"
    spec = importlib.util.spec_from_file_location("vllm_version", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.__version__
