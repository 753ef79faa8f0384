"""The runner of SGLang's own tests: what it counts where, on a file of tests of each sort."""

import os
import subprocess
import sys
from pathlib import Path

import loader
import pytest

RUNNER = Path(__file__).parent / "upstream.py"
SAMPLE = """
import unittest
from array import array

from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams, NameOfAnotherVersion
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


class TestSample(unittest.TestCase):
    def cached(self):
        cache = RadixCache.create_simulated(mock_allocator=unittest.mock.MagicMock(device="cpu"))
        key = RadixKey(array("q", [1, 2, 3]))
        cache.insert(InsertParams(key=key, value=None))
        return cache, cache.match_prefix(MatchPrefixParams(key=key))

    def test_interface(self):
        cache, match = self.cached()
        self.assertEqual((match.device_prefix_len, cache.evictable_size()), (3, 3))

    def test_interface_that_differs(self):
        # SGLang's tree evicts whole nodes.
        cache, match = self.cached()
        cache.evict(EvictParams(num_tokens=1))
        self.assertEqual(cache.total_size(), 0)

    def test_node(self):
        cache, match = self.cached()
        self.assertEqual(match.last_device_node.lock_ref, 0)

    def test_inside(self):
        self.cached()[0].evictable_leaves

    def test_feature(self):
        UnifiedRadixCache.init_hicache

    def test_component(self):
        UnifiedRadixCache(CacheInitParams(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=None, page_size=1,
            tree_components=(ComponentType.FULL, ComponentType.SWA),
        ))

    def test_other_class(self):
        self.assertEqual(len(RadixKey(array("q", [1]))), 1)

    @unittest.skip("for a GPU")
    def test_skipped(self):
        self.cached()

    def test_of_another_version(self):
        self.cached()
        NameOfAnotherVersion()
"""


def run(folder):
    return subprocess.run([sys.executable, RUNNER, folder], capture_output=True, text=True)


@pytest.mark.skipif(
    loader.sources() is None or os.environ.get("RADIXKV_TORCH") != "real",
    reason="needs RADIXKV_SGLANG, and torch (RADIXKV_TORCH=real)",
)
def test_each_test_is_counted_once_and_a_failure_of_the_interface_is_an_error(tmp_path):
    (tmp_path / "test_radix_sample.py").write_text(SAMPLE)
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED TestSample.test_interface_that_differs: AssertionError: 2 != 0" in done.stdout
    title, row = done.stdout.splitlines()[:2]
    counts = dict(zip(title.replace("SWA, Mamba", "other").replace("no cache", "no").split(), row.split()[1:]))
    expected = {"passed": 1, "FAILED": 1, "private": 2, "feature": 1, "other": 1, "no": 1, "skipped": 1, "does": 1}
    assert {name: int(counts[name]) for name in expected} == expected
    assert "private: evictable_leaves 1, node.lock_ref 1" in done.stdout
    assert "1 of the 4 that are for a tree of plain attention pass (25%)." in done.stdout


@pytest.mark.skipif(loader.sources() is None, reason="RADIXKV_SGLANG does not name SGLang's sources")
def test_a_folder_without_tests_is_an_error(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1 and "no tests of the prefix cache" in done.stderr


def test_without_sglangs_sources_the_error_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("RADIXKV_SGLANG", raising=False)
    done = run(tmp_path)
    assert done.returncode == 1 and "RADIXKV_SGLANG does not name" in done.stderr
