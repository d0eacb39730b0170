#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Halo exchanges beside MPI by hand, where MPI was found when this was built.

bench/halo and bench/halo_mpi do one and the same job. Rounds take turns (sherd, MPI, sherd, ...); the median of the rounds'
medians counts, and of the ways that MPI has the best one. Also how many lines of code the exchange is in both programs: those
that are no comment and not blank, in the sections "the exchange"; that of MPI is the way with all fields joined.

    bench/compare_halo.py [-n 2] [--rounds 3] [--dim 0] [--build build] [--mpirun "mpirun --bind-to core"]
"""
import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys

LINE = re.compile(r"^(\d+ x \d+\^3 by dim \d, \d+ ranks)  (.*?) +([0-9.]+) us")
OURS = ("sherd_ghosts_fill", "sherd_halo_many")
COPY = {"sherd_ghosts_fill": "memcpy of the faces", "sherd_halo_many": "memcpy of pieces and faces"}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_halo.py: {' '.join(command)} failed:\n{done.stderr}")
    return [(m[1], m[2], float(m[3])) for m in map(LINE.match, done.stdout.splitlines()) if m]


def mpi_command(args, path):
    """Open MPI does not start more ranks than cores, or as root, unless told so; where cores are short it must yield."""
    words = shlex.split(args.mpirun)
    version = subprocess.run(words[:1] + ["--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version:
        words += ["--allow-run-as-root", "--oversubscribe"]
        if args.n > (os.cpu_count() or 1):
            words += ["--mca", "mpi_yield_when_idle", "1"]
    return words + ["-n", str(args.n), path]


def code_lines(text, section=None):
    """How many lines of a C text, or of one section of it, are no comment and not blank."""
    if section:
        text = re.search(r"/\* ---- " + section + r" -+ \*/\n(.*?)\n/\* ---- ", text, re.S)[1]
    return sum(1 for line in re.sub(r"/\*.*?\*/", "", text, flags=re.S).splitlines() if line.strip())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=21, help="in each round")
    parser.add_argument("--dim", type=int, default=0)
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--mpirun", default="mpirun")
    args = parser.parse_args()
    mpi = os.path.join(args.build, "bench", "halo_mpi")
    if not os.path.exists(mpi):
        sys.exit("compare_halo.py: there is no halo_mpi: MPI was not found when this was built (in Debian: libopenmpi-dev)")
    options = ["--rounds", str(args.samples), "--dim", str(args.dim)]
    found = {}
    for _ in range(args.rounds):
        sherd = [os.path.join(args.build, "bench", "halo"), "-n", str(args.n)]
        for case, way, time in run(sherd + options) + run(mpi_command(args, mpi) + options):
            found.setdefault(case, {}).setdefault(way, []).append(time)
    for case, ways in found.items():
        median = {way: statistics.median(times) for way, times in ways.items()}
        best = min((time, way) for way, time in median.items() if way.startswith("MPI"))
        print(f"{case}: microseconds, median of {args.rounds} rounds")
        for way in (way for way in median if way not in OURS):
            print(f"  {way:36} {median[way]:10.2f}")
        for way in OURS:
            beside = f"{median[way] / best[0]:.2f} of {best[1]}, " if way == OURS[0] else ""
            print(f"  {way:36} {median[way]:10.2f}   {beside}{median[way] / median[COPY[way]]:.2f} of {COPY[way]}")
    count = [code_lines(open(os.path.join(here, name)).read(), "the exchange") for name in ("halo.c", "halo_mpi.c")]
    print(f"lines of code of the exchange: sherd {count[0]}, MPI {count[1]}")


if __name__ == "__main__":
    main()
