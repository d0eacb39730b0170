#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operator beside PyTorch's, forward and with gradients, one rank and one thread.

bench/operators and PyTorch take turns at each row of bench/operator_rows*.py, in short rounds; a time is the least of all: of
CPU time with one rank, so that other work on the machine hardly shows, and of the slowest rank's time with more (-n 2: only
rows whose layouts need no move, against as many threads). Results and gradients are compared first: with PyTorch's, and where
these are far off, with those that it computes in f64. Rows come sorted by sherd's time over PyTorch's. Run it with a python
that has torch.

    python bench/compare_operators.py [-n 1] [--rounds 5] [--worse 1.5] [--build build] [part of a row's name ...]
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile
import time

import torch

from operator_rows_rarer import ROWS  # those of operator_rows too

HERE = os.path.dirname(os.path.abspath(__file__))
COPIES_UP_TO = 8 << 20  # larger operands leave the caches by themselves


class Peer:
    """bench/operators, which does what it is told, line by line."""

    def __init__(self, args):
        program = args.program or os.path.join(args.build, "bench", "operators")
        self.process = subprocess.Popen([program, str(args.n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")

    def ask(self, *words):
        self.tell(*words)
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("compare_operators.py: bench/operators ended")
        return answer.split(None, 2)


def write_tensor(folder, i, t):
    name = os.path.join(folder, f"operand{i}")
    raw = t.contiguous()
    (raw.view(torch.int16) if raw.dtype == torch.bfloat16 else raw).numpy().tofile(name)
    return name


def sherd_name(t):
    return {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32",
            torch.int64: "i64", torch.bool: "bool"}[t.dtype]


class Job:
    """A row with or without gradients, on both sides."""

    def __init__(self, row, backward, args, peer, folder):
        self.row, self.peer, self.folder = row, peer, folder
        given = row.operands()
        bytes_of_all = sum(t.numel() * t.element_size() for t in given)
        self.copies = row.copies or (1 if bytes_of_all > COPIES_UP_TO else 2)
        self.wants = [backward and g for g in row.grads(given)]
        self.sets = [[self.mine(t, w) for t, w in zip(given, self.wants)] for _ in range(self.copies)]
        y = row.compute(*self.sets[0])
        self.y = [t.detach() for t in (y if isinstance(y, (tuple, list)) else [y])]
        self.dy = torch.rand_like(self.y[0]) if backward else None
        peer.tell("case")
        for i, t in enumerate(given + ([self.dy] if backward else [])):
            layout = (row.layouts[i] if i < len(given) else row.layouts[-1]) if args.n > 1 else "-"
            peer.tell("operand", sherd_name(t), int(i < len(given) and self.wants[i]), layout, self.copies, t.dim(),
                      *t.shape, write_tensor(folder, i, t))
            peer.ask("ready")
        for op, inputs, fields in row.steps:
            words = [w for k, v in fields.items() for w in ["=" + k] + (v if isinstance(v, list) else [v])]
            peer.tell("apply", op if op.startswith("@") else "sherd_" + op, len(inputs), *inputs, *words)
        self.gradient = len(given) if backward else -1

    @staticmethod
    def mine(t, wants):
        """PyTorch indexes by int64."""
        t = t.long() if t.dtype == torch.int32 else t.clone()
        return t.requires_grad_() if wants else t

    def run(self, copy):
        y = self.row.compute(*self.sets[copy])
        if self.dy is not None:
            (y[0] if isinstance(y, (tuple, list)) else y).backward(self.dy)
        return y

    def clear(self, copy):
        for t in self.sets[copy]:
            t.grad = None

    def exact(self):
        """Results, and gradients, as PyTorch computes them of the same operands in f64."""
        sets = [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in self.sets[0]]
        y = self.row.compute(*sets)
        y = list(y) if isinstance(y, (tuple, list)) else [y]
        if self.dy is not None:
            y[0].backward(self.dy.double())
        return y, [t.grad for t in sets if t.grad is not None]

    @staticmethod
    def numbered(results, y, grads):
        """As sherd's files, which have all of its results, then gradients."""
        return {**dict(enumerate(y[:results])), **{results + i: g for i, g in enumerate(grads)}}

    def gap(self, want, got=None):
        """The largest difference of results and gradients, relative to the largest element; got: None, those in files."""
        most = 0.0
        for i, t in want.items():
            if not self.row.checks(i):
                continue
            mine = got[i].detach().double().reshape(-1) if got else torch.from_file(
                os.path.join(self.folder, f"r{i}"), size=t.numel(), dtype=torch.float64)
            t = t.detach().double().reshape(-1)
            gap = torch.nan_to_num(mine - t).abs().max().item() if t.numel() else 0
            most = max(most, gap / max(1e-3, torch.nan_to_num(t, posinf=0, neginf=0).abs().max().item() if t.numel() else 1))
        return most

    def apart(self):
        """How far the files are from PyTorch's results and gradients, or, where that is more than the row's tolerance, from
        those in f64: sums of 16 bits that PyTorch rounds at each addition are its own, not sherd's. Else what is wrong."""
        results, files, *error = self.peer.ask("write", self.gradient, os.path.join(self.folder, "r"))
        if error and error[0].strip():
            return error[0].strip()
        self.run(0)
        want = self.numbered(int(results), self.y, [t.grad for t in self.sets[0] if t.grad is not None])
        self.clear(0)
        if self.dy is not None and int(files) != int(results) + sum(self.wants):
            return "gradients are missing"
        for i, t in want.items():
            if self.row.checks(i) and os.path.getsize(os.path.join(self.folder, f"r{i}")) != 8 * t.numel():
                return "another size"
        most = self.gap(want)
        if most <= self.row.tolerance:
            return most
        exact = self.numbered(int(results), *self.exact())
        mine = self.gap(exact)
        print(f"{self.row.name}: {most:.2g} from PyTorch; from f64 sherd is {mine:.2g}, PyTorch {self.gap(exact, want):.2g}",
              flush=True)
        return mine

    def time_mine(self, samples, calls):
        """The least CPU time of this thread, and the least time."""
        least, least_cpu = math.inf, math.inf
        for _ in range(samples):
            start, cpu = time.perf_counter(), time.thread_time()
            for k in range(calls):
                self.run(k % self.copies)
                self.clear(k % self.copies)
            least_cpu = min(least_cpu, (time.thread_time() - cpu) / calls)
            least = min(least, (time.perf_counter() - start) / calls)
        return least_cpu, least

    def time_theirs(self, samples, calls):
        return [float(x) for x in self.peer.ask("time", samples, calls, self.gradient)]


def measure(job, args):
    which = 0 if args.n == 1 else 1
    best = [math.inf, math.inf]
    calls = [1, 1]
    for i, timed in enumerate((job.time_theirs, job.time_mine)):
        timed(1, 1)
        once = timed(1, job.copies)[1]
        calls[i] = max(job.copies, min(400, int(args.sample * 1e-3 / once)))
    for _ in range(args.rounds):
        for i, timed in enumerate((job.time_theirs, job.time_mine)):
            best[i] = min(best[i], timed(args.samples, calls[i])[which])
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="only rows with one of these in their names")
    parser.add_argument("-n", type=int, default=1, help="ranks, and threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=3, help="in each round")
    parser.add_argument("--sample", type=float, default=2, help="milliseconds of a sample, at least one call")
    parser.add_argument("--worse", type=float, default=0, help="print rows that take so many times as long")
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--program", help="instead of BUILD/bench/operators")
    args = parser.parse_args()
    torch.set_num_threads(args.n)
    torch.manual_seed(1)
    lines, bad = [], 0
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(args)
        rows = [r for r in ROWS if (not args.parts or any(p in r.name for p in args.parts)) and (args.n == 1 or r.layouts)]
        for row in rows:
            for backward in [False, True] if row.backward else [False]:
                name = row.name + (", with gradients" if backward else "")
                job = Job(row, backward, args, peer, folder)
                apart = job.apart()
                if isinstance(apart, str) or apart > row.tolerance:
                    bad += 1
                    print(f"{name}: differs: {apart}", flush=True)
                    if isinstance(apart, str):
                        continue
                ours, theirs = measure(job, args)
                lines.append((ours / theirs, f"{ours / theirs:7.2f} {1e6 * ours:12.1f} {1e6 * theirs:12.1f}  {name}"))
                print(lines[-1][1], file=sys.stderr, flush=True)
    print("  ratio     sherd us   PyTorch us")
    for ratio, line in sorted(lines, reverse=True):
        if ratio >= args.worse:
            print(line)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
