#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares an MLP and a GPT block with PyTorch 2.13 under every combination of styles: outputs and all gradients.

Usage: python tools/compare_models.py [BUILD] [SEED] [SHARE]; needs torch and BUILD/run_models (cmake --build BUILD --target
run_models). Every combination of the styles of the submodules with every layout of the input is run on tp=2, tp=3 and
dp=2,tp=2, in f32 and f64; what else there is (layouts of outputs, declared inputs, local outputs, prepared inputs and
outputs, input_reshard, checkpoints, fully sharded parameters) is drawn for each. SHARE: run one in so many [1]. What torch's
own tensor parallelism computes on two ranks over gloo is compared too, with both. Prints a line for each model; exits 1 if a
difference is beyond 1e-5 (f32) or 1e-12 (f64), relative to the largest element or 1, or a plan is refused.

    python tools/compare_models.py --store >tests/data/models_torch.h

writes the small cases of `make test`: values are sines, so only results are stored.
"""
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

LIMIT = {"f32": 1e-5, "f64": 1e-12}
DTYPE = {"f32": torch.float32, "f64": torch.float64}
ACTIVATION = {"relu": F.relu, "erf": F.gelu, "tanh": lambda x: F.gelu(x, approximate="tanh")}
MESHES = ["tp=2", "tp=3", "dp=2,tp=2"]
LAYOUTS = ["R", "S(0)", "S(1)", "S(2)"]


# ---- the models, with the names that sherd's have ---------------------------------------------

class Mlp(nn.Module):
    def __init__(self, names, sizes, activation):
        super().__init__()
        self.names, self.activation = names, ACTIVATION[activation]
        for name, (a, b) in zip(names, zip(sizes, sizes[1:])):
            self.add_module(name, nn.Linear(a, b))

    def forward(self, x):
        first, second = (getattr(self, name) for name in self.names)
        return second(self.activation(first(x)))


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.head = width // heads
        for name in ("wq", "wk", "wv", "wo"):
            self.add_module(name, nn.Linear(width, width))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(a.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, heads, width, hidden, activation):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(heads, width)
        self.ln2, self.mlp = nn.LayerNorm(width), Mlp(("w1", "w2"), (width, hidden, width), activation)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


def make(kind, activation, sizes):
    if kind == "mlp":
        return Mlp(("net1", "net2"), sizes, activation)
    return Block(sizes[0], sizes[1], sizes[2], activation)


def numbers(t):
    return t.detach().double().flatten().tolist()


def flat(t, **more):
    return dict({"shape": list(t.shape), "data": numbers(t)}, **more)


def describe(kind, dtype, activation, sizes, module, x, y, weights):
    """A model for run_models, after a backward."""
    grads = {name: flat(p, grad=numbers(p.grad)) for name, p in module.named_parameters()}
    return {"kind": kind, "dtype": dtype, "activation": activation, "heads": sizes[0], "parameters": grads,
            "x": flat(x, grad=numbers(x.grad)), "y": flat(y), "weights": numbers(weights)}


def draw(kind, dtype, activation, sizes, batch, length):
    module = make(kind, activation, sizes).to(DTYPE[dtype])
    with torch.no_grad():
        for p in module.parameters():  # norms get weights around 1
            p.copy_(0.5 * torch.randn_like(p) + (p if p.ndim == 1 else 0))
    x = torch.randn(batch, length, sizes[0] if kind == "mlp" else sizes[1], dtype=DTYPE[dtype], requires_grad=True)
    y = module(x)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    return describe(kind, dtype, activation, sizes, module, x, y, weights)


# ---- plans ------------------------------------------------------------------------------------

class Plans:
    """Combinations of styles for one model on one mesh, each with what is drawn for it."""

    def __init__(self, rng, mesh):
        self.rng, self.dp = rng, "dp" in mesh

    def chance(self, p=0.5):
        return self.rng.random() < p

    def style(self, path, style, arrives, granule=0):
        """An entry; `arrives`: how the input is known to lie, None if it is not known. Its output's layout comes along."""
        e = {"path": path, "style": style}
        if granule:
            e["granule"] = granule
        if arrives and self.chance():
            e["input"] = arrives
        leaves = "S(2)" if style == "colwise" else "R"
        if self.chance(0.6):
            leaves = e["output"] = self.rng.choice(LAYOUTS)
        return e, leaves

    def arriving(self, x):
        """What may be declared of an input: of a plain one that does not vary anything; None if nothing."""
        return x[-1] if x else self.rng.choice(LAYOUTS)

    def case(self, model, x, plan, lift=None, checkpoint=()):
        c = {"model": model, "x": None if not x else ("S(0)" if self.chance() else "R") + x if self.dp else x,
             "plan": plan, "reshard": self.chance(), "checkpoint": [p for p in checkpoint if self.chance(0.2)]}
        if self.dp and self.chance():
            c["shard"] = "dp"
        if lift:
            c["lift"] = lift
        return c

    def mlp(self, model, net1, net2, root, x):
        plan, arrives, lift = [], x or self.rng.choice(LAYOUTS), None
        if root in ("input", "both"):
            plan.append({"path": "", "style": root})
            if self.chance():
                plan[0]["input"] = arrives
            arrives = plan[0]["desired"] = self.rng.choice(LAYOUTS)
            if net1 and not self.dp and self.chance(0.3):
                plan[0]["local_input"] = True
        if root in ("output", "both"):
            plan = plan or [{"path": "", "style": root}]
            plan[0]["output"] = self.rng.choice(LAYOUTS)
        if net1:
            e, arrives = self.style("net1", net1, arrives)
            plan.append(e)
            if net2 and not self.dp and self.chance(0.3):
                e["to_local"] = True
        else:
            arrives = None
        if net2:
            local = net1 and plan[-1].get("to_local")
            e, leaves = self.style("net2", net2, arrives)
            if local:
                e["input"] = arrives
            plan.append(e)
            if root in (None, "input") and not self.dp and self.chance(0.3):
                e["to_local"], lift = True, leaves
        return self.case(model, x, plan, lift, ("", "net1", "net2"))

    def inner(self, path, styles, granule):
        """What goes through a pair of products: the first ones' output may leave as local pieces."""
        plan, local = [], False
        first, second = styles
        names = ["wq", "wk", "wv"] if granule else ["w1"]
        if first:
            output = self.rng.choice(LAYOUTS) if self.chance(0.3) else None
            leaves = output or ("S(2)" if first == "colwise" else "R")
            # Pieces of their own must have whole heads, and all positions.
            whole = leaves in ("R", "S(0)") or (leaves == "S(2)" and (not granule or (first == "colwise" and not output)))
            local = bool(second) and not self.dp and whole and self.chance(0.3)
            for name in names:
                e = {"path": path + "." + name, "style": first, "granule": granule}
                if output:
                    e["output"] = output
                if local:
                    e["to_local"] = True
                plan.append(e)
        if second:
            e, _ = self.style(path + "." + ("wo" if granule else "w2"), second, None, granule)
            if local:
                e["input"] = leaves
            plan.append(e)
        return plan

    def block(self, model, head, qkv, wo, w1, w2, norms, x):
        plan = self.inner("attn", (qkv, wo), head) + self.inner("mlp", (w1, w2), 0)
        for path in ("ln?", "drop?"):
            if norms == "both" or norms == path:
                plan.append({"path": path, "style": "sequence"})
        for path in ("attn", "mlp"):
            kind = self.rng.choice([None, None, "input", "output", "both"])
            if kind:
                e = {"path": path, "style": kind}
                if kind != "output":
                    e["desired"] = self.rng.choice(LAYOUTS)
                    if (qkv if path == "attn" else w1) and not self.dp and self.chance(0.3):
                        e["local_input"] = True
                    if norms in ("both", "ln?") and self.chance():
                        e["input"] = "S(1)"
                if kind != "input":
                    e["output"] = self.rng.choice(LAYOUTS)
                plan.append(e)
        return self.case(model, x, plan, None, ("", "attn", "mlp"))


STYLES = [None, "colwise", "rowwise"]


def mlp_cases(plans, model):
    for net1, net2, root, x in itertools.product(STYLES, STYLES, [None, "input", "output", "both"], [None] + LAYOUTS):
        yield plans.mlp(model, net1, net2, root, x)


def block_cases(plans, model, head):
    for s in itertools.product(STYLES, STYLES, STYLES, STYLES, [None, "ln?", "drop?", "both"], [None] + LAYOUTS):
        yield plans.block(model, head, *s)


# ---- torch's own tensor parallelism -----------------------------------------------------------

def torch_rank(rank, folder, sequence):
    """One of two ranks: a block under torch's styles; rank 0 writes what came out."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)

    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for number, (kind, activation, sizes) in enumerate(TORCH_MODELS):
        torch.manual_seed(number)
        module = make(kind, activation, sizes).double()
        x = torch.randn(4, 6, sizes[0] if kind == "mlp" else sizes[1], dtype=torch.float64)
        weights = torch.randn(4, 6, sizes[-1] if kind == "mlp" else sizes[1], dtype=torch.float64)
        names = ("net1", "net2") if kind == "mlp" else ("mlp.w1", "mlp.w2")
        between = Shard(1) if sequence else Replicate()
        out = RowwiseParallel(output_layouts=between)
        # The input that the first products declare is what arrives at them.
        first = ColwiseParallel(input_layouts=between if kind == "mlp" else Replicate())
        plan = {names[0]: first, names[1]: out}
        if kind == "block":
            plan.update({"attn.w[qkv]": ColwiseParallel(), "attn.wo": out})
            if sequence:
                gather = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
                plan.update({"ln?": SequenceParallel(), "attn": gather, "mlp": gather})
        parallelize_module(module, mesh, plan)
        piece = distribute_tensor(x, mesh, [between]).to_local().clone().requires_grad_(True)
        y = DTensor.from_local(module(piece), mesh, [between])
        (y * distribute_tensor(weights, mesh, [between])).sum().backward()
        grad_x = DTensor.from_local(piece.grad, mesh, [between])
        whole = lambda t: t.full_tensor() if isinstance(t, DTensor) else t
        for p in module.parameters():
            p.result = whole(p.detach()), whole(p.grad)
        result = {"kind": kind, "dtype": "f64", "activation": activation, "heads": sizes[0],
                  "parameters": {name: flat(p.result[0], grad=numbers(p.result[1])) for name, p in module.named_parameters()},
                  "x": flat(x, grad=numbers(whole(grad_x))), "y": flat(whole(y)), "weights": numbers(weights)}
        if rank == 0:
            with open(os.path.join(folder, "torch%d" % number), "w") as f:
                json.dump(result, f)
    dist.destroy_process_group()


TORCH_MODELS = [("mlp", "relu", [6, 8, 4]), ("mlp", "erf", [6, 8, 4]), ("block", "erf", [2, 8, 12]), ("block", "tanh", [4, 8, 12])]


def torch_models():
    """The models of TORCH_MODELS as torch's styles computed them, without and with sequence parallelism; with the largest
    difference to torch's plain ones."""
    models, worst = [], 0
    for sequence in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(torch_rank, (folder, sequence), nprocs=2)
            for number, (kind, activation, sizes) in enumerate(TORCH_MODELS):
                with open(os.path.join(folder, "torch%d" % number)) as f:
                    m = json.load(f)
                models.append((m, sequence))
                worst = max(worst, plain_difference(m, sizes))
    return models, worst


def plain_difference(m, sizes):
    module = make(m["kind"], m["activation"], sizes).double()
    fill = lambda e: torch.tensor(e["data"], dtype=torch.float64).reshape(e["shape"])
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(fill(m["parameters"][name]))
    x = fill(m["x"]).requires_grad_(True)
    y = module(x)
    (y * torch.tensor(m["weights"], dtype=torch.float64).reshape(y.shape)).sum().backward()
    pairs = [(y, m["y"]["data"]), (x.grad, m["x"]["grad"])]
    pairs += [(p.grad, m["parameters"][name]["grad"]) for name, p in module.named_parameters()]
    return max((t.detach().flatten() - torch.tensor(data, dtype=torch.float64)).abs().max().item() / max(1, t.abs().max().item())
               for t, data in pairs)


def torch_case(number, m, sequence):
    """The same styles here."""
    first, second = ("net1", "net2") if m["kind"] == "mlp" else ("mlp.w1", "mlp.w2")
    between = "S(1)" if sequence else "R"
    plan = [{"path": first, "style": "colwise"}, {"path": second, "style": "rowwise", "output": between}]
    if m["kind"] == "block":
        head = m["x"]["shape"][2] // m["heads"]
        plan += [{"path": "attn.w[qkv]", "style": "colwise", "granule": head},
                 {"path": "attn.wo", "style": "rowwise", "granule": head, "output": between}]
        if sequence:
            plan += [{"path": "ln?", "style": "sequence"}]
            plan += [{"path": p, "style": "input", "input": "S(1)", "desired": "R"} for p in ("attn", "mlp")]
    return {"model": number, "x": between, "plan": plan}


# ---- running ----------------------------------------------------------------------------------

def run(build, models, cases, mesh):
    with tempfile.TemporaryDirectory() as folder:
        given, answer = os.path.join(folder, "cases"), os.path.join(folder, "results")
        with open(given, "w") as f:
            json.dump({"models": models, "cases": cases}, f)
        subprocess.run([os.path.join(build, "run_models"), given, answer, mesh], check=True)
        with open(answer) as f:
            return json.load(f)


class Tally:
    def __init__(self):
        self.count, self.bad, self.worst = 0, 0, 0.0

    def add(self, model, case, result, mesh):
        difference = result["difference"] if result["difference"] is not None else math.inf
        self.count += 1
        if not result["error"]:
            self.worst = max(self.worst, difference)
        if result["error"] or difference > LIMIT[model["dtype"]]:
            self.bad += 1
            if self.bad <= 10:
                print("%s: %s %s\n  %s" % (mesh, result["error"] or "differs by %g" % difference, result["where"], case))


def kinds(dtype):
    """Models that do not divide: 3 heads, 3 rows, 5 positions and 7 features over 2 ranks."""
    for activation in ACTIVATION:
        yield "mlp", dtype, activation, [5, 7, 6], 3, 5
    for activation in ("erf", "tanh"):
        yield "block", dtype, activation, [3, 6, 7], 3, 5


def compare_styles(build, rng, share):
    bad = 0
    for dtype in LIMIT:
        for kind in kinds(dtype):
            tally = Tally()
            for mesh in MESHES:
                model, plans = draw(*kind), Plans(rng, mesh)
                cases = list(mlp_cases(plans, 0) if kind[0] == "mlp" else block_cases(plans, 0, kind[3][1] // kind[3][0]))
                cases = cases[rng.randrange(share)::share]
                for case, result in zip(cases, run(build, [model], cases, mesh)):
                    tally.add(model, case, result, mesh)
            print("%-5s %-4s %s: %5d combinations, largest difference %.1e, wrong or refused %d"
                  % (kind[0], kind[2], dtype, tally.count, tally.worst, tally.bad), flush=True)
            bad += tally.bad
    return bad


def compare_torch_styles(build):
    given, apart = torch_models()
    models, tally = [m for m, _ in given], Tally()
    cases = [torch_case(i, m, sequence) for i, (m, sequence) in enumerate(given)]
    for m, case, result in zip(models, cases, run(build, models, cases, "tp=2")):
        tally.add(m, case, result, "tp=2")
    print("torch's own styles over gloo, f64: %d models, largest difference to sherd %.1e (to plain torch %.1e), wrong %d"
          % (tally.count, tally.worst, apart, tally.bad))
    return tally.bad + (apart > LIMIT["f64"])


# ---- small cases for the tree -----------------------------------------------------------------

def wave(shape, k, scale, offset):
    """As in tests/modules.h."""
    i = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    return (offset + scale * torch.sin(0.1 * i * k)).reshape(shape)


def store_one(name, kind, activation, sizes, batch, length):
    """As tests/models.h makes them: the weight of a layer is wave k, its bias k + 1; the loss is mean((y - target)^2)."""
    module = make(kind, activation, sizes).double()
    with torch.no_grad():
        for i, (path, p) in enumerate(module.named_parameters()):
            norm = path.startswith("ln")
            p.copy_(wave(p.shape, i + 1, 0.4 if path.endswith("weight") else 0.1, 1 if norm and path.endswith("weight") else 0))
    x = wave((batch, length, sizes[0] if kind == "mlp" else sizes[1]), 17, 1, 0).requires_grad_(True)
    y = module(x)
    loss = ((y - wave(y.shape, 23, 1, 0)) ** 2).mean()
    loss.backward()
    results = [("output", y), ("x", x.grad)] + [(path, p.grad) for path, p in module.named_parameters()]
    print("static const expected_tensor %s_tensors[] = {" % name)
    for path, t in results:
        print('    {"%s", %d, (const double[]){%s}},' % (path, t.numel(), ", ".join(map(repr, numbers(t)))))
    print("};")
    print("static const double %s_loss = %r;" % (name, loss.item()))


def store():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by tools/compare_models.py --store, PyTorch %s: models in f64. */" % torch.__version__.split("+")[0])
    print("typedef struct expected_tensor {\n    const char *name;\n    int count;\n    const double *value;\n} expected_tensor;\n")
    print("/* clang-format off */")
    store_one("mlp_relu", "mlp", "relu", [5, 7, 6], 3, 3)
    for activation in ("erf", "tanh"):
        store_one("block_" + activation, "block", activation, [3, 6, 7], 3, 3)
    print("/* clang-format on */")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--store"]:
        store()
        return 0
    build = arguments[0] if arguments else "build"
    seed = int(arguments[1]) if len(arguments) > 1 else 1
    share = int(arguments[2]) if len(arguments) > 2 else 1
    torch.manual_seed(seed)
    bad = compare_styles(build, random.Random(seed), share) + compare_torch_styles(build)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
