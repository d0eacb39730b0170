# SPDX-License-Identifier: Apache-2.0
"""For scripts that compare a program of bench/kinds.h with PyTorch: rounds take turns (sherd, PyTorch, sherd, ...), lines
"NAME  TIME ms  A B C" are read of both, and medians of the rounds' medians are taken."""
import argparse
import os
import re
import statistics
import subprocess
import sys

LINE = re.compile(r"^(.+?) +([0-9.]+) ms +(\S+) (\S+) (\S+)$")


def read_options(script, text, more=()):
    """Options of such a script; `more`: its own flags, (name, help), which its peer gets too."""
    here = os.path.dirname(os.path.abspath(script))
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, and threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=5, help="in each round")
    parser.add_argument("--build", default=os.path.join(here, "..", "build"))
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    for name, what in more:
        parser.add_argument(name, action="store_true", help=what)
    args = parser.parse_args()
    args.peer = [sys.executable, os.path.abspath(script), "--torch", "-n", str(args.n), "--samples", str(args.samples)]
    args.peer += [name for name, _ in more if getattr(args, name.lstrip("-").replace("-", "_"))]
    return args


def run(command, times, numbers):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    for m in filter(None, map(LINE.match, done.stdout.splitlines())):
        times.setdefault(m[1], []).append(float(m[2]))
        numbers[m[1]] = [float(m[i]) for i in (3, 4, 5)]


def take_turns(args, program, name_there=lambda name: name):
    """Yield (name, ms here, ms there, how far apart the numbers are, relative to them); None there: the peer has no such
    line."""
    ours = [os.path.join(args.build, "bench", program), str(args.n), str(args.samples)]
    times, numbers = ({}, {}), ({}, {})
    for _ in range(args.rounds):
        for i, command in enumerate((ours, args.peer)):
            run(command, times[i], numbers[i])
    for name in times[0]:
        there = name_there(name)
        here = statistics.median(times[0][name])
        if there not in times[1]:
            yield name, here, None, 0
            continue
        apart = max(abs(x - y) / max(abs(y), 1) for x, y in zip(numbers[0][name], numbers[1][there]))
        yield name, here, statistics.median(times[1][there]), apart
