#!/usr/bin/env python3
"""Checkpoints of `engine bench save` beside torch.save and torch.load of as many bytes, in turns.

    tests/peers/saving.py build/release/tools/engine --python VENV/bin/python --dir DIR

torch.save does not wait for the disk: its time is given without and with an fsync. The time of
torch.load is that until the values are in tensors that were there before, as in a resumed training.
"""
import argparse
import csv
import io
import os
import statistics
import subprocess
import sys
import time

TENSORS = 124  # of resnet18-cifar with SGD's momentum


def torch_times(folder, size, rounds):
    import torch
    torch.set_num_threads(1)
    tensors = {f"p{i}": torch.randn(size // 4 // TENSORS) for i in range(TENSORS)}
    there = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    times = {"save": [], "synced": [], "load": []}
    for i in range(rounds):
        path = os.path.join(folder, f"torch-{i % 2}.pt")
        if os.path.exists(path):
            os.remove(path)
        start = time.perf_counter()
        torch.save(tensors, path)
        times["save"].append(time.perf_counter() - start)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        times["synced"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for name, tensor in torch.load(path).items():
            there[name].copy_(tensor)
        times["load"].append(time.perf_counter() - start)
    print(*(1e3 * statistics.median(values) for values in times.values()))
    for i in range(min(rounds, 2)):
        os.remove(os.path.join(folder, f"torch-{i}.pt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", nargs="?")
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--dir", default=".")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        return torch_times(options.dir, options.torch, 9)
    if options.engine is None:
        parser.error("the path of the engine program is missing")
    rows = {}
    for _ in range(options.rounds):
        out = subprocess.run([options.engine, "bench", "save", "--model", "resnet18-cifar", "--dir",
                              options.dir, "--rounds", "9", "--format", "csv"],
                             check=True, capture_output=True, text=True).stdout
        for row in list(csv.reader(io.StringIO(out)))[1:]:
            rows.setdefault(row[0], []).append(float(row[1]))
        out = subprocess.run([options.python, __file__, "--torch", "89448968", "--dir", options.dir],
                             check=True, capture_output=True, text=True).stdout
        for name, value in zip(("torch.save", "torch.save and fsync", "torch.load"), out.split()):
            rows.setdefault(name, []).append(float(value))
    print("| what | median, ms | least | most |\n|---|--:|--:|--:|")
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f} | "
              f"{max(values):.1f} |")


if __name__ == "__main__":
    main()
