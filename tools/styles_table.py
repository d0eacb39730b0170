#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/styles_mlp.h from a file of style cases computed by PyTorch (styles.json).

usage: tools/styles_table.py styles.json > tests/data/styles_mlp.h; clang-format -i tests/data/styles_mlp.h
"""
import json
import sys


def numbers(name, values):
    print(f"static const double {name}[] = {{")
    for i in range(0, len(values), 6):
        print("    " + ", ".join(f"{v!r}" for v in values[i:i + 6]) + ",")
    print("};")


data = json.load(open(sys.argv[1]))
print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/*")
print(" * Outputs, losses and gradients of an MLP (Linear, ReLU, Linear; loss mean((y - target)^2)) as")
print(f" * PyTorch {data['about']['torch']} computes them in f64, to 7 digits: equal for one process and for its")
print(" * tensor-parallel styles on 2 ranks. Element i of every tensor is")
print(" * offset + scale sin(0.1 (i + 1) k). Made by tools/styles_table.py.")
print(" */")
for case in ("mlp", "mlp_5_rows"):
    plain = data[case]["plain"]
    numbers(f"{case}_output", plain["output"])
    for name, values in plain["grads"].items():
        numbers(f"{case}_{name.replace('.', '_')}", values)
    numbers(f"{case}_x", plain["grad_x"])
    print(f"static const double {case}_loss = {plain['loss']!r};")
