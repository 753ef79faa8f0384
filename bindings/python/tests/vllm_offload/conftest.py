"""Regions and replicas that are gone when a test ends."""

import itertools
import os
from pathlib import Path

import pytest

_numbers = itertools.count()


@pytest.fixture
def region(tmp_path):
    """The path of a region that is not there yet."""
    return str(tmp_path / "region")


@pytest.fixture
def replicas():
    """Makes replicas of one host, and closes them."""
    import vllm_engine

    made = []

    def make(**how):
        engine = f"radixkv-test-{os.getpid()}-{next(_numbers)}"
        replica = vllm_engine.Replica(vllm_engine.tiering(engine, **how))
        made.append(replica)
        return replica

    vllm_engine.start_hashing()
    yield make
    for replica in made:
        replica.close()
    left = list(Path("/dev/shm").glob(f"vllm_offload_radixkv-test-{os.getpid()}-*"))
    for path in left:
        path.unlink()
    assert not left

