# SPDX-License-Identifier: Apache-2.0
"""What bench/compare_operators.py measures: a table of rows. A row has operands (shapes and what is in them), the steps that
sherd applies, as bench/operators reads them, and what PyTorch computes."""
import math

import torch
import torch.nn.functional as F


class Row:
    def __init__(self, name, operands, steps, compute, backward=True, tolerance=2e-5, layouts=None, unchecked=(), copies=0):
        """steps: (operator, operands, fields), or the fields of one operator of all operands; layouts: of operands and,
        last, of the result."""
        self.name, self.specs, self.compute = name, operands, compute
        self.steps = steps
        self.backward, self.tolerance, self.layouts, self.unchecked, self.copies = backward, tolerance, layouts, unchecked, copies

    def operands(self):
        return [spec.make() for spec in self.specs]

    def grads(self, tensors):
        return [s.grad and t.is_floating_point() for s, t in zip(self.specs, tensors)]

    def checks(self, i):
        return i not in self.unchecked


class T:
    """kind: n normal, p positive, b bool, s sorted, d different ones, or the least number that an index is less than."""

    def __init__(self, *shape, kind="n", grad=True, dtype=torch.float32):
        self.shape, self.kind, self.grad, self.dtype = shape, kind, grad, dtype

    def make(self):
        if isinstance(self.kind, int):
            return torch.randint(0, self.kind, self.shape, dtype=torch.int32)
        if self.kind == "b":
            return torch.rand(self.shape) < 0.5
        if self.kind == "d":
            t = torch.randperm(math.prod(self.shape)).reshape(self.shape).float()
            return (t / t.numel()).to(self.dtype)
        t = torch.randn(self.shape)
        t = t.abs() + 0.1 if self.kind == "p" else t.sort().values if self.kind == "s" else t
        return t.to(self.dtype) if self.dtype.is_floating_point else (100 * t).to(self.dtype)


BF = torch.bfloat16
ROWS = []
SIZES = {"small": (16, 32), "middle": (128, 512), "large": (2048, 4096)}


def first(i, step=0):
    """The number of a result: as operands are numbered in bench/operators."""
    return 32 + 4 * step + i


def row(name, op, fields, operands, compute, **more):
    steps = op if isinstance(op, list) else [(op, list(range(len(operands))), fields or {})]
    ROWS.append(Row(name, operands, steps, compute, **more))


def text(shape):
    return "x".join(str(n) for n in shape)


# ---- elementwise
UNARY = dict(neg=torch.neg, abs=torch.abs, sign=torch.sign, exp=torch.exp, expm1=torch.expm1, square=torch.square, sin=torch.sin, cos=torch.cos,
             tanh=torch.tanh, erf=torch.erf, sigmoid=torch.sigmoid, gelu_erf=F.gelu, silu=F.silu, exp2=torch.exp2,
             tan=torch.tan, atan=torch.atan, sinh=torch.sinh, cosh=torch.cosh, asinh=torch.asinh, erfc=torch.erfc,
             logsigmoid=F.logsigmoid, selu=F.selu, mish=F.mish, softsign=F.softsign, hardsigmoid=F.hardsigmoid,
             hardswish=F.hardswish, floor=torch.floor, ceil=torch.ceil, trunc=torch.trunc, round=torch.round,
             frac=torch.frac, relu=F.relu)
UNARY["gelu"] = lambda x: F.gelu(x, approximate="tanh")
POSITIVE = dict(log=torch.log, log1p=torch.log1p, sqrt=torch.sqrt, rsqrt=torch.rsqrt, reciprocal=torch.reciprocal,
                log2=torch.log2, log10=torch.log10)
NUMBERED = {
    "leaky_relu": ({"slope": 0.2}, lambda x: F.leaky_relu(x, 0.2)), "elu": ({"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
    "softplus": ({"beta": 1.5, "threshold": 20}, lambda x: F.softplus(x, 1.5, 20)),
    "clamp": ({"min": -0.5, "max": 0.7}, lambda x: x.clamp(-0.5, 0.7)), "add_scalar": ({"addend": 0.3}, lambda x: x + 0.3),
    "scale": ({"factor": 1.7}, lambda x: x * 1.7), "remainder_scalar": ({"divisor": 0.75}, lambda x: x.remainder(0.75)),
    "nan_to_num": ({"nan": 0.5, "above": 2, "below": -3}, lambda x: x.nan_to_num(0.5, 2, -3)),
}
MOST_USED = {"exp", "gelu", "silu", "relu", "tanh", "sigmoid", "sqrt", "scale", "neg", "square"}
for name, f in {**UNARY, **POSITIVE}.items():
    for size, s in SIZES.items():
        if size == "large" and name not in MOST_USED:
            continue
        row(f"{name} {size}", name, None, [T(*s, kind="p" if name in POSITIVE else "n")], f, tolerance=1e-4,
            backward=name not in ("sign",), layouts=["S(0)", "S(0)"])
for name, (fields, f) in NUMBERED.items():
    for size, s in SIZES.items():
        if size != "large" or name in MOST_USED:
            row(f"{name} {size}", name, fields, [T(*s)], f, tolerance=0.2 if "remainder" in name else 1e-4, layouts=["S(0)", "S(0)"])
row("pow 1.7 middle", "pow", {"exponent": 1.7}, [T(128, 512, kind="p")], lambda x: x.pow(1.7))
row("pow 2 middle", "pow", {"exponent": 2}, [T(128, 512, kind="p")], lambda x: x.pow(2))
row("pow 3 middle", "pow", {"exponent": 3}, [T(128, 512)], lambda x: x.pow(3))
row("pow 0.5 middle", "pow", {"exponent": 0.5}, [T(128, 512, kind="p")], lambda x: x.pow(0.5))
row("pow -1 middle", "pow", {"exponent": -1}, [T(128, 512, kind="p")], lambda x: x.pow(-1))
for name in ("gelu", "silu", "exp", "relu"):
    row(f"{name} bf16 middle", name, None, [T(128, 512, dtype=BF)], UNARY[name], tolerance=2e-2)
    row(f"{name} bf16 large", name, None, [T(2048, 4096, dtype=BF)], UNARY[name], tolerance=2e-2)

BINARY = dict(add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div, maximum=torch.maximum, minimum=torch.minimum)
RARER = dict(power=torch.pow, atan2=torch.atan2, hypot=torch.hypot, copysign=torch.copysign, fmod=torch.fmod,
             remainder=torch.remainder, logaddexp=torch.logaddexp, xlogy=torch.xlogy)
for name, f in BINARY.items():
    for size, s in SIZES.items():
        row(f"{name} {size}", name, None, [T(*s), T(*s, kind="p")], f, layouts=["S(0)"] * 3)
for name, f in RARER.items():
    for size in ("small", "middle"):
        row(f"{name} {size}", name, None, [T(*SIZES[size], kind="p"), T(*SIZES[size], kind="p")], f, tolerance=1e-4)
for name in ("add", "mul"):
    for size in ("middle", "large"):
        s = SIZES[size]
        row(f"{name} {size}, a row to all", name, None, [T(*s), T(s[1])], BINARY[name], tolerance=1e-4, layouts=["S(1)", "S(0)", "S(1)"])
        row(f"{name} {size}, a column to all", name, None, [T(*s), T(s[0], 1)], BINARY[name], tolerance=1e-4, layouts=["S(0)"] * 3)
        row(f"{name} {size}, one number to all", name, None, [T(*s), T(1)], BINARY[name], tolerance=1e-3)
        row(f"{name} {size}, bf16", name, None, [T(*s, dtype=BF), T(*s, dtype=BF)], BINARY[name], tolerance=2e-2)
    row(f"{name}, channels of 8x64x56x56", name, None, [T(8, 64, 56, 56), T(64, 1, 1)], BINARY[name], tolerance=1e-4)
    row(f"{name}, outer 1024 x 2048", name, None, [T(1024, 1), T(2048)], BINARY[name], tolerance=1e-4)
    row(f"{name}, a middle dim of 64x[32]x1024", name, None, [T(64, 32, 1024), T(64, 1, 1024)], BINARY[name], tolerance=1e-4)
row("add middle, transposed", [("transpose", [1], {"p": 0, "q": 1}), ("add", [0, first(0)], {})], None, [T(512, 512), T(512, 512)],
    lambda a, b: a + b.t())
row("mul large, transposed", [("transpose", [1], {"p": 0, "q": 1}), ("mul", [0, first(0)], {})], None,
    [T(2048, 2048), T(2048, 2048)], lambda a, b: a * b.t())

for name, f in dict(eq=torch.eq, lt=torch.lt, logical_and=torch.logical_and).items():
    for size, s in SIZES.items():
        row(f"{name} {size}", name, None, [T(*s), T(*s)], f, backward=False, layouts=["S(0)"] * 3)
row("gt_scalar middle", "gt_scalar", {"value": 0.5}, [T(128, 512)], lambda x: x > 0.5, backward=False)
row("gt_scalar large", "gt_scalar", {"value": 0.5}, [T(2048, 4096)], lambda x: x > 0.5, backward=False)
row("logical_and of bool middle", "logical_and", None, [T(128, 512, kind="b"), T(128, 512, kind="b")], torch.logical_and, backward=False)
row("logical_not of bool middle", "logical_not", None, [T(128, 512, kind="b")], torch.logical_not, backward=False)
row("logical_and of bool large", "logical_and", None, [T(2048, 4096, kind="b"), T(2048, 4096, kind="b")], torch.logical_and, backward=False)
for name, f in dict(isnan=torch.isnan, isinf=torch.isinf, isfinite=torch.isfinite).items():
    for size in ("small", "middle", "large"):
        row(f"{name} {size}", name, None, [T(*SIZES[size])], f, backward=False)
row("one_hot 4096 of 512", "one_hot", {"classes": 512, "dtype": 1}, [T(4096, kind=512)], lambda i: F.one_hot(i, 512), backward=False)
row("bincount 100k of 1000", "bincount", {"classes": 1000}, [T(100000, kind=1000)], lambda i: torch.bincount(i, minlength=1000), backward=False)
for size, s in SIZES.items():
    row(f"where {size}", "where", None, [T(*s, kind="b"), T(*s), T(*s)], torch.where, layouts=["S(0)"] * 4)
    row(f"masked_fill {size}", "masked_fill", {"value": -1}, [T(*s), T(*s, kind="b")], lambda a, m: a.masked_fill(m, -1), layouts=["S(0)"] * 3)
row("where large, a mask for rows", "where", None, [T(2048, 1, kind="b"), T(2048, 4096), T(1)], torch.where, tolerance=1e-3)
row("masked_fill, a mask for heads of 8x8x512x512", "masked_fill", {"value": -1}, [T(8, 8, 512, 512), T(512, 512, kind="b")],
    lambda a, m: a.masked_fill(m, -1))

DTYPES = {"f32": torch.float32, "bf16": BF, "f16": torch.float16, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}
NUMBER = {"f32": 1, "f64": 2, "bf16": 3, "f16": 4, "i32": 5, "i64": 6, "bool": 8}  # of sherd_dtype
for a, da in DTYPES.items():
    for b, db in DTYPES.items():
        if a != b and a != "i32":  # PyTorch's operand of int32 would be int64 here
            row(f"cast {a} to {b} 1M", "cast", {"dtype": NUMBER[b]}, [T(1 << 20, dtype=da)], lambda x, t=db: x.to(t), backward=False)
row("cast bool to f32 1M", "cast", {"dtype": NUMBER["f32"]}, [T(1 << 20, kind="b")], lambda x: x.float(), backward=False)
row("cast f32 to bool 1M", "cast", {"dtype": NUMBER["bool"]}, [T(1 << 20)], lambda x: x.bool(), backward=False)
row("cast f32 to bf16 large", "cast", {"dtype": NUMBER["bf16"]}, [T(2048, 4096)], lambda x: x.bfloat16(), tolerance=1e-2)
row("cast f32 to bf16 small", "cast", {"dtype": NUMBER["bf16"]}, [T(16, 32)], lambda x: x.bfloat16(), tolerance=1e-2)

# ---- reductions
SUMS = {
    "sum_over": (lambda x, d: x.sum(d), ""), "mean_over": (lambda x, d: x.mean(d), ""), "max": (lambda x, d: x.amax(d), ""),
    "min": (lambda x, d: x.amin(d), ""), "prod": (lambda x, d: x.prod(d), ""),
    "var": (lambda x, d: x.var(d), "dims."), "std": (lambda x, d: x.std(d), "dims."),
    "norm": (lambda x, d: torch.linalg.vector_norm(x, 2, d), "dims."),
    "argmax": (lambda x, d: x.argmax(d), ""), "any": (lambda x, d: x.any(d), ""), "all": (lambda x, d: x.all(d), ""),
}
SHAPES = {"16x32": (16, 32), "128x512": (128, 512), "4096x2048": (4096, 2048), "64x128x256": (64, 128, 256), "100000x16": (100000, 16),
          "100000x3": (100000, 3)}
for name, (f, prefix) in SUMS.items():
    for given, s in SHAPES.items():
        for d in range(len(s)):
            if d == 0 and len(s) == 3 and name not in ("sum_over", "max"):
                continue
            fields = {prefix + "count": 1, prefix + "dim": [d] + [0] * 7}
            if prefix:
                fields["parameter"] = 2 if name == "norm" else 1
            short = s[d] > 200
            if name == "prod" and short:
                continue
            row(f"{name} of dim {d} of {given}", name, fields, [T(*s)], lambda x, f=f, d=d: f(x, d), tolerance=2e-4,
                backward=name not in ("any", "all", "argmax"), layouts=["S(%d)" % (d == 0), "S(0)"] if len(s) == 2 else None)
    if name not in ("prod",):
        for given in ("16x32", "128x512", "4096x2048"):
            fields = {prefix + "count": 0}
            if prefix:
                fields["parameter"] = 2 if name == "norm" else 1
            s = SHAPES[given]
            whole = (lambda x, f=f: f(x, None)) if name == "argmax" else (lambda x, f=f: f(x, (0, 1)))
            row(f"{name} of all of {given}", name, fields, [T(*s)], whole, tolerance=2e-3,
                backward=name not in ("any", "all", "argmax"))
row("sum_over dims 0 2 3 of 8x64x56x56", "sum_over", {"count": 3, "dim": [0, 2, 3, 0, 0, 0, 0, 0]}, [T(8, 64, 56, 56)],
    lambda x: x.sum((0, 2, 3)), tolerance=1e-3)
row("sum_over dims 0 2 of 64x128x256", "sum_over", {"count": 2, "dim": [0, 2, 0, 0, 0, 0, 0, 0]}, [T(64, 128, 256)],
    lambda x: x.sum((0, 2)), tolerance=1e-3)
row("sum_over dims 0 1 of 64x128x256", "sum_over", {"count": 2, "dim": [0, 1, 0, 0, 0, 0, 0, 0]}, [T(64, 128, 256)],
    lambda x: x.sum((0, 1)), tolerance=1e-3)
row("sum_over dim 1 of 4096x2048 bf16", "sum_over", {"count": 1, "dim": [1] + [0] * 7}, [T(4096, 2048, dtype=BF)],
    lambda x: x.sum(1), tolerance=2e-2)
row("sum_over dim 0 of 4096x2048 bf16", "sum_over", {"count": 1, "dim": [0] + [0] * 7}, [T(4096, 2048, dtype=BF)],
    lambda x: x.sum(0), tolerance=2e-2)
row("norm 1 of dim 1 of 4096x2048", "norm", {"dims.count": 1, "dims.dim": [1] + [0] * 7, "parameter": 1}, [T(4096, 2048)],
    lambda x: torch.linalg.vector_norm(x, 1, 1), tolerance=1e-4)
row("norm 3 of dim 1 of 512x512", "norm", {"dims.count": 1, "dims.dim": [1] + [0] * 7, "parameter": 3}, [T(512, 512)],
    lambda x: torch.linalg.vector_norm(x, 3, 1), tolerance=1e-4)
for name, f in dict(softmax=torch.softmax, log_softmax=torch.log_softmax, logsumexp=torch.logsumexp).items():
    for s, d in [((16, 32), 1), ((16, 32), 0), ((128, 512), 1), ((128, 512), 0), ((4096, 2048), 1), ((4096, 2048), 0), ((64, 128, 256), 1),
                 ((64, 32000), 1), ((100000, 10), 1), ((8, 21, 128, 128), 1)]:
        row(f"{name} of dim {d} of {text(s)}", name, {"count": 1, "dim": [d] + [0] * 7}, [T(*s)], lambda x, f=f, d=d: f(x, d), tolerance=1e-4,
            layouts=["S(%d)" % (d == 0), "S(%d)" % (d == 0)] if len(s) == 2 and name != "logsumexp" else None)
row("softmax of dim 1 of 4096x2048 bf16", "softmax", {"count": 1, "dim": [1] + [0] * 7}, [T(4096, 2048, dtype=BF)],
    lambda x: x.softmax(1), tolerance=3e-2)
for name, f in dict(softmax=torch.softmax, log_softmax=torch.log_softmax).items():
    for s in [(100000, 16), (100000, 10), (8192, 64)]:
        row(f"{name} of dim 1 of {text(s)} bf16", name, {"count": 1, "dim": [1] + [0] * 7}, [T(*s, dtype=BF)], lambda x, f=f: f(x, 1), tolerance=5e-2)

# ---- shapes
for s, order in [((16, 32), (1, 0)), ((256, 256), (1, 0)), ((2048, 4096), (1, 0)), ((3, 1000000), (1, 0)), ((1000000, 3), (1, 0)), ((8, 128, 16, 64), (0, 2, 1, 3)),
                 ((8, 16, 128, 64), (0, 1, 3, 2)), ((64, 128, 256), (2, 1, 0)), ((64, 128, 256), (1, 2, 0)), ((64, 128, 256), (2, 0, 1)),
                 ((8, 64, 56, 56), (0, 2, 3, 1)), ((8, 56, 56, 64), (0, 3, 1, 2)), ((8, 56, 56, 3), (0, 3, 1, 2)), ((16, 16, 16, 16, 16), (4, 3, 2, 1, 0))]:
    ndim = len(s)
    row(f"contiguous of permute {''.join(map(str, order))} of {text(s)}",
        [("permute", [0], {"ndim": ndim, "dim": list(order) + [0] * (8 - ndim)}), ("contiguous", [first(0)], {})], None, [T(*s)],
        lambda x, order=order: x.permute(order).contiguous())
row("contiguous of permute 10 of 2048x4096 bf16", [("permute", [0], {"ndim": 2, "dim": [1, 0] + [0] * 6}), ("contiguous", [first(0)], {})], None,
    [T(2048, 4096, dtype=BF)], lambda x: x.t().contiguous())
row("contiguous of permute 0213 of 8x512x16x64 bf16", [("permute", [0], {"ndim": 4, "dim": [0, 2, 1, 3] + [0] * 4}), ("contiguous", [first(0)], {})],
    None, [T(8, 512, 16, 64, dtype=BF)], lambda x: x.permute(0, 2, 1, 3).contiguous())
row("view small", "view", {"ndim": 1, "shape": [512] + [0] * 7}, [T(16, 32)], lambda x: x.view(512))
row("transpose small", "transpose", {"p": 0, "q": 1}, [T(16, 32)], lambda x: x.t())
row("clone small", "clone", None, [T(16, 32)], torch.clone)
row("clone middle", "clone", None, [T(128, 512)], torch.clone)
row("clone large", "clone", None, [T(2048, 4096)], torch.clone)
row("expand a row to 1024, times", [("expand", [0], {"ndim": 2, "shape": [1024, 2048] + [0] * 6}), ("mul", [first(0), 1], {})], None,
    [T(1, 2048), T(1024, 2048)], lambda a, b: a.expand(1024, 2048) * b, tolerance=1e-4)
for name, step, s in [("rows", (0, 2), (2048, 2048)), ("columns", (1, 2), (2048, 2048)), ("columns", (1, 3), (2048, 2048)), ("middle", (1, 2), (64, 128, 512))]:
    d, by = step
    end = s[d]
    index = (slice(None),) * d + (slice(1, end, by),)
    row(f"contiguous of every {by}th of {name} of {text(s)}",
        [("slice", [0], {"dim": d, "start": 1, "end": end, "step": by}), ("contiguous", [first(0)], {})], None, [T(*s)],
        lambda x, index=index: x[index].contiguous())
row("contiguous of the first half of columns of 2048x2048", [("narrow", [0], {"dim": 1, "start": 0, "end": 1024, "step": 1}), ("contiguous", [first(0)], {})],
    None, [T(2048, 2048)], lambda x: x[:, :1024].contiguous())
row("select column of 2048x2048", [("select", [0], {"dim": 1, "index": 7}), ("contiguous", [first(0)], {})], None, [T(2048, 2048)],
    lambda x: x[:, 7].contiguous())
row("select row of 64x2048", [("select", [0], {"dim": 0, "index": 7}), ("contiguous", [first(0)], {})], None, [T(64, 2048)],
    lambda x: x[7].contiguous())
for s, d, n in [((16, 32), 0, 2), ((16, 32), 1, 2), ((256, 512), 0, 4), ((256, 512), 1, 4), ((2048, 1024), 0, 4), ((2048, 1024), 1, 4),
                ((8, 64, 56, 56), 1, 2), ((100000, 1), 1, 3), ((100000, 2), 1, 3)]:
    row(f"cat {n} of {text(s)} in dim {d}", "cat", {"dim": d}, [T(*s)] * n, lambda *t, d=d: torch.cat(t, d), layouts=["S(%d)" % (1 - d)] * (n + 1) if len(s) == 2 and s[1] > 2 else None)
for s, d, n in [((16, 32), 0, 2), ((256, 512), 0, 4), ((256, 512), 2, 4), ((2048, 1024), 0, 2), ((2048, 1024), 2, 2), ((2048, 1024), 1, 3)]:
    row(f"stack {n} of {text(s)} in dim {d}", "stack", {"dim": d}, [T(*s)] * n, lambda *t, d=d: torch.stack(t, d))
row("pad columns of 2048x2048", "pad", {"size": [2048, 2060] + [0] * 6, "start": [0, 4] + [0] * 6, "step": [1] * 8, "value": 0}, [T(2048, 2048)], lambda x: F.pad(x, (4, 8)))
row("pad of 8x64x56x56 by 1", "pad", {"size": [8, 64, 58, 58] + [0] * 4, "start": [0, 0, 1, 1] + [0] * 4, "step": [1] * 8, "value": 0}, [T(8, 64, 56, 56)], lambda x: F.pad(x, (1, 1, 1, 1)))
for border, name in ((2, "replicate"), (3, "reflect"), (4, "circular")):
    row(f"pad_with {name} of 8x64x56x56 by 2", "pad_with", {"before": [0, 0, 2, 2], "after": [0, 0, 2, 2], "border_before": [border] * 4, "border_after": [border] * 4},
        [T(8, 64, 56, 56)], lambda x, name=name: F.pad(x, (2, 2, 2, 2), name))
for s, d in [((256, 256), 0), ((256, 256), 1), ((2048, 2048), 0), ((2048, 2048), 1)]:
    row(f"flip dim {d} of {text(s)}", "flip", {"count": 1, "dim": [d] + [0] * 7}, [T(*s)], lambda x, d=d: x.flip(d))
    row(f"roll dim {d} of {text(s)}", "roll", {"by": 3, "dim": d}, [T(*s)], lambda x, d=d: x.roll(3, d))
for s, t in [((256, 256), (4, 1)), ((256, 256), (1, 4)), ((512, 512), (4, 4)), ((2048, 1), (1, 1024)), ((64, 1, 64), (1, 64, 1))]:
    row(f"repeat {text(s)} {text(t)} times", "repeat", {"time": list(t) + [0] * (8 - len(t)), "count": len(t)}, [T(*s)], lambda x, t=t: x.repeat(t), tolerance=1e-4)
for size, s in SIZES.items():
    row(f"tril {size}", "tril", {"diagonal": 0}, [T(*s)], torch.tril)
row("triu 16x512x512", "triu", {"diagonal": 1}, [T(16, 512, 512)], lambda x: x.triu(1))

# ---- by index
for s, d, n in [((16, 32), 0, 8), ((1000, 256), 0, 2000), ((50000, 256), 0, 8192), ((256, 1000), 1, 2000), ((2048, 2048), 1, 1024), ((64, 128, 256), 1, 64), ((100000,), 0, 100000), ((100000, 3), 0, 100000)]:
    row(f"index_select {n} of dim {d} of {text(s)}", "index_select", {"dim": d, "flat": 1}, [T(*s), T(n, kind=s[d])], lambda x, i, d=d: x.index_select(d, i), tolerance=1e-4)
for s, d, n in [((16, 32), 1, 8), ((2048, 512), 1, 512), ((2048, 512), 0, 2048), ((4096, 1000), 1, 1), ((64, 128, 256), 1, 64), ((1000000,), 0, 1000000)]:
    picked = s[:d] + (n,) + s[d + 1:]
    row(f"gather {n} of dim {d} of {text(s)}", "gather", {"dim": d}, [T(*s), T(*picked, kind=s[d])], lambda x, i, d=d: x.gather(d, i), tolerance=1e-4)
    row(f"scatter_add {n} to dim {d} of {text(s)}", "scatter_add", {"dim": d}, [T(*s), T(*picked, kind=s[d]), T(*picked)],
        lambda x, i, y, d=d: x.scatter_add(d, i, y), tolerance=1e-4)
    row(f"scatter {n} to dim {d} of {text(s)}", "scatter", {"dim": d}, [T(*s, grad=False), T(*picked, kind=s[d]), T(*picked, grad=False)],
        lambda x, i, y, d=d: x.scatter(d, i, y), backward=False, unchecked=(0,))
row("scatter_reduce amax 100000 to 1000", [("@scatter_amax", [0, 1, 2], {})], None, [T(1000), T(100000, kind=1000), T(100000)],
    lambda x, i, y: x.scatter_reduce(0, i, y, "amax", include_self=True))
for s, d in [((16, 32), 1), ((1, 100000), 1), ((1000, 1000), 1), ((1000, 1000), 0), ((64, 4096), 1), ((1, 1000000), 1), ((10000, 16), 1)]:
    row(f"sort dim {d} of {text(s)}", "sort", {"k": s[d], "dim": d, "whether_the_largest_come_first": 0}, [T(*s, kind="d")], lambda x, d=d: x.sort(d))
    for k in (1, 5, s[d] // 4):
        if k < s[d] and s[0] != 16:
            row(f"topk {k} of dim {d} of {text(s)}", "topk", {"k": k, "dim": d, "whether_the_largest_come_first": 1}, [T(*s, kind="d")], lambda x, k=k, d=d: x.topk(k, d))
row("topk 50 of 32x32000", "topk", {"k": 50, "dim": 1, "whether_the_largest_come_first": 1}, [T(32, 32000, kind="d")], lambda x: x.topk(50, 1))
row("topk 2 of 8192x64", "topk", {"k": 2, "dim": 1, "whether_the_largest_come_first": 1}, [T(8192, 64, kind="d")], lambda x: x.topk(2, 1))
for s, d in [((1000000,), 0), ((1000, 1000), 1), ((1000, 1000), 0), ((10000, 16), 1)]:
    row(f"median of dim {d} of {text(s)}", "median", {"dim": d}, [T(*s, kind="d")], lambda x, d=d: x.median(d))
    row(f"kthvalue of dim {d} of {text(s)}", "kthvalue", {"k": s[d] // 3, "dim": d}, [T(*s, kind="d")], lambda x, d=d, s=s: x.kthvalue(s[d] // 3, d))
    row(f"quantile of dim {d} of {text(s)}", "quantile", {"q": 0.3, "dim": d}, [T(*s, kind="d")], lambda x, d=d: x.quantile(0.3, d))
row("sort of i64 1M", "sort", {"k": 1 << 20, "dim": 0, "whether_the_largest_come_first": 0}, [T(1 << 20, dtype=torch.int64)], lambda x: x.sort(), backward=False, unchecked=(1,))
for s, d in [((16, 32), 1), ((128, 512), 1), ((128, 512), 0), ((2048, 2048), 1), ((2048, 2048), 0), ((64, 128, 256), 1), ((1000000,), 0)]:
    row(f"cumsum dim {d} of {text(s)}", "cumsum", {"k": s[d], "dim": d}, [T(*s)], lambda x, d=d: x.cumsum(d), tolerance=1e-3)
row("searchsorted 100k in 100k", "searchsorted", {"dtype": NUMBER["i32"], "right": 0}, [T(100000, kind="s"), T(100000)], lambda a, b: torch.searchsorted(a, b), backward=False)
row("searchsorted 100k in 100", "searchsorted", {"dtype": NUMBER["i32"], "right": 0}, [T(100, kind="s"), T(100000)], lambda a, b: torch.searchsorted(a, b), backward=False)
row("nonzero of 1M bool", [("@nonzero", [0], {})], None, [T(1000, 1000, kind="b")], torch.nonzero, backward=False)
row("nonzero of 512 bool", [("@nonzero", [0], {})], None, [T(16, 32, kind="b")], torch.nonzero, backward=False)
row("masked_select 1M", [("@masked_select", [0, 1], {})], None, [T(1000, 1000), T(1000, 1000, kind="b")], torch.masked_select)
row("masked_select 512", [("@masked_select", [0, 1], {})], None, [T(16, 32), T(16, 32, kind="b")], torch.masked_select)
row("masked_select rows of 10000x64", [("@masked_select", [0, 1], {})], None, [T(10000, 64), T(10000, kind="b")], lambda a, m: a[m])
row("unique of 1M f32", [("@unique", [0], {})], None, [T(1 << 20)], torch.unique, backward=False)
row("unique of 1M numbers below 1000", [("@unique", [0], {})], None, [T(1 << 20, kind=1000)], torch.unique, backward=False)
row("unique of 1000", [("@unique", [0], {})], None, [T(1000)], torch.unique, backward=False)
row("multinomial 1 of 64x32000", [("@multinomial", [0], {})], None, [T(64, 32000, kind="p")], lambda w: torch.multinomial(w, 1), backward=False, unchecked=(0,))
row("multinomial 1 of 4x100", [("@multinomial", [0], {})], None, [T(4, 100, kind="p")], lambda w: torch.multinomial(w, 1), backward=False, unchecked=(0,))

# ---- in place
for size, s in SIZES.items():
    row(f"copy_from {size}", [("@copy_from", [0, 1], {})], None, [T(*s), T(*s)], lambda a, b: a.copy_(b), backward=False)
    row(f"scale_by {size}", [("@scale_by", [0], {})], None, [T(*s)], lambda a: a.mul_(1.0), backward=False)
    row(f"add_to {size}", [("@add_to", [0, 1], {})], None, [T(*s), T(*s)], lambda a, b: a.add_(b), backward=False, unchecked=(0,))
    row(f"fill {size}", [("@fill", [0], {})], None, [T(*s)], lambda a: a.fill_(0.5), backward=False)

# ---- layers
for s in [(16, 32), (128, 512), (4096, 1024), (2048, 4096), (100000, 32)]:
    n = s[-1]
    for dtype, name in ((torch.float32, ""), (BF, " bf16")):
        tolerance = 4e-2 if name else 2e-4
        row(f"layer_norm of {text(s)}{name}", "layer_norm", {"eps": 1e-5}, [T(*s, dtype=dtype), T(n, dtype=dtype), T(n, dtype=dtype)],
            lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), tolerance=tolerance, layouts=["S(0)", "R", "R", "S(0)"])
        row(f"rms_norm of {text(s)}{name}", "rms_norm", {"eps": 1e-5}, [T(*s, dtype=dtype), T(n, dtype=dtype)],
            lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5), tolerance=tolerance, layouts=["S(0)", "R", "S(0)"])
for s in [(2, 8, 4, 4), (8, 64, 56, 56), (32, 512, 7, 7), (4096, 256)]:
    c = s[1]
    for dtype, name in ((torch.float32, ""), (BF, " bf16")):
        given = [T(*s, dtype=dtype), T(c, dtype=dtype), T(c, dtype=dtype)]
        moments = [T(c, grad=False, dtype=dtype), T(c, kind="p", grad=False, dtype=dtype)]
        tolerance = 6e-2 if name else 5e-4
        row(f"group_norm of {text(s)}{name}", "group_norm", {"eps": 1e-5, "groups": 8}, given, lambda x, w, b: F.group_norm(x, 8, w, b), tolerance=tolerance)
        row(f"batch_norm of {text(s)}{name}", "batch_norm", {"eps": 1e-5, "momentum": 0.1}, given + moments,
            lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True), tolerance=tolerance)
        row(f"batch_norm, fixed, of {text(s)}{name}", "batch_norm", {"eps": 1e-5, "momentum": 0.1, "fixed": 1}, given + moments,
            lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False), tolerance=tolerance)
        if len(s) == 4:
            row(f"instance_norm of {text(s)}{name}", "instance_norm", {"eps": 1e-5, "momentum": 0.1}, given,
                lambda x, w, b: F.instance_norm(x, None, None, w, b), tolerance=tolerance)
for v, d, n in [(1000, 64, 64), (50000, 256, 2048), (50000, 512, 8192), (100, 16, 100000)]:
    for dtype, name in ((torch.float32, ""), (BF, " bf16")):
        row(f"embedding {n} of {v}x{d}{name}", "embedding", None, [T(v, d, dtype=dtype), T(n, kind=v)], lambda w, i: F.embedding(i, w), tolerance=0.1 if name else 2e-3)
for n, c in [(16, 32), (2048, 1000), (1024, 32000), (100000, 10)]:
    for dtype, name in ((torch.float32, ""), (BF, " bf16")):
        row(f"cross_entropy {n}x{c}{name}", "cross_entropy", None, [T(n, c, dtype=dtype), T(n, kind=c)], F.cross_entropy, tolerance=4e-2 if name else 1e-4)
row("cross_entropy with smoothing 2048x1000", "cross_entropy_mean", {"reduction": 0, "ignored": -100, "smoothing": 0.1}, [T(2048, 1000), T(2048, kind=1000)],
    lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), tolerance=1e-4)
row("nll_loss 2048x1000", "nll_loss", None, [T(2048, 1000), T(2048, kind=1000)], F.nll_loss, tolerance=1e-4)
for name, f in dict(mse_loss=F.mse_loss, l1_loss=F.l1_loss, huber_loss=F.huber_loss, smooth_l1_loss=F.smooth_l1_loss).items():
    for size, s in SIZES.items():
        row(f"{name} {size}", name, {"reduction": 0, "parameter": 1}, [T(*s), T(*s, grad=False)], f, tolerance=1e-4)
for size, s in SIZES.items():
    row(f"bce_with_logits {size}", "bce_with_logits", {"reduction": 0}, [T(*s), T(*s, kind="p", grad=False)], F.binary_cross_entropy_with_logits, tolerance=1e-4)
    row(f"kl_div {size}", "kl_div", {"reduction": 0}, [T(*s), T(*s, kind="p", grad=False)], F.kl_div, tolerance=1e-4)
    row(f"dropout {size}", "dropout", {"how_often_the_generator_was_used,_or_its_name,": [1, 2], "p": 0.1}, [T(*s)], lambda x: F.dropout(x, 0.1), unchecked=(0, 1), tolerance=2)

# ---- products
for b, m, k, n in [(1, 16, 32, 16), (4096, 16, 16, 16), (1024, 32, 64, 32), (20000, 4, 4, 4), (20000, 3, 3, 3), (64, 128, 64, 128), (1, 512, 512, 512)]:
    row(f"matmul {b} of {m}x{k}x{n}", "matmul", None, [T(b, m, k), T(b, k, n)], torch.matmul, tolerance=1e-4)
row("matmul 2048x2048 times a vector", "matmul", None, [T(2048, 2048), T(2048)], torch.matmul, tolerance=1e-3)
row("matmul 100000x3 times 3x3", "matmul", None, [T(100000, 3), T(3, 3)], torch.matmul, tolerance=1e-3)
row("linear 100000x4 to 16", "linear", None, [T(100000, 4), T(16, 4), T(16)], F.linear, tolerance=1e-3)
row("linear 8x32 to 32", "linear", None, [T(8, 32), T(32, 32), T(32)], F.linear, tolerance=1e-4)
row("linear 4096x256 to 1", "linear", None, [T(4096, 256), T(1, 256), T(1)], F.linear, tolerance=1e-3)
for pattern, shapes in [("ij,jk->ik", ((256, 256), (256, 256))), ("bij,bjk->bik", ((64, 64, 64), (64, 64, 64))), ("bshw,bthw->bhst", ((4, 128, 8, 64), (4, 128, 8, 64))),
                        ("bhst,bthw->bshw", ((4, 8, 128, 128), (4, 128, 8, 64))), ("i,j->ij", ((1024,), (2048,))), ("ij,ij->", ((1024, 1024), (1024, 1024))),
                        ("ij,ij->i", ((1024, 1024), (1024, 1024))), ("ij,ij->j", ((1024, 1024), (1024, 1024))), ("ijk->kj", ((64, 128, 256),)), ("ij->ji", ((1024, 1024),)),
                        ("bi,ij,bj->b", ((1024, 64), (64, 64), (1024, 64))), ("bcxy,cdxy->bdxy", ((8, 16, 32, 17), (16, 16, 32, 17))), ("abc,bd->acd", ((32, 64, 64), (64, 64))),
                        ("ij,kj->ik", ((16, 32), (16, 32)))]:
    row(f"einsum {pattern} {' '.join(text(s) for s in shapes)}", "einsum", {"text": pattern}, [T(*s) for s in shapes], lambda *t, p=pattern: torch.einsum(p, *t), tolerance=1e-3)

# ---- fields
for s in [(2, 4, 16, 16), (8, 64, 56, 56)]:
    two = dict(kernel=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1])
    three = dict(kernel=[3, 3], stride=[2, 2], padding=[1, 1], dilation=[1, 1])
    dense = dict(kernel=[3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1])
    row(f"max_pool 2 of {text(s)}", "max_pool", dict(two, mode=6), [T(*s)], lambda x: F.max_pool2d(x, 2))
    row(f"max_pool 3 by 2 of {text(s)}", "max_pool", dict(three, mode=6), [T(*s)], lambda x: F.max_pool2d(x, 3, 2, 1))
    row(f"max_pool 3 by 1 of {text(s)}", "max_pool", dict(dense, mode=6), [T(*s)], lambda x: F.max_pool2d(x, 3, 1, 1))
    row(f"avg_pool 2 of {text(s)}", "avg_pool", dict(two, mode=5), [T(*s)], lambda x: F.avg_pool2d(x, 2))
    row(f"avg_pool 3 by 1 of {text(s)}", "avg_pool", dict(dense, mode=5), [T(*s)], lambda x: F.avg_pool2d(x, 3, 1, 1))
    row(f"adaptive_avg_pool 1 of {text(s)}", "adaptive_avg_pool", {"mode": 4, "size": [1, 1]}, [T(*s)], lambda x: F.adaptive_avg_pool2d(x, 1))
    row(f"adaptive_avg_pool 7 of {text(s)}", "adaptive_avg_pool", {"mode": 4, "size": [7, 7]}, [T(*s)], lambda x: F.adaptive_avg_pool2d(x, 7))
    for mode, name in enumerate(["nearest", "nearest-exact", "bilinear", "bicubic"]):
        more = {"align_corners": False} if mode > 1 else {}
        to = [2 * s[2], 2 * s[3]]
        row(f"interpolate {name} twice of {text(s)}", "interpolate", {"mode": mode, "size": to}, [T(*s)], lambda x, to=to, name=name, more=more: F.interpolate(x, to, mode=name, **more), tolerance=1e-4)
row("interpolate bilinear half of 8x64x56x56", "interpolate", {"mode": 2, "size": [28, 28]}, [T(8, 64, 56, 56)], lambda x: F.interpolate(x, (28, 28), mode="bilinear"), tolerance=1e-4)
row("grid_sample of 8x16x64x64", "grid_sample", None, [T(8, 16, 64, 64), T(8, 64, 64, 2, grad=False)], lambda x, g: F.grid_sample(x, g, align_corners=False), tolerance=1e-3)
row("complex_mul 1024x1024", "complex_mul", None, [T(1024, 1024, 2), T(1024, 1024, 2)],
    lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)))
row("rotary 4x512x8x64", "rotary", {"base": 10000, "rotated": 64}, [T(4, 512, 8, 64)], lambda x: rotated(x), tolerance=1e-3)
row("attention with heads 4x256x8x64, causal", "attention", {"scale": 0.125, "causal": 1}, [T(4, 256, 8, 64)] * 3,
    lambda q, k, v: F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True, scale=0.125).transpose(1, 2), tolerance=1e-4)


# Heads by groups of one: [..., positions, groups, 1, width]. Of windows: [batch, windows, ...].
def attend_by_groups(q, k, v, mask):
    heads = [t.transpose(-3, -2) for t in (q.squeeze(-2), k, v)]
    return F.scaled_dot_product_attention(*heads, attn_mask=mask.squeeze(-3), scale=0.125).transpose(-3, -2).unsqueeze(-2)


for name, shape, mask in [("4x256x8x64, a mask of all heads", (4, 256, 8, 64), T(1, 1, 1, 256, 256, grad=False)),
                          ("4x256x8x64, a bias for each head", (4, 256, 8, 64), T(1, 8, 1, 256, 256)),
                          ("8x64 windows of 49x4x32, a mask of windows", (8, 64, 49, 4, 32), T(1, 64, 1, 1, 49, 49, grad=False)),
                          ("8x64 windows of 49x4x32, seen keys", (8, 64, 49, 4, 32), T(1, 64, 1, 1, 49, 49, kind="b")),
                          ("8x64 windows of 49x4x32, a bias for each head", (8, 64, 49, 4, 32), T(1, 1, 4, 1, 49, 49))]:
    row(f"attention with heads {name}", "attention_general", {"scale": 0.125}, [T(*shape[:-1], 1, shape[-1]), T(*shape), T(*shape), mask],
        attend_by_groups, tolerance=1e-4, unchecked=(1,))


def rotated(x, base=10000):
    n, half = x.shape[1], x.shape[-1] // 2
    angle = torch.arange(n)[:, None] * base ** (-torch.arange(half) / half)
    c, s = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * c - b * s, a * s + b * c], -1)
