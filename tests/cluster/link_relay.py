#!/usr/bin/env python3
"""Carries frames between two interfaces late, and loses some: for kernels without netem.

Usage: link_relay.py A B [--delay SECONDS] [--jitter SECONDS] [--loss PERCENT] [--cuts AT:SECONDS,...] [--seed TEXT]

Each direction takes --delay, and up to --jitter more or less by a uniform distribution; frames keep their order. --loss is of
frames in each direction. During a cut, which begins AT seconds after "ready" is printed, every frame is lost. The same seed
loses the same frames of the same sequence and delays them alike. Needs CAP_NET_RAW, and the interfaces up.
"""
import argparse
import collections
import random
import select
import socket
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_RCVBUFFORCE = 33
ETH_P_ALL = 3
PACKET_OUTGOING = 4


def open_end(name):
    """A socket that takes and sends whole frames of one interface. The header of packet(7)'s PACKET_VNET_HDR stands in front of
    each frame, so that checksums and segments that the kernel has put off stay so."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((name, ETH_P_ALL))
    return end


class Direction:
    """The frames under way from one interface to the other."""

    def __init__(self, source, target, options, seed):
        self.source, self.target, self.options = source, target, options
        self.dice = random.Random(seed)
        self.frames = collections.deque()  # (when it arrives, frame)

    def take(self, cut):
        try:
            frame, address = self.source.recvfrom(1 << 17)
        except OSError:  # the interface is down
            return
        if address[2] == PACKET_OUTGOING or cut:
            return
        if self.options.loss and 100 * self.dice.random() < self.options.loss:
            return
        late = max(0.0, self.options.delay + self.options.jitter * self.dice.uniform(-1, 1))
        arrival = time.monotonic() + late
        if self.frames:
            arrival = max(arrival, self.frames[-1][0])
        self.frames.append((arrival, frame))

    def deliver(self):
        while self.frames and self.frames[0][0] <= time.monotonic():
            try:
                self.target.send(self.frames.popleft()[1])
            except OSError:
                pass  # as a cable does

    def next(self):
        return self.frames[0][0] if self.frames else None


def parse_cuts(text):
    return [tuple(float(part) for part in cut.split(":")) for cut in text.split(",")] if text else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--jitter", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("--cuts", type=parse_cuts, default=[])
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    a, b = open_end(options.a), open_end(options.b)
    directions = [Direction(a, b, options, f"{options.seed} there"), Direction(b, a, options, f"{options.seed} back")]
    print("ready", flush=True)
    begin = time.monotonic()
    while True:
        arrivals = [t for t in (d.next() for d in directions) if t is not None]
        timeout = max(0.0, min(arrivals) - time.monotonic()) if arrivals else None
        ready = select.select([a, b], [], [], timeout)[0]
        since = time.monotonic() - begin
        cut = any(at <= since < at + seconds for at, seconds in options.cuts)
        for direction in directions:
            if direction.source in ready:
                direction.take(cut)
            direction.deliver()


if __name__ == "__main__":
    main()
