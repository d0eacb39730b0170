#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/optimizer_cases.h: what PyTorch's optimizers and schedules make of known numbers, in f64.

The parameter is a matrix [2, 3] with element i = 0.5 + 0.4 sin(0.1 (i + 1)); its gradient in step t (from 1) is
2 sin(0.1 (i + 1) (t + 2)). With groups of parameters there are four, the n-th (from 0) 0.5 + 0.4 sin(0.1 (i + 1) (n + 1)), with gradients
2 sin(0.1 (i + 1) (t + n + 2)), and the rate of a step doubles in odd ones. Usage:

    tools/golden_optimizers.py > tests/optimizer_cases.h
    tools/golden_optimizers.py groups > tests/optimizer_groups.h
    tools/golden_optimizers.py norms > tests/optimizer_norms.h

For norms there are three parameters [5, 3], as the first three of the groups but for gradients of 2 sin(0.1 (i + 1) (t + n)).
"""
import math
import sys

import torch
import torch.optim._muon as muon

torch.set_default_dtype(torch.float64)  # NAdam keeps the product of its momenta in it
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
    ("Adam", "adam", dict(weight_decay=0.1, amsgrad=True, **ADAM),
     "{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true}"),
    ("AdamW", "adamw", dict(weight_decay=0.1, amsgrad=True, **ADAM),
     "{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true}"),
    ("RMSprop", "rmsprop", dict(weight_decay=0.1), "{.weight_decay = 0.1}"),
    ("RMSprop", "rmsprop", dict(alpha=0.8, eps=1e-3, momentum=0.7), "{.alpha = 0.8, .eps = 1e-3, .momentum = 0.7}"),
    ("RMSprop", "rmsprop", dict(alpha=0.9, eps=1e-2, centered=True), "{.alpha = 0.9, .eps = 1e-2, .centered = true}"),
    ("RMSprop", "rmsprop", dict(alpha=0.9, eps=1e-2, centered=True, momentum=0.5, weight_decay=0.1),
     "{.alpha = 0.9, .eps = 1e-2, .centered = true, .momentum = 0.5, .weight_decay = 0.1}"),
    ("Adagrad", "adagrad", dict(), "{.eps = 0}"),
    ("Adagrad", "adagrad", dict(lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-3),
     "{.rate_decay = 0.2, .weight_decay = 0.1, .initial = 0.3, .eps = 1e-3}"),
    ("Lion", "lion", dict(), "{.beta1 = 0}"),
    ("Lion", "lion", dict(betas=(0.7, 0.8), weight_decay=0.2), "{.beta1 = 0.7, .beta2 = 0.8, .weight_decay = 0.2}"),
    ("NAdam", "nadam", dict(weight_decay=0.1), "{.weight_decay = 0.1}"),
    ("NAdam", "nadam", dict(weight_decay=0.1, decoupled_weight_decay=True, momentum_decay=0.3, **ADAM),
     "{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .decoupled = true, .momentum_decay = 0.3}"),
    ("RAdam", "radam", dict(weight_decay=0.1), "{.weight_decay = 0.1}"),
    ("RAdam", "radam", dict(weight_decay=0.1, decoupled_weight_decay=True, betas=(0.7, 0.85), eps=1e-3),
     "{.beta1 = 0.7, .beta2 = 0.85, .eps = 1e-3, .weight_decay = 0.1, .decoupled = true}"),
    ("Adafactor", "adafactor", dict(), "{.eps = 0}"),
    ("Adafactor", "adafactor", dict(beta2_decay=-0.5, eps=(1e-3, 0.7), d=1.02, weight_decay=0.1),
     "{.beta2_decay = -0.5, .eps = 1e-3, .least_scale = 0.7, .limit = 1.02, .weight_decay = 0.1}"),
    ("Muon", "muon", dict(weight_decay=0), "{.momentum = 0}"),
    ("Muon", "muon", dict(momentum=0.8, nesterov=False, weight_decay=0.1, ns_steps=3),
     "{.momentum = 0.8, .plain = true, .weight_decay = 0.1, .steps = 3}"),
    ("Muon", "muon", dict(momentum=0.9, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
     "{.momentum = 0.9, .weight_decay = 0.2, .match_adamw = true}"),
]

# Shapes by name; and for each case sherd's groups, with (factor of the rate, decay) that parameters have by them where the default decays by 0.1.
SHAPES = {"embed.weight": (4, 3), "blocks.0.weight": (2, 3), "blocks.0.bias": (3,), "norm.weight": (3,)}
GROUPED = [
    ('{.pattern = "embed.weight", .rate = 0.1}, {.pattern = "blocks.*.weight", .weight_decay = 0.3}, {.pattern = "norm.**", .decay_all = true}',
     [(0.1, 0.1), (1, 0.3), (1, 0), (1, 0.1)]),
    ('{.pattern = "embed.*", .no_rate = true}, {.pattern = "**.bias", .weight_decay = 0.2, .decay_all = true, .rate = 2}, '
     '{.pattern = "blocks.**", .no_decay = true}',
     [(0, 0.1), (1, 0), (2, 0.2), (1, 0)]),
    ('{.pattern = "**", .rate = 0.5, .weight_decay = 0.4}', [(0.5, 0.4), (0.5, 0.4), (0.5, 0), (0.5, 0)]),
]
GROUPED_BY = [("sgd", "SGD", dict(momentum=0.9, nesterov=True)), ("adam", "Adam", ADAM), ("adamw", "AdamW", ADAM)]


def orthogonal(grad, coefficients, steps, eps):
    """PyTorch's iteration, which it does in bf16, in the dtype of the gradient."""
    a, b, c = coefficients
    x = grad / grad.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


muon._zeropower_via_newtonschulz = orthogonal


class Lion(torch.optim.Optimizer):
    """Which PyTorch has not: as its paper (Chen et al., 2023) has it."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(group["lr"] * (torch.sign(first * m + (1 - first) * p.grad) + group["weight_decay"] * p))
                m.mul_(second).add_(p.grad, alpha=1 - second)


torch.optim.Lion = Lion


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


def element(shape, offset, scale, k):
    count = math.prod(shape)
    return torch.tensor([offset + scale * math.sin(0.1 * (i + 1) * k) for i in range(count)], dtype=torch.float64).reshape(shape)


def trained_in_groups(kind, options, groups, clip, then=None):
    """With other groups, `then`, for the second half of the steps."""
    p = [torch.nn.Parameter(element(shape, 0.5, 0.4, n + 1)) for n, shape in enumerate(SHAPES.values())]
    o = getattr(torch.optim, kind)([dict(params=[q], weight_decay=decay) for q, (_, decay) in zip(p, groups)], lr=RATE, **options)
    for t in range(1, STEPS + 1):
        now = then if then and t > STEPS // 2 else groups
        for n, q in enumerate(p):
            q.grad = element(q.shape, 0, 2, t + n + 2)
            o.param_groups[n]["lr"] = RATE * (1 + t % 2) * now[n][0]
            o.param_groups[n]["weight_decay"] = now[n][1]
        if clip:
            torch.nn.utils.clip_grad_norm_(p, 1.5)
        o.step()
    return [x for q in p for x in q.detach().flatten().tolist()]


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


def one_parameter():
    for name in ("sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "nadam", "radam", "adafactor", "muon"):
        print("static const struct { sherd_%s_options options; int clip; double p[6]; } %s_cases[] = {"
              % ({"adam": "adamw", "radam": "nadam"}.get(name, name), name))
        for kind, of, options, text in CASES:
            for number, clip in enumerate((None, "norm", "value")):
                if of == name and not (clip and (kind in ("RMSprop", "Adagrad", "Lion", "NAdam", "RAdam", "Adafactor") or "amsgrad" in options)):
                    print("    {%s, %d, %s}," % (text, number, row(trained(kind, options, clip))))
        print("};")
    for name, make in SCHEDULES:
        print("static const double %s_rates[] = %s;" % (name, row(rates(make))))
    # Within its period; sherd's stays at the end then, PyTorch's goes up again.
    print("static const double cosine_rates[] = %s;" % row(rates(lambda o: s.CosineAnnealingLR(o, T_max=11, eta_min=0.1))))


def groups_of_parameters():
    print("static const struct { sherd_optimizer_group groups[3]; int clip; double p[3][24]; } group_cases[] = {")
    for text, groups in GROUPED:
        for clip in (0, 1):
            print("    {{%s}, %d, {" % (text, clip))
            for name, kind, options in GROUPED_BY:
                print("        %s," % row(trained_in_groups(kind, options, groups, clip)))
            print("    }},")
    print("};")
    # From the groups of one case (of group_cases, unclipped) to those of another.
    print("static const struct { int from, to; double p[3][24]; } regrouped_cases[] = {")
    for a in range(len(GROUPED)):
        b = (a + 1) % len(GROUPED)
        print("    {%d, %d, {" % (2 * a, 2 * b))
        for name, kind, options in GROUPED_BY:
            print("        %s," % row(trained_in_groups(kind, options, GROUPED[a][1], 0, GROUPED[b][1])))
        print("    }},")
    print("};")


def norms_of_gradients():
    """(p, what it is clipped to, the norm in the last step, and what SGD with a momentum of 0.5 makes of it)"""
    print("static const struct { double p, most, norm, values[3][15]; } norm_cases[] = {")
    for p, most in ((1, 4), (0.5, 100), (2, 1.5), (3, 1), (math.inf, 0.5)):
        params = [torch.nn.Parameter(element((5, 3), 0.5, 0.4, n + 1)) for n in range(3)]
        o = torch.optim.SGD(params, lr=RATE, momentum=0.5)
        for t in range(1, STEPS + 1):
            for n, q in enumerate(params):
                q.grad = element((5, 3), 0, 2, t + n)
            norm = torch.nn.utils.clip_grad_norm_(params, most, norm_type=p).item()
            o.step()
        print("    {%s, %g, %.17g, {" % ("HUGE_VAL" if p == math.inf else "%g" % p, most, norm))
        for q in params:
            print("        %s," % row(q.detach().flatten().tolist()))
        print("    }},")
    print("};")


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Written by tools/golden_optimizers.py with PyTorch %s; do not edit. */" % torch.__version__.split("+")[0])
print("/* clang-format off */")
print("enum { CASE_STEPS = %d };" % STEPS)
print("static const double case_rate = %g;" % RATE)
{"groups": groups_of_parameters, "norms": norms_of_gradients}.get("".join(sys.argv[1:]), one_parameter)()
print("/* clang-format on */")
