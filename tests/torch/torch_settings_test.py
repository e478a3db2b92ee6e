#!/usr/bin/env python3
"""Claims of docs/pytorch.md about the store, failed groups, a timeout of 0 and rejected settings, on two ranks.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_settings_test.py BUILD_FOLDER     exits with 77 without PyTorch
A rank runs this file with RANK set and the file of PyTorch's store.
"""
import datetime
import os
import sys
import tempfile
import time

import torch_ranks

SECRET = "0123456789abcdef" * 4


def fails_with(error, text, call):
    try:
        call()
    except error as found:
        assert text in str(found), f"expected {text!r} in {found}"
        return
    raise AssertionError(f"{error.__name__} was expected: {text}")


def check_store(file):
    """PyTorch's store is neither authenticated nor encrypted: it has the address of rank 0, but not the secret."""
    with open(file, "rb") as store:
        contents = store.read()
    assert b"engine/address" in contents
    for secret in (SECRET.encode(), bytes.fromhex(SECRET)):
        assert secret not in contents


def check_failed_group(dist, torch):
    """After a failure all calls of this process group fail, and those of others do not."""
    group, tensor = dist.new_group([0, 1]), torch.ones(3)
    different = "rank 0 called all_reduce sum of 3 f32, rank 1 all_reduce sum of 4 f32"
    fails_with(dist.DistBackendError, different, lambda: dist.all_reduce(torch.ones(3 + dist.get_rank()), group=group))
    fails_with(dist.DistBackendError, different, lambda: dist.all_reduce(tensor, group=group))
    fails_with(dist.DistBackendError, different, lambda: dist.barrier(group))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2, 2, 2], tensor


def check_timeout_of_zero(dist):
    """On rank 0, monitored_barrier() does not wait at all: rank 1 does not come."""
    group = dist.new_group([0, 1])
    if dist.get_rank() == 0:
        begin = time.monotonic()
        fails_with(RuntimeError, "Rank 0 timed out in monitoredBarrier: its timeout is 0 ms",
                   lambda: dist.monitored_barrier(group, timeout=datetime.timedelta(0)))
        assert time.monotonic() - begin < 60 * torch_ranks.SCALE  # the group's timeout is 30 minutes
    dist.barrier()


def check_rejected(dist):
    os.environ["ENGINE_BACKEND"] = "gloo"
    fails_with(Exception, "ENGINE_BACKEND is gloo, but PyTorch has a Gloo of its own in this process", lambda: dist.new_group([0, 1]))
    del os.environ["ENGINE_BACKEND"]


def run_rank(file):
    import torch
    import torch.distributed as dist
    import engine_torch  # noqa: F401  registers the backend
    dist.init_process_group("engine", init_method=f"file://{file}", rank=int(os.environ["RANK"]), world_size=2)
    check_store(file)
    check_failed_group(dist, torch)
    check_timeout_of_zero(dist)
    check_rejected(dist)
    dist.barrier()
    print("passed", flush=True)
    dist.destroy_process_group()


def main(build):
    torch_ranks.require_torch()
    with tempfile.TemporaryDirectory() as folder:
        outputs = torch_ranks.run_ranks(build, __file__, 2, [os.path.join(folder, "store")], {"ENGINE_SECRET": SECRET})
    assert all(output.endswith("passed\n") for output in outputs), outputs


if __name__ == "__main__":
    if "RANK" in os.environ:
        run_rank(sys.argv[1])
    else:
        main(sys.argv[1])
