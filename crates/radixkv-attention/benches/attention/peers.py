"""Decoding by torch and by ggml beside ours, on one thread, in turn.

    cargo bench -p radixkv-attention --bench attention --no-run      # prints the path of the program
    pip install torch numpy ggml-python
    python3 peers.py PATH-OF-THE-PROGRAM [ROUNDS]

The shapes are those of the bench: 8 sequences of 4,096 tokens, 32 query heads, 8 heads of keys and values, 128 elements.
Ours are in shuffled blocks of 16 tokens, in each of which the heads of a token lie side by side. torch and ggml read keys and
values of a whole sequence: by token as ours, or by head, where all tokens of a head lie side by side. All sides are
measured in the time that their one thread computes. Prints medians of milliseconds, and ours over theirs with quartiles.
"""

import ctypes
import statistics
import subprocess
import sys
import time

import ggml
import torch

SEQUENCES, TOKENS, QUERY_HEADS, KV_HEADS, DIM = 8, 4096, 32, 8, 128


def ours(program):
    """A function that runs one round of the bench and returns its seconds."""
    served = subprocess.Popen([program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(name):
        served.stdin.write(name + "\n")
        served.stdin.flush()
        return float(served.stdout.readline())

    return seconds


def torch_decode(dtype, by_token):
    """Grouped heads: the queries of a head of keys and values are the rows of one product."""
    torch.set_num_threads(1)
    shape = (SEQUENCES, TOKENS, KV_HEADS, DIM) if by_token else (SEQUENCES, KV_HEADS, TOKENS, DIM)
    keys, values = (torch.rand(shape, dtype=torch.float32).sub(0.5).to(dtype) for _ in range(2))
    if by_token:
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
    queries = torch.rand((SEQUENCES, KV_HEADS, QUERY_HEADS // KV_HEADS, DIM)).sub(0.5).to(dtype)

    def run():
        with torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(queries, keys, values)

    return run


def ggml_decode(kind, by_token):
    """`flash_attn_ext`, as llama.cpp decodes; its cache lies by token."""
    size = {ggml.GGML_TYPE_F32: 4}.get(kind, 2)
    memory = 2 * SEQUENCES * KV_HEADS * TOKENS * DIM * size + (256 << 20)
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=memory, mem_buffer=None, no_alloc=False))
    tensor = lambda kind, *dims: ggml.ggml_new_tensor_4d(context, kind, *dims)
    queries = tensor(ggml.GGML_TYPE_F32, DIM, 1, QUERY_HEADS, SEQUENCES)
    dims = (DIM, KV_HEADS, TOKENS, SEQUENCES) if by_token else (DIM, TOKENS, KV_HEADS, SEQUENCES)
    keys, values = (tensor(kind, *dims) for _ in range(2))
    for given in (queries, keys, values):
        # The bytes 0x3c are a small number in every type.
        ctypes.memset(ggml.ggml_get_data(given), 0x3C, ggml.ggml_nbytes(given))
    if by_token:
        keys, values = (ggml.ggml_permute(context, given, 0, 2, 1, 3) for given in (keys, values))
    out = ggml.ggml_flash_attn_ext(context, queries, keys, values, None, DIM**-0.5, 0.0, 0.0)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, out)
    return lambda: ggml.ggml_graph_compute_with_ctx(context, graph, 1)


def seconds(run):
    began = time.thread_time()
    run()
    return time.thread_time() - began


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    serve = ours(sys.argv[1])
    types = {
        "bf16": (torch.bfloat16, ggml.GGML_TYPE_BF16),
        "f32": (torch.float32, ggml.GGML_TYPE_F32),
        "f16": (torch.float16, ggml.GGML_TYPE_F16),
    }
    print("| decode, 8 x 4k, one thread | ours, ms | beside | ms | ours over it |")
    print("|---|---:|---|---:|---:|")
    for name, (torch_type, ggml_type) in types.items():
        sides = {"": lambda: serve(f"decode {name}")}
        for how, by_token in (("by token", True), ("by head", False)):
            for peer, run in (("torch", torch_decode(torch_type, by_token)), ("ggml", ggml_decode(ggml_type, by_token))):
                sides[f"{peer}, {how}"] = lambda run=run: seconds(run)
        for side in sides.values():
            side()
        measured = [{name: side() for name, side in sides.items()} for _ in range(rounds)]
        median = lambda side: 1e3 * statistics.median(round[side] for round in measured)
        for side in list(sides)[1:]:
            low, middle, high = statistics.quantiles([round[""] / round[side] for round in measured], n=4)
            print(f"| {name} | {median(''):.1f} | {side} | {median(side):.1f} | {middle:.2f} [{low:.2f} {high:.2f}] |")


main()
