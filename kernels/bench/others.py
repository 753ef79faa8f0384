"""Others on the shapes of the bench, by the same timer: FlashInfer where it can be imported, a paged attention in Triton, PyTorch's attention
over pages that are gathered first (and over contiguous rows, which no engine has). Microseconds by device events, medians of 15 rounds after
200 ms of the same work; small cases are launched from a graph, as ours are. Pages of 16 tokens in random order; every case reads more than four
times the second-level cache before it reads the same memory again. Each line is printed as it is measured. What is missing is a line, and no
case is begun after 80 seconds, of which FlashInfer may compile for 30."""
import contextlib
import signal
import statistics
import time

DEADLINE = time.monotonic() + 80
HEADS, KV_HEADS, DIM, PAGE = 64, 8, 128, 16
GROUP, SCALE = HEADS // KV_HEADS, DIM**-0.5
ROUNDS, WARM_UP = 15, 0.2
COMPILE = 30.0
# (sequences, context, whether it is launched from a graph)
DECODES = [(64, 4096, False), (8, 32768, False), (8, 4096, True), (1, 32768, True), (1, 4096, True)]
# Latent vectors (MLA, absorbed): elements of a vector and of its value, tokens of a page;
# (sequences, context, query heads)
LATENT, LATENT_VALUE, LATENT_PAGE = 576, 512, 64
LATENTS = [(64, 4096, 16), (64, 4096, 128)]

try:
    import torch
    import torch.nn.functional as F

    torch.empty(1, device="cuda")
except Exception as error:
    print(f"skipped: PyTorch has no GPU here ({type(error).__name__})")
    raise SystemExit(0)


def optional(name, load):
    try:
        return load()
    except Exception as error:
        print(f"skipped: {name} cannot be imported ({type(error).__name__})", flush=True)
        return None


def import_flashinfer():
    import flashinfer

    return flashinfer


@contextlib.contextmanager
def compiling():
    """Bounds the time in which FlashInfer compiles kernels that its cache lacks: COMPILE seconds in all."""
    global COMPILE

    def stop(*_):
        raise TimeoutError("compiling FlashInfer took too long")

    began = time.monotonic()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(COMPILE, 1.0))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        COMPILE -= time.monotonic() - began


def import_triton():
    import triton
    import triton.language as tl

    return triton, tl


flashinfer = optional("FlashInfer", import_flashinfer)
triton, tl = optional("Triton", import_triton) or (None, None)
L2 = torch.cuda.get_device_properties(0).L2_cache_size


def clocks():
    try:
        return f"{torch.cuda.clock_rate()} MHz"
    except Exception:
        return "-"


def randn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def line(name, text):
    print(f"{name:56} {text}", flush=True)


def from_graph(run):
    """The work as one launch."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(name, runs, amount, unit, replayed=False):
    """`runs`: the same case over different memory, so that the cache holds none of it when it comes round."""
    if time.monotonic() > DEADLINE:
        return line(name, "left out: no time")
    try:
        everything = lambda: [run() for run in runs]
        if replayed:
            everything = from_graph(everything)
        began = time.monotonic()
        while True:
            everything()
            torch.cuda.synchronize()
            if time.monotonic() - began >= WARM_UP:
                break
        times = []
        for _ in range(ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            everything()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / len(runs))
        us = statistics.median(times)
        everything()
        line(name, f"{us:10.1f} us {amount / us / (1e3 if unit == 'GB/s' else 1e6):9.1f} {unit}  {clocks()}")
        torch.cuda.synchronize()
    except Exception as error:
        line(name, f"failed: {type(error).__name__} {str(error)[:90]}")


class Case:
    """A decode of `batch` sequences of `context` tokens, over `copies` pools of pages."""

    def __init__(self, batch, context):
        self.batch, self.context, self.pages = batch, context, context // PAGE
        self.bytes = 4 * batch * context * KV_HEADS * DIM
        self.copies = max(1, min(32, -(-4 * L2 // self.bytes)))
        self.q = randn(batch, HEADS, DIM)
        # [page][keys, values][token][head][element]
        self.pools = [randn(batch * self.pages, 2, PAGE, KV_HEADS, DIM) for _ in range(self.copies)]
        self.table = torch.randperm(batch * self.pages, device="cuda").to(torch.int32).view(batch, self.pages)
        self.label = f"B{batch} x {context}"

    def reference(self, pool, scale):
        """The first sequence's output in 32 bits; the pool's elements times `scale` are the values."""
        rows = pool.view(torch.uint8)[self.table[0].long()].view(pool.dtype).float() * scale
        keys, values = rows[:, 0].reshape(self.context, KV_HEADS, DIM), rows[:, 1].reshape(self.context, KV_HEADS, DIM)
        q = self.q[0].float().view(KV_HEADS, GROUP, DIM)
        weights = torch.softmax(torch.einsum("hgd,thd->hgt", q, keys) * SCALE, -1)
        return torch.einsum("hgt,thd->hgd", weights, values).reshape(HEADS, DIM)

    def check(self, name, out, pool=None, scale=1.0, limit=2e-2):
        """Whether the first sequence's output is near the reference; says so where it is not."""
        want = self.reference(self.pools[0] if pool is None else pool, scale)
        error = ((out[0].float() - want).norm() / want.norm()).item()
        if not error < limit:
            line(name, f"failed: relative error {error:.1e}")
        return error < limit


if triton:

    @triton.jit
    def partial_attention(q, pool, table, part_o, part_ml, context, pages, parts, scale,
                          HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
                          ROWS: tl.constexpr, KEYS: tl.constexpr):
        sequence, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
        row, column, key = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, KEYS)
        of_group = row < GROUP
        query = tl.load(q + (sequence * HEADS + head * GROUP + row[:, None]) * DIM + column[None, :], mask=of_group[:, None], other=0.0)
        step = tl.cdiv(tl.cdiv(context, parts), KEYS) * KEYS
        first = part * step
        last = tl.minimum(first + step, context)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, DIM], tl.float32)
        for start in range(first, last, KEYS):
            at = start + key
            seen = at < last
            page = tl.load(table + sequence * pages + at // PAGE, mask=seen, other=0).to(tl.int64)
            place = ((page * 2 * PAGE + at % PAGE) * KV_HEADS + head) * DIM
            keys = tl.load(pool + place[:, None] + column[None, :], mask=seen[:, None], other=0.0)
            values = tl.load(pool + place[:, None] + PAGE * KV_HEADS * DIM + column[None, :], mask=seen[:, None], other=0.0)
            scores = tl.where(seen[None, :], tl.dot(query, tl.trans(keys)) * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            factor = tl.exp2(top - higher)
            total = total * factor + tl.sum(weights, 1)
            acc = acc * factor[:, None] + tl.dot(weights.to(values.dtype), values)
            top = higher
        at = (sequence * HEADS + head * GROUP + row) * parts + part
        tl.store(part_o + at[:, None] * DIM + column[None, :], acc, mask=of_group[:, None])
        tl.store(part_ml + at * 2, top, mask=of_group)
        tl.store(part_ml + at * 2 + 1, total, mask=of_group)

    @triton.jit
    def merge_parts(part_o, part_ml, out, parts, DIM: tl.constexpr, PARTS: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        part, column = tl.arange(0, PARTS), tl.arange(0, DIM)
        there = part < parts
        top = tl.load(part_ml + (row * parts + part) * 2, mask=there, other=float("-inf"))
        total = tl.load(part_ml + (row * parts + part) * 2 + 1, mask=there, other=0.0)
        factor = tl.where(total > 0, tl.exp2(top - tl.max(top, 0)), 0.0)
        rows = tl.load(part_o + (row * parts + part[:, None]) * DIM + column[None, :], mask=there[:, None], other=0.0)
        tl.store(out + row * DIM + column, (tl.sum(rows * factor[:, None], 0) / tl.sum(total * factor, 0)).to(out.dtype.element_ty))


def triton_decode(case, replayed):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    parts = max(1, min(case.context // 128, -(-2 * multiprocessors // (case.batch * KV_HEADS))))
    rows = case.batch * HEADS
    part_o = torch.empty(rows * parts, DIM, device="cuda", dtype=torch.float32)
    part_ml, out = torch.empty(rows * parts, 2, device="cuda", dtype=torch.float32), torch.empty_like(case.q)

    def run(pool):
        partial_attention[(case.batch, KV_HEADS, parts)](
            case.q, pool, case.table, part_o, part_ml, case.context, case.pages, parts, SCALE * 1.4426950408889634,
            HEADS=HEADS, KV_HEADS=KV_HEADS, GROUP=GROUP, DIM=DIM, PAGE=PAGE, ROWS=16, KEYS=64, num_warps=4, num_stages=3)
        merge_parts[(rows,)](part_o, part_ml, out, parts, DIM=DIM, PARTS=triton.next_power_of_2(parts), num_warps=4)

    name = f"Triton paged, decode {case.label}"
    try:
        run(case.pools[0])
        torch.cuda.synchronize()
    except Exception as error:
        return line(name, f"failed: {type(error).__name__} {str(error)[:90]}")
    if case.check(name, out):
        measure(name, [lambda pool=pool: run(pool) for pool in case.pools], case.bytes, "GB/s", replayed)


def sdpa_decode(case, replayed):
    # The query heads of a key-value head as rows of one query: the same result without a mask.
    q = case.q.view(case.batch, KV_HEADS, GROUP, DIM)

    def gather(pool):
        rows = pool[case.table.view(-1).long()].view(case.batch, case.pages, 2, PAGE, KV_HEADS, DIM)
        halves = (rows[:, :, half].reshape(case.batch, case.context, KV_HEADS, DIM).transpose(1, 2) for half in range(2))
        return tuple(halves)

    run = lambda pool: F.scaled_dot_product_attention(q, *gather(pool))
    name = f"PyTorch SDPA, gathered pages, decode {case.label}"
    try:
        out = run(case.pools[0]).reshape(case.batch, HEADS, DIM)
    except Exception as error:
        return line(name, f"failed: {type(error).__name__} {str(error)[:90]}")
    if case.check(name, out):
        measure(name, [lambda pool=pool: run(pool) for pool in case.pools], case.bytes, "GB/s", replayed)
    contiguous = [tuple(half.contiguous() for half in gather(pool)) for pool in case.pools]
    measure(f"PyTorch SDPA, contiguous rows, decode {case.label}", [lambda kv=kv: F.scaled_dot_product_attention(q, *kv) for kv in contiguous],
            case.bytes, "GB/s", replayed)


def flashinfer_wrapper(case, backend, element, scale):
    """FlashInfer's planned decode; without a `backend` it does not use the tensor cores."""
    first = torch.arange(case.batch + 1, device="cuda", dtype=torch.int32) * case.pages
    last = torch.full((case.batch,), PAGE, device="cuda", dtype=torch.int32)
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=bool(backend), backend=backend or "auto")
    with compiling():
        wrapper.plan(first, case.table.view(-1), last, HEADS, KV_HEADS, DIM, PAGE, q_data_type=torch.bfloat16, kv_data_type=element)
    return lambda pool: wrapper.run(case.q, pool, k_scale=scale, v_scale=scale)


def flashinfer_xqa(case, pool, scale):
    """FlashInfer's decode without a plan. The workspace holds semaphores, which must start at zero."""
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    lengths = torch.full((case.batch,), case.context, device="cuda", dtype=torch.int32)
    scale = scale or 1.0

    def run(pool):
        return flashinfer.decode.trtllm_batch_decode_with_kv_cache(
            case.q, pool, workspace, case.table, lengths, case.context, bmm1_scale=SCALE * scale, bmm2_scale=scale, kv_layout="NHD", backend="xqa")

    with compiling():
        run(pool)
    return run


def flashinfer_decode(case, replayed, pools=None, scale=None, backends=("", "fa2", "fa3")):
    """Over the case's pools, or over `pools`, whose elements times `scale` are the values."""
    pools = pools or case.pools
    element = pools[0].dtype
    amount = case.bytes * element.itemsize // 2
    for backend in backends:
        name = f"FlashInfer {backend or 'CUDA cores'}, decode {case.label}" + (", e4m3" if scale else "")
        try:
            run = flashinfer_xqa(case, pools[0], scale) if backend == "xqa" else flashinfer_wrapper(case, backend, element, scale)
            out = run(pools[0])
        except Exception as error:
            line(name, f"failed: {type(error).__name__} {str(error)[:90]}")
            continue
        # Over e4m3 keys and values, xqa also rounds the query and the softmax weights to e4m3.
        if case.check(name, out, pools[0], scale or 1.0, 6e-2 if scale and backend == "xqa" else 2e-2):
            measure(name, [lambda pool=pool: run(pool) for pool in pools], amount, "GB/s", replayed)


def flashinfer_decode_e4m3(case, replayed, backends=("", "fa2")):
    """Keys and values in e4m3 with one static scale; fa3 is left out because it needs an e4m3 query."""
    scale = 2.0**-6
    pools = [(pool / scale).to(torch.float8_e4m3fn) for pool in case.pools]
    flashinfer_decode(case, replayed, pools, scale, backends)


def extend(rows, before):
    from torch.nn.attention.bias import causal_lower_right

    q, k, v = randn(1, HEADS, rows, DIM), randn(1, HEADS, before + rows, DIM), randn(1, HEADS, before + rows, DIM)
    mask = causal_lower_right(rows, before + rows)
    operations = 4 * (rows * before + rows * (rows + 1) // 2) * HEADS * DIM
    measure(f"PyTorch SDPA, extend {rows} over {before}", [lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)], operations, "TFLOP/s")


class Latents:
    """Attention over latent vectors (MLA), over `copies` pools of pages."""

    def __init__(self, batch, context, heads):
        self.batch, self.context, self.heads, self.pages = batch, context, heads, context // LATENT_PAGE
        self.bytes = 2 * batch * context * LATENT
        self.copies = max(1, min(32, -(-4 * L2 // self.bytes)))
        self.pools = [randn(batch * self.pages, LATENT_PAGE, LATENT) for _ in range(self.copies)]
        self.table = torch.randperm(batch * self.pages, device="cuda").to(torch.int32).view(batch, self.pages)
        self.q, self.label = randn(batch, heads, LATENT), f"mla B{batch} x {context}, {heads} heads"

    def gather(self, pool):
        return pool[self.table.view(-1).long()].view(self.batch, 1, self.context, LATENT)

    def compare(self, name, run):
        """Measures `run` if its output of the first sequence is near the reference in 32 bits."""
        first = self.gather(self.pools[0])[0, 0].float()
        want = torch.softmax(self.q[0].float() @ first.T * LATENT**-0.5, -1) @ first[:, :LATENT_VALUE]
        try:
            out = run(self.pools[0]).reshape(self.batch, self.heads, LATENT_VALUE)
        except Exception as error:
            return line(name, f"failed: {type(error).__name__} {str(error)[:90]}")
        error = ((out[0].float() - want).norm() / want.norm()).item()
        if not error < 2e-2:
            return line(name, f"failed: relative error {error:.1e}")
        measure(name, [lambda pool=pool: run(pool) for pool in self.pools], self.bytes, "GB/s")


def sdpa_latents(case):
    def run(pool):
        rows = case.gather(pool)
        return F.scaled_dot_product_attention(
            case.q.view(case.batch, 1, case.heads, LATENT), rows, rows[..., :LATENT_VALUE], scale=LATENT**-0.5)

    case.compare(f"PyTorch SDPA, gathered pages, {case.label}", run)


def flashinfer_latents(case):
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    counts = torch.arange(case.batch + 1, device="cuda", dtype=torch.int32)
    lengths = torch.full((case.batch,), case.context, device="cuda", dtype=torch.int32)
    halves = lambda x: (x[..., :LATENT_VALUE], x[..., LATENT_VALUE:])
    for backend in ("fa3", "fa2"):
        name = f"FlashInfer {backend}, {case.label}"
        try:
            wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend=backend)
            with compiling():
                wrapper.plan(counts, counts * case.pages, case.table.view(-1), lengths, case.heads, LATENT_VALUE, LATENT - LATENT_VALUE,
                             LATENT_PAGE, False, LATENT**-0.5, torch.bfloat16, torch.bfloat16)
        except Exception as error:
            line(name, f"failed: {type(error).__name__} {str(error)[:90]}")
            continue
        case.compare(name, lambda pool: wrapper.run(*halves(case.q), *halves(pool)))


def each(cases, make, label, works):
    """Runs every work on every case; only one case is in memory at a time."""
    for shape in cases:
        if time.monotonic() > DEADLINE:
            break
        try:
            case = make(*shape)
            for work in works:
                work(case, shape)
        except Exception as error:
            line(label.format(*shape), f"failed: {type(error).__name__} {str(error)[:90]}")
        case = None
        torch.cuda.empty_cache()


def main():
    versions = "".join(f", {name} {module.__version__}" for name, module in (("Triton", triton), ("FlashInfer", flashinfer)) if module)
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}{versions}", flush=True)
    decode = lambda batch, context, replayed: Case(batch, context)
    if flashinfer:
        each(DECODES[:2], decode, "decode B{} x {}", [lambda case, shape: flashinfer_decode(case, shape[2])])
        each(LATENTS, Latents, "mla B{} x {}, {} heads", [lambda case, shape: flashinfer_latents(case)])
        each(DECODES[:1], decode, "decode B{} x {}, e4m3", [lambda case, shape: flashinfer_decode_e4m3(case, shape[2])])
        each(DECODES[2:], decode, "decode B{} x {}", [lambda case, shape: flashinfer_decode(case, shape[2])])
    others = [lambda case, shape: sdpa_decode(case, shape[2])]
    if triton:
        others.insert(0, lambda case, shape: triton_decode(case, shape[2]))
    each(DECODES, decode, "decode B{} x {}", others)
    each(LATENTS, Latents, "mla B{} x {}, {} heads", [lambda case, shape: sdpa_latents(case)])
    try:
        extend(2048, 8192)
    except Exception as error:
        line("PyTorch SDPA, extend", f"failed: {type(error).__name__} {str(error)[:90]}")
    if flashinfer:
        each(DECODES, decode, "decode B{} x {}", [lambda case, shape: flashinfer_decode(case, shape[2], backends=("xqa",))])
        each(DECODES[:1], decode, "decode B{} x {}, e4m3", [lambda case, shape: flashinfer_decode_e4m3(case, shape[2], ("xqa",))])


main()
