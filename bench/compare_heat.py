#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The heat example beside the same program by hand with MPI, where MPI was found when this was built.

Rounds take turns (sherd, MPI, sherd, ...); the median of milliseconds a step counts. Both must come to the same bits. Also how
many lines of code the field is in both: those that are no comment and not blank, in examples/heat/field.c and in the
section "the field" of bench/heat_mpi.c. What they share (options, waves, the arithmetic of a piece) is not counted.

    bench/compare_heat.py [-n 2] [--rounds 5] [--build build] [--mpirun mpirun] [-- --size 128x128x128 --mesh z=2]
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

from compare_halo import code_lines, mpi_command


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_heat.py: {' '.join(command)} failed:\n{done.stderr}")
    return float(re.search(r"^speed +([0-9.e+-]+) ms", done.stdout, re.M)[1]), \
        re.search(r"^checksum (\w+)", done.stdout, re.M)[1]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("options", nargs="*", help="of the example, behind --")
    args = parser.parse_args()
    mpi = os.path.join(args.build, "bench", "heat_mpi")
    if not os.path.exists(mpi):
        sys.exit("compare_heat.py: there is no heat_mpi: MPI was not found when this was built (in Debian: libopenmpi-dev)")
    sherd = [os.path.join(args.build, "examples", "heat"), "-n", str(args.n)] + args.options
    times, sums = {"sherd": [], "MPI": []}, set()
    for _ in range(args.rounds):
        for name, command in (("sherd", sherd), ("MPI", mpi_command(args, mpi) + args.options)):
            time, checksum = run(command)
            times[name].append(time)
            sums.add(checksum)
    if len(sums) != 1:
        sys.exit(f"compare_heat.py: the checksums differ: {' '.join(sorted(sums))}")
    ours, theirs = statistics.median(times["sherd"]), statistics.median(times["MPI"])
    print(f"{args.n} ranks: sherd {ours:.3g} ms a step, MPI {theirs:.3g}, {ours / theirs:.2f} of it; checksum {sums.pop()}")
    field = code_lines(open(os.path.join(here, "..", "examples", "heat", "field.c")).read())
    print(f"lines of code of the field: sherd {field}, MPI {code_lines(open(os.path.join(here, 'heat_mpi.c')).read(), 'the field')}")


if __name__ == "__main__":
    main()
