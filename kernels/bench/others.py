"""PyTorch's attention and FlashInfer's, where they can be imported, on the shapes of the bench: microseconds by device events, medians.
The data is contiguous for PyTorch, in pages of 16 for FlashInfer. Stops starting cases after 60 seconds."""
import statistics
import time

DEADLINE = time.monotonic() + 60
HEADS, KV_HEADS, DIM, PAGE = 64, 8, 128, 16
DECODES = [(64, 4096), (8, 32768), (8, 4096), (1, 32768), (1, 4096)]

try:
    import torch
    import torch.nn.functional as F

    torch.empty(1, device="cuda")
except Exception as error:
    print(f"skipped: PyTorch has no GPU here ({type(error).__name__})")
    raise SystemExit(0)
try:
    import flashinfer
except Exception as error:
    print(f"skipped: FlashInfer cannot be imported ({type(error).__name__})")
    flashinfer = None

L2 = torch.cuda.get_device_properties(0).L2_cache_size


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def measure(name, runs, amount, unit):
    """`runs`: the same case over different memory, so that the cache holds none of it when it comes round."""
    if time.monotonic() > DEADLINE:
        print(f"{name:52} left out: no time")
        return
    try:
        for run in runs[:3]:
            run()
        torch.cuda.synchronize()
        times = []
        for _ in range(15):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            for run in runs:
                run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / len(runs))
        us = statistics.median(times)
        print(f"{name:52} {us:10.1f} us {amount / us / (1e3 if unit == 'GB/s' else 1e6):9.1f} {unit}", flush=True)
    except Exception as error:
        print(f"{name:52} failed: {type(error).__name__} {str(error)[:90]}", flush=True)


def decode(batch, context):
    bytes_read = 4 * batch * context * KV_HEADS * DIM
    copies = max(1, min(32, -(-4 * L2 // bytes_read)))
    label = f"B{batch} x {context}"
    q = randn(batch, HEADS, 1, DIM)
    kv = [(randn(batch, KV_HEADS, context, DIM), randn(batch, KV_HEADS, context, DIM)) for _ in range(copies)]
    # The query heads of a key-value head as rows of one query: the same result without a mask.
    rows = q.view(batch, KV_HEADS, HEADS // KV_HEADS, DIM)
    measure(f"PyTorch SDPA, group as rows, decode {label}", [lambda k=k, v=v: F.scaled_dot_product_attention(rows, k, v) for k, v in kv], bytes_read, "GB/s")
    measure(f"PyTorch SDPA, enable_gqa, decode {label}", [lambda k=k, v=v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True) for k, v in kv], bytes_read, "GB/s")
    del kv
    if flashinfer is None:
        return
    pages = context // PAGE
    pools = [randn(batch * pages, 2, KV_HEADS, PAGE, DIM) for _ in range(copies)]
    first = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * pages
    table = torch.randperm(batch * pages, device="cuda").to(torch.int32)
    last = torch.full((batch,), PAGE, device="cuda", dtype=torch.int32)
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for tensor_cores in (False, True):
        name = f"FlashInfer decode {label}" + (", tensor cores" if tensor_cores else "")
        try:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=tensor_cores)
            wrapper.plan(first, table, last, HEADS, KV_HEADS, DIM, PAGE, q_data_type=torch.bfloat16, data_type=torch.bfloat16)
        except Exception as error:
            print(f"{name:52} failed: {type(error).__name__} {str(error)[:90]}", flush=True)
            continue
        measure(name, [lambda pool=pool: wrapper.run(q.view(batch, HEADS, DIM), pool) for pool in pools], bytes_read, "GB/s")


def extend(rows, before):
    from torch.nn.attention.bias import causal_lower_right

    q, k, v = randn(1, HEADS, rows, DIM), randn(1, HEADS, before + rows, DIM), randn(1, HEADS, before + rows, DIM)
    mask = causal_lower_right(rows, before + rows)
    operations = 4 * (rows * before + rows * (rows + 1) // 2) * HEADS * DIM
    measure(f"PyTorch SDPA, extend {rows} over {before}", [lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)], operations, "TFLOP/s")


for shape in DECODES:
    decode(*shape)
extend(2048, 8192)
