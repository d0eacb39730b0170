#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans as PyTorch makes them, in the lines of tests/data/plans_*.txt.

Reads such a file, has PyTorch plan every case again (one process, ranks that do not exist), and prints
the file with PyTorch's answers: where they are the same nothing differs. New cases: write lines whose
trace has only source->target and whose later words are missing. Needs torch 2.13; 5,300 cases take
about a minute. Every question gets a planner of its own, since upstream's remember.

Usage: golden_plans.py FILE            print the lines
       golden_plans.py --check FILE..  name the lines that differ; exit 1 if there are any
       golden_plans.py --time MESH SHAPE   microseconds per plan, over all pairs of a sample
"""
import random
import re
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor import _collective_utils as costs
from torch.distributed.tensor import _redistribute as moves
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.testing._internal.distributed.fake_pg import FakeStore

DTYPES = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
INTEGER = {"all_reduce": 4, "all_to_all": 1, "all_gather": 2, "reduce_scatter": 2}
RANKS = 64
LETTERS = "abcdefgh"


def numbers(text):
    return [] if text in ("scalar", "-") else [int(n) for n in text.split("x")]


def written(shape):
    return "x".join(str(n) for n in shape) or "scalar"


def make_mesh(extents, flattened=()):
    count = 1
    for n in extents:
        count *= n
    names = tuple(LETTERS[: len(extents)])
    mesh = DeviceMesh("cpu", torch.arange(count).view(extents), mesh_dim_names=names)
    for axes in flattened:
        mesh[tuple(names[i] for i in axes)]._flatten()
    return mesh


def make_spec(mesh, shape, dtype, text):
    """A spec from "S(0)[1]S(0)[0]P(sum)R"."""
    placements, order = [], {}
    for axis, m in enumerate(re.finditer(r"R|P\((\w+)\)|S\((\d+)\)(?:\[(\d+)\])?", text)):
        if m.group(1):
            placements.append(Partial(m.group(1)))
        elif m.group(2):
            placements.append(Shard(int(m.group(2))))
            order.setdefault(int(m.group(2)), []).append((int(m.group(3) or 0), axis))
        else:
            placements.append(Replicate())
    shard_order = tuple(
        ShardOrderEntry(tensor_dim=d, mesh_dims=tuple(axis for _, axis in sorted(order[d])))
        for d in sorted(order)
    )
    stride = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(torch.Size(shape), stride, dtype)
    return DTensorSpec(mesh, tuple(placements), meta, shard_order=shard_order)


def integer_cost(source, target):
    if source.placements == target.placements:
        return 0
    for axis, pair in enumerate(zip(source.placements, target.placements)):
        if pair[0] != pair[1]:
            return INTEGER.get(moves._TransformInfo(axis, pair, ())._comm_type_key(), 0)
    return 0


def plan(planner, source, target, integer=False):
    fresh = moves.DTensorRedistributePlanner(source.mesh, source.tensor_meta)
    if planner == "greedy":
        return fresh.generate_greedy_transform_infos(source, target)
    if integer:
        fresh.cost_function = integer_cost
        fresh.partial_reduce_ops_in_target.add("sum")
    return fresh.generate_graph_based_transform_infos(source, target, source.shape)


def trace(steps, source):
    write = moves.DTensorRedistributePlanner.stringify_transform_infos
    return write(source.mesh, steps, source.placements, source.shard_order)


def microseconds(planner, source, target):
    moves.clear_redistribute_planner_cache()
    moves._gen_transform_infos.cache_clear()
    with moves.use_min_cost_redistribution_plan(planner == "graph"):
        return costs.redistribute_cost(source, target)


def letter(placement):
    if placement.is_partial():
        return f"P({placement.reduce_op})"
    return f"S({placement.dim})" if placement.is_shard() else "R"


class Lines:
    """The three kinds of lines; meshes are kept, since making one is slow."""

    def __init__(self):
        self.meshes = {}

    def mesh(self, extents, flattened=""):
        key = (extents, flattened)
        if key not in self.meshes:
            sets = [] if flattened in ("", "-") else flattened.split(",")
            self.meshes[key] = make_mesh(numbers(extents), [[int(c) for c in s] for s in sets])
        return self.meshes[key]

    def ends(self, mesh, shape, bytes_, text):
        states = re.split(r"-+>", text)
        return [make_spec(mesh, numbers(shape), DTYPES[int(bytes_)], states[i]) for i in (0, -1)]

    def hosts(self, devices):
        costs._mesh_resources.num_devices_per_host = lambda _: devices
        costs.MeshTopoInfo.build_from_mesh.cache_clear()

    def time(self, words):
        planner, extents, shape, bytes_, per_host, text = words[:6]
        self.hosts(int(per_host))
        source, target = self.ends(self.mesh(extents), shape, bytes_, text)
        steps = plan(planner, source, target)
        cost = microseconds(planner, source, target)
        shapes = [written(s.logical_shape) for s in steps]
        return words[:5] + [trace(steps, source), repr(float(cost))] + shapes

    def integer(self, words):
        planner, extents, shape, text = words[:4]
        source, target = self.ends(self.mesh(extents), shape, 4, text)
        steps = plan(planner, source, target, integer=True)
        cost = sum(INTEGER.get(s._comm_type_key(), 0) for s in steps)
        return words[:3] + [trace(steps, source), str(cost)]

    def merged(self, words):
        planner, extents, shape, flattened, text = words[:5]
        self.hosts(1)
        source, target = self.ends(self.mesh(extents, flattened), shape, 4, text)
        missed = []

        def note(mesh, axes, before, after, count, collective, reason):
            missed.append(f"!{''.join(map(str, axes))}:{collective}:{reason}")

        moves._warn_flatten_optimization_not_possible = note
        steps = moves._optimize_transform_infos(
            plan(planner, source, target), source.mesh, source.placements, target.placements
        )
        return words[:4] + [trace(steps, source)] + [self.step(s) for s in steps] + missed

    def step(self, s):
        axes = getattr(s, "original_mesh_dims", (s.mesh_dim,))
        scale = getattr(s, "avg_scale", None)
        a, b = (letter(p) for p in s.src_dst_placements)
        tail = f"/{scale}" if scale else ""
        return f"{''.join(map(str, axes))}:{a}>{b}:{written(s.logical_shape)}{tail}"


def remade(path):
    """Pairs of a line and the same line as PyTorch has it."""
    lines = Lines()
    kind = re.search(r"plans_(\w+)[.]txt$", path)
    if not kind or kind.group(1) not in ("time", "integer", "merged"):
        sys.exit(f"{path}: expected plans_time.txt, plans_integer.txt or plans_merged.txt")
    for line in open(path):
        line = line.rstrip("\n")
        if line.startswith("#"):
            yield line, line
        else:
            yield line, " ".join(getattr(lines, kind.group(1))(line.split(" ")))


def check(paths):
    wrong = 0
    for path in paths:
        count = 0
        for number, (line, again) in enumerate(remade(path), 1):
            count += not line.startswith("#")
            if line != again:
                wrong += 1
                print(f"{path}:{number}: {line}\n  PyTorch {torch.__version__}: {again}")
        print(f"{path}: {count} cases")
    return 1 if wrong else 0


def clock(extents, shape):
    """How long PyTorch takes for a plan when it has not planned it before."""
    mesh, die = make_mesh(numbers(extents)), random.Random(1)
    dims = len(numbers(shape))
    texts = []
    while len(texts) < 200:
        picks = [die.choice(["R"] + [f"S({d})" for d in range(dims)]) for _ in numbers(extents)]
        order = {p: die.sample(range(picks.count(p)), picks.count(p)) for p in set(picks)}
        texts.append("".join(p if p == "R" else f"{p}[{order[p].pop()}]" for p in picks))
    specs = [make_spec(mesh, numbers(shape), torch.float32, t) for t in texts]
    for planner in ("greedy", "graph"):
        took = []
        for source, target in zip(specs[::2], specs[1::2]):
            begin = time.perf_counter()
            plan(planner, source, target)
            took.append(1e6 * (time.perf_counter() - begin))
        took.sort()
        print(f"{planner} {extents} {shape}: median {statistics.median(took):.0f} us, "
              f"worst {took[-1]:.0f} us, of {len(took)}")


def main(arguments):
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    if arguments[:1] == ["--check"] and len(arguments) > 1:
        return check(arguments[1:])
    if arguments[:1] == ["--time"] and len(arguments) == 3:
        clock(*arguments[1:])
        return 0
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for _, again in remade(arguments[0]):
        print(again)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
