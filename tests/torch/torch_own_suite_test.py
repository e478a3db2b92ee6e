#!/usr/bin/env python3
"""Runs PyTorch's own tests of torch.distributed, those for CPUs, with "engine" wherever they say "gloo".

Usage: PEER_PYTHON=PYTHON tests/torch/torch_own_suite_test.py BUILD_FOLDER [--ranks 3] [--match REGEX] [--list] [--gloo]
  --gloo   the same tests with Gloo itself, to compare
Prints a line for each test: passed, failed or skipped, and why. The tests are those of the installed PyTorch,
torch.testing._internal.distributed.distributed_test (tests/requirements_torch.txt). The ranks run one test after the other, each
in a process group of its own, and are started again after a failure. Exits with 1 if a test fails that DIFFERENT does not name,
with 77 without PyTorch.
"""
import argparse
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta

import torch_ranks

# Test: why it fails.
DIFFERENT = {
    "test_SyncBatchNorm_process_group": "needs torchvision; fails with Gloo, too",
    "test_batch_isend_irecv_mixed_backend_err": "needs a GPU; fails with Gloo, too",
    "test_batch_isend_irecv_op_err": "needs a GPU; fails with Gloo, too",
    "test_ddp_logging_data_cpu": "PyTorch calls the backend custom",
    "test_get_backend": "the backend is not called gloo",
    "test_new_subgroups_with_group_param": "needs four ranks; fails with Gloo, too",
    "test_sparse_all_reduce_sum": "sparse tensors are not implemented",
}
LIMIT = 100 * torch_ranks.SCALE  # seconds for one test
MARK = "own-suite:"


def suite():
    """The test class."""
    os.environ["BACKEND"] = "gloo"  # the tests choose by it what a backend must be able to do
    os.environ.setdefault("WORLD_SIZE", "3")
    import torch.distributed as dist
    if "OWN_SUITE_GLOO" not in os.environ:
        import engine_torch  # noqa: F401, registers the backend

        def replaced(function):
            def call(*arguments, **named):
                arguments = tuple("engine" if argument == "gloo" else argument for argument in arguments)
                if named.get("backend") == "gloo":
                    named["backend"] = "engine"
                return function(*arguments, **named)
            return call
        for name in ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"):
            setattr(dist, name, replaced(getattr(dist, name)))
    from torch.testing._internal.distributed import distributed_test

    class Own(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass
    return Own, distributed_test


def names(match):
    return [name for name in sorted(dir(suite()[0]))
            if name.startswith("test_") and "_cuda" not in name and re.search(match, name)]


def one_line(text):
    return " ".join(str(text).split())[:300]


def run_in_rank(own, tests, rank, name):
    """One test in a group of its own. Returns its outcome and why."""
    import torch.distributed as dist
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.common_utils import set_rng_seed
    set_rng_seed(1)  # the tests expect the same numbers on all ranks, as in new processes
    test = own(name)
    test.rank, test.file_name = rank, os.environ["TEMP_DIR"] + "/store"
    try:
        dist.init_process_group(backend="gloo", init_method=test.init_method, world_size=int(os.environ["WORLD_SIZE"]),
                                rank=rank, timeout=timedelta(seconds=tests.CUSTOM_PG_TIMEOUT.get(name, LIMIT // 2)))
        test._barrier()
        getattr(test, name)()
        test._barrier()
    except unittest.SkipTest as skip:
        return "skipped", one_line(skip)
    except SystemExit as end:
        reasons = [skip.message for skip in TEST_SKIPS.values() if skip.exit_code == end.code]
        return ("skipped", one_line(reasons[0])) if reasons else ("failed", f"exit code {end.code}")
    except Exception as error:
        return "failed", f"{type(error).__name__}: {one_line(error)}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "passed", ""


def serve(rank):
    """A rank: takes "NAME FOLDER PORT" lines, and answers each."""
    own, tests = suite()
    for line in sys.stdin:
        name, os.environ["TEMP_DIR"], os.environ["MASTER_PORT"] = line.split()
        outcome, why = run_in_rank(own, tests, rank, name)
        print(f"{MARK} {outcome} {why}", flush=True)
        if outcome == "failed":
            os._exit(1)


class Ranks:
    def __init__(self, count):
        self.count, self.running = count, []

    def start(self):
        while len(self.running) < self.count:
            self.running.append(subprocess.Popen([sys.executable, __file__, "-", "--rank", str(len(self.running))], text=True,
                                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))

    def end(self):
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []

    def answer(self, process):
        while select.select([process.stdout], [], [], LIMIT)[0]:
            line = process.stdout.readline()
            if not line:
                return "failed", "the rank ended"
            if line.startswith(MARK):
                return tuple((line.strip().split(maxsplit=2) + [""])[1:3])
        return "failed", f"no end within {LIMIT} s"

    def run(self, name):
        self.start()
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
            free.close()
            for part in ("barrier", "test_dir", "init_dir"):
                os.mkdir(os.path.join(folder, part))
            for process in self.running:
                process.stdin.write(f"{name} {folder} {port}\n")
                process.stdin.flush()
            answers = [self.answer(process) for process in self.running]
        for wanted in ("failed", "passed"):
            found = [(rank, answer) for rank, answer in enumerate(answers) if answer[0] == wanted]
            if wanted == "failed" and found:
                self.end()
                return "failed", f"rank {found[0][0]}: {found[0][1][1].strip()}"
            if found:
                return "passed", ""
        return answers[0]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--ranks", type=int, default=3)
    arguments.add_argument("--match", default=".")
    arguments.add_argument("--list", action="store_true")
    arguments.add_argument("--gloo", action="store_true")
    arguments.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    os.environ.update(WORLD_SIZE=str(chosen.ranks) if chosen.rank is None else os.environ["WORLD_SIZE"], OMP_NUM_THREADS="1",
                      MASTER_ADDR="127.0.0.1", ENGINE_SECRET="0123456789abcdef" * 2)
    if chosen.gloo:
        os.environ["OWN_SUITE_GLOO"] = "1"
    if chosen.rank is not None:
        return serve(chosen.rank)
    if chosen.list:
        print("\n".join(names(chosen.match)))
        return 0
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    unexpected = 0
    ranks = Ranks(chosen.ranks)
    for name in names(chosen.match):
        outcome, why = ranks.run(name)
        if outcome == "failed":
            unexpected += name not in DIFFERENT
            why += f" [{DIFFERENT[name]}]" if name in DIFFERENT else ""
        counts[outcome] += 1
        print(f"{outcome:8} {name} {why}", flush=True)
    ranks.end()
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if unexpected else 0


def be_inside():
    """Goes on in the Python that has PyTorch."""
    torch_ranks.require_torch()
    modules = "import expecttest, hypothesis, numpy"
    if subprocess.run([torch_ranks.PYTHON, "-c", modules], capture_output=True).returncode != 0:
        print(f"skipped: {torch_ranks.PYTHON} cannot {modules}")
        sys.exit(torch_ranks.SKIPPED)
    os.environ.update(OWN_SUITE_INSIDE="1", CUDA_VISIBLE_DEVICES="",
                      PYTHONPATH=torch_ranks.module_folder(os.path.abspath(sys.argv[1])))
    os.execvp(torch_ranks.PYTHON, [torch_ranks.PYTHON, *sys.argv])


if __name__ == "__main__":
    if "OWN_SUITE_INSIDE" not in os.environ and len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        be_inside()
    sys.exit(main())
