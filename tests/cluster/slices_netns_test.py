#!/usr/bin/env python3
"""--slices measured between four hosts, of which one pair has a link ten times slower than the others.

Usage: tests/cluster/slices_netns_test.py ENGINE [--rounds N] [--backend NAME] [--bytes N]
Needs root, iproute2 and tbf; exits with 77 where one is missing. Prints the times of an all-reduce with equal and with measured
slices, by turns, and fails if the medians do not show that the measured ones avoid the slow link, or if a training run ends with
other bits.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import link_emulator

HOSTS, RATE_MBIT, SLOW_MBIT = 4, 400, 40
SECONDS = 120 * float(os.environ.get("ENGINE_TEST_TIME_SCALE") or 1)


def check_choice(text):
    """The line of the choice names the slow link, and hosts 0 and 1 sum little."""
    line = re.search(r"Slices: .*", text)
    assert line, text
    print(line[0])
    shares = [int(share) for share in re.findall(r"rank \d (\d+) %", line[0])]
    assert len(shares) == HOSTS and shares[0] + shares[1] <= 25, line[0]
    name = re.search(r"slowest link: ranks 0 and 1, ([\d.]+) Mbit/s", line[0])
    assert name and abs(float(name[1]) - SLOW_MBIT) <= 0.2 * SLOW_MBIT, line[0]


def milliseconds(network, bench, slices):
    out, notices = link_emulator.run_ranks(network, SECONDS, [*bench, "--slices", slices])
    if slices == "measured":
        check_choice(out + notices)
    row, = json.loads(out)["rows"]
    assert row["wrong"] == 0, row
    return row["p50_us"] / 1000


def check_times(network, engine, asked):
    bench = [engine, "bench", "comm", "--op", "allreduce", "--sizes", str(asked.bytes), "--backend", asked.backend, "--iters", "3",
             "--warmup", "2", "--seconds", "30", "--format", "json"]
    times = {"equal": [], "measured": []}
    for _ in range(asked.rounds):
        for slices, of_one in times.items():
            of_one.append(milliseconds(network, bench, slices))
    equal, measured = (statistics.median(of_one) for of_one in times.values())
    print(f"all-reduce of {asked.bytes} bytes, {asked.backend}: equal slices {equal:.0f} ms, measured {measured:.0f} ms; all: {times}")
    assert measured < equal / 1.5, "the measured slices do not avoid the slow link"


def check_training(network, engine, folder):
    """The same bits with equal and measured slices."""
    models = []
    for slices in ("equal", "measured"):
        save = os.path.join(folder, slices)
        out, notices = link_emulator.run_ranks(network, SECONDS, [
            engine, "train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "28x28x1", "--synthetic-size", "256",
            "--batch-size", "32", "--threads", "1", "--steps", "4", "--save-dir", save, "--slices", slices])
        if slices == "measured":
            check_choice(out + notices)
        subprocess.run([engine, "export", save, "-o", f"{save}.safetensors"], check=True, stdout=subprocess.PIPE)
        with open(f"{save}.safetensors", "rb") as file:
            models.append(file.read())
    assert models[0] == models[1], "the models differ"
    print(f"the models are equal: {len(models[0])} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--backend", default="socket")
    parser.add_argument("--bytes", type=int, default=25 << 20)
    asked = parser.parse_args()
    engine = os.path.abspath(asked.engine)
    reason = link_emulator.missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    with link_emulator.Network([link_emulator.Link(rate=RATE_MBIT)] * HOSTS) as network, tempfile.TemporaryDirectory() as folder:
        network.join(0, 1, SLOW_MBIT)
        check_times(network, engine, asked)
        check_training(network, engine, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
