#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPT example on a GPU beside the same training step in PyTorch, where torch has a GPU.

Rounds are interleaved: sherd in f32 and bf16, torch in f32 (without TF32: sherd has none), bf16 autocast, and both compiled
(torch.compile), AdamW fused. Each step ends with the loss and the gradients' norm on the CPU, as training does. Medians of
rounds are compared. A row that fails is left out, with a line that says why.

    bench/compare_gpu.py [--gpt build/examples/gpt] [--rounds 3] [--steps 40] [--layers 6] [--dim 256] [--only bf16]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import compare_torch

WARM = 10


def torch_step(torch, args, bf16, compiled):
    """Median seconds of a step."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = compare_torch.gpt_model(torch).cuda()
    run = torch.compile(model) if compiled else model
    optimizer = compare_torch.optimizer_of(torch, model, fused=True)
    seconds = []
    for _ in range(args.steps + WARM):
        ids = torch.randint(0, compare_torch.VOCABULARY, (args.batch, args.context + 1))
        begin = time.monotonic()
        here = ids.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            logits = run(here[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), here[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item(), norm.item()
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds[WARM:])


def sherd_step(args, dtype, ranks, flags=()):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        subprocess.run(
            [args.gpt, "-n", str(ranks), "--threads", "--layers", str(args.layers), "--dim", str(args.dim), "--heads",
             str(args.heads), "--context", str(args.context), "--batch", str(args.batch), "--steps",
             str(args.steps + WARM), "--sample", "0", "--dtype", dtype, "--json", path, *flags], check=True,
            stdout=subprocess.DEVNULL, env=os.environ | {"SHERD_DEVICE": "cuda"})
        with open(path, encoding="utf-8") as file:
            return args.batch * args.context / json.load(file)["tokens_per_s"]


def rows(torch, args):
    ways = {
        "sherd f32": lambda: sherd_step(args, "f32", 1),
        "sherd bf16": lambda: sherd_step(args, "bf16", 1),
        "sherd f32, tp=2 on one GPU": lambda: sherd_step(args, "f32", 2),
    }
    for bf16 in (False, True):
        for compiled in (False, True):
            name = "torch " + ("bf16" if bf16 else "f32") + (" compiled" if compiled else "")
            ways[name] = lambda bf16=bf16, compiled=compiled: torch_step(torch, args, bf16, compiled)
    return {name: way for name, way in ways.items() if any(word in name for word in args.only.split(";"))}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpt", default=os.path.join(here, "..", "build", "examples", "gpt"))
    for name, value in (("rounds", 3), ("steps", 40), ("layers", 6), ("dim", 256), ("heads", 8), ("context", 256),
                        ("batch", 8)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--only", default="", help="rows whose name has one of these words, separated by ;")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("compare_gpu.py: torch is not installed here: nothing to compare with")
    if not torch.cuda.is_available():
        sys.exit("compare_gpu.py: torch has no GPU here")
    compare_torch.LAYERS, compare_torch.DIM, compare_torch.HEADS = args.layers, args.dim, args.heads
    compare_torch.CONTEXT, compare_torch.BATCH = args.context, args.batch
    seconds = compare_torch.measure(args, rows(torch, args))
    best = {dtype: min((statistics.median(s) for name, s in seconds.items() if name.startswith("torch " + dtype)),
                       default=0.0) for dtype in ("f32", "bf16")}
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.layers} layers of {args.dim}, "
          f"{args.batch} x {args.context}\n{'median':32} {'ms':>8} {'tokens/s':>10}  best torch of the dtype / this")
    for name, values in seconds.items():
        step = statistics.median(values)
        dtype = "bf16" if "bf16" in name else "f32"
        print(f"{name:32} {1e3 * step:8.2f} {args.batch * args.context / step:10.0f} {best[dtype] / step:8.2f}x")


if __name__ == "__main__":
    main()
