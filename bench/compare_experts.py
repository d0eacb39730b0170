#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of a mixture of experts beside PyTorch's, with as many threads as there are ranks.

bench/experts and PyTorch (this script again, with --torch) compute the same, forward and backward: rows sorted by expert,
products by groups (torch.nn.functional.grouped_mm, or a loop over experts, whichever is faster), and back. Rounds take turns
(sherd, PyTorch, sherd, ...); medians of the rounds' medians. Three numbers of each result must agree. Run it with a python
that has torch.

    python bench/compare_experts.py [-n 2] [--rounds 5] [--samples 5] [--f32] [--build build]
"""
import statistics
import sys
import time

import beside

KINDS = {"large": (2048, 512, 1024, 8, 2), "small": (2048, 512, 256, 64, 8)}


def measure_torch(args):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.n)

    def wave(shape, scale, dtype):
        i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
        return (scale * (i * i * 1e-3).sin()).to(dtype).reshape(shape).requires_grad_()

    def by_groups(rows, weight, ends):
        return F.grouped_mm(rows, weight.transpose(-2, -1), offs=ends)

    def by_loop(rows, weight, ends):
        bounds = [0] + ends.tolist()
        return torch.cat([F.linear(rows[a:b], w) for a, b, w in zip(bounds, bounds[1:], weight)])

    def step(x, scores, choice, w, product):
        tokens, k = choice.shape
        order = choice.flatten().argsort(stable=True)
        ends = choice.flatten().bincount(minlength=len(w[0])).cumsum(0).to(torch.int32)
        rows = x[order // k]
        hidden = F.silu(product(rows, w[0], ends)) * product(rows, w[2], ends)
        out = product(hidden, w[1], ends) * scores.flatten()[order, None]
        y = torch.zeros_like(x).index_add_(0, order // k, out)
        y.backward(torch.ones_like(y))
        return y

    for name, (tokens, width, hidden, experts, k) in KINDS.items():
        t, j = torch.arange(tokens)[:, None], torch.arange(k)[None]
        choice = (7 * t + 3 * j + t // 5) % experts
        for label, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16))[:1 if args.f32 else 2]:
            best = None
            for product in (by_groups, by_loop):
                times = []
                for _ in range(args.samples + 1):
                    x, scores = wave([tokens, width], 1, dtype), wave([tokens, k], 1, dtype)
                    w = [wave([experts, hidden, width], 0.05, dtype), wave([experts, width, hidden], 0.05, dtype),
                         wave([experts, hidden, width], 0.04, dtype)]
                    start = time.perf_counter()
                    y = step(x, scores, choice, w, product)
                    times.append(time.perf_counter() - start)
                took = statistics.median(times[1:])
                best = took if best is None else min(best, took)
            lengths = [v.detach().double().norm().item() for v in (y, x.grad, w[1].grad)]
            print(f"{name} {label}  {1e3 * best:.3f} ms  {lengths[0]:.12g} {lengths[1]:.12g} {lengths[2]:.12g}")


def main():
    args = beside.read_options(__file__, __doc__, [
        ("--f32", "PyTorch's bf16 takes seconds where the CPU has none: leave it out")])
    if args.torch:
        return measure_torch(args)
    for name, here, there, apart in beside.take_turns(args, "experts", lambda name: " ".join(name.split()[::2])):
        if there is None:
            print(f"{name:14} sherd {here:8.1f} ms")
            continue
        if not apart < (1e-5 if name.endswith(" f32") else 2e-2):
            sys.exit(f"compare_experts.py: {name}: results differ by {apart} of their size")
        print(f"{name:14} sherd {here:8.1f} ms, torch {there:8.1f} ms: {here / there:.2f} of its time; "
              f"results {apart:.1e} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
