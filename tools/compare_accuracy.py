#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares errors of sherd and of PyTorch, both in f32 or 16 bits, beside PyTorch in f64, for operands that show them:
many equal numbers, numbers with a large offset, alternating signs, the largest and the smallest ones, infinities, NaN.

Usage: python tools/compare_accuracy.py [-v] [BUILD [WORD ...]]; needs torch and BUILD/run_operators. Of the cases with one
of these words in their names prints those whose result or gradient is more than 4 times as wrong as PyTorch's, or not
finite where it must be; with -v all. Errors are the largest relative to the largest number, in units of the type's
precision (2^-24 for f32). SHERD_KERNELS and SHERD_GEMM say what kernels are compared.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

VERBOSE = "-v" in sys.argv
ARGUMENTS = [a for a in sys.argv[1:] if a != "-v"]
BUILD = ARGUMENTS[0] if ARGUMENTS else "build"
WORDS = ARGUMENTS[1:]
DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
PRECISION = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
inf, nan = float("inf"), float("nan")
CASES = []


class Case:
    """An operator, its operands as f64 and what torch makes of them."""

    def __init__(self, name, op, operands, compute, attributes=None, indices=(), fixed=(), weights="random",
                 written=()):
        self.name, self.op, self.operands, self.compute = name, op, operands, compute
        self.attributes, self.indices, self.fixed = attributes or {}, indices, fixed
        self.weights, self.written = weights, written


def add(dtypes, *arguments, **more):
    case = Case(*arguments, **more)
    for dtype in dtypes.split():
        name = "%s %s" % (case.name, dtype)
        if not WORDS or any(w in name for w in WORDS):
            CASES.append((name, dtype, case))


def ones(*s):
    return torch.full(s, 0.1, dtype=torch.float64)


def offset(*s, mean=1e4, deviation=1e-2):
    return mean + deviation * torch.randn(*s, dtype=torch.float64)


def normal(*s, by=1.0):
    return by * torch.randn(*s, dtype=torch.float64)


def signs(*s):
    t = torch.rand(*s, dtype=torch.float64) + 1
    t.view(-1)[1::2] = -t.view(-1)[::2][:t.view(-1)[1::2].numel()]
    t.view(-1)[0] += 0.5
    return t


def positive(*s):
    return torch.rand(*s, dtype=torch.float64)


HALVES = "f32 bf16 f16"


def norms():
    kinds = {"normal": normal, "offset": offset, "offset 1e3": lambda *s: offset(*s, mean=1e3, deviation=1),
             "equal": ones, "signs": signs, "tiny": lambda *s: normal(*s, by=1e-25), "1e-40": lambda *s: normal(*s, by=1e-40),
             "1e15": lambda *s: normal(*s, by=1e15), "2e19": lambda *s: normal(*s, by=2e19),
             "1e30": lambda *s: normal(*s, by=1e30), "1e38": lambda *s: normal(*s, by=5e37)}
    for kind, make in kinds.items():
        for cols in 17, 768, 50000:
            rows = 3 if cols > 1000 else 100
            x, w, b = make(rows, cols), 1 + 0.1 * normal(cols), normal(cols)
            what = "%s %d" % (kind, cols)
            add(HALVES, "layer_norm " + what, "sherd_layer_norm", [x, w, b],
                lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5), {"eps": 1e-5})
            add(HALVES, "rms_norm " + what, "sherd_rms_norm", [x, w],
                lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), {"eps": 1e-6})
            add(HALVES, "add_layer_norm " + what, "sherd_add_layer_norm", [x / 2, x / 2, w, b],
                lambda x, y, w, b: F.layer_norm(x + y, x.shape[-1:], w, b, 1e-5), {"norm.eps": 1e-5})
            add(HALVES, "add_rms_norm " + what, "sherd_add_rms_norm", [x / 2, x / 2, w],
                lambda x, y, w: F.rms_norm(x + y, x.shape[-1:], w, 1e-6), {"norm.eps": 1e-6})
        for s in (4, 6, 9, 9), (2, 4, 100, 100):
            x, w, b = make(*s), 1 + 0.1 * normal(s[1]), normal(s[1])
            what = "%s %d" % (kind, s[3])
            add(HALVES, "group_norm " + what, "sherd_group_norm", [x, w, b],
                lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), {"groups": 2, "eps": 1e-5})
            add(HALVES, "batch_norm " + what, "sherd_batch_norm", [x, w, b],
                lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, 1e-5), {"eps": 1e-5, "momentum": 0.1})
            add(HALVES, "instance_norm " + what, "sherd_instance_norm", [x, w, b],
                lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, 1e-5), {"eps": 1e-5, "momentum": 0.1})


def sums():
    kinds = {"normal": normal, "offset": offset, "equal": ones, "signs": signs, "positive": positive,
             "1e30": lambda *s: normal(*s, by=1e30), "3e38": lambda *s: ones(*s) * 3e39,
             "tiny": lambda *s: normal(*s, by=1e-25), "1e-40": lambda *s: normal(*s, by=1e-40)}
    for kind, make in kinds.items():
        for s, d in ((1000, 40), 1), ((1000, 40), 0), ((1 << 20, 2), 0), ((2, 1 << 20), 1), ((5, 3000, 7), 1), ((16, 70), 0):
            x, what = make(*s), "%s %s %d" % (kind, s, d)
            dims = {"count": 1, "dim": [d] + [0] * 7}
            pre = {"dims.count": 1, "dims.dim": [d] + [0] * 7}
            add(HALVES, "sum " + what, "sherd_sum_over", [x], lambda x, d=d: x.sum(d), dims)
            add(HALVES, "mean " + what, "sherd_mean_over", [x], lambda x, d=d: x.mean(d), dims)
            add(HALVES, "var " + what, "sherd_var", [x], lambda x, d=d: x.var(d), dict(pre, parameter=1))
            add(HALVES, "std " + what, "sherd_std", [x], lambda x, d=d: x.std(d), dict(pre, parameter=1))
            add(HALVES, "cumsum " + what, "sherd_cumsum", [x], lambda x, d=d: x.cumsum(d), {"dim": d})
            for p in 1, 2, 3:
                add(HALVES, "norm%g " % p + what, "sherd_norm", [x], lambda x, d=d, p=p: x.norm(p, d), dict(pre, parameter=p))
            add(HALVES, "softmax " + what, "sherd_softmax", [x], lambda x, d=d: x.softmax(d), dims)
            add(HALVES, "log_softmax " + what, "sherd_log_softmax", [x], lambda x, d=d: x.log_softmax(d), dims)
            add(HALVES, "logsumexp " + what, "sherd_logsumexp", [x], lambda x, d=d: x.logsumexp(d), dims)
        x = make(70000)
        add(HALVES, "sum all " + kind, "sherd_sum", [x], torch.sum)
        add(HALVES, "mean all " + kind, "sherd_mean", [x], torch.mean)
        for name, f in ("mse", F.mse_loss), ("l1", F.l1_loss), ("huber", F.huber_loss), ("smooth_l1", F.smooth_l1_loss):
            add(HALVES, "%s_loss %s" % (name, kind), "sherd_%s_loss" % name, [x, normal(70000)], f, {"parameter": 1}, fixed=(1,))
        add(HALVES, "bce %s" % kind, "sherd_bce_with_logits", [x, positive(70000)], F.binary_cross_entropy_with_logits, fixed=(1,))


def rows_of(cols):
    """Rows with extremes in some places."""
    big = 3e38
    base = normal(1, cols)
    rows = [base * 30, base * 0 + big, base * 0 - big, base * 0]
    for values in ([big], [-big], [-big, big], [inf], [-inf], [-inf, inf], [nan], [-inf, nan], [1e30, -1e30], [100, -100],
                   [88, -88], [0, -104], [0, -90]):
        r = base.clone()
        for i, v in enumerate(values):
            r[0, (3 + 5 * i) % cols] = v
        rows.append(r)
    rows.append(base * 0 - inf)
    rows.append(base * 0 + inf)
    r = base * 0 - inf
    r[0, cols // 2] = 1
    rows.append(r)
    return torch.cat(rows)


def extremes():
    for cols in 5, 8, 33, 1000, 5000:
        x = rows_of(cols)
        for r in range(x.shape[0]):
            one = x[r:r + 1]
            what = "row %d of %d" % (r, cols)
            dims, down = {"count": 1, "dim": [1] + [0] * 7}, {"count": 1, "dim": [0] * 8}
            for name, f in ("softmax", torch.softmax), ("log_softmax", torch.log_softmax), ("logsumexp", torch.logsumexp):
                add(HALVES, "%s %s" % (name, what), "sherd_" + name, [one], lambda x, f=f: f(x, 1), dims)
                add(HALVES, "%s column %s" % (name, what), "sherd_" + name, [one.t().repeat(1, 3)], lambda x, f=f: f(x, 0), down)
            t = torch.full((1,), cols // 2, dtype=torch.float64)
            add(HALVES, "cross_entropy " + what, "sherd_cross_entropy", [one, t], lambda x, t: F.cross_entropy(x, t.long()),
                indices=(1,))
            add(HALVES, "cross_entropy_with " + what, "sherd_cross_entropy_with", [one, t],
                lambda x, t: F.cross_entropy(x, t.long(), reduction="sum"), {"reduction": 1, "ignored": -100}, indices=(1,))
            add(HALVES, "cross_entropy_mean smoothed " + what, "sherd_cross_entropy_mean", [one, t],
                lambda x, t: F.cross_entropy(x, t.long(), label_smoothing=0.1), {"ignored": -100, "smoothing": 0.1}, indices=(1,))
            add(HALVES, "max " + what, "sherd_max", [one], lambda x: x.amax(1), dims)
            add(HALVES, "norm2 " + what, "sherd_norm", [one], lambda x: x.norm(2, 1), {"dims.count": 1, "dims.dim": [1] + [0] * 7, "parameter": 2})
            add(HALVES, "layer_norm " + what, "sherd_layer_norm", [one], lambda x: F.layer_norm(x, x.shape[-1:]), {"eps": 1e-5})
            add(HALVES, "rms_norm " + what, "sherd_rms_norm", [one], lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5), {"eps": 1e-5})


def losses():
    for cols in 10, 1000:
        for mean in 1, 10, 100, 1000:
            x, t = mean + normal(30, cols), torch.randint(0, cols, (30,)).double()
            what = "logits near %g of %d" % (mean, cols)
            add(HALVES, "cross_entropy " + what, "sherd_cross_entropy", [x, t], lambda x, t: F.cross_entropy(x, t.long()),
                indices=(1,))
            add(HALVES, "cross_entropy_mean smoothed " + what, "sherd_cross_entropy_mean", [x, t],
                lambda x, t: F.cross_entropy(x, t.long(), label_smoothing=0.1), {"ignored": -100, "smoothing": 0.1}, indices=(1,))


def products():
    kinds = {"normal": normal, "equal": ones, "offset": lambda *s: offset(*s, mean=10, deviation=1), "signs": signs,
             "positive": positive, "1e20": lambda *s: normal(*s, by=1e18)}
    for kind, make in kinds.items():
        for m, k, n in ((128, 1000, 128), (128, 4096, 128), (128, 16384, 128), (64, 65536, 64), (1, 65536, 100), (4, 16384, 512),
                        (1, 4096, 1), (256, 8192, 10), (100, 100, 100), (7, 70000, 9), (300, 65000, 8)):
            what = "%s %d %d %d" % (kind, m, k, n)
            add(HALVES, "linear " + what, "sherd_linear", [make(m, k), make(n, k)], F.linear)
            add(HALVES, "matmul " + what, "sherd_matmul", [make(m, k), make(k, n)], torch.matmul)
        for n, c, o, h, k in ((64, 3, 8, 64, 3), (16, 16, 16, 64, 3), (8, 32, 32, 56, 1), (32, 1, 4, 128, 5), (2, 64, 64, 14, 3), (256, 8, 8, 32, 3)):
            what = "%s %d %d %d %d" % (kind, n, c, o, h)
            add(HALVES, "conv " + what, "sherd_conv", [make(n, c, h, h), make(o, c, k, k), make(o)],
                lambda x, w, b, k=k: F.conv2d(x, w, b, padding=k // 2),
                {"groups": 1, "stride": [1, 1], "dilation": [1, 1], "before": [k // 2] * 2, "after": [k // 2] * 2,
                 "kernel": [k, k]}, weights=make)


def attention():
    kinds = {"normal": 1, "large": 100, "huge": 1e4, "1e18": 1e18, "tiny": 1e-20}
    for kind, by in kinds.items():
        for s in 7, 64, 300:
            q, k, v = normal(1, s, 2, 64, by=by), normal(1, s, 2, 64, by=by), normal(1, s, 2, 64)
            for causal in False, True:
                add(HALVES, "attention %s %d %d" % (kind, s, causal), "sherd_attention", [q, k, v],
                    lambda q, k, v, c=causal: F.scaled_dot_product_attention(
                        *(x.transpose(1, 2) for x in (q, k, v)), is_causal=c).transpose(1, 2),
                    {"scale": 0.125, "causal": causal})
            for what in "random", "rows", "-1e9", "-3e38":
                hidden = -inf if what in ("random", "rows") else float(what)
                mask = torch.where(torch.rand(s, s) < 0.3, hidden, 0.0).double()
                if what != "random":
                    mask[1] = hidden
                    mask[s // 2:s // 2 + 3] = hidden
                add(HALVES, "attention %s %d mask %s" % (kind, s, what), "sherd_attention_general",
                    [q.view(1, s, 2, 1, 64), k, v, mask.view(1, 1, 1, s, s)],
                    lambda q, k, v, m: F.scaled_dot_product_attention(
                        *(x.transpose(1, 2) for x in (q.flatten(2, 3), k, v)), attn_mask=m.flatten(0, 1)).transpose(1, 2).unsqueeze(3),
                    {"scale": 0.125}, fixed=(3,))


def spatial():
    for kind, make in {"normal": normal, "equal": ones, "offset": offset}.items():
        x = make(2, 3, 200, 200)
        for to in 1, 3, 7, 50:
            add(HALVES, "adaptive_avg_pool %s %d" % (kind, to), "sherd_adaptive_avg_pool", [x],
                lambda x, to=to: F.adaptive_avg_pool2d(x, to), {"mode": 4, "size": [to, to]})
        for k in 2, 9, 50:
            add(HALVES, "avg_pool %s %d" % (kind, k), "sherd_avg_pool", [x], lambda x, k=k: F.avg_pool2d(x, k, 1),
                {"kernel": [k, k], "stride": [1, 1], "padding": [0, 0], "mode": 5})
        small = make(1, 2, 5, 5)
        for mode, name in (2, "bilinear"), (3, "bicubic"), (0, "nearest"):
            for source, to in (small, 300), (x, 7), (x, 333):
                add(HALVES, "interpolate %s %s %d %d" % (name, kind, source.shape[2], to), "sherd_interpolate", [source],
                    lambda x, to=to, name=name: F.interpolate(x, size=(to, to), mode=name), {"mode": mode, "size": [to, to]})
        ids = torch.randint(0, 5, (40000,)).double()
        add(HALVES, "embedding %s" % kind, "sherd_embedding", [make(9, 20), ids], lambda w, i: F.embedding(i.long(), w), indices=(1,),
            weights=make)


for part in norms, sums, extremes, losses, products, attention, spatial:
    torch.manual_seed(1)
    part()


def run(cases):
    """Results of sherd: for each case results and gradients as f64 arrays."""
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, n) for n in ("cases", "results", "operands", "elements")]
        at = 0
        with open(names[2], "wb") as f:
            def store(t):
                nonlocal at
                data = t.detach().double().contiguous().numpy()
                data.tofile(f)
                at += data.size
                return {"file": names[2], "at": at - data.size, "count": data.size}

            given = []
            for name, dtype, case, tensors, weights in cases:
                operands = []
                for i, t in enumerate(tensors):
                    index = i in case.indices
                    operands.append({"dtype": "i32" if index else dtype, "shape": list(t.shape), "data": store(t),
                                     "grad": t.requires_grad})
                given.append({"op": case.op, "attributes": case.attributes, "operands": operands,
                              "weights": store(weights)})
        with open(names[0], "w") as f:
            json.dump(given, f)
        subprocess.run([os.path.join(BUILD, "run_operators"), names[0], names[1], "1", names[3]], check=True)
        with open(names[1]) as f:
            answers = json.load(f)
        elements = numpy.fromfile(names[3])

    def read(r):
        if r is None:
            return None
        n = int(numpy.prod(r["shape"]))
        return torch.from_numpy(elements[r["data"]:r["data"] + n].copy()).reshape(r["shape"])

    return [(a["error"], [read(a["results"][0])] + [read(g) for g in a["gradients"]]) if a["results"] else
            (a["error"] or "nothing", []) for a in answers]


def wrong(got, want, dtype):
    """The error in units of precision, or a word."""
    if got is None:
        return "none"
    got, want = got.double().reshape(want.shape), want.double()
    rounded = want.to(DTYPE[dtype]).double()
    low, high = torch.isfinite(rounded), torch.isfinite(got)
    if not torch.equal(low, high):
        return "nan" if torch.isnan(got[low]).any() else "inf" if (low & ~high).any() else "fin"
    if not torch.equal(torch.isnan(rounded), torch.isnan(got)):
        return "nan"
    if not torch.equal(rounded[~low & ~torch.isnan(rounded)], got[~low & ~torch.isnan(rounded)]):
        return "sign"
    if not low.any():
        return 0.0
    return ((got - want)[low].abs().max() / (want[low].abs().max().clamp(min=1e-45)) / PRECISION[dtype]).item()


def is_worse(ours, theirs):
    if isinstance(ours, str):
        return not isinstance(theirs, str) or ours != theirs
    return not isinstance(theirs, str) and ours > 4 * theirs + 4


def differentiate(case, tensors, weights):
    y = case.compute(*tensors)
    if y.requires_grad:
        (y * weights.to(y.dtype)).sum().backward()
    return [y.detach()] + [t.grad for t in tensors]


def batches():
    """Cases that are run together: so many that they fit a small disk."""
    some, count = [], 0
    for case in CASES:
        some.append(case)
        count += sum(t.numel() for t in case[2].operands)
        if count > 1 << 20 or len(some) == 40:
            yield some
            some, count = [], 0
    if some:
        yield some


def main():
    bad = 0
    for batch in batches():
        some, torchs, references = [], [], []
        for name, dtype, case in batch:
            leaves = []
            for i, t in enumerate(case.operands):
                t = t if i in case.indices else t.to(DTYPE[dtype])
                leaves.append(t.clone().requires_grad_(i not in case.indices and i not in case.fixed))
            wide = [t.detach().double().requires_grad_(t.requires_grad) for t in leaves]
            y = case.compute(*wide)
            weights = (normal if case.weights == "random" else case.weights)(*y.shape) if y.ndim else torch.ones(())
            weights = weights.to(DTYPE[dtype])
            references.append(differentiate(case, wide, weights))
            try:
                torchs.append(differentiate(case, [t.clone().detach().requires_grad_(t.requires_grad) for t in leaves], weights))
            except RuntimeError as e:
                torchs.append(None)
            some.append((name, dtype, case, leaves, weights))
        for (name, dtype, case, leaves, _), theirs, want, (error, got) in zip(some, torchs, references, run(some)):
            if error:
                print("%-50s %s" % (name, error))
                bad += 1
                continue
            shown, worse = [], False
            for i, w in enumerate(want):
                if w is None:
                    continue
                a = wrong(got[i] if i < len(got) else None, w, dtype)
                b = wrong(theirs[i], w, dtype) if theirs else "?"
                worse = worse or is_worse(a, b)
                word = [x if isinstance(x, str) else "%.3g" % x for x in (a, b)]
                shown.append("%s %s/%s%s" % ("y" if i == 0 else "d%d" % (i - 1), *word, "!" if is_worse(a, b) else ""))
            bad += worse
            if worse or VERBOSE:
                print("%-50s %s" % (name, "   ".join(shown)), flush=True)
    print("%d cases, %d worse" % (len(CASES), bad))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
