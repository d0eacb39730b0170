#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms beside PyTorch's, with as many threads as there are ranks.

bench/fft and PyTorch (this script again, with --torch) transform the same numbers. Rounds take turns (sherd, PyTorch, sherd,
...); medians of the rounds' medians. Three numbers of each result must agree. Run it with a python that has torch.

    python bench/compare_fft.py [-n 2] [--rounds 5] [--samples 5] [--build build]
"""
import statistics
import sys
import time

import beside

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


def main():
    args = beside.read_options(__file__, __doc__)
    if args.torch:
        return measure_torch(args)
    for name, here, there, apart in beside.take_turns(args, "fft"):
        if not apart < (1e-3 if name.endswith("f32") else 1e-9):
            sys.exit(f"compare_fft.py: {name}: results differ by {apart}")
        print(f"{name:14} sherd {here:8.3f} ms, torch {there:8.3f} ms: {here / there:.2f} of its time; "
              f"results {apart:.1e} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
