#!/usr/bin/env python3
"""Random histories of a run's folder: starts, kills, resumes with changed options, two jobs at once, full disks, folders
removed. After each action the best and the newest model that were ever reported as saved must still load.

Usage: run_histories.py ENGINE [--histories N] [--seed S] [--keep]
The same seed gives the same actions; how far a job is when it is killed depends on the machine.
"""
import argparse
import json
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

QUICK = ["--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "6x6x1", "--synthetic-size", "240", "--threads", "1",
         "--save-every", "3s", "--eval-every", "4s", "--log-every", "1"]
DEADLINE = 60  # seconds that any job may take
# Refused, stopped or killed. A signal may come before a process can handle it; other ranks then miss that one (69).
ALLOWED = {0, 65, 69, 73, 74, 75, 78, 79, 130, 143, -2, -9, -10, -15}


class Lost(Exception):
    pass


class History:
    def __init__(self, engine, seed, root):
        self.engine, self.random, self.root = engine, random.Random(seed), root
        self.folder = root / "run"
        self.log = []
        self.disk = False
        if self.random.random() < 0.3:
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(root)], capture_output=True)
            self.disk = mounted.returncode == 0
        self.saved = {}  # run id -> step -> bytes of what was reported as saved and must not be lost: newest and best

    def command(self, *more):
        return [self.engine, "train", *more]

    def start(self, arguments):
        self.log.append(" ".join(str(a) for a in arguments[1:]))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_")}
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.root.parent, env=environment)

    def finish(self, job):
        try:
            out, err = job.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            job.kill()
            raise Lost(f"a job ran for more than {DEADLINE} s")
        self.log.append(f"  -> {job.returncode} {err.decode(errors='replace').strip().splitlines()[-1:]}")
        if job.returncode not in ALLOWED:
            raise Lost(f"exit status {job.returncode}: {err.decode(errors='replace')}")
        return out.decode(errors="replace")

    def options(self):
        r = self.random
        more = ["--epochs", str(r.randint(1, 4)), "--keep-last", str(r.randint(1, 3))]
        if r.random() < 0.5:
            more += ["--lr", r.choice(["0.01", "0.05", "1e5"])]
        if r.random() < 0.3:
            more += ["--save-async"]
        if r.random() < 0.3:
            more += ["--batch-size", r.choice(["12", "24", "48"])]
        if r.random() < 0.1:
            more += ["--spawn", "2"]
        return more

    # Actions. Each returns when its jobs have ended.
    def fresh(self):
        self.finish(self.start(self.command(*QUICK, "--save-dir", self.folder, *self.options())))

    def overwrite(self):
        self.finish(self.start(self.command(*QUICK, "--save-dir", self.folder, "--overwrite", *self.options())))

    def resume(self):
        self.finish(self.start(self.command("--resume", self.folder, *self.options())))

    def requeue(self):
        self.finish(self.start(self.command(*QUICK, "--save-dir", self.folder, "--resume", "auto", *self.options())))

    def stopped(self):
        job = self.start(self.command(*QUICK, "--save-dir", self.folder, "--resume", "auto", *self.options()))
        time.sleep(self.random.random() * 0.25)
        job.send_signal(self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]))
        self.finish(job)

    def two_at_once(self):
        jobs = [self.start(self.command(*QUICK, "--save-dir", self.folder, "--resume", "auto", *self.options())) for _ in range(2)]
        for job in jobs:
            self.finish(job)

    def removed(self):
        job = self.start(self.command(*QUICK, "--save-dir", self.folder, "--resume", "auto", *self.options()))
        time.sleep(self.random.random() * 0.2)
        shutil.rmtree(self.folder, ignore_errors=True)  # the user's own doing: what was there is gone
        self.finish(job)
        self.saved.clear()

    ACTIONS = [("fresh", 3), ("overwrite", 1), ("resume", 4), ("requeue", 3), ("stopped", 6), ("two_at_once", 2), ("removed", 1)]

    # What must be there afterwards.
    def folders(self):
        return [d for d in self.root.iterdir() if d.is_dir() and d.name.startswith("run")]

    def observe(self):
        """Notes newest and best of each folder, and checks that what was noted before is not lost."""
        found = {}
        for folder in self.folders():
            record = folder / "run.json"
            if not record.exists():
                continue
            run = json.loads(record.read_text())["run"]
            found.setdefault(run, []).append(folder)
        for run, noted in self.saved.items():
            if run not in found:
                raise Lost(f"run {run} is gone")
            folder = found[run][0]
            names = {name: self.name_in(folder, name) for name in ("latest", "best")}
            for name, step in noted.items():
                if names[name] is None or names[name] not in [p.name for p in folder.iterdir()]:
                    raise Lost(f"{folder}: {name} names {names[name]}, which is not there ({step} was)")
        self.saved = {}
        for run, folders in found.items():
            for name in ("latest", "best"):
                checkpoint = self.name_in(folders[0], name)
                if checkpoint is None:
                    continue
                path = folders[0] / checkpoint
                for arguments in (["inspect", path, "--check"], ["eval", path]):
                    result = subprocess.run([self.engine, *arguments], capture_output=True, text=True, timeout=DEADLINE)
                    # A learning rate that is too high makes outputs infinite before parameters.
                    diverged = result.returncode == 65 and "output" in result.stderr and "is not finite" in result.stderr
                    if result.returncode != 0 and not diverged:
                        raise Lost(f"{name} of {folders[0]}, {checkpoint}: {result.stderr.strip()}")
                self.saved.setdefault(run, {})[name] = checkpoint

    @staticmethod
    def name_in(folder, name):
        try:
            text = (folder / name).read_text().strip()
        except FileNotFoundError:
            return None
        return text if re.fullmatch(r"step-\d{8,}\.ckpt", text) else None

    def play(self):
        names, weights = zip(*self.ACTIONS)
        for _ in range(self.random.randint(3, 7)):
            action = self.random.choices(names, weights)[0]
            self.log.append(action)
            getattr(self, action)()
            self.observe()

    def end(self):
        if self.disk:
            subprocess.run(["umount", str(self.root)], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("--histories", type=int, default=int(os.environ.get("ENGINE_HISTORIES", "30")))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started, actions = time.time(), 0
    for seed in range(arguments.seed, arguments.seed + arguments.histories):
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary) / "disk"
            root.mkdir()
            history = History(os.path.abspath(arguments.engine), seed, root)
            try:
                history.play()
            except Lost as lost:
                print(f"seed {seed}: {lost}\n  " + "\n  ".join(history.log), file=sys.stderr)
                return 1
            finally:
                history.end()
            actions += sum(1 for line in history.log if line in dict(History.ACTIONS))
    print(f"{arguments.histories} histories, {actions} actions, none lost, {time.time() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
