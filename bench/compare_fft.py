#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms beside PyTorch's, with as many threads as there are ranks.

bench/fft and PyTorch (this script again, with --torch) transform the same numbers. Rounds take turns (sherd, PyTorch, sherd,
...); medians of the rounds' medians. Three numbers of each result must agree. Run it with a python that has torch.

    python bench/compare_fft.py [-n 2] [--rounds 5] [--samples 7] [--build build]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"^(.+?) +([0-9.]+) ms +(\S+) (\S+) (\S+)$")
SHAPES = {"images": ([32, 256, 256], [1, 2]), "rows": ([1024, 1024], [1]), "cube": ([128, 128, 128], [0, 1, 2])}


def measure_torch(args):
    import torch

    torch.set_num_threads(args.n)
    for name in ["images", "rows", "cube", "real cube"]:
        shape, dims = SHAPES[name.split()[-1]]
        real = name.startswith("real")
        f = torch.fft.rfftn if real else torch.fft.fftn
        for dtype in ("f32", "f64"):
            i = torch.arange(torch.Size(shape).numel() * (1 if real else 2), dtype=torch.float64)
            x = (i * i * 1e-3).sin().to(torch.float32 if dtype == "f32" else torch.float64)
            x = x.reshape(shape) if real else torch.view_as_complex(x.reshape(shape + [2]))
            times = []
            for _ in range(args.samples + 1):
                start = time.perf_counter()
                y = f(x, dim=dims, norm="ortho")
                times.append(time.perf_counter() - start)
            y = torch.view_as_real(y).flatten().double()
            n = y.numel()
            print(f"{name} {dtype}  {1e3 * statistics.median(times[1:]):.3f} ms  "
                  f"{y[0]:.12g} {y[n // 3]:.12g} {y[n - 2]:.12g}")


def run(command, times, numbers):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_fft.py: {' '.join(command)} failed:\n{done.stderr}")
    for m in filter(None, map(LINE.match, done.stdout.splitlines())):
        times.setdefault(m[1], []).append(float(m[2]))
        numbers[m[1]] = [float(m[i]) for i in (3, 4, 5)]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, and threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=7, help="in each round")
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch(args)
    ours = [os.path.join(args.build, "bench", "fft"), str(args.n), str(args.samples)]
    peer = [sys.executable, os.path.abspath(__file__), "--torch", "-n", str(args.n), "--samples", str(args.samples)]
    times, numbers = ({}, {}), ({}, {})
    for _ in range(args.rounds):
        for i, command in enumerate((ours, peer)):
            run(command, times[i], numbers[i])
    for name in times[0]:
        a, b = (statistics.median(t[name]) for t in times)
        apart = max(abs(x - y) for x, y in zip(numbers[0][name], numbers[1][name]))
        if not apart < (1e-3 if name.endswith("f32") else 1e-9):
            sys.exit(f"compare_fft.py: {name}: results differ by {apart}")
        print(f"{name:14} sherd {a:8.3f} ms, torch {b:8.3f} ms: {a / b:.2f} of its time; results {apart:.1e} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
