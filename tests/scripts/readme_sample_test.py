#!/usr/bin/env python3
"""Runs the commands of README.md's section "First run" whose output is shown there, and compares.

Usage: tests/scripts/readme_sample_test.py ENGINE
Each line shown must be printed, in this order; "..." stands for any lines. Times, speeds and the name of
the device may differ, and losses and accuracies by what another processor's rounding makes of them.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

engine = str(Path(sys.argv[1]).resolve())
readme = (Path(__file__).parents[2] / "README.md").read_text()
sample = re.search(r"^```\n(\$ engine train .*?)^```", readme, flags=re.M | re.S)[1].splitlines()

# What varies from run to run, and from machine to machine.
VARIABLE = [
    (r"on cpu \(.*?\)+ \|", "on cpu |"),
    (r"[\d,]+ images/s, [\d:]+ left", "N images/s, T left"),
    (r"completed in: [\d:.]+", "completed in: T"),
    (r"(?<=Accuracy: )[\d.]+|(?<=[Ll]oss: )[\d.]+|(?<=loss )[\d.]+|(?<=top-5 )[\d.]+", "X"),
    (r"accuracy [\d.]+ %", "accuracy X %"),
    (r"\(\d+/10000\)", "(X/10000)"),
]


def comparable(line):
    for pattern, replacement in VARIABLE:
        line = re.sub(pattern, replacement, line)
    return line


def run(command, folder):
    """The lines that a shell shows of a command: what it prints, and how it ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGINE_")}
    ended = subprocess.run([engine, *shlex.split(command)[1:]], cwd=folder, env=environment, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=250)
    return [*ended.stdout.splitlines(), f"(exit status {ended.returncode})"]


faults = []
with tempfile.TemporaryDirectory() as folder:
    printed, at, checked = [], 0, 0
    for line in sample:
        if line.startswith("$ "):
            printed, at = run(line[2:], folder), 0
        elif line != "...":
            wanted = comparable(line)
            found = next((i for i in range(at, len(printed)) if comparable(printed[i]) == wanted), None)
            checked += 1
            if found is None:
                near = [p for p in printed[at:] if p[:12] == line[:12]] or printed[at:at + 3]
                faults.append("README.md shows\n    " + line + "\n  but the program prints\n    " + "\n    ".join(near))
            else:
                for shown, now in zip(re.findall(r"accuracy ([\d.]+) %", line),
                                      re.findall(r"accuracy ([\d.]+) %", printed[found])):
                    if abs(float(shown) - float(now)) > 0.5:
                        faults.append(f"README.md shows an accuracy of {shown} %, the program reaches {now} %")
                at = found + 1
if checked < 10:
    faults.append(f"only {checked} lines of output found in README.md: this test reads it wrongly")
print("\n".join(faults) or f"{checked} lines of README.md are what the program prints")
sys.exit(1 if faults else 0)
