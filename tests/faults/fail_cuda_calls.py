#!/usr/bin/env python3
"""Fails calls of the CUDA runtime one at a time, on the emulated GPU, and checks what the program makes of that.

Usage: fail_cuda_calls.py ENGINE [--scenario A,B] [--runs N] [--seconds S] [--seed S] [--list]
       fail_cuda_calls.py ENGINE --scenario A --at N [--good] [--keep]

ENGINE is of a build with the emulator (ENGINE_WITH_CUDA=EMULATED). Each scenario runs once undisturbed, where the emulator
notes its calls and launches. Then each fails in turn, in an order that --seed decides, until --runs or --seconds are used up:
once alone, and once with all that come after it (a device that is lost). Afterwards

- the program has ended in time, not by a signal nor as "an error inside the program": with 0, or with 69 and one line
  "engine: error: ..." that names the call or says that memory is missing, or with 78 and one that says why no device is there;
- what was reported as saved is there and loads, and the same command with --resume auto ends with the same model as the
  undisturbed run, bit by bit; so does a run that went on in spite of the fault.

The second form makes one such run. Exit code: 0, 1 with violations, 77 where the program has no emulated GPU.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MLP = ["train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "4x4x1", "--synthetic-size", "40",
       "--batch-size", "8", "--threads", "1", "--epochs", "2", "--momentum", "0.9", "--save-every", "3s", "--eval-every", "1e",
       "--device", "cuda", "--save-dir", "run", "--timeout", "10", "--rdzv-timeout", "10"]
SCENARIOS = {
    "train": MLP,
    "plain": [*MLP, "--cuda-graph", "off", "--grad-accum", "2"],
    "half": [*MLP, "--amp", "O2", "--optimizer", "adamw"],
    "async": [*MLP, "--save-async", "--no-pin-memory"],
    "nccl": [*MLP, "--spawn", "2", "--backend", "nccl"],
    "staged": [*MLP, "--spawn", "2", "--backend", "shm"],
}
SCENARIOS["half"] = [w for w in SCENARIOS["half"] if w not in ("--momentum", "0.9")]
DEADLINE = 60


class Outcome:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def errors(self):
        return re.findall(r"^(?:\S+: )?engine: error: .*", self.err, re.M)


class Driver:
    def __init__(self, options, root):
        self.options, self.root, self.number = options, pathlib.Path(root), 0
        self.scale = float(os.environ.get("ENGINE_TEST_TIME_SCALE", "1"))

    def run(self, arguments, folder, extra=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_EMULATED")}
        environment.update({"ENGINE_EMULATED_GPUS": "2", "LC_ALL": "C"}, **(extra or {}))
        began = time.monotonic()
        job = subprocess.Popen([self.options.engine, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=True)
        try:
            out, err = job.communicate(timeout=DEADLINE * self.scale)
            code = job.returncode
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)  # with its ranks, which hold the pipes open
            out, err = job.communicate()
            code = None
        return Outcome(code, out, err, time.monotonic() - began)

    def folder(self):
        self.number += 1
        folder = self.root / f"{self.number:05d}"
        folder.mkdir()
        return folder

    def undisturbed(self, name):
        folder = self.folder()
        outcome = self.run(SCENARIOS[name], folder, {"ENGINE_EMULATED_CALLS": str(folder / "calls")})
        if outcome.code == 78 and "nccl" in outcome.err:
            return None, None
        if outcome.code != 0:
            sys.exit(f"fail_cuda_calls.py: {name} ends with {outcome.code} undisturbed: {outcome.err}")
        return folder, (folder / "calls").read_text().split()

    def last(self, run):
        return max(run.glob("step-*.ckpt"), default=None)

    def same(self, usual, run):
        return self.run(["verify", str(self.last(usual)), str(self.last(run))], self.root).code == 0

    def attempt(self, name, usual, at, good):
        folder = self.folder()
        run = folder / "run"
        fault = {"ENGINE_EMULATED_FAIL": str(at), "ENGINE_EMULATED_FAIL_FOR_GOOD": "1" if good else ""}
        outcome = self.run(SCENARIOS[name], folder, fault)
        wrong, errors = [], outcome.errors()
        if outcome.code is None:
            wrong.append(f"no end after {DEADLINE} s")
        elif outcome.code == 78 and any("no CUDA device (" in e and "--device cpu" in e for e in errors):
            pass  # it was lost while devices were counted
        elif outcome.code not in (0, 69):
            wrong.append(f"exit code {outcome.code}")
        elif outcome.code == 69 and not errors:
            wrong.append("no message")
        elif outcome.code == 69 and len(errors) > 1 and "--spawn" not in SCENARIOS[name]:
            wrong.append("several messages")
        named = r"cuda[A-Z]\w+|out of memory" + ("|rank" if "--spawn" in SCENARIOS[name] else "")
        if outcome.code == 69 and errors and not any(re.search(named, e) for e in errors):
            wrong.append("a message that does not name the call")
        saved = re.findall(r"Saved step (\d+): ", outcome.out)
        if saved and not any(int(f.name[5:13]) >= int(saved[-1]) for f in run.glob("step-*.ckpt")):
            wrong.append(f"step {saved[-1]} was reported as saved, and is not there")
        if run.exists() and list(run.glob(".*tmp*")):
            wrong.append("a temporary file is left")
        if outcome.code == 0 and not self.same(usual / "run", run):
            wrong.append("another model")
        if outcome.code not in (0, None):
            again = self.run([*SCENARIOS[name], "--resume", "auto"], folder)
            if again.code != 0:
                wrong.append(f"does not go on: {again.code}: {again.err[-500:]}")
            elif not self.same(usual / "run", run):
                wrong.append("another model after going on")
        if self.options.keep:
            print(f"code {outcome.code} after {outcome.seconds:.1f} s in {folder}\n{outcome.out}{outcome.err}")
        else:
            shutil.rmtree(folder)
        return outcome, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--scenario", default="train")
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at", type=int)
    parser.add_argument("--good", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.engine = os.path.abspath(options.engine)
    gpus = subprocess.run([options.engine, "env"], env=dict(os.environ, ENGINE_EMULATED_GPUS="1"), stdout=subprocess.PIPE, text=True)
    if "emulated GPU" not in gpus.stdout:
        print("fail_cuda_calls.py: skipped: no emulated GPU")
        return 77
    root = tempfile.mkdtemp(prefix="engine-cuda-calls-")
    driver = Driver(options, root)
    failures, runs, codes = 0, 0, {}
    chosen = []
    for name in options.scenario.split(","):
        usual, calls = driver.undisturbed(name)
        if usual is None:
            continue
        print(f"{name}: {len(calls)} calls", flush=True)
        if options.list:
            print(" ".join(calls))
        most = len(calls) if "--spawn" not in SCENARIOS[name] else len(calls) // 2
        each = [(options.at, options.good)] if options.at else [(n, g) for n in range(1, most + 1) for g in (False, True)]
        chosen += [(name, usual, calls, at, good) for at, good in each]
    random.Random(options.seed).shuffle(chosen)
    begin = time.monotonic()
    for name, usual, calls, at, good in chosen if not options.list else []:
        if runs >= options.runs or time.monotonic() - begin > options.seconds:
            break
        runs += 1
        outcome, wrong = driver.attempt(name, usual, at, good)
        codes[outcome.code] = codes.get(outcome.code, 0) + 1
        for what in wrong:
            failures += 1
            print(f"{name}: call {at} ({calls[at - 1]}{', and all after it' if good else ''}): {what}\n"
                  f"  {(outcome.errors() or [outcome.err[-300:]])[-1]}\n"
                  f"  {sys.argv[0]} {options.engine} --scenario {name} --at {at}{' --good' if good else ''} --keep", flush=True)
    if not options.keep:
        shutil.rmtree(root)
    print(f"{runs} of {len(chosen)} faults, exit codes " + ", ".join(f"{c}: {n}" for c, n in sorted(codes.items(), key=str)) +
          f"; {failures} violations")
    return 1 if failures or (runs == 0 and chosen and not options.list) else 0


if __name__ == "__main__":
    sys.exit(main())
