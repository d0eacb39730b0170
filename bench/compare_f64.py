#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of f64 on one core beside PyTorch's, with one thread.

bench/kernels and bench/functions, and PyTorch (this script again, with --torch) compute on the same shapes. Rounds take
turns; medians of the rounds' medians. Run it with a python that has torch.

    python bench/compare_f64.py [--rounds 5] [--build build]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

ROWS, DIM, MLP, CLASSES, N, PARAMETERS = 2048, 256, 1024, 256, 16384, 1 << 20
UNARY = ("exp expm1 log log1p exp2 log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc "
         "sigmoid").split()


def median_of(f):
    f()
    start = time.perf_counter()
    f()
    calls = int(2e-3 / (time.perf_counter() - start)) + 1
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def measure_torch():
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    aten = torch.ops.aten
    x, y, out = torch.rand(N), torch.rand(N), torch.empty(N)
    for name in UNARY:
        f = getattr(torch, name)
        print(f"{name} {1e9 * median_of(lambda: f(x, out=out)) / N:.4f}")
    for name, f in {"pow": lambda: torch.pow(x, 1.75, out=out), "power": lambda: torch.pow(x, y, out=out),
                    "atan2": lambda: torch.atan2(x, y, out=out), "hypot": lambda: torch.hypot(x, y, out=out),
                    "gelu": lambda: functional.gelu(x, approximate="tanh"), "gelu_erf": lambda: functional.gelu(x),
                    "silu": lambda: functional.silu(x), "mish": lambda: functional.mish(x),
                    "softplus": lambda: functional.softplus(x)}.items():
        print(f"{name} {1e9 * median_of(f) / N:.4f}")
    rows, other, sums, classes = torch.rand(ROWS, DIM), torch.rand(ROWS, DIM), torch.rand(ROWS, MLP), torch.rand(ROWS, CLASSES)
    result, weight, bias = torch.empty(ROWS, DIM), torch.rand(DIM), torch.rand(DIM)
    ids = torch.arange(ROWS) * 97 % CLASSES
    _, mean, rstd = torch.native_layer_norm(rows, [DIM], weight, bias, 1e-5)
    p = torch.rand(PARAMETERS, requires_grad=True)
    p.grad = torch.rand(PARAMETERS)
    adamw = torch.optim.AdamW([p], lr=1e-3, weight_decay=0.1, fused=True)
    sgd = torch.optim.SGD([p], lr=1e-3, momentum=0.9, weight_decay=0.1, fused=True)
    for name, f in {
            "layer_norm": lambda: torch.native_layer_norm(rows, [DIM], weight, bias, 1e-5),
            "layer_norm_grad": lambda: aten.native_layer_norm_backward(other, rows, [DIM], mean, rstd, weight, bias, [True] * 3),
            "add": lambda: torch.add(rows, other, out=result), "scale": lambda: torch.mul(rows, 0.5, out=result),
            "sum to a bias": lambda: sums.sum(0), "sum of all": lambda: rows.sum(),
            "cross_entropy + join": lambda: functional.cross_entropy(classes, ids, reduction="sum"),
            "softmax": lambda: torch.softmax(classes, 1), "log_softmax": lambda: torch.log_softmax(classes, 1),
            "softmax_grad": lambda: aten._softmax_backward_data(other, classes, 1, torch.float64),
            "adamw": adamw.step, "sgd with momentum": sgd.step}.items():
        print(f"{name}: {1e6 * median_of(f):.2f}")


def ours(build):
    """Plain and fast: ns an element of a function, and us of a kernel, with a colon, as measure_torch prints them."""
    def lines(*command):
        command = [os.path.join(build, "bench", command[0]), "--dtype", "f64", *command[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    for line in lines("functions")[1:]:
        words = line.split()
        yield words[0], float(words[1]), float(words[2])
    for part in ("layer_norm", "add", "scale", "sum", "entropy +", "soft", "adamw", "sgd"):
        for line in lines("kernels", part):
            m = re.match(r"^([a-z_+ ]+?) {2,}([0-9.]+) +([0-9.]+) +[0-9.]+ ", line)
            if m:
                yield m[1] + ":", float(m[2]), float(m[3])


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch()
    times = {}
    for _ in range(args.rounds):
        for name, plain, fast in ours(args.build):
            times.setdefault(name, ([], [], []))[0].append(plain)
            times[name][1].append(fast)
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--torch"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compare_f64.py: PyTorch failed:\n{done.stderr}")
        for line in done.stdout.splitlines():
            name, value = line.rsplit(" ", 1)
            if name in times:
                times[name][2].append(float(value))
    for name, (plain, fast, torch) in times.items():
        if torch:
            a, b, c = (statistics.median(t) for t in (plain, fast, torch))
            print(f"{name:22} plain {a:9.2f}, sherd {b:9.2f}, torch {c:9.2f} {'us' if name[-1] == ':' else 'ns'}: "
                  f"{c / b:.2f} times ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
