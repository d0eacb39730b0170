#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPT example beside the same training step in PyTorch, where torch is installed.

Rounds are interleaved (sherd with 1 and 2 ranks; torch with 1 thread, with 2 threads, and tensor-parallel in 2 processes over
gloo; both in bf16 too; sherd's two ranks sequence-parallel, and what they gather kept), because cores of a virtual machine change their places while a benchmark runs. Medians of rounds are
compared. MKL refuses its fast kernels on CPUs that are not Intel's: rows "unlocked" have a library of one line in front
of it that says the CPU is. Rows "compiled" are torch.compile's. AdamW is fused wherever torch can. A row that fails is left out,
with a line that says why.

    bench/compare_torch.py [--gpt build/examples/gpt] [--rounds 5] [--steps 12] [--layers 6] [--dim 256] [--only bf16]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from torch_ranks import run_ranks

LAYERS, DIM, HEADS, CONTEXT, BATCH, VOCABULARY = 6, 256, 8, 256, 8, 256  # the first two by option
WARM = 3
UNLOCK = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def gpt_model(torch):
    """The example's model: separate q, k, v; pre-norm; tanh GELU; biases."""
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM) for _ in range(4))

        def forward(self, x):
            batch, length, _ = x.shape

            def heads(y):  # this rank's heads
                return y.view(batch, length, -1, DIM // HEADS).transpose(1, 2)

            q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.wo(y.transpose(1, 2).reshape(batch, length, -1))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

        def forward(self, x):
            return self.down(functional.gelu(self.up(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
            self.attn, self.mlp = Attention(), Mlp()

        def forward(self, x):
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(VOCABULARY, DIM)
            self.place = nn.Parameter(0.02 * torch.randn(CONTEXT, DIM))
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCABULARY)

        def forward(self, ids):
            x = self.tok(ids) + self.place
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(1)
    return Gpt()


def split(torch, model, ranks):
    """Megatron's scheme with torch's styles; the logits stay split, as in the example."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    plan = {"tok": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    for name in ("attn.wq", "attn.wk", "attn.wv", "mlp.up"):
        plan["blocks.*." + name] = ColwiseParallel()
    for name in ("attn.wo", "mlp.down"):
        plan["blocks.*." + name] = RowwiseParallel()
    return parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)


def optimizer_of(torch, model, fused):
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused)


def clip(torch, model, ranks):
    """Clip to a norm of 1; by hand where some gradients are DTensors and some are not, which torch does not take."""
    parameters = list(model.parameters())
    if ranks == 1:
        return torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    squares = torch.zeros(2)  # of what is split, of what every rank has
    local = [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in parameters]
    for p, g in zip(parameters, local):
        squares[0 if g.numel() != p.numel() else 1] += g.square().sum()
    torch.distributed.all_reduce(squares[:1])
    norm = squares.sum().sqrt()
    for g in local:
        g.mul_((1.0 / norm).clamp(max=1.0))
    return norm


def worker(args):
    """One process of torch: prints the median seconds of a step (rank 0)."""
    import contextlib

    import torch

    torch.set_num_threads(args.threads)
    model, scope = gpt_model(torch), contextlib.nullcontext
    run = torch.compile(model) if args.compile else model
    if args.ranks > 1:
        import torch.distributed as dist
        from torch.distributed.tensor.parallel import loss_parallel

        dist.init_process_group("gloo", rank=args.rank, world_size=args.ranks,
                                init_method=f"tcp://127.0.0.1:{args.port}")
        model, scope = split(torch, model, args.ranks), loss_parallel
        run = model
    optimizer = optimizer_of(torch, model, fused=args.ranks == 1)
    seconds = []
    for _ in range(args.steps):
        ids = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1))
        begin = time.monotonic()
        with scope():
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                logits = run(ids[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
        clip(torch, model, args.ranks).item()
        optimizer.step()
        optimizer.zero_grad()
        (loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item()
        seconds.append(time.monotonic() - begin)
    if args.rank == 0:
        print(json.dumps(statistics.median(seconds[WARM:])))
    if args.ranks > 1:
        torch.distributed.destroy_process_group()


def build_unlock(folder):
    """The library that says the CPU is Intel's; None where there is no compiler."""
    source, library = os.path.join(folder, "unlock.c"), os.path.join(folder, "unlock.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(UNLOCK)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no rows with MKL unlocked: {error}")
        return None
    return library


def run_torch(args, ranks, threads, flags=(), preload=None):
    output = run_ranks(__file__, ranks, threads,
                       ["--ranks", str(ranks), "--threads", str(threads), "--steps", str(args.steps),
                        "--layers", str(args.layers), "--dim", str(args.dim), *flags], preload)
    return float(output.split()[-1])


def run_sherd(args, ranks, dtype):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        subprocess.run(
            [args.gpt, "-n", str(ranks), "--sequence-parallel", "--keep-gathered", "--layers", str(args.layers), "--dim", str(args.dim), "--heads",
             str(HEADS), "--context", str(CONTEXT), "--batch", str(BATCH), "--steps", str(args.steps),
             "--sample", "0", "--dtype", dtype, "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return BATCH * CONTEXT / json.load(file)["tokens_per_s"]


def rows(args, unlock):
    """What is compared: a name and how to run it, seconds of a step."""
    ways = {
        "sherd, 1 rank": lambda: run_sherd(args, 1, "f32"),
        "sherd, tp=2": lambda: run_sherd(args, 2, "f32"),
        "sherd bf16, 1 rank": lambda: run_sherd(args, 1, "bf16"),
        "sherd bf16, tp=2": lambda: run_sherd(args, 2, "bf16"),
        "torch, 1 thread": lambda: run_torch(args, 1, 1),
        "torch, 2 threads": lambda: run_torch(args, 1, 2),
        "torch compiled, 2 threads": lambda: run_torch(args, 1, 2, ["--compile"]),
        "torch bf16, 2 threads": lambda: run_torch(args, 1, 2, ["--bf16"]),
        "torch bf16 compiled, 2 threads": lambda: run_torch(args, 1, 2, ["--bf16", "--compile"]),
        "torch, TP=2, gloo": lambda: run_torch(args, 2, 1),
    }
    if unlock:
        ways |= {
            "torch unlocked, 2 threads": lambda: run_torch(args, 1, 2, preload=unlock),
            "torch unlocked compiled, 2 threads": lambda: run_torch(args, 1, 2, ["--compile"], unlock),
            "torch unlocked bf16, 2 threads": lambda: run_torch(args, 1, 2, ["--bf16"], unlock),
            "torch unlocked, TP=2, gloo": lambda: run_torch(args, 2, 1, preload=unlock),
        }
    return {name: run for name, run in ways.items()
            if any(word in name for word in args.only.split(";"))}


def measure(args, ways):
    """Rounds of all rows; one that fails is left out from then on."""
    seconds = {name: [] for name in ways}
    for i in range(args.rounds):
        for name in list(seconds):
            try:
                seconds[name].append(ways[name]())
            except (OSError, RuntimeError, ValueError, IndexError, subprocess.SubprocessError) as error:
                print(f"{name}: left out: {str(error).splitlines()[-1] if str(error) else error!r}", flush=True)
                del seconds[name]
        print(f"round {i + 1}: " + ", ".join(f"{1e3 * s[-1]:.0f} ms" for s in seconds.values()),
              flush=True)
    return seconds


def print_table(torch, seconds):
    ours = [name for name in ("sherd, tp=2", "sherd bf16, tp=2") if name in seconds]
    print(f"\ntorch {torch.__version__}; times of a step, and against\n{'median':36} {'ms':>8} {'tokens/s':>10}"
          + "".join(f" {name:>18}" for name in ours))
    for name, values in seconds.items():
        step = statistics.median(values)
        ratios = [statistics.median(v / b for v, b in zip(values, seconds[best])) for best in ours]
        print(f"{name:36} {1e3 * step:8.1f} {BATCH * CONTEXT / step:10.0f}"
              + "".join(f" {ratio:17.2f}x" for ratio in ratios))


def main():
    global LAYERS, DIM
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpt", default=os.path.join(here, "..", "build", "examples", "gpt"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--only", default="", help="rows whose name has one of these words, separated by ;")
    for name in ("ranks", "rank", "threads", "port"):
        parser.add_argument("--" + name, type=int, default=0 if name == "rank" else 1,
                            help=argparse.SUPPRESS)
    for name in ("worker", "bf16", "compile"):
        parser.add_argument("--" + name, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    LAYERS, DIM = args.layers, args.dim
    try:
        import torch
    except ImportError:
        sys.exit("compare_torch.py: torch is not installed here: nothing to compare with")
    if args.worker:
        return worker(args)
    if not os.access(args.gpt, os.X_OK):
        sys.exit(f"compare_torch.py: {args.gpt} is not there: run make first, or give --gpt")
    with tempfile.TemporaryDirectory() as folder:
        print_table(torch, measure(args, rows(args, build_unlock(folder))))


if __name__ == "__main__":
    main()
