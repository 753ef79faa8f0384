"""The HiCache backend touches no memory outside of the host pool, and opens nothing once closed."""

import loader
import numpy as np
import pytest

if loader.sources() is None:
    pytest.skip("RADIXKV_SGLANG does not name SGLang's sources", allow_module_level=True)

from hicache_world import PAGE, Server, hashes, indices, torch
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer

import radixkv

KEYS = hashes(list(range(2 * PAGE)))


@pytest.fixture
def region(tmp_path):
    return tmp_path / "region"


@pytest.mark.parametrize("layout", ["page_first", "layer_first", "page_first_direct", "page_head"])
def test_indices_outside_of_the_pool_are_refused(region, layout):
    server = Server(region, layout, pages=8)
    server.fill(1)
    assert server.back_up(list(range(PAGE)), [7]) == PAGE
    before = server.pool.kv_buffer.numpy().tobytes()
    outside = [indices([8]), indices([-1]), indices([1 << 40]), indices([7]) + 1]
    for given in outside:
        with pytest.raises(ValueError, match=f"at host index {int(given[0])} is outside of the pool, which has 32 tok"):
            server.storage.batch_get_v1(KEYS[:1], given)
        with pytest.raises(ValueError, match="is outside of the pool"):
            server.storage.batch_set_v1(KEYS[1:], given)
        transfer = PoolTransfer(name=PoolName.KV, host_indices=given, keys=KEYS[:1])
        assert server.storage.batch_get_v2([transfer]) == {PoolName.KV: [False]}
        assert server.storage.batch_set_v2([transfer]) == {PoolName.KV: [False]}
    # The first page is within the pool, the second is not: neither is copied.
    with pytest.raises(ValueError, match="at host index 32 is outside"):
        server.storage.batch_get_v1(KEYS, indices([0, 8]))
    assert server.pool.kv_buffer.numpy().tobytes() == before
    assert server.storage.batch_exists(KEYS) == 1
    assert server.storage.batch_get_v1(KEYS[:1], indices([7])) == [True]


def test_a_closed_storage_opens_nothing(region):
    server = Server(region, in_place=False)
    one = torch.from_numpy(np.ones(16, dtype=np.float32))
    assert server.storage.set(KEYS[0], one) is True
    server.storage.close()
    region.unlink()
    for call in (
        lambda: server.storage.set(KEYS[0], one),
        lambda: server.storage.get(KEYS[0], one),
        lambda: server.storage.register_mem_pool_host(server.pool),
    ):
        with pytest.raises(radixkv.ReleasedError, match="the storage was closed"):
            call()
    assert not region.exists()
    for copy in (server.storage.batch_set_v1, server.storage.batch_get_v1):
        with pytest.raises(ValueError, match="not registered"):
            copy(KEYS[:1], indices([0]))
    assert server.storage.batch_exists(KEYS) == 0
    server.storage.close()
