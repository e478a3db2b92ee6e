#!/usr/bin/env python3
"""Hosts on this machine whose links are slow, late, lossy or cut: network namespaces on a bridge.

Usage: link_emulator.py [--hosts N] [LINK...] [--host I LINK...]... -- COMMAND...
       link_emulator.py --check

LINK: --rate MBIT (each way), --delay MS (each way), --jitter MS, --loss PERCENT, --cuts AT:SECONDS,... or
--random-cuts COUNT:SECONDS:WITHIN (COUNT cuts that begin within so many seconds, by --seed). Those before the first --host are
every host's, those behind it of that host alone. What one host sends another passes both links: with --delay 12.5 on each, it
arrives 25 ms later, and a round trip takes 50 ms.

COMMAND runs on each host, with {rank}, {world} and {address} (of host 0) replaced. A line of output is printed behind its host's
number. The exit code is that of the first that failed, else 0; 77 where the system cannot make such hosts.

    link_emulator.py --hosts 2 --rate 10 --delay 12.5 -- engine train --rank {rank} --world-size {world} \\
        --init-method tcp://{address}:29500 ...

--check makes two hosts, and compares rates with iperf3, and delay and loss with ping; it prints both and fails where they do not
agree. Needs root, iproute2 and a kernel with tbf.
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
import threading

RELAY = pathlib.Path(__file__).with_name("link_relay.py")
SUBNET = "10.86.0"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Link:
    """How a host is reached. rate: Mbit/s, None: whatever the machine does; delay, jitter: s; loss: %; cuts: [(at, s)]."""

    def __init__(self, rate=None, delay=0.0, jitter=0.0, loss=0.0, cuts=()):
        self.rate, self.delay, self.jitter, self.loss, self.cuts = rate, delay, jitter, loss, list(cuts)

    def needs_relay(self):
        return bool(self.delay or self.jitter or self.loss or self.cuts)


def relay(namespace, a, b, link, seed=1):
    """Starts link_relay.py between two interfaces of a namespace. Returns the process when it carries frames."""
    command = ["ip", "netns", "exec", namespace, sys.executable, str(RELAY), a, b, "--delay", str(link.delay), "--jitter",
               str(link.jitter), "--loss", str(link.loss), "--seed", str(seed),
               "--cuts", ",".join(f"{at}:{seconds}" for at, seconds in link.cuts)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"link_relay.py ended with {process.wait()}")
    return process


class Network:
    """Namespaces BASE-0, BASE-1, ... with SUBNET.1, .2, ... on data0, one for each Link, and BASE-hub with the bridge.

        with Network([Link(rate=10, delay=0.025)] * 2) as network:
            subprocess.run([*network.inside(1), "ping", network.address(0)])
    """

    def __init__(self, links, base=None, seed=1):
        self.links, self.seed = links, seed
        self.base = base or f"links{os.getpid()}"
        self.hub = f"{self.base}-hub"
        self.relays = []

    def __enter__(self):
        try:
            run("ip", "netns", "add", self.hub)
            run("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self.hub, "link", "set", "bridge", "up")
            for i, link in enumerate(self.links):
                self.add_host(i, link)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.relays:
            process.kill()
            process.wait()
        for i in [*range(len(self.links)), "hub"]:
            subprocess.run(["ip", "netns", "delete", f"{self.base}-{i}"], stderr=subprocess.DEVNULL)

    def add_host(self, i, link):
        host = f"{self.base}-{i}"
        run("ip", "netns", "add", host)
        run("ip", "-n", self.hub, "link", "add", f"port{i}", "type", "veth", "peer", "name", "data0", "netns", host)
        run("ip", "-n", host, "address", "add", f"{SUBNET}.{i + 1}/24", "dev", "data0")
        run("ip", "-n", self.hub, "link", "set", f"port{i}", "up")
        run("ip", "-n", host, "link", "set", "data0", "up")
        run("ip", "-n", host, "link", "set", "lo", "up")
        if link.needs_relay():
            far = self.add_relay(i, link)
        else:
            run("ip", "-n", self.hub, "link", "set", f"port{i}", "master", "bridge")
            far = f"port{i}"
        if link.rate:
            set_rate(host, "data0", link.rate)
            set_rate(self.hub, far, link.rate)

    def add_relay(self, i, link):
        """port -- relay -- lag == late -- bridge. Returns the interface by which the bridge sends to the host."""
        run("ip", "-n", self.hub, "link", "add", f"lag{i}", "type", "veth", "peer", "name", f"late{i}")
        run("ip", "-n", self.hub, "link", "set", f"lag{i}", "up")
        if link.loss:  # a lost frame is then one packet, not the many that the kernel sends as one
            run("ip", "-n", f"{self.base}-{i}", "link", "set", "data0", "gso_max_segs", "1")
            run("ip", "-n", self.hub, "link", "set", f"late{i}", "gso_max_segs", "1")
        self.relays.append(relay(self.hub, f"port{i}", f"lag{i}", link, f"{self.seed} {i}"))
        run("ip", "-n", self.hub, "link", "set", f"late{i}", "master", "bridge", "up")
        return f"late{i}"

    def join(self, a, b, rate):
        """Gives the packets between two hosts a link of their own, of `rate` Mbit/s, beside the bridge."""
        name = f"pair{a}-{b}"
        run("ip", "-n", f"{self.base}-{a}", "link", "add", name, "type", "veth", "peer", "name", name, "netns", f"{self.base}-{b}")
        for here, there in ((a, b), (b, a)):
            host = f"{self.base}-{here}"
            run("ip", "-n", host, "link", "set", name, "up")
            run("ip", "-n", host, "route", "add", f"{self.address(there)}/32", "dev", name, "src", self.address(here))
            set_rate(host, name, rate)

    def address(self, i):
        return f"{SUBNET}.{i + 1}"

    def inside(self, i):
        return ["ip", "netns", "exec", f"{self.base}-{i}"]


def run_ranks(network, seconds, command):
    """Runs a rank of the command on each host. Returns what rank 0 printed, and the ranks' stderr. Fails if a rank does."""
    world, processes = len(network.links), []
    with tempfile.TemporaryFile("w+") as errors:
        for rank in range(world):
            words = [*network.inside(rank), *command, "--rank", str(rank), "--world-size", str(world), "--init-method",
                     f"tcp://{network.address(0)}:29500"]
            processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                                              env=dict(os.environ, LOCAL_WORLD_SIZE="1")))
        try:
            outputs = [process.communicate(timeout=seconds)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        errors.seek(0)
        notices = errors.read()
    codes = [process.returncode for process in processes]
    assert codes == [0] * world, f"{command}: exit codes {codes}\n{outputs}\n{notices}"
    return outputs[0], notices


def set_rate(namespace, interface, mbit):
    """No burst above 10 ms of the rate (at least two large frames), and at most 400 ms wait in the queue."""
    burst = max(2 * 65536, int(mbit * 1e6 / 8 * 0.01))
    run("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", f"{mbit}mbit", "burst", str(burst),
        "latency", "400ms")


def missing():
    """What this system lacks for a Network; None if nothing."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        with Network([Link(rate=100), Link(delay=0.001)]):
            return None
    except (subprocess.CalledProcessError, OSError, RuntimeError) as error:
        return getattr(error, "stderr", None) and error.stderr.decode().strip() or str(error)


def run_on_all(network, command):
    """Runs it on each host and prints the lines. Returns the exit code of the first that failed, or 0."""
    processes, codes, lock = [], [], threading.Lock()
    world = len(network.links)
    for i in range(world):
        words = [w.replace("{rank}", str(i)).replace("{world}", str(world)).replace("{address}", network.address(0))
                 for w in command]
        processes.append(subprocess.Popen([*network.inside(i), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, env=dict(os.environ, LOCAL_WORLD_SIZE="1")))

    def follow(i):
        for line in processes[i].stdout:
            with lock:
                print(f"{i}: {line.decode(errors='replace')}", end="", flush=True)
        code = processes[i].wait()
        with lock:
            if code:
                codes.append(code)

    readers = [threading.Thread(target=follow, args=(i,)) for i in range(world)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return codes[0] if codes else 0


def iperf_mbit(network):
    """From host 1 to host 0, by iperf3's receiver."""
    server = subprocess.Popen([*network.inside(0), "iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if "listening" in line:
            break
    result = subprocess.run([*network.inside(1), "iperf3", "-c", network.address(0), "-t", "5", "-O", "1", "-f", "m"],
                            capture_output=True, text=True, check=True).stdout
    server.communicate()
    return float(re.search(r"([\d.]+) Mbits/sec\s+receiver", result)[1])


def ping_ms_and_loss(network, count, interval):
    """Round trips from host 1 to host 0: (least, median-like average in ms, % lost)."""
    result = subprocess.run([*network.inside(1), "ping", "-n", "-c", str(count), "-i", str(interval), "-W", "2",
                             network.address(0)], capture_output=True, text=True).stdout
    times = re.search(r"= ([\d.]+)/([\d.]+)/", result)
    lost = re.search(r"([\d.]+)% packet loss", result)
    return float(times[1]), float(times[2]), float(lost[1])


def check():
    """Returns the number of disagreements. Rates are data without headers: 1,448 of 1,514 bytes."""
    wrong = 0

    def compare(what, wanted, measured, low, high):
        nonlocal wrong
        good = low <= measured <= high
        wrong += not good
        print(f"{'ok' if good else 'FAILED'}: {what}: {wanted}, measured {measured:.2f} (accepted {low:.2f} to {high:.2f})")

    for rate, delay in ((10, 0), (100, 0), (10, 0.025), (50, 0.01)):
        with Network([Link(rate=rate, delay=delay / 2)] * 2) as network:
            least, _, _ = ping_ms_and_loss(network, 10, 0.1)
            compare(f"{rate} Mbit/s, {1000 * delay:.0f} ms: least round trip in ms", 2000 * delay, least,
                    2000 * delay, 2000 * delay + 10)
            compare(f"{rate} Mbit/s, {1000 * delay:.0f} ms: iperf3 in Mbit/s", rate, iperf_mbit(network), 0.8 * rate,
                    1.02 * rate)
    with Network([Link(loss=5), Link()]) as network:  # twice 5 %: there and back
        _, _, lost = ping_ms_and_loss(network, 1000, 0.002)
        compare("5 % loss each way: % lost of 1,000 pings", 9.75, lost, 6.5, 13)
    with Network([Link(cuts=[(0, 1e6)]), Link()]) as network:
        result = subprocess.run([*network.inside(1), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", network.address(0)],
                                stdout=subprocess.DEVNULL)
        compare("a cut link: exit code of ping", 1, result.returncode, 1, 1)
    return wrong


def random_cuts(text, seed):
    count, seconds, within = (float(part) for part in text.split(":"))
    dice = random.Random(seed)
    return sorted((dice.uniform(0, within), seconds) for _ in range(int(count)))


def parse_cuts(text):
    return [tuple(float(part) for part in cut.split(":")) for cut in text.split(",")]


def link_of(words, seed, default=Link()):
    parser = argparse.ArgumentParser(prog="link_emulator.py LINK")
    parser.add_argument("--rate", type=float, default=default.rate)
    parser.add_argument("--delay", type=float, default=1000 * default.delay)
    parser.add_argument("--jitter", type=float, default=1000 * default.jitter)
    parser.add_argument("--loss", type=float, default=default.loss)
    parser.add_argument("--cuts", type=parse_cuts, default=default.cuts)
    parser.add_argument("--random-cuts")
    link = parser.parse_args(words)
    cuts = random_cuts(link.random_cuts, seed) if link.random_cuts else link.cuts
    return Link(link.rate, link.delay / 1000, link.jitter / 1000, link.loss, cuts)


def end(*_):
    """On SIGTERM, of which timeout(1) may send two: removes the network."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    signal.signal(signal.SIGTERM, end)
    words = sys.argv[1:]
    separator = words.index("--") if "--" in words else len(words)
    own, command = words[:separator], words[separator + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    groups = [[]]
    for word in own:
        if word == "--host":
            groups.append([])
        else:
            groups[-1].append(word)
    options, all_links = parser.parse_known_args(groups[0])
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    if options.check:
        for tool in ("iperf3", "ping"):
            if shutil.which(tool) is None:
                print(f"skipped: no {tool} here (tools/scripts/install_dependencies.sh --cluster)")
                return 77
        return 1 if check() else 0
    if not command:
        parser.error("no command behind --")
    common = link_of(all_links, options.seed)
    links = [common] * options.hosts
    for number, *link in groups[1:]:
        links[int(number)] = link_of(link, f"{options.seed} {number}", common)
    with Network(links, seed=options.seed) as network:
        return run_on_all(network, command)


if __name__ == "__main__":
    sys.exit(main())
