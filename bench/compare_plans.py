#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sherd's planners beside PyTorch's, where torch is installed: cold times of the same random pairs, in one run.

A pair is (source, target) out of R, S(d), P(sum) on each axis for the source, R and S(d) for the target, default shard
orders. PyTorch plans on a fake process group, in one process; its planner cache is cleared before each plan, and the
specs exist already. Rounds take turns, pair by pair; the least of a few counts, on both sides. bench/plan prints more
about sherd alone.

    bench/compare_plans.py [--pairs-bench build/bench/plan_pairs] [--pairs 60] [--rounds 3] [--seed 1]
"""
import argparse
import itertools
import random
import statistics
import subprocess
import sys
import time

CASES = [((2, 2), (8, 8)), ((2, 2, 2), (8, 8, 8)), ((2, 3, 2), (13, 7, 8)), ((2, 2, 2), (512, 512, 512))]


def names(ndim, partial):
    return ["R"] + [f"S({d})" for d in range(ndim)] + (["P(sum)"] if partial else [])


def sample(mesh, shape, count, draw):
    sources = list(itertools.product(names(len(shape), True), repeat=len(mesh)))
    targets = list(itertools.product(names(len(shape), False), repeat=len(mesh)))
    pairs = [(a, b) for a in sources for b in targets if a != b]
    return draw.sample(pairs, min(count, len(pairs)))


class Torch:
    """PyTorch's planners on a fake process group."""

    def __init__(self):
        import logging
        import warnings

        warnings.filterwarnings("ignore")
        logging.disable(logging.WARNING)
        import torch
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self.torch = torch
        dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())

    def mesh(self, extents):
        from torch.distributed.device_mesh import DeviceMesh

        count = 1
        for e in extents:
            count *= e
        return DeviceMesh("cpu", self.torch.arange(count).reshape(extents))

    def spec(self, mesh, shape, placements):
        from torch.distributed.tensor import Partial, Replicate, Shard
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

        made = tuple(
            Replicate() if p == "R" else Partial() if p == "P(sum)" else Shard(int(p[2:-1])) for p in placements
        )
        stride = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            stride[d] = stride[d + 1] * shape[d + 1]
        meta = TensorMeta(self.torch.Size(shape), tuple(stride), self.torch.float32)
        return DTensorSpec(mesh, made, tensor_meta=meta)

    def plan(self, source, target, graph):
        from torch.distributed.tensor import _redistribute as planner

        planner.clear_redistribute_planner_cache()
        start = time.perf_counter_ns()
        planner._gen_transform_infos_non_cached(source, target, graph)
        return (time.perf_counter_ns() - start) / 1e3


class Sherd:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def plan(self, mesh, shape, source, target):
        text = ["x".join(map(str, mesh)), "x".join(map(str, shape)), "".join(source), "".join(target)]
        self.process.stdin.write(" ".join(text) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("compare_plans: the benchmark ended: " + " ".join(text))
        return [float(t) for t in answer.split()]


def spread(times):
    times = sorted(times)
    return f"{statistics.median(times):10.1f} {times[len(times) * 9 // 10]:10.1f} {times[-1]:10.1f}"


def compare(args, peer, sherd, mesh, shape):
    pairs = sample(mesh, shape, args.pairs, random.Random(args.seed))
    found = {"sherd exact": [], "sherd greedy": [], "sherd graph": [], "torch greedy": [], "torch graph": []}
    made = peer.mesh(mesh) if peer else None
    for a, b in pairs:
        for name, t in zip(("sherd exact", "sherd greedy", "sherd graph"), sherd.plan(mesh, shape, a, b)):
            found[name].append(t)
        if not peer:
            continue
        specs = peer.spec(made, shape, a), peer.spec(made, shape, b)
        for name, graph in (("torch greedy", False), ("torch graph", True)):
            found[name].append(min(peer.plan(*specs, graph) for _ in range(args.rounds)))
    print(f"{len(pairs)} pairs on {mesh}, shape {shape}: microseconds, cold      median        p90      worst")
    for name, times in found.items():
        if times:
            print(f"  {name:14} {'':36}{spread(times)}")
    if peer:
        for name in ("greedy", "graph"):
            ratios = [t / e for t, e in zip(found["torch " + name], found["sherd exact"])]
            print(f"  torch {name} / sherd exact, median of ratios: {statistics.median(ratios):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs-bench", default="build/bench/plan_pairs")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        peer = Torch()
    except ImportError:
        peer = None
        print("torch is not installed: sherd alone")
    sherd = Sherd(args.pairs_bench)
    for mesh, shape in CASES:
        compare(args, peer, sherd, mesh, shape)


if __name__ == "__main__":
    main()
