#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decoding's attention beside PyTorch's, with as many threads as there are ranks.

bench/decode and PyTorch (this script again, with --torch) do one and the same job: a token of each text is written into caches that are
there already, [batch,positions,groups,width], and its queries attend to all positions up to it, for some layers. PyTorch does it by
scaled_dot_product_attention in two forms, the heads that share keys as queries, and enable_gqa, each with two layouts of its cache;
the fastest counts. Rounds take turns; medians of the rounds' medians; results must be equal to rounding. Run it with a python that has torch.

    python bench/compare_decode.py [-n 2] [--length 4096] [--heads 32] [--groups 8] [--width 128] [--batch 1] [--dtype bf16]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

LINE = re.compile(r"^(.+?) +([0-9.]+) ms .*result (.+)$")
SHOWN = 8


def numbers(torch, stream, shape, scale=1.0):
    """As bench/decode.c."""
    n = 1
    for s in shape:
        n *= s
    mask = 0xFFFFFFFF
    x = (torch.arange(n) + stream * 1000003) * 2654435761 & mask
    x = (x ^ (x >> 15)) * 2246822519 & mask
    # In float as there, so that rounding to 16 bits starts from the same numbers.
    return (scale * (x.double() / 4294967296.0 - 0.5).float()).reshape(shape)


def measure_torch(args):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.n)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
    room = args.length + args.tokens
    batch, groups, width, repeat = args.batch, args.groups, args.width, args.heads // args.groups
    q = numbers(torch, 1, (batch, 1, args.heads, width), 16).to(dtype)
    key = numbers(torch, 2, (batch, 1, groups, width)).to(dtype)
    value = numbers(torch, 3, (batch, 1, groups, width)).to(dtype)

    def caches(heads_first):
        """Of all layers, as [batch,groups,positions,width], which is how they lie if heads come first."""
        made = []
        for i in range(2 * args.layers):
            c = numbers(torch, 10 + i, (batch, room, groups, width)).to(dtype).transpose(1, 2)
            made.append(c.contiguous() if heads_first else c)
        return made

    def as_queries(k, v):
        return F.scaled_dot_product_attention(q.view(batch, groups, repeat, width), k, v)

    def grouped(k, v):
        return F.scaled_dot_product_attention(q.view(batch, args.heads, 1, width), k, v, enable_gqa=True)

    def token(attend, cache, at):
        for i in range(args.layers):
            k, v = cache[2 * i], cache[2 * i + 1]
            k[:, :, at] = key[:, 0]
            v[:, :, at] = value[:, 0]
            y = attend(k[:, :, :at + 1], v[:, :, :at + 1])
        return y

    for heads_first in (True, False):
        cache = caches(heads_first)
        for name, attend in (("heads as queries", as_queries), ("enable_gqa", grouped)):
            times = []
            with torch.no_grad():
                for _ in range(args.samples):
                    start = time.perf_counter()
                    for i in range(args.tokens):
                        y = token(attend, cache, args.length + i)
                    times.append((time.perf_counter() - start) / args.tokens)
            shown = " ".join(f"{x:.6f}" for x in y.double().flatten()[:SHOWN].tolist())
            where = "heads first" if heads_first else "positions first"
            print(f"torch, {name}, {where} {1e3 * statistics.median(times):.3f} ms result {shown}")


def run(command, all_times, results):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_decode.py: {' '.join(command)} failed:\n{done.stderr}")
    for m in filter(None, map(LINE.match, done.stdout.splitlines())):
        all_times.setdefault(m[1], []).append(float(m[2]))
        results[m[1]] = [float(x) for x in m[3].split()]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, and threads")
    parser.add_argument("--length", type=int, default=4096, help="tokens in the caches")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--groups", type=int, default=8, help="heads of keys and values")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16, help="in each sample")
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16", "f16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=5, help="in each round")
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch(args)
    job = [args.n, args.length, args.heads, args.groups, args.width, args.batch, args.layers, args.tokens, args.samples]
    ours = [os.path.join(args.build, "bench", "decode")] + [str(x) for x in job] + ["--dtype", args.dtype]
    peer = [sys.executable, os.path.abspath(__file__), "--torch", "-n", str(args.n)]
    for name in ("length", "heads", "groups", "width", "batch", "layers", "tokens", "dtype", "samples"):
        peer += [f"--{name}", str(getattr(args, name))]
    times, results = {}, {}
    for _ in range(args.rounds):
        run(ours, times, results)
        run(peer, times, results)
    expected = results["sharded by heads"]
    size = {"f32": 4, "bf16": 2, "f16": 2}[args.dtype]
    most = max(map(abs, expected))
    for name, result in results.items():
        apart = max(abs(x - y) for x, y in zip(result, expected)) / most
        if apart > {"f32": 1e-4, "bf16": 3e-2, "f16": 4e-3}[args.dtype]:
            sys.exit(f"compare_decode.py: {name}: its result differs by {apart:.1e}: {result} and {expected}")
    medians = {name: statistics.median(t) for name, t in times.items()}
    best = min(t for name, t in medians.items() if name.startswith("torch"))
    read = 2 * args.batch * (args.length + args.tokens / 2) * args.groups * args.width * args.layers * size
    for name, t in medians.items():
        print(f"{name:42s} {t:9.3f} ms a token {1e3 * args.batch / t:9.1f} tokens/s {1e-6 * read / t:6.1f} GB/s "
              f"{best / t:5.2f}x the fastest of PyTorch")
    return None


if __name__ == "__main__":
    main()
