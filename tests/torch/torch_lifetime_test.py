#!/usr/bin/env python3
"""Process groups over "engine" that are made again, that make calls in callbacks, or whose ranks end at different calls.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_lifetime_test.py BUILD_FOLDER [PART...]     exits with 77 without PyTorch
A rank runs this file with RANK set and the name of its part.
"""
import datetime
import os
import sys
import time

import torch_ranks

SECONDS = 120 * torch_ranks.SCALE  # for a part, on a busy machine; timeouts of groups are longer
LONG = datetime.timedelta(seconds=4 * SECONDS)


def callbacks():
    """A callback of a future makes a call and waits for it, and so does the callback of that one; likewise for messages."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)

    def doubled(done):
        value = done.value()[0]
        return dist.all_reduce(value, async_op=True).get_future().then(
            lambda inner: dist.all_reduce(inner.value()[0], async_op=True).get_future().wait()[0]).wait()

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(doubled)
    assert future.wait().tolist() == [8, 8, 8], future.value()
    other, theirs = 1 - dist.get_rank(), torch.zeros(2)

    def answered(done):
        received, answer = done.value()[0].clone(), torch.zeros(2)
        sent = dist.isend(received + 1, other, tag=2)
        dist.irecv(answer, other, tag=2).get_future().wait()
        sent.wait()
        return answer

    future = dist.irecv(theirs, other, tag=1).get_future().then(answered)
    dist.barrier()  # no message comes before the callback is there: it runs on a thread of the backend
    dist.send(torch.full((2,), 5.), other, tag=1)
    assert future.wait().tolist() == [6, 6], future.value()
    dist.destroy_process_group()


def power_sgd():
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("engine", timeout=LONG)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 16))
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.ones(4, 8) * (dist.get_rank() + 1)).sum().backward()
    gradient = model.module.weight.grad
    theirs = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(theirs, gradient)
    assert torch.equal(theirs[0], theirs[1])
    dist.destroy_process_group()


def again():
    import torch
    import torch.distributed as dist
    for number in range(8):
        dist.init_process_group("engine", timeout=LONG)
        group = dist.new_group([0, 1])
        for members in (None, group):
            tensor = torch.full((2,), float(number))
            dist.all_reduce(tensor, group=members)
            assert tensor.tolist() == [2. * number] * 2, tensor
        if number % 2 == 1:
            dist.barrier()
        dist.destroy_process_group()


def given_up():
    """A rank that no longer waits for a call ends at once, although the other one never makes that call and works on."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        try:
            work.wait(datetime.timedelta(seconds=1))
        except RuntimeError as error:
            print(error, flush=True)
    else:
        sys.stdin.readline()
    dist.destroy_process_group()


def fails_with(text, call):
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        assert text in str(error), f"expected {text!r} in {error}"
        print(f"{error}"[:200], flush=True)
        return time.monotonic() - begin
    raise AssertionError(f"an error was expected: {text}")


def fewer_calls(group_ends, rank):
    """`rank` makes one call fewer than the others, and ends in order: by destroy_process_group(), or with its program."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() != rank:
        fails_with(f"rank {rank} (host ", lambda: dist.all_reduce(torch.ones(1)))
    if group_ends or dist.get_rank() != rank:
        dist.destroy_process_group()


def fewer_calls_of_rank_0():
    fewer_calls(True, 0)


def fewer_calls_of_rank_1():
    fewer_calls(False, 1)


def exit_code():
    """Rank 1 ends by sys.exit(3)."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        print("ended", flush=True)
        sys.exit(3)
    fails_with("rank 1 (host ", lambda: [dist.all_reduce(torch.ones(1)) for _ in range(1000)])


def fewer_messages():
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    if dist.get_rank() == 1:
        dist.send(torch.ones(2), 0)
    else:
        theirs = torch.zeros(2)
        dist.recv(theirs, 1)
        fails_with("rank 1 has left", lambda: dist.recv(theirs, 1))
    dist.destroy_process_group()


def exact_timeouts():
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    for seconds in (0.5, 2):
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=seconds))
        dist.barrier()
        if dist.get_rank() == 0:
            took = fails_with("timeout", lambda: dist.all_reduce(torch.ones(1), group=group))
            # Waiting for news of the other rank would take 4 s more.
            assert seconds <= took < seconds + 3, took
        dist.barrier()
    dist.destroy_process_group()


def different():
    """Calls that differ only in what PyTorch makes of them: type, reduction, destination."""
    import torch
    import torch.distributed as dist
    dist.init_process_group("engine", timeout=LONG)
    rank = dist.get_rank()
    calls = {
        "(AVG)": lambda group: dist.all_reduce(torch.ones(2), dist.ReduceOp.AVG if rank else dist.ReduceOp.SUM, group=group),
        "(to rank 1)": lambda group: dist.reduce(torch.ones(2), rank, group=group),
        "(Short)": lambda group: dist.all_reduce(torch.ones(2, dtype=torch.int16 if rank else torch.int32), group=group),
        "(Int)": lambda group: dist.broadcast(torch.ones(2, dtype=torch.int32 if rank else torch.float32), 0, group=group),
        "(Double)": lambda group: dist.all_gather_into_tensor(torch.ones(4, dtype=torch.float64 if rank else torch.int64),
                                                              torch.ones(2, dtype=torch.float64 if rank else torch.int64), group=group),
    }
    for text, call in calls.items():
        group = dist.new_group([0, 1])
        fails_with(text, lambda: call(group))
        dist.barrier()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        fails_with("of type Int, rank 0 sent 8 bytes of type Float", lambda: dist.recv(torch.ones(2, dtype=torch.int32), 0))
    dist.barrier()
    for call in (lambda: dist.all_reduce(torch.ones(1).expand(4)), lambda: dist.broadcast(torch.ones(1).expand(4), 0),
                 lambda: dist.all_gather([torch.ones(1).expand(2)] * 2, torch.ones(2))):
        fails_with("elements of the tensor share memory", call)
    theirs = [torch.zeros(4), torch.zeros(4)]
    dist.all_gather(theirs, torch.ones(1).expand(4))  # is only read
    assert theirs[1].tolist() == [1] * 4
    dist.destroy_process_group()


def run_rank(part):
    import engine_torch  # noqa: F401  registers the backend
    globals()[part]()
    print("ended", flush=True)


def expect_success(build, part):
    for rank, (code, output) in enumerate(torch_ranks.Ranks(build, __file__, 2, [part]).wait(SECONDS)):
        expected = 3 if part == "exit_code" and rank == 1 else 0
        if code != expected or "ended" not in output:
            sys.exit(f"{part}: rank {rank} ended with {code}:\n{output}")


def expect_early_end(build, part):
    """Rank 0 ends; rank 1 waits for its standard input until then."""
    ranks = torch_ranks.Ranks(build, __file__, 2, [part], stdin=True)
    try:
        output, _ = ranks.processes[0].communicate(timeout=SECONDS)
    finally:
        for process in ranks.processes:
            process.kill()
    if ranks.processes[0].returncode != 0 or "timed out" not in output:
        sys.exit(f"{part}: rank 0 ended with {ranks.processes[0].returncode}:\n{output}")


PARTS = {"callbacks": expect_success, "power_sgd": expect_success, "again": expect_success, "given_up": expect_early_end,
         "fewer_calls_of_rank_0": expect_success, "fewer_calls_of_rank_1": expect_success, "exit_code": expect_success,
         "fewer_messages": expect_success, "exact_timeouts": expect_success, "different": expect_success}


def main(build, parts):
    torch_ranks.require_torch()
    for part in parts or PARTS:
        begin = time.monotonic()
        PARTS[part](build, part)
        print(f"{part}: as expected, {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    if "RANK" in os.environ and sys.argv[1] in globals():
        run_rank(sys.argv[1])
    else:
        main(sys.argv[1], sys.argv[2:])
