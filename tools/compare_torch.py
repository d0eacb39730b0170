#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares operators and their gradients with PyTorch 2.13 on random shapes, plain and sharded.

Usage: python tools/compare_torch.py [BUILD] [SEED] [CASES-PER-OPERATOR]; needs torch and BUILD/run_operators
(cmake --build BUILD --target run_operators). Prints one line an operator: the largest relative difference of results and
gradients in f32 and in f64; exits 1 if one is beyond 1e-5 or 1e-12.
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
CASES = int(sys.argv[3]) if len(sys.argv) > 3 else 20
RANKS = [1, 2, 3]
LIMIT = {"f32": 1e-5, "f64": 1e-12}
DTYPE = {"f32": torch.float32, "f64": torch.float64}
rng = random.Random(SEED)


def size(low=1, high=5):
    return rng.randint(low, high)


def shape(ndim=None):
    return [size() for _ in range(rng.randint(1, 3) if ndim is None else ndim)]


def stretched(s):
    """A shape that broadcasts to s."""
    t = [1 if rng.random() < 0.3 else n for n in s]
    return t[rng.randint(0, len(t) - 1):]


class Case:
    """One operator: operands, attributes, and what torch makes of them."""

    def __init__(self, op, operands, compute, attributes=None, positive=False, indices=(), written=()):
        self.op, self.shapes, self.compute = op, operands, compute
        self.attributes = attributes or {}
        self.positive, self.indices = positive, dict(indices)
        self.written = written  # numbers of operands that are positive, may be written, and want no gradient


def unary(op, f, positive=False, **attributes):
    return lambda: Case(op, [shape()], f, attributes, positive)


def binary(op, f, positive=False):
    def make():
        s = shape()
        pair = [s, stretched(s)]
        rng.shuffle(pair)
        return Case(op, pair, f, None, positive)

    return make


def linear():
    n, k, m = size(), size(), size()
    bias = rng.random() < 0.5
    s = shape(rng.randint(0, 2)) + [k]
    return Case("sherd_linear", [s, [m, k]] + ([[m]] if bias else []),
                lambda x, w, b=None: F.linear(x, w, b))


def matmul():
    m, k, n = size(), size(), size()
    a, b = [m, k], [k, n]
    batch = shape(rng.randint(0, 2))
    if batch:
        a, b = batch + a, stretched(batch) + b
    return Case("sherd_matmul", [a, b], torch.matmul)


def einsum():
    text = rng.choice(["ij,jk->ik", "bij,bjk->bik", "ij,kj->ki", "bshw,bthw->bhst", "i,j->ij", "ij,jk,kl->il", "ijk->kj",
                       "ij,ij->", "ijb,kbj->bki", "abc,bd->cd", "ii->i", "iji->j", "ii,ij->ji"])
    sizes = {c: size() for c in "abcdefghijklmnopqrstuvwxyz"}
    return Case("sherd_einsum", [[sizes[c] for c in term] for term in text.split("->")[0].split(",")],
                lambda *t: torch.einsum(text, *t), {"text": text})


def normed(low):
    """A shape, and how many of its last dims are normalised."""
    s = shape() + [size(low, 8)]
    return s, rng.randint(1, len(s))


def layer_norm():
    s, n = normed(5)  # where few columns are nearly equal, only eps keeps the gradient from noise
    eps = 1e-5
    return Case("sherd_layer_norm", [s, s[-n:], s[-n:]], lambda x, w, b: F.layer_norm(x, s[-n:], w, b, eps),
                {"eps": eps, "more": n - 1})


def view():
    a, b, c = size(), size(), size()
    target = rng.choice([[a * b, c], [a, b * c], [a * b * c], [a, b, 1, c], [c, b, a]])
    return Case("sherd_view", [[a, b, c]], lambda x: x.reshape(target),
                {"ndim": len(target), "shape": target + [0] * (8 - len(target))})


def transpose():
    s = shape(3)
    p, q = rng.randint(-3, 2), rng.randint(-3, 2)
    return Case("sherd_transpose", [s], lambda x: x.transpose(p, q), {"p": p, "q": q})


def embedding():
    v, d, s = size(2, 7), size(), shape()
    return Case("sherd_embedding", [[v, d], s], lambda w, i: F.embedding(i, w), indices={1: v})


def attention():
    b, s, h, w = size(), size(), size(), size()
    causal = rng.random() < 0.5
    t = s if causal else size()
    scale = rng.uniform(0.2, 1)

    def compute(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2)

    return Case("sherd_attention", [[b, s, h, w], [b, t, h, w], [b, t, h, w]], compute, {"scale": scale, "causal": causal})


def windowed_attention():
    """Heads in groups, a window, a cap: by a mask and a tangent."""
    b, s, g, r, w = size(1, 2), size(1, 40), size(1, 2), size(1, 3), size()
    window, cap, scale = rng.randint(0, 45), rng.choice([0, 0.5, 2.0]), rng.uniform(0.2, 2)

    def compute(q, k, v):
        scores = torch.einsum("bsgrw,btgw->bgrst", q, k) * scale
        scores = cap * torch.tanh(scores / cap) if cap else scores
        behind = torch.arange(s)[:, None] - torch.arange(s)
        seen = (behind >= 0) & (behind < (window or s))
        p = scores.masked_fill(~seen, -math.inf).softmax(-1)
        return torch.einsum("bgrst,btgw->bsgrw", p, v)

    way = {"scale": scale, "causal": True, "window": window, "softcap": cap}
    return Case("sherd_attention_general", [[b, s, g, r, w], [b, s, g, w], [b, s, g, w]], compute, way)


def cross_entropy():
    c, s = size(2, 7), shape()
    return Case("sherd_cross_entropy", [s + [c], s],
                lambda x, y: F.cross_entropy(x.reshape(-1, c), y.reshape(-1).long()), indices={1: c})


def over(op, f, **more):
    """A reduction over some dims, or over all (count 0)."""
    def make():
        s = shape(3)
        dims = sorted(rng.sample(range(3), rng.randint(0, 3)))
        keepdim = rng.random() < 0.5
        given = [d - 3 if rng.random() < 0.5 else d for d in dims]
        prefix = "dims." if more else ""
        attributes = {prefix + "count": len(dims), prefix + "dim": given + [0] * (8 - len(dims)), prefix + "keepdim": keepdim}
        return Case(op, [s], lambda x: f(x, dims or [0, 1, 2], keepdim), dict(attributes, **more))

    return make


def along(op, f):
    def make():
        s, d = shape(3), rng.randint(-3, 2)
        return Case(op, [s], lambda x: f(x, d), {"count": 1, "dim": [d] + [0] * 7})

    return make


def permute():
    s, order = shape(3), rng.sample(range(3), 3)
    return Case("sherd_permute", [s], lambda x: x.permute(order), {"ndim": 3, "dim": order + [0] * 5})


def rms_norm():
    s, n = normed(2)
    return Case("sherd_rms_norm", [s, s[-n:]], lambda x, w: F.rms_norm(x, s[-n:], w, 1e-5), {"eps": 1e-5, "more": n - 1})


def weight_and_bias(s):
    """Both, none, or the weight; a bias alone is more than torch can differentiate."""
    return rng.choice([[s, s], [s, s], [s, None], [None, None]])


def items():
    """[items, channels, ...] with enough in a channel that the gradient is more than noise."""
    return [size(2), size()] + [size(2) for _ in range(rng.randint(1, 3))]


def group_norm():
    s, groups = items(), size(1, 3)
    s[1] *= groups
    c = [s[1]]
    return Case("sherd_group_norm", [s] + weight_and_bias(c), lambda x, w, b: F.group_norm(x, groups, w, b, 1e-3),
                {"groups": groups, "eps": 1e-3})


def with_averages(op, compute):
    def make():
        s, fixed, kept, momentum = items(), rng.random() < 0.3, rng.random() < 0.6, rng.uniform(0.1, 0.9)
        c = [s[1]]
        averages = [c, c] if fixed or kept else []
        return Case(op, [s] + weight_and_bias(c) + averages,
                    lambda x, w, b, m=None, v=None: compute(x, m, v, w, b, not fixed, momentum, 1e-3),
                    {"fixed": fixed, "momentum": momentum, "eps": 1e-3}, written=(3, 4))

    return make


def nll():
    c, s, reduction = size(2, 7), shape(), rng.randint(0, 2)
    weighed, ignores = rng.random() < 0.6, rng.random() < 0.6
    ignored = rng.randrange(c)

    def compute(x, y, w=None):
        loss = F.nll_loss(x.reshape(-1, c), y.reshape(-1).long(), w, ignore_index=ignored if ignores else -100,
                          reduction=["mean", "sum", "none"][reduction])
        return loss.reshape(s) if reduction == 2 else loss

    return Case("sherd_nll_loss", [s + [c], s] + ([[c]] if weighed else []), compute,
                {"reduction": reduction, "ignores": ignores, "ignored": ignored}, indices={1: c}, written=(2,))


def field():
    """[batch, channels, space ...]"""
    return [size(1, 2), size(1, 3)] + [size(1, 9) for _ in range(rng.randint(1, 3))]


def pool_sizes(s):
    kernel = [rng.randint(1, min(n, 4)) for n in s[2:]]
    return {"kernel": kernel, "stride": [size(1, 4) for _ in kernel], "padding": [rng.randint(0, k // 2) for k in kernel],
            "ceil": rng.random() < 0.5}


def max_pool():
    s = field()
    a = dict(pool_sizes(s), mode=6)
    a["dilation"] = [rng.randint(1, 2) if n + 2 * p > 2 * (k - 1) else 1 for n, k, p in zip(s[2:], a["kernel"], a["padding"])]
    f = [F.max_pool1d, F.max_pool2d, F.max_pool3d][len(s) - 3]
    return Case("sherd_max_pool", [s], lambda x: f(x, a["kernel"], a["stride"], a["padding"], a["dilation"], a["ceil"],
                                                   return_indices=True), a)


def avg_pool():
    s = field()
    a = dict(pool_sizes(s), mode=5, without_padding=rng.random() < 0.5, divisor=rng.choice([0, 0, 3]))
    if len(s) == 3:
        a["divisor"] = 0  # torch has none there
    f = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][len(s) - 3]
    more = [] if len(s) == 3 else [a["divisor"] or None]
    return Case("sherd_avg_pool", [s], lambda x: f(x, a["kernel"], a["stride"], a["padding"], a["ceil"],
                                                   not a["without_padding"], *more), a)


def adaptive_avg_pool():
    s = field()
    to = [size(1, 11) for _ in s[2:]]
    f = [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][len(s) - 3]
    return Case("sherd_adaptive_avg_pool", [s], lambda x: f(x, to), {"mode": 4, "size": to})


def factor(n):
    """Not one that is not whole and yet makes 1 or 2 times as many: for those torch has other coordinates in backward
    than forward, and forward by memory format."""
    f = rng.choice([1.0, 2.0, 3.0, 1.3, 2.7, rng.uniform(1 / n + 1e-3, 3)])
    return f if f == int(f) or int(n * f) not in (n, 2 * n) else 2.0


def interpolate():
    s = field()
    mode = rng.randrange(5)
    if mode == 3:
        s = s[:2] + [size(1, 9), size(1, 9)]  # torch has cubic in two dims only
    linear = ["linear", "bilinear", "trilinear"][len(s) - 3]
    name = ["nearest", "nearest-exact", linear, "bicubic", "area"][mode]
    a, more = {"mode": mode}, {"mode": name}
    if mode in (2, 3):
        a["aligned"] = more["align_corners"] = rng.random() < 0.5
    if rng.random() < 0.5:
        a["size"] = more["size"] = [size(1, 20) for _ in s[2:]]
    else:
        a["factor"] = more["scale_factor"] = [factor(n) for n in s[2:]]
    return Case("sherd_interpolate", [s], lambda x: F.interpolate(x, **more), a)


def pad_with():
    s = [size(1, 2), size(1, 3)] + [size(2, 7) for _ in range(rng.randint(1, 3))]
    border = rng.randint(1, 4)
    before = [0, 0] + [rng.randint(0, n - 1) for n in s[2:]]
    after = [0, 0] + [rng.randint(0, n - 1) for n in s[2:]]
    sides = [w for pair in reversed(list(zip(before[2:], after[2:]))) for w in pair]
    name = ["constant", "replicate", "reflect", "circular"][border - 1]
    return Case("sherd_pad_with", [s], lambda x: F.pad(x, sides, name, 0.3) if border == 1 else F.pad(x, sides, name),
                {"before": before, "after": after, "first": [border] * len(s), "last": [border] * len(s), "value": 0.3})


def neighbourhood_attention():
    """As plain operators: scores of all pairs, of which those stay that NATTEN's window has."""
    dims = rng.randint(1, 3)
    kernel = [rng.choice([1, 3, 3, 5] if dims < 3 else [1, 3]) for _ in range(dims)]
    dilation = [rng.randint(1, 2) for _ in kernel]
    s = [size(1, 2)] + [k * d + rng.randint(0, 4) for k, d in zip(kernel, dilation)] + [size(1, 3), size(1, 6)]
    scale = rng.uniform(0.2, 1)

    def start(i, n, k, d):
        """The first of its window, as NATTEN has it."""
        half, a, rest = k // 2 * d, n // d * d, i % d
        if i - half < 0:
            return rest
        if i + half >= n:
            return a + rest - 2 * half if rest < n - a else a + rest - k * d
        return i - half

    def seen(n, k, d):
        m = torch.zeros(n, n, dtype=torch.bool)
        for i in range(n):
            m[i, start(i, n, k, d)::d][:k] = True
        return m

    mask = torch.ones(1, 1, dtype=torch.bool)
    for n, k, d in zip(s[1:], kernel, dilation):
        mask = torch.kron(mask, seen(n, k, d))

    def compute(q, k, v):
        q, k, v = (x.flatten(1, dims).transpose(1, 2) for x in (q, k, v))
        scores = (q @ k.transpose(2, 3) * scale).masked_fill(~mask.to(q.device), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(s)

    more = [1] * (3 - dims)
    return Case("sherd_neighbourhood_attention", [s, s, s], compute,
                {"kernel": kernel + more, "dilation": dilation + more, "scale": scale})


def windows(dims):
    """Kernel, stride, dilation of each dim, and over how much a kernel reaches."""
    kernel = [rng.randint(1, [7, 5, 3][dims - 1]) for _ in range(dims)]
    dilation = [rng.choice([1, 1, 2, 3]) for _ in kernel]
    return kernel, [size(1, 4) for _ in kernel], dilation, [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]


def conv():
    dims, groups = rng.randint(1, 3), rng.choice([1, 1, 2, 3])
    kernel, stride, dilation, reach = windows(dims)
    before, after = ([rng.randint(0, k) for k in kernel] for _ in range(2))
    space = [max(size(1, [24, 11, 6][dims - 1]), r - p - q) for r, p, q in zip(reach, before, after)]
    read, made = size(1, 3), groups * size(1, 3)
    sides = [w for pair in reversed(list(zip(before, after))) for w in pair]
    f = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
    return Case("sherd_conv", [[size(1, 2), groups * read] + space, [made, read] + kernel, rng.choice([[made], None])],
                lambda x, w, b: f(F.pad(x, sides), w, b, stride, 0, dilation, groups),
                {"groups": groups, "stride": stride, "dilation": dilation, "before": before, "after": after,
                 "kernel": kernel})


def conv_transposed():
    dims, groups = rng.randint(1, 3), rng.choice([1, 1, 2, 3])
    kernel, stride, dilation, reach = windows(dims)
    space = [size(1, [16, 7, 4][dims - 1]) for _ in kernel]
    padding = [rng.randint(0, ((n - 1) * s + r - 1) // 2) for n, s, r in zip(space, stride, reach)]
    extra = [rng.randrange(max(s, d)) for s, d in zip(stride, dilation)]
    read, made = groups * size(1, 3), size(1, 3)
    f = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][dims - 1]
    return Case("sherd_conv_transposed",
                [[size(1, 2), read] + space, [read, made] + kernel, rng.choice([[groups * made], None])],
                lambda x, w, b: f(x, w, b, stride, padding, extra, groups, dilation),
                {"groups": groups, "transposed": True, "stride": stride, "dilation": dilation, "before": padding,
                 "after": padding, "extra": extra, "kernel": kernel})


NORMS = ["backward", "ortho", "forward"]


def transform(name, real_in, real_out):
    """A Fourier transform over some dims, in any order; complex tensors as view_as_real has them."""
    def make():
        s = [rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 37]) for _ in range(rng.randint(1, 3))]
        dims = rng.sample(range(len(s)), rng.randint(1, len(s)))
        norm, f = rng.randint(0, 2), getattr(torch.fft, name)
        sizes, last = None, 0
        if real_out:
            last = rng.choice([0, 1, 6, 7, 2 * s[dims[-1]] - 1]) if s[dims[-1]] > 1 else 3
            sizes = [s[d] for d in dims[:-1]] + [last or 2 * (s[dims[-1]] - 1)]
        given = [d - len(s) if rng.random() < 0.5 else d for d in dims]

        def compute(x):
            y = f(x if real_in else torch.view_as_complex(x), s=sizes, dim=dims, norm=NORMS[norm])
            return y if real_out else torch.view_as_real(y)

        return Case("sherd_" + name[:-1], [s if real_in else s + [2]], compute,
                    {"dims.count": len(dims), "dims.dim": given, "norm": norm, "last": last})

    return make


def complex_mul():
    s = shape()
    a, b = s + [2], stretched(s) + [2]
    return Case("sherd_complex_mul", [a, b],
                lambda x, y: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y)))


def on_dim(op, f, even=False, **drawn):
    """Of x and a dim; and of attributes that are drawn, each by its function of the dim's size."""
    def make():
        s = shape()
        d = rng.randint(-len(s), len(s) - 1)
        s[d] *= 2 if even else 1
        given = {name: draw_it(s[d]) for name, draw_it in drawn.items()}
        return Case("sherd_" + op, [s], lambda x: f(x, d, **given), {"dim": d, **given})

    return make


def one_of(*values):
    return lambda n: rng.choice(values)


WAYS = ["linear", "lower", "higher", "nearest", "midpoint"]


def diagonal(op, f, more=0):
    def make():
        s = shape(rng.randint(2, 3) - more)
        p, q = rng.sample(range(len(s) + more), 2)
        offset = rng.randint(-3, 3)
        return Case("sherd_" + op, [s], lambda x: f(x, offset, p, q), {"offset": offset, "p": p, "q": q})

    return make


def recurrence():
    s = shape()
    d, back = rng.randint(0, len(s) - 1), rng.random() < 0.5

    def compute(a, b):
        parts = [None] * s[d]
        for j in reversed(range(s[d])) if back else range(s[d]):
            before = j + 1 if back else j - 1
            step = a.select(d, j) * parts[before] if 0 <= before < s[d] else 0
            parts[j] = b.select(d, j) + step
        return torch.stack(parts, d) + 0 * a  # its gradient is 0, not none, where there is one step

    return Case("sherd_recurrence", [s, s], compute, {"dim": d, "reverse": int(back), "behind": 0})


def vectors(op, f, n=None, **more):
    def make():
        s = shape()
        t = [1 if rng.random() < 0.3 else m for m in s]
        d = rng.randint(-len(s), -1)
        s[d] = t[d] = n or s[d]
        return Case("sherd_" + op, [s, t], lambda x, y: f(x, y, d), {"dim": d, **more})

    return make


def prelu():
    s = shape()
    return Case("sherd_prelu", [s, [s[1] if len(s) > 1 and rng.random() < 0.5 else 1]], F.prelu)


def pixels(op, f, rows, channels):
    def make():
        r = size(1, 3)
        s = shape(rng.randint(0, 1)) + [size() * r ** channels, size(1, 3) * r ** rows, size(1, 3) * r ** rows]
        return Case("sherd_" + op, [s], lambda x: f(x, r), {"factor": r})

    return make


def by_rows(op, source, compute, **attributes):
    """Slices of a dim by an index, with others (`source`) or without."""
    def make():
        s, n = shape(), size()
        d = rng.randint(-len(s), len(s) - 1)
        shapes = [s, [n]] + ([[n if e == d % len(s) else m for e, m in enumerate(s)]] if source else [])
        return Case("sherd_" + op, shapes, lambda a, i, *more: compute(a, d, i.long(), *more), {"dim": d, **attributes},
                    indices={1: s[d]})

    return make


def by_two(put):
    def make():
        s, i = shape(3), shape(2)
        j = [rng.choice([1, i[0]]), i[1]]
        if put:
            return Case("sherd_index_put", [s, i + s[2:], i, j],
                        lambda a, v, i, j: a.index_put((i.long(), j.long()), v, accumulate=True), {"count": 2, "accumulates": 1},
                        indices={2: s[0], 3: s[1]})
        return Case("sherd_index_at", [s, i, j], lambda a, i, j: a[i.long(), j.long()], {"count": 2}, indices={1: s[0], 2: s[1]})

    return make


INDICES = [
    by_rows("index_add", True, torch.index_add), by_rows("index_fill", False, lambda a, d, i: a.index_fill(d, i, 0.3), value=0.3),
    by_two(False), by_two(True),
    on_dim("repeat_interleave", lambda x, d, times: x.repeat_interleave(times, d), times=one_of(1, 2, 3)),
]

LINES = [
    on_dim("cumprod", torch.cumprod), on_dim("cummax", torch.cummax), on_dim("cummin", torch.cummin),
    on_dim("logcumsumexp", torch.logcumsumexp), recurrence,
    on_dim("kthvalue", lambda x, d, k, keepdim: x.kthvalue(k, d, keepdim), k=lambda n: rng.randint(1, n),
           keepdim=one_of(False, True)),
    on_dim("median", lambda x, d, keepdim: x.median(d, keepdim), keepdim=one_of(False, True)),
    on_dim("quantile", lambda x, d, q, way, keepdim: x.quantile(q, d, keepdim, interpolation=WAYS[way]),
           q=one_of(0, 0.25, 0.4, 0.5, 0.9, 1), way=one_of(*range(5)), keepdim=one_of(False, True)),
    diagonal("diagonal", torch.diagonal), diagonal("diag_embed", torch.diag_embed, 1),
    diagonal("trace", lambda x, o, p, q: x.diagonal(o, p, q).sum(-1)),
    vectors("cross", lambda x, y, d: torch.linalg.cross(x, y, dim=d), 3),
    vectors("cosine_similarity", lambda x, y, d: F.cosine_similarity(x, y, d), eps=1e-8),
    on_dim("normalize", lambda x, d, p, eps: F.normalize(x, p, d, eps), p=one_of(1, 2, 3), eps=one_of(1e-12, 0.5)),
    on_dim("glu", F.glu, even=True), prelu,
    on_dim("unfold", lambda x, d, size, step: x.unfold(d, size, step), size=lambda n: rng.randint(1, n),
           step=one_of(1, 2, 4)),
    pixels("pixel_shuffle", F.pixel_shuffle, 0, 2), pixels("pixel_unshuffle", F.pixel_unshuffle, 1, 0),
]

UNARY = {
    "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "expm1": torch.expm1, "square": torch.square, "sin": torch.sin,
    "cos": torch.cos, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid, "gelu_erf": F.gelu, "silu": F.silu,
    "exp2": torch.exp2, "tan": torch.tan, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "asinh": torch.asinh,
    "erfc": torch.erfc, "logsigmoid": F.logsigmoid, "selu": F.selu, "mish": F.mish, "softsign": F.softsign,
    "hardsigmoid": lambda x: (x / 6 + 0.5).clamp(0, 1), "hardswish": F.hardswish, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": torch.round, "frac": torch.frac,
}
POSITIVE = {"log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
            "log2": torch.log2, "log10": torch.log10}

OPERATORS = [unary("sherd_" + name, f) for name, f in UNARY.items()]
OPERATORS += [unary("sherd_" + name, f, positive=True) for name, f in POSITIVE.items()]
OPERATORS += [
    unary("sherd_leaky_relu", lambda x: F.leaky_relu(x, 0.2), slope=0.2),
    unary("sherd_softplus", lambda x: F.softplus(x, 1.5, 20), beta=1.5, threshold=20),
    unary("sherd_elu", lambda x: F.elu(x, 0.7), alpha=0.7), unary("sherd_celu", lambda x: F.celu(x, 0.7), alpha=0.7),
    unary("sherd_softshrink", lambda x: F.softshrink(x, 0.4), bound=0.4),
    unary("sherd_hardshrink", lambda x: F.hardshrink(x, 0.4), bound=0.4),
    unary("sherd_remainder_scalar", lambda x: torch.remainder(x, -0.75), divisor=-0.75),
    unary("sherd_floor_divide_scalar", lambda x: torch.floor(x / 0.75), divisor=0.75),
    unary("sherd_nan_to_num", lambda x: x.nan_to_num(0.5, 2, -3), nan=0.5, above=2, below=-3),
    unary("sherd_clamp", lambda x: x.clamp(-0.5, 0.7), min=-0.5, max=0.7),
    unary("sherd_pow", lambda x: x.pow(1.7), positive=True, exponent=1.7),
    unary("sherd_add_scalar", lambda x: x + 0.3, addend=0.3),
    binary("sherd_div", torch.div, positive=True), binary("sherd_maximum", torch.maximum),
    binary("sherd_minimum", torch.minimum), binary("sherd_fmax", torch.fmax), binary("sherd_fmin", torch.fmin), binary("sherd_power", torch.pow, positive=True),
    binary("sherd_atan2", torch.atan2), binary("sherd_hypot", torch.hypot), binary("sherd_copysign", torch.copysign),
    binary("sherd_fmod", torch.fmod), binary("sherd_remainder", torch.remainder), binary("sherd_logaddexp", torch.logaddexp),
    binary("sherd_xlogy", torch.xlogy, positive=True),
    over("sherd_sum_over", lambda x, d, k: x.sum(d, keepdim=k)), over("sherd_mean_over", lambda x, d, k: x.mean(d, keepdim=k)),
    over("sherd_max", lambda x, d, k: x.amax(d, keepdim=k)), over("sherd_min", lambda x, d, k: x.amin(d, keepdim=k)),
    along("sherd_softmax", torch.softmax), along("sherd_log_softmax", torch.log_softmax), along("sherd_logsumexp", torch.logsumexp),
    rms_norm, permute, group_norm, with_averages("sherd_batch_norm", F.batch_norm),
    with_averages("sherd_instance_norm", F.instance_norm),
]
OPERATORS += LINES + INDICES
OPERATORS += [
    binary("sherd_add", torch.add), binary("sherd_sub", torch.sub), binary("sherd_mul", torch.mul),
    unary("sherd_scale", lambda x: x * 1.7, factor=1.7), unary("sherd_relu", F.relu),
    unary("sherd_gelu", lambda x: F.gelu(x, approximate="tanh")), matmul, linear, einsum,
    unary("sherd_sum", torch.sum), unary("sherd_mean", torch.mean), view, transpose, layer_norm, embedding, attention,
    windowed_attention,
    cross_entropy, nll, max_pool, avg_pool, adaptive_avg_pool, interpolate, pad_with,
    neighbourhood_attention,
    conv, conv_transposed, transform("fftn", False, False), transform("ifftn", False, False),
    transform("rfftn", True, False), transform("irfftn", False, True), complex_mul,
]


def placement(s, ranks):
    """Plain, replicated or sharded somewhere."""
    choice = rng.randint(0, 2 + len(s))
    return None if choice == 0 else "R" if choice <= 2 else "S(%d)" % (choice - 3)


def draw(case, dtype, ranks):
    """The case as JSON, and torch's operands."""
    operands, tensors = [], []
    sharded = rng.random() < 0.8 and ranks > 1
    for i, s in enumerate(case.shapes):
        if s is None:
            operands.append(None)
            tensors.append(None)
            continue
        where = placement(s, ranks) if sharded else None
        if i in case.indices:
            t = torch.randint(0, case.indices[i], s)
            operands.append({"dtype": "i32", "shape": s, "data": t.flatten().tolist()})
        elif i in case.written:
            t = torch.rand(s, dtype=torch.float64).add(0.1).to(DTYPE[dtype])
            operands.append({"dtype": dtype, "shape": s, "data": t.double().flatten().tolist(), "written": True})
        else:
            t = torch.randn(s, dtype=torch.float64)
            t = (t.abs() + 0.1 if case.positive else t).to(DTYPE[dtype])
            operands.append({"dtype": dtype, "shape": s, "data": t.double().flatten().tolist(), "grad": True})
            t.requires_grad_(True)
        if where:
            operands[-1]["placements"] = where
        tensors.append(t)
    y = case.compute(*tensors)
    y, more = (y[0], y[1:]) if isinstance(y, tuple) else (y, ())
    weights = torch.randn(y.shape, dtype=torch.float64).to(y.dtype)
    (y * weights).sum().backward()
    return ({"op": case.op, "attributes": case.attributes, "operands": operands,
             "weights": weights.double().flatten().tolist()}, (y,) + more, tensors)


def difference(want, got):
    """The largest, relative to the largest element; infinite if shapes differ."""
    if got is None or list(want.shape) != got["shape"]:
        return math.inf
    numbers = torch.tensor([float(x) for x in got["data"]], dtype=torch.float64).reshape(want.shape)
    want = want.detach().double()
    if want.numel() == 0:
        return 0.0
    if not torch.equal(torch.isnan(want), torch.isnan(numbers)):
        return math.inf
    gap = torch.nan_to_num(numbers - want).abs().max().item()
    return gap / max(1.0, torch.nan_to_num(want).abs().max().item())


def run(cases, ranks):
    with tempfile.TemporaryDirectory() as folder:
        given, answer = os.path.join(folder, "cases"), os.path.join(folder, "results")
        with open(given, "w") as f:
            json.dump([c[0] for c in cases], f)
        subprocess.run([os.path.join(BUILD, "run_operators"), given, answer, str(ranks)], check=True)
        with open(answer) as f:
            return json.load(f)


def main():
    torch.manual_seed(SEED)
    worst, bad, count = {}, 0, 0
    for dtype in LIMIT:
        for ranks in RANKS:
            cases = [draw(make(), dtype, ranks) for make in OPERATORS for _ in range(CASES)]
            for (given, y, tensors), got in zip(cases, run(cases, ranks)):
                name = given["op"]
                gaps = [math.inf] if got["error"] else [difference(t, r) for t, r in zip(y, got["results"])]
                gaps += [difference(t.grad, g) for t, g in zip(tensors, got["gradients"])
                         if t is not None and t.requires_grad and not got["error"]]
                gaps += [difference(t, w) for t, w in zip(tensors, got["written"]) if w and not got["error"]]
                count += 1
                worst[name, dtype] = max([worst.get((name, dtype), 0)] + gaps)
                if max(gaps) > LIMIT[dtype]:
                    bad += 1
                    print("%s %s on %d ranks: %g, %s of %s" % (name, dtype, ranks, max(gaps), got["error"] or "differs",
                          [o and (o["shape"], o.get("placements")) for o in given["operands"]]))
    for name in dict.fromkeys(n for n, _ in worst):
        print("%-24s f32 %.1e   f64 %.1e" % (name, worst[name, "f32"], worst[name, "f64"]))
    print("%d cases, %d beyond 1e-5 (f32) or 1e-12 (f64)" % (count, bad))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
