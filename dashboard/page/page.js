// The page: keeps a Model up to date by the stream of events, and shows it.
//
// Hooks for tests; they stay:
//
//   #headline, #flow, #announcer          the summary; #summary[data-level] is the worst level, 0 to 4
//   #connection[data-state]               connecting, live, lost, paused; #connection-text
//   #pause[aria-pressed]                  holds the picture still
//   #notices > [data-notice]              policy-error, draining, lost, closed
//   #cards > li[data-id][data-level]      what needs attention: .sentence, .hint, button.open
//   #show-trouble                         button after the cards, if there are more than are shown
//   #timeline rect.span                   when breakers were open; #transition-list > li
//   #filter, #side, #only-trouble, #sort  the choice of rows; #shown says how many
//   th[data-col][aria-sort] > button      trouble, name, use, granted, rejected, wait, breaker, inflight
//   #rows > tr[data-id][data-level][data-policy][data-side][data-key]
//       td[data-cell="state|name|use|granted|rejected|wait|breaker|spark"]
//       [data-value] on use (in flight), granted, rejected, wait (P99 in ms, -1: none), breaker (state)
//       button.name                       opens the details
//   #more                                 shows more rows
//   #details[data-id], #details .close    the details of one compartment; #details [data-field]
//   #policies, #dropped                   the foot
//   document.documentElement.dataset.updates   how many times the picture was drawn
//   document.documentElement.dataset.scriptMs  how long the latest took, reading the event included
//   the fragment: c (id of a compartment), q, side, trouble, sort, reversed

import * as logic from './logic.js';
import { forgetColours, sparkline, timeline } from './draw.js';

const $ = (id) => document.getElementById(id);
const model = new logic.Model();
let shown = model; // what is drawn: while paused, a copy of how things were
const view = { text: '', side: '', trouble: false, sort: 'trouble', reversed: false, selected: '', paused: false, limit: 100 };

// ---- setting text and attributes only where they change ----

function set(el, text) {
  if (el.__text !== text) el.textContent = el.__text = text;
}
function attr(el, name, value) {
  if (value === null) { if (el.hasAttribute(name)) el.removeAttribute(name); return; }
  value = String(value);
  if (el.getAttribute(name) !== value) el.setAttribute(name, value);
}
function style(el, name, value) {
  const key = '__' + name;
  if (el[key] !== value) { el[key] = value; el.style.setProperty(name, value); }
}
function make(tag, cls, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
}
function icon(level) {
  const s = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  s.setAttribute('class', 'icon');
  s.setAttribute('aria-hidden', 'true');
  s.append(document.createElementNS('http://www.w3.org/2000/svg', 'use'));
  s.firstChild.setAttribute('href', '#icon-' + level);
  return s;
}
function badge() {
  const b = make('span', 'badge');
  b.append(icon(0), make('span'));
  return b;
}
function setBadge(b, said) {
  attr(b, 'data-level', said.level);
  attr(b.firstChild.firstChild, 'href', '#icon-' + said.level);
  set(b.lastChild, said.label);
}

// arrange makes children the children of parent, in this order, and moves only those that stand elsewhere. The one
// that has the focus is never taken out, which would lose it.
function arrange(parent, children) {
  const keep = new Set(children);
  for (let c = parent.firstElementChild; c;) {
    const next = c.nextElementSibling;
    if (!keep.has(c)) c.remove();
    c = next;
  }
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let at = parent.firstElementChild;
  for (const c of children) {
    if (c === at) { at = at.nextElementSibling; continue; }
    if (focused && c.contains(focused)) { // move the others around it
      while (at && at !== c) {
        const next = at.nextElementSibling;
        parent.append(at);
        at = next;
      }
      at = c.nextElementSibling;
      continue;
    }
    parent.insertBefore(c, at);
  }
  if (focused && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

// ---- a bulkhead as a picture ----

function makeHull() {
  const h = make('div', 'hull');
  h.setAttribute('aria-hidden', 'true');
  const tank = make('span', 'tank');
  tank.append(make('i'));
  const queue = make('span', 'queue');
  queue.append(make('i'));
  h.append(tank, queue);
  return h;
}
function setHull(h, c) {
  const u = logic.use(c);
  const [tank, queue] = h.children;
  h.classList.toggle('nolimit', !u.limit);
  h.classList.toggle('noqueue', !u.places && !u.queued);
  const share = u.limit ? Math.min(1, u.taken / u.limit) : 0;
  const limits = u.limit > 0 && c.mode !== 'observe';
  tank.classList.toggle('full', limits && u.taken >= u.limit);
  tank.classList.toggle('high', limits && u.taken < u.limit && u.taken >= 0.8 * u.limit);
  tank.classList.toggle('fine', u.limit > 50);
  style(tank, '--n', Math.max(1, u.limit));
  style(tank.firstChild, 'transform', `scaleX(${share.toFixed(3)})`);
  style(queue.firstChild, 'transform', `scaleX(${Math.min(1, u.queued / Math.max(1, u.places, u.queued)).toFixed(3)})`);
}

function makeGauge(name) {
  const g = make('div', 'gauge');
  const track = make('span', 'track');
  track.append(make('i'), make('u'));
  track.setAttribute('aria-hidden', 'true');
  g.append(make('span', '', name), track, make('span'));
  return g;
}
function setGauge(g, value, limit) {
  attr(g, 'hidden', limit > 0 ? null : '');
  if (!(limit > 0)) return;
  const [, track, text] = g.children;
  g.classList.toggle('over', value >= limit);
  style(track.firstChild, 'transform', `scaleX(${(Math.max(0, Math.min(100, value)) / 100).toFixed(3)})`);
  style(track.lastChild, 'left', `calc(${Math.min(100, limit)}% - 1px)`);
  set(text, value < 0 ? '–' : logic.percent(value));
  attr(g, 'title', `${g.firstChild.textContent}: ${value < 0 ? 'too few calls to tell' : logic.percent(value)}, limit ${logic.percent(limit)}`);
}

// setLeft shows how much of the open time is left.
function setLeft(g, b) {
  const whole = b && b.state === 'open' && b.last && b.last.to === 'open' ? b.last.openForMs : 0;
  g.hidden = !whole;
  if (!whole) return;
  style(g.children[1].firstChild, 'transform', `scaleX(${Math.min(1, b.openRemainingMs / whole).toFixed(3)})`);
  set(g.lastChild, logic.duration(logic.secondsUp(b.openRemainingMs)));
}

// ---- rows ----

const drawn = new Map(); // id -> row element with its parts
const visible = new Set();
const watcher = 'IntersectionObserver' in window ? new IntersectionObserver((entries) => {
  for (const e of entries) {
    if (e.isIntersecting) { visible.add(e.target); if (e.target.__row) setRow(e.target, e.target.__row); drawSpark(e.target); } else visible.delete(e.target);
  }
}, { rootMargin: '200px' }) : null;

function makeRow(id) {
  const tr = make('tr');
  tr.setAttribute('role', 'row');
  tr.dataset.id = id;
  const cell = (name, cls, label) => {
    const td = make('td', cls || name);
    td.setAttribute('role', 'cell');
    td.dataset.cell = name;
    if (label) td.dataset.label = label;
    tr.append(td);
    return td;
  };
  const p = { tr };
  p.state = badge();
  cell('state').append(p.state);
  const name = cell('name', 'compartment');
  p.name = make('button', 'name');
  p.name.type = 'button';
  p.name.setAttribute('aria-controls', 'details');
  p.policy = make('span', 'small');
  name.append(p.name, p.policy);
  p.use = cell('use');
  p.hull = makeHull();
  const figures = make('div', 'figures');
  p.taken = make('span');
  p.takenNumber = make('b');
  p.limit = make('span');
  p.taken.append(p.takenNumber, p.limit);
  p.queued = make('span');
  figures.append(p.taken, p.queued);
  p.use.append(p.hull, figures);
  p.granted = cell('granted', 'num granted', 'Granted/s');
  p.grantedText = p.granted.appendChild(make('span'));
  p.rejected = cell('rejected', 'num rejected', 'Rejected/s');
  p.rejectedText = p.rejected.appendChild(make('span'));
  p.reasons = p.rejected.appendChild(make('span', 'small'));
  p.wait = cell('wait', 'num wait', 'Wait P50, P99');
  p.waitText = p.wait.appendChild(make('span', 'p50'));
  p.p99Text = p.wait.appendChild(make('span', 'p99'));
  p.breaker = cell('breaker');
  p.breakerState = make('span', 'small');
  p.failed = makeGauge('failed');
  p.slow = makeGauge('slow');
  p.breaker.append(p.breakerState, p.failed, p.slow);
  const spark = cell('spark');
  p.canvas = make('canvas');
  p.canvas.setAttribute('aria-hidden', 'true');
  spark.append(p.canvas);
  tr.__parts = p;
  if (watcher) watcher.observe(tr); else visible.add(tr);
  return tr;
}

function setRow(tr, r) {
  const selected = view.selected === r.c.id;
  if (tr.__shows === r && tr.__selected === selected) return;
  tr.__shows = r;
  tr.__selected = selected;
  const p = tr.__parts, c = r.c, u = logic.use(c);
  attr(tr, 'data-level', r.said.level);
  attr(tr, 'data-policy', c.policy);
  attr(tr, 'data-side', c.side);
  attr(tr, 'data-key', c.key);
  tr.classList.toggle('selected', view.selected === c.id);
  setBadge(p.state, r.said);
  set(p.name, logic.nameOf(c));
  attr(p.name, 'title', r.said.sentence);
  attr(p.name, 'aria-expanded', view.selected === c.id);
  set(p.policy, `${c.key ? logic.plain(c.policy) + ' · ' : ''}${c.side}${c.pool ? ' pool' : ''} · per ${c.per}${c.mode === 'observe' ? ' · observes only' : ''}`);
  setHull(p.hull, c);
  attr(p.use, 'data-value', u.taken);
  set(p.takenNumber, logic.count(u.taken));
  set(p.limit, u.limit ? ` of ${logic.count(u.limit)}` : ' in flight, no limit');
  set(p.queued, u.queued || u.places ? `${logic.count(u.queued)} waiting` : '');
  attr(p.granted, 'data-value', r.rates ? r.rates.granted.toFixed(2) : '');
  set(p.grantedText, logic.rate(r.rates && r.rates.granted));
  attr(p.rejected, 'data-value', r.rates ? r.rates.rejected.toFixed(2) : '');
  set(p.rejectedText, logic.rate(r.rates && r.rates.rejected));
  p.rejected.classList.toggle('some', !!r.rates && r.rates.rejected > 0);
  set(p.reasons, reasons(r));
  attr(p.wait, 'data-value', r.waits ? r.waits.p99 : -1);
  set(p.waitText, r.waits ? logic.bound(r.waits.p50) : '–');
  set(p.p99Text, r.waits ? logic.bound(r.waits.p99) : '');
  const b = c.breaker;
  attr(p.breaker, 'data-value', b ? b.state : '');
  p.breaker.classList.toggle('none', !b);
  attr(p.breakerState, 'hidden', b ? null : '');
  setGauge(p.failed, b ? b.failureRate : -1, b ? b.maxFailureRate : 0);
  setGauge(p.slow, b ? b.slowCallRate : -1, b ? b.maxSlowCallRate : 0);
  if (b) set(p.breakerState, breakerWords(b));
}

function breakerWords(b) {
  const word = logic.STATE_WORDS[b.state] || b.state;
  if (b.state === 'open') return b.openRemainingMs > 0 ? `${word}, ${logic.duration(logic.secondsUp(b.openRemainingMs))} left` : `${word}, a probe is due`;
  if (b.state === 'half_open') return b.probes > 0 ? `${word}, ${b.probes - b.probesLeft} of ${b.probes} probes in` : word;
  return `${word}, ${logic.plural(b.calls, 'call')}`;
}

function reasons(r) {
  if (!r.rates || !r.rates.rejected) return r.rates && r.rates.observed > 0 ? `would be ${logic.rate(r.rates.observed)}` : '';
  const short = { full: 'full', wait_timeout: 'timed out', open: 'open', draining: 'draining' };
  return logic.REASONS.filter((k) => r.rates.reasons[k] > 0).map((k) => `${logic.rate(r.rates.reasons[k])} ${short[k]}`).concat(r.rates.other ? [`${logic.rate(r.rates.other)} other`] : []).join(', ');
}

function drawSpark(tr) {
  sparkline(tr.__parts.canvas, shown, shown.tracks.get(tr.dataset.id), false);
}

// ---- the whole picture ----

let rows = []; // of the latest picture: all, in the order of the document
let order = []; // ids as shown
let orderAt = 0, orderKey = '';
let pointerInTable = false;

let firsts = null, firstsOf = null;

function compute() {
  if (firstsOf !== shown.doc.transitions) {
    firstsOf = shown.doc.transitions;
    firsts = logic.leftClosed(firstsOf);
  }
  const before = new Map(rows.map((r) => [r.c.id, r]));
  const draining = !!shown.doc.draining;
  rows = shown.doc.compartments.map((c, at) => {
    const rates = shown.rates(c.id);
    const quiet = !rates || (!rates.granted && !rates.rejected && !rates.left && !rates.observed);
    const old = before.get(c.id);
    if (quiet && old && old.c === c && old.quiet === quiet && old.draining === draining && !old.rates === !rates && !old.waits && old.said.level < logic.WARN) {
      old.at = at;
      return old; // most of a thousand have nothing to tell
    }
    return { quiet, draining, c, at, rates, waits: shown.waits(c.id), said: logic.describe(c, rates, shown.now, shown.tracks.get(c.id), c.breaker && firsts.get(logic.breakerID(c)), shown.doc) };
  });
}

// arranged returns the rows that are shown, in their order. By the state of things they are put in order anew at once
// when somebody asks for it, but on their own only every few seconds, and not under somebody's hand.
function arranged() {
  const found = rows.filter((r) => logic.chosen(r, view));
  const key = `${view.sort}/${view.reversed}`;
  const held = pointerInTable || $('rows').contains(document.activeElement);
  const stable = view.sort === 'name';
  const calm = view.sort === 'trouble' && !held; // levels change seldom
  if (key !== orderKey || stable || calm || (!held && performance.now() - orderAt > 3000)) {
    const out = logic.sorted(found, view.sort, view.reversed);
    orderKey = key;
    orderAt = performance.now();
    order = logic.sorted(rows, view.sort, view.reversed).map((r) => r.c.id);
    return out;
  }
  const place = new Map(order.map((id, i) => [id, i]));
  const of = (r) => (place.has(r.c.id) ? place.get(r.c.id) : order.length + r.at);
  return found.sort((a, b) => of(a) - of(b));
}

function render() {
  if (!shown.doc) return;
  const began = performance.now();
  compute();
  renderSummary();
  renderCards();
  renderTimeline();
  renderTable();
  renderDetails();
  renderFoot();
  const root = document.documentElement.dataset;
  root.updates = Number(root.updates || 0) + 1;
  root.scriptMs = (performance.now() - began + parseMs).toFixed(1);
}

const EAGER = 100;

function renderTable() {
  const found = arranged();
  const some = found.slice(0, view.limit);
  const elements = some.map((r, i) => {
    let tr = drawn.get(r.c.id);
    if (!tr) drawn.set(r.c.id, tr = makeRow(r.c.id));
    tr.__row = r;
    if (i < EAGER || visible.has(tr) || !tr.__shows) setRow(tr, r); // the others when they come into sight
    return tr;
  });
  arrange($('rows'), elements);
  if (drawn.size > elements.length + 200) forgetRows(new Set(some.map((r) => r.c.id)));
  for (const tr of visible) if (tr.isConnected) drawSpark(tr);
  attr($('table'), 'aria-rowcount', found.length + 1);
  set($('shown'), found.length === rows.length ? logic.plural(rows.length, 'compartment') : `${logic.count(found.length)} of ${logic.plural(rows.length, 'compartment')}`);
  const empty = $('empty');
  empty.hidden = found.length > 0;
  set(empty, rows.length ? 'None is as the filter wants it.' : 'No call has met a compartment yet. They appear here with their first call.');
  const more = $('more');
  more.hidden = found.length <= view.limit;
  set(more, `Show ${Math.min(100, found.length - view.limit)} more of ${logic.count(found.length - view.limit)}`);
}

function forgetRows(keep) {
  for (const [id, tr] of drawn) {
    if (keep.has(id)) continue;
    if (watcher) watcher.unobserve(tr);
    visible.delete(tr);
    drawn.delete(id);
  }
}

let announced = '', announcedAt = -Infinity;

function renderSummary() {
  const s = logic.summary(rows, shown.doc, shown.flow());
  attr($('summary'), 'data-level', s.level);
  set($('headline'), s.text);
  set($('flow'), s.flow);
  document.title = s.troubled ? `(${s.troubled}) watertight` : 'watertight';
  // For whoever listens: what has changed of the state of things, never the rates, and not more often than every 10 s.
  if (s.steady !== announced && performance.now() - announcedAt > 10_000) {
    announced = s.steady;
    announcedAt = performance.now();
    set($('announcer'), s.steady);
  }
}

const cards = new Map();
const MAX_CARDS = 6;

function makeCard(id) {
  const li = make('li', 'card');
  li.dataset.id = id;
  const head = make('div', 'head');
  const p = {
    badge: badge(), name: make('button', 'link open'), side: make('span', 'dim'), sentence: make('p', 'sentence'),
    hull: makeHull(), left: makeGauge('left'), failed: makeGauge('failed'), slow: makeGauge('slow'), hint: make('p', 'hint'),
  };
  p.left.classList.add('left');
  p.name.type = 'button';
  p.name.addEventListener('click', () => select(id, p.name));
  head.append(p.badge, p.name, p.side);
  p.what = make('span');
  p.hint.append(p.what);
  li.append(head, p.sentence, p.hull, p.left, p.failed, p.slow, p.hint);
  li.__parts = p;
  return li;
}

let cardOrder = '', cardIDs = [];

function renderCards() {
  const bad = logic.sorted(rows.filter((r) => r.said.level >= logic.WARN), 'trouble', false);
  const worst = bad.slice(0, MAX_CARDS);
  const elements = worst.map((r) => {
    let li = cards.get(r.c.id);
    if (!li) cards.set(r.c.id, li = makeCard(r.c.id));
    const p = li.__parts;
    attr(li, 'data-level', r.said.level);
    setBadge(p.badge, r.said);
    set(p.name, logic.nameOf(r.c));
    set(p.side, `${r.c.key ? `policy ${logic.plain(r.c.policy)}, ` : ''}${r.c.side}${r.c.pool ? ' pool' : ' side'}`);
    set(p.sentence, r.said.sentence);
    const b = r.c.breaker, shut = b && b.state !== 'closed' && b.state !== 'disabled';
    const judged = shut && b.state !== 'forced_open'; // which looks at no figure
    p.hull.hidden = !logic.use(r.c).limit || shut;
    setHull(p.hull, r.c);
    setLeft(p.left, b);
    setGauge(p.failed, b ? b.failureRate : -1, judged ? b.maxFailureRate : 0);
    setGauge(p.slow, b ? b.slowCallRate : -1, judged ? b.maxSlowCallRate : 0);
    set(p.what, r.said.hint);
    p.hint.hidden = !r.said.hint;
    return li;
  });
  arrange($('cards'), elements);
  for (const [id, li] of cards) if (!li.isConnected) cards.delete(id);
  $('trouble').hidden = !bad.length;
  $('cards-more').hidden = bad.length <= MAX_CARDS;
  set($('show-trouble'), `Show all ${bad.length} in the table`);
}

const MAX_LANES = 8;
let listed = null;

function renderTimeline() {
  const list = shown.doc.transitions;
  $('trips').hidden = !list.length;
  if (!list.length) return;
  const lanes = logic.spans(list, serverNow()).filter((l) => l.spans.length).slice(0, MAX_LANES);
  const svg = $('timeline');
  timeline(svg, lanes, serverNow(), svg.clientWidth || 800, (s) => `${logic.STATE_WORDS[s.state]} ${logic.clock(s.from)} to ${logic.clock(s.to)}: ${logic.cause(s.transition)}`);
  set($('transitions-count'), String(list.length));
  if (listed !== list && $('transitions').open) {
    listed = list;
    $('transition-list').replaceChildren(...list.slice(-100).reverse().map((t) => transitionItem(t, true)));
  }
}

function transitionItem(t, named) {
  const li = make('li');
  const time = make('time', '', logic.clock(Date.parse(t.time)));
  time.dateTime = t.time;
  const b = shown.doc.compartments.find((c) => c.breaker && c.policy === t.policy && c.side === t.side && c.key === t.key);
  const until = t.openForMs ? ` for ${logic.duration(t.openForMs)}` : '';
  li.append(time, ` ${named ? `\u2068${logic.nameOf(t)}\u2069: ` : ''}${logic.STATE_WORDS[t.from] || t.from} to ${logic.STATE_WORDS[t.to] || t.to}${until}: ${logic.cause(t, b && b.breaker)}`);
  return li;
}

function renderFoot() {
  const p = shown.doc.policies;
  const version = p.version ? `file ${p.version.slice(0, 12)}` : 'made in code';
  const failed = p.failed ? `, ${logic.plural(p.failed, 'failed reload')}` : '';
  set($('policies'), `Policies: ${version}, in force since ${logic.clock(Date.parse(p.since))} (${logic.duration(Math.max(0, shown.now - Date.parse(p.since)))}); ${logic.plural(p.reloads, 'reload')}${failed}.`);
  attr($('policies'), 'title', p.version);
  const failing = p.failingSince ? `, since ${logic.clock(Date.parse(p.failingSince))}` : '';
  notice('policy-error', !!p.error, 'bad', `The latest policy file is not in force${failing}: the policies of before stay. Mend the file; it is read again by itself.`, p.error);
  notice('draining', !!shown.doc.draining, '', 'This process is shutting down: new requests are refused. If nobody meant that, look at who sent the signal.');
  notice('closed', !!shown.doc.closed, 'bad', 'The Guard of this process was closed: these are its last figures.');
  const d = shown.doc.dropped || [];
  $('dropped').hidden = !d.length;
  set($('dropped'), 'Counted by compartments that were dropped at rest: ' + d.map((c) => `${logic.plain(c.policy)} (${c.side}) ${logic.count(c.granted)} granted, ${logic.count(logic.total(c.rejected))} rejected, by ${logic.count(c.evicted || 0)} of them`).join('; ') + '.');
}

function notice(id, there, cls, text, more) {
  let n = document.querySelector(`#notices [data-notice="${id}"]`);
  if (!there) { if (n) n.remove(); return; }
  if (!n) {
    n = make('div', 'notice ' + cls);
    n.dataset.notice = id;
    n.append(make('span'), make('pre'));
    $('notices').append(n);
  }
  set(n.firstChild, text);
  n.lastChild.hidden = !more;
  set(n.lastChild, more || '');
}

// ---- the details of one compartment ----

let opener = null;

function select(id, from) {
  view.selected = id;
  opener = from || null;
  saveView();
  listedDetails = null;
  render();
  if (from && !$('details').hidden) $('details').focus();
}

function closeDetails() {
  const id = view.selected;
  view.selected = '';
  saveView();
  render();
  const row = drawn.get(id);
  if (opener && opener.isConnected) opener.focus();
  else if (row && row.isConnected) row.__parts.name.focus();
  opener = null;
}

let details = null, listedDetails = null;

function makeDetails() {
  const box = $('details');
  const p = {};
  const field = (name, tag, cls) => {
    const e = make(tag || 'p', cls);
    e.dataset.field = name;
    box.append(e);
    return (p[name] = e);
  };
  const title = (name, text) => {
    const e = field(name, 'h3');
    e.textContent = text;
    return e;
  };
  const close = make('button', 'close', 'Close');
  close.type = 'button';
  close.addEventListener('click', closeDetails);
  box.append(close);
  field('name', 'h2').id = 'details-name';
  field('what', 'p', 'dim');
  p.badge = badge();
  box.append(p.badge);
  field('sentence', 'p', 'sentence');
  field('hint', 'p', 'hint dim');
  title('cells-title', 'Permits');
  field('cells', 'div', 'cells').setAttribute('aria-hidden', 'true');
  field('cells-text', 'p', 'dim');
  title('chart-title', '');
  p.chart = make('canvas', 'chart');
  p.chart.setAttribute('aria-hidden', 'true');
  box.append(p.chart);
  title('breaker-title', 'Breaker');
  field('breaker-state', 'p');
  p.failed = makeGauge('failed');
  p.slow = makeGauge('slow');
  box.append(p.failed, p.slow);
  field('breaker-rule', 'p', 'dim');
  title('counts-title', 'Counts');
  field('counts', 'dl');
  title('waits-title', 'Waits of the last minute');
  field('histogram', 'div', 'histogram').setAttribute('aria-hidden', 'true');
  field('waits-text', 'p', 'dim');
  title('pool-title', 'Pool');
  field('pool', 'dl');
  title('changes-title', 'Latest changes of the breaker');
  field('changes', 'ol', 'changes');
  const link = field('link', 'p');
  p.anchor = make('a', '', 'Link to this compartment');
  link.append(p.anchor);
  return p;
}

function renderDetails() {
  const box = $('details');
  const r = view.selected && rows.find((x) => x.c.id === view.selected);
  document.querySelector('main').classList.toggle('split', !!view.selected);
  box.hidden = !view.selected;
  attr(skip, 'href', view.selected ? '#details' : '#compartments');
  set(skip, view.selected ? 'Skip to the details' : 'Skip to the compartments');
  if (!view.selected) return;
  attr(box, 'data-id', view.selected);
  if (!details) details = makeDetails();
  const p = details;
  const only = ['name', 'sentence'];
  for (const e of box.children) if (e.dataset.field && !only.includes(e.dataset.field)) e.hidden = !r;
  p.badge.hidden = p.chart.hidden = !r;
  if (!r) {
    set(p.name, logic.plain(view.selected));
    set(p.sentence, 'This compartment is not there now: no call has met it, or it was dropped at rest. It appears here with its next call.');
    p.failed.hidden = p.slow.hidden = true;
    return;
  }
  const c = r.c, u = logic.use(c), b = c.breaker;
  set(p.name, logic.nameOf(c));
  set(p.what, `${c.key ? `Policy ${logic.plain(c.policy)}, ` : ''}${c.side} side, ${c.pool ? 'a pool' : `per ${c.per}`}${c.mode === 'observe' ? ', observes only' : ''}`);
  setBadge(p.badge, r.said);
  set(p.sentence, r.said.sentence);
  set(p.hint, r.said.hint);
  renderCells(p, c, u);
  set(p['chart-title'], `In flight, waiting and limit, last ${logic.duration(Math.max(1000, shown.span(c.id)))}`);
  sparkline(p.chart, shown, shown.tracks.get(c.id), true);
  for (const k of ['breaker-title', 'breaker-state', 'breaker-rule', 'changes-title', 'changes']) p[k].hidden = !b;
  setGauge(p.failed, b ? b.failureRate : -1, b ? b.maxFailureRate : 0);
  setGauge(p.slow, b ? b.slowCallRate : -1, b ? b.maxSlowCallRate : 0);
  if (b) {
    set(p['breaker-state'], `${breakerWords(b)}${b.failed === undefined ? '' : `; ${logic.count(b.failed)} failed, ${logic.count(b.slow)} slow`}${b.overdue ? `, ${logic.count(b.overdue)} overdue in flight` : ''}.`);
    set(p['breaker-rule'], `Opens at ${logic.percent(b.maxFailureRate)} failed${b.maxSlowCallRate ? ` or ${logic.percent(b.maxSlowCallRate)} slower than ${logic.duration(b.slowCallMs)}` : ''}, of at least ${logic.plural(b.minCalls, 'call')}.`);
    const mine = shown.doc.transitions.filter((t) => t.policy === c.policy && t.side === c.side && t.key === c.key);
    if (!mine.length && b.last) mine.push(b.last);
    const key = c.id + mine.length + (mine.length ? mine[mine.length - 1].time : '');
    if (listedDetails !== key) {
      listedDetails = key;
      p.changes.replaceChildren(...mine.slice(-12).reverse().map((t) => transitionItem(t, false)));
      if (!mine.length) p.changes.append(make('li', 'dim', 'None yet.'));
    }
  }
  list(p.counts, countPairs(c, r));
  const w = r.waits;
  p['waits-title'].hidden = p['waits-text'].hidden = !c.bulkhead;
  p.histogram.hidden = !w;
  set(p['waits-text'], w ? `${logic.plural(w.count, 'call')} waited: half of them ${logic.bound(w.p50)}, 99 % ${logic.bound(w.p99)}.` : 'Nobody had to wait.');
  if (w) renderHistogram(p.histogram, w);
  p['pool-title'].hidden = p.pool.hidden = !c.pool;
  if (c.pool) list(p.pool, Object.entries(c.pool).map(([k, v]) => [k.replace(/[A-Z]/g, (x) => ' ' + x.toLowerCase()), logic.count(v)]));
  attr(p.anchor, 'href', `${location.pathname}${location.search}#${new URLSearchParams({ c: c.id })}`); // with its path, or axe-core takes it for a skip link
}

function countPairs(c, r) {
  const per = (x) => (r.rates ? ` (${logic.rate(x)}/s)` : '');
  const out = [['granted', logic.count(c.granted) + per(r.rates && r.rates.granted)]];
  const rejected = c.rejected || {};
  for (const k of logic.REASONS) out.push([`rejected: ${logic.REASON_WORDS[k]}`, logic.count(rejected[k] || 0) + per(r.rates && r.rates.reasons[k])]);
  for (const k in rejected) if (!logic.REASONS.includes(k)) out.push([`rejected: ${logic.plain(k)}`, logic.count(rejected[k])]);
  out.push(['left while waiting', logic.count(c.left) + per(r.rates && r.rates.left)]);
  if (c.observed) for (const k in c.observed) out.push([`would have been rejected: ${logic.REASON_WORDS[k] || k}`, logic.count(c.observed[k])]);
  if (c.breaker) out.push(['times that the breaker opened', logic.count(c.trips || 0)]);
  if (c.leaked) out.push(['bodies never closed', logic.count(c.leaked)]);
  out.push(['in flight', logic.count(c.inFlight)]);
  if (c.bulkhead) {
    out.push(['most ever in flight', logic.count(c.bulkhead.peak)]);
    out.push(['longest wait allowed', c.bulkhead.maxWaitMs ? logic.duration(c.bulkhead.maxWaitMs) : 'none']);
  }
  return out;
}

// list fills a dl with pairs, and uses its elements again.
function list(dl, pairs) {
  while (dl.children.length > pairs.length * 2) dl.lastChild.remove();
  while (dl.children.length < pairs.length * 2) dl.append(make('dt'), make('dd'));
  pairs.forEach(([k, v], i) => { set(dl.children[2 * i], k); set(dl.children[2 * i + 1], v); });
}

const MAX_CELLS = 240;

function renderCells(p, c, u) {
  p['cells-title'].hidden = p.cells.hidden = p['cells-text'].hidden = !u.limit;
  if (!u.limit) return;
  set(p['cells-title'], c.pool ? 'Workers' : 'Permits');
  const each = Math.max(1, Math.ceil(Math.max(u.limit, u.taken) / MAX_CELLS));
  const permits = Math.ceil(Math.max(u.limit, u.taken) / each);
  const on = Math.ceil(u.taken / each);
  const places = Math.min(60, Math.ceil(Math.max(u.places, u.queued) / each));
  const waiting = Math.min(places, Math.ceil(u.queued / each));
  const box = p.cells;
  while (box.children.length > permits + places) box.lastChild.remove();
  while (box.children.length < permits + places) box.append(make('i'));
  for (let i = 0; i < box.children.length; i++) {
    const cls = i < permits ? (i < on ? 'on' : '') : i - permits < waiting ? 'waiting' : 'place';
    if (box.children[i].className !== cls) box.children[i].className = cls;
  }
  box.classList.toggle('full', u.taken >= u.limit);
  const scale = each > 1 ? ` Each square is ${each} of them.` : '';
  set(p['cells-text'], `${logic.count(u.taken)} of ${logic.count(u.limit)} in use, ${logic.count(u.queued)} waiting${u.places ? ` (room for ${logic.count(u.places)})` : ''}.${scale}`);
}

function renderHistogram(box, w) {
  const top = Math.max(...w.counts, 1);
  while (box.children.length > w.counts.length) box.lastChild.remove();
  while (box.children.length < w.counts.length) box.append(make('i'));
  w.counts.forEach((n, i) => {
    style(box.children[i], 'height', `${Math.round((100 * n) / top)}%`);
    attr(box.children[i], 'title', `${logic.bound(w.bounds[i])}: ${logic.count(n)}`);
  });
}

// ---- the connection ----

let source = null, again = 0, lastSeen = 0, away = false, over = false, scheduled = false, parseMs = 0;

// serverNow is the server's time: that of the newest sample and what has passed since it came.
function serverNow() {
  return shown.now + (view.paused || !lastSeen ? 0 : Math.min(5000, performance.now() - lastSeen));
}

function connect() {
  if (source) source.close();
  source = new EventSource('events');
  source.addEventListener('snapshot', (e) => receive(e, (d) => d));
  source.addEventListener('delta', (e) => receive(e, (d) => logic.applyDelta(model.doc, d)));
  source.addEventListener('closed', () => {
    over = true;
    source.close();
    showConnection();
  });
  source.onerror = () => {
    away = true;
    // After a refusal the browser does not try again by itself.
    if (source.readyState === EventSource.CLOSED && !over) retry();
    showConnection();
  };
}

function retry() {
  clearTimeout(again);
  again = setTimeout(connect, 3000);
}

function receive(event, toDocument) {
  const began = performance.now();
  const doc = toDocument(JSON.parse(event.data));
  if (!doc) return connect(); // a delta is missing: begin anew
  model.take(doc);
  lastSeen = performance.now();
  parseMs = lastSeen - began;
  away = false;
  showConnection();
  schedule();
}

// schedule draws with the next frame, once, and not at all while the tab is in the background.
function schedule() {
  if (scheduled || view.paused) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (!view.paused) render();
  });
}

function showConnection() {
  const age = lastSeen ? performance.now() - lastSeen : 0;
  const stale = lastSeen && age > 3000 + 2 * ((model.doc && model.doc.intervalMs) || 1000);
  const lost = (away || stale) && !over;
  const c = $('connection');
  let state = 'live', text = 'Live';
  if (over) { state = 'lost'; text = 'The Guard was closed'; }
  else if (lost) { state = 'lost'; text = lastSeen ? `Connection lost, last seen ${logic.duration(Math.max(1000, Math.floor(age / 1000) * 1000))} ago` : 'No connection yet'; }
  else if (view.paused) { state = 'paused'; text = `Paused at ${logic.clock(pausedAt)}`; }
  else if (!lastSeen) { state = 'connecting'; text = 'Connecting'; }
  attr(c, 'data-state', state);
  set($('connection-text'), text);
  document.body.classList.toggle('lost', lost && !!lastSeen);
  notice('lost', lost && !!lastSeen, 'bad', 'The connection is lost: what is below is old. The page tries again by itself.');
}
setInterval(() => { if (!document.hidden) showConnection(); }, 1000);

// A tab that nobody has looked at for minutes need not be served.
let hiddenTimer = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => { if (source) source.close(); source = null; }, 5 * 60_000);
  } else if (!source && !over) connect();
});

// ---- what somebody does ----

let pausedAt = 0;
function pause() {
  view.paused = !view.paused;
  pausedAt = model.now;
  shown = view.paused ? model.still() : model;
  attr($('pause'), 'aria-pressed', view.paused);
  set($('pause'), view.paused ? 'Go on' : 'Pause');
  showConnection();
  if (!view.paused) render();
}

function saveView() {
  const p = new URLSearchParams();
  if (view.selected) p.set('c', view.selected);
  if (view.text) p.set('q', view.text);
  if (view.side) p.set('side', view.side);
  if (view.trouble) p.set('trouble', '1');
  if (view.sort !== 'trouble') p.set('sort', view.sort);
  if (view.reversed) p.set('reversed', '1');
  const hash = p.toString();
  history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search);
}

function readView() {
  const p = new URLSearchParams(location.hash.slice(1));
  view.selected = p.get('c') || '';
  view.text = p.get('q') || '';
  view.side = p.get('side') || '';
  view.trouble = p.get('trouble') === '1';
  view.sort = Object.hasOwn(logic.COLUMNS, p.get('sort') || '') ? p.get('sort') : 'trouble';
  view.reversed = p.get('reversed') === '1';
  showControls();
}

function showControls() {
  $('filter').value = view.text;
  $('side').value = view.side;
  $('only-trouble').checked = view.trouble;
  $('sort').value = view.sort;
  for (const th of document.querySelectorAll('th[data-col]')) {
    const on = th.dataset.col === view.sort;
    const up = (view.sort === 'name') !== view.reversed;
    attr(th, 'aria-sort', on ? (up ? 'ascending' : 'descending') : null);
  }
}

function changed() {
  view.limit = 100;
  saveView();
  showControls();
  render();
}

function sortBy(column) {
  view.reversed = view.sort === column && !view.reversed;
  view.sort = column;
  changed();
}

const skip = document.querySelector('.skip');
skip.addEventListener('click', (e) => {
  e.preventDefault(); // the fragment is the view's
  const to = view.selected ? $('details') : $('compartments');
  to.focus();
  to.scrollIntoView();
});
$('pause').addEventListener('click', pause);
$('filter').addEventListener('input', (e) => { view.text = e.target.value.trim(); view.limit = 100; saveView(); render(); });
$('side').addEventListener('change', (e) => { view.side = e.target.value; changed(); });
$('only-trouble').addEventListener('change', (e) => { view.trouble = e.target.checked; changed(); });
$('sort').addEventListener('change', (e) => { view.sort = e.target.value; view.reversed = false; changed(); });
for (const th of document.querySelectorAll('th[data-col] button')) th.addEventListener('click', () => sortBy(th.parentElement.dataset.col));
$('more').addEventListener('click', () => { view.limit += 100; render(); });
$('show-trouble').addEventListener('click', () => { view.trouble = true; changed(); $('compartments').focus(); $('compartments').scrollIntoView(); });
$('transitions').addEventListener('toggle', () => { listed = null; render(); });
$('rows').addEventListener('click', (e) => {
  const tr = e.target.closest('tr[data-id]');
  if (tr) select(tr.dataset.id, tr.__parts.name);
});
$('table').addEventListener('pointerenter', () => { pointerInTable = true; });
$('table').addEventListener('pointerleave', () => { pointerInTable = false; });
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = e.target.closest('input, select, textarea');
  if (e.key === 'Escape' && view.selected && !typing) return closeDetails();
  if (typing) { if (e.key === 'Escape') e.target.blur(); return; }
  if (e.key === '/') { e.preventDefault(); $('filter').focus(); }
  if (e.key === 'p') pause();
  if ((e.key === 'ArrowDown' || e.key === 'ArrowUp') && e.target.matches('#rows .name')) {
    const tr = e.target.closest('tr');
    const next = e.key === 'ArrowDown' ? tr.nextElementSibling : tr.previousElementSibling;
    if (next) { e.preventDefault(); next.__parts.name.focus(); }
  }
});
window.addEventListener('hashchange', () => { readView(); render(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { forgetColours(); render(); });
window.addEventListener('resize', schedule);
$('host').textContent = location.host;

readView();
connect();
