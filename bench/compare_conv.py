#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A convolution beside PyTorch's, with as many threads as there are ranks.

bench/conv and PyTorch (this script again, with --torch) do one and the same job: f32, zeros around it, forward and with all
gradients; operands are new in each sample. Rounds take turns (sherd, PyTorch, sherd, ...); medians of the rounds' medians.
PyTorch runs in the faster of its two memory formats. Run it with a python that has torch.

    python bench/compare_conv.py [-n 2] [--side 512] [--channels 64] [--kernel 3] [--rounds 5] [--build build]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"^(.+?) +([0-9.]+) ms")


def measure_torch(args):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.n)
    formats = {"": torch.contiguous_format, " channels last": torch.channels_last}
    times = {(f, backward): [] for f in formats for backward in (False, True)}
    for _ in range(args.samples):
        for (f, backward), list_of in times.items():
            x = torch.rand(1, args.channels, args.side, args.side).to(memory_format=formats[f]).requires_grad_()
            w = torch.rand(args.channels, args.channels, args.kernel, args.kernel).to(memory_format=formats[f])
            w.requires_grad_()
            b = torch.rand(args.channels, requires_grad=True)
            start = time.perf_counter()
            y = F.conv2d(x, w, b, padding="same")
            if backward:
                y.backward(y.detach())
            list_of.append(time.perf_counter() - start)
    for (f, backward), list_of in times.items():
        what = "with gradients" if backward else "forward"
        print(f"torch{f}, {what}   {1e3 * statistics.median(list_of[1:]):.3f} ms")


def run(command, all_times):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_conv.py: {' '.join(command)} failed:\n{done.stderr}")
    for m in filter(None, map(LINE.match, done.stdout.splitlines())):
        all_times.setdefault(m[1], []).append(float(m[2]))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, and threads")
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--kernel", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=7, help="in each round")
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch(args)
    job = [args.side, args.channels, args.kernel, args.samples]
    ours = [os.path.join(args.build, "bench", "conv")] + [str(x) for x in [args.n] + job]
    peer = [sys.executable, os.path.abspath(__file__), "--torch", "-n", str(args.n), "--side", str(args.side),
            "--channels", str(args.channels), "--kernel", str(args.kernel), "--samples", str(args.samples)]
    times = {}
    for _ in range(args.rounds):
        run(ours, times)
        run(peer, times)
    medians = {name: statistics.median(t) for name, t in times.items()}
    for what in ("forward", "with gradients"):
        one, many, apart = (medians[f"{who}, {what}"] for who in ("one rank", "ranks", "shares apart"))
        torch = min(medians[f"torch, {what}"], medians[f"torch channels last, {what}"])
        print(f"{what}: one rank {one:.2f} ms, {args.n} ranks {many:.2f} ms ({one / many:.2f}x one, "
              f"of {one / apart:.2f}x where they exchange nothing), "
              f"PyTorch with {args.n} threads {torch:.2f} ms ({torch / many:.2f}x ours)")
    return None


if __name__ == "__main__":
    main()
