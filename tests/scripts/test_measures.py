"""Measures of tests for structure_bounds.py: where they lie, and which sentences of the program they repeat."""
import bisect
import os
import re

# Folders of tests that span several tested ones, with all below them.
SPANNING = ("backends/device", "backends/faults", "emulator", "faults", "fuzz", "gpu", "parity", "simulation", "support", "tools/api/device",
            "tools/commands/devices", "tools/commands/onnx", "tools/commands/published", "tools/commands/runs", "tools/commands/train",
            "tools/commands/views", "training")
# So many words in a row, numbers, names and options left out, are a sentence.
SENTENCE = 5
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*|R"(?P<delimiter>[^()\s\\]*)\((?P<raw>.*?)\)(?P=delimiter)"|"(?P<text>(?:\\.|[^"\\\n])*)"'
                   r"|'(?:\\.|[^'\\\n])+'|[A-Za-z_]\w*|\d[\w.']*|<<|[^\s\w]", re.S | re.M)
SCRIPT_TEXT = re.compile(r'^[ \t]*#[^\n]*|"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.M)
DEFINITION = re.compile(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)|^[A-Za-z].*$", re.M)


def misplaced_tests(names, product):
    """A line for each test that does not lie where the tested sources do: in the folder of the unit after which it is named, else in
    one that has the name of a tested folder, or in one of those that span several."""
    homes, folders = {}, set()
    for name in names:
        if name.startswith(product) and name.endswith((".h", ".cc", ".cu")):
            folder = os.path.dirname(name)
            homes[os.path.splitext(os.path.basename(name))[0]] = folder
            while folder:
                folders.add(folder)
                folder = os.path.dirname(folder)
    lines = []
    for name in names:
        match = re.fullmatch(r"tests/(.*)/(\w+?)(_cuda)?_test\.cc", name)
        if match is None:
            continue
        folder, unit, cuda = match.groups()
        home = homes.get(unit + (cuda or ""), homes.get(unit))
        if home is not None and home != folder:
            lines.append(f"{name}: {home} has {unit}")
        elif folder not in folders and not any(folder == spanning or folder.startswith(spanning + "/") for spanning in SPANNING):
            lines.append(f"{name}: there is no {folder}, nor is it in SPANNING of test_measures.py")
    return lines


def words_of(text):
    """The words of a sentence, in lower case, without what may differ between two of its kind."""
    words = (word.strip("\"'`.,:;?!()[]") for word in re.sub(r"\\\\[nt]", " ", text).split())
    return [word.lower() for word in words if re.fullmatch(r"[A-Za-z][A-Za-z'-]*", word)]


def sentences_of(text):
    words = words_of(text)
    return [tuple(words[at:at + SENTENCE]) for at in range(len(words) - SENTENCE + 1)]


def literals_of(code):
    """(place, text, whether it explains a failure) of each literal; those that follow each other are one."""
    texts, explains = [], False
    for match in TOKEN.finditer(code):
        token = match.group()
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        text = match.group("text") if match.group("text") is not None else match.group("raw")
        if text is None:
            if texts:
                yield texts[0][0], "".join(part for _, part in texts), explains
            texts, explains = [], token == "<<"
        else:
            texts.append((match.start(), text))


def statements_of(code):
    """The texts of each statement, with a space for each value between them."""
    texts = []
    for match in TOKEN.finditer(code):
        token = match.group()
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        text = match.group("text") if match.group("text") is not None else match.group("raw")
        if text is not None:
            texts.append(text)
        elif token in (";", "{", "}"):
            if texts:
                yield "".join(texts)
            texts = []
        elif texts and texts[-1] != " ":
            texts.append(" ")


def asserted_sentences(names, product):
    """(asserted, repeated): a line for each literal of a test that has a sentence of the program's messages, and one for each
    sentence that two tests have. A test is a TEST, a function beside them, or a script; what explains a failure does not count."""
    said = set()
    for name in names:
        if name.startswith(product) and name.endswith((".h", ".cc")):
            with open(name, encoding="utf-8", errors="replace") as code:
                for text in statements_of(code.read()):
                    said.update(sentences_of(text))
    asserted, pins = [], {}  # of a sentence: the test and the line of each of its literals
    for name in names:
        emulator = name.startswith("tests/emulator/") and not name.startswith("tests/emulator/tests/")
        if not name.startswith("tests/") or emulator or not name.endswith((".h", ".cc", ".py", ".sh")):
            continue
        with open(name, encoding="utf-8", errors="replace") as file:
            code = file.read()
        if name.endswith((".py", ".sh")):
            starts, labels = [0], [""]
            literals = ((match.start(), match.group(), match.group().lstrip().startswith(('#', '"""'))) for match in SCRIPT_TEXT.finditer(code))
        else:
            definitions = list(DEFINITION.finditer(code))
            starts = [0] + [match.start() for match in definitions]
            labels = [""] + [f"{match.group(1)}.{match.group(2)}" if match.group(2) else match.group()[:40] for match in definitions]
            literals = literals_of(code)
        for place, text, explains in literals:
            known = [] if explains else [sentence for sentence in sentences_of(text) if sentence in said]
            if not known:
                continue
            line = f"{name}:{code.count(chr(10), 0, place) + 1}: {text[:100]}"
            test = (name, labels[bisect.bisect_right(starts, place) - 1])
            asserted.append(line)
            for sentence in known:
                pins.setdefault(sentence, []).append((test, line))
    # Parts of a longer sentence that have a literal in common are one.
    repeated, seen = [], {}
    for sentence, places in pins.items():
        if len({test for test, _ in places}) > 1:
            known = next((seen[line] for _, line in places if line in seen), None)
            if known is None:
                known = []
                repeated.append(known)
            known += [line for _, line in places if line not in known]
            seen.update((line, known) for _, line in places)
    return asserted, ["; ".join(lines) for lines in repeated]
