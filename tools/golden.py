#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layout cases computed by PyTorch, as the text that tests/test_layout_golden.c reads.

usage: tools/golden.py CASES.jsonl... > tests/data/layouts.txt      writes the text
       tools/golden.py --make TEXT... > CASES.jsonl                 computes the cases of such texts anew
       tools/golden.py --make N [SEED] > CASES.jsonl                computes N new cases of each kind

A case has kind, mesh, shape, layout (one item per mesh axis), local ([shape, offset] per rank) and
  plain, order   what PyTorch's redistribute makes; strided: the same order written with _S, if it says more than S
  strided        as_order: the shard order that it decodes to, or null; indices[rank][dim] of what is no box.
                 With uneven shards PyTorch's boxes are in some cases not those of as_order
--make needs PyTorch 2.13, whose internals it asks; all ranks are computed in one process, on its fake backend.
"""
import hashlib
import itertools
import json
import math
import random
import re
import sys

HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Layouts computed by PyTorch 2.13.0 (CPU), written by tools/golden.py, one a line:
# kind mesh shape placements other = per rank offset+size of each dim, dims joined by ',', ranks by blanks
# PyTorch puts the offset of an empty shard at the global size; it is '-' here.
# plain, order   boxes as PyTorch's redistribute makes them; other: the same with _S, or '-'
# strided        placements with _S; other: the shard order that they decode to, with PyTorch's boxes of the
#                placements as they stand; or 'none', without boxes
"""


# ---- text ---------------------------------------------------------------------------------------

def boxes(case):
    """The boxes of all ranks; an offset that says nothing is '-'."""
    ranks = []
    for size, offset in case["local"]:
        dims = zip(size, offset)
        ranks.append(",".join(f"{'-' if s == 0 else o}+{s}" for s, o in dims) or ".")
    return " ".join(ranks)


def has_gap(case):
    return any(index != list(range(index[0], index[0] + len(index)))
               for rank in case["indices"] for index in rank if index)


def line(case):
    shape = "x".join(map(str, case["shape"])) or "scalar"
    mesh = "x".join(map(str, case["mesh"]))
    layout = case["layout"].replace(" ", "")
    other = case.get("as_order") or "none" if case["kind"] == "strided" else case.get("strided", "-")
    if "indices" in case and not has_gap(case):
        raise ValueError(f"every rank of {case} has a box, so it need not be refused")
    shown = "" if other == "none" else boxes(case)
    return f"{case['kind']} {mesh} {shape} {layout} {other.replace(' ', '')} = {shown}".rstrip()


def write_text(names):
    print(HEAD, end="")
    for name in names:
        with open(name) as file:
            for text in file:
                print(line(json.loads(text)))


def read_text(names):
    """(kind, mesh, shape, layout) of each line of the texts."""
    for name in names:
        with open(name) as file:
            for text in file:
                if not text.startswith("#"):
                    kind, mesh, shape, layout = text.split()[:4]
                    shape = [] if shape == "scalar" else [int(n) for n in shape.split("x")]
                    yield kind, [int(n) for n in mesh.split("x")], shape, layout


# ---- new cases ----------------------------------------------------------------------------------

MESHES = [[4], [8], [5], [2, 2], [2, 4], [4, 2], [3, 2], [2, 2, 2], [2, 3, 2]]
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 18, 39, 65, 4097]


def new_layout(die, kind, mesh, ndim):
    """One random text of this kind; None if the die fell badly."""
    dims = [die.choice([None] + 3 * list(range(ndim))) for _ in mesh]
    items = []
    for axis, dim in enumerate(dims):
        mates = [a for a, d in enumerate(dims) if d == dim]
        if dim is None:
            items.append("R")
        elif kind == "strided" and die.random() < 0.6:
            items.append(f"_S({dim},{die.choice([2, 3, 4])})")
        else:
            items.append([dim, mates] if len(mates) > 1 and kind != "strided" else f"S({dim})")
    for mates in {tuple(i[1]) for i in items if isinstance(i, list)}:
        order = list(range(len(mates)))
        if kind == "order":
            die.shuffle(order)
        for axis, place in zip(mates, order):
            items[axis] = f"S({dims[axis]})[{place}]"
    text = "".join(items)
    swapped = any(place and f"S({d})[0]" in text[at.end():] for at, d, place in
                  ((m, m[1], int(m[2])) for m in re.finditer(r"S\((\d)\)\[(\d)\]", text)))
    wanted = {"plain": "S(" in text, "order": swapped, "strided": "_S" in text}
    return text if wanted[kind] else None


def new_cases(count, seed):
    die = random.Random(seed)
    for kind in ("plain", "order", "strided"):
        made = 0
        while made < count:
            mesh = die.choice(MESHES)
            shape = [die.choice(SIZES) for _ in range(die.choice([1, 1, 2, 3]))]
            layout = new_layout(die, kind, mesh, len(shape))
            if layout and math.prod(shape) < 1 << 20:
                made += 1
                yield kind, mesh, shape, layout


# ---- PyTorch ------------------------------------------------------------------------------------

class Torch:
    """PyTorch's own answers, for every rank of a mesh in turn."""

    def __init__(self):
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import Partial, Replicate, Shard, _dtensor_spec, _redistribute, _utils
        from torch.distributed.tensor.placement_types import _StridedShard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        if not torch.__version__.startswith("2.13"):
            print(f"golden.py: the cases are those of PyTorch 2.13; this is {torch.__version__}", file=sys.stderr)
        self.torch, self.dist, self.store = torch, dist, FakeStore
        self.Shard, self.Strided, self.Replicate, self.Partial = Shard, _StridedShard, Replicate, Partial
        self.spec, self.redistribute, self.utils = _dtensor_spec, _redistribute, _utils

    def items(self, layout):
        """Placements, and for each dim its mesh axes outermost first."""
        placements, order = [], {}
        for item in re.finditer(r"R|P\((\w+)\)|S\((\d+)\)(?:\[(\d+)\])?|_S\((\d+), ?(\d+)\)", layout):
            op, dim, place, strided, factor = item.groups()
            axis = len(placements)
            if strided is not None:
                placements.append(self.Strided(int(strided), split_factor=int(factor)))
            elif dim is not None:
                placements.append(self.Shard(int(dim)))
                order.setdefault(int(dim), []).append((int(place or 0), axis))
            else:
                placements.append(self.Partial(op) if op else self.Replicate())
        order = tuple(self.spec.ShardOrderEntry(tensor_dim=dim, mesh_dims=tuple(axis for _, axis in sorted(axes)))
                      for dim, axes in sorted(order.items()))
        return tuple(placements), order

    def on_rank(self, rank, mesh):
        """A mesh as this rank sees it."""
        if self.dist.is_initialized():
            self.dist.destroy_process_group()
        self.dist.init_process_group("fake", store=self.store(), rank=rank, world_size=math.prod(mesh))
        sys.excepthook = sys.__excepthook__  # which grows by a prefix with every group
        return self.dist.init_device_mesh("cpu", tuple(mesh))

    def piece(self, mesh, whole, placements, order):
        """This rank's piece of a tensor that was replicated; a pending reduction changes no box."""
        placements = tuple(self.Replicate() if isinstance(p, self.Partial) else p for p in placements)
        meta = self.spec.TensorMeta(whole.shape, whole.stride(), whole.dtype)
        source = self.spec.DTensorSpec(mesh, (self.Replicate(),) * mesh.ndim, tensor_meta=meta)
        target = self.spec.DTensorSpec(mesh, placements, tensor_meta=meta, shard_order=order)
        return self.redistribute.redistribute_local_tensor(whole, source, target)

    def moved(self, mesh, shape, placements, order):
        """[shape, offset] of this rank's piece of a tensor of indices after it was redistributed."""
        offset = list(shape)
        for d in range(len(shape)):  # each dim beside others that are empty nowhere
            wide = [shape[d] if e == d else mesh.size() for e in range(len(shape))]
            index = self.torch.arange(shape[d]).reshape([-1 if e == d else 1 for e in range(len(shape))])
            part = self.piece(mesh, index.expand(wide).contiguous(), placements, order)
            offset[d] = int(part.flatten()[0]) if part.numel() else shape[d]
        whole = self.torch.arange(math.prod(shape)).reshape(shape)
        part = self.piece(mesh, whole, placements, order)
        box = whole[tuple(slice(o, o + s) for o, s in zip(offset, part.shape))]
        assert self.torch.equal(box, part), "a piece that is no box"
        return [list(part.shape), offset]

    def strided_form(self, mesh, placements, order):
        found = self.spec.DTensorSpec._convert_shard_order_to_StridedShard(order, placements, mesh)
        return self.text(found) if any(isinstance(p, self.Strided) for p in found) else None

    def text(self, placements, order=()):
        """As upstream writes it; places in an order only where more than one axis cuts a dim."""
        place = {axis: (i, len(entry.mesh_dims)) for entry in order for i, axis in enumerate(entry.mesh_dims)}
        out = ""
        for axis, p in enumerate(placements):
            if isinstance(p, self.Strided):
                out += f"_S({p.dim}, {p.split_factor})"
            elif isinstance(p, self.Shard):
                at, axes = place.get(axis, (0, 1))
                out += f"S({p.dim})" + (f"[{at}]" if axes > 1 else "")
            else:
                out += f"P({p.reduce_op})" if isinstance(p, self.Partial) else "R"
        return out

    def indices(self, mesh, shape, at, placements):
        """Global indices that a rank holds, per dim."""
        held = [None] * len(shape)
        size = list(shape)
        for axis, p in enumerate(placements):
            if isinstance(p, (self.Shard, self.Strided)):
                size[p.dim], held[p.dim] = self.utils._get_shard_size_and_offsets(
                    size[p.dim], mesh[axis], at[axis], p, held[p.dim], shape[p.dim], False)
        return [[] if n == 0 else list(range(n)) if index is None else index.tolist()
                for n, index in zip(size, held)]

    def case(self, kind, mesh, shape, layout):
        placements, order = self.items(layout)
        case = {"id": hashlib.sha1(f"{kind}{mesh}{shape}{layout}".encode()).hexdigest()[:10], "kind": kind,
                "mesh": mesh, "shape": shape, "layout": self.text(placements, () if kind == "strided" else order)}
        coordinates = list(itertools.product(*map(range, mesh)))
        if kind == "strided":
            case["local"] = [[list(part) for part in self.utils._compute_local_shape_and_global_offset(
                tuple(shape), tuple(mesh), list(at), placements)] for at in coordinates]
            decoded = self.spec.DTensorSpec._maybe_convert_StridedShard_to_shard_order(
                placements, self.on_rank(0, mesh))
            plain = [self.Shard(p.dim) if isinstance(p, (self.Shard, self.Strided)) else p for p in placements]
            case["as_order"] = None if decoded is None else self.text(plain, decoded)
            indices = [self.indices(mesh, shape, at, placements) for at in coordinates]
            if decoded is None and has_gap({"indices": indices}):
                case["indices"] = indices
        else:
            case["local"] = [self.moved(self.on_rank(rank, mesh), shape, placements, order)
                             for rank in range(len(coordinates))]
            strided = self.strided_form(self.on_rank(0, mesh), placements, order)
            if strided:
                case["strided"] = strided
        return case


def make(arguments):
    if arguments[0].isdigit():
        wanted = new_cases(int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1)
    else:
        wanted = read_text(arguments)
    torch = Torch()
    for one in wanted:
        print(json.dumps(torch.case(*one), separators=(",", ":")), flush=True)


if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help") or sys.argv[1:] == ["--make"]:
    sys.exit(__doc__.strip())
elif sys.argv[1] == "--make":
    make(sys.argv[2:])
else:
    write_text(sys.argv[1:])
