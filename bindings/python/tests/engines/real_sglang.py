"""Runs radixkv in a real SGLang engine on the processor, and compares it with SGLang's own tree.

    python real_sglang.py [SCENARIO ...] [--keep]

Needs Linux and an environment with SGLang 0.5.23. Its kernels for a device are not needed:

    python -m venv v && v/bin/pip install --no-deps sglang==0.5.23
    v/bin/pip install dill gguf torch==2.14.1 torchvision transformers==5.19.0 tokenizers==0.23.2
    v/bin/pip install ...                   # what `v/bin/python -c "import sglang"` then asks for
    v/bin/pip install ./bindings/python

Scheduler, model, pools and attention (`torch_native`) are SGLang's own. `sgl_kernel` is a module
without content, because a processor without AMX calls nothing of it. The model has random weights,
which make each output depend on all keys and values. Each engine is two processes, forked from
one that has imported SGLang. SGLang checks its pool for leaks whenever an engine is idle, and
ends if there is one. Ends with 1 if an output differs.
"""

import argparse
import asyncio
import importlib.abc
import importlib.machinery
import json
import os
import random
import shutil
import sys
import tempfile
import types
from pathlib import Path

from forked import fork, make_model, wait

MIB = 1 << 20
# Read when SGLang is imported, in `main`.
ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
OPTIONS = {
    "skip_tokenizer_init": True,
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "dtype": "float32",
    "context_length": 4096,
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "chunked_prefill_size": 512,
    "max_running_requests": 8,
    "random_seed": 3,
}


class Absent:
    """Something of `sgl_kernel`, which raises if it is called."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")

    def __call__(self, *values, **options):
        raise NotImplementedError(self.name)


class AbsentModule(types.ModuleType):
    __getattr__ = Absent.__getattr__

    @property
    def name(self):
        return self.__name__


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "sgl_kernel":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return AbsentModule(spec.name)

    def exec_module(self, module):
        pass


# The engine's process.


def stand_in_hicache():
    """Replaces the kernels that copy between HiCache's host pool and the device's."""
    from sglang.srt.mem_cache.pool_host import common, mha

    def sides(pool, layer):
        yield pool.k_data_refs[layer], pool.device_k_buffers[layer]
        yield pool.v_data_refs[layer], pool.device_v_buffers[layer]

    def load(pool, device_pool, host, device, layer, backend, *, is_draft=False):
        for source, target in sides(pool, layer):
            target[device] = source[host]

    def backup(pool, device_pool, host, device, backend):
        for layer in range(pool.layer_num):
            for target, source in sides(pool, layer):
                target[host] = source[device]

    mha.MHATokenToKVPoolHost.load_to_device_per_layer = load
    mha.MHATokenToKVPoolHost.backup_from_device_all_layer = backup
    common._cuda_host_register = lambda *memory: None


def engine(task):
    """Generates for the prompts of a task, and writes what came of it into its file."""
    import sglang
    import sglang.srt.entrypoints.engine as entry

    # SGLang spawns its processes. Forked, they need not import SGLang.
    entry.mp.set_start_method = lambda *method, **options: None
    if "enable_hierarchical_cache" in task["options"]:
        stand_in_hicache()
    if task["retracts"]:
        import sglang.srt.managers.scheduler as scheduler

        # SGLang's own switch for its tests: every 40th step retracts requests.
        scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL = True, 40
    folder = Path(task["folder"])
    llm = sglang.Engine(model_path=task["model"], **{**OPTIONS, **task["options"]})
    result = {"outputs": {}, "cached": {}, "retracted": 0, "aborted": 0}

    def keep(key, answer):
        result["outputs"][key] = answer["output_ids"]
        result["cached"][key] = answer["meta_info"]["cached_tokens"]
        result["retracted"] += answer["meta_info"].get("num_retractions", 0)

    def sampling(tokens):
        return {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}

    async def ask_and_abort(prompts):
        """Every second request is aborted, each after another time."""
        asked = [
            asyncio.create_task(
                llm.async_generate(input_ids=prompt, sampling_params=sampling(64), rid=f"{task['name']} {at}")
            )
            for at, prompt in enumerate(prompts)
        ]
        for at in range(0, len(prompts), 2):
            await asyncio.sleep(0.15)
            llm.tokenizer_manager.abort_request(rid=f"{task['name']} {at}")
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            finish = {"type": "abort"} if isinstance(answer, Exception) else answer["meta_info"]["finish_reason"]
            result["aborted"] += finish["type"] == "abort"

    prompts = make_prompts()[: task["prompts"]]
    for step in task["steps"]:
        if step == "abort":
            llm.loop.run_until_complete(ask_and_abort(prompts))
        elif step == "flush":
            # The scheduler flushes only when it has found out that it is idle.
            llm.loop.run_until_complete(asyncio.sleep(1))
            if not llm.flush_cache().success:
                raise RuntimeError("the cache was not flushed")
        elif step == "together":
            answers = llm.generate(input_ids=prompts, sampling_params=sampling(task["tokens"]))
            for number, answer in enumerate(answers):
                keep(f"together {number}", answer)
        else:
            for number, prompt in enumerate(prompts):
                keep(f"{step} {number}", llm.generate(input_ids=prompt, sampling_params=sampling(task["tokens"])))
    # The scheduler checks its pool when it is idle.
    llm.loop.run_until_complete(asyncio.sleep(1))
    keep("last 0", llm.generate(input_ids=prompts[0], sampling_params=sampling(task["tokens"])))
    (folder / f"{task['name']}.json").write_text(json.dumps(result))
    llm.shutdown()


# The scenarios.


def make_prompts():
    """Prompts of 50 to 1,200 tokens that share the beginnings of one text."""
    numbers = random.Random(3)
    text = [numbers.randrange(3, 1000) for _ in range(500)]
    return [
        text[: numbers.randrange(500)] + [numbers.randrange(3, 1000) for _ in range(numbers.randrange(50, 700))]
        for _ in range(12)
    ]


class Run:
    """A folder with the model, the reference outputs, and a table of what was run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.wrong = 0
        self.regions = []
        if wait(fork(self.folder / "model.log", make_model, self.folder / "model")) != 0:
            sys.exit((self.folder / "model.log").read_text())
        self.expected = {}

    def start(self, name, *, steps=("first", "again"), tokens=8, prompts=12, retracts=False, **options):
        options.setdefault("max_total_tokens", 32768)
        task = {
            "name": name, "steps": steps, "tokens": tokens, "prompts": prompts, "retracts": retracts,
            "options": options, "folder": str(self.folder), "model": str(self.folder / "model"),
        }  # fmt: skip
        return fork(self.folder / f"{name}.log", engine, task)

    def finish(self, name, process, tokens=8):
        """Waits for an engine; what it did, after its outputs were compared."""
        wait(process)
        try:
            result = json.loads((self.folder / f"{name}.json").read_text())
        except OSError:
            log = (self.folder / f"{name}.log").read_text().splitlines()
            print("\n".join(log[-30:]), file=sys.stderr)
            self.row(name, None, f"the engine ended with {process.exitcode}", False)
            return None
        outputs = result["outputs"]
        if tokens not in self.expected:
            self.expected[tokens] = {key.split()[1]: out for key, out in outputs.items() if key.split()[0] != "again"}
        same = sum(out == self.expected[tokens][key.split()[1]] for key, out in outputs.items())
        self.row(name, result, f"{same} of {len(outputs)} outputs equal", same == len(outputs))
        return result

    def run(self, name, **how):
        return self.finish(name, self.start(name, **how), how.get("tokens", 8))

    def both(self, name, compare_cached=True, **how):
        """Runs SGLang's tree and radixkv; their results, after cached tokens were compared."""
        results = [self.run(f"{name}, SGLang", **how), self.run(f"{name}, radixkv", radix_cache_backend="radixkv", **how)]
        if None not in results:
            own, ours = (result["cached"] for result in results)
            unequal = {key: (own[key], ours[key]) for key in own if own[key] != ours[key]}
            text = f"{len(own) - len(unequal)} of {len(own)} cached lengths equal {dict(list(unequal.items())[:4]) or ''}"
            self.row(name, None, text, not unequal or not compare_cached)
        return results

    def row(self, name, result, text, good):
        self.wrong += not good
        numbers = ["-"] * 3 if result is None else [
            sum(result["cached"].values()), result["retracted"], result["aborted"]
        ]  # fmt: skip
        mark = "" if good else "  WRONG"
        print(f"{name:<28}" + "".join(f"{number:>11}" for number in numbers) + f"  {text}{mark}", flush=True)

    def remove_regions(self):
        for region in self.regions:
            region.unlink(missing_ok=True)

    def check(self, name, text, good):
        self.row(name, None, text, good)


def reference(run):
    """Without a prefix cache."""
    run.run("no cache", steps=("first",), disable_radix_cache=True)


def pages(run):
    """One request after another, with pages of 1 and 16 tokens: cached lengths are equal."""
    for size in (1, 16):
        run.both(f"page {size}", page_size=size)


def together(run):
    """All requests at once, in the orders of the scheduler's policies, with and without overlap."""
    for policy in ("fcfs", "lpm", "dfs-weight"):
        run.both(
            f"together {policy}", steps=("together", "flush", "together", "again"), schedule_policy=policy,
            page_size=16, compare_cached=False,
        )  # fmt: skip
    run.both("overlap", steps=("together", "again"), disable_overlap_schedule=False, compare_cached=False)


def evicted(run):
    """The pool has room for two prompts: prefixes are evicted all the time."""
    for size in (1, 16):
        run.both(f"evicted {size}", page_size=size, max_total_tokens=3072, compare_cached=False)


def retracted(run):
    """Running requests lose their tokens, and are resumed."""
    how = {"prompts": 8, "tokens": 120}
    run.run("no cache, 120 tokens", steps=("together",), disable_radix_cache=True, **how)
    for size in (1, 16):
        results = run.both(
            f"retracted {size}", steps=("together", "together"), page_size=size, max_total_tokens=4096,
            retracts=True, compare_cached=False, **how,
        )  # fmt: skip
        run.check(f"retracted {size}", "retracted", all(result and result["retracted"] > 0 for result in results))


def aborted(run):
    """Requests are aborted while they wait, prefill and decode."""
    for size in (1, 16):
        results = run.both(
            f"aborted {size}", steps=("abort", "first", "abort", "again"), page_size=size, compare_cached=False
        )
        run.check(f"aborted {size}", "aborted", all(result and result["aborted"] > 0 for result in results))


def hicache(run):
    """HiCache with its storage in a region: another process loads what the first one stored."""
    for layout in ("page_first", "layer_first"):
        region = Path(f"/dev/shm/radixkv-real-{os.getpid()}-{layout}")
        run.regions.append(region)
        extra = {
            "backend_name": "radixkv", "module_path": "radixkv.sglang.hicache", "class_name": "RadixKVStorage",
            "interface_v1": 1, "region": str(region), "size": 256 * MIB,
        }  # fmt: skip
        how = {
            "steps": ("first", "again"), "page_size": 16, "max_total_tokens": 3072, "enable_hierarchical_cache": True,
            "hicache_ratio": 2.0, "hicache_mem_layout": layout, "hicache_io_backend": "kernel",
            "hicache_write_policy": "write_through", "hicache_storage_prefetch_policy": "wait_complete",
            "hicache_storage_backend": "dynamic", "hicache_storage_backend_extra_config": json.dumps(extra),
        }  # fmt: skip
        results = [run.run(f"{layout} {verb}", **how) for verb in ("stores", "loads")]
        if None not in results:
            cached = [sum(n for key, n in of["cached"].items() if key.startswith("first")) for of in results]
            run.check(layout, f"{cached[0]} and {cached[1]} tokens of first requests cached", cached[1] > cached[0])


SCENARIOS = {one.__name__: one for one in (pages, together, evicted, retracted, aborted, hicache)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], help="all, if left out")
    parser.add_argument("--keep", action="store_true", help="keep the folder with models and logs")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    # SGLang compiles a module with the environment's ninja.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sys.meta_path.append(Finder())
    import sglang.srt.entrypoints.engine
    import sglang.srt.managers.scheduler
    import sglang.srt.models.llama
    import sglang.srt.models.registry  # noqa: F401

    folder = tempfile.mkdtemp(prefix="radixkv-real-sglang-")
    run = Run(folder)
    print(f"{'engine':<28}" + "".join(f"{of:>11}" for of in ("cached", "retracted", "aborted")))
    try:
        reference(run)
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
