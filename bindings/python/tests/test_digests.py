"""Digest-keyed stores: what is stored is loaded, by any process, and what is wrong is refused."""

import ctypes
import gc
import hashlib
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from kept_exceptions import check_exception_is_kept

import radixkv

BLOCK = 4096
MISS, DONE, FAILED, CANCELLED = (
    radixkv.DigestStore.MISS,
    radixkv.DigestStore.DONE,
    radixkv.DigestStore.FAILED,
    radixkv.DigestStore.CANCELLED,
)
FACTS = {"key_bytes": 32, "block_bytes": BLOCK, "model": "a model", "dtype": "bf16", "hash_scheme": "sha256"}


def key(number, length=32):
    return hashlib.sha512(str(number).encode()).digest()[:length]


def content(number, size=BLOCK):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def filled(numbers):
    return np.concatenate([content(number) for number in numbers])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "region")


@pytest.fixture
def region(path):
    with radixkv.DigestRegion(path, BLOCK, 1 << 20) as region:
        yield region


@pytest.fixture
def store(region):
    with radixkv.DigestStore(region, "tests", **FACTS) as store:
        yield store


def keep(store, numbers, **how):
    """Stores the blocks of some numbers."""
    batch = store.store([key(number, store.key_bytes) for number in numbers], filled(numbers), **how)
    assert store.wait(batch, 60) == bytes([DONE] * len(numbers))


def found(store, numbers):
    """Which of the blocks are loaded; those must be right."""
    buffer = np.zeros(BLOCK * len(numbers), dtype=np.uint8)
    outcomes = store.wait(store.load([key(number, store.key_bytes) for number in numbers], buffer), 60)
    for at, (number, outcome) in enumerate(zip(numbers, outcomes, strict=True)):
        assert outcome != DONE or (buffer[at * BLOCK : (at + 1) * BLOCK] == content(number)).all(), number
    return [outcome == DONE for outcome in outcomes]


@pytest.mark.parametrize("length", [16, 32, 36])
def test_blocks_are_found_as_they_were_stored(region, length):
    with radixkv.DigestStore(region, "tests", **{**FACTS, "key_bytes": length}) as store:
        assert store.exists([key(0, length)]) == b"\0" and found(store, [0]) == [False]
        keep(store, range(5))
        keys = [key(number, length) for number in (0, 1, 9, 2)]
        assert store.exists(keys) == b"\1\1\0\1" == store.exists(b"".join(keys)) and store.prefix(keys) == 2
        assert found(store, [4, 9, 0]) == [True, False, True]
        assert store.wait(store.lookup(tuple(keys)), 60) == bytes([DONE, DONE, MISS, DONE])
        assert store.touch(keys) == 3
        assert store.wait(store.remove(keys[:1]), 60) == bytes([DONE]) and store.exists(keys)[0] == 0
        assert (store.stats()["stored"], store.stats()["loaded"], store.stats()["missed"]) == (5, 2, 2)
        assert store.clear() == 4 and region.stats()["blocks"] == 0


def test_memory_is_used_where_it_is(store):
    pool = np.zeros((8, BLOCK), dtype=np.uint8)
    pool[5], pool[2] = content(1), content(2)
    offsets = np.array([5, 2]) * BLOCK
    keys = [key(1), key(2)]
    assert store.wait(store.store(keys, memoryview(pool), offsets), 60) == bytes([DONE, DONE])
    other = np.zeros(8 * BLOCK // 4, dtype=np.float32)
    assert store.wait(store.load(keys, other, [7 * BLOCK, 0]), 60) == bytes([DONE, DONE])
    rows = other.view(np.uint8).reshape(8, BLOCK)
    assert (rows[7] == content(1)).all() and (rows[0] == content(2)).all() and not rows[1:7].any()
    target = np.zeros((2, BLOCK), dtype=np.uint8)
    addresses = np.array([target[1].ctypes.data, target[0].ctypes.data], dtype=np.uint64)
    assert store.wait(store.load_into(keys, addresses, owner=target), 60) == bytes([DONE, DONE])
    assert (target[1] == content(1)).all() and (target[0] == content(2)).all()
    assert store.wait(store.store_from([key(3)], [target[1].ctypes.data]), 60) == bytes([DONE])
    loaded = bytearray(BLOCK)
    assert store.wait(store.load([key(3)], loaded), 60) == bytes([DONE]) and loaded == content(1).tobytes()


def test_a_buffer_is_held_until_its_batch_is_handed_out(store):
    buffer = bytearray(BLOCK)
    batch = store.store([key(1)], buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    assert store.wait(batch, 60) == bytes([DONE])
    buffer.extend(b"more")
    array = content(2).copy()
    batch = store.store([key(2)], array)
    del array
    assert store.wait(batch, 60) == bytes([DONE]) and found(store, [2]) == [True]


def test_batches_are_handed_out_once(store):
    batches = {store.store([key(number)], content(number)) for number in range(10)}
    polled = {}
    while len(polled) < 10:
        polled.update(store.poll(60))
    assert polled == dict.fromkeys(batches, bytes([DONE])) and store.in_flight == 0
    assert store.poll() == store.poll(60) == []
    for batch in [*batches, 1 << 60]:
        for refuse in (store.wait, store.cancel):
            with pytest.raises(KeyError, match=f"batch {batch}"):
                refuse(batch)
    assert store.wait(store.lookup([]), 60) == store.wait(store.load([], bytearray()), 60) == b""


def test_too_much_in_flight_is_refused(region):
    with radixkv.DigestStore(region, "tests", **FACTS, max_in_flight=4) as store:
        with pytest.raises(radixkv.FullError, match="5 blocks in one batch, at most 4") as refused:
            store.store([key(number) for number in range(5)], filled(range(5)))
        assert (refused.value.asked, refused.value.in_flight, refused.value.most) == (5, 0, 4)
        batch = store.lookup([key(0)] * 4)
        with pytest.raises(radixkv.FullError, match="1 blocks requested, 4 of at most 4 are in flight: poll"):
            store.lookup([key(0)])
        store.wait(batch, 60)
        assert store.wait(store.lookup([key(0)]), 60) == bytes([MISS])


def test_a_cancelled_batch_is_handed_out_all_the_same(region):
    with radixkv.DigestStore(region, "tests", **FACTS, threads=1) as store:
        keep(store, range(100))
        keys, buffer = [key(number % 100) for number in range(5000)], np.zeros(5000 * BLOCK, dtype=np.uint8)
        batches = [store.load(keys, buffer) for _ in range(3)]
        store.cancel(batches[2])
        outcomes = [store.wait(batch, 60) for batch in batches]
        assert set(outcomes[0]) == set(outcomes[1]) == {DONE} and CANCELLED in outcomes[2]
        assert store.stats()["cancelled"] == outcomes[2].count(CANCELLED)


def test_a_cancelled_removal_is_done_only_where_no_tier_has_the_block(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / name), "bytes": 1 << 20} for name in ("one", "two")]
    with radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers) as store:
        seen = set()
        for number in range(50):
            keep(store, [number])
            batch = store.remove([key(number)])
            while store.exists([key(number)]) != b"\0":
                pass
            # The region has removed the block; the tiers below it may still have it.
            store.cancel(batch)
            outcome = store.wait(batch, 60)
            seen.add((outcome[0], store.wait(store.lookup([key(number)]), 60)[0]))
        assert seen <= {(DONE, MISS), (CANCELLED, MISS), (CANCELLED, DONE)}


def test_a_time_to_live_ends(store):
    keep(store, [1], time_to_live=0.05)
    keep(store, [2], time_to_live=600)
    time.sleep(0.1)
    assert found(store, [1, 2]) == [False, True]


def test_what_a_tier_had_has_the_time_to_live_of_its_load(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path), "bytes": 1 << 20}]
    with radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers) as store:
        keep(store, [1, 2])
        store.clear()
        buffer = bytearray(BLOCK)
        for number, time_to_live in ((1, 0.05), (2, None)):
            assert store.wait(store.load([key(number)], buffer, time_to_live=time_to_live), 60) == bytes([DONE])
        time.sleep(0.1)
        assert store.exists([key(1), key(2)]) == b"\0\1"


def test_equal_digests_are_one_block(store):
    """What exactness rests on: the bytes that were stored first are found."""
    for number in (1, 2):
        assert store.wait(store.store([key(1)], content(number)), 60) == bytes([DONE])
    assert found(store, [1]) == [True]


def test_processes_share_a_region(store, path):
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
import radixkv, test_digests as tests
region = radixkv.DigestRegion({path!r})
with radixkv.DigestStore(region, "tests", **tests.FACTS) as store:
    assert tests.found(store, range(8)) == [True] * 5 + [False] * 3
    tests.keep(store, [6])
    print("stored", flush=True)
    sys.stdin.read()
"""
    keep(store, range(5))
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"stored\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert found(store, [6, 7]) == [True, False]
    child.stdin.close()
    child.stdout.close()


def test_processes_that_are_killed_leave_nothing_wrong(region, store, path):
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
import random, radixkv, test_digests as tests
region = radixkv.DigestRegion({path!r})
store = radixkv.DigestStore(region, "tests", **tests.FACTS)
print("begins", flush=True)
while True:
    tests.keep(store, random.sample(range(500), 20))
    tests.found(store, random.sample(range(500), 20))
"""
    draw = random.Random(5)
    for _ in range(3):
        children = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
        for child in children:
            assert child.stdout.readline() == b"begins\n"
        time.sleep(draw.uniform(0, 0.1))
        for child in children:
            assert child.poll() is None, "it found wrong bytes"
            child.kill()
            child.communicate()
        found(store, range(500))
    region.recover()
    stats = region.stats()
    assert (stats["in_flight"], stats["processes"]) == (0, 1) and 0 < stats["blocks"] <= stats["capacity_blocks"]
    keep(store, range(500, 520))


def test_what_differs_is_refused_with_both_values(region, store, path):
    for changes, field, stored, asked in [
        ({"model": "another"}, "model", "a model", "another"),
        ({"dtype": "fp8"}, "dtype", "bf16", "fp8"),
        ({"layout": "page_first"}, "arrangement", "", "page_first"),
        ({"rank": (1, 2)}, "shard", "", "rank 1 of 2"),
        ({"hash_scheme": "sha256_cbor"}, "hash scheme", "sha256", "sha256_cbor"),
        ({"hash_seed": "7"}, "hash seed", "", "7"),
        ({"block_tokens": 16}, "block tokens", "1", "16"),
        ({"block_bytes": 512}, "block bytes", "4096", "512"),
        ({"key_bytes": 36}, "key bytes", "32", "36"),
        ({"checksum": False}, "checksum", "1", "0"),
    ]:
        with pytest.raises(radixkv.RegionError, match=f"{field} is .*{stored}.*{asked}") as refused:
            radixkv.DigestStore(region, "tests", **{**FACTS, **changes})
        assert vars(refused.value) == {"kind": "mismatch", "field": field, "stored": stored, "asked": asked}
    for changes, kind, numbers in [
        ({"key_bytes": 15}, "key_bytes", {"got": 15, "least": 16, "most": 36}),
        ({"key_bytes": 37}, "key_bytes", {"got": 37, "least": 16, "most": 36}),
        ({"block_bytes": BLOCK + 1}, "block_bytes", {"got": BLOCK + 1, "most": BLOCK}),
        ({"model": "m" * 121}, "text_too_long", {"field": "model", "got": 121}),
    ]:
        with pytest.raises(radixkv.RegionError) as refused:
            radixkv.DigestStore(region, "others", **{**FACTS, **changes})
        assert vars(refused.value) == {"kind": kind, **numbers}
    with pytest.raises(radixkv.RegionError, match="block_bytes is 4096 in the region, 512 was requested") as refused:
        radixkv.DigestRegion(path, 512, 1 << 20)
    assert (refused.value.stored, refused.value.asked) == ("4096", "512")
    with pytest.raises(radixkv.RegionError, match="one block of 4096 bytes needs") as refused:
        radixkv.DigestRegion(path + "2", BLOCK, 1000)
    assert (refused.value.kind, refused.value.got) == ("too_small", 1000) and not os.path.exists(path + "2")


def test_a_region_of_another_version_is_refused(region, path):
    capacity = region.capacity_blocks
    assert radixkv.DigestRegion(path).capacity_blocks == capacity
    region.close()
    with open(path, "r+b") as file:
        file.seek(8)
        version = int.from_bytes(file.read(8), "little")
        file.seek(8)
        file.write((version + 1).to_bytes(8, "little"))
    with pytest.raises(radixkv.RegionError, match=f"version {version + 1}, this program reads {version}") as refused:
        radixkv.DigestRegion(path)
    assert vars(refused.value) == {"kind": "version", "stored": version + 1, "asked": version}
    with open(path, "r+b") as file:
        file.write(b"something else")
    with pytest.raises(radixkv.RegionError, match="not a region") as refused:
        radixkv.DigestRegion(path)
    assert refused.value.kind == "not_a_region"


def test_bad_batches_are_refused_whole(store):
    room, readonly = np.zeros(2 * BLOCK, dtype=np.uint8), bytes(2 * BLOCK)
    keys = [key(1), key(2)]
    for call, kind, numbers in [
        (lambda: store.exists([key(1), b"short"]), "key_bytes", {"index": 1, "got": 5, "expected": 32}),
        (lambda: store.lookup([key(1), key(2, 36)]), "key_bytes", {"index": 1, "got": 36, "expected": 32}),
        (lambda: store.prefix(key(1) + b"rest"), "key_bytes", {"index": 1, "got": 4, "expected": 32}),
        (lambda: store.store(keys, room, [0]), "counts", {"keys": 2, "blocks": 1}),
        (lambda: store.store(keys, room[1:]), "out_of_buffer", {"index": 1, "got": BLOCK - 1, "expected": BLOCK}),
        (lambda: store.load(keys, room, [0, BLOCK + 1]), "out_of_buffer",
         {"index": 1, "got": BLOCK - 1, "expected": BLOCK}),
        (lambda: store.load(keys, room, [1 << 63, 0]), "out_of_buffer", {"index": 0, "got": 0, "expected": BLOCK}),
        (lambda: store.load(keys, readonly), "read_only", {}),
        (lambda: store.load(keys, room, [100, 0]), "overlap", {"index": 0, "expected": BLOCK}),
        (lambda: store.store_from(keys, [room.ctypes.data]), "counts", {"keys": 2, "blocks": 1}),
    ]:
        with pytest.raises(radixkv.BatchError) as refused:
            call()
        assert vars(refused.value) == {"kind": kind, **numbers} and isinstance(refused.value, ValueError)
    for call, error, words in [
        (lambda: store.exists("text"), TypeError, "keys is str"),
        (lambda: store.exists([key(1), 7]), TypeError, r"keys\[1\] is int"),
        (lambda: store.exists({key(1)}), TypeError, "keys is set"),
        (lambda: store.store([key(1)], "text"), TypeError, "bytes-like object is required"),
        (lambda: store.store([key(1)], np.zeros((BLOCK, 2), dtype=np.uint8)[:, 0]), ValueError, "C-contiguous"),
        (lambda: store.store([key(1)], room, [-1]), ValueError, r"offsets\[0\] is -1"),
        (lambda: store.store([key(1)], room, np.array([-1])), ValueError, r"offsets\[0\] is -1"),
        (lambda: store.load_into([key(1)], [0]), ValueError, r"addresses\[0\] is 0"),
        (lambda: store.store([key(1)], room, time_to_live=-1), ValueError, "time_to_live is -1"),
    ]:
        with pytest.raises(error, match=words):
            call()
    assert store.in_flight == 0 and store.exists(keys) == b"\0\0"


def test_bad_settings_are_refused(region):
    for changes, error, words in [
        ({"threads": 0}, ValueError, "threads is 0"),
        ({"max_in_flight": 0}, ValueError, "max_in_flight is 0"),
        ({"rank": (5, 2)}, radixkv.RegionError, "rank 5 is out of range: the 2 ranks count from 0"),
        ({"rank": (0, 0)}, radixkv.RegionError, "rank 0 is out of range: the 0 ranks count from 0"),
        ({"rank": (-1, 2)}, ValueError, r"rank is \(-1, 2\): must be"),
        ({"tiers": ["files"]}, TypeError, r"tiers\[0\] is files"),
        ({"tiers": [{"type": "tape"}]}, radixkv.RegionError, "\"tape\": accepted are"),
        ({"tiers": [{"type": "files", "folder": "f"}]}, TypeError, 'has no "bytes"'),
        ({"tiers": [{"type": "files", "folder": "f", "bytes": 1, "colour": 2}]}, TypeError, 'unknown field "colour"'),
        ({"tiers": [{"type": "files", "folder": "f", "bytes": "much"}]}, TypeError, "bytes of .* is much"),
        ({"tiers": [{"type": "files", "folder": "/proc/f", "bytes": 1 << 20}]}, radixkv.RegionError, "/proc/f"),
    ]:
        with pytest.raises(error, match=words):
            radixkv.DigestStore(region, "tests", **{**FACTS, **changes})
    for arguments in [(None,), (None, 10), ("name", None, 10)]:
        with pytest.raises(TypeError, match="block_bytes and size"):
            radixkv.DigestRegion(*arguments)
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="it must be the name of a file"):
            radixkv.DigestRegion(name, BLOCK, 1 << 20)
    with pytest.raises(radixkv.RegionError, match="nowhere"):
        radixkv.DigestRegion("/nowhere/region")


def test_a_name_is_a_file_in_shared_memory():
    name = f"radixkv-tests-{os.getpid()}"
    with radixkv.DigestRegion(name, BLOCK, 1 << 20) as region:
        assert region.path == f"/dev/shm/{name}" and os.stat(region.path).st_mode & 0o77 == 0
        region.unlink()
        assert not os.path.exists(region.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file of another user")
def test_a_region_of_another_user_is_refused(region, path):
    os.chown(path, 12345, -1)
    with pytest.raises(radixkv.RegionError, match="belongs to user 12345, this process runs as user 0") as refused:
        radixkv.DigestRegion(path)
    assert (refused.value.kind, refused.value.stored, refused.value.asked) == ("other_owner", 12345, 0)


def test_a_tier_of_files_keeps_what_the_region_lost(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / "one"), "bytes": 1 << 20, "threads": 2}]
    with radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers) as store:
        keep(store, range(20))
        assert store.clear() == 20 and store.exists([key(0)]) == b"\0"
        assert store.wait(store.lookup([key(0), key(99)]), 60) == bytes([DONE, MISS])
        assert found(store, [0, 99, 5]) == [True, False, True]
        # What a tier had is in the region again.
        assert store.exists([key(0), key(1), key(5)]) == b"\1\0\1"
        (tier,) = store.stats()["tiers"]
        assert (tier["type"], tier["hits"], tier["misses"], tier["stored"]) == ("files", 2, 1, 20)
        with pytest.raises(radixkv.RegionError, match="already open") as refused:
            radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers)
        assert refused.value.kind == "in_use"
        assert store.wait(store.remove([key(5)]), 60) == bytes([DONE]) and found(store, [5]) == [False]
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as other:
        with pytest.raises(radixkv.RegionError, match='dtype "bf16", this layout has "fp8"') as refused:
            radixkv.DigestStore(other, "tests", **{**FACTS, "dtype": "fp8"}, tiers=tiers)
        assert (refused.value.stored, refused.value.asked) == ("bf16", "fp8")
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as own:
        # Two tiers: the second gets what is stored from here on.
        tiers.append({"type": "files", "folder": str(tmp_path / "two"), "bytes": 1 << 20})
        with radixkv.DigestStore(own, "tests", **FACTS, tiers=tiers) as store:
            assert found(store, [7, 5]) == [True, False]
            keep(store, [30])
            assert [tier["stored"] for tier in store.stats()["tiers"]] == [1, 1]


def is_built(**changes):
    """Whether the wheel was built with what these settings need."""
    with radixkv.DigestRegion(None, BLOCK, 1 << 20) as region:
        try:
            radixkv.DigestStore(region, "tests", **FACTS, **changes).close()
        except radixkv.RegionError as refused:
            return refused.kind != "not_built"
    return True


@pytest.mark.parametrize(
    "changes, feature",
    [
        ({"encryption_key": bytes(32)}, "encryption"),
        ({"tiers": [{"type": "redis", "url": "redis://localhost:1"}]}, "redis"),
        ({"tiers": [{"type": "objects", "url": "s3://bucket"}]}, "object-store"),
    ],
)
def test_a_feature_that_the_wheel_lacks_is_named(region, changes, feature):
    if is_built(**changes):
        pytest.skip("the wheel has it")
    with pytest.raises(radixkv.RegionError, match=f"was built without `{feature}`") as refused:
        radixkv.DigestStore(region, "tests", **FACTS, **changes)
    assert vars(refused.value) == {"kind": "not_built", "feature": feature}


@pytest.mark.skipif(not is_built(encryption_key=bytes(32)), reason="the wheel was built without encryption")
def test_encrypted_blocks_are_found_with_their_key_alone(region, path, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / "files"), "bytes": 1 << 20}]
    with radixkv.DigestStore(region, "secret", **FACTS, encryption_key=b"k" * 32, tiers=tiers) as store:
        keep(store, range(3))
        assert found(store, range(4)) == [True, True, True, False]
        for place in (path, *(file for file in (tmp_path / "files").rglob("*") if file.is_file())):
            assert content(1)[:64].tobytes() not in open(place, "rb").read()
        with radixkv.DigestStore(region, "secret", **FACTS, encryption_key=b"l" * 32) as other:
            assert found(other, range(3)) == [False] * 3
            with pytest.raises(radixkv.BatchError) as refused:
                store.reserve([key(9)])
            assert refused.value.kind == "encrypted"
    with pytest.raises(radixkv.RegionError) as refused:
        radixkv.DigestStore(region, "secret", **FACTS)
    assert (refused.value.field, refused.value.stored, refused.value.asked) == ("encryption", "1", "0")
    with pytest.raises(ValueError, match="encryption_key has 5 bytes: 32 are needed"):
        radixkv.DigestStore(region, "secret", **FACTS, encryption_key=b"short")


@pytest.mark.skipif(
    not is_built(tiers=[{"type": "objects", "url": "s3://bucket"}]), reason="the wheel was built without object stores"
)
def test_objects_below_the_region_are_shared(tmp_path):
    (tmp_path / "bucket").mkdir()
    tiers = [{"type": "objects", "url": f"file://{tmp_path}/bucket", "concurrency": 4}]
    regions = [radixkv.DigestRegion(None, BLOCK, 1 << 20) for _ in range(2)]
    one, other = (radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers) for region in regions)
    keep(one, range(5))
    assert found(other, [3, 9, 0]) == [True, False, True] and other.exists([key(3)]) == b"\1"
    with pytest.raises(radixkv.RegionError, match="object store"):
        radixkv.DigestStore(regions[0], "tests", **FACTS, tiers=[{"type": "objects", "url": "no url"}])


@pytest.fixture
def redis_url(tmp_path):
    script = Path(__file__).parents[3] / "crates/radixkv-tiers/peers/redis-server.sh"
    found = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip("no redis-server here")
    # A socket in a folder of the test's own.
    place = tmp_path / "redis.sock"
    options = ["--port", "0", "--unixsocket", place, "--save", "", "--dir", tmp_path]
    server = subprocess.Popen([found.stdout.strip(), *options], stdout=subprocess.DEVNULL)
    while not place.exists():
        assert server.poll() is None
        time.sleep(0.01)
    yield f"unix://{place}"
    server.kill()
    server.wait()


@pytest.mark.skipif(
    not is_built(tiers=[{"type": "redis", "url": "redis://localhost:1"}]), reason="the wheel was built without Redis"
)
def test_redis_below_the_region_is_shared(redis_url):
    tiers = [{"type": "redis", "url": redis_url, "prefix": "kv", "connections": 1, "timeout": 30}]
    regions = [radixkv.DigestRegion(None, BLOCK, 1 << 20) for _ in range(2)]
    one, other = (radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers) for region in regions)
    keep(one, range(5))
    assert other.wait(other.lookup([key(2), key(9)]), 60) == bytes([DONE, MISS])
    assert found(other, [3, 9, 0]) == [True, False, True] and other.exists([key(3)]) == b"\1"
    assert one.stats()["tiers"][0]["stored"] == 5 and other.stats()["tiers"][0]["hits"] == 2
    with pytest.raises(radixkv.RegionError, match='model "a model", this layout has "another"'):
        with radixkv.DigestRegion(None, BLOCK, 1 << 20) as region:
            radixkv.DigestStore(region, "tests", **{**FACTS, "model": "another"}, tiers=tiers)


def test_blocks_in_place_are_written_and_read_by_address(region, store):
    keys = [key(1), key(2)]
    keep(store, [1])
    with store.reserve(keys) as rooms:
        assert rooms.outcomes == bytes([MISS, DONE]) and rooms.addresses[0] == 0 and rooms.addresses[1] % 64 == 0
        assert store.exists(keys) == b"\1\2"
        written = content(2)
        ctypes.memmove(int(rooms.addresses[1]), written.ctypes.data, BLOCK)
        assert rooms.publish() == 1
        with pytest.raises(radixkv.ReleasedError):
            rooms.publish()
    assert found(store, [2]) == [True]
    sources = store.locate([*keys, key(3)])
    assert sources.addresses[2] == 0 and sources.intact() == b"\1\1\0"
    assert ctypes.string_at(int(sources.addresses[1]), BLOCK) == content(2).tobytes()
    store.wait(store.remove([key(2)]), 60)
    assert sources.intact() == b"\1\0\0"
    store.reserve([key(4)]).release()
    assert store.exists([key(4)]) == b"\0" and region.stats()["in_flight"] == 0


def test_quotas_bound_a_namespace_and_a_process(region, store):
    store.set_quota(3)
    keep(store, range(10))
    assert region.stats()["blocks"] == 3
    store.set_quota(None)
    region.set_process_quota(5)
    keep(store, range(10, 20))
    assert region.stats()["blocks"] == 5
    region.set_process_quota(None)
    keep(store, range(20, 30))
    assert region.stats()["blocks"] == 15
    for set_quota in (store.set_quota, region.set_process_quota):
        with pytest.raises(ValueError, match="blocks is 0: must be at least 1, or None for no limit"):
            set_quota(0)


def test_a_full_region_evicts_and_what_is_found_is_right(region, store):
    draw = random.Random(7)
    numbers = range(2 * region.capacity_blocks)
    failures = []

    def use(seed):
        draw = random.Random(seed)
        try:
            for _ in range(60):
                some = draw.sample(numbers, 8)
                keep(store, some)
                found(store, draw.sample(numbers, 8))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=use, args=(draw.random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and region.stats()["evicted"] > 0 and store.in_flight == 0


def test_a_closed_store_is_refused_and_touches_no_memory(region):
    store = radixkv.DigestStore(region, "tests", **FACTS, threads=1)
    keep(store, range(50))
    buffer = np.zeros(5000 * BLOCK, dtype=np.uint8)
    batch = store.load([key(number % 50) for number in range(5000)], buffer)
    store.close()
    store.close()
    buffer[:] = 7
    assert (buffer == 7).all()
    for call in (
        lambda: store.exists([key(1)]),
        lambda: store.load([key(1)], buffer),
        lambda: store.poll(),
        lambda: store.wait(batch),
        lambda: store.stats(),
        lambda: store.in_flight,
    ):
        with pytest.raises(radixkv.ReleasedError):
            call()
    region.close()
    region.close()
    for call in (region.stats, region.clear, region.unlink, lambda: radixkv.DigestStore(region, "tests", **FACTS)):
        with pytest.raises(radixkv.ReleasedError):
            call()


def test_a_thread_that_waits_is_woken_when_the_store_is_closed(region):
    store = radixkv.DigestStore(region, "tests", **FACTS)
    ended = []

    def wait():
        try:
            while True:
                store.poll(60)
        except radixkv.ReleasedError:
            ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    store.lookup([key(1)])
    store.close()
    thread.join(60)
    assert ended == [True]


def test_a_forked_child_is_refused_and_may_drop_everything(region, store):
    keep(store, [1])
    rooms, sources = store.reserve([key(2)]), store.locate([key(1)])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in [
                lambda: store.exists([key(1)]),
                lambda: store.lookup([key(1)]),
                lambda: store.poll(),
                lambda: store.stats(),
                lambda: store.close(),
                lambda: region.stats(),
                lambda: region.close(),
                lambda: rooms.publish(),
                lambda: sources.intact(),
                lambda: radixkv.DigestStore(region, "tests", **FACTS),
            ]:
                try:
                    call()
                except radixkv.ForkError:
                    continue
                os._exit(2)
            again = radixkv.DigestRegion(region.path)
            with radixkv.DigestStore(again, "tests", **FACTS) as own:
                assert found(own, [1]) == [True]
            del rooms, sources
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rooms.publish() == 1 and found(store, [1]) == [True]


@pytest.mark.parametrize("in_child", [False, True])
def test_a_drop_keeps_the_exception_that_python_handles(region, in_child):
    last = [radixkv.DigestStore(region, "tests", **FACTS)]
    keep(last[0], [1])
    check_exception_is_kept(last, in_child)


def test_nothing_can_be_pickled(region, store):
    for handle in (region, store, store.reserve([key(1)]), store.locate([key(1)])):
        with pytest.raises(TypeError, match="cannot be pickled or copied: it "):
            pickle.dumps(handle)


def test_an_interpreter_ends_with_batches_in_flight(path):
    program = f"""
import radixkv, threading
region = radixkv.DigestRegion({path!r}, 1 << 16, 1 << 24)
store = radixkv.DigestStore(region, "tests", key_bytes=32, block_bytes=1 << 16, model="", dtype="", hash_scheme="")
keys = [number.to_bytes(32, "little") for number in range(100)]
threading.Thread(target=lambda: store.poll(600), daemon=True).start()
for _ in range(20):
    store.store(keys, bytes(100 << 16))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


CLOSED = """
import sys, threading, radixkv
sys.setswitchinterval(1e-6)
region = radixkv.DigestRegion(None, block_bytes=64, size=1 << 20)
store = radixkv.DigestStore(region, "n", key_bytes=32, block_bytes=64, model="m", dtype="d", hash_scheme="sha256")
store.close()
region.close()

def work():
    for _ in range(3000):
        for call in (store.poll, region.recover):
            try:
                call()
            except radixkv.ReleasedError:
                continue
            raise AssertionError("a closed store answered")

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
"""


def test_threads_are_refused_by_a_closed_store():
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_of_another_version_is_refused_with_both(region, tmp_path):
    tiers = [{"type": "files", "folder": str(tmp_path / "files"), "bytes": 1 << 20}]
    with radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers):
        pass
    manifest = tmp_path / "files" / "tests" / "manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b"format 1\n", b"format 7\n", 1))
    with pytest.raises(radixkv.RegionError) as refused:
        radixkv.DigestStore(region, "tests", **FACTS, tiers=tiers)
    assert vars(refused.value) == {"kind": "version", "stored": 7, "asked": 1}
