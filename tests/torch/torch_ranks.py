"""Builds the backend "engine" of torch.distributed, and runs ranks of a script over it or over another backend.

PEER_PYTHON is the Python that has PyTorch (default python3). Tests that import this exit with 77, skipped, without it.
"""
import os
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.environ.get("PEER_PYTHON", "python3")
SKIPPED = 77
SCALE = int(os.environ.get("ENGINE_TEST_TIME_SCALE", "1"))


def require_torch():
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"skipped: {PYTHON} has no PyTorch (PEER_PYTHON=PYTHON, tools/scripts/readers.sh --torch)")
        sys.exit(SKIPPED)


def module_folder(build):
    return os.path.join(build, "torch")


def build_module(build):
    """Builds engine_torch against the library of a build folder."""
    folder = module_folder(build)
    python = subprocess.run([PYTHON, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True)
    for command in (["cmake", "-S", f"{ROOT}/tools/api/torch", "-B", folder, f"-DENGINE_BUILD={os.path.abspath(build)}",
                     f"-DPython3_EXECUTABLE={python.stdout.strip()}"],
                    ["cmake", "--build", folder, "--parallel", str(os.cpu_count())]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"torch_build_test: {' '.join(command)}\n{done.stdout}{done.stderr}")


class Ranks:
    """Processes of a script, one a rank, that find each other as those of torchrun do."""

    def __init__(self, build, script, world, arguments=(), variables=None, stdin=False):
        """`stdin`: the ranks have an open standard input of their own."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.processes = []
        for rank in range(world):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                               PYTHONPATH=os.pathsep.join([module_folder(build), os.path.dirname(os.path.abspath(__file__))]))
            environment.update(variables or {})
            self.processes.append(subprocess.Popen([PYTHON, script, *arguments], env=environment, text=True,
                                                   stdin=subprocess.PIPE if stdin else None,
                                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT))

    def wait(self, seconds=300):
        """(exit code, output) of each rank; at the limit they are killed, and have the code None."""
        until = time.monotonic() + seconds * SCALE
        ends = []
        for process in self.processes:
            try:
                output, _ = process.communicate(timeout=max(until - time.monotonic(), 1))
                ends.append((process.returncode, output))
            except subprocess.TimeoutExpired:
                process.kill()
                ends.append((None, process.communicate()[0]))
        return ends


def run_ranks(build, script, world, arguments=(), variables=None, seconds=300):
    """Outputs of the ranks, all of which must succeed."""
    ends = Ranks(build, script, world, arguments, variables).wait(seconds)
    for rank, (code, output) in enumerate(ends):
        if code != 0:
            sys.exit(f"{os.path.basename(script)} {' '.join(arguments)}: rank {rank} of {world} ended with {code}:\n{output}")
    return [output for _, output in ends]
