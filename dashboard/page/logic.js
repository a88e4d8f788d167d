// The arithmetic and the wording of the page: no DOM, no clock of its own. Everything that
// depends on time takes the server's, in milliseconds.

export const REASONS = ['full', 'wait_timeout', 'open', 'draining'];
export const REASON_WORDS = { full: 'full', wait_timeout: 'timed out waiting', open: 'breaker open', draining: 'shutting down' };

// KEEP is how many samples are kept of each compartment.
export const KEEP = 120;
const RATE_WINDOW = 5_000;
const WAIT_WINDOW = 60_000;
const WAIT_STEP = 5_000;

// applyDelta returns the document that a delta makes of doc, or null if the delta was made for another one.
export function applyDelta(doc, delta) {
  if (!doc || delta.base !== doc.seq) return null;
  const next = { ...doc };
  for (const [name, value] of Object.entries(delta)) {
    if (name === 'base' || name === 'compartments' || name === 'order' || name === 'transitions' || name === 'forgotten') continue;
    if (value === null) delete next[name];
    else next[name] = value;
  }
  if (delta.compartments || delta.order) {
    const byID = new Map(doc.compartments.map((c) => [c.id, c]));
    for (const c of delta.compartments || []) byID.set(c.id, c);
    const order = delta.order || doc.compartments.map((c) => c.id);
    next.compartments = order.map((id) => byID.get(id));
  }
  if (delta.forgotten || delta.transitions) {
    next.transitions = doc.transitions.slice(delta.forgotten || 0).concat(delta.transitions || []);
  }
  return next;
}

// A Model is the newest document and what the page remembers of those before.
export class Model {
  constructor() {
    this.doc = null;
    this.count = 0; // samples so far
    this.times = new Float64Array(KEEP); // ring: the server's time of each sample
    this.tracks = new Map();
    this.all = null; // Totals
  }

  get now() { return this.count ? this.times[(this.count - 1) % KEEP] : 0; }

  // take makes doc the newest. Another instance counts anew, so nothing of the one before is comparable.
  take(doc) {
    const time = Date.parse(doc.time);
    if (!this.doc || this.doc.instance !== doc.instance || time < this.now) {
      this.tracks.clear();
      this.count = 0;
      this.all = null;
    }
    const before = this.doc;
    this.doc = doc;
    if (this.count && time === this.now) this.count--; // the same sample again, after a reconnect
    const n = this.count++;
    this.times[n % KEEP] = time;
    if (!this.all) this.all = new Totals(n);
    this.all.push(n, doc);
    for (const c of doc.compartments) {
      let t = this.tracks.get(c.id);
      if (!t) this.tracks.set(c.id, t = new Track(n));
      t.push(n, time, c);
    }
    if (!before || before.compartments.length !== doc.compartments.length || this.tracks.size > doc.compartments.length) {
      for (const [id, t] of this.tracks) if (t.last !== n) this.tracks.delete(id);
    }
  }

  // still returns a copy that does not change any more.
  still() {
    const m = Object.assign(new Model(), { doc: this.doc, count: this.count, times: this.times.slice() });
    for (const [id, t] of this.tracks) m.tracks.set(id, t.still());
    if (this.all) m.all = this.all.still();
    return m;
  }

  // span returns how long the samples are ago that are kept of a compartment, at most.
  span(id) {
    const t = this.tracks.get(id);
    if (!t || !this.count) return 0;
    return this.now - this.times[Math.max(t.born, this.count - KEEP) % KEEP];
  }

  // back returns the number of the sample from which a rate up to the newest is taken, or -1.
  back(track, window) {
    const n = this.count - 1;
    let i = n;
    const first = Math.max(track.from, n - KEEP + 1);
    while (i > first && this.now - this.times[(i - 1) % KEEP] <= window) i--;
    if (i === n && i > first) i--;
    return i < n ? i : -1;
  }

  // rates returns what happens in a second, over the latest seconds, or null while there is one sample only.
  rates(id) {
    const t = this.tracks.get(id);
    const i = t ? this.back(t, RATE_WINDOW) : -1;
    if (i < 0) return null;
    const n = this.count - 1;
    const seconds = (this.now - this.times[i % KEEP]) / 1000;
    const per = (ring) => (ring[n % KEEP] - ring[i % KEEP]) / seconds;
    const out = { from: this.times[i % KEEP], granted: per(t.granted), left: per(t.left), observed: per(t.observed), rejected: per(t.refused), reasons: {}, other: 0 };
    out.other = out.rejected;
    REASONS.forEach((r, k) => {
      out.reasons[r] = per(t.rejected[k]);
      out.other -= out.reasons[r];
    });
    if (out.other < 1e-6) out.other = 0;
    return out;
  }

  // flow returns what happens in a second in all compartments together, those included that came and went, or null
  // while there is one sample only.
  flow() {
    const i = this.all ? this.back(this.all, RATE_WINDOW) : -1;
    if (i < 0) return null;
    const n = this.count - 1;
    const seconds = (this.now - this.times[i % KEEP]) / 1000;
    const per = (ring) => (ring[n % KEEP] - ring[i % KEEP]) / seconds;
    return { granted: per(this.all.granted), refused: per(this.all.refused), evicted: per(this.all.evicted) };
  }

  // waits returns P50 and P99 of those who waited in about the last minute: upper ends of buckets, 0 for
  // longer than all of them. null: nobody waited.
  waits(id) {
    const t = this.tracks.get(id);
    return t ? t.percentiles() : null;
  }
}

// Totals are what is remembered of all compartments together. They never fall: what is gone with a policy is not
// taken away again.
class Totals {
  constructor(n) {
    this.from = n; // first sample
    this.granted = new Float64Array(KEEP);
    this.refused = new Float64Array(KEEP);
    this.evicted = new Float64Array(KEEP);
    this.sum = { granted: 0, refused: 0, evicted: 0 };
    this.latest = null;
  }

  push(n, doc) {
    const now = { granted: 0, refused: 0, evicted: 0 };
    for (const c of doc.compartments.concat(doc.dropped || [])) {
      now.granted += c.granted;
      now.refused += total(c.rejected);
      now.evicted += c.evicted || 0;
    }
    for (const name in now) {
      if (this.latest) this.sum[name] += Math.max(0, now[name] - this.latest[name]);
      this[name][n % KEEP] = this.sum[name];
    }
    this.latest = now;
  }

  still() {
    const t = Object.assign(new Totals(0), this);
    for (const ring of ['granted', 'refused', 'evicted']) t[ring] = this[ring].slice();
    return t;
  }
}

// A Track is what is remembered of one compartment: rings by the number of the sample.
class Track {
  constructor(n) {
    this.from = n; // first sample that counts can be compared with
    this.born = n;
    this.last = n;
    this.granted = new Float64Array(KEEP);
    this.left = new Float64Array(KEEP);
    this.observed = new Float64Array(KEEP);
    this.rejected = REASONS.map(() => new Float64Array(KEEP));
    this.refused = new Float64Array(KEEP); // for whatever reason, also one that this page does not know
    this.inFlight = new Float32Array(KEEP);
    this.limit = new Float32Array(KEEP);
    this.queued = new Float32Array(KEEP);
    this.waits = []; // of the last minute: {time, counts}, the oldest first
    this.bounds = [];
    this.fullSince = 0;
    this.counts = null;
  }

  push(n, time, c) {
    const i = n % KEEP;
    const before = (n - 1) % KEEP;
    this.granted[i] = c.granted;
    this.left[i] = c.left;
    this.observed[i] = total(c.observed);
    const rejected = c.rejected || {};
    REASONS.forEach((r, k) => { this.rejected[k][i] = rejected[r] || 0; });
    this.refused[i] = total(rejected);
    this.inFlight[i] = use(c).taken;
    this.limit[i] = use(c).limit;
    this.queued[i] = use(c).queued;
    const counts = (c.waits || []).map((w) => w.count);
    if (n > this.from) {
      const fell = this.granted[i] < this.granted[before] || this.left[i] < this.left[before] ||
        this.refused[i] < this.refused[before] || this.rejected.some((r) => r[i] < r[before]) || (this.counts && this.counts.some((x, k) => (counts[k] || 0) < x));
      if (fell || this.last !== n - 1 && this.last !== n) { // made anew: the counts began at 0
        this.from = n;
        this.waits = [];
      }
    }
    if (c.waits && c.waits.length > this.bounds.length) this.bounds = c.waits.map((w) => w.upToMs);
    this.counts = counts;
    const newest = this.waits[this.waits.length - 1];
    if (!newest || time - newest.time >= WAIT_STEP) this.waits.push({ time, counts });
    while (this.waits.length > 1 && time - this.waits[1].time >= WAIT_WINDOW) this.waits.shift();
    const full = use(c).limit > 0 && use(c).taken >= use(c).limit;
    if (!full) this.fullSince = 0;
    else if (!this.fullSince) this.fullSince = time;
    this.last = n;
  }

  still() {
    const t = Object.assign(new Track(0), this);
    for (const ring of ['granted', 'left', 'observed', 'refused', 'inFlight', 'limit', 'queued']) t[ring] = this[ring].slice();
    t.rejected = this.rejected.map((r) => r.slice());
    t.waits = this.waits.slice();
    return t;
  }

  percentiles() {
    if (!this.waits.length || !this.counts) return null;
    const base = this.waits[0].counts;
    const counts = this.counts.map((x, k) => x - (base[k] || 0));
    const all = counts.reduce((a, b) => a + b, 0);
    if (!all) return null;
    const at = (q) => {
      let below = 0;
      for (let k = 0; k < counts.length; k++) {
        below += counts[k];
        if (below >= q * all) return this.bounds[k];
      }
      return 0;
    };
    return { p50: at(0.5), p99: at(0.99), count: all, counts, bounds: this.bounds };
  }
}

export function total(counts) {
  let n = 0;
  for (const k in counts || {}) n += counts[k];
  return n;
}

// use returns how much of a compartment is taken; limit 0: it has none.
export function use(c) {
  if (c.bulkhead) {
    return { taken: c.bulkhead.inFlight, limit: c.bulkhead.limit, queued: c.bulkhead.queued, places: c.bulkhead.maxQueue, unit: 'permits' };
  }
  if (c.pool) {
    return { taken: c.pool.active, limit: c.pool.max, queued: c.pool.queued + c.pool.waitingForRoom, places: c.pool.backlog, unit: 'workers' };
  }
  return { taken: c.inFlight, limit: 0, queued: 0, places: 0, unit: 'calls' };
}

// ---- words ----

const integers = new Intl.NumberFormat('en-US');

export function count(n) { return integers.format(n); }

export function rate(x) {
  if (x === null || x === undefined) return '–';
  if (x < 0.05) return x > 0 ? '<0.1' : '0';
  if (x < 10) return String(Math.round(x * 10) / 10);
  return integers.format(Math.round(x));
}

export function percent(x) {
  if (x < 0) return '–';
  return `${x < 10 && x % 1 ? x.toFixed(1) : Math.round(x)} %`;
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10 && s % 1 >= 0.05) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} days`;
}

// bound says the upper end of a wait.
export function bound(ms) { return ms ? `≤${duration(ms)}` : '>4 min'; }

export function clock(time) {
  const d = new Date(time);
  const two = (n) => String(n).padStart(2, '0');
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export function plural(n, one, many) { return `${count(n)} ${n === 1 ? one : many || one + 's'}`; }

// plain makes characters visible that could make a name look like another: control characters, and those that
// are not seen or turn the direction of others.
export function plain(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, (x) => `\\u${x.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// isolated is plain for use within a sentence, which a name that is written from the right must not turn around.
function isolated(text) {
  const p = plain(text);
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(p) ? `\u2068${p}\u2069` : p;
}

// nameOf is what a compartment is called: by its key, or its policy if that has one compartment only.
export function nameOf(c) { return plain(c.key || c.policy); }

function keyOf(c) { return isolated(c.key); }
function policyOf(c) { return isolated(c.policy); }

export const STATE_WORDS = { closed: 'closed', open: 'open', half_open: 'half-open', forced_open: 'forced open', disabled: 'disabled' };

// cause says why a breaker changed, with the figures of that moment and what it is judged by, if that is known.
export function cause(t, b) {
  const calls = t.from === 'half_open' ? plural(t.calls, 'probe') : plural(t.calls, 'call');
  const slow = b && b.slowCallMs ? duration(b.slowCallMs) : 'the slow-call limit';
  switch (t.cause) {
    case 'failure_rate': return `${percent(t.failureRate)} of ${calls} failed${b ? `, limit ${percent(b.maxFailureRate)}` : ''}`;
    case 'slow_call_rate': return `${percent(t.slowCallRate)} of ${calls} took longer than ${slow}${b ? `, limit ${percent(b.maxSlowCallRate)}` : ''}`;
    case 'overdue': return `${plural(t.overdue, t.from === 'half_open' ? 'probe' : 'call')} in flight had no answer after ${slow}`;
    case 'forced': return 'it was moved by hand';
    case 'reset': return 'it was reset by hand';
    case 'open_elapsed': return 'its open time was over';
    case 'probes': return `${calls} went well enough`;
    case 'half_open_elapsed': return 'the probes did not decide in time';
    default: return t.cause;
  }
}

// Levels of trouble.
export const OK = 0, NOTE = 1, WARN = 2, BAD = 3, WORST = 4;

// describe says how a compartment is: its level, a word for it, one sentence with the figures, and what to do.
// first is when its breaker left closed, if that is known; doc, what is known of the process.
export function describe(c, rates, now, track, first, doc = {}) {
  const found = [];
  if (c.breaker) describeBreaker(c, rates, now, found, first, doc);
  if (doc.draining) describeDraining(c, rates, found);
  else describeUse(c, rates, now, track, found, doc);
  if (c.leaked > 0) {
    found.push({ level: NOTE, label: 'Leaks', sentence: `${plural(c.leaked, 'response body', 'response bodies')} never closed; the garbage collector gave the permits back.`,
      hint: 'Find the caller that does not close response bodies: the log has a line for the first.' });
  }
  if (c.key === '(overflow)') {
    found.push({ level: c.inFlight > 0 ? WARN : NOTE, label: 'Overflow', sentence: 'Keys that found the table of compartments full share this one.', hint: `Raise maxCompartments of policy ${policyOf(c)}, or see who makes so many keys.` });
    // If it is full, that is what comes of it.
    for (const f of found) f.hint = found[found.length - 1].hint;
  }
  if (!found.length) {
    const u = use(c);
    const idle = !u.taken && (!rates || !rates.granted);
    let sentence = u.limit ? `${count(u.taken)} of ${count(u.limit)} ${u.unit} in use.` : `${plural(u.taken, 'call')} in flight; no limit.`;
    if (c.policy === '(unmatched)') sentence = 'Calls that no route or no policy matches. They are not limited.';
    if (c.policy === '(exempt)') sentence = 'Calls that the program has let through. They are not limited.';
    if (c.breaker && c.breaker.state === 'disabled') sentence += ' Its breaker is held closed by the policy.';
    return { level: OK, label: idle ? 'Idle' : 'OK', sentence, hint: '' };
  }
  found.sort((a, b) => b.level - a.level);
  const [worst, ...rest] = found;
  const more = rest.filter((f) => f.level >= WARN).map((f) => ' ' + f.sentence).join('');
  return { ...worst, sentence: worst.sentence + more };
}

function describeBreaker(c, rates, now, found, first, doc) {
  const b = c.breaker;
  const last = b.last && b.last.to === b.state ? b.last : null;
  const since = last ? ` since ${clock(Date.parse(last.time))}` : '';
  const why = last ? `: ${cause(last, b)}` : '';
  const refused = rates && rates.reasons.open > 0 ? ` Refuses ${rate(rates.reasons.open)}/s.` : '';
  const observes = c.mode === 'observe' ? ' The policy only observes, so nobody is turned away.' : '';
  const level = observes ? NOTE : WORST;
  switch (b.state) {
    case 'open': {
      const again = b.attempt > 1 ? ` It has opened ${b.attempt} times in a row${first ? `, first at ${clock(first)} (${duration(Math.max(1000, now - first))} ago)` : ''}.` : '';
      const next = b.openRemainingMs > 0 ? ` Next probe in ${duration(secondsUp(b.openRemainingMs))}.` : ' The next call will be a probe.';
      found.push({ level, label: 'Open', sentence: `Open${since}${why}.${next}${again}${refused}${observes}`, hint: hintOpen(c, last) });
      return;
    }
    case 'half_open': {
      const tried = b.probes > 0 ? `${Math.max(0, b.probes - b.probesLeft)} of ${b.probes} probes` : 'probes';
      const overdue = b.overdue ? ` ${plural(b.overdue, 'probe')} overdue.` : '';
      found.push({ level: observes ? NOTE : BAD, label: 'Half-open', sentence: `Half-open${since}: ${tried} let in, which decide whether it closes.${overdue}${refused}${observes}`,
        hint: `Wait for the probes. If it opens again, ${whereToLook(c)}` });
      return;
    }
    case 'forced_open':
      found.push({ level, label: 'Forced open', sentence: `Held open by the policies${inForce(doc)}: every call ${observes ? 'would be' : 'is'} refused.${refused}${observes}`, hint: `Take force: open out of policy ${policyOf(c)} when calls shall pass again.` });
      return;
    case 'closed':
      if (b.overdue > 0 && b.slowCallMs) {
        found.push({ level: NOTE, label: 'Slow', sentence: `${plural(b.overdue, 'call')} in flight without an answer for longer than ${duration(b.slowCallMs)}.`, hint: whereToLook(c) });
      }
      if (near(b.failureRate, b.maxFailureRate)) {
        found.push({ level: NOTE, label: 'Failing', sentence: `${percent(b.failureRate)} of ${plural(b.calls, 'call')} fail; the breaker opens at ${percent(b.maxFailureRate)}.`, hint: whereToLook(c) });
      } else if (near(b.slowCallRate, b.maxSlowCallRate)) {
        found.push({ level: NOTE, label: 'Slow', sentence: `${percent(b.slowCallRate)} of ${plural(b.calls, 'call')} take longer than ${duration(b.slowCallMs)}; the breaker opens at ${percent(b.maxSlowCallRate)}.`, hint: whereToLook(c) });
      }
  }
}

// shortened keeps both ends of a name that is longer than room: what tells hosts apart may be the port.
export function shortened(name, room) {
  if (name.length <= room) return name;
  const end = Math.floor((room - 1) / 2);
  return `${name.slice(0, room - 1 - end)}…${name.slice(name.length - end)}`;
}

// secondsUp rounds up, so that a countdown ends at 1 and not before.
export function secondsUp(ms) { return Math.ceil(ms / 1000) * 1000; }

function near(x, limit) { return limit > 0 && x >= 0.7 * limit; }

// inForce says since when the policies are in force.
function inForce(doc) { return doc.policies && doc.policies.since ? ` in force since ${clock(Date.parse(doc.policies.since))}` : ''; }

// reached is what the calls of a client's compartment go to.
function reached(c) { return c.per === 'host' && c.key ? keyOf(c) : 'what these calls reach'; }

function isRoute(c) { return c.per === 'route' && !!c.key; }

function whereToLook(c) {
  return c.side === 'client' ? `look at ${reached(c)}: is it up, is it slow, did it just change?` : `look at what ${isRoute(c) ? 'this route itself waits for or fails' : 'these requests wait for or fail'} on: the logs, and the trace of a call.`;
}

function hintOpen(c, last) {
  const act = last && last.cause === 'forced' ? 'Somebody opened it by hand: ask who, before you close it.' : `The breaker tries again by itself. Meanwhile ${whereToLook(c)}`;
  return act;
}

// pressed says whether anybody suffers from c being full: only then is that trouble. A limit that is just reached is in
// use as it is meant to be, and where it is 1, by every call.
function pressed(c, rates) {
  const u = use(c);
  const r = (rates && rates.reasons) || {};
  return u.queued > 0 || u.taken > u.limit || r.full > 0 || r.wait_timeout > 0 || Boolean(rates && rates.left > 0);
}

function describeUse(c, rates, now, track, found, doc) {
  if (c.mode === 'observe') return describeObserving(c, rates, found);
  const u = use(c);
  const r = rates ? rates.reasons : null;
  const refused = r ? r.full + r.wait_timeout : 0;
  const parts = [];
  if (r && r.full > 0) parts.push([r.full, u.places ? 'found the queue full too' : 'found no permit free']);
  if (r && r.wait_timeout > 0) parts.push([r.wait_timeout, `waited${c.bulkhead && c.bulkhead.maxWaitMs ? ` ${duration(c.bulkhead.maxWaitMs)}` : ''} in vain`]);
  const turned = !parts.length ? '' : parts.length === 1 ? ` Refuses ${rate(refused)}/s, which ${parts[0][1]}.` :
    ` Refuses ${rate(refused)}/s: ${parts.map(([n, how]) => `${rate(n)}/s ${how}`).join(', ')}.`;
  const leave = rates && rates.left > 0 ? ` ${rate(rates.left)}/s left before it was their turn.` : '';
  if (u.limit > 0 && u.taken >= u.limit) {
    const began = pressedSince(c);
    const since = began ? ` ${c.pool ? 'Tasks' : 'Calls'} wait or are refused since ${clock(began)} (${duration(Math.max(1000, now - began))}).` : track && track.fullSince < now ? ` Full since ${clock(track.fullSince)} at least.` : '';
    const over = u.taken > u.limit ? ' The limit is below what is in flight: nobody gets in until enough have left.' : '';
    const queue = u.queued || u.places ? `, ${count(u.queued)} waiting${u.places ? ` (room for ${count(u.places)})` : ''}` : '';
    if (pressed(c, rates)) {
      found.push({ level: refused > 0 ? BAD : WARN, label: 'Full', sentence: `Full: ${count(u.taken)} of ${count(u.limit)} ${u.unit} in use${queue}.${turned}${leave}${since}${over || held(u, rates, now, track)}`, hint: hintFull(c, now, doc) });
    } else {
      found.push({ level: NOTE, label: 'Busy', sentence: `${count(u.taken)} of ${count(u.limit)} ${u.unit} in use; nobody has to wait yet.`, hint: hintFull(c, now, doc) });
    }
  } else if (refused > 0) {
    found.push({ level: BAD, label: 'Refusing', sentence: `${u.limit ? `${count(u.taken)} of ${count(u.limit)} ${u.unit} in use now, but it` : 'It'} was full in the last seconds.${turned}${leave}`, hint: hintFull(c, now, doc) });
  } else if (u.queued > 0) {
    found.push({ level: WARN, label: 'Queueing', sentence: `${count(u.queued)} waiting, ${count(u.taken)} of ${count(u.limit)} ${u.unit} in use.${leave}`, hint: hintFull(c, now, doc) });
  } else if (u.limit > 1 && u.taken >= 0.8 * u.limit) {
    found.push({ level: NOTE, label: 'Busy', sentence: `${count(u.taken)} of ${count(u.limit)} ${u.unit} in use.`, hint: '' });
  }
  if (rates && rates.other > 0) {
    found.push({ level: WARN, label: 'Refusing', sentence: `Refuses ${rate(rates.other)}/s for a reason that this page is too old to know.`, hint: 'Reload the page.' });
  }
}

// describeDraining says who is still inside, which is what a process that shuts down waits for.
function describeDraining(c, rates, found) {
  const inside = c.inFlight + use(c).queued;
  const refuses = rates && rates.reasons.draining > 0 ? `refuses ${rate(rates.reasons.draining)}/s` : '';
  if (inside > 0) {
    found.push({ level: WARN, label: 'Draining', sentence: `Shutting down: ${plural(inside, c.pool ? 'task' : 'call')} still inside${refuses && `, ${refuses}`}.`, hint: 'The process ends when these have, or when its time for that is over.' });
  } else if (refuses) {
    found.push({ level: NOTE, label: 'Draining', sentence: `Shutting down: ${refuses}.`, hint: '' });
  }
}

// held says for how long a permit is held, on average. While all are out, so many are granted as come back.
function held(u, rates, now, track) {
  if (!rates || !track || !(track.fullSince <= rates.from) || now - rates.from < 2000) return '';
  const one = u.unit === 'workers' ? 'A task takes a worker' : 'A permit is held for';
  return rates.granted > 0 ? ` ${one} ${duration((1000 * u.taken) / rates.granted)} on average.` : ` None of the ${u.unit} came free in the last ${duration(now - rates.from)}.`;
}

// describeObserving says what a policy would have done that turns nobody away, and is never trouble.
function describeObserving(c, rates, found) {
  const so = total(c.observed);
  if (!so) return;
  const now = rates && rates.observed > 0 ? `${rate(rates.observed)}/s would be refused now, ` : '';
  found.push({ level: NOTE, label: 'Observing', sentence: `The policy only observes: ${now}${count(so)} would have been refused so far.`, hint: `Before policy ${policyOf(c)} enforces, see whether its limits are too low.` });
}

function pressedSince(c) {
  const at = (c.bulkhead || c.pool || {}).pressedSince;
  return at ? Date.parse(at) : 0;
}

// NEW is for how long policies are new enough to be what has changed.
const NEW = 15 * 60_000;

function hintFull(c, now, doc) {
  if (c.pool) return `Tasks come faster than ${plural(c.pool.max, 'worker does', 'workers do')} them: see what they wait for, or raise max.`;
  const p = doc.policies;
  const reloaded = p && p.reloads > 0 && now - Date.parse(p.since) < NEW ? `Other policies are${inForce(doc)}: see whether they have lowered this limit. ` : '';
  const slow = c.side === 'client' ? `If ${reached(c)} answers slower than usual, the cause is there.` : isRoute(c) ? 'If this route answers slower than usual, see what it waits for.' : 'If these requests take longer than usual, see what they wait for.';
  const more = c.side === 'server' && (c.per === 'header' || c.per === 'host') && c.key ? `more come for ${keyOf(c)} than usual: see who sends them` : 'more calls come than usual: find the caller';
  return `${reloaded}${slow} If not, ${more}, or raise maxConcurrent of policy ${policyOf(c)} if this process has room.`;
}

// summary says in a few words how all are: the compartments, what doc says of the process, and what happens in a second
// (see Model.flow), if that is known. level is the worst.
export function summary(rows, doc = {}, flow = null) {
  let open = 0, half = 0, full = 0, pools = 0, queueing = 0, level = OK;
  for (const r of rows) {
    const state = r.c.breaker && r.c.mode !== 'observe' ? r.c.breaker.state : '';
    if (state === 'open' || state === 'forced_open') open++;
    if (state === 'half_open') half++;
    const u = use(r.c);
    if (r.c.mode === 'observe' || doc.draining) { /* nobody waits or is turned away for want of room */ } else if (u.limit > 0 && u.taken >= u.limit) { if (pressed(r.c, r.rates)) { if (r.c.pool) pools++; else full++; } } else if (u.queued > 0) queueing++;
    level = Math.max(level, r.said.level);
  }
  const state = [];
  if (open) state.push(`${plural(open, 'breaker')} open`);
  if (half) state.push(`${plural(half, 'breaker')} half-open`);
  if (full) state.push(`${plural(full, 'bulkhead')} full`);
  if (pools) state.push(`${plural(pools, 'pool')} full`);
  if (queueing) state.push(`${plural(queueing, 'compartment')} queueing`);
  let troubled = rows.filter((r) => r.said.level >= WARN).length;
  const process = [];
  if (doc.closed) process.push('Guard closed');
  else if (doc.draining) process.push('shutting down');
  if (doc.policies && doc.policies.error) process.push('new policies not in force');
  if (process.length) level = Math.max(level, doc.closed || doc.policies && doc.policies.error ? BAD : WARN);
  if (!state.length && troubled) state.push(`${plural(troubled, 'compartment')} in trouble`);
  state.push(...process);
  troubled += process.length;
  const steady = state.length ? capital(state.join(', ')) : rows.length ? 'All is well' : 'Nothing has called yet';
  const refused = flow && flow.refused >= 0.05 ? `${rate(flow.refused)}/s refused` : '';
  const all = [plural(rows.length, 'compartment')];
  if (flow) all.unshift(`${rate(flow.granted)}/s granted`, refused || 'none refused');
  if (flow && flow.evicted >= 1) all.push(`${rate(flow.evicted)}/s of them dropped at rest`);
  return { level, troubled, steady, flow: all.join(', '), text: refused ? `${steady}, ${refused}` : steady };
}

function capital(text) { return text[0].toUpperCase() + text.slice(1); }

// ---- order and choice ----

const number = (f) => (a, b) => f(b) - f(a);
const orMinus = (x) => (x === null || x === undefined ? -1 : x);

// COLUMNS has what each column is sorted by: the most first, names from A.
export const COLUMNS = {
  trouble: number((r) => r.said.level),
  name: (a, b) => compare(nameOf(a.c), nameOf(b.c)) || compare(a.c.policy, b.c.policy) || compare(a.c.side, b.c.side),
  use: number((r) => { const u = use(r.c); return u.limit ? (u.taken + u.queued) / u.limit : -1; }),
  granted: number((r) => orMinus(r.rates && r.rates.granted)),
  rejected: number((r) => orMinus(r.rates && r.rates.rejected)),
  wait: number((r) => (r.waits ? r.waits.p99 || Infinity : -1)),
  breaker: number((r) => { const b = r.c.breaker; return b ? (BREAKER_RANK[b.state] || 0) * 1000 + Math.max(b.failureRate, b.slowCallRate, 0) : -1; }),
  inflight: number((r) => use(r.c).taken),
};
const BREAKER_RANK = { open: 4, forced_open: 3, half_open: 2, closed: 1 };

function compare(a, b) { return a < b ? -1 : a > b ? 1 : 0; }

// sorted returns rows by column, the natural way or the other way round. Equal ones stay in the order of the policies.
export function sorted(rows, column, reversed) {
  const by = COLUMNS[column] || COLUMNS.trouble;
  const out = rows.slice();
  out.sort((a, b) => { const d = by(a, b); return (reversed ? -d : d) || a.at - b.at; });
  return out;
}

// chosen reports whether a row is what somebody looks for: each word of text is somewhere in it.
export function chosen(row, { text, side, trouble }) {
  if (side && row.c.side !== side) return false;
  if (trouble && row.said.level < WARN) return false;
  if (!text) return true;
  const b = row.c.breaker;
  const all = `${row.c.policy} ${row.c.side} ${row.c.per} ${row.c.key} ${row.said.label} ${b ? STATE_WORDS[b.state] || b.state : ''} ${row.c.mode || ''}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

// leftClosed says of each breaker that is not closed when it left that state, as far as the transitions reach back.
export function leftClosed(transitions) {
  const out = new Map();
  for (const t of transitions) {
    const id = breakerID(t);
    if (t.from === 'closed') out.set(id, Date.parse(t.time));
    else if (t.to === 'closed') out.delete(id);
  }
  return out;
}

export function breakerID(c) { return JSON.stringify([c.side, c.policy, c.key]); }

// spans makes of the transitions of one breaker after another when each was open or half-open, the latest last.
export function spans(transitions, now) {
  const lanes = new Map();
  for (const t of transitions) {
    const id = breakerID(t);
    let lane = lanes.get(id);
    if (!lane) lanes.set(id, lane = { policy: t.policy, side: t.side, key: t.key, spans: [], latest: 0 });
    const time = Date.parse(t.time);
    const last = lane.spans[lane.spans.length - 1];
    if (last && last.to === null) last.to = time;
    if (t.to === 'open' || t.to === 'half_open' || t.to === 'forced_open') lane.spans.push({ state: t.to, from: time, to: null, transition: t });
    lane.latest = time;
  }
  const out = [...lanes.values()];
  for (const lane of out) {
    const last = lane.spans[lane.spans.length - 1];
    lane.open = !!last && last.to === null;
    if (lane.open) last.to = now;
  }
  return out.sort((a, b) => (b.open - a.open) || (b.latest - a.latest));
}
