#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A differential equation in a loss, beside PyTorch: examples/poisson, and the same network, points, loss and optimizer
there (create_graph, the fused Adam; torch.compile does not take second derivatives).

Rounds take turns; milliseconds of a step, medians of the rounds. Run it with a python that has torch.

    python bench/compare_poisson.py [-n 2] [--steps 200] [--points 1024] [--width 32] [--rounds 5] [--build build]
"""
import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"([0-9.]+) ms a step")


def derivative(u, points):
    import torch

    return torch.autograd.grad(u.sum(), points, create_graph=True)[0]


def measure_torch(threads, args):
    import torch
    from torch.nn import Linear, Sequential, Tanh

    torch.set_num_threads(threads)
    w = args.width
    net = Sequential(Linear(2, w), Tanh(), Linear(w, w), Tanh(), Linear(w, w), Tanh(), Linear(w, 1))
    for m in net[::2]:
        torch.nn.init.normal_(m.weight, 0, 1 / math.sqrt(m.weight.shape[1]))
        torch.nn.init.zeros_(m.bias)
    adam = torch.optim.Adam(net.parameters(), lr=0.005, fused=True)
    start = time.perf_counter()
    for step in range(args.steps + 1):
        points = torch.rand(args.points, 2).requires_grad_()
        edge = points - points * points
        u = net(points) * (edge[:, 0:1] * edge[:, 1:2])
        first = derivative(u, points)
        u_xx = derivative(first[:, 0:1], points)[:, 0:1]
        u_yy = derivative(first[:, 1:2], points)[:, 1:2]
        s = torch.sin(points.detach() * math.pi)
        f = s[:, 0:1] * s[:, 1:2] * (2 * math.pi**2)
        loss = ((u_xx + u_yy + f) ** 2).mean()
        loss.backward()
        adam.param_groups[0]["lr"] = 0.005 * (1 - step / (args.steps + 1))
        adam.step()
        adam.zero_grad()
    print(f"loss {loss.item():.4f}, {1e3 * (time.perf_counter() - start) / (args.steps + 1):.3f} ms a step")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    found = LINE.search(done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"compare_poisson.py: {' '.join(command)} failed:\n{done.stderr}")
    return float(found[1])


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, and threads, beside one")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch(args.torch, args)
    job = [str(x) for x in (args.steps, args.points, args.width)]
    rows = {}
    for n in (1, args.n):
        rows[f"sherd, {n} rank{'s' * (n > 1)}"] = [os.path.join(args.build, "examples", "poisson"), str(n)] + job
        rows[f"PyTorch, {n} thread{'s' * (n > 1)}"] = [sys.executable, os.path.abspath(__file__), "--torch", str(n),
                                                       "--steps", job[0], "--points", job[1], "--width", job[2]]
    times = {name: [] for name in rows}
    for _ in range(args.rounds):
        for name, command in rows.items():
            times[name].append(run(command))
    for name, t in times.items():
        ours = times[name.replace("PyTorch", "sherd").replace("thread", "rank")]
        ratio = statistics.median(x / y for x, y in zip(t, ours))
        print(f"{name:20} {statistics.median(t):9.3f} ms, least {min(t):9.3f}, {ratio:5.2f} times ours")
    return None


if __name__ == "__main__":
    main()
