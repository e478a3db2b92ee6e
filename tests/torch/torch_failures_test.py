#!/usr/bin/env python3
"""Ranks of torch.distributed over "engine" that are killed, stopped, late, or end with an exception: the others name them.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_failures_test.py BUILD_FOLDER     exits with 77 without PyTorch
A rank runs this file with RANK set and the name of its part.
"""
import os
import re
import signal
import sys
import time

import torch_ranks

SECONDS = 60 * torch_ranks.SCALE  # within which a failure is named, on a busy machine


def training():
    import torch
    import torch.distributed as dist
    tensor = torch.ones(1000)
    for step in range(10**9):
        dist.all_reduce(tensor)
        tensor.fill_(1)
        if step == 20:
            print("works", flush=True)


def receiving():
    import torch
    import torch.distributed as dist
    dist.barrier()
    print("works", flush=True)
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1), 1)
    time.sleep(600)


def raising():
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(1))
    print("works", flush=True)
    if dist.get_rank() == 1:
        raise ValueError("the data of rank 1 ended")
    dist.all_reduce(torch.ones(1))


def different():
    import torch
    import torch.distributed as dist
    print("works", flush=True)
    dist.all_reduce(torch.ones(3 + dist.get_rank()))


def late():
    """One rank does not come to a barrier with a limit of its own."""
    import datetime
    import torch
    import torch.distributed as dist
    print("works", flush=True)
    dist.barrier()
    if dist.get_rank() != 1:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
    sys.stdin.readline()


def short_timeout():
    import datetime
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(1))
    print("works", flush=True)
    if dist.get_rank() == 0:
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=2)
        dist.distributed_c10d._get_default_group().allreduce([torch.ones(1)], options).wait()
    time.sleep(600)


def early_end():
    """A rank that has nothing left to do ends, without a word; the others continue without it."""
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(1))
    pair = dist.new_group([1, 2])
    print("works", flush=True)
    if dist.get_rank() == 0:
        return
    for _ in range(200):
        dist.all_reduce(torch.ones(100), group=pair)
    theirs = torch.empty(5)
    if dist.get_rank() == 1:
        dist.send(torch.arange(5.), 2)
    else:
        dist.recv(theirs, 1)
        assert theirs.tolist() == [0, 1, 2, 3, 4]
    print("ended", flush=True)


def run_rank(part):
    import torch.distributed as dist
    import engine_torch  # noqa: F401  registers the backend
    dist.init_process_group("engine")
    globals()[part]()


def next_line(process):
    """None at the end. Takes no byte of a later line, which communicate() would not find."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            return None
        line += byte
    return line.decode(errors="replace").rstrip()


def started(build, part, world=2, variables=None):
    ranks = torch_ranks.Ranks(build, __file__, world, [part], variables)
    for process in ranks.processes:
        line = None
        while line != "works":
            line = next_line(process)
            if line is None:
                sys.exit(f"{part}: a rank ended early with {process.wait()}")
    return ranks


def expect(part, output, *patterns):
    for pattern in patterns:
        if not re.search(pattern, output):
            sys.exit(f"{part}: expected {pattern!r} in:\n{output}")


def expect_named(build, part, world, end, *patterns, variables=None):
    """`end` makes rank 1 fail; rank 0 must name it in time."""
    ranks = started(build, part, world, variables)
    begin = time.monotonic()
    end(ranks.processes[1])
    code, output = None, ""
    try:
        output, _ = ranks.processes[0].communicate(timeout=SECONDS)
        code = ranks.processes[0].returncode
    finally:
        for process in ranks.processes:
            process.kill()
    took = time.monotonic() - begin
    if code == 0:
        sys.exit(f"{part}: rank 0 has not failed:\n{output}")
    expect(part, output, *patterns)
    print(f"{part}: named after {took:.1f} s: {re.search(patterns[0] + '.*', output).group(0)}")


def main(build):
    torch_ranks.require_torch()
    kill, stop = (lambda process: process.send_signal(signal.SIGKILL)), (lambda process: process.send_signal(signal.SIGSTOP))
    sockets = {"ENGINE_LOCAL_STAGE": "off"}
    expect_named(build, "training", 2, kill, r"rank 1 \(host \S+, pid \d+\) died", "DistBackendError")
    expect_named(build, "training", 3, kill, r"rank 1 \(host \S+, pid \d+\) died", variables=sockets)
    expect_named(build, "training", 2, stop, r"rank 1 \(host \S+, pid \d+\) ")
    expect_named(build, "receiving", 2, kill, r"receive of 4 bytes from rank 1: rank 1 \(host \S+, pid \d+\) died")
    expect_named(build, "receiving", 3, stop, r"receive of 4 bytes from rank 1: rank 1 \(host \S+, pid \d+\) ")
    nothing = lambda process: None
    expect_named(build, "raising", 2, nothing, r"rank 1 .*ValueError: the data of rank 1 ended")
    expect_named(build, "different", 2, nothing, "rank 0 called all_reduce sum of 3 f32, rank 1 all_reduce sum of 4 f32")
    expect_named(build, "short_timeout", 2, nothing, "no result within the timeout of this call")
    expect_named(build, "late", 3, nothing, r"\[Rank 0\]: Rank 1 failed to pass monitoredBarrier in 2000 ms")
    ends = started(build, "early_end", 3).wait(60)
    for rank, (code, output) in enumerate(ends):
        if code != 0 or (rank > 0) != ("ended" in output):
            sys.exit(f"early_end: rank {rank} ended with {code}:\n{output}")
    print("early_end: the others continue")


if __name__ == "__main__":
    if "RANK" in os.environ and sys.argv[1] in globals():
        run_rank(sys.argv[1])
    else:
        main(sys.argv[1])
