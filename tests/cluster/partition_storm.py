#!/usr/bin/env python3
"""Elastic jobs over two to four hosts whose network falls apart and comes back, again and again.

Usage: partition_storm.py ENGINE [--histories N] [--seed S] [--beside N] [--steps N] [--minutes M] [--verbose]
                          [--keep]
                                                              needs root, iproute2, iptables and a kernel with bridges

The hosts are network namespaces on a bridge, with one or two ranks each, started by hand; all write to one folder. In a
history some of these happen, one after the other or at once, for less or more than three heartbeats, as the seed decides:

- the links of some hosts go down, at the far end or at the host's own interface, once or several times in a row;
- hosts fall into two halves of any size, or each is alone, or two of them lose each other and only them;
- what one host, or one half, sends is lost, and what it is sent arrives; or the other way round;
- what a host sends and is sent takes 200 ms longer.

A rank that ends with another code than 0 is started again. For each history is checked:

- The job finishes, and its end is that of an undisturbed run, bit for bit. No replicas differ on the way. When the network is
  whole again, all ranks are soon in one group.
- The metrics, which all first ranks append to one file: step numbers and generations only rise, no step is missing between
  two changes, and behind a change the steps go on from where it says. A step is reported when all ranks of its generation
  have done it, and one of them is in the next, so a step that is reported twice has been done on two sides.
- What the processes print: each step is reported by one of them, and they report one after the other.
- The hosts' acceptor files, which are looked at all the time: all that ever name a generation name the same ranks for it, as many
  as the metrics say, and who reports steps is the first of some generation.
- A clean cut in calm: ranks that are not enough stop, say that they wait, and report no steps until it is healed; those that
  are enough go on.

Several histories (--beside) go on side by side, each between hosts of its own; most of a history's time is waiting.

Prints the seed of a history that fails, what was done in it and what was said. The same seed makes the same plan; how far the
job is at each moment depends on the machine. Exit code: 0, 1 where something failed, 77 where the system cannot do this.
"""
import argparse
import collections
import concurrent.futures
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
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "faults"))
from elastic_acceptors import AcceptorFiles  # noqa: E402
from fail_calls import processes_with  # noqa: E402
from link_emulator import Link, relay  # noqa: E402

HEARTBEAT = 0.3
SILENCE = 3 * HEARTBEAT
SUBNET = "10.87.0"
SCALE = float(os.environ.get("ENGINE_TEST_TIME_SCALE") or 1)
DEADLINE = 90 * SCALE  # seconds from the last healing to the end
TOGETHER = 10 * SCALE  # from then until all ranks are in
PATIENCE = 60          # --rdzv-timeout

# Steps that take about 10 ms on one core and send little: a job lasts as long as its history, however many ranks it has.
COMMON = ["--dataset", "synthetic", "--synthetic-size", "4800", "--threads", "1", "--log-every", "1",
          "--verify-every", "20", "--eval-every", "200s", "--save-every", "50s", "--keep-last", "2",
          "--reduction-order", "canonical", "--heartbeat", str(HEARTBEAT)]
SMALL = pathlib.Path(__file__).resolve().parents[2] / "models" / "examples" / "small.toml"
OPTIONS = [
    ["--model", "convnet", "--batch-size", "48"],
    ["--model", "convnet", "--synthetic-shape", "16x16x1", "--batch-size", "96", "--optimizer", "adamw", "--save-async"],
    ["--model", str(SMALL), "--batch-size", "128"],
]

CUTS = ("ports", "interfaces", "split")  # that leave no doubt who can reach whom

NOISE = re.compile(r"^Accuracy|^  [\d,]+ images/s|^Epoch|^Best|^Test|is slow: its own work")

def run(*command, text=None):
    subprocess.run(command, check=True, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Hosts:
    """Network namespaces BASE-0, BASE-1, ... on a bridge in BASE-hub; and which of them cannot reach which."""

    def __init__(self, base, count):
        self.base, self.count = base, count
        self.lags = {}
        self.dropped = [set() for _ in range(count)]  # by receiver: the hosts whose packets are lost
        self.netem = None
        self.remove()
        run("ip", "netns", "add", f"{base}-hub")
        hub = ("ip", "-n", f"{base}-hub", "link")
        run(*hub, "add", "bridge", "type", "bridge")
        run(*hub, "set", "bridge", "up")
        for i in range(count):
            host = ("ip", "-n", self.name(i))
            run("ip", "netns", "add", self.name(i))
            run(*hub, "add", f"port{i}", "type", "veth", "peer", "name", "data0", "netns", self.name(i))
            run(*hub, "set", f"port{i}", "master", "bridge", "up")
            run(*host, "address", "add", f"{SUBNET}.{i + 1}/24", "dev", "data0")
            run(*host, "link", "set", "data0", "up")
            run(*host, "link", "set", "lo", "up")
            run(*self.inside(i), "iptables-restore", text="*filter\nCOMMIT\n")

    def name(self, i):
        return f"{self.base}-{i}"

    def inside(self, i):
        return ["ip", "netns", "exec", self.name(i)]

    def remove(self):
        for i in list(self.lags):
            self.lags.pop(i).kill()
        for i in [*range(self.count), "hub"]:
            subprocess.run(["ip", "netns", "delete", self.name(i)], stderr=subprocess.DEVNULL)

    def set_port(self, i, up):
        run("ip", "-n", f"{self.base}-hub", "link", "set", f"port{i}", "up" if up else "down")

    def set_interface(self, i, up):
        run("ip", "-n", self.name(i), "link", "set", "data0", "up" if up else "down")

    def set_dropped(self, pairs):
        """Exactly these pairs (from, to) of hosts lose what the one sends to the other, without a word."""
        changing = []
        for i in range(self.count):
            sources = {a for a, b in pairs if b == i}
            if sources == self.dropped[i]:
                continue
            self.dropped[i] = sources
            rules = "".join(f"-A INPUT -s {SUBNET}.{a + 1} -j DROP\n" for a in sorted(sources))
            restore = subprocess.Popen([*self.inside(i), "iptables-restore"], stdin=subprocess.PIPE, text=True)
            restore.stdin.write(f"*filter\n{rules}COMMIT\n")
            restore.stdin.close()
            changing.append(restore)
        if any(restore.wait() != 0 for restore in changing):
            raise subprocess.CalledProcessError(1, "iptables-restore")

    def set_lag(self, i, seconds):
        """What the host sends and is sent takes so much longer each way; 0: no longer."""
        if self.netem is None:
            probe = [*self.inside(i), "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "0ms"]
            self.netem = subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0
        if self.netem:
            netem = ("root", "netem", "delay", f"{1000 * seconds:.0f}ms", "limit", "10000")
            run("tc", "-n", self.name(i), "qdisc", "replace", "dev", "data0", *netem)
            run("tc", "-n", f"{self.base}-hub", "qdisc", "replace", "dev", f"port{i}", *netem)
            return
        hub = ("ip", "-n", f"{self.base}-hub", "link")
        if seconds == 0:
            run(*hub, "set", f"port{i}", "master", "bridge")
            lag = self.lags.pop(i)
            lag.kill()
            lag.wait()
            run(*hub, "delete", f"lag{i}")
            return
        run(*hub, "add", f"lag{i}", "type", "veth", "peer", "name", f"late{i}")
        run(*hub, "set", f"lag{i}", "up")
        run(*hub, "set", f"late{i}", "master", "bridge", "up")
        self.lags[i] = relay(f"{self.base}-hub", f"port{i}", f"lag{i}", Link(delay=seconds))
        run(*hub, "set", f"port{i}", "nomaster")


class Process:
    """A rank: what it says, and when."""

    def __init__(self, hosts, host, command, environment, folder):
        self.host, self.lines = host, []
        named = ["unshare", "--uts", "sh", "-c", f'echo n{host} >/proc/sys/kernel/hostname && exec "$@"', "sh"]
        self.process = subprocess.Popen([*hosts.inside(host), *named, *command], env=environment, cwd=folder,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pid = self.process.pid  # it only becomes another program
        self.born = time.time()
        self.ended, self.ended_at = None, float("inf")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.time(), line.decode(errors="replace").rstrip("\n")))

    def said(self, pattern):
        """(time, match) of each line that has it."""
        return [(at, match) for at, line in list(self.lines) if (match := re.search(pattern, line))]


class Plan:
    """What a seed decides."""

    def __init__(self, seed):
        dice = self.dice = random.Random(seed)
        while True:
            self.ranks = [dice.choice([1, 1, 2]) for _ in range(dice.choice([2, 2, 3, 3, 4]))]
            if 2 <= sum(self.ranks) <= 6:
                break
        self.world = sum(self.ranks)
        self.least = dice.choice([1, 1, 1, 2, self.world // 2 + 1])
        self.options = dice.choice(OPTIONS)
        self.early = dice.random() < 0.15  # it begins before the job does
        self.order = dice.sample([(i, k) for i, n in enumerate(self.ranks) for k in range(n)], self.world)
        self.events, at = [], dice.uniform(0.5, 2)
        while at < 15 and len(self.events) < 9:
            event = self.event()
            event["at"] = at
            self.events.append(event)
            alone = event["calm"] or dice.random() < 0.7
            at += event["seconds"] + dice.uniform(1.5, 3) if alone else dice.uniform(0.2, event["seconds"])

    def event(self):
        dice, hosts = self.dice, len(self.ranks)
        what = dice.choice(["ports", "ports", "interfaces", "split", "split", "split", "apart", "mute", "deaf", "one way",
                            "pair", "lag", "lag", "flicker"])
        calm = what in CUTS and dice.random() < 0.5
        short, long = (0.1, 0.8 * SILENCE), (1.5, 3)
        ranges = [short, long, long, (7, 8)] if calm else [short, (0.8 * SILENCE, 1.3 * SILENCE), long, long, (3, 5)]
        some = sorted(dice.sample(range(hosts), dice.randint(1, hosts - 1)))
        event = {"what": what, "seconds": dice.uniform(*dice.choice(ranges)), "hosts": some, "calm": calm}
        if what in ("mute", "deaf"):
            event["hosts"] = some[:1]
        elif what == "pair":
            event["hosts"] = sorted(dice.sample(range(hosts), 2))
        elif what == "apart":
            event["hosts"] = list(range(hosts))
        elif what == "flicker":
            event["times"] = [dice.uniform(0.05, 0.6) for _ in range(2 * dice.randint(2, 5))]
        return event

    def __str__(self):
        hosts = "+".join(map(str, self.ranks))
        return (f"{hosts} ranks, --elastic {self.least}:{self.world}, {pathlib.Path(self.options[1]).name}" +
                (", from before its start" if self.early else "") + "; " +
                ", ".join(f"{e['at']:.1f} s: {'calm, ' if e['calm'] else ''}{e['what']} {e['hosts']} for {e['seconds']:.2f} s"
                          for e in self.events))


class History:
    def __init__(self, storm, seed):
        self.storm, self.plan, self.seed = storm, Plan(seed), seed
        self.folder = storm.folder / f"history-{seed}"
        self.folder.mkdir()
        self.hosts = Hosts(f"{storm.base}-{seed}", len(self.plan.ranks))
        self.acceptor_files = AcceptorFiles()
        self.living = {}  # (host, number): the process there
        self.processes = []
        self.active = []  # events that are under way
        self.cuts = []    # clean ones
        self.did, self.ends = collections.Counter(), collections.Counter()
        self.bad, self.diary = [], []
        self.begin = time.time()
        self.done, self.done_at = False, float("inf")
        self.by_step = {}  # the process that has reported the step
        self.step, self.step_at, self.read = 0, 0.0, 0

    # ---- The job.

    def start(self, place, restarts=0):
        host, _ = place
        environment = dict(self.storm.environment)
        if restarts:
            environment["ENGINE_RESTART_COUNT"] = "1"
        command = [self.storm.engine, "train", *COMMON, *self.plan.options, *self.storm.length, "--save-dir", str(self.folder / "run"),
                   "--elastic", f"{self.plan.least}:{self.plan.world}", "--init-method", f"tcp://{SUBNET}.1:29500",
                   "--job-id", f"{self.storm.base}-{self.seed}", "--rdzv-timeout", str(PATIENCE)]
        self.living[place] = Process(self.hosts, host, command, environment, self.folder)
        self.processes.append(self.living[place])

    def own(self):
        return {p.pid for p in self.processes}

    def look(self):
        """What has changed since the last time."""
        self.acceptor_files.look(self.own())
        try:
            with open(self.folder / "run" / "metrics.jsonl", "rb") as file:
                file.seek(self.read)
                text = file.read()
        except OSError:
            text = b""
        whole = text.rfind(b"\n") + 1
        self.read += whole
        for line in text[:whole].splitlines():
            if line.startswith(b'{"schema":1,"event":"step"'):
                self.step, self.step_at = int(re.search(rb'"step":(\d+)', line)[1]), time.time()
        for place, p in list(self.living.items()):
            code = p.process.poll()
            if code is None:
                continue
            p.reader.join(5)
            p.ended, p.ended_at = code, time.time()
            self.ends[code] += 1
            self.note(f"process {p.pid} on n{p.host} ended with {code}")
            del self.living[place]
            if code == 0 and not self.done:
                self.done, self.done_at = True, time.time()
            elif code not in (0, 69):
                self.bad.append(f"process {p.pid} on n{p.host} ended with {code}: {p.lines[-1:]}")
            if code != 0 and not self.done:
                self.start(place, restarts=1)

    def note(self, text):
        self.diary.append(f"{time.time() - self.begin:7.2f} {text}")

    def wait(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            if until() or (self.done and not self.living):
                return True
            time.sleep(0.01)
        return until()

    # ---- What happens to the network.

    def apply(self):
        """All that is active, and nothing else."""
        everyone = range(len(self.plan.ranks))
        lost = set()
        for event in self.active:
            inside = set(event["hosts"])
            across = {(a, b) for a in everyone for b in everyone if (a in inside) != (b in inside)}
            if event["what"] in ("split", "pair", "apart"):
                lost |= across if event["what"] == "split" else {(a, b) for a in inside for b in inside if a != b}
            elif event["what"] in ("mute", "one way"):
                lost |= {(a, b) for a, b in across if a in inside}
            elif event["what"] == "deaf":
                lost |= {(a, b) for a, b in across if b in inside}
        self.hosts.set_dropped(lost)

    def set(self, event, on):
        for other in self.active if on else []:
            if {event["what"], other["what"]} <= {"ports", "interfaces", "flicker"} or event["what"] == other["what"] == "lag":
                if set(event["hosts"]) & set(other["hosts"]):
                    return False  # not the same thing twice
        if on:
            self.active.append(event)
        else:
            self.active.remove(event)
        if event["what"] in ("ports", "interfaces", "flicker"):
            for i in event["hosts"]:
                (self.hosts.set_interface if event["what"] == "interfaces" else self.hosts.set_port)(i, not on)
        elif event["what"] == "lag":
            for i in event["hosts"]:
                self.hosts.set_lag(i, 0.2 if on else 0)
        else:
            self.apply()
        self.note(f"{event['what']} {event['hosts']} {'begins' if on else 'is over'}, step {self.step}")
        return True

    def flicker(self, event):
        for i, seconds in enumerate(event["times"]):
            for host in event["hosts"]:
                self.hosts.set_port(host, i % 2 == 1)
            self.note(f"ports of {event['hosts']} {'up' if i % 2 else 'down'}")
            self.wait(seconds)
        for host in event["hosts"]:
            self.hosts.set_port(host, True)

    def all_in(self):
        """All ranks are in the newest generation, as far as known, and steps are done."""
        return self.newest() and len(self.newest()) == self.plan.world and time.time() - self.step_at < 0.2

    def newest(self):
        """The processes of the newest generation, in order."""
        return self.acceptor_files.newest()[1]

    def storms(self):
        begin = time.monotonic()
        for event in self.plan.events:
            self.heal(float("inf") if event["calm"] else begin + event["at"])
            self.wait(begin + event["at"] - time.monotonic())
            if self.done:
                break
            if event["what"] == "flicker":
                if not self.active:
                    self.flicker(event)
                    self.did["flicker"] += 1
                continue
            is_calm = event["calm"] and self.wait(6, self.all_in) and not self.done
            begin = max(begin, time.monotonic() - event["at"])
            members = self.newest()
            if self.set(event, on=True):
                self.did[event["what"]] += 1
                event["until"] = time.monotonic() + event["seconds"]
                if is_calm:
                    self.cuts.append({"event": event, "members": members, "from": time.time()})
        self.heal(float("inf"))

    def heal(self, until):
        """What ends until then, in this order."""
        for event in sorted(self.active, key=lambda e: e["until"]):
            if event["until"] <= until:
                self.wait(event["until"] - time.monotonic())
                for cut in self.cuts:
                    if cut["event"] is event:
                        cut["to"] = time.time()
                self.set(event, on=False)

    def go_through(self):
        for place in self.plan.order:
            self.start(place)
            time.sleep(self.plan.dice.uniform(0, 0.2))
        if not self.plan.early and not self.wait(30 * SCALE, lambda: self.step > 0):
            self.bad.append("no step is done")
        if not self.bad:
            self.storms()
            healed = time.monotonic()
            self.note("all is over")
            if not self.wait(TOGETHER, lambda: self.done or self.all_in()):
                self.bad.append(f"{TOGETHER:.0f} s after the last healing not all ranks are in: {self.newest()}")
            elif not self.done:
                self.storm.healing.append(time.monotonic() - healed)
        moved = time.monotonic()
        step = self.step
        deadline = time.monotonic() + DEADLINE
        while self.living and not self.bad and time.monotonic() < deadline:
            self.wait(0.2)
            if self.step != step:
                step, moved = self.step, time.monotonic()
            if self.done and not hasattr(self, "finished"):
                self.finished = time.monotonic()
                deadline = min(deadline, self.finished + 10)
            if time.monotonic() - moved > 40 * SCALE:
                self.bad.append(f"no step is done for 40 s after step {step}: it hangs")
        if not self.done and not self.bad:
            self.bad.append(f"the job has not finished {DEADLINE:.0f} s after the last healing; it is at step {self.step}")
        for p in self.living.values():
            self.note(f"process {p.pid} on n{p.host} was still there when the job had ended")
        if self.done and self.living:
            self.did["left behind at the end"] += len(self.living)

    def close(self):
        for p in self.processes:
            if p.process.poll() is None:
                p.process.kill()
            p.process.wait()
            p.reader.join(5)
        self.hosts.remove()
        self.acceptor_files.remove(self.own())

    # ---- What must be so.

    def judge(self):
        if self.done:
            whole = self.storm.undisturbed(self.plan.options)
            verify = subprocess.run([self.storm.engine, "verify", "--only", "all", str(whole), str(self.folder / "run")],
                                    capture_output=True, text=True)
            if verify.returncode != 0:
                self.bad.append(f"the ends differ: {verify.stdout}{verify.stderr}")
            if left := [p.name for p in (self.folder / "run").iterdir() if ".tmp" in p.name]:
                self.bad.append(f"files left: {left}")
        changes, times = self.judge_metrics()
        first = self.check_acceptor_files(changes)
        self.judge_reports(first, times)
        for cut in self.cuts:
            self.judge_cut(cut, times)

    def judge_metrics(self):
        """Returns (generation, ranks) of the changes, and when each step was reported."""
        changes, times, last, next_step = [(1, None)], {}, 0, None
        try:
            lines = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return changes, times
        begun, late = False, None
        for number, text in enumerate(lines, 1):
            try:
                line = json.loads(text)
            except ValueError:
                self.bad.append(f"metrics.jsonl:{number} is no JSON: {text[:200]}")
                continue
            step = line["step"]
            if line["event"] == "start":
                if last > 0:
                    self.bad.append(f"metrics.jsonl:{number}: the run begins again after step {last}")
                begun = True
            elif line["event"] == "membership":
                if line["generation"] <= changes[-1][0]:
                    self.bad.append(f"metrics.jsonl:{number}: generation {line['generation']} after {changes[-1][0]}")
                changes.append((line["generation"], line["ranks"]))
                # The step under way may have been completed without a report, or be reported behind this line, by the one who
                # was first before and is only slow to write.
                late = step if step == last + 1 else None
                if not last <= step <= last + 1:
                    self.bad.append(f"metrics.jsonl:{number}: generation {line['generation']} goes on from step {step}; "
                                    f"{last} was reported last")
                next_step = step + 1
            elif line["event"] == "step" and step == late:
                late = None
            elif line["event"] == "step":
                expected = next_step if next_step is not None else last + 1
                if step <= last:
                    self.bad.append(f"metrics.jsonl:{number}: step {step} after step {last}, in generation {changes[-1][0]}")
                elif step != expected:
                    self.bad.append(f"metrics.jsonl:{number}: step {step}; {expected} was expected")
                last, next_step = max(last, step), None
                times[step] = line["time"]
        if next_step is not None:  # so may the last one
            last = next_step - 1
        if self.done and (last != self.storm.options.steps or not begun):
            self.bad.append(f"the last step in metrics.jsonl is {last}")
        return changes, times

    def check_acceptor_files(self, changes):
        """Returns the first ranks of all generations; None where some were not seen."""
        said = self.acceptor_files.said
        for generation, rosters in sorted(said.items()):
            if len(rosters) > 1:
                self.bad.append(f"generation {generation} is " + " and ".join(f"{pids} ({n.hex()})" for n, pids in rosters))
        for generation, ranks in changes:
            for _, pids in said.get(generation, ()):
                if ranks is not None and len(pids) != ranks:
                    self.bad.append(f"generation {generation} has {ranks} ranks in the metrics; in an acceptor file {pids}")
        if len(said) < max(said, default=1):
            return None
        return {pids[0] for rosters in said.values() for _, pids in rosters}

    def judge_reports(self, first, times):
        """Each group's first rank reports its steps, and then another group's."""
        said = []  # (step, process)
        saved = []
        reports = [(at, match, p) for p in self.processes
                   for at, match in p.said(r"^Epoch \[(\d+)/\d+\], Step \[(\d+)/(\d+)\]")]
        steps_per_epoch = max((int(match[3]) for _, match, _ in reports), default=0)  # the last epoch may be shorter
        for at, match, p in reports:
            said.append(((int(match[1]) - 1) * steps_per_epoch + int(match[2]), at, p))
        for p in self.processes:
            saved += [(int(match[1]), at, p) for at, match in p.said(r"^Saved step (\d+): ")]
        said.sort(key=lambda entry: entry[:2])
        for (step, _, p), (again, _, q) in zip(said, said[1:]):
            if step == again:
                self.bad.append(f"step {step} was reported by processes {p.pid} and {q.pid}")
        self.by_step = {step: p for step, _, p in said}
        if missing := set(times) - set(self.by_step):
            self.bad.append(f"steps {sorted(missing)[:5]} are in the metrics, and no process has printed them")
        # In time, what one process reports lies between what others do, but for one step that was printed late.
        runs = []  # (process, its steps in a row)
        for step, at, p in said:
            if not runs or runs[-1][0] is not p:
                runs.append((p, []))
            runs[-1][1].append((step, times.get(step, at)))
        for (p, before), (q, after) in zip(runs, runs[1:]):
            late = [step for step, at in before if at > after[0][1]]
            if len(late) > 1:
                self.bad.append(f"process {p.pid} reported steps {late[:5]} after {q.pid} had reported step {after[0][0]}")
        for step, at, p in saved:
            again = [(s, q.pid) for s, t, q in said if s <= step and t > at + 1]
            if again:
                self.bad.append(f"step {step} was saved by process {p.pid}; then {again[:3]} were reported")
        for pid in {p.pid for p, _ in runs} - first if first is not None else ():
            self.bad.append(f"process {pid} reported steps, and is the first rank of no generation")

    def judge_cut(self, cut, times):
        """The ranks that are not enough for the next group stop, and say so; the others go on."""
        by_pid = {p.pid: p for p in self.processes}
        members = [by_pid[pid] for pid in cut["members"]]
        inside = set(cut["event"]["hosts"])
        if cut["event"]["what"] == "split":
            sides = [[p for p in members if p.host in inside], [p for p in members if p.host not in inside]]
        else:
            sides = [[p for p in members if p.host == i] for i in inside] + [[p for p in members if p.host not in inside]]
        begin, end = cut["from"], cut["to"]
        name = f"{cut['event']['what']} {sorted(inside)} from {begin - self.begin:.2f} to {end - self.begin:.2f} s"
        steps = sorted(step for step, at in times.items() if begin < at < end)
        for side in sides:
            if not side:
                continue
            votes = 2 * len(side)
            enough = votes > len(members) or (votes == len(members) and members[0] in side)
            own = [step for step in steps if self.by_step.get(step) in side]
            if any(p.ended_at < end + 2 for p in side):
                continue
            if not enough or len(side) < self.plan.least:
                if end - begin < SILENCE:
                    continue
                self.did["minorities checked"] += 1
                if len(own) > 1:
                    self.bad.append(f"{name}: {[p.pid for p in side]} were not enough, and reported steps {own[:5]}...")
                waits = [p for p in side if any(begin < at < end + 0.5 for at, _ in p.said("waiting for (them|new ones)"))]
                if end - begin > SILENCE + 5 + SCALE and len(waits) < len(side):
                    self.bad.append(f"{name}: of {[p.pid for p in side]} only {[p.pid for p in waits]} said that they wait")
            elif end - begin > SILENCE + 2 + SCALE:
                self.did["majorities checked"] += 1
                if len(own) < 2:
                    self.bad.append(f"{name}: {[p.pid for p in side]} were enough, and did not go on")

    def story(self):
        text = f"seed {self.seed}: {self.plan}\n" + "".join(f"  {line}\n" for line in self.diary)
        for generation, rosters in sorted(self.acceptor_files.said.items()):
            for (_, pids), at in rosters.items():
                text += f"  generation {generation}: {pids}, seen at {at - self.begin:.2f}\n"
        for p in self.processes:
            said = [(at, line) for at, line in p.lines if not NOISE.search(line)]
            text += f"---- process {p.pid} on n{p.host}, born at {p.born - self.begin:.2f}, " + (
                f"ended with {p.ended}\n" if p.ended is not None else "never ended\n")
            text += "".join(f"  {at - self.begin:7.2f} {line[:300]}\n" for at, line in said[-60:])
        return text


class Storm:
    def __init__(self, options, folder):
        self.options, self.folder, self.engine = options, folder, options.engine
        self.base = f"parts{os.getpid()}"
        self.mark = f"PARTITION_STORM={self.base}\0".encode()
        self.did, self.ends, self.healing, self.whole = collections.Counter(), collections.Counter(), [], {}
        self.length = ["--steps", str(options.steps)]
        self.lock = threading.Lock()
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text("%064x" % random.Random(options.seed).getrandbits(256))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_")}
        self.environment.update(PARTITION_STORM=self.base, ENGINE_SECRET_FILE=str(secret), HOME=str(folder),
                                CUDA_VISIBLE_DEVICES="")

    def undisturbed(self, options):
        key = " ".join(options)
        with self.lock:
            if key not in self.whole:
                self.whole[key] = self.folder / f"whole-{len(self.whole)}"
                done = subprocess.run([self.engine, "train", *COMMON, *options, *self.length, "--save-dir", str(self.whole[key])],
                                      env=self.environment, cwd=self.folder, capture_output=True, text=True)
                if done.returncode != 0:
                    raise RuntimeError(f"the undisturbed run failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return self.whole[key]

    def history(self, seed):
        """Whether nothing was wrong."""
        history = History(self, seed)
        try:
            history.go_through()
        finally:
            history.close()
        history.judge()
        with self.lock:
            self.did += history.did
            self.ends += history.ends
            self.tell(history)
        if not self.options.keep:
            shutil.rmtree(history.folder, ignore_errors=True)
        return not history.bad

    def tell(self, history):
        generations = max(history.acceptor_files.said, default=0)
        print(f"seed {history.seed}: {'+'.join(map(str, history.plan.ranks))} ranks, {len(history.plan.events)} events, "
              f"{generations} generations, {time.time() - history.begin:.0f} s, exit codes {dict(history.ends)}"
              + (": FAILED" if history.bad else ""), flush=True)
        if history.bad or self.options.verbose:
            more = [f"and {len(history.bad) - 20} more"] if len(history.bad) > 20 else []
            print(history.story() + "".join(f"WRONG: {what}\n" for what in history.bad[:20] + more), flush=True)

    def main(self):
        end = time.monotonic() + 60 * self.options.minutes
        seeds = range(self.options.seed, self.options.seed + self.options.histories)
        with concurrent.futures.ThreadPoolExecutor(self.options.beside) as threads:
            well = list(threads.map(lambda seed: self.history(seed) if time.monotonic() < end else None, seeds))
        failed = [seed for seed, was_well in zip(seeds, well) if was_well is False]
        print(f"{len(well) - well.count(None)} histories; " + ", ".join(f"{n} x {what}" for what, n in sorted(self.did.items())) +
              f"; exit codes {dict(self.ends)}")
        if self.healing:
            print(f"from the last healing until all ranks were in: median {statistics.median(self.healing):.1f} s, "
                  f"longest {max(self.healing):.1f} s")
        print(f"failed: {failed}" if failed else "all went well")
        return 1 if failed else 0

    def clean(self):
        for pid in processes_with(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for path in pathlib.Path("/run/netns").glob(f"{self.base}-*"):
            subprocess.run(["ip", "netns", "delete", path.name], stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--histories", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", type=int, default=1, help="how many at once")
    parser.add_argument("--steps", type=int, default=1000, help="fewer will do for several at once: each is slower")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no history after so many")
    parser.add_argument("--verbose", action="store_true", help="tell also of histories in which all is well")
    parser.add_argument("--keep", action="store_true", help="keep the folder with runs")
    options = parser.parse_args()
    options.engine = str(pathlib.Path(options.engine).resolve())
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "iptables-restore", "unshare"))):
        print("skipped: needs root, iproute2 and iptables")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engine-parts-"))
    storm = Storm(options, folder)
    try:
        try:
            Hosts(storm.base, 2).remove()
        except subprocess.CalledProcessError as error:
            print(f"skipped: {' '.join(error.cmd)}: {error.stderr.strip()}")
            return 77
        return storm.main()
    finally:
        storm.clean()
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
