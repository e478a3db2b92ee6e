#!/usr/bin/env python3
"""Fails system calls of the real program one at a time, and checks what it makes of that.

Usage: fail_calls.py ENGINE LIBRARY [--scenario A,B] [--seconds S] [--runs N] [--each N] [--seed S] [--jobs J]
       fail_calls.py ENGINE LIBRARY --scenario S --process P --call C --at N --how H [--keep]

LIBRARY is built of fail_call.cc. Each scenario is run once undisturbed, where the library counts the calls of every process
by function. Then each of the first --each calls of a function (of more: a sample of that many) fails with every fault that
it may have, in an order that --seed decides, until --seconds or --runs are used up. Afterwards

- the program has ended in time, not by a signal nor as "an error inside the program", with an exit code that is documented;
- where it failed, stderr has a line "engine: error: ...", and only one of a single process;
- no process and no unexpected file is left;
- what was reported as saved is there and loads, and the same command with --resume auto ends with the same numbers as the
  undisturbed run; so does a run that went on in spite of the fault;
- EINTR changes nothing.

Prints a table, and for each violation the command that repeats it and who made the call. Exit code: 0, 1 with violations.
The second form makes one such run. --calls lists how often each function is called.
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
import struct
import subprocess
import sys
import tempfile
import time

TRAIN = ["--dataset", "csv", "--threads", "1", "--batch-size", "30", "--log-every", "2", "--epochs", "2", "--save-every", "2s",
         "--eval-every", "1e", "--keep-last", "1", "--timeout", "20", "--rdzv-timeout", "20"]


def train_with(*more):
    """TRAIN with other values of the options in `more`."""
    kept = [word for pair in zip(TRAIN[::2], TRAIN[1::2]) if pair[0] not in more for word in pair]
    return [*kept, *more]


# train's codes that a fault may lead to (docs/troubleshooting.md); 1 and 2 are verify's, see Scenario.
DOCUMENTED = {65, 69, 73, 74, 76, 77, 78}
KEPT = re.compile(r"run\.json|status\.json|step-\d{8}\.ckpt|latest|best|metrics\.jsonl|log\.txt|run\.lock|flight_rank_\d+\.json")
SLOW = 12.0  # seconds after which a run is told as slow, though it ended
TEXTS = {"EINTR": "Interrupted system call", "EIO": "Input/output error", "ENOSPC": "No space left on device",
         "EMFILE": "Too many open files", "ENOMEM": "Cannot allocate memory", "EAGAIN": "Resource temporarily unavailable",
         "EACCES": "Permission denied", "ECONNRESET": "Connection reset by peer", "EADDRINUSE": "Address already in use"}

# What a call may meet; "+": and so do all after it. Calls that are not here are counted and left alone.
FAULTS = {
    "open": ["EINTR", "EMFILE", "EIO", "ENOSPC", "kill"], "openat": ["EMFILE", "EIO"], "fopen": ["EMFILE", "EIO"],
    "fopen64": ["EMFILE", "EIO"], "fdopen": ["ENOMEM"], "opendir": ["EMFILE", "EIO"], "fdopendir": ["ENOMEM"],
    "readdir": ["EIO"], "read": ["EINTR", "EIO", "short"], "readv": ["EINTR", "EIO", "short"],
    "pread": ["EINTR", "EIO", "short"], "write": ["EINTR", "EIO", "ENOSPC", "ENOSPC+", "short", "kill"],
    "writev": ["EINTR", "EIO", "ENOSPC", "short"], "pwrite": ["EINTR", "EIO", "ENOSPC", "ENOSPC+", "short", "kill"],
    "fread": ["EIO"], "fwrite": ["ENOSPC", "EIO+"], "fflush": ["ENOSPC", "EIO+"], "fclose": ["EIO"],
    "fsync": ["EINTR", "EIO", "ENOSPC", "EIO+", "kill"], "fdatasync": ["EINTR", "EIO", "kill"], "sync_file_range": ["EIO"],
    "rename": ["EIO", "ENOSPC", "EACCES", "EACCES+", "kill"], "link": ["EPERM", "EIO"], "symlink": ["EPERM"],
    "unlink": ["EIO", "EACCES", "EACCES+", "kill"], "unlinkat": ["EIO", "EACCES", "kill"], "remove": ["EACCES", "kill"],
    "rmdir": ["EACCES"], "mkdir": ["ENOSPC", "EACCES", "kill"], "mkdtemp": ["ENOSPC", "EACCES"], "mkfifo": ["ENOSPC"],
    "ftruncate": ["EINTR", "EIO", "ENOSPC", "kill"], "fallocate": ["EINTR", "ENOSPC", "EOPNOTSUPP"],
    "posix_fallocate": ["EINTR", "ENOSPC", "ENOSPC+", "EOPNOTSUPP", "EINVAL"], "mmap": ["ENOMEM"], "mprotect": ["ENOMEM"],
    "madvise": ["EINVAL"], "memfd_create": ["EMFILE", "ENOMEM", "ENOSYS"], "shm_open": ["EACCES"], "close": ["EINTR", "EIO"],
    "poll": ["EINTR", "ENOMEM"], "recv": ["EINTR", "ECONNRESET", "EAGAIN", "short"],
    "recvfrom": ["EINTR", "ECONNRESET", "EAGAIN", "short"], "recvmsg": ["EINTR", "ECONNRESET", "EAGAIN", "short"],
    "send": ["EINTR", "ECONNRESET", "EPIPE", "EAGAIN", "ENOBUFS", "short", "kill"],
    "sendto": ["EINTR", "ECONNRESET", "EAGAIN", "short"], "sendmsg": ["EINTR", "ECONNRESET", "EAGAIN", "short"],
    "connect": ["EINTR", "ECONNREFUSED", "EAGAIN", "ETIMEDOUT"], "accept": ["EINTR", "EMFILE", "ECONNABORTED"],
    "accept4": ["EINTR", "EMFILE", "ECONNABORTED", "EAGAIN"], "socket": ["EMFILE", "ENOBUFS"], "socketpair": ["EMFILE"],
    "bind": ["EADDRINUSE", "EACCES"], "listen": ["EADDRINUSE"], "setsockopt": ["ENOBUFS"], "getsockopt": ["ENOBUFS"],
    "getsockname": ["ENOBUFS"], "getpeername": ["ENOBUFS"], "getaddrinfo": ["EMFILE"], "getifaddrs": ["EMFILE"],
    "epoll_create": ["EMFILE"], "epoll_create1": ["EMFILE"], "epoll_ctl": ["ENOMEM"], "epoll_wait": ["EINTR"],
    "eventfd": ["EMFILE"], "signalfd": ["EMFILE"], "pipe": ["EMFILE"], "pipe2": ["EMFILE"], "dup": ["EMFILE"],
    "dup2": ["EINTR"], "pthread_create": ["EAGAIN"], "fork": ["EAGAIN", "ENOMEM", "kill"], "execve": ["ENOMEM", "EACCES"],
    "execvp": ["ENOENT"], "posix_spawn": ["EAGAIN"], "waitpid": ["EINTR"], "waitid": ["EINTR"], "kill": ["EPERM"],
    "flock": ["EINTR", "ENOLCK", "EAGAIN"], "fcntl": ["ENOLCK"], "stat": ["EIO", "EACCES"], "fstat": ["EIO"],
    "lstat": ["EIO"], "statvfs": ["EIO", "EINTR"], "access": ["EIO"], "readlink": ["EACCES"], "realpath": ["EACCES"],
    "getcwd": ["ENOENT"], "chdir": ["EACCES"], "fchmod": ["EPERM", "EINTR"], "fchmodat": ["EPERM"], "futimens": ["EACCES"],
    "utimensat": ["EACCES"], "sendfile": ["EIO", "EINVAL"], "nanosleep": ["EINTR"], "futex": ["EINTR"],
    "close_range": ["ENOSYS"]}


# What is known and left: functions, faults, a function on the way there, and why.
KNOWN = [
    (("stat",), ("EIO", "EACCES"), "inspect_command", "a folder that cannot be looked at once is listed without its run"),
]


def library_calls():
    """The names of the library's functions, in the order in which it counts them."""
    source = pathlib.Path(__file__).with_name("fail_call.cc").read_text()
    return re.findall(r"X\((\w+)\)", source.split("#define ENGINE_CALLS(X)")[1].split("\n\n")[0])


class Scenario:
    """A command. `before`: of which prepared folder it works on a copy, as run. `reads`: it must not change anything."""

    def __init__(self, arguments, before=None, reads=False, processes=1, output=None, also=()):
        self.arguments, self.before, self.reads, self.processes = arguments, before, reads, processes
        self.output = output  # a file that it makes
        self.codes = DOCUMENTED | set(also)


RANKS = [*TRAIN, "--spawn", "2"]
NEW = ["--model", "{model}", "--data-dir", "{data}", "--save-dir", "run"]
SCENARIOS = {
    "train": Scenario(["train", *NEW, *TRAIN]),
    "async": Scenario(["train", *NEW, *TRAIN, "--save-async"]),
    "stage": Scenario(["train", *NEW, *TRAIN, "--stage", "staged"]),
    "threads": Scenario(["train", *NEW, *train_with("--threads", "3", "--workers", "2")]),
    "canonical": Scenario(["train", *NEW, *train_with("--threads", "3", "--reduction-order", "canonical")]),
    "devices": Scenario(["train", *NEW, *TRAIN, "--devices", "cpu:0,cpu:1"]),
    "resume": Scenario(["train", "--resume", "run", "--epochs", "2"], before="half"),
    "keep": Scenario(["train", "--resume", "run", "--epochs", "4", "--keep-last", "1"], before="done"),
    "spawn": Scenario(["train", *NEW, *RANKS], processes=2),
    "socket": Scenario(["train", *NEW, *RANKS, "--backend", "socket"], processes=2),
    "gloo": Scenario(["train", *NEW, *RANKS, "--backend", "gloo"], processes=2),
    "zmq": Scenario(["train", *NEW, *RANKS, "--backend", "zmq"], processes=2),
    "launch": Scenario(["launch", "--nproc-per-node", "2", "--max-restarts", "1", "train", *NEW, *TRAIN], processes=2,
                       also=[126, 127]),
    "logs": Scenario(["launch", "--nproc-per-node", "2", "--log-dir", "logs", "train", *NEW, *TRAIN], processes=2,
                     also=[126, 127]),
    "eval": Scenario(["eval", "{done}"], reads=True),
    "verify": Scenario(["verify", "{done}", "{other}"], reads=True, also=[2]),
    "inspect": Scenario(["inspect", "{done}"], reads=True),
    "check": Scenario(["inspect", "--check", "{done}"], reads=True),
    "safetensors": Scenario(["export", "{done}", "-o", "out.safetensors"], reads=True, output="out.safetensors"),
    "npz": Scenario(["export", "{done}", "-o", "out.npz"], reads=True, output="out.npz"),
    "import": Scenario(["import", "{weights}", "-o", "out.ckpt", "--model", "{model}", "--data-dir", "{data}", "--dataset", "csv"],
                       reads=True, output="out.ckpt"),
}

Fault = collections.namedtuple("Fault", "scenario process call at how")


class Outcome:
    def __init__(self, code, out, err, seconds, folder):
        self.code, self.out, self.err, self.seconds, self.folder = code, out, err, seconds, folder

    def errors(self):
        return re.findall(r"^(?:\S+: )?engine: error: .*", self.err, re.M)


def plain(text):
    """What a command prints, without what differs from run to run."""
    text = re.sub(r"\d+(\.\d+)? (images|samples|rows|tokens)/s.*", "", text)
    return re.sub(r"Training completed in: .*|/\S*/|\d{4}-\d\d-\d\dT\S+", "", text)


def final(text):
    """The last evaluation, as the program prints it."""
    return (re.findall(r"Test after (step \d+: loss .*)", text) or [None])[-1]


def processes_with(mark):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


class Driver:
    def __init__(self, options, root):
        self.options, self.root = options, root
        self.calls = library_calls()
        self.number = 0
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("ENGINE_")}
        self.environment.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", LC_ALL="C")
        self.places = {}
        self.undisturbed = {}

    def run(self, arguments, folder, extra=None, deadline=None):
        """One command in `folder`, with its own temporary folder. Files take its output, since processes that stay would keep
        a pipe open."""
        (folder / "tmp").mkdir(exist_ok=True)
        environment = dict(self.environment, TMPDIR=str(folder / "tmp"), **(extra or {}))
        command = [self.options.engine, *[a.format(**self.places) for a in arguments]]
        began = time.monotonic()
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            job = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                code = job.wait(deadline or self.options.deadline)
            except subprocess.TimeoutExpired:
                if self.options.stacks:
                    self.print_stacks(folder)
                job.kill()
                job.wait()
                code = None
        read = lambda name: (folder / name).read_bytes().decode(errors="replace")
        return Outcome(code, read("stdout"), read("stderr"), time.monotonic() - began, folder)

    def print_stacks(self, folder):
        for pid in processes_with(b"ENGINE_TEST_FAIL_COUNTS=" + bytes(folder)):
            subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], stderr=subprocess.DEVNULL)

    def must(self, arguments, folder):
        outcome = self.run(arguments, folder)
        if outcome.code != 0:
            sys.exit(f"fail_calls.py: {' '.join(arguments)} ends with {outcome.code} undisturbed: {outcome.err}")
        return outcome

    def prepare(self):
        """Data, a model, and runs to work on, made without the library."""
        home = self.root / "prepared"
        (home / "data").mkdir(parents=True)
        rows = random.Random(1)
        lines = ["a,b,c,d,kind"]
        for i in range(150):
            kind = i % 3
            lines.append(",".join(f"{rows.gauss(kind, 1):.3f}" for _ in range(4)) + f",k{kind}")
        (home / "data" / "rows.csv").write_text("\n".join(lines) + "\n")
        (home / "model.toml").write_text("\n".join(f'[[layer]]\nname = "{n}"\nkind = "{k}"\n{more}' for n, k, more in (
            ("flat", "flatten", ""), ("a", "dense", "out = 16\n"), ("r", "relu", ""), ("b", "dense", 'out = "classes"\n'))))
        self.places = {"model": str(home / "model.toml"), "data": str(home / "data"), "done": str(home / "done/run"),
                       "other": str(home / "other/run"), "weights": str(home / "done/weights.safetensors")}
        for name, more in (("half", ["--epochs", "1"]), ("done", []), ("other", ["--lr", "0.001"])):
            (home / name).mkdir()
            self.must(["train", *NEW, *train_with(*more)], home / name)
        # Its best checkpoint is not the newest: so small a learning rate makes nothing better.
        self.must(["train", "--resume", "run", "--epochs", "3", "--lr", "1e-30", "--keep-last", "3"], home / "done")
        self.must(["export", "{done}", "-o", "weights.safetensors"], home / "done")
        self.prepared = home

    def fresh_folder(self, scenario):
        self.number += 1
        folder = self.root / f"{self.number:05d}"
        (folder / "counts").mkdir(parents=True)
        if scenario.before:
            shutil.copytree(self.prepared / scenario.before / "run", folder / "run")
        return folder

    def preload(self, folder, fault=None):
        extra = {"LD_PRELOAD": self.options.library, "ENGINE_TEST_FAIL_COUNTS": str(folder / "counts")}
        if fault:
            how, onwards = fault.how.rstrip("+"), "+" if fault.how.endswith("+") else ""
            extra.update(ENGINE_TEST_FAIL_CALL=fault.call, ENGINE_TEST_FAIL_AT=f"{fault.at}{onwards}", ENGINE_TEST_FAIL_HOW=how,
                         ENGINE_TEST_FAIL_IN=fault.process)
        return extra

    def count(self, name):
        """The undisturbed run: how often each process calls what."""
        scenario = SCENARIOS[name]
        folder = self.fresh_folder(scenario)
        outcome = self.run(scenario.arguments, folder, self.preload(folder))
        if outcome.code == 78:  # a backend that this build lacks
            return None
        if outcome.code not in (0, 1 if name == "verify" else 0):
            sys.exit(f"fail_calls.py: {name} ends with {outcome.code} undisturbed: {outcome.err}")
        counts = {}
        for file in sorted((folder / "counts").glob("count.*")):
            process = file.name.split(".", 1)[1].rsplit(".", 1)[0]
            numbers = struct.unpack(f"{len(self.calls)}Q", file.read_bytes())
            counts[process] = {c: n for c, n in zip(self.calls, numbers) if n}
        outcome.digest = self.digest(scenario, folder)
        self.undisturbed[name] = outcome
        shutil.rmtree(folder)
        return counts

    def digest(self, scenario, folder):
        file = folder / scenario.output if scenario.output else None
        return file.read_bytes() if file and file.exists() else None

    def faults(self, name, counts):
        chosen = random.Random(f"{self.options.seed} {name}")
        found = []
        for process, calls in counts.items():
            for call, n in calls.items():
                numbers = list(range(1, n + 1))
                if n > self.options.each:
                    # The first and the last ones are the likeliest to differ from others.
                    numbers = sorted({1, 2, n} | set(chosen.sample(numbers, self.options.each - 3)))
                found += [Fault(name, process, call, at, how) for at in numbers for how in FAULTS.get(call, [])
                          if not self.options.hows or how in self.options.hows]
        return found

    def attempt(self, fault):
        """One run with the fault. Returns the violations; None where the call was not reached."""
        scenario = SCENARIOS[fault.scenario]
        folder = self.fresh_folder(scenario)
        outcome = self.run(scenario.arguments, folder, self.preload(folder, fault))
        fired = sorted((folder / "counts").glob("failed.*"))
        outcome.caller = self.callers(fired[0]) if fired else []
        wrong = []
        left = self.left_processes(folder)
        if left:
            wrong.append(("process left", f"{left}"))
        if fired or outcome.code is None or outcome.code not in (0, 1):
            wrong += self.judge_end(fault, scenario, outcome)
            wrong += self.judge_files(fault, scenario, outcome)
        for call, hows, place, why in KNOWN:
            if fault.call in call and fault.how in hows and any(place in c for c in outcome.caller):
                wrong = [(f"note: {why}: {what}", detail) for what, detail in wrong]
        library = outcome.caller and re.match(r"lib(zmq|gloo)|gloo::|zmq::", outcome.caller[0])
        if library:  # what it makes of its own calls is not for this program to change
            wrong = [("note: of the library: " + what, detail) for what, detail in wrong]
        if self.options.keep:
            print(f"code {outcome.code} after {outcome.seconds:.1f} s in {folder}\n{outcome.out}{outcome.err}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return outcome, wrong if fired or wrong else None

    def left_processes(self, folder):
        mark = b"ENGINE_TEST_FAIL_COUNTS=" + bytes(folder)
        deadline = time.monotonic() + 4
        while (left := processes_with(mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        names = []
        for pid in left:
            try:
                names.append(pathlib.Path(f"/proc/{pid}/comm").read_text().strip())
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        return names

    def judge_end(self, fault, scenario, outcome):
        code, errors, wrong = outcome.code, outcome.errors(), []
        killed_itself = fault.how == "kill" and fault.process == "0"
        usual = self.undisturbed[fault.scenario]
        if code is None:
            return [("hang", f"no end after {self.options.deadline} s; stderr: {outcome.err[-600:]}")]
        if killed_itself:
            return [] if code == -signal.SIGKILL else [("exit code", f"{code} of a killed process")]
        if outcome.seconds > SLOW:
            wrong.append(("note: slow", f"{outcome.seconds:.0f} s; {outcome.err[-300:]}"))
        if code < 0 or (code > 128 and fault.how != "kill"):
            wrong.append(("signal", f"{code}; {outcome.err[-600:]}"))
        elif code == 70:
            wrong.append(("code 70", outcome.err[-600:]))
        elif code == usual.code:
            if scenario.reads and plain(outcome.out) != plain(usual.out) and "engine: " not in outcome.err:
                wrong.append(("other output", f"{plain(outcome.out)!r} instead of {plain(usual.out)!r}"))
        elif fault.how in ("EINTR", "short"):
            wrong.append((f"{fault.how} visible", f"exit code {code}: {outcome.err[-600:]}"))
        elif code not in scenario.codes and not (fault.how == "kill" and code == 137):
            wrong.append(("exit code", f"{code}: {outcome.err[-600:]}"))
        if code != usual.code and code >= 0:
            if not errors:
                wrong.append(("no message", f"exit code {code}; {outcome.err[-600:]}"))
            elif len(errors) > 1 and scenario.processes == 1:
                wrong.append(("messages", outcome.err[-600:]))
            text = TEXTS.get(fault.how.rstrip("+"))
            if text and errors and text not in outcome.err:
                wrong.append(("note: cause not named", f"exit code {code}: {outcome.err[-400:]}"))
        return wrong

    def judge_files(self, fault, scenario, outcome):
        wrong = []
        killed = fault.how == "kill" or outcome.code is None
        removal = fault.call in ("unlink", "unlinkat", "remove", "rmdir")
        for entry in outcome.folder.iterdir():
            if entry.name in ("counts", "stdout", "stderr", "tmp", "run", "staged", "logs", scenario.output):
                continue
            if not (killed or removal):
                wrong.append(("file left", entry.name))
        if not (killed or removal):
            wrong += [("file left", f"tmp/{e.name}") for e in (outcome.folder / "tmp").iterdir()
                      if not e.name.startswith("engine-flight-")]
            wrong += [("file left", str(e.relative_to(outcome.folder))) for e in outcome.folder.rglob(".*.tmp-*")]
        if scenario.reads:  # a checkpoint has the time in it
            made, usual = self.digest(scenario, outcome.folder), self.undisturbed[fault.scenario].digest
            exact = fault.scenario != "import"
            if made is not None and (made != usual if exact else len(made) != len(usual)):
                wrong.append(("other file", f"{scenario.output} has {len(made)} bytes and differs"))
            if outcome.code == 0 and made is None and usual is not None:
                wrong.append(("no file", f"exit code 0, and {scenario.output} is missing"))
            return wrong
        run = outcome.folder / "run"
        if run.exists() and not killed:
            wrong += [("file left", f"run/{e.name}") for e in run.iterdir() if not KEPT.fullmatch(e.name)
                      and not (removal and ".tmp-" in e.name)]
        return wrong + self.judge_run(fault, scenario, outcome)

    def judge_run(self, fault, scenario, outcome):
        """What was saved is there, and going on leads where the undisturbed run was."""
        wrong, run = [], outcome.folder / "run"
        usual = final(self.undisturbed[fault.scenario].out)
        saved = re.findall(r"Saved step (\d+): ", outcome.out)
        best = re.findall(r"Best so far: .* at step (\d+)", outcome.out)
        if fault.call in ("write", "fflush", "fwrite"):  # what was said may not have arrived
            saved, best = [], []
        steps = [int(e.name[5:13]) for e in run.glob("step-*.ckpt")]
        if saved and not any(step >= int(saved[-1]) for step in steps):  # a later one may not have been said any more
            wrong.append(("lost", f"step {saved[-1]} was reported as saved; there are {sorted(e.name for e in run.glob('*'))}"))
        # The best is said when it was evaluated, and saved right after that.
        if outcome.code == 0 and best and best[-1] in saved and not (run / f"step-{int(best[-1]):08d}.ckpt").exists():
            wrong.append(("lost", f"step {best[-1]} was reported as best and saved"))
        if scenario.before and run.exists():
            before = json.loads((self.prepared / scenario.before / "run" / "run.json").read_text())
            now = json.loads((run / "run.json").read_text())
            if now["run"] != before["run"] or now["starts"][:len(before["starts"])] != before["starts"]:
                wrong.append(("lost", f"run.json is of run {now['run']} with {len(now['starts'])} starts; it was {before['run']} "
                              f"with {len(before['starts'])}"))
        named = (run / "best").read_text().strip() if (run / "best").exists() else ""
        if named and not (run / named).exists():
            wrong.append(("lost", f"best names {named}; there are {sorted(e.name for e in run.glob('*'))}"))
        if saved or scenario.before:
            check = self.run(["eval", "run"], outcome.folder)
            if check.code != 0:
                wrong.append(("does not load", f"eval ends with {check.code}: {check.err}"))
            elif outcome.code == 0 and usual and usual.split("loss")[1].strip() not in check.out:
                wrong.append(("other model", f"{check.out.strip()} instead of {usual}"))
        if outcome.code == 0 and final(outcome.out) != usual and fault.call not in ("write", "fflush", "fwrite"):
            wrong.append(("other result", f"{final(outcome.out)} instead of {usual}"))
        if outcome.code == 0 and "+" not in fault.how:
            return wrong
        arguments = scenario.arguments if scenario.before else [*SCENARIOS["train"].arguments, "--resume", "auto"]
        again = self.run(arguments, outcome.folder)
        if again.code != 0:
            wrong.append(("does not go on", f"exit code {again.code}: {again.err[-600:]}"))
        check = self.run(["eval", "run"], outcome.folder) if again.code == 0 else None
        if check and (check.code != 0 or usual.split("loss")[1].strip() not in check.out):
            wrong.append(("other model after going on", f"{check.out.strip()}{check.err} instead of {usual}"))
        # The next save removes what was left.
        left = [e.name for e in run.iterdir() if not KEPT.fullmatch(e.name)] if run.exists() else []
        if left and "Saved step" in again.out:
            wrong.append(("file left after going on", str(left)))
        return wrong

    def callers(self, file):
        """Functions on the way to the call, innermost first."""
        names = []
        for line in file.read_text().splitlines()[1:13]:
            if line.count(" ") != 1 or "0x" not in line:
                continue
            path, offset = line.split()
            if path == self.options.library:
                continue
            path = self.options.engine if path == "/proc/self/exe" else path
            name = subprocess.run(["addr2line", "-Cfe", path, offset], capture_output=True, text=True).stdout.split("\n")[0]
            names.append(f"{re.sub(r'[(<].*', '', name)}" if name != "??" else f"{pathlib.Path(path).name}+{offset}")
        return names


def command_of(fault, options):
    return (f"{sys.argv[0]} {options.engine} {options.library} --scenario {fault.scenario} --process {fault.process} "
            f"--call {fault.call} --at {fault.at} --how {fault.how} --seed {options.seed} --keep")


def print_table(rows):
    """Calls by faults: runs, and violations where there are any."""
    hows = sorted({how for _, how in rows}, key=lambda h: (h in ("short", "kill"), h))
    calls = sorted({call for call, _ in rows})
    width = max(8, *(len(h) + 1 for h in hows))
    print(f"{'':16}" + "".join(f"{h:>{width}}" for h in hows))
    for call in calls:
        cells = []
        for how in hows:
            runs, bad = rows.get((call, how), (0, 0))
            cells.append("" if runs == 0 else f"{runs}" + (f"!{bad}" if bad else ""))
        print(f"{call:16}" + "".join(f"{c:>{width}}" for c in cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("library")
    parser.add_argument("--scenario", default=",".join(SCENARIOS), help=f"any of {','.join(SCENARIOS)}")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--runs", type=int, default=10**9, help="at most so many, shared among the scenarios")
    parser.add_argument("--each", type=int, default=24, help="numbers of a function that are failed, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    scale = int(os.environ.get("ENGINE_TEST_TIME_SCALE") or 1)
    parser.add_argument("--deadline", type=float, default=60 * scale, help="seconds that a run may take")
    parser.add_argument("--hows", type=lambda t: t.split(","), help="only these faults")
    parser.add_argument("--only", type=lambda t: t.split(","), help="only these functions")
    parser.add_argument("--calls", action="store_true", help="only count")
    parser.add_argument("--process")
    parser.add_argument("--call")
    parser.add_argument("--at", type=int)
    parser.add_argument("--how")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and print what the program says")
    parser.add_argument("--stacks", action="store_true", help="where a run hangs, print its threads with gdb")
    options = parser.parse_args()
    options.engine, options.library = (str(pathlib.Path(p).resolve()) for p in (options.engine, options.library))
    names = options.scenario.split(",")
    if unknown := set(names) - set(SCENARIOS):
        parser.error(f"unknown scenario {', '.join(unknown)}")
    root = pathlib.Path(tempfile.mkdtemp(prefix="engine-faults-"))
    try:
        return run_all(options, names, Driver(options, root))
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def run_all(options, names, driver):
    driver.prepare()
    end = time.monotonic() + options.seconds
    plans = {}
    for name in names:
        counts = driver.count(name)
        if counts is None:
            print(f"{name} is left out: this build lacks what it needs")
            continue
        if options.calls:
            for process, calls in counts.items():
                print(f"{name} {process}: " + " ".join(f"{c}={n}" for c, n in calls.items()))
        plan = driver.faults(name, counts)
        if options.only:
            plan = [f for f in plan if f.call in options.only]
        random.Random(f"{options.seed} order {name}").shuffle(plan)
        plans[name] = plan
    if options.calls:
        return 0
    if options.call:
        plan = [Fault(names[0], options.process or "0", options.call, options.at, options.how)]
    else:  # the scenarios in turn, so that each gets its share of the time
        plan = []
        for i in range(max(map(len, plans.values()))):
            plan += [p[i] for p in plans.values() if i < len(p)]
        plan = plan[:options.runs]
    rows, unreached, done, violations = collections.Counter(), 0, 0, 0
    bad = collections.Counter()
    causes = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def one(fault):
            return (fault, *(driver.attempt(fault) if time.monotonic() < end else (None, None)))
        for fault, outcome, wrong in pool.map(one, plan):
            if outcome is None:
                continue
            done += 1
            if wrong is None:
                unreached += 1
                continue
            rows[fault.call, fault.how] += 1
            if any(not what.startswith("note") for what, _ in wrong):
                bad[fault.call, fault.how] += 1
                violations += 1
            for what, detail in wrong:
                place = " < ".join(outcome.caller[:7])
                causes[what, fault.call, place] += 1
                if causes[what, fault.call, place] <= 2:
                    print(f"{what}: {fault.scenario} process {fault.process}: {fault.call} {fault.at} {fault.how}\n  {detail.strip()}"
                          f"\n  {place}\n  {command_of(fault, options)}", flush=True)
    if rows:
        print_table({key: (n, bad[key]) for key, n in rows.items()})
    print(f"{done} of {len(plan)} runs; in {unreached} the call was not reached; {violations} with a violation, from "
          f"{len({key for key in causes if not key[0].startswith('note')})} places")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
