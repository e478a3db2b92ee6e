// Style and script of the page, in it as they are.
#pragma once

namespace tools {

// Light and dark as the reader's system is; one column on a phone.
inline constexpr const char* kPageStyle = R"(
:root{--bg:#fff;--fg:#1c1e21;--dim:#5f6670;--line:#d9dce1;--card:#f6f7f9;
--c0:#1f6fb4;--c1:#c2540a;--c2:#2a8a3e;--c3:#8a4fb0;
--c4:#b3282d;--c5:#0f8a8a;--c6:#8a6d00;--c7:#b0407c}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--dim:#9aa2ad;
--line:#363b42;--card:#1e2125;--c0:#6db3f2;--c1:#f2a262;--c2:#74c985;--c3:#c79be6;
--c4:#f0868a;--c5:#63cfcf;--c6:#dcc05c;--c7:#ee92bf}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1400px;padding:1rem;background:var(--bg);color:var(--fg);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.8rem 0 .6rem}
p,li{max-width:75ch}.dim{color:var(--dim)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1rem}
figure{margin:0;padding:.7rem;background:var(--card);border:1px solid var(--line);
border-radius:8px;min-width:0}
figcaption{font-weight:600}
svg.chart{width:100%;height:auto;display:block;touch-action:pan-y}
svg.chart:focus{outline:none}
svg.chart:focus-visible,.scroll:focus-visible{outline:2px solid var(--c0)}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--dim)}
.tick{font-size:11px;fill:var(--dim)}.name{font-size:12px;fill:var(--dim)}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.area{stroke:none}
.dashed{stroke-dasharray:5 3}.key.dot{border-radius:50%}
.mark{stroke:var(--dim);stroke-dasharray:3 3}.cursor{stroke:var(--fg);visibility:hidden}
.legend{list-style:none;margin:.2rem 0;padding:0;display:flex;flex-wrap:wrap;
gap:.2rem .9rem;font-size:13px}
.key{display:inline-block;width:.9em;height:.9em;border-radius:2px;
margin-right:.35em;vertical-align:-1px}
.c0{stroke:var(--c0);background:var(--c0)}.c1{stroke:var(--c1);background:var(--c1)}
.c2{stroke:var(--c2);background:var(--c2)}.c3{stroke:var(--c3);background:var(--c3)}
.c4{stroke:var(--c4);background:var(--c4)}.c5{stroke:var(--c5);background:var(--c5)}
.c6{stroke:var(--c6);background:var(--c6)}.c7{stroke:var(--c7);background:var(--c7)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}
.values{min-height:1.4em;margin:.2rem 0 0;font-size:13px;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;
border-bottom:1px solid var(--line);vertical-align:top}
td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
details{margin:.3rem 0}summary{cursor:pointer;color:var(--dim);font-size:13px}
code{font-size:.92em;overflow-wrap:anywhere}.word{display:inline-block;max-width:100%}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
table.confusion td,table.confusion th{padding:.25rem .5rem;text-align:right;
white-space:nowrap;overflow-wrap:normal}
table.confusion th[scope=row]{text-align:left}
td.hit{background:color-mix(in srgb,var(--c0) calc(var(--s)*50%),transparent)}
td.miss{background:color-mix(in srgb,var(--c1) calc(var(--s)*50%),transparent)}
svg.heat{width:100%;max-width:640px;background:var(--card);border:1px solid var(--line);
display:block;margin-bottom:.6rem}
.shots{display:grid;grid-template-columns:repeat(auto-fill,minmax(108px,1fr));gap:.6rem;
list-style:none;margin:0;padding:0}
.shot{padding:.5rem;background:var(--card);border:1px solid var(--line);border-radius:8px;
font-size:13px;overflow-wrap:anywhere}
.watch{display:flex;margin-bottom:.6rem;flex-wrap:wrap;gap:.6rem;align-items:center;font-size:13px}
.watch[hidden]{display:none}
button{font:inherit;padding:.2rem .8rem;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:6px;cursor:pointer}
@media(max-width:600px){.tick,.name{font-size:15px}}
.shot img{width:100%;max-width:110px;height:auto;max-height:160px;object-fit:contain;
image-rendering:pixelated;display:block;margin-bottom:.3rem}
@media print{details,.values{display:none}}
)";

// The values at the pointer, or where the keys of a slider have moved. `show_charts` takes up the
// charts of the page, also those whose data are new.
inline constexpr const char* kPageScript = R"(
const charts = new Map();
const text = v => v === null ? 'not finite' : String(Number(v.toPrecision(5)));
const take_up = figure => {
  const svg = figure.querySelector('svg'), cursor = svg.querySelector('.cursor');
  const out = figure.querySelector('.values');
  let json = '', data, xs = [], at = -1;
  const told = i => {
    const parts = [];
    for (const s of data.series) {
      let best = null;
      for (const p of s.points) if (p[0] <= xs[i]) best = p;
      if (best) parts.push(s.name + ' ' + text(best[1]));
    }
    return data.name + ' ' + text(xs[i]) + ': ' + parts.join(', ');
  };
  const show = i => {
    at = Math.max(0, Math.min(xs.length - 1, i));
    const [low, high, left, right] = data.x;
    const px = left + (xs[at] - low) / (high - low) * (right - left);
    cursor.setAttribute('x1', px);
    cursor.setAttribute('x2', px);
    cursor.style.visibility = 'visible';
    const line = told(at);
    if (out.textContent !== line) out.textContent = line;
    svg.setAttribute('aria-valuenow', xs[at]);
    svg.setAttribute('aria-valuetext', line);
  };
  const nearest = x => {
    let near = 0;
    xs.forEach((v, i) => { if (Math.abs(v - x) < Math.abs(xs[near] - x)) near = i; });
    return near;
  };
  const load = () => {
    const now = figure.querySelector('script').textContent;
    if (now === json) return;
    const x = at < 0 ? null : xs[at];
    json = now;
    data = JSON.parse(json);
    xs = [...new Set(data.series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b);
    if (x !== null) show(nearest(x));
    else {
      svg.setAttribute('aria-valuenow', xs[0]);
      svg.setAttribute('aria-valuetext', told(0));
    }
  };
  svg.addEventListener('pointermove', e => {
    const box = svg.getBoundingClientRect(), [low, high, left, right] = data.x;
    const px = (e.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    show(nearest(low + (px - left) / (right - left) * (high - low)));
  });
  svg.addEventListener('focus', () => show(Math.max(at, 0)));
  svg.addEventListener('keydown', e => {
    if (e.altKey || e.ctrlKey || e.metaKey) return;
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1,
                   PageDown: -20, PageUp: 20, Home: -Infinity, End: Infinity }[e.key];
    if (!step) return;
    show(Math.max(at, 0) + step);
    e.preventDefault();
  });
  return load;
};
const show_charts = () => {
  for (const figure of document.querySelectorAll('figure')) {
    if (!charts.has(figure)) charts.set(figure, take_up(figure));
    charts.get(figure)();
  }
};
show_charts();
)";

// Of --watch: asks for the page again while the run goes on. What is new is put into the elements
// that are there, so that the focus, what is open and the place on the page stay.
inline constexpr const char* kWatchScript = R"(
const renew = (old, now) => {
  for (const a of now.attributes)
    if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
  if (old.classList.contains('values')) return;
  let at = old.firstChild;
  for (const part of [...now.childNodes]) {
    const own = part.id && [...old.children].find(e => e.id === part.id);
    while (own && at && at !== own) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    const same = at && at.nodeName === part.nodeName && (at.id || '') === (part.id || '');
    if (!same) {
      old.insertBefore(document.importNode(part, true), at);
      continue;
    }
    if (at.nodeType === Node.ELEMENT_NODE) renew(at, part);
    else if (at.data !== part.data) at.data = part.data;
    at = at.nextSibling;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
};
const watch = document.querySelector('.watch');
const button = watch.querySelector('button'), state = watch.querySelector('[role=status]');
const say = line => { if (state.textContent !== line) state.textContent = line; };
let paused = false, timer = 0;
const again = () => {
  clearTimeout(timer);
  timer = setTimeout(ask, watch.dataset.seconds * 1000);
};
const stop = line => {
  paused = true;
  button.textContent = 'Follow the run';
  say(line);
};
const ask = async () => {
  try {
    const answer = await fetch(location.href, { cache: 'no-store' });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (paused) return;
    renew(document.querySelector('main'), page.querySelector('main'));
    show_charts();
    if (!page.querySelector('.watch')) return stop('The run has ended.');
    say('The page follows the run.');
  } catch (error) {
    if (!paused) say('No answer from engine report. The page shows what it said last.');
  }
  if (!paused) again();
};
button.addEventListener('click', () => {
  clearTimeout(timer);
  if (!paused) return stop('Paused.');
  paused = false;
  button.textContent = 'Pause';
  ask();
});
watch.hidden = false;
again();
)";

}  // namespace tools
