#!/usr/bin/env python3
"""How soon an elastic job goes on when a rank dies or joins, what that costs, and how torchrun and torchft compare.

Usage: elastic_recovery.py ENGINE [--python PYTHON] [--kills N] [--joins N] [--seconds S] [--rounds R] [--seed S]
                           [--what recovery,joiner,rate,cost] [--backends shm,socket,gloo,zmq] [--keep]

recovery: `engine launch --respawn` keeps four ranks of an mlp going. One of them, as --seed decides, is killed (SIGKILL), N
  times, each time when all four are in again; and the same with the first rank as the only victim. The time is that from the
  kill to the end of the first step of the next group. *noticed*: until the first rank of the next group has given the old one
  up; *agreed*: from there until the new group stands and its state is equal; *step*: from there to the end of the first step.
joiner: a model with about 104 MB of parameters and AdamW's moments; the fourth rank is started by hand, from just before its
  fork and exec. *pause*: from the last step without it to the first one with it.
rate: steps in S seconds with a kill every 15 s, relative to S undisturbed seconds before, and the time from a kill to the next
  step that had not been done before; beside torchrun with DDP, and torchft, both over Gloo (elastic_torch.py). In turns.
cost: `engine train --spawn 2` with --elastic, relative to the same without it, when nothing happens. In turns.

A step counts once, when it is first done. All times are those of the system's clock (CLOCK_REALTIME): that of a kill is read
just before the signal is sent; those of the engine's steps are `time` of its metrics, written by the first rank, in whole
milliseconds (with --log-every 1, which costs the engine an exchange of the loss in each step); those of PyTorch's steps are
written by rank 0, or with torchft by each replica, of which the first counts.

PYTHON (or PEER_PYTHON) is an interpreter with torch and torchft. Prints Markdown. Exit code: 0, 1 where a job got stuck, 77
where something for the comparison is not there; all else is measured nevertheless.
"""
import argparse
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4
KILL_EVERY = 15.0
LONGEST_WAIT = 120.0
FOREVER = ["--steps", "1000000000"]
QUIET = ["--eval-every", "0", "--save-every", "0", "--keep-best", "none", "--progress", "never"]
SMALL = ["--model", "mlp", "--dataset", "synthetic", "--synthetic-size", "6000", "--batch-size", "100", "--threads", "1"]
WIDE = [2400, 2000, 1000]  # with 784 inputs and 10 outputs: 8.7 million parameters of 12 bytes (AdamW)
HEARTBEAT_TIMEOUT_MS = 500  # torchft: five of its managers' heartbeats; the lighthouse's default is 5000
MARK = f"ELASTIC_RECOVERY={os.getpid()}"


class Stuck(Exception):
    pass


def marked_processes():
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and MARK.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(folder, **more):
    secret = folder / "secret"
    if not secret.exists():
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENGINE_", "PET_", "TORCH"))}
    name, value = MARK.split("=")
    kept.update({name: value}, ENGINE_SECRET_FILE=str(secret), HOME=str(folder), CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1",
                LC_ALL="C")
    return kept | more


class Lines:
    """The JSON objects that are appended to a file. One that its writer was killed in is left out."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, b""

    def more(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                text = file.read()
        except OSError:
            return []
        self.at += len(text)
        *whole, self.rest = (self.rest + text).split(b"\n")
        found = []
        for line in whole:
            try:
                found.append(json.loads(line[max(line.rfind(b'{"schema":1,"event"'), 0):]))
            except ValueError:
                continue
        return found


class Job:
    """Ranks that train, and what they have done: steps, each {step, time, group}, in the order of their times."""

    def __init__(self, folder):
        self.folder = folder
        self.steps, self.ranks_now, self.best = [], 0, 0
        self.firsts = []  # the steps that had not been done before
        folder.mkdir(parents=True)
        self.environment = environment(folder)
        self.output = open(folder / "output.txt", "ab")

    def start(self, command, **more):
        return subprocess.Popen(command, env=self.environment | more, cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=self.output, stderr=subprocess.STDOUT)

    def did(self, step, at, group, ranks):
        entry = {"step": step, "time": at, "group": group}
        self.steps.append(entry)
        self.ranks_now = ranks
        if step > self.best:
            self.best = step
            self.firsts.append(entry)

    def tend(self):
        pass

    def is_over(self):
        return False

    def wait(self, what, until, seconds=LONGEST_WAIT):
        """What `until` returns, as soon as it is something."""
        deadline = time.monotonic() + seconds
        while True:
            self.tend()
            self.look()
            if result := until():
                return result
            if self.is_over() or time.monotonic() > deadline:
                raise Stuck(f"{type(self).__name__}: {what}: not after {seconds:g} s; the last that was said:\n" +
                            (self.folder / "output.txt").read_text(errors="replace")[-3000:])
            time.sleep(0.005)

    def rest(self, seconds):
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.tend()
            self.look()
            time.sleep(min(0.02, end - now))

    def kill(self, pid):
        """Returns when, and the group that it was in."""
        self.look()
        group, now = self.steps[-1]["group"], time.time()
        send(pid)
        return now, group

    def end(self):
        for pid in marked_processes():
            send(pid)
        self.output.close()


class EngineJob(Job):
    """Events of the metrics, too: {event, time, ...}, in changes those of the membership."""

    def __init__(self, folder, command, by_hand=0):
        super().__init__(folder)
        self.changes, self.group, self.members = [], 0, 0
        self.lines = Lines(folder / "run" / "metrics.jsonl")
        self.command = [*command, "--log-every", "1", *FOREVER, *QUIET, "--save-dir", str(folder / "run")]
        self.processes = [self.start(self.command) for _ in range(by_hand or 1)]

    def look(self):
        for event in self.lines.more():
            kind = event.get("event")
            if kind == "start":
                self.members = len(event["record"]["starts"][-1]["hosts"])
                self.group += 1
            elif kind == "membership":
                self.members = event["ranks"]
                self.group += 1
                self.changes.append(event | {"group": self.group, "last": self.steps[-1] if self.steps else None})
            elif kind == "step":
                self.did(event["step"], event["time"], self.group, self.members)

    def is_over(self):
        return all(process.poll() is not None for process in self.processes)

    def workers(self):
        return sorted(pid for pid in marked_processes() if words_of(pid)[1:2] == ["train"])

    def first(self):
        """The rank that writes the metrics."""
        for pid in self.workers():
            try:
                for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                    if os.readlink(entry) == str(self.lines.path):
                        return pid
            except OSError:
                continue
        return None


def elastic_command(engine, backend):
    return [engine, "launch", "--nproc-per-node", str(RANKS), "--respawn", "--respawn-pause", "1", "train", "--elastic",
            f"1:{RANKS}", *SMALL, "--backend", backend]


class TorchrunJob(Job):
    def __init__(self, folder, python):
        super().__init__(folder)
        self.lines = Lines(folder / "steps.jsonl")
        self.process = self.start([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS),
                                   "--max-restarts", "1000", str(HERE / "elastic_torch.py"), "ddp", "--done",
                                   str(self.lines.path), "--state", str(folder / "state.pt")])

    def look(self):
        for line in self.lines.more():
            self.did(line["step"], line["time"], line["group"], line["ranks"])

    def is_over(self):
        return self.process.poll() is not None

    def workers(self):
        return sorted(pid for pid in marked_processes()
                      if "ddp" in words_of(pid) and "torch.distributed.run" not in words_of(pid))


class TorchftJob(Job):
    def __init__(self, folder, python):
        super().__init__(folder)
        self.python = python
        port = free_port()
        lighthouse = pathlib.Path(python).parent / "torchft_lighthouse"
        self.environment["TORCHFT_LIGHTHOUSE"] = f"http://localhost:{port}"
        # README.md of torchft has all of this but the timeout of the heartbeats.
        self.lighthouse = self.start([str(lighthouse), "--bind", f"[::]:{port}", "--min_replicas", "1", "--quorum_tick_ms",
                                      "100", "--join_timeout_ms", "10000", "--heartbeat_timeout_ms",
                                      str(HEARTBEAT_TIMEOUT_MS)])
        time.sleep(0.5)
        self.lines = [Lines(folder / f"steps-{replica}.jsonl") for replica in range(RANKS)]
        self.processes = [self.start_replica(replica) for replica in range(RANKS)]

    def start_replica(self, replica):
        return self.start([self.python, str(HERE / "elastic_torch.py"), "torchft", "--done", str(self.lines[replica].path)],
                          REPLICA_GROUP_ID=str(replica))

    def tend(self):
        for replica, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[replica] = self.start_replica(replica)

    def look(self):
        lines = [line for file in self.lines for line in file.more()]
        for line in sorted(lines, key=lambda line: line["time"]):
            self.did(line["step"], line["time"], line["group"], line["ranks"])

    def is_over(self):
        return self.lighthouse.poll() is not None

    def workers(self):
        return sorted(process.pid for process in self.processes)


# ---- What is measured.


def all_in(job):
    return job.ranks_now == RANKS and len(job.workers()) == RANKS


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


def milliseconds(seconds):
    return f"{1000 * seconds:,.0f}"


def first_step_of_next_group(job, group):
    at = len(job.steps)
    while at > 0 and job.steps[at - 1]["group"] != group:
        at -= 1
    return job.steps[at] if at < len(job.steps) else None


def measure_recovery(options, folder, backend, victim):
    dice = random.Random(options.seed)
    job = EngineJob(folder / f"recovery-{backend}-{victim}", elastic_command(options.engine, backend))
    found = []
    try:
        job.wait("four ranks", lambda: all_in(job))
        job.rest(1)
        for _ in range(options.kills):
            job.wait("four ranks again", lambda: all_in(job))
            job.rest(dice.uniform(0.3, 1))
            pid = job.first() if victim == "first" else dice.choice(job.workers())
            if pid is None or not all_in(job):
                continue
            at, group = job.kill(pid)
            step = job.wait("a step after a kill", lambda: first_step_of_next_group(job, group))
            change = next(c for c in job.changes if c["group"] == step["group"])
            agreed = change["time"]
            found.append({"all": step["time"] - at, "noticed": agreed - change["seconds"] - at, "agreed": change["seconds"],
                          "step": step["time"] - agreed})
    finally:
        job.end()
    return found


def report_recovery(options, folder):
    print(f"## From a kill to the next step\n\n`{' '.join(elastic_command('engine', 'BACKEND'))}`, "
          f"{options.kills} kills each, seed {options.seed}. Milliseconds; the parts are medians, and those of the longest.\n")
    print("| backend | killed | kills | median | p99 | longest | noticed | agreed | step | the longest's parts |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for backend in options.backends:
        for victim in ("any", "first"):
            found = measure_recovery(options, folder, backend, victim)
            if not found:
                raise Stuck(f"nothing was killed over {backend}")
            times = [f["all"] for f in found]
            longest = max(found, key=lambda f: f["all"])
            parts = ("noticed", "agreed", "step")
            print(f"| {backend} | {victim} | {len(times)} | {milliseconds(statistics.median(times))} | "
                  f"{milliseconds(p99(times))} | {milliseconds(max(times))} | " +
                  " | ".join(milliseconds(statistics.median(f[part] for f in found)) for part in parts) + " | " +
                  " + ".join(milliseconds(longest[part]) for part in parts) + " |", flush=True)
    print()


def wide_model(path):
    layers = [("flat", "flatten", "")]
    for i, width in enumerate(WIDE):
        layers += [(f"dense{i}", "dense", f"out = {width}\n"), (f"relu{i}", "relu", "")]
    layers.append(("last", "dense", 'out = "classes"\n'))
    path.write_text("\n".join(f'[[layer]]\nname = "{name}"\nkind = "{kind}"\n{more}' for name, kind, more in layers))
    widths = [784, *WIDE, 10]
    return 12 * sum((a + 1) * b for a, b in zip(widths, widths[1:]))


def report_joiner(options, folder):
    size = wide_model(folder / "wide.toml")
    command = ["train", "--elastic", f"1:{RANKS}", "--model", str(folder / "wide.toml"), "--dataset", "synthetic",
               "--synthetic-size", "6000", "--batch-size", "16", "--optimizer", "adamw", "--threads", "1"]
    shown = [w.replace(str(folder) + "/", "") for w in command]
    job = EngineJob(folder / "joiner", [options.engine, *command, "--init-method", f"tcp://127.0.0.1:{free_port()}"], RANKS)
    found = []
    try:
        job.wait("four ranks", lambda: all_in(job))
        for _ in range(options.joins):
            job.rest(2)
            newest = max(range(RANKS), key=lambda i: job.processes[i].pid)
            first = job.first()
            if job.processes[newest].pid == first:
                newest = next(i for i in range(RANKS) if job.processes[i].pid != first)
            _, group = job.kill(job.processes[newest].pid)
            job.processes[newest].wait()
            job.wait("a step after a kill", lambda: first_step_of_next_group(job, group))
            at = len(job.steps)
            job.rest(2)
            usual = statistics.median(b["time"] - a["time"] for a, b in zip(job.steps[at:], job.steps[at + 1:]))
            begin = time.time()
            job.processes[newest] = job.start(job.command)
            name = f"process {job.processes[newest].pid} "
            change = job.wait("a rank that joins",
                              lambda: next((c for c in job.changes if any(j.startswith(name) for j in c["joined"])), None))
            step = job.wait("a step with it", lambda: next((s for s in job.steps if s["group"] >= change["group"]), None))
            found.append({"all": step["time"] - begin, "asked": change["last"]["time"] - begin,
                          "pause": step["time"] - change["last"]["time"], "seconds": change["seconds"], "usual": usual})
    finally:
        job.end()
    medians = {key: statistics.median(f[key] for f in found) for key in found[0]}
    print(f"## A rank that joins\n\n`engine {' '.join(shown)}`, layers 784-{'-'.join(map(str, WIDE))}-10: {size / 1e6:.0f} MB "
          f"of parameters and optimizer state; {len(found)} joins. Milliseconds.\n")
    print("| | median | longest |\n|---|--:|--:|")
    for key, text in (("all", "from its start to its first step"), ("asked", "of that, until the last step without it"),
                      ("pause", "pause of the others, step to step"),
                      ("seconds", "of that, until the group stands and it has the state"),
                      ("usual", "a usual step of the three")):
        print(f"| {text} | {milliseconds(medians[key])} | {milliseconds(max(f[key] for f in found))} |")
    print(flush=True)


def disturb(job, dice, seconds):
    """Steps in as many seconds undisturbed, and under kills; the times from these to the next new step."""
    def steps_between(begin, end):
        return sum(begin <= s["time"] < end for s in job.firsts)

    job.wait("four ranks", lambda: all_in(job))
    job.rest(3)
    begin = time.time()
    job.rest(seconds)
    middle = time.time()
    kills = []
    next_kill = min(KILL_EVERY / 2, seconds / 2)
    while next_kill < seconds:
        job.rest(middle + next_kill - time.time())
        if job.workers():
            at, group = job.kill(dice.choice(job.workers()))
            kills.append({"time": at, "group": group})
        next_kill += KILL_EVERY
    job.rest(middle + seconds - time.time())
    end = time.time()
    if kills:
        job.wait("a step after the last kill",
                 lambda: any(s["time"] > kills[-1]["time"] and s["group"] != kills[-1]["group"] for s in job.firsts))
    waits = []
    for i, kill in enumerate(kills):
        limit = kills[i + 1]["time"] if i + 1 < len(kills) else float("inf")
        step = next((s for s in job.firsts if s["time"] > kill["time"] and s["group"] != kill["group"]), None)
        if step and step["time"] < limit:
            waits.append(step["time"] - kill["time"])
    return steps_between(begin, middle) / (middle - begin), steps_between(middle, end) / (end - middle), len(kills), waits


def absent_peers(python):
    if not python:
        return ["no --python, nor PEER_PYTHON: nothing to compare with"], []
    absent, there = [], []
    for name, code in (("torchrun", "import torch.distributed.run"), ("torchft", "import torchft")):
        if subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            there.append(name)
        else:
            absent.append(f"{python} has no {name}")
    if "torchft" in there and not (pathlib.Path(python).parent / "torchft_lighthouse").exists():
        there.remove("torchft")
        absent.append(f"there is no torchft_lighthouse beside {python}")
    return absent, there


def report_rate(options, folder, peers):
    dice = random.Random(options.seed)
    systems = {"engine": lambda place: EngineJob(place, elastic_command(options.engine, "auto")),
               "torchrun": lambda place: TorchrunJob(place, options.python),
               "torchft": lambda place: TorchftJob(place, options.python)}
    found = {name: [] for name in systems if name == "engine" or name in peers}
    stuck = []
    for round_number in range(options.rounds):
        for name in found:
            job = systems[name](folder / f"rate-{name}-{round_number}")
            try:
                found[name].append(disturb(job, dice, options.seconds))
            except Stuck as error:
                stuck.append(str(error))
            finally:
                job.end()
    print(f"## Steps under kills\n\n{RANKS} ranks of one thread, mlp 784-512-512-10, 25 samples each, SGD with momentum; "
          f"rounds in turn: {options.rounds}, each of {options.seconds:g} s undisturbed and {options.seconds:g} s with a kill "
          f"every {KILL_EVERY:g} s. torchrun: state saved every 20 steps. torchft: heartbeat timeout "
          f"{HEARTBEAT_TIMEOUT_MS} ms, and a dead replica's samples are left out until it is back.\n")
    print("| | steps/s undisturbed | under kills | ratio | kills | to the next step, median | longest |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, rounds in found.items():
        if not rounds:
            continue
        waits = [w for r in rounds for w in r[3]]
        kills = sum(r[2] for r in rounds)
        print(f"| {name} | {statistics.median(r[0] for r in rounds):.1f} | {statistics.median(r[1] for r in rounds):.1f} | "
              f"{statistics.median(r[1] / r[0] for r in rounds):.3f} | {kills} | " +
              (f"{statistics.median(waits):.2f} s | {max(waits):.2f} s |" if waits else "| |") +
              (f" ({kills - len(waits)} not before the next kill)" if len(waits) < kills else ""))
    print(flush=True)
    if stuck:
        raise Stuck("\n".join(stuck))


def steps_per_second(options, folder, model, steps, elastic):
    metrics = folder / "cost.jsonl"
    metrics.unlink(missing_ok=True)
    command = [options.engine, "train", "--model", model, *SMALL[2:], "--spawn", "2", *(["--elastic"] if elastic else []),
               "--steps", str(steps), "--log-every", "30", "--metrics", str(metrics), "--eval-every", "0"]
    result = subprocess.run(command, env=environment(folder), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True)
    if result.returncode != 0:
        raise Stuck(f"{' '.join(command)} ends with {result.returncode}: {result.stderr[-1000:]}")
    done = [e for e in Lines(metrics).more() if e["event"] == "step"]
    begin = next(e for e in done if e["step"] >= steps / 5)
    return (done[-1]["step"] - begin["step"]) / (done[-1]["time"] - begin["time"])


def report_cost(options, folder):
    print(f"## What --elastic costs\n\n`engine train --spawn 2 --threads 1 --batch-size 100`, {options.cost_rounds} rounds in "
          f"turn of about {options.cost_seconds:g} s, medians.\n")
    print("| model | steps/s | with --elastic | ratio | smallest and largest of a round |\n|---|--:|--:|--:|--:|", flush=True)
    for model in ("mlp", "convnet"):
        steps = 600
        for _ in range(2):
            steps = max(600, int(1.25 * options.cost_seconds * steps_per_second(options, folder, model, steps, False)))
        rates = []
        for round_number in range(options.cost_rounds):
            pair = {}
            for elastic in ((False, True), (True, False))[round_number % 2]:
                pair[elastic] = steps_per_second(options, folder, model, steps, elastic)
            rates.append(pair)
        ratios = [pair[True] / pair[False] for pair in rates]
        plain, elastic = (statistics.median(pair[kind] for pair in rates) for kind in (False, True))
        print(f"| {model} | {plain:.1f} | {elastic:.1f} | {statistics.median(ratios):.3f} | "
              f"{min(ratios):.3f}, {max(ratios):.3f} |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("--python", default=os.environ.get("PEER_PYTHON", ""))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--joins", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cost-rounds", type=int, default=11)
    parser.add_argument("--cost-seconds", type=float, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", default="recovery,joiner,rate,cost", type=lambda text: text.split(","))
    parser.add_argument("--backends", default="shm,socket,gloo,zmq", type=lambda text: text.split(","))
    parser.add_argument("--keep", action="store_true", help="keep the folder with runs and logs")
    options = parser.parse_args()
    options.engine = str(pathlib.Path(options.engine).resolve())
    options.what = [w for w in options.what if w]
    if unknown := set(options.what) - {"recovery", "joiner", "rate", "cost"}:
        parser.error(f"--what {','.join(sorted(unknown))}")
    absent, peers = absent_peers(options.python) if "rate" in options.what else ([], [])
    print("\n".join(absent), file=sys.stderr, end="\n" if absent else "")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="engine-recovery-"))
    print(f"`elastic_recovery.py {' '.join(sys.argv[1:])}`, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n",
          flush=True)
    code = 77 if absent else 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and clean up
    parts = {"recovery": lambda: report_recovery(options, folder), "joiner": lambda: report_joiner(options, folder),
             "rate": lambda: report_rate(options, folder, peers), "cost": lambda: report_cost(options, folder)}
    try:
        for name, part in parts.items():
            try:
                if name in options.what:
                    part()
            except Stuck as error:
                print(f"\n{name}: {error}\n", flush=True)
                code = 1
    finally:
        for pid in marked_processes():
            send(pid)
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
