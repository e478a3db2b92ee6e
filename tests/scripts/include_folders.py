#!/usr/bin/env python3
"""Checks who includes whom between folders: their order in a layer, circles, and the public headers. A header that declares
functions of another folder makes those that include it depend on that folder, so it says so: "// Defined in FOLDER/FILE."

Usage: tests/scripts/include_folders.py [--exceptions FILE] <SOURCES     names of files, one a line, from the root of the tree
Prints one line a fault and exits with 1 if there is any; else says how many exceptions are left. A line of the exceptions
(include_exceptions.txt) is "FOLDER -> FOLDER": such an include breaks the order or closes a circle, and is still there.
What a whole layer may include is checked by include_directions_test.sh, which calls this.
"""
import argparse
import os
import re
import sys
from collections import defaultdict

# The sub-folders of a folder, from the lowest floor to the highest: those of a floor include lower ones, and no neighbor
# on their own. "." is the folder's own files. A folder without a row has no order, but no circles either.
ORDER = {
    "backends": [".", "secure", "store", "identity", "membership relay", "transport", "compose"],
    "backends/store": ["protocol", "."],
    "backends/transport": ["direct inproc mpi repair shm single nccl", "socket", "gloo zmq"],
    "backends/compose": ["checked guard hierarchical plugin staged", "table", "."],
    "engine/ops": ["common", "device", "codes elementwise embedding images loss pool replicas samples", "float64 gemm general low_rank norm", "channel_groups dense",
                   "attention conv2d matmul optim_step rms_norm rotary windows", "extension"],
    "engine/graph": ["memory", "."],
    "engine/averaging": ["codes", "math", "sums", "low_rank", "statistics", "shards", "policies", "stale"],
    "engine/train": ["step replicas scores", "saving", "balance checks", "."],
    "io/data": ["files", "images tables", "samples", "labels", "dataset", "readers", "sources order", "loader"],
    "io/interchange": ["zip safetensors onnx", "numpy torch", ".", "compare"],
    "io/base": ["machine", "numbers text time", "digests files formats threads"],
    "models": ["onnx_export onnx_origins published", "onnx_translation", "onnx_parameters", "onnx_tokens onnx_windows", "onnx_import", "."],
    "tools": ["report", "options", "launch", "folder", "html", "run", "commands", "bench", ".", "api"],
    "tools/report": ["output", "text", "observers", "trace"],
    "tools/options": ["table", "rows input", "manual"],
    "tools/launch": ["machine", "workers", "group", "nodes", "jobs"],
    "tools/run": ["choices", "data", "parts", "session", "rank"],
    "tools/commands": ["doctor flight predict top", ".", "submit tokenize"],
    "tools/api": ["engine", ".", "torch"],
    "tools/bench": [".", "comm kernels step", "commands"],
    "tests/emulator": ["simt", "include runtime", "libraries ptx", "tests"],
    "tests/emulator/ptx": ["decode", "machine", "instructions", "."],
}
PUBLIC = "tools/api/engine"  # headers that users include as "engine/x.h", which include only each other
MAY_INCLUDE_PUBLIC = ("tools/api/", "tests/", "docs/examples/")


def floors_of(order):
    floors = {}
    for folder, levels in order.items():
        floors[folder] = {name: number for number, level in enumerate(levels) for name in level.split()}
    return floors


def place_in(path, folder):
    """The sub-folder of `folder` that the file lies in; ".": none."""
    return path[len(folder) + 1:].split("/")[0] if "/" in path[len(folder) + 1:] else "."


def includes_of(files):
    """(file, line, path as it is written) of each include in quotes."""
    for file in files:
        with open(file, encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(text, 1):
                found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if found:
                    yield file, number, found.group(1)


def order_faults(file, number, path, exceptions, used):
    pair = (os.path.dirname(file), os.path.dirname(path))
    for folder, floors in FLOORS.items():
        if not file.startswith(folder + "/") or not path.startswith(folder + "/"):
            continue
        mine, theirs = place_in(file, folder), place_in(path, folder)
        if mine == theirs:
            continue
        unknown = [name for name in (mine, theirs) if name not in floors]
        if unknown:
            yield f"{file}:{number}: {folder}/{unknown[0]} has no place in the order of {folder}/ (include_folders.py)"
        elif floors[theirs] >= floors[mine]:
            if pair in exceptions:
                used.add(pair)
            else:
                yield f"{file}:{number}: {os.path.dirname(path)}/ is no floor below {os.path.dirname(file)}/"


def public_faults(file, number, path):
    is_public = path.startswith("engine/") and os.path.exists(f"{PUBLIC}/{path[len('engine/'):]}")
    if file.startswith(PUBLIC + "/") and not is_public:
        yield f'{file}:{number}: a public header includes "{path}"'
    elif is_public and not file.startswith(MAY_INCLUDE_PUBLIC):
        yield f'{file}:{number}: "{path}" is for users of the library'
    elif path.startswith("tools/api/") and not file.startswith(MAY_INCLUDE_PUBLIC):
        yield f"{file}:{number}: includes the shared library's own part, {path}"


def circles(graph):
    """Strongly connected sets of more than one node (Tarjan 1972), each sorted."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = []
            while not members or members[-1] != node:
                members.append(stack.pop())
                on_stack.discard(members[-1])
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def graphs_of(files):
    """(folder -> folders, file -> files, folder pair -> an include), of includes whose file exists."""
    folders, sources, examples = defaultdict(set), defaultdict(set), {}
    for file, number, path in includes_of(files):
        if not os.path.exists(path):
            continue
        sources[file].add(path)
        pair = (os.path.dirname(file), os.path.dirname(path))
        if pair[0] != pair[1]:
            folders[pair[0]].add(pair[1])
            examples.setdefault(pair, f"{file}:{number}")
    return folders, sources, examples


def circle_faults(files, exceptions):
    folders, sources, examples = graphs_of(files)
    for members in circles(sources):
        yield "files include each other: " + ", ".join(members)
    left = {folder: {other for other in others if (folder, other) not in exceptions} for folder, others in folders.items()}
    for members in circles(left):
        pairs = [(a, b) for a in members for b in members if b in left.get(a, ())]
        yield "folders include each other: " + "; ".join(f"{a} -> {b} ({examples[a, b]})" for a, b in pairs)


def unused_exceptions(files, exceptions, used):
    """Those that break no order and close no circle."""
    folders, _, _ = graphs_of(files)
    together = {(a, b) for members in circles(folders) for a in members for b in members}
    for pair in sorted(exceptions):
        if pair not in used and not (pair[1] in folders.get(pair[0], ()) and pair in together):
            yield f"exception is over, remove it: {pair[0]} -> {pair[1]}"


# Functions of a namespace begin at the first column.
NO_TYPE = r"^(?!return|using|typedef|class|struct|enum|namespace|static|template|friend|#|//|\})"
DECLARATION = re.compile(NO_TYPE + r"[A-Za-z_][\w:<>,&*\s\[\]]*?[ &*](\w+)\([^;{}]*\)(?: const)?(?: noexcept)?;", re.M)
DEFINITION = re.compile(NO_TYPE + r"[A-Za-z_][\w:<>,&*\s\[\]]*?[ &*](?:\w+::)*(\w+)\((?:[^;{}]|\{\})*\)"
                        r"(?: const)?(?: noexcept)?(?: try)? \{", re.M)


def text_of(file):
    with open(file, encoding="utf-8", errors="replace") as text:
        return text.read()


def declaration_faults(files):
    """Functions that a header of the product declares and that only other folders define, without a line that says where."""
    product = [file for file in files if file.startswith(("backends/", "engine/", "io/", "models/", "tools/")) and os.path.exists(file)]
    texts = {file: text_of(file) for file in product}
    definitions, includes = defaultdict(set), defaultdict(set)
    for file in product:
        for name in DEFINITION.findall(texts[file]):
            definitions[name].add(file)
    for file, _, path in includes_of(product):
        includes[file].add(path)
    for header in product:
        own = os.path.dirname(header)
        for name in DECLARATION.findall(texts[header]) if header.endswith(".h") else ():
            if any(os.path.dirname(file) == own for file in definitions[name]):
                continue
            for file in sorted(definitions[name]):
                if header in includes[file] and f"Defined in {os.path.dirname(file)}" not in texts[header]:
                    yield f'{header}: declares {name}() without "// Defined in {file}."'


def read_exceptions(file):
    pairs = set()
    if os.path.exists(file):
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                found = re.match(r"(\S+) -> (\S+)$", line.strip())
                if found:
                    pairs.add(found.groups())
                elif line.strip() and not line.startswith("#"):
                    sys.exit(f"{file}: not FOLDER -> FOLDER: {line.strip()}")
    return pairs


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--exceptions", default="tests/scripts/include_exceptions.txt")
    options = parser.parse_args()
    files = [line.strip() for line in sys.stdin if line.strip()]
    exceptions = read_exceptions(options.exceptions)
    faults, used = [], set()
    for include in includes_of(files):
        faults += order_faults(*include, exceptions, used)
        faults += public_faults(*include)
    faults += circle_faults(files, exceptions)
    faults += declaration_faults(files)
    faults += unused_exceptions(files, exceptions, used)
    print("\n".join(faults) if faults else
          f"{len(exceptions)} includes between folders against their order: "
          + ", ".join(f"{a} -> {b}" for a, b in sorted(exceptions)))
    return 1 if faults else 0


FLOORS = floors_of(ORDER)
if __name__ == "__main__":
    sys.exit(main())
