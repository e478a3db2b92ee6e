#!/usr/bin/env python3
"""Compares what nvcc and ptxas make of the kernels, as they ship (-O3, sm_90a), with the table compiled_kernels.csv.

Usage: tests/gpu/compiled_kernels.py [--all] [--update] [--match TEXT] [--show TEXT]
  --all         compile every file; default: those whose sources differ from what the table was made of
  --update      accept what there is now: write the table
  --match TEXT  only the files with TEXT in their path
  --show TEXT   print the rows of kernels whose file or name contains TEXT; compares nothing
  --table FILE, --root FOLDER, --build FOLDER   other places for the table, the sources, and compiled files (build/sass)
Exits with 1 if a kernel differs by more than 5 %, or if ptxas serializes wgmma. The last line is "N passed, N failed, N
skipped": kernels, or one skipped where nvcc or nvdisasm is missing, or nvcc is not the table's. Compiled files are kept by
the hash of their sources. No GPU is needed. nvdisasm: on the PATH, beside nvcc, or from tests/requirements.txt
(tools/scripts/readers.sh).

Columns: threads a block at most; registers; bytes spilled (stores and loads); warps that the registers leave to a
processor; all instructions; of these tensor (HMMA, HGMMA), moves (register to register), global loads, shared loads and
copies past registers of 16 bytes, and global loads of 2 bytes or less. `loop`: instructions of the loop with the most
tensor instructions or, in kernels without, the most FFMA; `loop_math` counts these, `loop_moves` its moves.
Shared memory is given at launch and is in no compiled file; so it is not here.
"""
import argparse
import csv
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURE = "sm_90a"
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-DENGINE_HAS_CUDA=1", f"-arch={ARCHITECTURE}",
         "-Xptxas", "-v", "-cubin"]
REGISTERS, WARPS = 65536, 64  # of a processor
TOLERANCE = 0.05
FEW = {"instructions": 4, "moves": 4, "loop": 4, "loop_moves": 4}  # so many more or less are no change
COUNTS = ["threads", "registers", "spilled", "warps", "instructions", "tensor", "moves", "global_16", "shared_16",
          "copies_16", "global_2", "loop", "loop_math", "loop_moves"]
FIELDS = ["file", "kernel", *COUNTS]


def sources_of(root, file):
    """The file and all of the project that it includes."""
    found, ahead = set(), [file]
    while ahead:
        name = ahead.pop()
        if name in found or not (root / name).exists():
            continue
        found.add(name)
        ahead += re.findall(r'^\s*#\s*include "([^"]+)"', (root / name).read_text(), flags=re.M)
    return sorted(found)


def hash_of(root, file):
    text = hashlib.sha256()
    for name in sources_of(root, file):
        text.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    return text.hexdigest()[:12]


def find_program(name, *places):
    return shutil.which(name) or next((p for p in places if os.access(p, os.X_OK)), None)


def find_nvdisasm():
    readers = os.environ.get("ENGINE_READERS") or os.path.expanduser("~/.cache/engine/readers")
    return find_program("nvdisasm", *[f"{home}/bin/nvdisasm" for home in cuda_homes()],
                        *glob.glob(f"{readers}/python/lib/python3*/site-packages/nvidia/cu*/bin/nvdisasm"))


def cuda_homes():
    return [os.environ[v] for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)] + ["/usr/local/cuda"]


def serialized(log):
    """What ptxas says of wgmma that run one after the other (C7510 to C7515): right numbers, a fraction of the speed."""
    return sorted({line.strip() for line in log.splitlines() if "wgmma" in line and "serialized" in line})


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def compile_file(nvcc, version, root, build, file, sources):
    """(compiled file, what ptxas said), from an earlier run if there was one."""
    key = hashlib.sha256(f"{version} {FLAGS} {file} {sources}".encode()).hexdigest()[:16]
    compiled = build / f"{Path(file).stem}.{key}.cubin"
    log = compiled.with_suffix(".log")
    if not log.exists():
        build.mkdir(parents=True, exist_ok=True)
        made = subprocess.run([nvcc, *FLAGS, f"-I{root}", "-o", compiled, root / file], capture_output=True, text=True)
        if made.returncode != 0:
            sys.exit(f"{file} does not compile:\n{made.stderr}")
        for old in build.glob(f"{Path(file).stem}.*"):
            if old.name.split(".")[1] != key:
                old.unlink()
        log.write_text(made.stdout + made.stderr)
    return compiled, log.read_text()


def plain_names(mangled):
    """Demangled without what is the same for all, and without parameters."""
    names = run("c++filt", input="\n".join(mangled)).splitlines()
    plain = {}
    for name, text in zip(mangled, names):
        text = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|engine::ops::cuda::|engine::ops::|engine::|base::", "", text)
        text = re.sub(r"^void ", "", text)
        text = re.sub(r"\((?:int|unsigned int|bool)\)", "", text)
        depth = 0
        for i, c in enumerate(text):  # up to the parenthesis of the parameters
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                text = text[:i]
                break
        plain[name] = text.replace(" ", "").replace(",", " ")
    return plain


def count_instructions(listing):
    """Counts of one kernel, from its lines of nvdisasm."""
    places, labels, branches = [], {}, []
    for line in listing:
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(places)
        elif one := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)(.*)", line):
            if target := re.search(r"`\((\.L_x_\d+)\)", one[2]):
                branches.append((len(places), target[1]))
            places.append(one[1])
    while places and places[-1] in ("NOP", "BRA"):  # padding
        places.pop()

    def kinds(part):
        count = dict.fromkeys(("tensor", "ffma", "moves", "global_16", "shared_16", "copies_16", "global_2"), 0)
        for name in part:
            head, wide = name.split(".")[0], ".128" in name
            count["tensor"] += head in ("HMMA", "HGMMA", "IMMA", "DMMA")
            count["ffma"] += head == "FFMA"
            count["moves"] += head == "MOV" or name.startswith("IMAD.MOV")
            count["global_16"] += head == "LDG" and wide
            count["shared_16"] += head == "LDS" and wide
            count["copies_16"] += head == "LDGSTS" and wide
            count["global_2"] += head == "LDG" and bool(re.search(r"\.[US](8|16)\b", name))
        return count

    whole = kinds(places)
    math = "tensor" if whole["tensor"] else "ffma"
    loop, most = [], 0
    for at, label in branches:
        begin = labels.get(label, at + 1)
        if begin > at:
            continue  # forward
        part = places[begin:at + 1]
        count = kinds(part)[math]
        if count > most or (count == most and count and len(part) < len(loop)):
            loop, most = part, count
    counts = {k: v for k, v in whole.items() if k != "ffma"}
    return counts | {"instructions": len(places), "loop": len(loop), "loop_math": most, "loop_moves": kinds(loop)["moves"]}


def rows_of(nvdisasm, file, compiled, log):
    usage = {}
    for part in log.split("Compiling entry function '")[1:]:
        name = part.split("'")[0]
        stores, loads = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()
        usage[name] = int(re.search(r"Used (\d+) registers", part)[1]), int(stores) + int(loads)
    listings, threads, current = {}, {}, None
    for line in run(nvdisasm, "-c", compiled).splitlines():
        if section := re.match(r"\.section\s+\.text\.(\S+?),", line.strip()) or re.match(r"//-+ \.text\.(\S+)", line):
            current = listings.setdefault(section[1], [])
        elif re.match(r"\s*\.section|//-+ ", line):
            current = None
        elif current is not None:
            current.append(line)
    for name in usage:  # __launch_bounds__
        threads[name] = most_threads(compiled, name)
    plain, rows = plain_names(list(usage)), []
    for name, (registers, spilled) in usage.items():
        block = threads[name] or 1024
        a_warp = -(-registers * 32 // 256) * 256  # given out by 256
        warps = min(WARPS, REGISTERS // (a_warp * (block // 32)) * (block // 32)) if block <= 1024 else 0
        rows.append({"file": file, "kernel": plain[name], "threads": threads[name],
                     "registers": registers, "spilled": spilled, "warps": warps, **count_instructions(listings.get(name, []))})
    return sorted(rows, key=lambda row: row["kernel"])


def most_threads(compiled, name, info={}):
    """EIATTR_MAX_THREADS of a kernel, 0 if it has none: its record in the section .nv.info.NAME."""
    if compiled not in info:
        info[compiled] = elf_sections(compiled.read_bytes())
    data, at = info[compiled].get(f".nv.info.{name}", b""), 0
    while at + 4 <= len(data):
        form, kind, value = data[at], data[at + 1], int.from_bytes(data[at + 2:at + 4], "little")
        at += 4
        if form == 4:  # sized: the value is its length
            if kind == 5:
                x, y, z = (int.from_bytes(data[at + 4 * i:at + 4 * i + 4], "little") for i in range(3))
                return x * y * z
            at += value
    return 0


def elf_sections(data):
    def number(at, size):
        return int.from_bytes(data[at:at + size], "little")
    table, size, count, names = number(40, 8), number(58, 2), number(60, 2), number(62, 2)
    headers = [(number(table + i * size, 4), number(table + i * size + 24, 8), number(table + i * size + 32, 8))
               for i in range(count)]
    text = data[headers[names][1]:headers[names][1] + headers[names][2]]
    return {text[name:text.index(b"\0", name)].decode(): data[at:at + length] for name, at, length in headers}


def differences(before, now):
    for field in COUNTS:
        old, new = int(before[field]), int(now[field])
        if abs(new - old) > max(TOLERANCE * old, FEW.get(field, 0)):
            yield field, old, new


def sources_file(table):
    """Apart, so that a table's difference shows kernels that have changed, and nothing else."""
    return table.with_name(table.stem + "_sources.csv")


def read_table(table):
    """(nvcc, rows, the hash of each file's sources)"""
    if not table.exists():
        return None, [], {}
    lines = table.read_text().splitlines()
    known = sources_file(table)
    sources = [line.split(",") for line in known.read_text().splitlines()] if known.exists() else []
    return lines[0].removeprefix("# "), list(csv.DictReader(lines[1:])), dict(sources)


def write_table(table, version, rows, hashes):
    with open(table, "w", newline="") as out:
        out.write(f"# {version}\n")
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["file"], row["kernel"])))
    sources_file(table).write_text("".join(f"{file},{hashes[file]}\n" for file in sorted(hashes)))


def show(rows, text):
    print(" | ".join(["kernel", *COUNTS]))
    for row in rows:
        if text in row["file"] or text in row["kernel"]:
            print(" | ".join([row["kernel"], *(str(row[c]) for c in COUNTS)]))


def skip(reason):
    print(f"Not compared: {reason}\n0 passed, 0 failed, 1 skipped")
    return 0


def main():
    here = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    for flag in ("--all", "--update"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--match", default="")
    parser.add_argument("--show")
    parser.add_argument("--root", type=Path, default=here)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    o = parser.parse_args()
    table, build = o.table or o.root / "tests/gpu/compiled_kernels.csv", o.build or o.root / "build/sass"

    nvcc, nvdisasm = find_program("nvcc", *[f"{home}/bin/nvcc" for home in cuda_homes()]), find_nvdisasm()
    if not nvcc or not nvdisasm:
        return skip(f"there is no {'nvdisasm' if nvcc else 'nvcc'}")
    version = f"nvcc {re.search(r'V([0-9.]+)', run(nvcc, '--version'))[1]} {ARCHITECTURE}"
    made_by, before, known = read_table(table)
    if made_by and made_by != version and not o.update and o.show is None:
        return skip(f"the table was made by {made_by}, and this is {version}: --update makes a new one")

    files = sorted(str(f.relative_to(o.root)) for f in o.root.glob("engine/ops/*/*.cu"))
    hashes = {file: hash_of(o.root, file) for file in files}
    every = o.all or o.show is not None or made_by != version
    chosen = [f for f in files if o.match in f and (every or known.get(f) != hashes[f])]
    if o.show is not None:
        chosen = [f for f in chosen if o.show in f] or chosen
    with ThreadPoolExecutor(o.jobs) as pool:
        made = list(pool.map(lambda f: compile_file(nvcc, version, o.root, build, f, hashes[f]), chosen))
        rows = pool.map(lambda f, pair: rows_of(nvdisasm, f, *pair), chosen, made)
        now = [row for each in rows for row in each]
    slow = {f: lines for f, (_, log) in zip(chosen, made) if (lines := serialized(log))}
    for file, lines in slow.items():
        print(*(f"{file}: {line}" for line in lines), sep="\n")
    if slow:
        print("ptxas serializes wgmma, and no table accepts that")
        print(f"{len(now) - len(slow)} passed, {len(slow)} failed, 0 skipped")
        return 1
    if o.show is not None:
        show(now, o.show)
        return 0
    if o.update:
        kept = [r for r in before if r["file"] not in chosen and r["file"] in files]
        known |= {f: hashes[f] for f in chosen}
        write_table(table, version, now + kept, {f: known[f] for f in files if f in known})
        print(f"{table.name}: {len(now)} kernels of {len(chosen)} files written")
        return 0

    old = {(r["file"], r["kernel"]): r for r in before}
    new = {(r["file"], r["kernel"]): r for r in now}
    faults = {key: ["not in the table"] for key in new if key not in old}
    faults |= {key: ["in the table, but not there any more"] for key in old
               if key not in new and o.match in key[0] and (key[0] in chosen or key[0] not in files)}
    for key in set(old) & set(new):
        if found := [f"{field} {a} -> {b}" for field, a, b in differences(old[key], new[key])]:
            faults[key] = found
    for (file, kernel), found in sorted(faults.items()):
        print(f"{file}: {kernel}: {', '.join(found)}")
    print(f"{len(now)} kernels of {len(chosen)} files were compiled, the others' sources are the table's")
    if faults:
        print(f"If that is meant: tests/gpu/{Path(__file__).name} --update, and commit the table.")
    print(f"{len(set(new) - set(faults))} passed, {len(faults)} failed, 0 skipped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
