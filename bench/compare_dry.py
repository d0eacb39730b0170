#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What `sherd dry` expects of a step of the GPT example, and what the step takes: times, calls, bytes and the peak of memory.
Rounds alternate, and rates are measured anew in each by `sherd dry` itself, so that both see the same machine.
"""
import argparse
import json
import statistics
import subprocess
import tempfile

SIZES = {
    "small": "--layers 2 --dim 128 --heads 4 --context 128 --batch 8",
    "medium": "--layers 6 --dim 256 --heads 8 --context 256 --batch 8",
    "wide": "--layers 2 --dim 768 --heads 12 --context 256 --batch 4",
}
MESHES = ["dp=1,tp=1", "dp=1,tp=2", "dp=2,tp=1"]


def real(build, mesh, options):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([f"{build}/examples/gpt", "--mesh", mesh, *options, "--json", out.name], check=True,
                       stdout=subprocess.DEVNULL)
        run = json.load(open(out.name))
    sizes = dict(zip(options[::2], options[1::2]))
    tokens = int(sizes["--batch"]) * int(sizes["--context"])
    return {"seconds": tokens / run["tokens_per_s"], "peak": run["peak_bytes"],
            "calls": sum(c["calls"] for c in run["comm"]), "bytes": sum(c["bytes"] for c in run["comm"])}


def dry(build, mesh, options):
    text = subprocess.run([f"{build}/sherd", "dry", "--json", f"{build}/examples/gpt", "--mesh", mesh, *options],
                          check=True, capture_output=True, text=True).stdout
    run = json.loads(text)
    step = run["step"]
    return {"seconds": step["seconds"], "peak": run["memory"]["peak_bytes"],
            "calls": sum(c["calls"] for c in step["calls"]), "bytes": sum(c["received_bytes"] for c in step["calls"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", default="", help="sizes, with commas")
    args = parser.parse_args()
    print(f"{'size':8} {'mesh':12} {'step':>10} {'expected':>10} {'ratio':>6}  calls, bytes and peak")
    for size, text in SIZES.items():
        if args.only and size not in args.only.split(","):
            continue
        options = [*text.split(), "--steps", str(args.steps), "--sample", "1"]
        for mesh in MESHES:
            pairs = [(real(args.build, mesh, options), dry(args.build, mesh, options)) for _ in range(args.rounds)]
            took = statistics.median(r["seconds"] for r, _ in pairs)
            expected = statistics.median(d["seconds"] for _, d in pairs)
            ratio = statistics.median(d["seconds"] / r["seconds"] for r, d in pairs)
            same = all(abs(r[k] - d[k]) < 1e-6 * max(1, r[k]) for r, d in pairs for k in ("calls", "bytes", "peak"))
            print(f"{size:8} {mesh:12} {1e3 * took:7.1f} ms {1e3 * expected:7.1f} ms {ratio:6.2f}  "
                  f"{'as they are' if same else 'DIFFER: ' + str(pairs[0])}", flush=True)


main()
