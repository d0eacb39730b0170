#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A part of a trace (SHERD_TRACE, sherd run --trace) as an SVG picture, for documents; ui.perfetto.dev shows all of it.

    python tools/trace_picture.py trace.json BEGIN_MS LENGTH_MS >docs/trace.svg

Times count from the first event. For each rank a row of operators, one of calls, and one of waits.
"""
import html
import json
import sys

WIDTH, LEFT, ROW, GAP = 960, 60, 22, 14
KINDS = {"op": "#9fc5e8", "call": "#b6d7a8", "wait": "#f4b6a6"}


def read(path):
    with open(path) as file:
        text = file.read().rstrip().rstrip(",") + "]"
    return [event for event in json.loads(text) if event["ph"] == "X"]


def box(event, begin, length, top):
    start = LEFT + max(0, (event["ts"] - begin) / length) * (WIDTH - LEFT)
    end = LEFT + min(1, (event["ts"] + event["dur"] - begin) / length) * (WIDTH - LEFT)
    words = ", ".join(f"{key} {value}" for key, value in event["args"].items())
    out = [f'<g><title>{html.escape(event["name"])}: {event["dur"] / 1e3:.3f} ms; {html.escape(words)}</title>',
           f'<rect x="{start:.1f}" y="{top}" width="{max(end - start, 0.3):.1f}" height="{ROW - 2}" '
           f'fill="{KINDS[event["cat"]]}" stroke="#666" stroke-width="0.3"/>']
    letters = int((end - start) / 6)
    if letters >= 4:
        name = event["name"].removeprefix("sherd_")
        out.append(f'<text x="{start + 3:.1f}" y="{top + 14}">{html.escape(name[:letters])}</text>')
    return "".join(out) + "</g>"


def main():
    path, begin, length = sys.argv[1], 1e3 * float(sys.argv[2]), 1e3 * float(sys.argv[3])
    events = read(path)
    begin += min(event["ts"] for event in events)
    ranks = sorted({event["pid"] for event in events})
    height = len(ranks) * (len(KINDS) * ROW + GAP) + 30
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 10}" height="{height}" '
          'font-family="sans-serif" font-size="11">')
    print('<rect width="100%" height="100%" fill="white"/>')
    for i, rank in enumerate(ranks):
        top = 10 + i * (len(KINDS) * ROW + GAP)
        print(f'<text x="6" y="{top + 36}">rank {rank}</text>')
        for event in events:
            inside = event["ts"] < begin + length and event["ts"] + event["dur"] > begin
            if event["pid"] == rank and inside:
                print(box(event, begin, length, top + list(KINDS).index(event["cat"]) * ROW))
    print(f'<text x="{LEFT}" y="{height - 6}">{length / 1e3:g} ms; blue: operators, green: calls, red: waits</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
