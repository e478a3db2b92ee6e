"""Holds a page of --prometheus, as it is for those that ask for OpenMetrics, to the rules of that format (OpenMetrics 1.0): each
family once, its descriptors first and once each, names with the suffix of type and unit, `# EOF` at the end. Then lets the parser
of prometheus_client read it, where that is there.

Usage: check_openmetrics.py FILE     prints a line a fault
Exits with 1 if there is one, and with 77 (skipped) if there is none but no prometheus_client to ask.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
DESCRIPTOR = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (\S+)")
SUFFIX = {"gauge": "", "counter": "_total", "info": "_info", "unknown": ""}


def faults_of(page):
    if not page.endswith("\n# EOF\n") or page.count("# EOF") != 1:
        yield "the page does not end with its only # EOF"
    known, family, seen = {}, None, set()
    for line in page.splitlines():
        if line == "# EOF":
            break
        if descriptor := DESCRIPTOR.fullmatch(line):
            what, name, text = descriptor.groups()
            if name != family and name in known:
                yield f"family {name} comes twice, with others between"
            family = name
            facts = known.setdefault(name, {"samples": 0})
            if what in facts:
                yield f"{name} has two # {what}"
            if facts["samples"]:
                yield f"# {what} of {name} follows its samples"
            if facts.keys() & {"UNIT", "HELP"} and what == "TYPE" or "HELP" in facts and what == "UNIT":
                yield f"# {what} of {name} is out of order: TYPE, UNIT, HELP"
            facts[what] = text
            if what == "TYPE" and text not in SUFFIX:
                yield f"{name} is of type {text}"
            if what == "UNIT" and not name.endswith("_" + text):
                yield f"{name} does not end with its unit, {text}"
        elif sample := SAMPLE.fullmatch(line):
            name, labels, value = sample.groups()
            facts = known.get(family, {})
            if name != f"{family}{SUFFIX.get(facts.get('TYPE', ''), '')}":
                yield f"sample {name} in family {family} of type {facts.get('TYPE')}"
            facts["samples"] = facts.get("samples", 0) + 1
            if (name, labels) in seen:
                yield f"{line}: twice"
            seen.add((name, labels))
            try:
                float(value)
            except ValueError:
                yield f"{line}: no number"
        else:
            yield f"neither descriptor nor sample: '{line}'"
    for name, facts in known.items():
        if not {"TYPE", "HELP"} <= facts.keys() or not facts["samples"]:
            yield f"{name} lacks its type, its help or a sample"
        if name.endswith("_total"):
            yield f"family {name} has the suffix of its samples"
    if len(known) < 10:
        yield f"only {len(known)} families: this test reads the page wrongly"


with open(sys.argv[1], encoding="utf-8") as file:
    page = file.read()
wrong = list(faults_of(page))
# A check that finds nothing would not be noticed otherwise.
for old, new in (("# EOF\n", ""), ("_total ", " "), ("# UNIT engine_sent_bytes bytes", "# UNIT engine_sent_bytes seconds"),
                 ("# TYPE engine_loss gauge\n", ""), ("# EOF", "engine_step 1\n# EOF"), ("\nengine_step ", "\nengine_step x")):
    if not wrong and not list(faults_of(page.replace(old, new))):
        wrong.append(f"this test does not find that {old!r} has become {new!r}")
if wrong:
    print("\n".join(wrong))
    sys.exit(1)
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError as error:
    print(f"prometheus_client was not asked: {error}")
    sys.exit(77)
list(text_string_to_metric_families(page))
