#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cached redistributions beside PyTorch's DTensor over gloo, 2 ranks, where torch is installed.

The same moves of the same square f32 tensors. Rounds take turns (sherd, torch, sherd, ...); the median of the rounds'
medians counts. PyTorch's plans are cached too after the first call; its result is waited for, as ours is.

    bench/compare_moves.py [--moves build/bench/moves] [--rounds 3] [--sides 8,4096]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from torch_ranks import run_ranks

CASES = {"S(0)->S(1)": ("S0", "S1"), "S(0)->R": ("S0", "R"), "P(sum)->R": ("P", "R"), "P(sum)->S(0)": ("P", "S0")}
RANKS = 2


def worker(args):
    """One process of torch: prints the median microseconds of each case (rank 0)."""
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=args.rank, world_size=RANKS, init_method=f"tcp://127.0.0.1:{args.port}")
    mesh = init_device_mesh("cpu", (RANKS,))
    placements = {"S0": Shard(0), "S1": Shard(1), "R": Replicate(), "P": Partial()}
    n, found = args.side, {}
    calls = 200 if n < 512 else 12
    for name, (a, b) in CASES.items():
        local = torch.ones(n // RANKS if a == "S0" else n, n)
        sources = [DTensor.from_local(local.clone(), mesh, [placements[a]]) for _ in range(3)]
        samples = []
        for i in range(calls + 5):
            sources[i % 3].to_local().fill_(i)
            dist.barrier()
            begin = time.perf_counter()
            out = sources[i % 3].redistribute(mesh, [placements[b]]).to_local()
            out[:1, :1].item()
            samples.append(1e6 * (time.perf_counter() - begin))
        found[name] = statistics.median(samples[5:])
    if args.rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def run_torch(side):
    return json.loads(run_ranks(__file__, RANKS, 1, ["--side", str(side)]).splitlines()[-1])


def run_sherd(path, side):
    text = subprocess.run([path, "-n", str(RANKS), "--side", str(side)], check=True, capture_output=True,
                          text=True).stdout
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\S+)\s+\S+\s+([0-9.]+) us", text, re.M) if m[1] in CASES}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", default=os.path.join(here, "..", "build", "bench", "moves"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default="8,4096")
    for name in ("rank", "port", "side"):
        parser.add_argument("--" + name, type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("compare_moves.py: torch is not installed here: nothing to compare with")
    if args.worker:
        return worker(args)
    for side in map(int, args.sides.split(",")):
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(run_sherd(args.moves, side))
            theirs.append(run_torch(side))
        print(f"{side}x{side} f32, {RANKS} ranks: microseconds, median of {args.rounds} rounds")
        for name in CASES:
            a, b = statistics.median(r[name] for r in ours), statistics.median(r[name] for r in theirs)
            print(f"  {name:14} sherd {a:10.2f}   torch {torch.__version__} over gloo {b:12.2f}   {b / a:8.1f}x")


if __name__ == "__main__":
    main()
