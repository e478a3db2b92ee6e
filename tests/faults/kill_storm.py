#!/usr/bin/env python3
"""An elastic job whose ranks are killed, stopped and cut off all the time, beside one that is left alone.

Usage: kill_storm.py ENGINE [--seconds S] [--seed S] [--ranks N] [--least M] [--backend NAME] [--order canonical|fast]
                     [--pause MIN:MAX] [--model NAME] [--save-async] [--keep]

`engine launch --respawn` keeps N ranks going. Every half to two seconds (--pause), as --seed decides, one of them

- is killed; or all but --least of them are;
- is stopped, for less than three heartbeats or for more, in which case the others expel it and take it in again;
- loses its connections, where the system can do that (ss -K).

At least M ranks that have the job's state are neither dead nor stopped at any time, so it has to go on: the storm fails if no
step is done for a minute, if the job ends or begins again, if replicas differ (they are compared after every change and every
20 steps), and in canonical order if the state is not that of an undisturbed run of as many steps, bit for bit. Then the job
is stopped in order. Prints what was done, and how long the changes took. Exit code: 0, 1 where something of this failed.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from elastic_acceptors import AcceptorFiles
from fail_calls import processes_with

HEARTBEAT = 0.3


class Storm:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.dice = random.Random(options.seed)
        self.mark = f"KILL_STORM={os.getpid()}\0".encode()
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text("%064x" % self.dice.getrandbits(256))
        self.environment = dict(os.environ, KILL_STORM=str(os.getpid()), ENGINE_SECRET_FILE=str(secret), HOME=str(folder),
                                CUDA_VISIBLE_DEVICES="")
        self.done = collections.Counter()
        self.stopped = {}  # pid: when it goes on
        self.ever = set()  # all ranks that there have been
        self.acceptor_files = AcceptorFiles()
        self.generation, self.members = 0, ()  # by the acceptor files
        self.group, self.read_to, self.said, self.starts = 0, 0, 0, 0  # by the metrics: generation, bytes, last step, runs
        self.certain_at = 0  # the step after which all ranks of the group have the state
        self.holders = set()  # those that surely have the state
        self.events = []

    def train(self, run, steps, heartbeat=HEARTBEAT):
        return ["train", "--model", self.options.model, "--dataset", "synthetic", "--synthetic-size", "4000", "--batch-size", "48",
                "--threads", "1", "--steps", str(steps), "--log-every", "2", "--eval-every", "400s", "--save-every", "200s",
                "--keep-last", "2", "--heartbeat", str(heartbeat), "--backend", self.options.backend, "--reduction-order",
                self.options.order, "--verify-every", "20", "--save-dir", str(self.folder / run),
                *(["--save-async"] if self.options.save_async else [])]

    def start(self, run, arguments):
        self.log = self.folder / f"{run}.log"
        self.job = subprocess.Popen([self.options.engine, *arguments], env=self.environment, cwd=self.folder,
                                    stdin=subprocess.DEVNULL, stdout=open(self.log, "ab"), stderr=subprocess.STDOUT)

    def ranks(self):
        """The processes of ranks."""
        found = []
        for pid in processes_with(self.mark):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"train" in words[:3]:
                found.append(pid)
        self.ever.update(found)
        return found

    def look(self):
        """Who has the state: who had it and is in the next group, and when that has done two steps, all of it."""
        if not self.ever:
            self.ranks()
        self.acceptor_files.look(self.ever)
        generation, members = self.acceptor_files.newest()
        if generation != self.generation:
            self.holders &= set(members) if generation == self.generation + 1 else set()
            self.generation, self.members = generation, members
        for event in self.new_metrics():
            self.said = event["step"]
            if event["event"] == "start":
                self.starts += 1
                self.group, self.certain_at = generation, self.said + 2
            elif event["event"] == "membership":
                self.group, self.certain_at = event["generation"], self.said + 2
            elif event["event"] == "step" and self.said >= self.certain_at and self.group == generation:
                self.holders |= set(members) - set(self.stopped)

    def new_metrics(self):
        try:
            with open(self.folder / "storm" / "metrics.jsonl", "rb") as file:
                file.seek(self.read_to)
                data = file.read()
        except OSError:
            return []
        whole = data[:data.rfind(b"\n") + 1]
        self.read_to += len(whole)
        events = []
        for line in whole.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:  # its writer was killed within it
                continue
        return events

    def doubt(self, pid):
        """A rank that is stopped may be left out, and has the state for sure when it has taken part in further steps."""
        self.holders.discard(pid)
        self.look()
        self.holders.discard(pid)
        self.certain_at = self.said + 2

    def note(self, what):
        self.events.append(f"{time.time():.3f} after step {self.said}: {what}; the state is with {sorted(self.holders)}; "
                           f"stopped {sorted(self.stopped)}; generation {self.generation}: {list(self.members)}")

    def step(self):
        try:
            return json.loads((self.folder / "storm" / "status.json").read_text())["step"]
        except (OSError, ValueError, KeyError):
            return 0

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except OSError:
            pass

    def thaw(self, everything=False):
        for pid, until in list(self.stopped.items()):
            if everything or time.monotonic() >= until:
                self.send(pid, signal.SIGCONT)
                self.doubt(pid)
                del self.stopped[pid]
                self.note(f"process {pid} goes on")

    def strike(self):
        live = set(self.ranks()) - set(self.stopped)
        holders = sorted(live & self.holders)
        spare = len(holders) - self.options.least
        if spare < 0:
            return
        spared = self.dice.sample(holders, self.options.least)
        victims = sorted(live - set(spared))
        if not victims:
            return
        what = self.dice.choice(["kill", "kill", "kill", "kill", "many", "short stop", "long stop", "long stop", "reset"])
        pid = self.dice.choice(victims)
        self.note(f"{what}, process {pid}, spared {spared}")
        if what == "kill":
            self.send(pid, signal.SIGKILL)
            self.done["kills"] += 1
        elif what == "many":
            for victim in victims:
                self.send(victim, signal.SIGKILL)
                self.done["kills"] += 1
        elif what == "reset":
            if not shutil.which("ss") or os.geteuid() != 0:
                return
            ports = re.findall(r":(\d+)\s+\S+\s+users:.*pid=%d," % pid,
                               subprocess.run(["ss", "-Htnp", "state", "established"], capture_output=True, text=True).stdout)
            if not ports:
                return
            cut = subprocess.run(["ss", "-HtK", "dport", "=", self.dice.choice(ports)], capture_output=True, text=True)
            if not cut.stdout.strip():  # a kernel that cannot do it (CONFIG_INET_DIAG_DESTROY), or the connection has gone
                return
            self.done["resets"] += 1
        else:
            self.send(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + (self.dice.uniform(0.05, 2 * HEARTBEAT) if what == "short stop"
                                                    else self.dice.uniform(4 * HEARTBEAT, 10 * HEARTBEAT))
            self.doubt(pid)
            self.done[what + "s"] += 1

    def storm(self):
        self.start("storm", ["launch", "--nproc-per-node", str(self.options.ranks), "--respawn", "--respawn-pause", "1",
                             *self.train("storm", 100_000_000), "--elastic", f"{self.options.least}:{self.options.ranks}",
                             "--rdzv-timeout", "120"])
        begin = moved = time.monotonic()
        step, next_strike, rest, stopping = 0, begin + 3, begin + self.options.seconds, False
        while self.job.poll() is None:
            time.sleep(0.02)
            self.look()
            if self.starts > 1:
                text = self.log.read_text(errors="replace")
                return ["the job began again, although a rank that had its state lived. What was done last:",
                        *self.events[-12:], "What was said before:",
                        text[:[m.start() for m in re.finditer(r": engine \S+: .* parameters", text)][-1]][-5000:]]
            now = time.monotonic()
            self.thaw(now > rest)
            if now > rest + 2 and not stopping:  # those that were stopped have noticed what they missed
                stopping = True
                self.job.send_signal(signal.SIGTERM)
            if next_strike <= now < rest:
                self.strike()
                next_strike = now + self.dice.uniform(*self.options.pause)
            if self.step() != step:
                step, moved = self.step(), now
            if now - moved > 60:
                return [f"no step is done for a minute after step {step}: it hangs"]
        ended = 128 + signal.SIGTERM
        return [] if self.job.returncode == ended else [f"the job ended with {self.job.returncode}, expected {ended}"]

    def main(self):
        bad = self.storm()
        text = self.log.read_text(errors="replace")
        changes = [(int(n), float(s)) for n, s in re.findall(r"membership: (\d+) ranks? \(.*after (\d+\.\d+) s", text)]
        times = sorted(s for _, s in changes)
        print(f"{self.options.backend}, {self.options.ranks} ranks, seed {self.options.seed}: " +
              ", ".join(f"{n} {what}" for what, n in sorted(self.done.items())) + f"; {len(changes)} changes")
        if times:
            print(f"  from a loss or a wish to join to the next group: median {statistics.median(times):.2f} s, "
                  f"p99 {times[int(len(times) * 0.99)]:.2f} s, longest {times[-1]:.2f} s")
        if not bad and self.options.order == "canonical":
            try:
                steps = int(re.search(r"\d+", (self.folder / "storm" / "latest").read_text())[0])
            except OSError:
                sys.exit("no step was done: more --seconds")
            # Nobody is taken in again there, so a busy machine must not look like a dead rank.
            self.start("whole", [*self.train("whole", steps, heartbeat=30), "--spawn", "2"])
            if self.job.wait() != 0:
                bad.append("the undisturbed run failed:\n" + self.log.read_text(errors="replace")[-2000:])
            verify = subprocess.run([self.options.engine, "verify", "--only", "all", str(self.folder / "whole"),
                                     str(self.folder / "storm")], capture_output=True, text=True)
            if verify.returncode != 0:
                bad.append(f"the ends differ: {verify.stdout}{verify.stderr}")
        if bad:
            print("\n".join(bad) + "\nthe last that was said:\n" + text[-6000:])
        elif self.options.order == "canonical":
            print(f"  after {steps} steps the same state, bit for bit")
        if not self.done:
            print("nothing was done: more --seconds")
        return 1 if bad or not self.done else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--order", default="canonical", choices=["canonical", "fast"])
    parser.add_argument("--pause", default="0.5:2", type=lambda text: [float(part) for part in text.split(":")])
    parser.add_argument("--save-async", action="store_true", help="checkpoints are written beside the training")
    parser.add_argument("--keep", action="store_true", help="keep the folder with runs and logs")
    options = parser.parse_args()
    options.engine = str(pathlib.Path(options.engine).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engine-storm-"))
    storm = Storm(options, folder)
    try:
        code = storm.main()
    finally:
        for pid in processes_with(storm.mark):
            storm.send(pid, signal.SIGKILL)
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
