// What is drawn on canvases and as SVG.
import { KEEP, nameOf, shortened } from './logic.js';

const SVG = 'http://www.w3.org/2000/svg';

let colours = null;
export function forgetColours() { colours = null; }
function palette() {
  if (!colours) {
    const s = getComputedStyle(document.documentElement);
    const get = (n) => s.getPropertyValue(n).trim();
    colours = { use: get('--use'), useFill: get('--use-fill'), limit: get('--limit'), bad: get('--bad'), grid: get('--line'), text: get('--dim'), ok: get('--ok'), queue: get('--warn') };
  }
  return colours;
}

// fit gives a canvas as many pixels as it has on the screen, and returns its context; null while it is not shown.
function fit(canvas) {
  const w = canvas.clientWidth, h = canvas.clientHeight, d = window.devicePixelRatio || 1;
  if (!w || !h) return null;
  if (canvas.width !== Math.round(w * d) || canvas.height !== Math.round(h * d)) {
    canvas.width = Math.round(w * d);
    canvas.height = Math.round(h * d);
  }
  const g = canvas.getContext('2d');
  g.setTransform(d, 0, 0, d, 0, 0);
  g.clearRect(0, 0, w, h);
  return { g, w, h };
}

// sparkline draws what was in flight below its limit, who waited above it, and at the foot when calls were refused.
// The whole width is KEEP samples; the newest is at the right.
export function sparkline(canvas, model, track, large) {
  const at = fit(canvas);
  if (!at || !track) return;
  const { g, w, h } = at;
  const p = palette();
  const n = model.count - 1;
  const first = Math.max(track.born, n - KEEP + 1);
  const foot = large ? 14 : 4;
  let top = 1;
  for (let i = first; i <= n; i++) top = Math.max(top, track.limit[i % KEEP], track.inFlight[i % KEEP] + track.queued[i % KEEP]);
  const step = w / (Math.max(30, Math.min(KEEP, n - first + 1)) - 1); // a young page need not look empty
  const x = (i) => w - (n - i) * step;
  const y = (v) => (h - foot) - (v / top) * (h - foot - 3);
  if (large) {
    g.strokeStyle = p.grid;
    g.lineWidth = 1;
    g.beginPath();
    for (const f of [0, 0.5, 1]) { g.moveTo(0, Math.round(y(top * f)) + 0.5); g.lineTo(w, Math.round(y(top * f)) + 0.5); }
    g.stroke();
  }
  const area = (value, from, fill, line) => {
    g.beginPath();
    g.moveTo(x(first), y(from(first)));
    for (let i = first; i <= n; i++) g.lineTo(x(i), y(value(i)));
    for (let i = n; i >= first; i--) g.lineTo(x(i), y(from(i)));
    g.closePath();
    g.fillStyle = fill;
    g.fill();
    if (!line) return;
    g.beginPath();
    for (let i = first; i <= n; i++) g.lineTo(x(i), y(value(i)));
    g.strokeStyle = line;
    g.lineWidth = 1.5;
    g.stroke();
  };
  area((i) => track.inFlight[i % KEEP] + track.queued[i % KEEP], (i) => track.inFlight[i % KEEP], p.queue, null);
  area((i) => track.inFlight[i % KEEP], () => 0, p.useFill, p.use);
  g.strokeStyle = p.limit;
  g.lineWidth = 1;
  g.setLineDash([3, 2]);
  g.beginPath();
  let pen = false;
  for (let i = first; i <= n; i++) {
    const v = track.limit[i % KEEP];
    if (!v) { pen = false; continue; }
    if (pen) g.lineTo(x(i), y(v)); else g.moveTo(x(i), y(v));
    pen = true;
  }
  g.stroke();
  g.setLineDash([]);
  g.fillStyle = p.bad;
  for (let i = Math.max(first, track.from) + 1; i <= n; i++) {
    if (track.refused[i % KEEP] > track.refused[(i - 1) % KEEP]) g.fillRect(x(i) - step, h - foot + 1, step + 0.3, foot - 1);
  }
  if (large) {
    g.fillStyle = p.text;
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'top';
    g.fillText(String(top), 2, y(top) + 2);
    g.textBaseline = 'alphabetic';
  }
}

// timeline draws when each breaker was open, one lane each, into an svg of this width.
export function timeline(svg, lanes, now, width, choose) {
  const left = Math.min(220, Math.max(96, width * 0.26)), lane = 20, foot = 20;
  const height = lanes.length * lane + foot;
  let from = now - 5 * 60_000;
  for (const l of lanes) for (const s of l.spans) from = Math.min(from, s.from);
  from = Math.max(from, now - 60 * 60_000);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  const x = (t) => left + ((Math.max(t, from) - from) / (now - from)) * (width - left - 8);
  const parts = [];
  const el = (name, attrs, text) => {
    const e = document.createElementNS(SVG, name);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    if (text !== undefined) e.textContent = text;
    parts.push(e);
    return e;
  };
  const minutes = (now - from) / 60_000;
  const every = [1, 2, 5, 10, 15].find((m) => minutes / m <= Math.max(3, (width - left) / 90)) || 15;
  for (let m = 0; m <= minutes; m += every) {
    const t = now - m * 60_000;
    el('line', { x1: x(t), x2: x(t), y1: 0, y2: height - foot + 4, class: 'grid' });
    el('text', { x: x(t), y: height - 5, class: 'tick', 'text-anchor': m ? 'middle' : 'end' }, m ? `${m} min ago` : 'now');
  }
  lanes.forEach((l, i) => {
    const y = i * lane;
    const name = nameOf(l).replace(/^https?:\/\//, '');
    const room = Math.floor((left - 10) / 6.8);
    el('text', { x: 0, y: y + 14, class: 'lane' }, shortened(name, room));
    el('line', { x1: left, x2: width - 8, y1: y + 10, y2: y + 10, class: 'rail' });
    for (const s of l.spans) {
      if (s.to < from) continue;
      const e = el('rect', { x: x(s.from), y: y + 3, width: Math.max(2.5, x(s.to) - x(s.from)), height: 14, rx: 2, class: 'span ' + s.state });
      const title = document.createElementNS(SVG, 'title');
      title.textContent = choose(s);
      e.append(title);
    }
  });
  svg.replaceChildren(...parts);
}
