# SPDX-License-Identifier: Apache-2.0
"""Starts this script's torch workers, one process a rank, and gives what rank 0 printed."""
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_ranks(script, ranks, threads, arguments, preload=None):
    """RuntimeError with the last line of what a worker said, if one fails."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TORCHELASTIC_USE_AGENT_STORE="0")
    if preload:
        environment["LD_PRELOAD"] = preload
    command = [sys.executable, script, "--worker", "--port", str(free_port()), *arguments, "--rank"]
    started = [subprocess.Popen(command + [str(rank)], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    outputs = [p.communicate() for p in started]
    for p, (_, error) in zip(started, outputs):
        if p.returncode != 0:
            lines = error.strip().splitlines()
            raise RuntimeError(f"torch with {ranks} processes failed: {lines[-1] if lines else p.returncode}")
    return outputs[0][0]
