"""The commands of VLLM.md."""

import contextlib
import inspect
import json
import os
import re
from pathlib import Path

import pytest
import vllm_sources

if vllm_sources.sources() is None:
    pytest.skip("RADIXKV_VLLM does not name vLLM's sources", allow_module_level=True)

import vllm_engine
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
from vllm.v1.kv_offload.factory import OffloadingSpecFactory
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

from radixkv import _vllm_plugin

PAGE = (Path(__file__).parents[2] / "VLLM.md").read_text()
SIZE = 4 << 20
PROMPT = list(range(1, 65))


def commands():
    return [json.loads(found) for found in re.findall(r"--kv-transfer-config '(.*?)'", PAGE, re.DOTALL)]


def sized(extra, region):
    """The options with sizes for a test, and with another region."""
    extra["cpu_bytes_to_use"] = 64 * vllm_engine.CHUNK
    for options in (*extra.get("secondary_tiers", ()), extra.get("radixkv", {})):
        if "region" in options:
            options.update(region=region, region_bytes=SIZE)
    return extra


@pytest.fixture
def _registries(monkeypatch):
    for factory in (CachePolicyFactory, OffloadingSpecFactory, SecondaryTierFactory):
        monkeypatch.setattr(factory, "_registry", dict(factory._registry))
    _vllm_plugin.register()


@pytest.mark.parametrize("which", range(2))
def test_the_commands_cache(which, region, _registries):
    given = commands()[which]
    fields = set(re.findall(r"^    (\w+):", (vllm_sources.sources() / "vllm/config/kv_transfer.py").read_text(), re.M))
    assert set(given) <= fields and given["kv_connector"] == "OffloadingConnector"
    policy = json.loads("{" + re.search(r'^"eviction_policy".*$', PAGE, re.M).group() + "}")
    vllm_engine.start_hashing()
    extra = sized({**given["kv_connector_extra_config"], **policy}, region)
    configured = vllm_engine.config(f"radixkv-page-{os.getpid()}", **extra)
    with contextlib.closing(vllm_engine.Replica(configured)) as replica:
        assert replica.run(PROMPT) == 0
        replica.settle()
        replica.manager.primary_tier.reset_cache()
        assert replica.run(PROMPT) == 4


def test_the_page_has_two_commands_and_every_option_of_the_tier():
    from radixkv.vllm import RadixKVTier

    assert len(commands()) == 2
    options = [
        name
        for name, parameter in inspect.signature(RadixKVTier).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert not [name for name in options if f"`{name}`" not in PAGE]
