"""A replica as a process of its own, to be killed: it runs requests of few prompts with shared
prefixes until then, and tells how far it got.

    python replica.py REGION REGION_BYTES ENGINE SEED [SECONDS]

With an even seed the region is a tier below vLLM's CPU memory, with an odd one it is the one cache.
"""

import random
import sys
import time

import vllm_engine


def prompt(draw):
    """One of some prompts: a tree of prefixes, three levels deep."""
    tokens = []
    for fan in (3, 6, 12):
        branch = draw.randrange(fan)
        tokens += [1 + branch * 1000 + at for at in range(draw.choice((2, 3)) * vllm_engine.TOKENS)]
    return tokens


def main(region, size, engine, seed, seconds=3600):
    draw = random.Random(int(seed))
    configured = vllm_engine.window if int(seed) % 2 else vllm_engine.tiering
    replica = vllm_engine.Replica(
        configured(engine, chunks=24, tier={"region": region, "region_bytes": int(size), "enable_kv_events": True})
    )
    vllm_engine.start_hashing()
    end = time.monotonic() + float(seconds)
    print("ready", flush=True)
    # At least one report, however slow the process is.
    while replica.requests < 20 or time.monotonic() < end:
        replica.run(prompt(draw))
        if replica.requests % 20 == 0:
            print(replica.requests, replica.loaded, replica.stored, flush=True)
    replica.settle()
    replica.close()
    print("closed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
