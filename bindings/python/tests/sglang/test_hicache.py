"""The HiCache backend, made and called by SGLang's own factory and cache controller over its own
host pools: round trips, servers that share a region, ranks, and what is refused."""

import hashlib
import random
import subprocess
import sys
import threading
import types
import warnings

import loader
import numpy as np
import pytest

if loader.sources() is None:
    pytest.skip("RADIXKV_SGLANG does not name SGLang's sources", allow_module_level=True)

import hicache_world
import torch
from hicache_world import PAGE, HybridServer, Server, hashes, indices, pool
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, PoolHitPolicy, PoolName, PoolTransfer

import radixkv
from radixkv.sglang import _tested
from radixkv.sglang.hicache import RadixKVStorage

LAYOUTS = [
    *((layout, False) for layout in ("page_first", "layer_first", "page_first_direct", "page_head")),
    *((layout, True) for layout in ("page_first", "layer_first", "page_first_direct")),
]


@pytest.fixture
def region(tmp_path):
    return tmp_path / "region"


def tokens(pages, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 16, pages * PAGE).tolist()


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("layout, mla", LAYOUTS)
def test_pages_come_back_as_they_went(region, layout, mla, in_place):
    server = Server(region, layout, mla=mla, in_place=in_place)
    server.fill(1)
    stored = [server.page(page) for page in (6, 3, 1)]
    assert server.prefetch(tokens(5), [0, 1, 2, 3, 4]) == 0
    assert server.back_up(tokens(3), [6, 3, 1]) == 3 * PAGE
    assert server.back_up(tokens(3), [6, 3, 1]) == 3 * PAGE
    other = Server(region, layout, mla=mla, in_place=in_place)
    other.fill(2)
    kept = [other.page(page) for page in (1, 2, 6)]
    assert other.prefetch([*tokens(3), *tokens(2, seed=9)], [5, 0, 7, 1, 2]) == 3 * PAGE
    assert [other.page(page) for page in (5, 0, 7)] == stored
    assert [other.page(page) for page in (1, 2, 6)] == kept, "no other page is touched"
    assert other.prefetch(tokens(1, seed=9), [1]) == 0
    # The first page is missing: what follows is no prefix.
    assert other.storage.batch_exists(hashes(tokens(1, seed=9)) + hashes(tokens(3))) == 0


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_what_one_server_stored_another_process_loads(region, layout):
    server = Server(region, layout)
    server.fill(4)
    assert server.back_up(list(range(3 * PAGE)), [0, 1, 2]) == 3 * PAGE
    expected = hashlib.sha256(b"".join(server.page(page) for page in (0, 1, 2))).hexdigest()
    loaded = subprocess.run(
        [sys.executable, hicache_world.__file__, "load", str(region), layout, "5"],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert loaded.stdout.split() == [str(3 * PAGE), expected], loaded.stderr


def test_what_a_killed_server_stored_is_loaded(region):
    program = [sys.executable, hicache_world.__file__, "store", str(region), "page_first", "6"]
    child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip() == str(3 * PAGE)
    child.kill()
    child.communicate()
    server, like_it = Server(region), Server(region)
    like_it.fill(6)
    assert server.prefetch(list(range(3 * PAGE)), [1, 2, 3]) == 3 * PAGE
    assert [server.page(page) for page in (1, 2, 3)] == [like_it.page(page) for page in (5, 2, 7)]


def test_ranks_have_their_own_blocks_and_latent_attention_has_one_copy(region, tmp_path):
    ranks = [Server(region, rank=rank, ranks=2) for rank in range(2)]
    ranks[0].fill(1)
    ranks[0].back_up(tokens(2), [0, 1])
    assert [rank.prefetch(tokens(2), [4, 5]) for rank in ranks] == [2 * PAGE, 0]
    ranks = [Server(tmp_path / "mla", mla=True, rank=rank, ranks=2) for rank in range(2)]
    ranks[0].fill(1)
    ranks[0].back_up(tokens(2), [0, 1])
    assert [rank.prefetch(tokens(2), [4, 5]) for rank in ranks] == [2 * PAGE] * 2
    assert ranks[1].page(4) == ranks[0].page(0)
    assert radixkv.DigestRegion(str(tmp_path / "mla")).stats()["blocks"] == 2
    with pytest.raises(ValueError, match="a tier of files is open in one process at a time"):
        Server(tmp_path / "mla", mla=True, ranks=2, tiers=[{"type": "files", "folder": "f", "bytes": 1}])


def test_files_below_the_region_outlive_it(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / "files"), "bytes": 1 << 20}]
    server = Server(region, tiers=tiers)
    server.fill(3)
    stored = [server.page(page) for page in (0, 1)]
    server.back_up(tokens(2), [0, 1])
    server.storage.close()
    region.unlink()
    server = Server(region, tiers=tiers)
    assert server.prefetch(tokens(3), [6, 5, 4]) == 2 * PAGE
    assert [server.page(page) for page in (6, 5)] == stored
    (stats,) = server.storage.stats().values()
    assert (stats["loaded"], stats["tiers"][0]["hits"]) == (4, 4)


class Files(HiCacheFile):
    """SGLang's rule for what can be restored, over a set of names."""

    def __init__(self, names):
        self.names, self.config_suffix, self.tp_config_suffix = names, "", ""

    def _collect_existing_component_keys(self, keys, pool_transfers=None):
        return {f"{name}.bin" for name in self.names}


def test_what_can_be_restored_is_what_sglangs_own_backend_says(region):
    draw = random.Random(3)
    server = Server(region, pools={"indexer": "1MiB", "swa": "1MiB"})
    indexer, states = pool("page_first", mla=True), pool("page_first_direct", mla=True)
    for side, name in ((indexer, PoolName.INDEXER), (states, PoolName.SWA)):
        server.storage.register_mem_host_pool_v2(side, name)
        assert server.storage.registered_pools[name] is side
    for turn in range(60):
        keys = [hashlib.sha256(f"{turn} {at}".encode()).hexdigest() for at in range(6)]
        names = set()
        for name in (PoolName.KV, PoolName.INDEXER, PoolName.SWA):
            some = [at for at in range(6) if draw.random() < 0.85]
            transfer = PoolTransfer(name=name, host_indices=indices(some), keys=[keys[at] for at in some])
            assert server.storage.batch_set_v2([transfer]) == {name: [True] * len(some)}
            names |= {keys[at] if name == PoolName.KV else f"{keys[at]}.{name}" for at in some}
        transfers = [
            PoolTransfer(name=PoolName.INDEXER),
            PoolTransfer(name=PoolName.SWA, keys=keys[: draw.randint(0, 3)], hit_policy=PoolHitPolicy.TRAILING_PAGES),
        ][: draw.randint(0, 2)]
        ours = server.storage.batch_exists_v2(keys, transfers)
        assert ours == Files(names).batch_exists_v2(keys, transfers), (turn, sorted(names))
    with pytest.raises(ValueError, match="hit policy"):
        server.storage.batch_exists_v2(keys, [PoolTransfer(name=PoolName.SWA, hit_policy=PoolHitPolicy.BLOCK_GROUPS)])


def test_side_pools_are_loaded_with_their_pages(region):
    servers = [Server(region, pools={"indexer": "1MiB"}) for _ in range(2)]
    sides = [pool("page_first_direct", mla=True) for _ in servers]
    keys = hashes(tokens(3))
    for server, side in zip(servers, sides, strict=True):
        server.storage.register_mem_host_pool_v2(side, PoolName.INDEXER)
    values = sides[0].kv_buffer.numpy()
    values[...] = np.random.default_rng(1).integers(-9, 9, values.shape)
    store = [PoolTransfer(name=PoolName.INDEXER, host_indices=indices([4, 5, 6]), keys=keys)]
    assert servers[0].storage.batch_set_v2(store) == {"indexer": [True] * 3}
    asked = [*keys, *hashes(tokens(1, seed=7))]
    load = [PoolTransfer(name=PoolName.INDEXER, host_indices=indices([1, 0, 2, 3]), keys=asked)]
    assert servers[1].storage.batch_get_v2(load) == {"indexer": [True, True, True, False]}
    assert (sides[1].kv_buffer.numpy()[[1, 0, 2]] == values[[4, 5, 6]]).all()
    # Two pools have equal keys and other blocks.
    assert servers[1].storage.batch_exists(keys) == 0


@pytest.mark.parametrize("in_place", [True, False])
def test_the_controller_of_hybrid_models_stores_and_loads_all_pools(region, in_place):
    """An indexer with the pages of the keys and values, and a window of its own."""
    names, sizes = (PoolName.INDEXER, PoolName.SWA), {"indexer": "1MiB", "swa": "1MiB"}
    sides = [{name: pool("page_first_direct", mla=True) for name in names} for _ in range(2)]
    one, other = (HybridServer(region, side, pools=sizes, in_place=in_place) for side in sides)
    one.fill(1)
    for seed, side in enumerate(sides[0].values()):
        values = side.kv_buffer.numpy()
        values[...] = np.random.default_rng(seed).integers(-9, 9, values.shape)
    keys, trailing = hashes(tokens(4)), PoolHitPolicy.TRAILING_PAGES

    def transfers(pages, keys):
        window = PoolTransfer(name=PoolName.SWA, host_indices=indices(pages), keys=keys, hit_policy=trailing)
        return [PoolTransfer(name=PoolName.INDEXER, indices_from_pool=PoolName.KV), window]

    assert one.back_up(tokens(4), [7, 6, 5, 4], transfers([1, 2], keys[2:])) == 4 * PAGE
    asked = tokens(4) + tokens(1, seed=9)
    loaded = other.prefetch(asked, [0, 1, 2, 3], transfers([5, 6], hashes(asked)[3:]))
    assert loaded == (4, {PoolName.SWA: 2})
    assert [other.page(page) for page in range(4)] == [one.page(page) for page in (7, 6, 5, 4)]
    indexers, windows = ([side[name].kv_buffer.numpy() for side in sides] for name in names)
    assert (indexers[1][:4] == indexers[0][[7, 6, 5, 4]]).all() and (windows[1][[5, 6]] == windows[0][[1, 2]]).all()
    # Without its window a prefix cannot be restored.
    lost = one.prefetch(tokens(3), [0, 1, 2], transfers([5, 6], keys[1:3]))
    assert lost[0] == 0


def test_a_draft_with_heads_is_split_between_ranks(region):
    ranks = [Server(region, mla=True, rank=rank, ranks=2, pools={"draft": "1MiB"}) for rank in range(2)]
    for rank in ranks:
        rank.storage.register_mem_host_pool_v2(pool("page_first"), PoolName.DRAFT)
    transfers = [PoolTransfer(name=PoolName.DRAFT, host_indices=indices([0]), keys=hashes(tokens(1)))]
    assert ranks[0].storage.batch_set_v2(transfers) == {"draft": [True]}
    assert [rank.storage.batch_get_v2(transfers) for rank in ranks] == [{"draft": [True]}, {"draft": [False]}]


def test_values_are_stored_by_tensor_or_by_address(region):
    settings = hicache_world.config(extra={"region": str(region), "size": 1 << 20})
    storage = RadixKVStorage(settings, {"unknown": 1}, more=2)
    storage.register_mem_pool_host(pool("page_first"))
    values = np.arange(64, dtype=np.float32)
    one, two, three = (torch.from_numpy(values[at : at + 16]) for at in (0, 16, 32))
    first, second = hashes(tokens(2))
    assert not storage.exists(first) and storage.get(first, two) is None
    assert storage.set(first, one) is True and storage.exists(first)
    assert storage.get(first, two) is two and (values[16:32] == values[:16]).all()
    assert storage.set(second, target_location=one.data_ptr(), target_sizes=64) is True
    assert storage.get(second, target_location=three.data_ptr(), target_sizes=64) is True
    assert (values[32:48] == values[:16]).all()
    # Keys that are no hashes, and hashes with suffixes, are blocks of their own.
    for key in ("test_5f2b-11", "a", first + "_0_2", first + ".mamba"):
        assert not storage.exists(key) and storage.set(key, one) and storage.exists(key)
    got = storage.batch_get([first, "no such key", second], [two, three, two])
    assert got[0] is two and got[1] is None
    assert storage.batch_set([first, second], [one, two]) is True
    assert storage.clear() is True and not storage.exists(first)
    for call, words in [
        (lambda: storage.set(first), "neither a tensor nor an address"),
        (lambda: storage.batch_set([first, second], [one]), "1 values or locations given for 2 keys"),
        (lambda: storage.get(first, torch.from_numpy(values[::2])), "not contiguous"),
        (lambda: storage.set(first, torch.from_numpy(np.zeros(1 << 19))), "blocks of 4194304 bytes requested"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    storage.close()


def test_keys_of_other_lengths_are_refused(region):
    server = Server(region)
    right = hashes(tokens(1))[0]
    for wrong in (right[:-2], right + "ab", "ab" * 16):
        with pytest.raises(ValueError, match=f"has {len(wrong)} hexadecimal digits, the SHA-256 of a page has 64"):
            server.storage.batch_get_v1([wrong], indices([0]))
        with pytest.raises(ValueError, match="hexadecimal digits"):
            server.storage.batch_exists([right, wrong])
        transfer = PoolTransfer(name=PoolName.KV, host_indices=indices([0]), keys=[wrong])
        assert server.storage.batch_set_v2([transfer]) == {"kv": [False]}
    assert server.storage.batch_exists([right]) == 0


def test_indices_that_are_not_of_the_pages_are_refused(region, caplog):
    server = Server(region)
    keys = hashes(tokens(2))
    for given in (indices([0]), indices([0, 1, 2]), indices([0, 1])[:-1]):
        with pytest.raises(ValueError, match=f"{len(given)} host indices for 2 pages of {PAGE} tokens"):
            server.storage.batch_set_v1(keys, given)
    for transfer in (
        PoolTransfer(name=PoolName.KV, keys=keys),
        PoolTransfer(name=PoolName.KV, host_indices=indices([0]), keys=keys),
        PoolTransfer(name=PoolName.MAMBA, host_indices=indices([0, 1]), keys=keys),
    ):
        assert server.storage.batch_set_v2([transfer]) == {transfer.name: [False, False]}
    assert "none host indices for 2 pages" in caplog.text and "'mamba' is not registered" in caplog.text
    assert server.storage.batch_exists(keys) == 0 and server.storage.batch_get_v1([], indices([])) == []


def test_too_much_in_flight_is_no_error_of_sglangs(region, caplog):
    server = Server(region, max_in_flight=3)
    server.fill(1)
    assert server.storage.batch_set_v1(hashes(tokens(2)), indices([0, 1])) == [False, False]
    assert "4 blocks in one batch, at most 3 may be in flight" in caplog.text
    assert server.storage.batch_set_v1(hashes(tokens(1)), indices([0])) == [True]


def test_tiers_are_asked_for_more_keys_than_may_be_in_flight(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / "files"), "bytes": 1 << 20}]
    server = Server(region, tiers=tiers)
    server.fill(1)
    server.back_up(tokens(5), [0, 1, 2, 3, 4])
    server.storage.close()
    region.unlink()
    # A page is two blocks.
    server = Server(region, tiers=tiers, max_in_flight=3)
    assert server.storage.batch_exists(hashes(tokens(6))) == 5


def test_a_pool_needs_no_more_than_pages_and_their_addresses(region):
    values = np.arange(64, dtype=np.float32)

    def meta(indices):
        pieces = [values[4 * int(index) + 2 * part :] for index in indices for part in (0, 1)]
        return [piece.ctypes.data for piece in pieces], [8] * len(pieces)

    host_pool = types.SimpleNamespace(page_size=1, get_page_buffer_meta=meta)
    storage = RadixKVStorage(hicache_world.config(extra={"region": str(region), "size": 1 << 20}, model=None), {})
    storage.register_mem_pool_host(host_pool)
    names = ["test_a", "test_b", "0"]
    assert storage.batch_set_v1(names, [0, 1, 2]) == [True] * 3 and storage.batch_exists(names) == 3
    assert storage.batch_get_v1(names, torch.arange(8, 11)) == [True] * 3
    assert values[32:44].tolist() == list(range(12))
    assert storage.batch_exists_v2([*names[:2], "no such page", names[2]]).kv_hit_pages == 2
    storage.close()


def test_threads_of_a_server_use_one_backend(region):
    server, failures = Server(region, in_place=False), []
    server.fill(1)

    def use(number):
        try:
            for turn in range(30):
                keys = hashes(tokens(2, seed=(number, turn)))
                assert server.storage.batch_set_v1(keys, indices([2 * number, 2 * number + 1])) == [True] * 2
                one = torch.from_numpy(np.full(8 * (turn % 3 + 1), turn, dtype=np.float32))
                assert server.storage.set(keys[0], one) and server.storage.get(keys[0], one.clone()) is not None
                assert server.storage.batch_get_v1(keys, indices([2 * number, 2 * number + 1])) == [True] * 2
        except BaseException as failure:
            failures.append(failure)

    before = [server.page(page) for page in range(8)]
    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and [server.page(page) for page in range(8)] == before


def test_a_layout_without_pieces_is_refused(region):
    server = Server(region)
    for host_pool in (
        types.SimpleNamespace(page_size=PAGE, layout="strange"),
        types.SimpleNamespace(page_size=PAGE, layout="strange", get_page_buffer_meta=unsupported),
    ):
        with pytest.raises(ValueError, match="layout 'strange', whose pages cannot be copied in place: start"):
            server.storage.register_mem_host_pool_v2(host_pool, PoolName.MAMBA)
    empty = types.SimpleNamespace(page_size=PAGE, layout="layer_first", get_page_buffer_meta=lambda indices: None)
    with pytest.raises(ValueError, match="no memory of its own"):
        server.storage.register_mem_host_pool_v2(empty, PoolName.MAMBA)


def unsupported(indices):
    raise ValueError("Unsupported layout: strange")


def test_another_layout_or_model_is_refused_with_both_values(region):
    Server(region)
    with pytest.raises(radixkv.RegionError, match="arrangement is .*page_first, 2.*page_first_direct, 2") as refused:
        Server(region, "page_first_direct")
    assert refused.value.kind == "mismatch"
    with pytest.raises(radixkv.RegionError) as refused:
        Server(region, model="another/model")
    assert (refused.value.field, refused.value.stored, refused.value.asked) == ("model", "a/model", "another/model")
    with pytest.raises(radixkv.RegionError) as refused:
        Server(region, dtype="bfloat16")
    assert (refused.value.stored, refused.value.asked) == ("float16", "bfloat16")
    with pytest.raises(radixkv.RegionError, match="block_bytes is 384 in the region, 128 was requested"):
        Server(region, "layer_first")
    with pytest.raises(radixkv.RegionError, match="capacity is .* in the region, .* was requested"):
        Server(region, size="2MiB")


def test_a_pool_takes_the_place_of_another_one(region):
    server = Server(region, mla=True)
    server.storage.register_mem_pool_host(server.pool)
    server.fill(1)
    server.back_up(tokens(1), [0])
    like_it, other = pool("page_first", mla=True), pool("page_first_direct", mla=True)
    server.storage.register_mem_pool_host(like_it)
    assert server.storage.batch_get_v1(hashes(tokens(1)), indices([3])) == [True]
    assert like_it.get_data_page(3 * PAGE).numpy().tobytes() == server.page(0)
    with pytest.raises(radixkv.RegionError, match="arrangement is"):
        server.storage.register_mem_pool_host(other)
    assert server.storage.batch_exists(hashes(tokens(1))) == 0, "no pool is registered any more"


def test_settings_are_checked(region, caplog):
    for extra, words in [
        ({"size": "much"}, "size is 'much'"),
        ({"size": "1.5GiB"}, "size is '1.5GiB'"),
        ({"pools": {"mamba": -1}}, "size of 'mamba' is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"tiers": [{"type": "tape"}]}, "tape"),
    ]:
        with pytest.raises(ValueError, match=words):
            Server(region, **extra)
    key = region.with_suffix(".key")
    key.write_bytes(b"a short key")
    with pytest.raises(ValueError, match="encryption"):
        Server(region, encryption_key_file=str(key))
    Server(region, colour="red")
    assert "unknown settings are ignored: colour" in caplog.text
    host_pool = pool("page_first", dtype="uint8")
    storage = RadixKVStorage(hicache_world.config(extra={"region": str(region) + "8", "size": 1 << 20}), {})
    assert "SGLang copies every page twice" in caplog.text
    with pytest.raises(ValueError, match="holds uint8, which stands for"):
        storage.register_mem_pool_host(host_pool)
    extra = {"region": str(region) + "8", "size": 1 << 20, "dtype": "float8_e4m3fn", "interface_v1": 1}
    RadixKVStorage(hicache_world.config(extra=extra), {}).register_mem_pool_host(host_pool)
    split = hicache_world.config(extra={})
    split.should_split_heads = True
    with pytest.raises(ValueError, match="tp_lcm_size"):
        RadixKVStorage(split, {})


def test_another_version_of_sglang_is_told(monkeypatch):
    for found, told in [("0.5.24", ["radixkv was tested with SGLang 0.5.23, and this is 0.5.24"]), ("0.5.23", [])]:
        monkeypatch.setattr(_tested.metadata, "version", lambda name, found=found: found)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _tested.check()
        assert [str(warning.message) for warning in caught] == told


def test_a_store_may_be_opened_while_all_are_cleared(region, monkeypatch):
    server = Server(region)
    stores = server.storage._stores
    place, store = next(iter(stores.items()))

    class Opens:
        namespace = store.namespace

        def clear(self):
            stores[("kv", 1, True)] = store
            return store.clear()

        def close(self):
            store.close()

    stores[place] = Opens()
    assert server.storage.clear()


def test_a_pool_is_registered_while_no_other_thread_opens_a_store(region, monkeypatch):
    storage, open_store, alone = Server(region, in_place=False).storage, radixkv.DigestStore, []

    def opens(*args, **options):
        alone.append(storage._opening.locked())
        return open_store(*args, **options)

    monkeypatch.setattr(radixkv, "DigestStore", opens)
    storage.register_mem_pool_host(pool("page_first"))
    assert alone and all(alone)
