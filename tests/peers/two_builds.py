#!/usr/bin/env python3
"""Compares the speed of two builds: each measurement alternates between them.

    tests/peers/two_builds.py BEFORE/engine NOW/engine --dir DIR --rounds 5
    tests/peers/two_builds.py BEFORE/engine NOW/engine --only step,comm

A row gives the median over rounds of BEFORE's time divided by NOW's (above 1: NOW is faster), and
its range. Both sides run the same command of `engine bench`; a row that only one of them prints is
left out. Both orders of the two sides occur equally often if the number of rounds is even.
"""
import argparse
import csv
import io
import os
import statistics
import subprocess
import sys

MODELS = [("mlp", 100), ("convnet", 100), ("resnet18-cifar", 32), ("resnet50-cifar", 16),
          ("gpt-nano", 12)]
TIMES = {"us": 1, "p50_us": 1, "p50_ms": 1e3}  # columns of times, in microseconds


def steps(seconds):
    for model, batch in MODELS:
        for ranks in (1, 2):
            for amp in ("off", "bf16"):
                yield (f"step {model} {ranks}x1 {amp}",
                       ["step", "--model", model, "--batch", str(batch), "--ranks", str(ranks),
                        "--threads", "1", "--seconds", str(seconds), "--amp", amp])


def commands(options):
    """Returns pairs of a name and the arguments of `engine bench`."""
    folder = ["--dir", options.dir]
    groups = {
        "step": list(steps(options.seconds)),
        "comm": [(f"comm {ranks}", ["comm", "--op", op, "--backends", "shm,socket,gloo,zmq",
                                    "--ranks", str(ranks), "--sizes", "8,1K,4K,64K,1M,25M",
                                    "--seconds", str(options.seconds / 4)])
                 for ranks, op in ((2, "allreduce"), (4, "allreduce"), (2, "broadcast"),
                                   (2, "allgather"))],
        "kernels": [(f"kernels {amp}", ["kernels", "--threads", "1", "--model",
                                        "convnet,resnet18-cifar,gpt-nano", "--amp", amp,
                                        "--seconds", "0.1"]) for amp in ("off", "bf16")],
        "files": [("save", ["save", "--model", "resnet18-cifar", "--rounds", "9"] + folder),
                  ("verify", ["verify", "--mb", "128", "--rounds", "7"] + folder),
                  ("io", ["io", "--dataset", "glyphs", "--seconds", str(options.seconds),
                          "--rounds", "5"] + folder)],
    }
    if options.data:
        groups["files"] += [
            (f"io {name}", ["io", "--dataset", name, "--data-dir", os.path.join(options.data, path),
                            "--seconds", str(options.seconds), "--rounds", "5"] + folder)
            for name, path in (("cifar10", "cifar10"), ("mnist", "mnist"))]
    return [entry for group in options.only.split(",") for entry in groups[group]]


def measure(engine, name, arguments):
    """Returns {row: microseconds}; of rates, the time of one unit."""
    done = subprocess.run([engine, "bench", *arguments, "--format", "csv"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        print(f"{engine} bench {' '.join(arguments)}: {done.stderr.strip()[:200]}", file=sys.stderr)
        return {}
    rows = {}
    for row in csv.DictReader(io.StringIO(done.stdout)):
        if row.get("phase", "step") != "step" or row.get("rank", "0") != "0":
            continue
        column = next((column for column in TIMES if column in row), None)
        value = float(row[column]) * TIMES[column] if column else 1e6 / float(row["median"])
        keys = [row[key] for key in ("op", "model", "shape", "backend", "bytes", "what")
                if row.get(key)]
        rows[" ".join([name, *keys])] = value
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--only", default="step,comm,kernels,files")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--data", default=os.environ.get("ENGINE_TEST_DATA", ""))
    options = parser.parse_args()
    print("| measurement | before, us | now, us | before / now (min to max) |\n|---|--:|--:|--:|")
    for name, arguments in commands(options):
        sides = {"before": {}, "now": {}}
        for i in range(options.rounds):
            order = ("before", "now") if i % 2 == 0 else ("now", "before")
            for side in order:
                for row, time in measure(getattr(options, side), name, arguments).items():
                    sides[side].setdefault(row, []).append(time)
        for row, before in sides["before"].items():
            now = sides["now"].get(row, [])
            if len(now) != len(before) or min(now) <= 0:
                continue
            ratios = [b / n for b, n in zip(before, now)]
            print(f"| {row} | {statistics.median(before):.4g} | {statistics.median(now):.4g} | "
                  f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}) |",
                  flush=True)


if __name__ == "__main__":
    main()
