#!/usr/bin/env python3
"""engine bench link and --sync auto between two hosts whose link has 10 Mbit/s and 50 ms each way.

Usage: tests/cluster/bench_link_test.py ENGINE     needs root, iproute2 and tbf; exits with 77 where one is missing
"""
import json
import os
import re
import sys
import tempfile

import link_emulator

RATE_MBIT, DELAY_MS = 10, 50
SECONDS = 120 * float(os.environ.get("ENGINE_TEST_TIME_SCALE") or 1)


def check_link(network, engine, backend):
    """Over gloo the sender waits for a control word, which must not count as a part of the rate."""
    out, _ = link_emulator.run_ranks(network, SECONDS, [engine, "bench", "link", "--backend", backend, "--format", "json"])
    row, = json.loads(out)["rows"]
    print(row)
    for name, wanted in (("there_mbit_s", RATE_MBIT), ("back_mbit_s", RATE_MBIT), ("round_trip_ms", 2 * DELAY_MS)):
        assert abs(row[name] - wanted) <= 0.15 * wanted, f"{name} is {row[name]}, expected {wanted} within 15 %"
    assert backend != "socket" or (row["there_segments"] > 0 and row["there_resent"] >= 0), row


def rows_of(text):
    """(options, overhead, points) of each candidate that was printed."""
    return [(" ".join(options.split()), float(overhead), float(points)) for options, overhead, points in re.findall(
        r"^(--sync .*?)  +[\d.]+ [kM]?B +[\d.]+ +([\d.]+) % +([\d.]+) ", text, re.MULTILINE)]


def check_choice(network, engine, folder):
    train = [engine, "train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "28x28x1", "--synthetic-size",
             "256", "--batch-size", "32", "--threads", "1", "--sync", "auto", "--save-dir", folder]
    for steps, candidates in ((10000, 6), (8, 3)):  # eight steps are too few for long periods
        text, _ = link_emulator.run_ranks(network, SECONDS, [*train, "--steps", str(steps), *(["--dry-run"] if steps > 8 else [])])
        print(text)
        rows = rows_of(text)
        assert len(rows) >= candidates, f"{len(rows)} candidates in the output"
        assert rows == sorted(rows, key=lambda row: row[2]), "the candidates are not in the order of their loss"
        fitting = [row for row in rows if row[1] <= 10] or [min(rows, key=lambda row: row[1])]
        chosen = re.search(r"Sync auto: chosen: (.*?) \(", text)[1]
        assert chosen == fitting[0][0], f"chosen is {chosen}, by the table {fitting[0][0]}"
        assert "--sync grad" not in chosen, "2.7 MB in each step cannot fit into 10 Mbit/s"
    again, _ = link_emulator.run_ranks(network, SECONDS, [*train, "--steps", "10", "--resume", "auto"])
    assert " recorded: " + chosen.split()[0][2:] + " " + chosen.split()[1] in again, again
    assert "slowest link" not in again, again


def main():
    engine = os.path.abspath(sys.argv[1])
    reason = link_emulator.missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    link = link_emulator.Link(rate=RATE_MBIT, delay=DELAY_MS / 2000)  # of each host: half of the way
    with link_emulator.Network([link] * 2) as network, tempfile.TemporaryDirectory() as folder:
        for backend in ("socket", "gloo"):
            check_link(network, engine, backend)
        check_choice(network, engine, os.path.join(folder, "run"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
