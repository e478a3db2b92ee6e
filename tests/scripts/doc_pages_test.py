#!/usr/bin/env python3
"""Checks README.md and docs/: links lead somewhere, docs/index.md has every page, README.md shows what quickstart.sh runs, and the
version of names to be typed (packages, images) is that of project().

Usage: tests/scripts/doc_pages_test.py [--links] [ROOT]     prints one line per fault; exits with 1 if there is any
  --links   check only the links, e.g. of an unpacked bundle
"""
import re
import sys
from pathlib import Path

arguments = [a for a in sys.argv[1:] if a != "--links"]
root = Path(arguments[0] if arguments else Path(__file__).parents[2]).resolve()
faults = []


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(page.read_text()), flags=re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


pages = sorted([root / "README.md", root / "CHANGELOG.md", *root.glob("docs/**/*.md")])
links = 0
for page in pages:
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue  # elsewhere
        links += 1
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            faults.append(f"{page.relative_to(root)}: no file {target}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            faults.append(f"{page.relative_to(root)}: no heading {target}")
if links < 100:
    faults.append(f"only {links} links found: this test reads them wrongly")


def finish(counted):
    print("\n".join(faults) or f"{len(pages)} pages, {links} links{counted}")
    sys.exit(1 if faults else 0)


if "--links" in sys.argv:
    finish("")

index = (root / "docs/index.md").read_text()
for page in sorted(root.glob("docs/*.md")):
    if page.name != "index.md" and f"]({page.name})" not in index:
        faults.append(f"docs/index.md: {page.name} is missing")

script = (root / "tools/quickstart.sh").read_text()
command = re.search(r'command=\("\$engine" (train .*?)\)', script, flags=re.S)
if not command:
    faults.append("tools/quickstart.sh: no command=(...) that trains")
else:
    run = re.search(r"^run=(.*)$", script, flags=re.M)[1]
    shown = "$ engine " + " ".join(command[1].split()).replace('"$run"', run)
    if shown + "\n" not in (root / "README.md").read_text():
        faults.append(f"README.md: does not show what tools/quickstart.sh runs: {shown}")

# Figures in README.md are those of the section that their row links to.
figures = 0
for link, ours, theirs in re.findall(r"^\| \[.*?\]\(docs/benchmarks\.md#([\w-]+)\) \| (.*?) \| (.*?) \|",
                                     (root / "README.md").read_text(), flags=re.M):
    for section in re.split(r"^(?=#+ )", (root / "docs/benchmarks.md").read_text(), flags=re.M):
        heading = re.sub(r"[^\w\- ]", "", section.split("\n")[0].lower()).strip().replace(" ", "-")
        if heading != link:
            continue
        for figure in re.findall(r"\d[\d,.]*", f"{ours} {theirs}"):
            figures += 1
            if not re.search(rf"(?<![\d,.]){re.escape(figure)}(?![\d,]|\.\d)", section):
                faults.append(f"README.md: {figure} is not in the section #{link} of docs/benchmarks.md")
if figures < 15:
    faults.append(f"only {figures} figures found in README.md: this test reads them wrongly")

version = re.search(r"^project\(engine VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(), flags=re.M)[1]
versions = 0
for page in [root / "docs/installing.md", *sorted(root.glob("docs/examples/kubernetes/*.yaml"))]:
    typed = re.findall(r"(\bengine[\w-]*[:_-]|\*_)(\d+\.\d+\.\d+)", page.read_text())
    versions += len(typed)
    name = page.relative_to(root)
    faults += [f"{name}: {before}{found}, but project() has {version}" for before, found in typed if found != version]
    if not typed:
        faults.append(f"{name}: no version found: this test reads it wrongly")

finish(f", {versions} versions")
