#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce, all-gather, reduce-scatter and all-to-all beside Open MPI, MPICH and gloo, 8 B to 64 MiB, on 2, 4 and 8 ranks.

bench/collectives_*_mpi.c takes turns between sherd, MPI and a copy within one program; this runs it for each MPI that is here,
in the arena and by messages, and PyTorch's gloo where a python with torch runs it, one after the other in each round. MPI yields
when it waits, where ranks outnumber cores: without that it is many times slower. Medians of the rounds, microseconds. Each MPI is set against
the arena in its own program, since ranks of MPICH that wait take the core from everybody's; gloo against the better of these. The ratios: the
best peer's time over the arena's beside it, and the arena's over the copy's of the same run.

    python bench/collectives.py [-n 2,4,8] [--sizes 8,4096,...] [--rounds 3] [--mpi openmpi] [--messages]
                                 [--build build]
"""
import argparse
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from torch_ranks import run_ranks

LINE = re.compile(r"^(\S+) +(\d+) B +([0-9.]+) +([0-9.]+) +([0-9.]+)$", re.M)
SIZES = [8, 4096, 65536, 1 << 20, 16 << 20, 64 << 20]
KINDS = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"]
MPIS = {"openmpi": ["--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1"], "mpich": []}


def worker(args):
    """One process of torch: prints the median microseconds of each kind (rank 0). Reduce-scatter is not in gloo for all sizes."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=args.rank, world_size=args.ranks, init_method=f"tcp://127.0.0.1:{args.port}")
    count, found = args.size // 4, {}
    piece = count // args.ranks
    sources = [torch.zeros(count) for _ in range(3)]
    results = [torch.zeros(max(piece * args.ranks, 1)) for _ in range(3)]
    run = {"all-reduce": lambda i: dist.all_reduce(sources[i])}
    if piece:
        run["all-gather"] = lambda i: dist.all_gather_into_tensor(results[i], sources[i][:piece])
        run["all-to-all"] = lambda i: dist.all_to_all_single(results[i][:piece * args.ranks],
                                                             sources[i][:piece * args.ranks])
    turns = 102 if args.size <= 65536 else 12 if args.size <= 1 << 20 else 3
    for kind, call in run.items():
        samples = []
        for _ in range(5):
            for s in sources:
                s.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            for i in range(turns):
                call(i % 3)
            samples.append(1e6 * (time.perf_counter() - begin) / turns)
        found[kind] = statistics.median(samples)
    if args.rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def run_mpi(args, kind, ranks, size, messages):
    """{kind of collective: (sherd, MPI, copy)} of one run, microseconds."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if messages:
        environment["SHERD_TRANSPORT"] = "mpi"
    command = [shutil.which("mpirun." + kind), *MPIS[kind], "-n", str(ranks),
               os.path.join(args.build, "bench", f"collectives_{kind}_mpi"), "--size", str(size), "--rounds", "7"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stderr.strip()}")
    return {m[1]: tuple(float(x) for x in m.groups()[2:]) for m in LINE.finditer(done.stdout)}


def run_round(args, mpis, ranks, size, found):
    """Adds one round's times to found[kind of collective][who]."""
    for mpi in mpis:
        for kind, (ours, theirs, copy) in run_mpi(args, mpi, ranks, size, False).items():
            for who, value in (("arena, " + mpi, ours), (mpi, theirs), ("copy", copy)):
                found[kind][who].append(value)
        if args.messages:
            for kind, (ours, _, _) in run_mpi(args, mpi, ranks, size, True).items():
                found[kind]["by " + mpi].append(ours)
    if args.has_torch:
        text = run_ranks(__file__, ranks, 1, ["--ranks", str(ranks), "--size", str(size)])
        for kind, value in json.loads(text.splitlines()[-1]).items():
            found[kind]["gloo"].append(value)


def names_of(args, mpis):
    """The columns: who is timed, in their order."""
    beside = [name for m in mpis for name in ("arena, " + m, *["by " + m] * args.messages, m)]
    return ["copy", *beside, *["gloo"] * args.has_torch]


def ratios_of(row, mpis):
    """The best peer's time over the arena's beside it, and the arena's at best over the copy's."""
    arena = {m: row["arena, " + m] for m in mpis}
    against = [row[m] / ours for m, ours in arena.items()]
    best = min(arena.values())
    if "gloo" in row:
        against.append(row["gloo"] / best)
    # Of few bytes a copy takes less than what is printed of it.
    return min(against), best / row["copy"] if row["copy"] else float("inf")


def report(args, mpis, ranks, size):
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(args.rounds):
        run_round(args, mpis, ranks, size, found)
    for kind in KINDS:
        row = {who: statistics.median(values) for who, values in found[kind].items()}
        if not row:
            continue
        cells = "".join(f"{row[c]:15.2f}" if c in row else f"{'-':>15}" for c in names_of(args, mpis))
        against, of_copy = ratios_of(row, mpis)
        print(f"{ranks:2} {kind:15}{size:10}{cells}{against:9.2f}{of_copy:9.2f}", flush=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("-n", default="2,4,8", dest="counts")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpi", choices=[*MPIS], help="only this one")
    parser.add_argument("--messages", action="store_true", help="sherd by messages of each MPI, too")
    for name in ("rank", "ranks", "port", "size"):
        parser.add_argument("--" + name, type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)
    try:
        import torch  # noqa: F401
        args.has_torch = True
    except ImportError:
        args.has_torch = False
    mpis = [m for m in MPIS if args.mpi in (None, m) and shutil.which("mpirun." + m)
            and os.path.exists(os.path.join(args.build, "bench", f"collectives_{m}_mpi"))]
    if not mpis:
        sys.exit("collectives.py: no MPI is here, or sherd was built without it")
    print(" n collective          bytes" + "".join(f"{n:>15}" for n in names_of(args, mpis)) + "  best/us  us/copy")
    for ranks in map(int, args.counts.split(",")):
        for size in map(int, args.sizes.split(",")):
            report(args, mpis, ranks, size)


if __name__ == "__main__":
    main()
