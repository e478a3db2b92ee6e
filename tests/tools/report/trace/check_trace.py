"""Holds a file of --trace to the rules of the Trace Event Format (its document of 2016, "Trace Event Format"): what each event must
have, flow events in pairs, spans of a track within each other, names for processes and threads. Then lets Perfetto's
trace_processor read it, where that is there.

Usage: check_trace.py FILE     prints a line a fault
Exits with 1 if there is one, and with 77 (skipped) if there is none but no trace_processor to ask: it needs the Python package
perfetto and its program trace_processor_shell, on the PATH or where the package has put it before. Neither is downloaded.
"""
import bisect
import copy
import glob
import gzip
import json
import math
import os
import shutil
import sys
from collections import Counter, defaultdict

ROUNDING = 0.002  # microseconds: times are written in nanoseconds
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def track(event):
    return event["pid"], event["tid"]


def faults_of_event(event):
    for key, kind in (("name", str), ("ph", str), ("pid", int), ("tid", int)):
        if not isinstance(event.get(key), kind):
            yield f"no {key}"
            return
    phase = event["ph"]
    if phase not in ("X", "s", "f", "M"):
        yield f"phase {phase}"
        return
    if not isinstance(event.get("args", {}), dict):
        yield "args is no object"
    if phase == "M":
        key, kind = METADATA.get(event["name"], (None, None))
        if key and not isinstance(event.get("args", {}).get(key), kind):
            yield f"no args.{key}"
        if not key and event.get("args"):
            yield "metadata that the format does not have"
        return
    if not is_number(event.get("ts")) or event["ts"] < 0:
        yield "no time"
    if not isinstance(event.get("cat"), str):
        yield "no category"
    if phase == "X" and (not is_number(event.get("dur")) or event["dur"] < 0):
        yield "no duration"
    if phase in "sf" and not isinstance(event.get("id"), (int, str)):
        yield "no id"
    if phase == "f" and event.get("bp") != "e":
        yield "bound to the next span, not to the one around it"


def faults_of_names(events):
    names = Counter((e["name"], e["pid"], e["tid"] if e["name"] == "thread_name" else 0) for e in events if e["ph"] == "M")
    for pid, tid in sorted({track(e) for e in events if e["ph"] != "M"}):
        for what, number in (("process_name", names["process_name", pid, 0]), ("thread_name", names["thread_name", pid, tid])):
            if number != 1:
                yield f"{number} events {what} of process {pid}, thread {tid}"


def faults_of_nesting(spans):
    for place, of_track in spans.items():
        around = []
        for e in sorted(of_track, key=lambda e: (e["ts"], -e["dur"])):
            while around and around[-1] <= e["ts"] + ROUNDING:
                around.pop()
            if around and e["ts"] + e["dur"] > around[-1] + ROUNDING:
                yield f"{e['name']} at {e['ts']} ends after the span around it, on {place}"
            around.append(e["ts"] + e["dur"])


def covered(spans):
    """Where a track has spans, as begins and ends that do not overlap."""
    begins, ends = [], []
    for e in sorted(spans, key=lambda e: e["ts"]):
        if ends and e["ts"] <= ends[-1]:
            ends[-1] = max(ends[-1], e["ts"] + e["dur"])
        else:
            begins.append(e["ts"])
            ends.append(e["ts"] + e["dur"])
    return begins, ends


def faults_of_flows(events, spans):
    places = {place: covered(of_track) for place, of_track in spans.items()}

    def is_within_a_span(e):
        begins, ends = places.get(track(e), ([], []))
        i = bisect.bisect_right(begins, e["ts"] + ROUNDING) - 1
        return i >= 0 and e["ts"] <= ends[i] + ROUNDING

    flows = defaultdict(list)
    for e in events:
        if e["ph"] in "sf":
            flows[e["cat"], e["name"], e["id"]].append(e)
    for key, ends in flows.items():
        if [e["ph"] for e in ends] != ["s", "f"]:
            yield f"flow {key} is {[e['ph'] for e in ends]}"
        elif ends[0]["ts"] > ends[1]["ts"]:
            yield f"flow {key} ends before it begins"
        for e in ends:
            if not is_within_a_span(e):
                yield f"an end of flow {key} is in no span"


def faults_of(trace):
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no object with traceEvents"]
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        return [f"displayTimeUnit {trace['displayTimeUnit']}"]
    events = trace["traceEvents"]
    faults = [f"{fault}: {json.dumps(e)}" for e in events for fault in faults_of_event(e)]
    if faults:
        return faults
    spans = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            spans[track(e)].append(e)
    return [*faults_of_names(events), *faults_of_nesting(spans), *faults_of_flows(events, spans)]


def plant(trace):
    """Faults, one at a time: a check that finds nothing would not be noticed otherwise."""

    def first(events, phase):
        return next(e for e in events if e["ph"] == phase)

    def without(phase, key):
        return lambda events: first(events, phase).pop(key)

    def apart(events):
        step = next(e for e in events if e["name"] == "step")
        step["dur"] /= 2

    def unmatched(events):
        first(events, "f")["id"] = -1

    def backwards(events):
        begin = first(events, "s")
        end = next(e for e in events if e["ph"] == "f" and e["id"] == begin["id"])
        begin["ph"], end["ph"], begin["bp"] = "f", "s", "e"

    def unnamed(what):
        return lambda events: events.remove(next(e for e in events if e["name"] == what))

    changes = {
        "a span without duration": without("X", "dur"),
        "a span without time": without("X", "ts"),
        "a flow without id": without("s", "id"),
        "a span without thread": without("X", "tid"),
        "spans that overlap": apart,
        "a flow without its other end": unmatched,
        "a flow that ends before it begins": backwards,
        "a process without a name": unnamed("process_name"),
        "a thread without a name": unnamed("thread_name"),
    }
    for what, change in changes.items():
        changed = copy.deepcopy(trace)
        change(changed["traceEvents"])
        if not faults_of(changed):
            yield f"this test does not find {what}"


def ask_perfetto(path, trace):
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError as error:
        return f"{error}"
    kept = glob.glob(os.path.expanduser("~/.local/share/perfetto/prebuilts/trace_processor_shell*"))
    program = shutil.which("trace_processor_shell") or (kept[0] if kept else None)
    if not program:
        return "no program trace_processor_shell"
    events = trace["traceEvents"]
    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=program)) as processor:

        def number(query):
            return next(iter(processor.query(query))).n

        for what, expected, query in (
            ("spans", sum(e["ph"] == "X" for e in events), "select count(*) n from slice"),
            ("arrows", sum(e["ph"] == "s" for e in events), "select count(*) n from flow"),
            ("errors", 0, "select coalesce(sum(value), 0) n from stats where severity in ('error', 'data_loss')"),
        ):
            if number(query) != expected:
                wrong.append(f"trace_processor finds {number(query)} {what}, not {expected}")
    return ""


path = sys.argv[1]
with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
    read = json.load(file)
wrong = faults_of(read)
if not wrong:
    wrong += plant(read)
absent = "" if wrong else ask_perfetto(path, read)
if wrong:
    print("\n".join(wrong[:20]))
    sys.exit(1)
if absent:
    print(f"trace_processor was not asked: {absent}")
    sys.exit(77)
