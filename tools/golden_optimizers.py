#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/optimizer_cases.h: what PyTorch's optimizers and schedules make of known numbers, in f64.

The parameter is a matrix [2, 3] with element i = 0.5 + 0.4 sin(0.1 (i + 1)); its gradient in step t (from 1) is
2 sin(0.1 (i + 1) (t + 2)). Usage: tools/golden_optimizers.py > tests/optimizer_cases.h
"""
import math
import torch

STEPS, RATE = 6, 0.05
ADAM = dict(betas=(0.8, 0.95), eps=1e-6)
CASES = [
    ("SGD", "sgd", dict(), "{.momentum = 0}"),
    ("SGD", "sgd", dict(weight_decay=0.1), "{.weight_decay = 0.1}"),
    ("SGD", "sgd", dict(momentum=0.9), "{.momentum = 0.9}"),
    ("SGD", "sgd", dict(momentum=0.9, dampening=0.3, weight_decay=0.1),
     "{.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}"),
    ("SGD", "sgd", dict(momentum=0.9, nesterov=True, weight_decay=0.1),
     "{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}"),
    ("Adam", "adam", dict(weight_decay=0.1, **ADAM),
     "{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}"),
    ("AdamW", "adamw", dict(weight_decay=0.1, **ADAM),
     "{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}"),
]


def wave(offset, scale, k):
    return torch.tensor([[offset + scale * math.sin(0.1 * (3 * r + c + 1) * k) for c in range(3)] for r in range(2)],
                        dtype=torch.float64)


def trained(kind, options, clip):
    p = torch.nn.Parameter(wave(0.5, 0.4, 1))
    o = getattr(torch.optim, kind)([p], lr=RATE, **options)
    for t in range(1, STEPS + 1):
        p.grad = wave(0, 2, t + 2)
        if clip == "norm":
            torch.nn.utils.clip_grad_norm_([p], 1.5)
        if clip == "value":
            torch.nn.utils.clip_grad_value_([p], 0.7)
        o.step()
    return p.detach().flatten().tolist()


def rates(make):
    p = torch.nn.Parameter(torch.zeros(1))
    o = torch.optim.SGD([p], lr=1.0)
    s = make(o)
    out = []
    for _ in range(12):
        out.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    return out


def row(values):
    return "{" + ", ".join("%.17g" % v for v in values) + "}"


s = torch.optim.lr_scheduler
SCHEDULES = [
    ("constant", lambda o: s.ConstantLR(o, factor=0.25, total_iters=4)),
    ("linear", lambda o: s.LinearLR(o, start_factor=0.2, end_factor=0.8, total_iters=5)),
    ("step", lambda o: s.StepLR(o, step_size=3, gamma=0.5)),
    ("exponential", lambda o: s.ExponentialLR(o, gamma=0.9)),
]
print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Written by tools/golden_optimizers.py with PyTorch %s; do not edit. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
print("enum { CASE_STEPS = %d };" % STEPS)
print("static const double case_rate = %g;" % RATE)
for name in ("sgd", "adam", "adamw"):
    print("static const struct { sherd_%s_options options; int clip; double p[6]; } %s_cases[] = {"
          % ("sgd" if name == "sgd" else "adamw", name))
    for kind, of, options, text in CASES:
        for number, clip in enumerate((None, "norm", "value")):
            if of == name:
                print("    {%s, %d, %s}," % (text, number, row(trained(kind, options, clip))))
    print("};")
for name, make in SCHEDULES:
    print("static const double %s_rates[] = %s;" % (name, row(rates(make))))
# Within its period; sherd's stays at the end then, PyTorch's goes up again.
print("static const double cosine_rates[] = %s;" % row(rates(lambda o: s.CosineAnnealingLR(o, T_max=11, eta_min=0.1))))
print("/* clang-format on */")
