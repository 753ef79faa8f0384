"""Runs vLLM's own tests of tiering and offloading with radixkv in place of vLLM's classes.

    RADIXKV_VLLM=SOURCES python run_upstream.py FOLDER [-v]

FOLDER has vLLM's `tests`, from its repository or its source distribution; nothing of it is part of
this repository. SOURCES has `vllm`, from the wheel. Prints how each test file went, and each test
that did not pass. What is replaced:

| vLLM's | here |
|---|---|
| `ExampleSecondaryTierManager` | `RadixKVTier` over memory of the process; `submit_*` waits for the job |
| `FileSystemTierManager` | `RadixKVTier` over memory of the process and a tier of files |
| `LRUCachePolicy`, as the policy "lru" | `RadixKVCachePolicy` |
| `make_offload_key` of hashes of a few bytes | the same with 32 bytes |
"""

import collections
import contextlib
import io
import sys
import types
from pathlib import Path

import pytest
import vllm_sources

KV = "tests/v1/kv_offload/"
TIERS = [KV + "test_factory.py"] + [KV + f"tiering/test_{name}.py" for name in (
    "tiering_offloading", "factory", "metrics", "backpressure", "async_lookup", "tier_poll_thread", "fs_tier")]
POLICIES = [KV + "cpu/test_manager.py"]


def main(folder, *options):
    vllm_sources.load()
    sys.path.insert(0, folder)
    replace_keys()
    replace_example()
    replace_files()
    outcome = run(folder, TIERS, options)
    replace_lru()
    outcome |= run(folder, POLICIES, options)
    return outcome


def run(folder, files, options):
    report = Report()
    paths = [str(Path(folder) / file) for file in files]
    given = [*paths, "--noconftest", "--rootdir", folder, "-p", "no:cacheprovider", "--tb=short", *options]
    with contextlib.nullcontext() if options else contextlib.redirect_stdout(io.StringIO()):
        pytest.main(given, [report])
    return report.show()


class Report:
    def __init__(self):
        self._counts, self._failed = collections.defaultdict(collections.Counter), []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            file = report.nodeid.split("::")[0]
            self._counts[file][report.outcome] += 1
            if report.outcome == "failed":
                self._failed.append((report.nodeid, str(report.longrepr).strip().splitlines()[-1]))

    def pytest_collectreport(self, report):
        if report.failed:
            self._failed.append((report.nodeid, str(report.longrepr).strip().splitlines()[-1]))

    def show(self):
        for file, counts in self._counts.items():
            print(f"{file}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}")
        for test, reason in self._failed:
            print(f"  {test.removeprefix(KV)}\n      {reason[:160]}")
        return bool(self._failed)


def replace_keys():
    from vllm.v1.kv_offload import base

    make = base.make_offload_key
    base.make_offload_key = lambda block_hash, group: make(block_hash.rjust(32, b"\0"), group)


def make_spec(given):
    """A specification with vLLM's configuration, where a test has a mock."""
    import vllm_engine
    from vllm.v1.kv_offload.config import OffloadingConfig

    if isinstance(getattr(given, "config", None), OffloadingConfig):
        return given
    events = types.SimpleNamespace(enable_kv_cache_events=False)
    return types.SimpleNamespace(config=vllm_engine.config(), kv_events_config=events)


def replace_example():
    from vllm.v1.kv_offload.base import LookupResult, ReqContext
    from vllm.v1.kv_offload.tiering.example import manager

    from radixkv.vllm import RadixKVTier

    class Chunks:
        """The example's dict of stored keys."""

        def __init__(self, tier):
            self._tier = tier

        def __setitem__(self, key, present):
            store = self._tier._store
            store.wait(store.store([key], bytes(self._tier.block_size_bytes)))

        def __contains__(self, key):
            return self._tier.lookup(key, ReqContext(req_id="contains")) is LookupResult.HIT

    class ExampleSecondaryTierManager(RadixKVTier):
        def __init__(self, offloading_spec, primary_kv_view, tier_type, custom_param=0, **how):
            super().__init__(
                make_spec(offloading_spec), make_view(primary_kv_view), tier_type, region=None,
                region_bytes=1 << 20, region_block_bytes=4096, **how,
            )
            self._custom_param, self.chunks = custom_param, Chunks(self)

        def submit_store(self, job_metadata):
            super().submit_store(job_metadata)
            RadixKVTier.drain_jobs(self)

        def submit_load(self, job_metadata):
            super().submit_load(job_metadata)
            RadixKVTier.drain_jobs(self)

        def get_num_chunks(self):
            return self._region.stats()["blocks"]

        @classmethod
        def config_info_keys(cls, tier_config):
            return (*super().config_info_keys(tier_config), "example_info")

        def config_info(self):
            return {**super().config_info(), "example_info": self._custom_param}

    manager.ExampleSecondaryTierManager = ExampleSecondaryTierManager


def make_view(given):
    """Memory, where a test has a mock."""
    return given if isinstance(given, memoryview) else memoryview(bytearray(8 * 64)).cast("b", (8, 64))


def replace_files():
    from vllm.v1.kv_offload.base import Medium
    from vllm.v1.kv_offload.tiering.fs import manager

    from radixkv.vllm import RadixKVTier

    class FileSystemTierManager(RadixKVTier):
        medium = Medium.STORAGE

        def __init__(self, offloading_spec, primary_kv_view, tier_type, root_dir, **how):
            how = {name: value for name, value in how.items() if not name.startswith("n_")}
            files = {"type": "files", "folder": root_dir, "bytes": 256 << 20, "direct_io": False}
            super().__init__(
                make_spec(offloading_spec), primary_kv_view, tier_type, region=None, region_bytes=64 << 20,
                tiers=[files], **how,
            )
            # The tests wait until this queue of vLLM's has answers.
            self._lookup_manager = types.SimpleNamespace(_pending_results=self)

        def empty(self):
            list(self.get_finished_jobs()) if not self._jobs else None
            return self._lookups.waiting

    manager.FileSystemTierManager = FileSystemTierManager


def replace_lru():
    from vllm.v1.kv_offload.cpu.policies import lru
    from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory

    from radixkv.vllm import RadixKVCachePolicy

    lru.LRUCachePolicy = RadixKVCachePolicy
    CachePolicyFactory._registry["lru"] = lambda: RadixKVCachePolicy


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
