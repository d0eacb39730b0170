# SPDX-License-Identifier: Apache-2.0
"""More rows for bench/compare_operators.py: operators that are rarer, and others' rarer operands: 16 bits, transposed, narrow
last dims, middle dims."""
import torch
import torch.nn.functional as F

from operator_rows import BF, ROWS, T, first, row, text

ALL_BF = dict(tolerance=3e-2)


def dims(*d):
    return {"count": len(d), "dim": list(d) + [0] * (8 - len(d))}


# ---- elementwise
for name, f in dict(asin=torch.asin, acos=torch.acos, atanh=torch.atanh).items():
    row(f"{name} middle", name, None, [T(128, 512, kind="d")], f, tolerance=1e-3, unchecked=(1,))
row("acosh middle", "acosh", None, [T(128, 512, kind="p")], lambda x: torch.acosh(x), tolerance=1e-3, unchecked=(0, 1))
for name, fields, f in [("celu", {"alpha": 0.7}, lambda x: F.celu(x, 0.7)), ("softshrink", {"bound": 0.5}, F.softshrink),
                        ("hardshrink", {"bound": 0.5}, F.hardshrink)]:
    row(f"{name} middle", name, fields, [T(128, 512)], f, tolerance=1e-4)
row("floor_divide_scalar middle", "floor_divide_scalar", {"divisor": 0.75}, [T(128, 512)], lambda x: torch.floor_divide(x, 0.75),
    backward=False)
for name, f in dict(fmax=torch.fmax, fmin=torch.fmin, floor_divide=torch.floor_divide).items():
    row(f"{name} middle", name, None, [T(128, 512), T(128, 512, kind="p")], f, backward=name != "floor_divide")
for name, f in dict(le=torch.le, ne=torch.ne, ge=torch.ge, gt=torch.gt).items():
    row(f"{name}_scalar middle", name + "_scalar", {"value": 0.5}, [T(128, 512)], lambda x, f=f: f(x, 0.5), backward=False)
for name, f in dict(logical_or=torch.logical_or, logical_xor=torch.logical_xor, ne=torch.ne, le=torch.le).items():
    row(f"{name} middle", name, None, [T(128, 512), T(128, 512)], f, backward=False)
row("isclose middle", "isclose", {"relative": 1e-5, "absolute": 1e-8}, [T(128, 512), T(128, 512)], torch.isclose, backward=False)
for name, f in dict(bitwise_and=torch.bitwise_and, bitwise_xor=torch.bitwise_xor).items():
    row(f"{name} of i64 middle", name, None, [T(128, 512, dtype=torch.int64)] * 2, f, backward=False)
row("bitwise_not of i64 middle", "bitwise_not", None, [T(128, 512, dtype=torch.int64)], torch.bitwise_not, backward=False)
for dtype, kind in ((BF, "bf16"), (torch.float16, "f16"), (torch.float64, "f64")):
    wide = dtype == torch.float64
    for name, f in dict(tanh=torch.tanh, sigmoid=torch.sigmoid, gelu_erf=F.gelu, sqrt=torch.sqrt, log=torch.log, square=torch.square,
                        erf=torch.erf, sin=torch.sin, exp=torch.exp).items():
        row(f"{name} middle, {kind}", name, None, [T(128, 512, dtype=dtype, kind="p")], f, tolerance=1e-9 if wide else 3e-2)
    for name, f in dict(sub=torch.sub, div=torch.div, maximum=torch.maximum, power=torch.pow, logaddexp=torch.logaddexp).items():
        row(f"{name} middle, {kind}", name, None, [T(128, 512, dtype=dtype, kind="p")] * 2, f, tolerance=1e-9 if wide else 6e-2)
    row(f"where middle, {kind}", "where", None, [T(128, 512, kind="b"), T(128, 512, dtype=dtype), T(128, 512, dtype=dtype)], torch.where)
    row(f"lt middle, {kind}", "lt", None, [T(128, 512, dtype=dtype)] * 2, torch.lt, backward=False)
    for name in ("add", "mul"):
        f = getattr(torch, name)
        row(f"{name} middle, a row to all, {kind}", name, None, [T(128, 512, dtype=dtype), T(512, dtype=dtype)], f, tolerance=6e-2)
        row(f"{name} middle, a column to all, {kind}", name, None, [T(128, 512, dtype=dtype), T(128, 1, dtype=dtype)], f, tolerance=6e-2)
        row(f"{name}, channels of 8x64x28x28, {kind}", name, None, [T(8, 64, 28, 28, dtype=dtype), T(64, 1, 1, dtype=dtype)], f,
            tolerance=6e-2)
    row(f"add middle, transposed, {kind}", [("transpose", [1], {"p": 0, "q": 1}), ("add", [0, first(0)], {})], None,
        [T(512, 512, dtype=dtype), T(512, 512, dtype=dtype)], lambda a, b: a + b.t(), tolerance=3e-2)
for name, f in dict(gelu=lambda x: F.gelu(x, approximate="tanh"), exp=torch.exp, neg=torch.neg).items():
    row(f"{name} of 512x512 transposed", [("transpose", [0], {"p": 0, "q": 1}), (name, [first(0)], {})], None, [T(512, 512)],
        lambda x, f=f: f(x.t()), tolerance=1e-4)
for name in ("add", "mul"):
    f = getattr(torch, name)
    row(f"{name} 100000x3, a row to all", name, None, [T(100000, 3), T(3)], f, tolerance=1e-3)
    row(f"{name} 100000x3, a column to all", name, None, [T(100000, 3), T(100000, 1)], f)
    row(f"{name} 100000x16, a column to all", name, None, [T(100000, 16), T(100000, 1)], f)
    row(f"{name} bf16 100000x3, a column to all", name, None, [T(100000, 3, dtype=BF), T(100000, 1, dtype=BF)], f, tolerance=6e-2)

# ---- reductions
for dtype, kind in ((BF, "bf16"), (torch.float64, "f64")):
    for s, d in [((128, 512), 1), ((128, 512), 0), ((64, 128, 256), 1), ((100000, 16), 1), ((100000, 3), 1), ((8, 64, 56, 56), 1)]:
        of = f"of dim {d} of {text(s)}, {kind}"
        for name, f in dict(sum_over=lambda x, d: x.sum(d), mean_over=lambda x, d: x.mean(d), max=lambda x, d: x.amax(d),
                            argmax=lambda x, d: x.argmax(d)).items():
            row(f"{name} {of}", name, dims(d), [T(*s, dtype=dtype, kind="n")], lambda x, f=f, d=d: f(x, d), tolerance=3e-2,
                backward=name in ("sum_over", "mean_over"), unchecked=(0,) if name == "argmax" else ())
        for name, f, p in [("var", lambda x, d: x.var(d), 1), ("norm", lambda x, d: torch.linalg.vector_norm(x, 2, d), 2)]:
            row(f"{name} {of}", name, {"dims." + k: v for k, v in dims(d).items()} | {"parameter": p}, [T(*s, dtype=dtype)],
                lambda x, f=f, d=d: f(x, d), tolerance=5e-2)
        for name, f in dict(softmax=torch.softmax, log_softmax=torch.log_softmax, logsumexp=torch.logsumexp).items():
            row(f"{name} {of}", name, dims(d), [T(*s, dtype=dtype)], lambda x, f=f, d=d: f(x, d), tolerance=6e-2)
for s, d in [((100000, 3), 1), ((64, 128, 256), 1), ((8, 64, 56, 56), 1), ((512, 512), 0)]:
    for p in (1, 3, float("inf")):
        row(f"norm {p} of dim {d} of {text(s)}", "norm", {"dims." + k: v for k, v in dims(d).items()} | {"parameter": p}, [T(*s)],
            lambda x, d=d, p=p: torch.linalg.vector_norm(x, p, d), tolerance=1e-3)
row("sum_over dim 0 of 512x512 transposed", [("transpose", [0], {"p": 0, "q": 1}), ("sum_over", [first(0)], dims(0))], None, [T(512, 512)],
    lambda x: x.t().sum(0), tolerance=1e-3)
row("softmax of dim 1 of 512x512 transposed", [("transpose", [0], {"p": 0, "q": 1}), ("softmax", [first(0)], dims(1))], None, [T(512, 512)],
    lambda x: x.t().softmax(1), tolerance=1e-3)
row("sum_over dims 2 3 of 8x64x56x56", "sum_over", dims(2, 3), [T(8, 64, 56, 56)], lambda x: x.sum((2, 3)), tolerance=1e-3)
row("mean_over dims 2 3 of 8x512x7x7", "mean_over", dims(2, 3), [T(8, 512, 7, 7)], lambda x: x.mean((2, 3)), tolerance=1e-3)
row("sum 128x512", "sum", None, [T(128, 512)], torch.sum, tolerance=1e-3)
row("mean 2048x4096", "mean", None, [T(2048, 4096)], torch.mean, tolerance=1e-3)
row("argmin of dim 1 of 128x512", "argmin", dims(1), [T(128, 512)], lambda x: x.argmin(1), backward=False)

# ---- composed of others
for s, kind, dtype in [((128, 512), "", torch.float32), ((4096, 1024), "", torch.float32), ((4096, 1024), " bf16", BF)]:
    row(f"normalize {text(s)}{kind}", "normalize", {"p": 2, "eps": 1e-12, "dim": 1}, [T(*s, dtype=dtype)], lambda x: F.normalize(x), tolerance=3e-2)
    row(f"cosine_similarity {text(s)}{kind}", "cosine_similarity", {"eps": 1e-8, "dim": 1}, [T(*s, dtype=dtype)] * 2, F.cosine_similarity,
        tolerance=4e-2)
    row(f"glu {text(s)}{kind}", "glu", {"dim": 1}, [T(*s, dtype=dtype)], lambda x: F.glu(x, 1), tolerance=3e-2)
    row(f"prelu, one, {text(s)}{kind}", "prelu", None, [T(*s, dtype=dtype), T(1, dtype=dtype)], F.prelu, tolerance=0.3)
row("glu of dim 1 of 8x64x56x56", "glu", {"dim": 1}, [T(8, 64, 56, 56)], lambda x: F.glu(x, 1))
row("prelu of 8x64x56x56", "prelu", None, [T(8, 64, 56, 56), T(64)], F.prelu, tolerance=1e-3)
row("cross 100000x3", "cross", {"dim": 1}, [T(100000, 3)] * 2, lambda a, b: torch.linalg.cross(a, b))
row("cross 3x100000", "cross", {"dim": 0}, [T(3, 100000)] * 2, lambda a, b: torch.linalg.cross(a, b, dim=0))

# ---- shapes
for s, p, q in [((512, 512), 0, 1), ((64, 128, 128), 1, 2)]:
    row(f"diagonal of {text(s)}", "diagonal", {"p": p, "q": q}, [T(*s)], lambda x, p=p, q=q: x.diagonal(0, p, q).contiguous())
row("diag_embed of 64x128", "diag_embed", {"p": 1, "q": 2}, [T(64, 128)], lambda x: x.diag_embed())
row("trace of 512x512", "trace", {"p": 0, "q": 1}, [T(512, 512)], torch.trace, tolerance=1e-3)
row("pixel_shuffle 2 of 8x64x28x28", "pixel_shuffle", {"factor": 2}, [T(8, 64, 28, 28)], lambda x: F.pixel_shuffle(x, 2))
row("pixel_unshuffle 2 of 8x16x56x56", "pixel_unshuffle", {"factor": 2}, [T(8, 16, 56, 56)], lambda x: F.pixel_unshuffle(x, 2))
row("unfold 16 by 8 of 64x4096", "unfold", {"size": 16, "step": 8, "dim": 1}, [T(64, 4096)], lambda x: x.unfold(1, 16, 8).contiguous())
for dtype, kind in ((BF, "bf16"), (torch.float64, "f64")):
    for d in (0, 1):
        row(f"flip dim {d} of 512x512, {kind}", "flip", dims(d), [T(512, 512, dtype=dtype)], lambda x, d=d: x.flip(d))
        row(f"roll dim {d} of 512x512, {kind}", "roll", {"by": 3, "dim": d}, [T(512, 512, dtype=dtype)], lambda x, d=d: x.roll(3, d))
        row(f"cat 4 of 256x512 in dim {d}, {kind}", "cat", {"dim": d}, [T(256, 512, dtype=dtype)] * 4, lambda *t, d=d: torch.cat(t, d))
    row(f"tril 512x512, {kind}", "tril", {"diagonal": 0}, [T(512, 512, dtype=dtype)], torch.tril)
    row(f"contiguous of permute 0231 of 8x64x28x28, {kind}", [("permute", [0], {"ndim": 4, "dim": [0, 2, 3, 1] + [0] * 4}),
                                                             ("contiguous", [first(0)], {})], None,
        [T(8, 64, 28, 28, dtype=dtype)], lambda x: x.permute(0, 2, 3, 1).contiguous())
row("flip dim 1 of 100000x3", "flip", dims(1), [T(100000, 3)], lambda x: x.flip(1))
row("flip dims 2 3 of 8x64x56x56", "flip", dims(2, 3), [T(8, 64, 56, 56)], lambda x: x.flip(2, 3))
row("roll dim 1 of 100000x3", "roll", {"by": 1, "dim": 1}, [T(100000, 3)], lambda x: x.roll(1, 1))
row("repeat_interleave 3 of rows of 4096x64", "repeat_interleave", {"dim": 0, "times": 3}, [T(4096, 64)], lambda x: x.repeat_interleave(3, 0))
row("repeat_interleave 2 of dim 1 of 8x64x28x28", "repeat_interleave", {"dim": 1, "times": 2}, [T(8, 64, 28, 28)],
    lambda x: x.repeat_interleave(2, 1))

# ---- by index
for s, n, kind, dtype in [((1000, 256), 2000, "", torch.float32), ((1000, 256), 2000, " bf16", BF), ((10000, 3), 100000, "", torch.float32)]:
    row(f"index_add {n} to {text(s)}{kind}", "index_add", {"dim": 0, "value": 1}, [T(*s, dtype=dtype), T(n, kind=s[0]), T(n, s[1], dtype=dtype)],
        lambda a, i, y: a.index_add(0, i, y), tolerance=6e-2)
    row(f"index_select {n} of {text(s)}{kind}, again", "index_select", {"dim": 0, "flat": 1}, [T(*s, dtype=dtype), T(n, kind=s[0])],
        lambda x, i: x.index_select(0, i), tolerance=0.1)
row("index_fill 500 of 1000x256", "index_fill", {"dim": 0, "value": 2}, [T(1000, 256), T(500, kind=1000)], lambda a, i: a.index_fill(0, i, 2))
row("index_at 100000 of 1000x1000", "index_at", {"count": 2}, [T(1000, 1000), T(100000, kind=1000), T(100000, kind=1000)],
    lambda a, i, j: a[i, j], tolerance=1e-3)
row("index_put, added, 100000 of 1000x1000", "index_put", {"count": 2, "accumulates": 1},
    [T(1000, 1000), T(100000), T(100000, kind=1000), T(100000, kind=1000)], lambda a, v, i, j: a.index_put((i, j), v, accumulate=True),
    tolerance=1e-3)
row("gather 512 of dim 1 of 2048x512 bf16", "gather", {"dim": 1}, [T(2048, 512, dtype=BF), T(2048, 512, kind=512)], lambda x, i: x.gather(1, i),
    tolerance=0.1)
row("scatter_add 512 to dim 1 of 2048x512 bf16", "scatter_add", {"dim": 1}, [T(2048, 512, dtype=BF), T(2048, 512, kind=512), T(2048, 512, dtype=BF)],
    lambda x, i, y: x.scatter_add(1, i, y), tolerance=0.1)
row("histc of 100k in 100", "histc", {"bins": 100, "min": -3, "max": 3}, [T(100000)], lambda x: torch.histc(x, 100, -3, 3), backward=False)

# ---- running
for s, d in [((128, 512), 1), ((128, 512), 0), ((64, 128, 256), 1), ((10000, 16), 1)]:
    row(f"cumprod dim {d} of {text(s)}", "cumprod", {"dim": d}, [T(*s, kind="d")], lambda x, d=d: x.cumprod(d), tolerance=1e-3, unchecked=(1,))
    row(f"cummax dim {d} of {text(s)}", "cummax", {"dim": d}, [T(*s, kind="d")], lambda x, d=d: x.cummax(d), unchecked=(1,))
    row(f"logcumsumexp dim {d} of {text(s)}", "logcumsumexp", {"dim": d}, [T(*s)], lambda x, d=d: x.logcumsumexp(d), tolerance=1e-3)
row("cumsum dim 1 of 128x512 bf16", "cumsum", {"k": 512, "dim": 1}, [T(128, 512, dtype=BF)], lambda x: x.cumsum(1), tolerance=6e-2)
row("cumsum dim 0 of 128x512 bf16", "cumsum", {"k": 128, "dim": 0}, [T(128, 512, dtype=BF)], lambda x: x.cumsum(0), tolerance=6e-2)
row("sort dim 1 of 1000x1000 bf16", "sort", {"k": 1000, "dim": 1, "whether_the_largest_come_first": 0}, [T(1000, 1000, dtype=BF)], lambda x: x.sort(1),
    unchecked=(1, 2), backward=False)

# ---- losses and layers of 16 bits
for name, f in dict(mse_loss=F.mse_loss, l1_loss=F.l1_loss, huber_loss=F.huber_loss, smooth_l1_loss=F.smooth_l1_loss).items():
    row(f"{name} middle bf16", name, {"reduction": 0, "parameter": 1}, [T(128, 512, dtype=BF), T(128, 512, dtype=BF, grad=False)], f, tolerance=3e-2)
row("bce_with_logits middle bf16", "bce_with_logits", {"reduction": 0}, [T(128, 512, dtype=BF), T(128, 512, dtype=BF, grad=False)],
    F.binary_cross_entropy_with_logits, tolerance=3e-2)
row("kl_div middle bf16", "kl_div", {"reduction": 0}, [T(128, 512, dtype=BF), T(128, 512, kind="p", dtype=BF, grad=False)], F.kl_div, tolerance=3e-2)
for s in [(8, 64, 56, 56)]:
    three = dict(kernel=[3, 3], stride=[2, 2], padding=[1, 1], dilation=[1, 1])
    row(f"max_pool 3 by 2 of {text(s)} bf16", "max_pool", dict(three, mode=6), [T(*s, dtype=BF)], lambda x: F.max_pool2d(x, 3, 2, 1), unchecked=(1,),
        tolerance=3e-2)
    row(f"avg_pool 3 by 2 of {text(s)} bf16", "avg_pool", dict(three, mode=5), [T(*s, dtype=BF)], lambda x: F.avg_pool2d(x, 3, 2, 1), tolerance=3e-2)
    row(f"interpolate bilinear twice of {text(s)} bf16", "interpolate", {"mode": 2, "size": [112, 112]}, [T(*s, dtype=BF)],
        lambda x: F.interpolate(x, (112, 112), mode="bilinear"), tolerance=3e-2)
    row(f"interpolate nearest twice of {text(s)} bf16", "interpolate", {"mode": 0, "size": [112, 112]}, [T(*s, dtype=BF)],
        lambda x: F.interpolate(x, (112, 112)), tolerance=3e-2)

# ---- what solvers multiply by and add, and views
F64 = torch.float64
for n in (1, 2, 3, 4):
    row(f"matmul 4096x1024 times {n} columns, f64", "matmul", None, [T(4096, 1024, dtype=F64), T(1024, n, dtype=F64)], torch.matmul, tolerance=1e-9)
    row(f"linear 4096x1024 to {n}, f64", "linear", None, [T(4096, 1024, dtype=F64), T(n, 1024, dtype=F64)], F.linear, tolerance=1e-9)
for k, n in ((3, 3), (64, 2), (16, 4)):
    row(f"matmul 20000x{k} times {n} columns, f64", "matmul", None, [T(20000, k, dtype=F64), T(k, n, dtype=F64)], torch.matmul, tolerance=1e-9)
    row(f"linear 20000x{k} to {n}, f64", "linear", None, [T(20000, k, dtype=F64), T(n, k, dtype=F64)], F.linear, tolerance=1e-9)
row("matmul 3 rows times 1024x1024, f64", "matmul", None, [T(3, 1024, dtype=F64), T(1024, 1024, dtype=F64)], torch.matmul, tolerance=1e-9)
for name, f in dict(max=lambda x: x.t().amax(1), min=lambda x: x.t().amin(1)).items():
    for d in (0, 1):
        row(f"{name} of dim {d} of 512x512 transposed", [("transpose", [0], {"p": 0, "q": 1}), (name, [first(0)], dims(d))], None, [T(512, 512)],
            lambda x, d=d, name=name: getattr(x.t(), "a" + name)(d))
for d in (0, 1):
    row(f"prod of dim {d} of 128x64 transposed", [("transpose", [0], {"p": 0, "q": 1}), ("prod", [first(0)], dims(d))], None, [T(128, 64)],
        lambda x, d=d: x.t().prod(d), tolerance=1e-3)
for name, f in dict(exp=torch.exp, neg=torch.neg, relu=F.relu).items():
    row(f"{name} of 8x128x64x64 with dims 1 and 2 exchanged", [("transpose", [0], {"p": 1, "q": 2}), (name, [first(0)], {})], None, [T(8, 128, 64, 64)],
        lambda x, f=f: f(x.transpose(1, 2)), tolerance=1e-4)
    row(f"{name} of 512x512 transposed, f64", [("transpose", [0], {"p": 0, "q": 1}), (name, [first(0)], {})], None, [T(512, 512, dtype=F64)],
        lambda x, f=f: f(x.t()), tolerance=1e-4)
row("cos middle, f64", "cos", None, [T(128, 512, dtype=F64)], torch.cos, tolerance=1e-9)
for s, d in [((32, 256, 256), (1, 2)), ((4, 1024, 1024), (1, 2)), ((64, 60, 60), (1, 2)), ((1024, 1024), (1,))]:
    for dtype, kind in ((torch.float32, ""), (F64, ", f64")):
        row(f"rfft of dims {' '.join(map(str, d))} of {text(s)}{kind}", "rfft",
            {"dims.count": len(d), "dims.dim": list(d) + [0] * (8 - len(d)), "norm": 0, "last": 0}, [T(*s, dtype=dtype)],
            lambda x, d=d: torch.view_as_real(torch.fft.rfftn(x, dim=d)), tolerance=1e-4)
for dtype, kind in ((torch.float32, ""), (F64, ", f64"), (BF, ", bf16")):
    for s in [(16, 32), (128, 512), (2048, 4096)]:
        row(f"add_scaled {text(s)}{kind}", "add_scaled", {"factor": 0.3}, [T(*s, dtype=dtype)] * 2, lambda a, b: torch.add(a, b, alpha=0.3), tolerance=3e-2)
        row(f"add_scaled_to {text(s)}{kind}", [("@add_scaled_to", [0, 1], {})], None, [T(*s, dtype=dtype)] * 2,
            lambda a, b: a.add_(b, alpha=0.3), backward=False, unchecked=(0,))
row("add_scaled of a row to 2048x512", "add_scaled", {"factor": 0.3}, [T(2048, 512), T(512)], lambda a, b: torch.add(a, b, alpha=0.3), tolerance=1e-3)
