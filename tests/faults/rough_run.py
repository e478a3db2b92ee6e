#!/usr/bin/env python3
"""A training of two hosts with two ranks each under random signals, link cuts and port scans.

Usage: rough_run.py ENGINE [--seconds S] [--seed S] [--backend NAME] [--keep]      needs root and iproute2 with ss

The hosts are network namespaces. For --seconds something happens every one to five seconds, as --seed decides:

- a rank is killed; stopped for less than three heartbeats, or for more; or gets a signal that means nothing to it;
- the link between the hosts goes down, for less than three heartbeats or for more;
- somebody connects to every port on which the job listens, and sends noise.

Both launchers start their ranks again when the job fails. Then it may finish in peace, and its end has to be the same, bit for
bit, as that of a run to which nothing happened. Prints what was done and how often the job started again. Exit code: 0, 1 where
the ends differ, a launcher gave up or something was left behind, 77 where the system cannot do this.
"""
import argparse
import collections
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

from fail_calls import processes_with

SCAN = """
import os, re, socket, subprocess
for line in subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout.splitlines():
    host, port = line.split()[3].rsplit(":", 1)
    for noise in (b"", os.urandom(200), b"GET / HTTP/1.0\\r\\n\\r\\n"):
        try:
            with socket.create_connection((host.strip("[]"), int(port)), 1) as s:
                s.sendall(noise)
        except OSError:
            pass
"""


def rank_of(pid):
    """The rank that a process is; None: it is a launcher, or gone."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        rank = re.search(rb"(?:^|\0)RANK=(\d+)", pathlib.Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return None
    return int(rank[1]) if rank and b"train" in words[:3] else None


class Rough:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.dice = random.Random(options.seed)
        self.base = f"rough{os.getpid()}"
        self.mark = f"ROUGH_RUN={self.base}".encode()
        self.done = collections.Counter()
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text("%064x" % self.dice.getrandbits(256))
        self.environment = dict(os.environ, ROUGH_RUN=self.base, ENGINE_SECRET_FILE=str(secret), HOME=str(folder),
                                CUDA_VISIBLE_DEVICES="")
        self.launchers = []

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, stderr=subprocess.PIPE)

    def make_hosts(self):
        for i in (0, 1):
            self.ip("netns", "add", f"{self.base}-{i}")
        self.ip("-n", f"{self.base}-0", "link", "add", "data0", "type", "veth", "peer", "name", "data0", "netns", f"{self.base}-1")
        for i in (0, 1):
            host = ("-n", f"{self.base}-{i}")
            self.ip(*host, "address", "add", f"10.86.0.{i + 1}/24", "dev", "data0")
            self.ip(*host, "link", "set", "data0", "up")
            self.ip(*host, "link", "set", "lo", "up")

    def remove_hosts(self):
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for i in (0, 1):
            subprocess.run(["ip", "netns", "delete", f"{self.base}-{i}"], stderr=subprocess.DEVNULL)

    def launch(self, run, steps):
        train = ["train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-size", "6000", "--batch-size", "60", "--threads", "1",
                 "--steps", str(steps), "--save-every", "2s", "--keep-last", "2", "--eval-every", "0", "--log-every", "0",
                 "--backend", self.options.backend, "--timeout", "60", "--rdzv-timeout", "60", "--save-dir", str(self.folder / run)]
        self.launchers = []
        for i in (0, 1):
            command = ["ip", "netns", "exec", f"{self.base}-{i}", self.options.engine, "launch", "--nnodes", "2", "--node-rank", str(i),
                       "--nproc-per-node", "2", "--rdzv-endpoint", "10.86.0.1:29500", "--max-restarts", "100000", *train]
            log = open(self.folder / f"{run}.{i}.log", "ab")
            self.launchers.append(subprocess.Popen(command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                                   stdout=log, stderr=log))

    def wait(self, seconds):
        """The launchers' exit codes; None: not in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(l.poll() is None for l in self.launchers):
            time.sleep(0.1)
        return [l.poll() for l in self.launchers]

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except OSError:
            pass

    def disturb(self):
        ranks = [pid for pid in processes_with(self.mark) if rank_of(pid) is not None]
        what = self.dice.choice(["kill", "short stop", "short stop", "long stop", "signal", "signal", "signal", "short cut", "long cut",
                                 "scan", "scan"])
        if what in ("kill", "short stop", "long stop", "signal"):
            if not ranks:
                return
            pid = self.dice.choice(ranks)
            if what == "kill":
                self.signal(pid, signal.SIGKILL)
            elif what == "signal":
                self.signal(pid, self.dice.choice([signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT]))
            else:
                self.signal(pid, signal.SIGSTOP)
                time.sleep(self.dice.uniform(0.1, 1.5) if what == "short stop" else self.dice.uniform(4, 6))
                self.signal(pid, signal.SIGCONT)
        elif what == "scan":
            subprocess.run(["ip", "netns", "exec", f"{self.base}-{self.dice.randrange(2)}", "python3", "-c", SCAN])
        else:
            self.ip("-n", f"{self.base}-1", "link", "set", "data0", "down")
            time.sleep(self.dice.uniform(0.2, 1.5) if what == "short cut" else self.dice.uniform(4, 7))
            self.ip("-n", f"{self.base}-1", "link", "set", "data0", "up")
        self.done[what] += 1

    def logs(self, run):
        return "".join((self.folder / f"{run}.{i}.log").read_text(errors="replace") for i in (0, 1))

    def main(self):
        # As many steps as the disturbed run gets done in about its time.
        begin = time.monotonic()
        self.launch("pace", 2000)
        if self.wait(300) != [0, 0]:
            sys.exit(f"rough_run.py: the undisturbed run failed:\n{self.logs('pace')}")
        steps = max(2000, int(2000 / (time.monotonic() - begin) * self.options.seconds * 0.4))
        self.launch("whole", steps)
        if self.wait(self.options.seconds + 300) != [0, 0]:
            sys.exit(f"rough_run.py: the undisturbed run failed:\n{self.logs('whole')}")

        self.launch("rough", steps)
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end and None in [l.poll() for l in self.launchers]:
            time.sleep(self.dice.uniform(1, 5))
            self.disturb()
        codes = self.wait(self.options.seconds + 300)
        log = self.logs("rough")
        restarts = len(re.findall(r"restart \d+ of 100000 after", (self.folder / "rough.0.log").read_text(errors="replace")))
        print(f"{steps} steps; {sum(self.done.values())} disturbances: " +
              ", ".join(f"{n} x {what}" for what, n in sorted(self.done.items())) + f"; {restarts} restarts")
        for cause, count in collections.Counter(
                re.sub(r"\d+(\.\d+)?", "N", c) for c in re.findall(r"restart \d+ of 100000 after: (.*)", log)).most_common(12):
            print(f"  {count} x {cause[:150]}")
        bad = []
        if codes != [0, 0]:
            bad.append(f"the launchers ended with {codes}; the last they said:\n{log[-3000:]}")
        verify = subprocess.run([self.options.engine, "verify", str(self.folder / "whole"), str(self.folder / "rough")],
                                capture_output=True, text=True)
        if verify.returncode != 0:
            bad.append(f"the ends differ: {verify.stdout}{verify.stderr}")
        time.sleep(2)
        if left := processes_with(self.mark):
            bad.append(f"processes left: {left}")
        if left := [p.name for p in (self.folder / "rough").iterdir() if ".tmp" in p.name]:
            bad.append(f"files left: {left}")
        for text in bad:
            print(text)
        if not bad:
            print("the same end, bit for bit")
        return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--keep", action="store_true", help="keep the folder with runs and logs")
    options = parser.parse_args()
    options.engine = str(pathlib.Path(options.engine).resolve())
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("ss"):
        print("skipped: needs root and iproute2")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engine-rough-"))
    rough = Rough(options, folder)
    try:
        rough.make_hosts()
    except subprocess.CalledProcessError as error:
        rough.remove_hosts()
        print(f"skipped: {' '.join(error.cmd)}: {error.stderr.decode().strip()}")
        return 77
    try:
        return rough.main()
    finally:
        rough.remove_hosts()
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
