// Shows a chart's values at the pointer, or where the keys of a slider have moved. show_charts() also
// takes up charts whose data are new.
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
