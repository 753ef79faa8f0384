"""Decoding by torch and by ggml beside ours, on one thread, in turn.

    cargo bench -p radixkv-attention --bench attention --no-run      # prints the path of the program
    pip install torch numpy ggml-python
    python3 peers.py PATH-OF-THE-PROGRAM [ROUNDS]

The shapes are those of the bench: 8 sequences of 4,096 tokens, 32 query heads, 8 heads of keys and values, 128 elements.
torch and ggml read keys and values that lie side by side for each sequence and head; ours are in shuffled blocks of 16
tokens. Prints medians of milliseconds, and ours over theirs with quartiles.
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


def torch_decode(dtype):
    """Grouped heads: the queries of a head of keys and values are the rows of one product."""
    torch.set_num_threads(1)
    shape = (SEQUENCES, KV_HEADS, TOKENS, DIM)
    keys, values = (torch.rand(shape, dtype=torch.float32).sub(0.5).to(dtype) for _ in range(2))
    queries = torch.rand((SEQUENCES, KV_HEADS, QUERY_HEADS // KV_HEADS, DIM)).sub(0.5).to(dtype)

    def run():
        with torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(queries, keys, values)

    return run


def ggml_decode(kind):
    """`flash_attn_ext`, as llama.cpp decodes."""
    size = {ggml.GGML_TYPE_F32: 4}.get(kind, 2)
    memory = 2 * SEQUENCES * KV_HEADS * TOKENS * DIM * size + (256 << 20)
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=memory, mem_buffer=None, no_alloc=False))
    tensor = lambda kind, *dims: ggml.ggml_new_tensor_4d(context, kind, *dims)
    queries = tensor(ggml.GGML_TYPE_F32, DIM, 1, QUERY_HEADS, SEQUENCES)
    keys, values = (tensor(kind, DIM, TOKENS, KV_HEADS, SEQUENCES) for _ in range(2))
    for given in (queries, keys, values):
        # The bytes 0x3c are a small number in every type.
        ctypes.memset(ggml.ggml_get_data(given), 0x3C, ggml.ggml_nbytes(given))
    out = ggml.ggml_flash_attn_ext(context, queries, keys, values, None, DIM**-0.5, 0.0, 0.0)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, out)
    return lambda: ggml.ggml_graph_compute_with_ctx(context, graph, 1)


def seconds(run):
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    serve = ours(sys.argv[1])
    types = {
        "bf16": (torch.bfloat16, ggml.GGML_TYPE_BF16),
        "f32": (torch.float32, ggml.GGML_TYPE_F32),
        "f16": (torch.float16, ggml.GGML_TYPE_F16),
    }
    print("| decode, 8 x 4k, one thread | ours, ms | torch, ms | ggml, ms | ours over torch | ours over ggml |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (torch_type, ggml_type) in types.items():
        sides = [lambda: serve(f"decode {name}"), None, None]
        torch_run, ggml_run = torch_decode(torch_type), ggml_decode(ggml_type)
        sides[1:] = [lambda: seconds(torch_run), lambda: seconds(ggml_run)]
        for side in sides:
            side()
        measured = [[side() for side in sides] for _ in range(rounds)]
        medians = [f"{1e3 * statistics.median(round[side] for round in measured):.1f}" for side in range(3)]
        ratios = []
        for side in (1, 2):
            low, middle, high = statistics.quantiles([round[0] / round[side] for round in measured], n=4)
            ratios.append(f"{middle:.2f} [{low:.2f} {high:.2f}]")
        print(f"| {name} | {' | '.join(medians)} | {' | '.join(ratios)} |")


main()
