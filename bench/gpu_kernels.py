#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels that bench/gpu.c measures, as PyTorch has them: the same names, shapes and dtypes, without TF32.

Two medians of batches, timed with CUDA's events: of calls as they are (eager: where a kernel is short, what a call costs the
CPU, as in the C program), and of the same calls replayed from a CUDA graph, which is what the kernels take. Operands and
results of a call are not those of the next. With the C program's output in FILE a row has its time too, and both ratios
torch / sherd.

    build/bench/gpu >FILE; bench/gpu_kernels.py [--with FILE] [--size gpt|large|long|wide] [--dtype f32|bf16] [part of a name]
    bench/gpu_kernels.py --small        tiny sizes, on the CPU where there is no GPU: whether all of it runs
"""
import argparse
import itertools
import statistics
import sys
import time

BATCHES = 5
BATCH_SECONDS = 5e-3
CACHE_BYTES = 192 << 20  # of the operands of all calls that differ
MOST_SETS = 64
MOST_CALLS = 1000
GRAPH_CALLS = 200  # of a graph, at most

SHAPES = {  # batch, context, heads, width, vocabulary
    "gpt": (8, 256, 8, 32, 256),
    "large": (8, 1024, 16, 64, 50304),
    "long": (8, 2048, 16, 64, 256),
    "wide": (8, 2048, 16, 128, 256),
    "tiny": (2, 8, 2, 8, 32),
}
ONLY = {"long": "attention", "wide": "attention"}  # names of jobs


class Case:
    """The sizes of a GPT, a dtype, and operands of them: numbers from 0 to 1."""

    def __init__(self, torch, size, dtype, where):
        self.torch, self.where = torch, where
        self.batch, self.context, self.heads, self.width, self.vocabulary = SHAPES[size]
        self.rows, self.dim = self.batch * self.context, self.heads * self.width
        self.mlp = 4 * self.dim
        self.dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.ids = torch.randint(0, self.vocabulary, (self.rows,), device=where)

    def new(self, *shape, dtype=None):
        return self.torch.rand(shape, device=self.where, dtype=dtype or self.dtype)

    def news(self, count, *shape, dtype=None):
        return [self.new(*shape, dtype=dtype) for _ in range(count)]

    def qkv(self, grad=False):
        """As a model has them: [batch, heads, context, width], positions outermost in memory."""
        heads = self.news(3, self.batch, self.context, self.heads, self.width)
        return [x.transpose(1, 2).detach().requires_grad_(grad) for x in heads]


def products(c):
    """Name: how to make the operands of a call, and the call."""
    mm, new, (rows, dim, mlp) = c.torch.mm, c.new, (c.rows, c.dim, c.mlp)

    def call(out, a, b):
        mm(a, b, out=out)

    return {
        "nt_dim": (lambda: (new(rows, dim), new(rows, dim), new(dim, dim).t()), call),
        "nt_mlp": (lambda: (new(rows, mlp), new(rows, dim), new(mlp, dim).t()), call),
        "nn_dim": (lambda: (new(rows, dim), new(rows, dim), new(dim, dim)), call),
        "nn_mlp": (lambda: (new(rows, dim), new(rows, mlp), new(mlp, dim)), call),
        "tn_dim": (lambda: (new(dim, dim), new(rows, dim).t(), new(rows, dim)), call),
        "tn_mlp": (lambda: (new(mlp, dim), new(rows, mlp).t(), new(rows, dim)), call),
    }


def attentions(c):
    """The gradient is that of autograd, of a graph that is kept."""
    attend = c.torch.nn.functional.scaled_dot_product_attention

    def recorded(mask=None):
        qkv = c.qkv(grad=True)
        out = attend(*qkv, attn_mask=mask) if mask is not None else attend(*qkv, is_causal=True)
        return out, qkv, c.new(c.batch, c.context, c.heads, c.width).transpose(1, 2)

    def causal_mask():
        return c.new(c.context, c.context) + c.torch.full((c.context,) * 2, -c.torch.inf, device=c.where).triu(1).to(c.dtype)

    def grad(out, qkv, dout):
        return c.torch.autograd.grad(out, qkv, dout, retain_graph=True)

    return {
        "attention": (c.qkv, lambda q, k, v: attend(q, k, v, is_causal=True)),
        "attention_grad": (recorded, grad),
        # a mask that is added, of which sherd knows besides that it is causal
        "attention_masked": (lambda: (*c.qkv(), causal_mask()), lambda q, k, v, mask: attend(q, k, v, attn_mask=mask)),
        "attention_masked_grad": (lambda: recorded(causal_mask()), grad),
        "attention_dropped": (c.qkv, lambda q, k, v: attend(q, k, v, is_causal=True, dropout_p=0.1)),
    }


def over_rows(c):
    """Gradients by the functions that autograd calls: it costs nothing here."""
    aten, functional = c.torch.ops.aten, c.torch.nn.functional
    rows, dim, classes = (c.rows, c.dim), [c.dim], (c.rows, c.vocabulary)
    weight = c.torch.full((), float(c.rows), dtype=c.dtype, device=c.where)

    def normed():
        dy, x, w, b = *c.news(2, *rows), *c.news(2, c.dim)
        return dy, x, *aten.native_layer_norm(x, dim, w, b, 1e-5)[1:], w, b

    def cross_entropy_grad(dy, logarithms):
        back = aten.nll_loss_backward(dy, logarithms, c.ids, None, 1, -100, weight)
        return aten._log_softmax_backward_data(back, logarithms, 1, c.dtype)

    return {
        "layer_norm": (lambda: (c.new(*rows), c.new(c.dim), c.new(c.dim)),
                       lambda x, w, b: functional.layer_norm(x, dim, w, b)),
        "norm_grad": (normed,
                      lambda dy, x, mean, rstd, w, b: aten.native_layer_norm_backward(dy, x, dim, mean, rstd, w, b,
                                                                                      [True, True, True])),
        "softmax": (lambda: c.news(2, *classes), lambda y, x: c.torch.softmax(x, 1, out=y)),
        "soft_parts": (lambda: c.news(2, *classes), lambda y, x: c.torch.softmax(x, 1, out=y)),
        "norm_parts": (lambda: (c.new(*rows), c.new(c.dim), c.new(c.dim)),
                       lambda x, w, b: functional.layer_norm(x, dim, w, b)),
        "softmax_grad": (lambda: c.news(2, *classes),
                         lambda dy, y: aten._softmax_backward_data(dy, y, 1, c.dtype)),
        "cross_entropy": (lambda: c.news(1, *classes), lambda x: functional.cross_entropy(x, c.ids)),
        "cross_entropy_grad": (lambda: (c.new(), c.new(*classes)), cross_entropy_grad),
        "embedding": (lambda: c.news(1, c.vocabulary, c.dim), lambda w: functional.embedding(c.ids, w)),
        "embedding_grad": (lambda: c.news(1, *rows),
                           lambda dy: aten.embedding_dense_backward(dy, c.ids, c.vocabulary, -1, False)),
    }


def tokens(c):
    """A query of each item to a full cache; and what is taken, put and sorted by index."""
    torch, classes = c.torch, (c.rows, c.vocabulary)
    attend = torch.nn.functional.scaled_dot_product_attention
    rows = (c.rows, c.dim)

    def cached():
        q = c.new(c.batch, 1, c.heads, c.width)
        return [x.transpose(1, 2) for x in (q, *c.news(2, c.batch, c.context, c.heads, c.width))]

    def grouped():
        q, heads = c.new(c.batch, 1, c.heads, c.width), max(1, c.heads // 8)
        return [x.transpose(1, 2) for x in (q, *c.news(2, c.batch, c.context, heads, c.width))]

    together = min(16, c.context)
    table = torch.randperm(c.rows // together, device=c.where)

    def paged():
        return c.new(c.batch, c.heads, 1, c.width), *c.news(2, c.rows // together, together, c.heads, c.width)

    def attend_paged(q, k, v):
        return attend(q, *[pool[table].view(c.batch, c.context, c.heads, c.width).transpose(1, 2) for pool in (k, v)])

    return {
        "attention_cached": (cached, attend),
        # of a pool of blocks, which are copied together: PyTorch has no operator that reads them where they lie
        "attention_paged": (paged, attend_paged),
        "attention_grouped": (grouped, lambda q, k, v: attend(q, k, v, enable_gqa=True)),
        "topk": (lambda: c.news(1, *classes), lambda x: torch.topk(x, min(8, c.vocabulary))),
        "sort": (lambda: c.news(1, *classes), lambda x: torch.sort(x, descending=True, stable=True)),
        "index_select": (lambda: (c.new(*rows), c.new(c.vocabulary, c.dim)),
                         lambda y, w: torch.index_select(w, 0, c.ids, out=y)),
        "scatter_add": (lambda: (c.new(c.vocabulary, c.dim), c.new(*rows)), lambda y, x: y.index_add_(0, c.ids, x)),
    }


def elements(c):
    aten, torch = c.torch.ops.aten, c.torch
    rows, mlp = (c.rows, c.dim), (c.rows, c.mlp)
    return {
        "gelu": (lambda: c.news(1, *mlp), lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        "gelu_grad": (lambda: c.news(2, *mlp), lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh")),
        "add": (lambda: c.news(3, *rows), lambda y, a, b: torch.add(a, b, out=y)),
        "add_bias": (lambda: (*c.news(2, *mlp), c.new(c.mlp)), lambda y, a, b: torch.add(a, b, out=y)),
        "sum_to_bias": (lambda: (c.new(c.mlp), c.new(*mlp)), lambda y, x: torch.sum(x, 0, out=y)),
        "sum_inner": (lambda: (c.new(c.rows), c.new(*mlp)), lambda y, x: torch.sum(x, 1, out=y)),
        "sum_squares": (lambda: c.news(1, c.mlp, c.dim), torch.linalg.vector_norm),
        "copy_transposed": (lambda: (c.new(c.dim, c.rows), c.new(*rows)), lambda y, x: y.copy_(x.t())),
        "reduce_2": (lambda: c.news(3, *rows), lambda y, a, b: torch.add(a, b, out=y)),
        # of addends that lie together, which is the best case: one kernel
        "reduce_8": (lambda: (c.new(*rows), c.new(8, *rows)), lambda y, x: torch.sum(x, 0, out=y)),
    }


def numbers(c):
    """Comparisons, choices, folds and running sums."""
    torch, mlp, classes = c.torch, (c.rows, c.mlp), (c.rows, c.vocabulary)

    def ints(*shape):
        return torch.zeros(shape, dtype=torch.int64, device=c.where)

    def mask():
        return c.new(*mlp) < 0.5

    return {
        "less": (lambda: (mask(), *c.news(2, *mlp)), lambda y, a, b: torch.lt(a, b, out=y)),
        "where": (lambda: (mask(), *c.news(3, *mlp)), lambda m, y, a, b: torch.where(m, a, b, out=y)),
        "max_inner": (lambda: (c.new(c.rows), c.new(*mlp)), lambda y, x: torch.amax(x, 1, out=y)),
        "max_outer": (lambda: (c.new(c.mlp), c.new(*mlp)), lambda y, x: torch.amax(x, 0, out=y)),
        "argmax": (lambda: (ints(c.rows), c.new(*classes)), lambda y, x: torch.argmax(x, 1, out=y)),
        "argmax_all": (lambda: (c.new(*mlp),), torch.argmax),
        "logsumexp": (lambda: (c.new(c.rows), c.new(*classes)), lambda y, x: torch.logsumexp(x, 1, out=y)),
        "cumsum_inner": (lambda: c.news(2, *mlp), lambda y, x: torch.cumsum(x, 1, out=y)),
        "cumsum_outer": (lambda: c.news(2, *mlp), lambda y, x: torch.cumsum(x, 0, out=y)),
        "cumprod_inner": (lambda: c.news(2, *mlp), lambda y, x: torch.cumprod(x, 1, out=y)),
        "cumprod_outer": (lambda: c.news(2, *mlp), lambda y, x: torch.cumprod(x, 0, out=y)),
        "cummax_inner": (lambda: c.news(1, *mlp), lambda x: torch.cummax(x, 1)),
    }


def conversions(c):
    bf16, f32, mlp = c.torch.bfloat16, c.torch.float32, (c.rows, c.mlp)
    return {
        "to_bf16": (lambda: (c.new(*mlp, dtype=bf16), c.new(*mlp, dtype=f32)), lambda y, x: y.copy_(x)),
        "from_bf16": (lambda: (c.new(*mlp, dtype=f32), c.new(*mlp, dtype=bf16)), lambda y, x: y.copy_(x)),
    }


def updates(c):
    """The matrices of a layer in one call."""
    square, tall = (c.dim, c.dim), (c.mlp, c.dim)
    step = c.torch.ones((), device=c.where)

    def call(p, grad, m, v):
        c.torch._fused_adamw_(p, grad, m, v, [], [step] * len(p), lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1,
                              eps=1e-8, amsgrad=False, maximize=False)

    def of(*shapes):
        return lambda: tuple([c.new(*shape) for shape in shapes] for _ in range(4)), call

    return {"adamw_dim": of(square), "adamw_mlp": of(tall), "adamw_layer": of(*[square] * 4, *[tall] * 2)}


def jobs_of(c):
    jobs = products(c) | attentions(c) | tokens(c) | over_rows(c) | elements(c) | numbers(c)
    return jobs | (updates(c) if c.dtype == c.torch.float32 else conversions(c))


def bytes_of(torch, operands):
    """Of tensors in lists and tuples."""
    if isinstance(operands, torch.Tensor):
        return operands.numel() * operands.element_size()
    return sum(bytes_of(torch, x) for x in operands)


class Clock:
    """Seconds of what is queued, by events of CUDA; of the CPU by its clock."""

    def __init__(self, torch, cuda):
        self.torch, self.cuda = torch, cuda

    def seconds(self, queue):
        if not self.cuda:
            begin = time.monotonic()
            queue()
            return time.monotonic() - begin
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda.synchronize()
        begin.record()
        queue()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def median(self, queue):
        return statistics.median(self.seconds(queue) for _ in range(BATCHES))


def graph_seconds(torch, clock, calls, run):
    """Of a call, without what it costs the CPU; None: it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            run(calls)
        graph.replay()
        return clock.median(graph.replay) / calls
    except RuntimeError as error:
        print(f"# no graph: {str(error).splitlines()[0]}", file=sys.stderr)
        torch.cuda.synchronize()
        return None


def measure(torch, clock, make, call, small):
    """Seconds of a call: eager, and of a graph."""
    first = make()
    count = 2 if small else min(1 + CACHE_BYTES // bytes_of(torch, first), MOST_SETS)
    sets = [first] + [make() for _ in range(count - 1)]
    results = [None] * count  # kept until the next call of the same operands

    def run(calls):
        for i in range(calls):
            results[i % count] = call(*sets[i % count])

    with torch.set_grad_enabled(False):
        run(count)
        once = clock.seconds(lambda: run(count)) / count
        calls = count if small else int(min(1 + BATCH_SECONDS / once, MOST_CALLS))
        eager = clock.median(lambda: run(calls)) / calls
        results[:] = [None] * count
        graph = graph_seconds(torch, clock, min(calls, GRAPH_CALLS), run) if clock.cuda else None
    return eager, graph


def read_times(path):
    """{(size, dtype, name): us} of the C program's output."""
    times = {}
    with open(path, encoding="utf-8") as file:
        for words in map(str.split, file):
            if len(words) > 4 and words[4] == "us":
                times[tuple(words[:3])] = float(words[3])
    return times


def print_row(key, eager, graph, sherd):
    line = f"{key[0]:5} {key[1]:4} {key[2]:18} {1e6 * eager:10.2f} us "
    line += f"{1e6 * graph:10.2f}" if graph else f"{'-':>10}"
    if sherd:
        line += f" {sherd:10.2f} {1e6 * eager / sherd:7.2f}x"
        line += f" {1e6 * graph / sherd:7.2f}x" if graph else f" {'-':>8}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--with", dest="beside", help="output of the C program")
    parser.add_argument("--size", default="", choices=["gpt", "large", "long", "wide"])
    parser.add_argument("--dtype", default="", choices=["f32", "bf16"])
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("part", nargs="?", default="", help="of a name")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("gpu_kernels.py: torch is not installed here: nothing to compare with")
    cuda = torch.cuda.is_available()
    if not cuda and not args.small:
        sys.exit("gpu_kernels.py: torch has no GPU here")
    torch.backends.cuda.matmul.allow_tf32 = False
    times = read_times(args.beside) if args.beside else {}
    sizes = ["tiny"] if args.small else [args.size] if args.size else ["gpt", "large", "long", "wide"]
    print(f"# {torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}")
    print(f"# {'':27} {'eager':>10}    {'graph':>10}" + (f" {'sherd':>10} {'eager/':>8} {'graph/':>8}" if times else ""))
    if cuda:
        torch.cuda.set_stream(torch.cuda.Stream())  # the first one cannot be captured, nor what autograd recorded there
    for dtype, size in itertools.product([args.dtype] if args.dtype else ["f32", "bf16"], sizes):
        case = Case(torch, size, dtype, "cuda" if cuda else "cpu")
        for name, (make, call) in jobs_of(case).items():
            if args.part in name and ONLY.get(size, "") in name:
                key = (size, dtype, name)
                print_row(key, *measure(torch, Clock(torch, cuda), make, call, args.small), times.get(key))
                if cuda:
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
