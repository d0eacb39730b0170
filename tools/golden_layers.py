#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/layers_golden.h: what PyTorch computes for layers with options, in f64, results and gradients.

    python3 tools/golden_layers.py >tests/layers_golden.h

Operand k holds sin(0.9 + 0.37 i + 1.7 k); the loss is the sum of the result times the values of operand 9.
"""
import torch
import torch.nn.functional as F


def values(k, *shape):
    n = 1
    for s in shape:
        n *= s
    i = torch.arange(n, dtype=torch.float64)
    return torch.sin(0.9 + 0.37 * i + 1.7 * k).reshape(shape)


def leaf(k, *shape):
    return values(k, *shape).requires_grad_(True)


def show(name, y, leaves):
    (y * values(9, *y.shape)).sum().backward()
    numbers = [float(v) for t in [y] + [x.grad for x in leaves] for v in t.detach().reshape(-1)]
    text = ", ".join("NAN" if v != v else repr(v) for v in numbers)
    print(f'    {{"{name}", {len(numbers)}, (const double[]){{{text}}}}},')


def losses():
    targets = torch.tensor([3, 1, -100, 0, 2, 1])
    weight = values(2, 5).abs() + 0.1
    for reduction in ("mean", "sum", "none"):
        for w in (None, weight):
            for smoothing in (0.0, 0.3):
                x = leaf(0, 6, 5)
                y = F.cross_entropy(x, targets, weight=w, reduction=reduction, label_smoothing=smoothing)
                show(f"indices {reduction} {int(w is not None)} {smoothing}", y, [x])
                x, z = leaf(0, 6, 5), leaf(1, 6, 5)
                p = torch.softmax(z, 1).detach().requires_grad_(True)
                y = F.cross_entropy(x, p, weight=w, reduction=reduction, label_smoothing=smoothing)
                show(f"probabilities {reduction} {int(w is not None)} {smoothing}", y, [x, p])
    x = leaf(0, 6, 5)
    show("ignored 1", F.cross_entropy(x, targets.clamp(min=0), ignore_index=1), [x])
    x = leaf(0, 6, 5)
    show("all ignored", F.cross_entropy(x, torch.full((6,), -100)), [x])


def attend(q, k, v, **options):
    """Ours is [batch, positions, heads, width]."""
    y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), **options)
    return y.transpose(1, 2)


def attentions():
    def operands(heads):
        return leaf(0, 2, 3, 4, 2), leaf(1, 2, 3, heads, 2), leaf(2, 2, 3, heads, 2)

    q, k, v = operands(2)
    show("grouped causal", attend(q, k, v, is_causal=True, enable_gqa=True), [q, k, v])
    q, k, v = operands(1)
    show("one head of keys", attend(q, k, v, scale=0.3, enable_gqa=True), [q, k, v])
    q, k, v = operands(4)
    m = leaf(3, 4, 1, 3)
    show("added mask", attend(q, k, v, attn_mask=m), [q, k, v, m])
    q, k, v = operands(2)
    m = values(3, 2, 1, 3, 3) > 0.5
    assert (~m).all(-1).any()
    show("bool mask", attend(q, k, v, attn_mask=m, enable_gqa=True), [q, k, v])
    q, k, v = operands(4)
    scores = torch.einsum("bshw,bthw->bhst", q, k) / 2**0.5
    show("logarithms", torch.logsumexp(scores, -1), [q, k])


def norms():
    x, w = leaf(0, 3, 5), leaf(1, 5)
    show("rms_norm", F.rms_norm(x, (5,), w, 1e-3), [x, w])
    x = leaf(0, 3, 5)
    show("rms_norm bare", F.rms_norm(x, (5,)), [x])


def turned(x, positions, base, rotated, interleaved):
    angle = positions.double()[..., None] * base ** (-torch.arange(0, rotated, 2).double() / rotated)
    cos, sin = angle.cos()[..., None, :], angle.sin()[..., None, :]
    r, rest = x[..., :rotated], x[..., rotated:]
    if interleaved:
        a, b = r[..., 0::2], r[..., 1::2]
        r = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = r.chunk(2, -1)
        r = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((r, rest), -1)


def rotations():
    x = leaf(0, 2, 3, 2, 4)
    show("rotary", turned(x, torch.arange(3), 10000.0, 4, False), [x])
    x = leaf(0, 2, 3, 2, 6)
    show("rotary pairs", turned(x, torch.arange(3) + 7, 100.0, 4, True), [x])
    x = leaf(0, 2, 3, 2, 4)
    at = torch.tensor([[5, 0, 9], [1, 2, 3]])
    show("rotary at", turned(x, at, 10000.0, 4, False), [x])


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Written by tools/golden_layers.py, PyTorch %s: results and gradients of layers. */" % torch.__version__.split("+")[0])
print("""#ifndef SHERD_TESTS_LAYERS_GOLDEN_H
#define SHERD_TESTS_LAYERS_GOLDEN_H

typedef struct golden {
    const char *name;
    int count;
    const double *value;
} golden;

/* clang-format off */
static const golden goldens[] = {""")
losses()
attentions()
norms()
rotations()
print("};\n/* clang-format on */\n\n#endif")
