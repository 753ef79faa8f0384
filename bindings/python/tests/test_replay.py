"""Replays: what they return, which arguments they refuse, and how Ctrl-C ends them."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import radixkv

ROOT = Path(__file__).parents[3]
TRACE = ROOT / "crates/radixkv-replay/traces/taubench_airline_b16.jsonl.zst"
HUGE = 1 << 70

# Each is refused with an error of this class that has these words, before the trace is opened.
REFUSED = [
    ("block_size", 0, ValueError, "block_size is 0: must be at least 1"),
    ("block_size", -1, ValueError, "-1 is out of range: must be an int from 0"),
    ("block_size", HUGE, ValueError, "is out of range: must be an int from 0"),
    ("block_size", 1.5, TypeError, "block_size"),
    ("capacity", 0, ValueError, "capacity is \"0\""),
    ("capacity", -1, ValueError, "capacity is -1: must be a number of blocks, or a str"),
    ("capacity", HUGE, ValueError, f"capacity is {HUGE}: must be a number of blocks, or a str"),
    ("capacity", 1.5, TypeError, "capacity is 1.5: must be a number of blocks, or a str"),
    ("capacity", [], TypeError, "capacity is []: must be a number of blocks, or a str"),
    ("capacity", "", ValueError, "capacity is \"\""),
    ("capacity", "much", ValueError, "capacity is \"much\""),
    ("capacity", "-1%", ValueError, "capacity is \"-1%\""),
    ("capacity", "nan%", ValueError, "capacity is \"nan%\""),
    ("capacity", "inf%", ValueError, "capacity is \"inf%\""),
    ("policy", "best", ValueError, "best"),
    ("policy", "", ValueError, "policy"),
    ("policy", 1, TypeError, "policy"),
    ("cache", "tree", ValueError, "cache is \"tree\": must be one of radix, naive"),
    ("cache", "", ValueError, "cache is \"\""),
    ("cache", None, TypeError, "cache"),
    ("threads", 0, ValueError, "threads is 0: must be 1 to 1024"),
    ("threads", 1025, ValueError, "threads is 1025: must be 1 to 1024"),
    ("threads", -1, ValueError, "-1 is out of range: must be an int from 0"),
    ("eviction", "never", ValueError, "eviction is \"never\": must be one of inline, background"),
    ("outputs", "yes", TypeError, "outputs"),
    ("hold", 1, TypeError, "hold"),
    ("verify", None, TypeError, "verify"),
    ("checks", -1, ValueError, "-1 is out of range: must be an int from 0"),
    ("checks", math.nan, TypeError, "checks"),
    ("warm_up", -1, ValueError, "warm_up is -1: must be a number of requests, or a str"),
    ("warm_up", 1.5, TypeError, "warm_up is 1.5: must be a number of requests, or a str"),
    ("warm_up", "", ValueError, "warm_up is \"\""),
    ("warm_up", "-1s", ValueError, "warm_up is \"-1s\""),
    ("warm_up", "nans", ValueError, "warm_up is \"nans\""),
    ("service", "", ValueError, "service is \"\": not three numbers"),
    ("service", "1e-9,50,16", ValueError, "prefill rate"),
    ("service", "8000,inf,16", ValueError, "decode rate"),
    ("service", "8000,50,0", ValueError, "slots"),
    ("service", 8000, TypeError, "service"),
    ("prefill_rate", 0.0, ValueError, "prefill_rate is 0.0: must be a finite number of at least 1e-6"),
    ("prefill_rate", 1e-320, ValueError, "prefill_rate is 1e-320"),
    ("prefill_rate", 0.9e-6, ValueError, "prefill_rate is 9e-07"),
    ("prefill_rate", -1, ValueError, "prefill_rate is -1: must"),
    ("prefill_rate", math.nan, ValueError, "prefill_rate is nan"),
    ("prefill_rate", math.inf, ValueError, "prefill_rate is inf"),
    ("prefill_rate", 10**400, ValueError, "prefill_rate is 1000"),
    ("prefill_rate", "fast", TypeError, "prefill_rate"),
    ("longest", -1, ValueError, "-1 is out of range: must be an int from 0"),
    ("longest", HUGE, ValueError, "is out of range: must be an int from 0"),
    ("priority_from", 1, TypeError, "priority_from"),
    ("unit", 0, ValueError, "unit is 0: must be 1 to 4294967295"),
    ("unit", -1, ValueError, "-1 is out of range: must be an int from 0"),
    ("unit", 1 << 32, ValueError, "is out of range: must be an int from 0"),
    ("time_unit", "h", ValueError, "time_unit is \"h\": must be one of s, ms, us"),
    ("time_unit", "", ValueError, "time_unit is \"\""),
]

# Arguments that are accepted alone, but not with this trace or with each other.
FAILING = [
    ({"block_size": 1 << 40}, "exceeds the longest sequence"),
    ({"capacity": (1 << 64) - 1}, "exceeds the 4294967295 that block ids can name"),
    ({"warm_up": HUGE >> 7}, "none is left to measure"),
    ({"warm_up": "1e300s"}, "none is left to measure"),
    ({"service": "8000,50,16", "hold": True}, "a replay in trace time needs"),
    ({"service": "8000,50,16", "threads": 2}, "a replay in trace time needs"),
    ({"priority_from": ""}, "the field  is missing"),
    ({"priority_from": "none"}, "the field none is missing"),
]


def test_a_replay_is_what_the_command_prints():
    report = radixkv.replay(TRACE, capacity="5%", policy="lfu", warm_up=10, prefill_rate=8000.0, verify=True)
    assert (report["policy"], report["verify_errors"], report["warm_up_requests"]) == ("lfu", 0, 10)
    assert 0 < report["hit_rate"] < 1 and report["details"]["series"] and report["ttft"]["prefill_rate"] == 8000.0
    command = ROOT / "target/debug/radixkv"
    if command.exists():
        options = ["--capacity", "5%", "--policy", "lfu", "--warm-up", "10", "--prefill-rate", "8000", "--verify"]
        said = subprocess.run([command, "replay", TRACE, "--json", *options], capture_output=True, check=True)
        theirs = json.loads(said.stdout)
        assert theirs.keys() == report.keys()
        assert [theirs[name] for name in ("match_digest", "hit_tokens", "evicted_blocks")] == [
            report[name] for name in ("match_digest", "hit_tokens", "evicted_blocks")
        ]


@pytest.mark.parametrize(("name", "value", "error", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_arguments_that_are_not_accepted_are_refused_before_anything_runs(name, value, error, words, capfd):
    with pytest.raises(error) as refused:
        radixkv.replay("no-such-file", **{name: value})
    said = [str(refused.value), *getattr(refused.value, "__notes__", ())]
    assert words in "; ".join(said) and not isinstance(refused.value, radixkv.Error)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("arguments", "words"), FAILING)
def test_arguments_that_do_not_fit_the_trace_say_why(arguments, words):
    with pytest.raises(radixkv.ReplayError, match=words):
        radixkv.replay(TRACE, **arguments)


def test_the_lowest_and_the_largest_arguments_are_accepted():
    report = radixkv.replay(TRACE, prefill_rate=1e-6, longest=0, checks=0, warm_up=0, capacity=1, block_size=1)
    assert report["ttft"]["prefill_rate"] == 1e-6 and report["bypassed_requests"] == report["requests"]
    assert radixkv.replay(TRACE, prefill_rate=sys.float_info.max, longest=(1 << 64) - 1)["ttft"]["cached"]["mean"] >= 0
    assert radixkv.replay(TRACE, block_size=1 << 30, capacity=1 << 20)["hit_tokens"] == 0


def test_a_trace_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match="trace is empty: must be the path of a file"):
        radixkv.replay("")
    with pytest.raises(radixkv.ReplayError, match="no-such-file: cannot be opened"):
        radixkv.replay("no-such-file")
    with pytest.raises(radixkv.ReplayError, match="cannot be opened: Is a directory"):
        radixkv.replay(tmp_path)
    with pytest.raises(TypeError):
        radixkv.replay(1)


# Ctrl-C after half a second; then the thread of the replay must end.
INTERRUPTED = """
import os, signal, sys, threading, time
import radixkv

def threads():
    return len(os.listdir("/proc/self/task"))

path, options = sys.argv[1], eval(sys.argv[2])
# Jobs that a shell starts in the background begin with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A pipe that this process can also read is never broken.
pipe = os.open(path, os.O_RDWR) if len(sys.argv) > 3 else None
before = threads()
timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
start = time.monotonic()
try:
    radixkv.replay(path, **options)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 5)
timer.join()
if pipe is not None:
    os.write(pipe, b"{}")
until = time.monotonic() + 20
while threads() > before and time.monotonic() < until:
    time.sleep(0.01)
print("ended", threads() == before)
"""


def interrupted(*arguments):
    child = [sys.executable, "-c", INTERRUPTED, *map(str, arguments)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_the_requests(tmp_path, threads):
    row = {"timestamp": 0, "input_length": 1 << 20, "output_length": 1}
    rows = (json.dumps({**row, "hash_ids": [number]}) + "\n" for number in range(100_000))
    (tmp_path / "rows").write_text("".join(rows))
    options = {"unit": 1 << 20, "block_size": 1 << 16, "capacity": 256, "threads": threads}
    assert interrupted(tmp_path / "rows", options) == ["interrupted", "True", "ended", "True"]


def test_an_interrupt_ends_a_read_that_waits(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert interrupted(pipe, {}, "pipe") == ["interrupted", "True", "ended", "True"]
