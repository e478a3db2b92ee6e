#!/usr/bin/env python3
"""Measures the structure of the sources, and compares it with structure_bounds.csv.

Usage: tests/scripts/structure_bounds.py [--list MEASURE] [--bounds FILE] [ROOT]
  --list MEASURE  print what is counted there: functions, types, folders, files
Prints a line for each measure: its value, the bound, and the goal where the bound is not there yet. Exits with 1 if a value is
above its bound, and names what is. A change that makes a bound needless lowers it.

The product is backends, engine, io, models and tools; tests/ is only counted in lines, folders and by test_measures.py. A function's length is that of its
definition, comments included, its complexity 1 + if, for, while, case, catch, ?, && and || (McCabe 1976), lambdas within it
included. A unit is x.h with x.cc; it is in a circle if the units that it includes lead back to it. Fields do not include static ones, public functions neither constructors nor what is deleted.
A function or type that is better as it is has "// structure: REASON" in the comment above its declaration: it is not counted as above a
bound, and the reason is counted instead. A reason for what is within all bounds is a fault.
"""
import argparse
import csv
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

from include_folders import circles, graphs_of
from test_measures import asserted_sentences, misplaced_tests

PRODUCT = ("backends", "engine", "io", "models", "tools")
TOP_LEVEL = (*PRODUCT, "tests", "docs", "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "CHANGELOG.md")
WRITTEN_BY_TOOLS = (".o", ".a", ".so", ".gch", ".ptx", ".orig", ".rej")
LONG, COMPLEX, MANY_PARAMETERS, MANY_FIELDS, MANY_FUNCTIONS, MANY_SOURCES = 60, 20, 8, 20, 15, 25
TOKEN = re.compile(r'R"(?P<delimiter>[^()\s\\]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|[A-Za-z_]\w*'
                   r'|\.?\d(?:[\w.]|\'\w)*|::|->|&&|\|\||[^\s\w]', re.S)
BRANCHES = {"if", "for", "while", "case", "catch", "?", "&&", "||"}
NO_NAME = {"__launch_bounds__", "__attribute__", "alignas", "noexcept", "decltype", "requires", "explicit", "sizeof"}
FUNCTION_BOUNDS = ((f"functions above {LONG} lines", "lines", LONG),
                   (f"functions above complexity {COMPLEX}", "complexity", COMPLEX),
                   (f"functions with {MANY_PARAMETERS} parameters or more", "parameters", MANY_PARAMETERS - 1))
TYPE_BOUNDS = ((f"types with more than {MANY_FIELDS} fields", "fields", MANY_FIELDS),
               (f"types with more than {MANY_FUNCTIONS} public functions", "functions", MANY_FUNCTIONS))
NEEDLESS = "stated reasons that nothing needs"
OPENS, CLOSES = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


@dataclass
class Function:
    place: str
    name: str
    lines: int
    complexity: int
    parameters: int
    reason: str = ""


@dataclass
class Type:
    place: str
    name: str
    fields: int = 0
    functions: int = 0
    reason: str = ""


@dataclass
class Found:
    functions: list = field(default_factory=list)
    types: list = field(default_factory=list)


def tokens_of(text):
    """(token, line) without comments and preprocessor lines."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    text = re.sub(r'R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/',
                  lambda m: m.group() if m.group().startswith(('"', "R")) else blank(m), text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)
    line, at, tokens = 1, 0, []
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        tokens.append((match.group(), line))
    return tokens


def end_of_group(tokens, start):
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at][0] in OPENS) - (tokens[at][0] in CLOSES)
        if depth == 0:
            return at
    return len(tokens) - 1


def outer(head):
    """The tokens of a declaration that stand in no bracket, angle ones included; each group of brackets is its opening one."""
    result, at, angle = [], 0, 0
    while at < len(head):
        token = head[at][0]
        if token == "<" and at and (re.match(r"[A-Za-z_]", head[at - 1][0]) and head[at - 1][0] != "operator"):
            angle += 1
        elif token == ">" and angle and head[at - 1][0] != "-":
            angle -= 1
        elif angle == 0:
            result.append((token, at))
        if token in OPENS:
            at = end_of_group(head, at)
        at += 1
    return result


def parameters_of(group):
    """How many parameters the tokens between the brackets declare."""
    if not group or [token for token, _ in group] == ["void"]:
        return 0
    return 1 + sum(token == "," for token, _ in outer(group))


def signature_of(head):
    """(name, parameters, place behind their bracket) if the declaration is of a function."""
    tops = outer(head)
    for number, (token, at) in enumerate(tops):
        if token == "=" and not (number and tops[number - 1][0] == "operator"):
            return None
        if token != "(" or number == 0 or tops[number - 1][0] in NO_NAME:
            continue
        before = tops[number - 1][0]
        following = tops[number + 1][0] if number + 1 < len(tops) else ""
        if before == "operator" and following == "(":
            continue
        if head[at + 1][0] in ("*", "&"):
            return None  # a pointer or reference to a function
        names = [t for t, _ in tops[:number]]
        if not re.match(r"[A-Za-z_]", before) and "operator" not in names[-4:]:
            continue
        end = end_of_group(head, at)
        name = "".join(names[names.index("operator"):]).replace("operator(", "operator()") if "operator" in names else before
        if len(names) > 1 and names[-2] == "~":
            name = "~" + name
        if len(names) > 2 and names[-2] == "::":
            name = names[-3] + "::" + name
        return name, parameters_of(head[at + 1:end]), end + 1
    return None


def reason_above(lines, line):
    """REASON if the comment that ends above the given line, counted from 1, has a line "// structure: REASON", else ""."""
    at, reason = line - 2, ""
    while at >= 0 and lines[at].lstrip().startswith("//"):
        stated = re.match(r"\s*// structure: (\S.*)", lines[at])
        reason = stated.group(1) if stated else reason
        at -= 1
    return reason


class Reader:
    """Walks through the scopes of a file: namespaces and types, in which functions and fields are declared."""

    def __init__(self, file, text):
        self.file, self.tokens, self.found = file, tokens_of(text), Found()
        self.lines = text.splitlines()

    def read(self):
        self.scope(0, len(self.tokens), None, True)
        return self.found

    def scope(self, at, end, type_, public):
        start = at
        while at < end:
            token = self.tokens[at][0]
            if token in ("public", "private", "protected") and at + 1 < end and self.tokens[at + 1][0] == ":" and at == start:
                public, start, at = token == "public", at + 2, at + 2
                continue
            if token == ";":
                self.declaration(self.tokens[start:at], type_, public)
                start = at = at + 1
            elif token == "{":
                at, start = self.braces(start, at, end, type_, public)
            elif token in OPENS:
                at = end_of_group(self.tokens, at) + 1
            else:
                at += 1

    def braces(self, start, at, end, type_, public):
        """What the bracket at `at` opens; returns where to go on, and where the next declaration begins."""
        close = min(end_of_group(self.tokens, at), end)
        head = self.tokens[start:at]
        words = [token for token, _ in outer(self.without_template(head))]
        signature = signature_of(self.without_template(head))
        if "namespace" in words or words[:1] == ["extern"] and len(words) == 2:
            self.scope(at + 1, close, None, True)
            return close + 1, close + 1
        if signature is None and words and {"class", "struct", "union", "enum"} & set(words) and "=" not in words:
            self.type_scope(head, words, at, close, public)
            return close + 1, close + 1 if self.ends_here(close) else start
        if signature is None or self.initializes_member(head, signature):
            return close + 1, start  # an initializer: the declaration goes on
        self.function(head, signature, at, close, type_, public)
        return close + 1, close + 1

    def ends_here(self, close):
        return close + 1 >= len(self.tokens) or self.tokens[close + 1][0] == ";"

    def type_scope(self, head, words, at, close, public):
        if "enum" in words:
            return
        kind = next(word for word in words if word in ("class", "struct", "union"))
        names = [word for word in words[words.index(kind) + 1:] if re.match(r"[A-Za-z_]", word) and not re.match(r"alignas$|[A-Z_]+$", word)]
        type_ = Type(f"{self.file}:{head[0][1]}", names[0] if names else "(unnamed)", reason=reason_above(self.lines, head[0][1]))
        self.found.types.append(type_)
        self.scope(at + 1, close, type_, kind != "class")

    @staticmethod
    def without_template(head):
        while head and head[0][0] == "template":
            depth = 0
            for at, (token, _) in enumerate(head[1:], 1):
                depth += (token == "<") - (token == ">" and head[at - 1][0] != "-")
                if depth == 0:
                    break
            head = head[at + 1:]
        return head

    def initializes_member(self, head, signature):
        """Whether the bracket behind `head` is `x_{1}` in the list of a constructor rather than its body."""
        behind = self.without_template(head)[signature[2]:]
        return any(token == ":" for token, _ in outer(behind)) and re.match(r"[A-Za-z_>]", head[-1][0]) is not None

    def function(self, head, signature, at, close, type_, public):
        body = [token for token, _ in self.tokens[at:close + 1]]
        branches = sum(token in BRANCHES and not (token == "&&" and body[i - 1] == "auto") for i, token in enumerate(body))
        name, parameters, _ = signature
        first = self.without_template(head)[0][1]
        self.found.functions.append(Function(f"{self.file}:{first}", name, self.tokens[close][1] - first + 1, 1 + branches, parameters,
                                             reason_above(self.lines, head[0][1])))
        self.count_function(name, type_, public)

    @staticmethod
    def count_function(name, type_, public):
        if type_ is not None and public and name.lstrip("~") != type_.name:
            type_.functions += 1

    def declaration(self, head, type_, public):
        head = self.without_template(head)
        if type_ is None or not head or head[0][0] in ("using", "typedef", "friend", "static_assert", "enum"):
            return
        words = [token for token, _ in outer(head)]
        signature = signature_of(head)
        if signature is not None:
            if words[-2:] != ["=", "delete"]:
                self.count_function(signature[0], type_, public)
        elif "static" not in words and not (words[0] in ("class", "struct", "union") and len(words) == 2):
            type_.fields += 1 + sum(word == "," for word in words)


def percentile(numbers, share):
    numbers = sorted(numbers)
    return numbers[min(len(numbers) - 1, int(share * len(numbers)))] if numbers else 0


def listed_files(root):
    try:
        text = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, check=True,
                              capture_output=True, text=True).stdout
        names = text.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root) for name in files]
        names = [name for name in names if not name.startswith("build")]
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(root, name)))


def excess_of(item):
    """The names of the measures above whose bound the function or type is."""
    bounds = FUNCTION_BOUNDS if isinstance(item, Function) else TYPE_BOUNDS
    return [name for name, key, bound in bounds if getattr(item, key) > bound]


def is_misplaced(name):
    """Whether a file lies at the top level without belonging there, or was written by a compiler, git or patch."""
    top = name.split("/")[0]
    return not (top.startswith(".") or top in TOP_LEVEL) or name.endswith(WRITTEN_BY_TOOLS)


def measure(names):
    """(measure -> value, measure -> what is counted there), for the files of the project."""
    files = [name for name in names if name.endswith((".h", ".cc", ".cu", ".cuh"))]
    lines, found = {}, Found()
    for file in files:
        with open(file, encoding="utf-8", errors="replace") as text:
            content = text.read()
        lines[file] = content.count("\n")
        if file.startswith(tuple(f"{folder}/" for folder in PRODUCT)):
            part = Reader(file, content).read()
            found.functions += part.functions
            found.types += part.types
    product = [file for file in files if file.split("/")[0] in PRODUCT]
    values, named = {}, {}

    def spread(name, numbers):
        values[f"{name}, median"] = percentile(numbers, 0.5)
        values[f"{name}, 90 %"] = percentile(numbers, 0.9)
        values[f"{name}, maximum"] = max(numbers, default=0)

    def count(name, items):
        values[name], named[name] = len(items), items

    spread("lines of a function", [f.lines for f in found.functions])
    for items, bounds in ((found.functions, FUNCTION_BOUNDS), (found.types, TYPE_BOUNDS)):
        for name, key, bound in bounds:
            over = sorted((i for i in items if getattr(i, key) > bound and not i.reason), key=lambda i: -getattr(i, key))
            count(name, [f"{i.place}: {i.name}: {getattr(i, key)}" for i in over])
    stated = [item for item in found.functions + found.types if item.reason]
    count("functions and types with a stated reason", [f"{i.place}: {i.name}: {i.reason}" for i in stated if excess_of(i)])
    count(NEEDLESS, [f"{i.place}: {i.name}: {i.reason}" for i in stated if not excess_of(i)])
    sources = {}
    for file in files:
        sources.setdefault(os.path.dirname(file), []).append(file)
    crowded = sorted((folder for folder in sources if len(sources[folder]) > MANY_SOURCES), key=lambda f: -len(sources[f]))
    count(f"folders with more than {MANY_SOURCES} sources", [f"{folder}: {len(sources[folder])}" for folder in crowded])
    count("tests in another folder than what they test", misplaced_tests(files, tuple(f"{folder}/" for folder in PRODUCT)))
    parts = {}
    for file in product:
        if file.startswith("tools/") and file.count("/") > 1:
            parts[file.split("/")[1]] = parts.get(file.split("/")[1], 0) + lines[file]
    values["lines of a part of tools, maximum"] = max(parts.values(), default=0)
    folder_graph, file_graph, _ = graphs_of(files)
    count("folders in circles", [folder for members in circles(folder_graph) for folder in members])
    units = {}
    for file, others in file_graph.items():
        units.setdefault(os.path.splitext(file)[0], set()).update(os.path.splitext(other)[0] for other in others)
    count("units in circles", [" ".join(members) for members in circles(units) for _ in members])
    spread("lines of a header", [lines[file] for file in product if file.endswith((".h", ".cuh"))])
    spread("lines of a source", [lines[file] for file in product if file.endswith((".cc", ".cu"))])
    count("misplaced files", [name for name in names if is_misplaced(name)])
    asserted, repeated = asserted_sentences(names, tuple(f"{folder}/" for folder in PRODUCT))
    count("sentences that tests assert", asserted)
    count("sentences that two tests assert", repeated)
    values["functions"] = len(found.functions)
    values["types"] = len(found.types)
    values["lines of the product"] = sum(lines[file] for file in product)
    values["lines of tests"] = sum(lines[file] for file in files if file.startswith("tests/"))
    return values, named


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--list", default="")
    parser.add_argument("--bounds", default=os.path.join(here, "structure_bounds.csv"))
    parser.add_argument("root", nargs="?", default=os.path.join(here, "../.."))
    options = parser.parse_args()
    with open(options.bounds, encoding="utf-8") as table:
        bounds = {row["measure"]: row for row in csv.DictReader(table)}
    os.chdir(options.root)
    values, named = measure(listed_files("."))
    if options.list:
        for name in (name for name in named if options.list in name):
            print(f"{name}:", *dict.fromkeys(named[name]), sep="\n  ")
        return 0
    faults = [f"structure_bounds.csv: there is no measure '{name}'" for name in bounds if name not in values]
    for name, value in values.items():
        bound, goal = (bounds[name]["bound"], bounds[name]["goal"]) if name in bounds else ("", "")
        print(f"{name:42} {value:7}" + (f"   at most {bound:>6}" if bound else "") + (f"   goal {goal}" if goal and goal != bound else ""))
        if bound and value > int(bound):
            faults += [f"{name}: {value}, at most {bound}", *(f"  {item}" for item in dict.fromkeys(named.get(name, [])))]
    print("\n".join(faults) if faults else f"{len(bounds)} bounds are kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
