#!/usr/bin/env python3
"""Packs the backend of torch.distributed as a wheel, installs it in an environment of its own and runs a script that does not import it.

Usage: PEER_PYTHON=PYTHON tests/torch/torch_wheel_test.py BUILD_FOLDER
Exits with 77 (skipped) without PyTorch or what packs, and at the end without root and iproute2, which two hosts need.
"""
import contextlib
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

import torch_ranks

sys.path.insert(0, os.path.join(torch_ranks.ROOT, "tests", "cluster"))
import link_emulator  # noqa: E402

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddp_script.py")
SECONDS = 120 * torch_ranks.SCALE
STEPS = "30"


def output_of(command, code=0, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, **options)
    assert done.returncode == code, f"{command} ended with {done.returncode}, expected {code}:\n{done.stdout}"
    return done.stdout


def make_wheel(build, folder):
    output_of([f"{torch_ranks.ROOT}/tools/scripts/torch_wheel.sh", "--no-install", "--python", torch_ranks.PYTHON, "--from", build,
               "--output", folder])
    name, = (name for name in os.listdir(folder) if name.endswith(".whl"))
    return os.path.join(folder, name)


def check_contents(wheel, build):
    """Metadata, and no path of the machine that has built it."""
    asked = "import sys, torch; print(*sys.version_info[:2], *torch.__version__.split('.')[:2], *torch.__path__)"
    major, minor, torch_major, torch_minor, torch_folder = output_of([torch_ranks.PYTHON, "-c", asked]).split(maxsplit=4)
    tag = f"cp{major}{minor}"
    assert re.fullmatch(rf"engine_torch-[\d.]+-{tag}-{tag}-linux_\w+\.whl", os.path.basename(wheel)), wheel
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    info, = {name.split("/")[0] for name in contents if ".dist-info/" in name}
    metadata = contents[f"{info}/METADATA"].decode()
    assert f"\nRequires-Dist: torch>={torch_major}.{torch_minor},<{torch_major}.{int(torch_minor) + 1}\n" in metadata, metadata
    assert contents[f"{info}/licenses/LICENSE"].startswith(b"MIT License")
    for package in ("torch", "pybind11", "libsodium23", "libxxhash0"):
        assert f"{info}/licenses/compiled-in/{package}" in contents, sorted(contents)
    assert f"{info}/licenses/compiled-in/MISSING" not in contents
    foreign = [folder.encode() for folder in (torch_ranks.ROOT, os.path.abspath(build), torch_folder.strip())]
    for name, data in contents.items():
        for folder in foreign:
            at = data.find(folder)
            assert at < 0, f"{name} names a folder of this machine: {data[at:at + 200]}"


@contextlib.contextmanager
def environment(wheel, folder):
    """Its Python, which sees the PyTorch of PEER_PYTHON and the installed wheel."""
    home = os.path.join(folder, "env")
    output_of([torch_ranks.PYTHON, "-m", "venv", home])
    python = os.path.join(home, "bin", "python")
    theirs, = output_of([torch_ranks.PYTHON, "-c", "import os, torch; print(os.path.dirname(*torch.__path__))"]).splitlines()
    ours, = output_of([python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]).splitlines()
    with open(os.path.join(ours, "torch_of_others.pth"), "w", encoding="utf-8") as file:
        file.write(theirs + "\n")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    output_of([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel])
    yield python, os.path.join(ours, "engine_torch")
    output_of([*pip, "uninstall", "--quiet", "--yes", "engine-torch"])
    left = [name for name in os.listdir(ours) if "engine" in name]
    assert not left, f"left behind: {left}"


def variables(folder, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ENGINE_", "PYTHON"))}
    return {**kept, "HOME": folder, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def check_libraries(module_folder):
    """All libraries that it needs are beside it, or PyTorch's, or the C and C++ libraries."""
    module, = (name for name in os.listdir(module_folder) if name.startswith("_backend."))
    dynamic = output_of(["readelf", "--dynamic", "--wide", os.path.join(module_folder, module)])
    assert re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", dynamic) == ["$ORIGIN"], dynamic
    for name in os.listdir(module_folder):
        if ".so" in name and name != module:
            dynamic = output_of(["readelf", "--dynamic", "--wide", os.path.join(module_folder, name)])
            assert not re.search(r"R(UN)?PATH\)", dynamic), dynamic
    for line in output_of(["ldd", os.path.join(module_folder, module)]).splitlines():
        name, *_ = line.split()
        others = r"lib(torch\w*|c10|stdc\+\+|gcc_s|c|m|dl|rt|pthread|resolv)\.so.*|linux-vdso\S*|\S*/ld-linux\S*"
        assert f"=> {module_folder}/" in line or re.fullmatch(others, name), line


STARTS = """
import pathlib, sys, warnings
import torch
import torch.distributed as dist

def reduce_over(backend):
    try:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        print(backend, tensor.tolist())
    except Exception as error:
        print(type(error).__name__, error)
"""
# `import torch` has registered the backend, has loaded no library, and the default backend is still PyTorch's.
AS_INSTALLED = STARTS + """
maps = pathlib.Path("/proc/self/maps")
print("engine" in dist.Backend.backend_list, "libengine" in maps.read_text(), dist.Backend.default_device_backend_map["cpu"])
reduce_over("engine")
print("libengine" in maps.read_text())
import engine_torch
print(engine_torch.__version__)
torch.__version__ = "2.0.1"
reduce_over("engine")
dist.Backend.backend_list.remove("engine")
dist.Backend.register_backend = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    engine_torch.register()
print(caught[0].message)
"""
SWITCHED_OFF = STARTS + """
print("engine_torch" in sys.modules)
reduce_over("engine")
import engine_torch
reduce_over("engine")
"""
BROKEN = STARTS + """
reduce_over("gloo")
reduce_over("engine")
"""
# The first import is not PyTorch's, which finds the module at work.
OTHER_ORDER = "import engine_torch" + STARTS + """
reduce_over("engine")
"""


def check_import(python, module_folder, folder, version):
    """`import torch` neither loads the library nor needs it; TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches the registration off."""
    def check(text, *patterns, **more):
        lines = output_of([python, "-u", "-W", "error", "-c", text], env=variables(folder, **more)).splitlines()
        assert len(lines) >= len(patterns), lines
        for line, pattern in zip(lines, patterns):
            assert re.fullmatch(pattern, line), f"{line!r}, expected {pattern!r} in {lines}"

    works = r"engine \[1\.0, 1\.0\]"
    check(AS_INSTALLED, "True False gloo", works, "True", re.escape(version) + r"( \(.*\))?",
          r"RuntimeError engine_torch was built for PyTorch [\d.]+, and this is 2\.0\.1; install the engine_torch that .*",
          r'PyTorch 2\.0\.1 has no backend "engine": TypeError: .*')
    check(SWITCHED_OFF, "False", ".*engine.*", works, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    check(OTHER_ORDER, works)

    library = os.path.join(module_folder, "libengine.so.0")
    kept = os.path.join(folder, "kept")
    shutil.move(library, kept)
    for broken in (None, b"\x7fELF but no library"):
        if broken:
            with open(library, "wb") as file:
                file.write(broken)
        check(BROKEN, r"gloo \[1\.0, 1\.0\]",
              r"RuntimeError the library of engine_torch cannot be loaded into PyTorch \S+: .*libengine\.so\.0.*")
    shutil.move(kept, library)
    print("import torch is as before, also if the library is missing or broken")


def parameters_of(outputs, world):
    found = re.findall(r"parameters (\w+)", outputs)
    assert len(found) == world and len(set(found)) == 1, outputs
    return found[0]


def torchrun(python, *options):
    return [python, "-m", "torch.distributed.run", *options, SCRIPT]


def check_one_host(python, folder):
    ends = {}
    for backend in ("engine", "gloo"):
        command = [*torchrun(python, "--standalone", "--nproc-per-node", "2"), backend, STEPS]
        ends[backend] = parameters_of(output_of(command, env=variables(folder)), 2)
    assert ends["engine"] == ends["gloo"], ends
    print("one host: two ranks of torchrun end with Gloo's parameters, without an import")
    return ends["engine"]


@contextlib.contextmanager
def on_two_hosts(network, python, homes, steps, **more):
    """torchrun on each host. Yields the processes, each the leader of a group."""
    processes = []
    for host in range(2):
        command = torchrun(python, "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(host), "--master-addr", network.address(0),
                           "--master-port", "29500")
        processes.append(subprocess.Popen([*network.inside(host), *command, "engine", steps], env=variables(homes[host], **more), text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True))
    try:
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def worker_of(process):
    """The rank that a torchrun has started."""
    ids = output_of(["ps", "--no-headers", "-o", "pid", "--ppid", str(process.pid)]).split()
    commands = {int(id): open(f"/proc/{id}/cmdline", encoding="utf-8").read() for id in ids}
    worker, = (id for id, command in commands.items() if "ddp_script.py" in command)
    return worker


def check_two_hosts(python, folder, expected):
    with link_emulator.Network([link_emulator.Link()] * 2) as network:
        homes = [os.path.join(folder, f"home-{host}") for host in range(2)]
        for home in homes:
            os.mkdir(home)
        # Hosts without a common home need a secret.
        with on_two_hosts(network, python, homes, STEPS, ENGINE_SECRET="0123456789abcdef" * 2) as processes:
            outputs = [process.communicate(timeout=SECONDS)[0] for process in processes]
            assert [process.returncode for process in processes] == [0, 0], outputs
        assert parameters_of("".join(outputs), 2) == expected, outputs
        assert not any(os.listdir(home) for home in homes), homes
        print("two hosts: the same parameters")
        with on_two_hosts(network, python, homes[:1] * 2, str(10**9)) as processes:
            for process in processes:
                read = []
                for line in process.stdout:
                    read.append(line)
                    if line.startswith("trains"):
                        break
                else:
                    raise AssertionError("".join(read))
            killed = worker_of(processes[1])
            os.kill(killed, signal.SIGKILL)
            output, _ = processes[0].communicate(timeout=SECONDS)
        named = re.search(rf"DistBackendError: .*rank 1 \(host \S+, pid {killed}\) died.*", output)
        assert processes[0].returncode != 0 and named, output
        print(f"two hosts: {named[0]}")


def main(build):
    torch_ranks.require_torch()
    for tool in ("zip", "readelf", "openssl", "strip", "ldd"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            return torch_ranks.SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(build, folder)
        again = make_wheel(build, os.path.join(folder, "again"))
        assert filecmp.cmp(wheel, again, shallow=False), "the same build gives two wheels"
        check_contents(wheel, build)
        with environment(wheel, folder) as (python, module_folder):
            check_libraries(module_folder)
            check_import(python, module_folder, folder, os.path.basename(wheel).split("-")[1])
            parameters = check_one_host(python, folder)
            lacking = link_emulator.missing()
            if not lacking:
                check_two_hosts(python, folder, parameters)
    if lacking:
        print(f"skipped: two hosts: {lacking}")
        return torch_ranks.SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
