#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators that bench/gpu_fields.c measures, as PyTorch has them: the same names, shapes and dtypes, without TF32.

    bench/gpu_fields.py [part of a name]
    bench/gpu_fields.py --small        tiny sizes, on the CPU where there is no GPU: whether all of it runs
"""
import argparse
import statistics
import time

import torch
from torch.nn import functional as F

BATCHES, MOST_CALLS, BATCH_SECONDS = 5, 200, 20e-3


def rows(side):
    """Name: the call, the shapes of its operands, and whether it is not of 16 bits."""
    image, half = (16, 64, side, side), (16, 64, side, side // 2 + 1)
    return {
        "conv": (lambda x, w, b: F.conv2d(x, w, b, padding="same"), [image, (64, 64, 3, 3), (64,)], False),
        "conv_down": (lambda x, w, b: F.conv2d(x, w, b, stride=2), [image, (128, 64, 2, 2), (128,)], False),
        "conv_up": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), [image, (64, 32, 2, 2), (32,)], False),
        "group_norm": (lambda x, w, b: F.group_norm(x, 8, w, b), [image, (64,), (64,)], False),
        "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [image, (64,), (64,)], False),
        "max_pool": (lambda x: F.max_pool2d(x, 2), [image], False),
        "avg_pool": (lambda x: F.avg_pool2d(x, 2), [image], False),
        "linear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [image], False),
        "rfft2": (lambda x: torch.view_as_real(torch.fft.rfft2(x)), [image], True),
        "irfft2": (lambda x: torch.fft.irfft2(torch.view_as_complex(x)), [(*half, 2)], True),
        "complex_mul": (
            lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)),
            [(*half, 2), (*half[1:], 2)],
            True,
        ),
    }


def run(call, operands, back, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        with torch.set_grad_enabled(back):
            y = call(*operands)
        if back:
            y.sum().backward()
        for x in operands:
            x.grad = None
    y.sum().item()
    return (time.perf_counter() - begin) / calls


def measure(call, operands, back, small):
    once = run(call, operands, back, 1)
    if small:
        return once
    once = run(call, operands, back, 3)
    calls = int(min(1 + BATCH_SECONDS / (once + 1e-6), MOST_CALLS))
    return statistics.median(run(call, operands, back, calls) for _ in range(BATCHES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    if where == "cpu" and not options.small:
        print("nothing is measured: there is no GPU")
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print("#", torch.cuda.get_device_name() if where == "cuda" else where)
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        for row, (call, shapes, wide_only) in rows(8 if options.small else 128).items():
            if options.part not in row or (wide_only and dtype == torch.bfloat16):
                continue
            operands = [(torch.rand(s, device=where) * 2 - 1).to(dtype).requires_grad_() for s in shapes]
            times = [measure(call, operands, back, options.small) for back in (False, True)]
            print(f"{name:4} {row:12} {times[0] * 1e6:10.1f} us, with backward {times[1] * 1e6:10.1f} us", flush=True)


if __name__ == "__main__":
    main()
