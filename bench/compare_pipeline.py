#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step in two stages beside PyTorch's pipeline, one thread a rank.

examples/pipeline and PyTorch (this script again, with --torch) train the same transformer on the same sequences: whole on one
rank, as a pipeline of two stages with Schedule1F1B over gloo, or of four with ScheduleZBVZeroBubble, and here split by features
too. Rounds take turns; medians of the
rounds' means. First values differ between the two; each must come to the same loss in all its rows. Run it with a python that
has torch.

    python bench/compare_pipeline.py [--rounds 5] [--steps 8] [--layers 8] [--dim 256] [--batch 8] [--context 256]
                                     [--microbatches 8] [--build build]
"""
import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time

SYMBOLS, HEAD, MASK = 61, 32, (1 << 64) - 1


def mix(sequence, position):
    x = (sequence * 1000003 + position + 1) * 0x9E3779B97F4A7C15 & MASK
    return ((x ^ x >> 31) * 0xBF58476D1CE4E5B9 & MASK) >> 32


def batch_of(args, step):
    """Ids and targets of a step: as examples/pipeline/main.c makes them."""
    import torch

    rows = []
    for i in range(args.batch):
        number = step * args.batch + i
        row = [mix(number, -1) % SYMBOLS]
        for p in range(args.context):
            row.append((5 * row[-1] + mix(number, p) % 4) % SYMBOLS)
        rows.append(row)
    all = torch.tensor(rows)
    return all[:, :-1].contiguous(), all[:, 1:].contiguous()


def measure_torch(args):
    """A rank of the pipeline, or the whole model (--torch 1)."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            dim = args.dim
            self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
            self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            h = self.norm1(x)
            q, k, v = (f(h).unflatten(2, (-1, HEAD)).transpose(1, 2) for f in (self.q, self.k, self.v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def stage_of(i, stages):
        torch.manual_seed(1)
        blocks = [Block() for _ in range(args.layers)]
        first, last = [nn.Embedding(SYMBOLS, args.dim)], [nn.RMSNorm(args.dim), nn.Linear(args.dim, SYMBOLS)]
        for p in nn.Sequential(*first, *blocks, *last).parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.05)
        part = blocks[i * args.layers // stages:(i + 1) * args.layers // stages]
        return nn.Sequential(*(first if i == 0 else []), *part, *(last if i == stages - 1 else []))

    def loss_of(y, targets):
        return F.cross_entropy(y.flatten(0, 1), targets.flatten())

    ranks = args.torch
    rank = int(os.environ.get("RANK", 0))
    # ZBV: stages 0 and 3 at rank 0, 1 and 2 at rank 1
    stages, mine = (2 * ranks, (rank, 2 * ranks - 1 - rank)) if args.schedule == "zbv" else (ranks, (rank,))
    parts = [stage_of(i, stages) for i in mine]
    model = nn.ModuleList(parts)
    adamw = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01, fused=True)
    data = [batch_of(args, step) for step in range(args.steps)]
    if stages > 1:
        import torch.distributed as dist
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleZBVZeroBubble

        dist.init_process_group("gloo")
        list = [PipelineStage(part, i, stages, torch.device("cpu")) for i, part in zip(mine, parts)]
        schedule = (ScheduleZBVZeroBubble(list, args.microbatches, loss_fn=loss_of) if args.schedule == "zbv" else
                    Schedule1F1B(list[0], args.microbatches, loss_fn=loss_of))

    def step(ids, targets):
        """Forward and backward, and the norm of all gradients: the loss, where it is known."""
        losses = []
        if stages == 1:
            loss = loss_of(parts[0](ids), targets)
            loss.backward()
            losses = [loss.detach()]
        else:
            last = {"target": targets, "losses": losses} if stages - 1 in mine else {}
            schedule.step(*([ids] if rank == 0 else []), **last)
        squares = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum()
        if stages > 1:
            dist.all_reduce(squares)
        by = min(1, 1 / squares.sqrt().item())
        for p in model.parameters():
            p.grad.mul_(by)
        adamw.step()
        adamw.zero_grad()
        return sum(x.item() for x in losses) / max(1, len(losses))

    for i, (ids, targets) in enumerate(data):
        if i == 2:
            start = time.perf_counter()
        loss = step(ids, targets)
    took = 1e3 * (time.perf_counter() - start) / (args.steps - 2)
    if stages - 1 in mine:
        print(f"loss {loss:.6f}")
    if rank == 0:
        print(f"{took:.3f} ms a step", flush=True)
    if stages > 1:
        dist.destroy_process_group()


def run_torch(args, stages, schedule="1f1b"):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, os.path.abspath(__file__), "--torch", str(stages), "--schedule", schedule]
    for name in ("steps", "layers", "dim", "batch", "context", "microbatches"):
        command += [f"--{name}", str(getattr(args, name))]
    ranks = []
    for rank in range(stages):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(stages), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    done = [r.communicate() for r in ranks]
    if any(r.returncode for r in ranks):
        sys.exit("".join(err for _, err in done)[-2000:])
    return "".join(out for out, _ in done)


def run_sherd(args, mesh, stages, microbatches, schedule="1f1b"):
    command = [os.path.join(args.build, "examples", "pipeline"), mesh, stages, microbatches, args.steps, args.layers, args.dim,
               args.batch, args.context, schedule]
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rounds", 5), ("steps", 8), ("layers", 8), ("dim", 256), ("batch", 8), ("context", 256),
                        ("microbatches", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--schedule", default="1f1b", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch:
        return measure_torch(args)
    rows = {
        "sherd, 1 rank": lambda: run_sherd(args, "pp=1,dp=1,tp=1", 1, 1),
        "sherd, pp=2": lambda: run_sherd(args, "pp=2,dp=1,tp=1", 2, args.microbatches),
        "sherd, pp=2, 4 stages": lambda: run_sherd(args, "pp=2,dp=1,tp=1", 4, args.microbatches),
        "sherd, pp=2, zero": lambda: run_sherd(args, "pp=2,dp=1,tp=1", 2, args.microbatches, "zero"),
        "sherd, pp=2, 4 stages, zero": lambda: run_sherd(args, "pp=2,dp=1,tp=1", 4, args.microbatches, "zero"),
        "sherd, pp=2, 4 stages, zero_v": lambda: run_sherd(args, "pp=2,dp=1,tp=1", 4, args.microbatches, "zero_v"),
        "sherd, tp=2": lambda: run_sherd(args, "pp=1,dp=1,tp=2", 1, 1),
        "torch, 1 thread": lambda: run_torch(args, 1),
        "torch, pp=2, gloo": lambda: run_torch(args, 2),
        "torch, pp=2, gloo, ZBV": lambda: run_torch(args, 2, "zbv"),
    }
    times, loss = {name: [] for name in rows}, {}
    for _ in range(args.rounds):
        for name, run in rows.items():
            text = run()
            times[name].append(float(re.search(r"([0-9.]+) ms a step", text)[1]))
            loss[name] = float(re.findall(r"loss ([0-9.]+)", text)[-1])
    for whose in ("sherd", "torch"):
        of = [value for name, value in loss.items() if name.startswith(whose)]
        if max(of) - min(of) > 1e-3:
            sys.exit(f"compare_pipeline.py: losses are {loss}")
    ours = statistics.median(times["sherd, pp=2"])
    for name in rows:
        median = statistics.median(times[name])
        print(f"{name:28} {median:8.1f} ms a step, {median / ours:5.2f} of sherd's pp=2, loss {loss[name]:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
