#!/usr/bin/env python3
"""What a browser makes of the pages of `engine report`: headless Chromium, at the width of a desk and of a phone, light
and dark.

Usage: tests/tools/commands/views/report_browser_test.py ENGINE [--keep FOLDER]
--keep leaves pages and screenshots in FOLDER. Needs chromium (Debian: chromium); exits with 77 without.
"""
import html
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
import zlib

DEADLINE = 300  # seconds, of any program here; none is waited for so long unless it hangs
LIGHT, DARK = (255, 255, 255), (0x15, 0x17, 0x1A)
PHONE, DESK = 390, 1200

# Before anything of the page: what it asks for, and what goes wrong in it.
LISTENER = """<script>
const went_wrong = [];
addEventListener('securitypolicyviolation', e => went_wrong.push(e.blockedURI + ' is not allowed'));
addEventListener('error', e => went_wrong.push(e.message || 'an element has not loaded'), true);
</script>"""

# Functions of the scripts below, which answer with an object.
COMMON = """
const all = what => [...document.querySelectorAll(what)];
const figure_of = title => all('figure').find(f => f.querySelector('figcaption').textContent === title);
const shown = figure => figure.querySelector('.values').textContent;
const press = (svg, key) => svg.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
// Components from 0 to 255, the last one opacity; Chromium writes mixed colors as color(srgb ...).
const color_of = text => {
  const [r, g, b, a = 1] = text.match(/[0-9.e-]+/g).map(Number);
  const unit = text.startsWith('color(') ? 255 : 1;
  return [r * unit, g * unit, b * unit, a];
};
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
const luminance = color => {
  const [r, g, b] = color.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
// WCAG's, of an element's text on what lies behind it.
const contrast = element => {
  const behind = [];
  for (let e = element; e; e = e.parentElement) behind.push(color_of(getComputedStyle(e).backgroundColor));
  const ground = behind.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  const style = getComputedStyle(element);
  const ink = color_of(element instanceof SVGElement ? style.fill : style.color);
  const [high, low] = [luminance(over(ink, ground)), luminance(ground)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const the_page = () => ({
  width: innerWidth,
  needed: document.documentElement.scrollWidth,
  dark: matchMedia('(prefers-color-scheme: dark)').matches,
  ground: color_of(getComputedStyle(document.body).backgroundColor),
  loaded: performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:')),
  wrong: went_wrong,
  pictures: all('img').map(i => i.complete && i.naturalWidth > 0),
  letters: Math.min(...all('svg.chart').map(svg => {
    const text = svg.querySelector('.tick');
    return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  })),
  contrast: Math.min(...all('p, td, th, li, figcaption, summary, .tick, .name').map(contrast)),
  charts: all('figure figcaption').map(c => c.textContent),
});
"""

USE_THE_LOSS = """
const figure = figure_of('Loss'), svg = figure.querySelector('svg');
const data = JSON.parse(figure.querySelector('script').textContent), [low, high, left, right] = data.x;
const box = svg.getBoundingClientRect();
const point_at = x => svg.dispatchEvent(new PointerEvent('pointermove', {
  clientX: box.left + (left + (x - low) / (high - low) * (right - left)) / svg.viewBox.baseVal.width * box.width,
  clientY: box.top + box.height / 2 }));
const lines = { before: shown(figure) };
point_at(low);
lines.pointed_left = shown(figure);
point_at(high);
lines.pointed_right = shown(figure);
svg.focus();
press(svg, 'Home');
lines.home = shown(figure);
press(svg, 'ArrowRight');
lines.right = shown(figure);
press(svg, 'ArrowLeft');
press(svg, 'ArrowLeft');
lines.left = shown(figure);
press(svg, 'End');
lines.end = shown(figure);
return { lines, said: svg.getAttribute('aria-valuetext'), now: svg.getAttribute('aria-valuenow'),
         focused: document.activeElement === svg, cursor: svg.querySelector('.cursor').getBoundingClientRect().left,
         edge: box.left + right / svg.viewBox.baseVal.width * box.width,
         sliders: all('svg[tabindex]').map(s => [s.getAttribute('role'), s.getAttribute('aria-valuetext'),
           document.getElementById(s.getAttribute('aria-labelledby')).textContent,
           document.getElementById(s.getAttribute('aria-describedby')).textContent]) };
"""

THE_TABLE = """
const rows = all('table.confusion tbody tr').slice(0, -1);
return { rows: rows.map(row => [...row.querySelectorAll('td')].slice(0, -1).map(cell => ({
  count: Number(cell.textContent), color: color_of(getComputedStyle(cell).backgroundColor) }))) };
"""

THE_PICTURE = """
const svg = document.querySelector('svg.heat');
return { role: svg.getAttribute('role'), label: svg.getAttribute('aria-label'),
         reading: document.getElementById(svg.getAttribute('aria-describedby')).textContent,
         side: svg.viewBox.baseVal.width, cells: all('svg.heat rect').map(rect => ({
           label: rect.y.baseVal.value, prediction: rect.x.baseVal.value, text: rect.textContent,
           opacity: Number(getComputedStyle(rect).opacity), color: color_of(getComputedStyle(rect).fill) })) };
"""

# Goes on when the test has told of the next step; that is when the page does.
FOLLOW = """
const figure = figure_of('Loss'), svg = figure.querySelector('svg'), details = figure.querySelector('details');
const state = document.querySelector('.watch [role=status]'), button = document.querySelector('.watch button');
const until = async ready => { while (!ready()) await new Promise(done => setTimeout(done, 50)); };
const text = () => document.querySelector('main').textContent;
svg.focus();
press(svg, 'End');
details.open = true;
scrollTo(0, 300);
const before = { line: shown(figure), scrolled: scrollY };
await fetch('/next');
await until(() => text().includes('777 steps so far'));
const kept = { focused: document.activeElement === svg, open: details.open, line: shown(figure), scrolled: scrollY,
               same: figure_of('Loss') === figure };
press(svg, 'End');
kept.end = shown(figure);
button.click();
const paused = { state: state.textContent, button: button.textContent };
await fetch('/next');
await new Promise(done => setTimeout(done, 20000));
paused.unchanged = text().includes('777 steps so far');
button.click();
await until(() => text().includes('778 steps so far'));
const followed = { state: state.textContent, button: button.textContent };
await fetch('/next');
await until(() => state.textContent.includes('ended'));
return { before, kept, paused, followed, ended: text().includes('ended after 778 steps') };
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def with_script(page, body):
    """The page with a script that tells the page around it what `body` returns."""
    script = f"""<script>(async () => {{{COMMON}
      let found;
      try {{ found = {{ ...the_page(), ...await (async () => {{{body}}})() }}; }}
      catch (error) {{ found = {{ wrong: [String(error.stack)] }}; }}
      parent.postMessage(JSON.stringify(found), '*');
    }})();</script>"""
    assert page.count("<head>") == 1 and page.count("</body>") == 1
    return page.replace("<head>", "<head>" + LISTENER).replace("</body>", script + "</body>")


def framed(address, width):
    """A page that shows another one as wide as is asked for: no window is as narrow as a phone."""
    return f"""<!doctype html><iframe src="{address}" width="{width}" height="800" style="border:0"></iframe>
      <script>addEventListener('message', e => {{
        const out = document.createElement('pre');
        out.id = 'found';
        out.textContent = e.data;
        document.body.append(out);
      }});</script>"""


def first_rows(png, rows):
    """Pixels (r, g, b) of the uppermost rows of a picture of 8 bits a channel, as Chromium writes it."""
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    depth, kind = png[24], png[25]
    assert png.startswith(b"\x89PNG") and depth == 8 and kind in (2, 6), (depth, kind)
    at, data = 8, b""
    while at < len(png):
        size = int.from_bytes(png[at:at + 4], "big")
        if png[at + 4:at + 8] == b"IDAT":
            data += png[at + 8:at + 8 + size]
        at += 12 + size
    step = 3 if kind == 2 else 4
    line = width * step
    raw = zlib.decompressobj().decompress(data, rows * (line + 1))
    above, picture = bytearray(line), []
    for r in range(rows):
        how, now = raw[r * (line + 1)], bytearray(raw[r * (line + 1) + 1:(r + 1) * (line + 1)])
        for i in range(line):
            left, up, corner = (now[i - step] if i >= step else 0), above[i], (above[i - step] if i >= step else 0)
            if how == 4:
                guess = left + up - corner
                nearest = min((abs(guess - v), n) for n, v in enumerate((left, up, corner)))[1]
                now[i] = (now[i] + (left, up, corner)[nearest]) & 255
            else:
                now[i] = (now[i] + (0, left, up, (left + up) // 2)[how]) & 255
        picture.append([tuple(now[i:i + 3]) for i in range(0, line, step)])
        above = now
    return width, height, picture


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if cls.folder is None:
            holder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(holder.cleanup)
            cls.folder = pathlib.Path(holder.name)
        cls.folder.mkdir(parents=True, exist_ok=True)
        common = ["train", "--model", "mlp", "--batch-size", "20", "--log-every", "2"]
        digits = common + ["--dataset", "glyphs", "--limit", "600", "--epochs", "2", "--spawn", "2", "--threads", "1"]
        many = common + ["--dataset", "synthetic", "--synthetic-shape", "12x12x1", "--synthetic-classes", "30",
                         "--synthetic-size", "900", "--epochs", "1", "--lr", "0.0001", "--threads", "1"]
        for name, arguments in (("first", digits + ["--lr", "0.05", "--sync", "params", "--sync-every", "5"]),
                                ("second", digits + ["--lr", "0.02"]), ("many", many)):
            if not (cls.folder / name).exists():
                run(cls.engine, *arguments, "--save-dir", str(cls.folder / name))
        # As if it had been made elsewhere.
        record = (cls.folder / "second/run.json").read_text()
        (cls.folder / "second/run.json").write_text(re.sub('"threads":"1"', '"threads":"8"', record))
        cls.page("one", "first")
        cls.page("many-classes", "many")
        cls.page("two", "first", "second")

    @classmethod
    def page(cls, name, *runs):
        run(cls.engine, "report", *(str(cls.folder / r) for r in runs), "-o", str(cls.folder / f"{name}.html"))

    @staticmethod
    def chromium(address, width, height, dark, *more):
        with tempfile.TemporaryDirectory() as profile:
            return run("chromium", "--headless", *(["--no-sandbox"] if os.getuid() == 0 else []), "--disable-gpu",
                       "--hide-scrollbars", "--disable-background-networking", "--no-first-run",
                       f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--user-data-dir={profile}",
                       f"--window-size={width},{height}", *more, address)

    def found(self, around, dark):
        """What the script of the page has told that the frame `around` shows."""
        dom = self.chromium(around, DESK + 100, 900, dark, "--virtual-time-budget=120000", "--dump-dom")
        match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
        self.assertIsNotNone(match, "the script has not come to its end:\n" + dom[-2000:])
        return json.loads(html.unescape(match[1]))

    def look(self, name, width, dark, body="return {};"):
        """What a script finds in the page; what holds for every page is checked."""
        copy = self.folder / f"{name}-with-script.html"
        copy.write_text(with_script((self.folder / f"{name}.html").read_text(), body))
        around = self.folder / "around.html"
        around.write_text(framed(copy.as_uri(), width))
        found = self.found(around.as_uri(), dark)
        self.assertEqual(found["wrong"], [])
        self.assertEqual(found["loaded"], [])
        self.assertEqual((found["width"], found["dark"]), (width, dark))
        self.assertLessEqual(found["needed"], width, "the page must be scrolled sideways")
        self.assertEqual(tuple(found["ground"]), (*(DARK if dark else LIGHT), 1))
        self.assertTrue(all(found["pictures"]))
        self.assertGreaterEqual(found["letters"], 9, "pixels of a chart's letters")
        self.assertGreaterEqual(found["contrast"], 4.5)
        return found

    def events(self, name, kind):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == kind]

    def confusion(self, name):
        return json.loads(run(self.engine, "eval", str(self.folder / name), "--format", "json"))["confusion"]

    def test_screenshots_have_their_grounds_and_something_on_them(self):
        for name in ("one", "many-classes", "two"):
            for width in (DESK, PHONE):
                for dark in (False, True):
                    if name != "one" and (width == DESK) == dark:
                        continue  # half of them
                    file = self.folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"
                    self.chromium((self.folder / f"{name}.html").as_uri(), width, 3000, dark,
                                  "--virtual-time-budget=3000", f"--screenshot={file}")
                    wide, high, rows = first_rows(file.read_bytes(), 60)
                    ground, ink = (DARK, LIGHT) if dark else (LIGHT, DARK)
                    with self.subTest(file=file.name):
                        self.assertEqual((wide, high), (width, 3000))
                        self.assertEqual(rows[0][0], ground)
                        self.assertEqual(rows[0][-1], ground)
                        self.assertTrue(any(all(abs(a - b) < 50 for a, b in zip(pixel, ink))
                                            for row in rows for pixel in row), "no title")

    def test_a_chart_tells_its_values_to_pointer_and_keys(self):
        steps, evaluations = self.events("first", "step"), self.events("first", "eval")

        def number(value):
            return repr(float(f"{value:.5g}")).removesuffix(".0")
        first = f"step {steps[0]['step']}: training {number(steps[0]['loss'])}"
        second = f"step {steps[1]['step']}: training {number(steps[1]['loss'])}"
        last = f"step {steps[-1]['step']}: training {number(steps[-1]['loss'])}, test {number(evaluations[-1]['loss'])}"
        for width, dark in ((DESK, False), (PHONE, True)):
            with self.subTest(width=width):
                found = self.look("one", width, dark, USE_THE_LOSS)
                self.assertEqual(found["lines"], {"before": "", "pointed_left": first, "pointed_right": last,
                                                  "home": first, "right": second, "left": first, "end": last})
                self.assertEqual((found["said"], found["now"]), (last, str(steps[-1]["step"])))
                self.assertTrue(found["focused"])
                self.assertAlmostEqual(found["cursor"], found["edge"], delta=1.5)
                self.assertEqual([s[2] for s in found["sliders"]], found["charts"])
                for role, value, _, summary in found["sliders"]:
                    self.assertEqual(role, "slider")
                    self.assertRegex(value, r"^step \d+: .")
                    self.assertIn(" to ", summary)
        self.assertLessEqual({"Loss", "Accuracy", "Learning rate", "Speed", "Sent by each rank", "The slowest rank",
                              "Spread of the replicas when they are averaged", "Where the time of a step goes"},
                             set(found["charts"]))

    def test_two_runs_share_the_charts(self):
        for width, dark in ((PHONE, False), (DESK, True)):
            found = self.look("two", width, dark, "return { names: [...figure_of('Loss').querySelectorAll('.legend li')]"
                              ".map(e => e.textContent), told: document.querySelector('table').innerText };")
            self.assertEqual(found["names"],
                             ["first, training", "first, test", "second, training", "second, test"])
            rows = [line.split("\t") for line in found["told"].splitlines()]
            self.assertIn(["--lr", "0.05", "0.02"], rows)
            self.assertIn(["threads of each rank", "1", "8"], rows)
            self.assertEqual([row for row in rows if row[0] in ("CPU", "system", "backend", "program")], [])

    def check_colors(self, cells, confusion, strength):
        """Right and wrong have a hue each, and a larger share of a label's samples is stronger."""
        hues = {True: set(), False: set()}
        seen = []
        for (label, prediction), cell in cells.items():
            share = confusion[label][prediction] / max(1, sum(confusion[label]))
            seen.append((share, strength(cell)))
            if share > 0:
                hues[label == prediction].add(tuple(round(c) for c in cell["color"][:3]))
        self.assertEqual([len(hues[True]), len(hues[False])], [1, 1], hues)
        self.assertNotEqual(hues[True], hues[False])
        seen.sort()
        for (low, weak), (high, strong) in zip(seen, seen[1:]):
            self.assertLessEqual(weak, strong + 0.005, (low, high))
        self.assertGreater(seen[-1][1], 2 * next(s for share, s in seen if share > 0))

    def test_a_confusion_matrix_has_the_counts_and_colours_of_its_cells(self):
        confusion = self.confusion("first")
        for width, dark in ((DESK, True), (PHONE, False)):
            rows = self.look("one", width, dark, THE_TABLE)["rows"]
            self.assertEqual([[cell["count"] for cell in row] for row in rows], confusion)
            cells = {(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)}
            for cell in cells.values():
                if cell["count"] == 0:
                    self.assertEqual(cell["color"][3], 0)
            self.check_colors(cells, confusion, lambda cell: cell["color"][3])

    def test_a_confusion_matrix_of_many_classes_is_a_picture_that_is_described(self):
        confusion = self.confusion("many")
        found = self.look("many-classes", PHONE, True, THE_PICTURE)
        self.assertEqual(found["side"], len(confusion))
        self.assertEqual((found["role"], found["label"]),
                         ("img", "confusion matrix of 30 classes; the tables below have its numbers"))
        self.assertIn("A row for each label", found["reading"])
        cells = {(int(c["label"]), int(c["prediction"])): c for c in found["cells"]}
        self.assertEqual(set(cells), {(r, c) for r, row in enumerate(confusion) for c, count in enumerate(row) if count})
        for (label, prediction), cell in cells.items():
            share = confusion[label][prediction] / sum(confusion[label])
            self.assertAlmostEqual(cell["opacity"], max(0.15, math.sqrt(share)), delta=0.006)
            self.assertIn(f": {confusion[label][prediction]} of {sum(confusion[label])}", cell["text"])
        self.check_colors(cells, confusion, lambda cell: cell["opacity"])

    def test_a_page_that_follows_a_run_keeps_focus_place_and_what_is_open(self):
        folder = self.folder / "goes-on"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "first", folder)
        metrics = folder / "metrics.jsonl"
        last = self.events("first", "step")[-1]["step"]

        def tell(**event):
            with open(metrics, "a") as file:
                file.write(json.dumps({"schema": 1, **event}) + "\n")
        tell(event="start", step=last)
        coming = iter(({"event": "step", "step": 777, "loss": 1}, {"event": "step", "step": 778, "loss": 0.5},
                       {"event": "end", "step": 778, "seconds": 1, "exit": 0}))
        server = subprocess.Popen([self.engine, "report", str(folder), "--watch"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        self.addCleanup(server.stdout.close)
        source = re.search(r"http://\S+", server.stdout.readline())[0]

        class Between(http.server.BaseHTTPRequestHandler):
            """Serves the page with the script in it, each time as engine report makes it then."""

            def do_GET(self):
                text = ""
                if self.path == "/around":
                    text = framed("/", DESK)
                elif self.path == "/next":
                    tell(**next(coming))
                elif self.path == "/":
                    with urllib.request.urlopen(source, timeout=DEADLINE) as answer:
                        text = with_script(answer.read().decode(), FOLLOW)
                self.send_response(200 if self.path in ("/", "/around", "/next") else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass
        between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
        self.addCleanup(between.server_close)
        self.addCleanup(between.shutdown)
        threading.Thread(target=between.serve_forever, daemon=True).start()
        found = self.found(f"http://127.0.0.1:{between.server_port}/around", False)
        self.assertEqual(found["wrong"], [])
        self.assertGreater(found["before"]["scrolled"], 0)
        self.assertTrue(found["kept"].pop("end").startswith("step 777: training 1"), found)
        self.assertEqual(found["kept"], {"focused": True, "open": True, "same": True, **found["before"]})
        self.assertEqual(found["paused"], {"state": "Paused.", "button": "Follow the run", "unchanged": True})
        self.assertEqual(found["followed"], {"state": "The page follows the run.", "button": "Pause"})
        self.assertTrue(found["ended"])


def main():
    if shutil.which("chromium") is None:
        print("skipped: chromium is missing (Debian: chromium)")
        return 77
    Browser.engine = str(pathlib.Path(sys.argv[1]).resolve())
    Browser.folder = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]).resolve() if "--keep" in sys.argv else None
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Browser)
    return 0 if unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
