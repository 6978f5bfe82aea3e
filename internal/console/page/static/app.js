// @ts-check
// The console's script. It replaces the parts of a page that have changed, keeps ages up to date, and shows logs. Users
// can read the pages without it.
'use strict';

document.documentElement.classList.add('js');

/** The units of durations in seconds, largest first. @type {[number, string][]} */
const units = [[365 * 86400, 'y'], [86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];

/** age returns a duration in its two largest units, as view.Age on the server does.
 * @param {number} seconds @returns {string} */
function age(seconds) {
  const s = Math.max(0, Math.floor(seconds)), i = units.findIndex(([of]) => s >= of);
  if (i < 0) return '0s';
  const [of, unit] = units[i], [small, second] = units[i + 1] || [1, ''], rest = Math.floor(s % of / small);
  return `${Math.floor(s / of)}${unit}` + (rest ? rest + second : '');
}

/** tick updates the ages within an element. @param {ParentNode} root */
function tick(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const text = age((Date.now() - Date.parse(t.getAttribute('datetime') || '')) / 1000);
    if (t.textContent !== text) t.textContent = text;
  }
}
tick(document);
setInterval(() => tick(document), 1000);

/** replace replaces the element with an ID by HTML. It keeps the user's selection and focus, and does nothing while a
 * popover in the element is open. If quiet is false, it highlights a row of a table.
 * @param {string} id @param {string} html @param {boolean} quiet */
function replace(id, html, quiet) {
  const old = document.getElementById(id);
  if (!old || old.querySelector(':popover-open')) return;
  const holder = document.createElement('template');
  holder.innerHTML = html;
  const fresh = /** @type {HTMLElement | null} */ (holder.content.firstElementChild);
  if (!fresh) return;
  tick(fresh);
  if (fresh.outerHTML === old.outerHTML) return;
  const focused = document.activeElement && old.contains(document.activeElement) ? document.activeElement.id : '';
  for (const box of old.querySelectorAll('input:checked')) {
    const same = /** @type {HTMLInputElement | null} */ (box.id && fresh.querySelector('#' + CSS.escape(box.id)));
    if (same) same.checked = true;
  }
  old.replaceWith(fresh);
  if (fresh.tagName === 'TR' && !quiet) fresh.classList.add('fresh');
  if (focused) document.getElementById(focused)?.focus({preventScroll: true});
}

/** pick makes one checkbox select all jobs of the page. The checkbox shows whether some or all jobs are selected. */
function pick() {
  const all = /** @type {HTMLInputElement | null} */ (document.getElementById('pick-all'));
  const boxes = () => /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll('#rows input[name=job]')]);
  const show = () => {
    if (!all) return;
    const chosen = boxes().filter(b => b.checked).length;
    all.checked = chosen > 0 && chosen === boxes().length;
    all.indeterminate = chosen > 0 && !all.checked;
  };
  all?.addEventListener('change', () => { for (const b of boxes()) b.checked = all.checked; });
  document.querySelector('.bulk')?.addEventListener('change', show);
  for (const event of ['pageshow', 'patched']) addEventListener(event, show);
}
pick();

// A form that opens another tab does not reload this page, so its popover is closed: an open popover stops updates.
document.addEventListener('submit', e => {
  const form = /** @type {HTMLFormElement} */ (e.target);
  if (form.target === '_blank') /** @type {HTMLElement | null} */ (form.closest('[popover]'))?.hidePopover();
});

/** live keeps a page up to date while it is visible. The stream of changes has the same address as the page. */
function live() {
  const light = /** @type {HTMLElement} */ (document.getElementById('link'));
  /** @type {EventSource | null} */
  let source = null;
  // The browser drops a click if its element is replaced between press and release, so patches wait for the release.
  let pressed = false;
  /** @type {(() => void)[]} */
  const waiting = [];
  const released = () => setTimeout(() => {
    pressed = false;
    for (const patch of waiting.splice(0)) patch();
  });
  addEventListener('pointerdown', e => { pressed = e.button === 0; });
  // A menu can prevent the release event. Only a blur of the window arrives here, because blur events do not bubble.
  for (const event of ['pointerup', 'pointercancel', 'contextmenu', 'blur']) addEventListener(event, released);
  const open = () => {
    if (source) return;
    let first = true;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener('patch', e => {
      light.className = 'link on';
      light.textContent = 'live';
      const quiet = first, patch = () => {
        for (const [id, html] of JSON.parse(e.data)) replace(id, html, quiet);
        dispatchEvent(new Event('patched'));
      };
      first = false;
      if (pressed) waiting.push(patch);
      else patch();
    });
    source.onerror = () => {
      light.className = 'link off';
      light.textContent = 'not connected';
      if (source?.readyState === EventSource.CLOSED) refused();
    };
  };
  // The browser does not reconnect after an error status. Loading the page signs the user in again.
  const refused = async () => {
    close();
    const answer = await fetch(location.href, {method: 'HEAD'}).catch(() => null);
    if (answer?.status === 401) location.reload();
    else setTimeout(() => { if (!document.hidden) open(); }, 5000);
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
  addEventListener('pagehide', close);
  addEventListener('pageshow', open);
  open();
}
if (document.body.dataset.live === 'true') live();

/** A line of a log: its replica if the page shows several, its colour, its text, its time in milliseconds since 1970,
 * and whether it reports an error.
 * @typedef {{r?: string, c?: number, t: string, a?: number, e?: boolean}} Line */

const lineHeight = 20, perChunk = 200;

/** Limits of a log. Above them, the oldest lines are removed, because a log that stays open for days must not fill the
 * memory of the browser. */
const mostLines = 200_000, mostCharacters = 50_000_000;

/** Log shows the lines of a log in chunks of perChunk lines. Only chunks near the visible part have elements. */
class Log {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    this.follow = true;
    this.times = box.classList.contains('times');
    /** wanted is the text to search for, in lower case. hits holds the numbers of the lines that contain it. Numbers of
     * lines count from 0 and include removed lines. */
    this.wanted = '';
    /** @type {number[]} */
    this.hits = [];
    this.observer = new IntersectionObserver(all => {
      for (const i of all) this.show(/** @type {HTMLElement} */ (i.target), i.isIntersecting);
    }, {root: box, rootMargin: '1200px 0px'});
    this.clear();
  }

  /** clear removes all lines. */
  clear() {
    this.observer.disconnect();
    this.box.replaceChildren();
    /** @type {Line[]} */
    this.lines = [];
    this.characters = 0;
    /** The number of lines that have been removed, which is the number of the first line in lines. */
    this.removed = 0;
    /** @type {HTMLElement[]} */
    this.chunks = [];
    /** @type {Set<HTMLElement>} */
    this.filled = new Set();
    /** The length of the longest name of a replica, in characters. */
    this.widest = 0;
    /** The number of the line that the user has jumped to; -1 for none. */
    this.at = -1;
    this.hits = [];
  }

  /** add appends lines. @param {Line[]} lines */
  add(lines) {
    for (const l of lines) {
      this.note(l, this.removed + this.lines.length);
      this.lines.push(l);
      this.characters += l.t.length;
      if (l.r && l.r.length > this.widest) this.box.style.setProperty('--who', `${this.widest = l.r.length}ch`);
    }
    const need = Math.ceil(this.lines.length / perChunk);
    const last = this.chunks[this.chunks.length - 1];
    while (this.chunks.length < need) {
      const chunk = document.createElement('div');
      chunk.className = 'k';
      chunk.dataset.first = String(this.removed + this.chunks.length * perChunk);
      this.chunks.push(chunk);
      this.size(chunk);
      this.box.append(chunk);
      this.observer.observe(chunk);
    }
    if (last) {
      this.size(last);
      if (this.filled.has(last)) this.fill(last);
    }
    this.trim();
    if (this.follow) this.box.scrollTop = this.box.scrollHeight;
  }

  /** trim removes the oldest chunks while the log exceeds its limits. The visible lines keep their position. */
  trim() {
    let gone = 0;
    while (this.lines.length - gone > mostLines || this.characters > mostCharacters && this.chunks.length > 1) {
      for (let i = gone; i < gone + perChunk; i++) this.characters -= this.lines[i].t.length;
      const chunk = /** @type {HTMLElement} */ (this.chunks.shift());
      this.observer.unobserve(chunk);
      this.filled.delete(chunk);
      chunk.remove();
      gone += perChunk;
    }
    if (!gone) return;
    this.lines.splice(0, gone);
    this.removed += gone;
    if (this.at < this.removed) this.at = -1;
    this.hits.splice(0, this.hits.findLastIndex(n => n < this.removed) + 1);
    this.box.scrollTop -= gone * lineHeight;
  }

  /** first returns the index in lines of the first line of a chunk. @param {HTMLElement} chunk @returns {number} */
  first(chunk) { return Number(chunk.dataset.first) - this.removed; }

  /** of returns the lines of a chunk. @param {HTMLElement} chunk @returns {Line[]} */
  of(chunk) { return this.lines.slice(this.first(chunk), this.first(chunk) + perChunk); }

  /** size sets the height of a chunk. @param {HTMLElement} chunk */
  size(chunk) { chunk.style.height = this.of(chunk).length * lineHeight + 'px'; }

  /** show creates the elements of a chunk if it is near the visible part, and removes them otherwise.
   * @param {HTMLElement} chunk @param {boolean} near */
  show(chunk, near) {
    if (!near) {
      chunk.replaceChildren();
      this.filled.delete(chunk);
    } else if (!this.filled.has(chunk)) {
      this.filled.add(chunk);
      this.fill(chunk);
    }
  }

  /** fill creates the elements of a chunk. @param {HTMLElement} chunk */
  fill(chunk) {
    const first = Number(chunk.dataset.first);
    chunk.replaceChildren(...this.of(chunk).map((l, i) => {
      const row = document.createElement('div');
      row.className = 'l' + (l.e ? ' e' : '') + (first + i === this.at ? ' hit' : '');
      /** @param {string} tag @param {string} text @param {string} [kind] */
      const part = (tag, text, kind) => {
        const e = document.createElement(tag);
        e.textContent = text;
        if (kind) e.className = kind;
        row.append(e);
      };
      if (this.times) part('i', l.a ? new Date(l.a).toISOString().slice(0, -1).replace('T', ' ') : '');
      if (l.r) part('b', l.r, 'o' + (l.c ?? 0));
      part('span', l.t);
      return row;
    }));
  }

  /** refill creates the elements of all chunks near the visible part again. */
  refill() { for (const chunk of this.filled) this.fill(chunk); }

  /** scroll scrolls to a position immediately. A key scrolls over several frames, and Chromium adds the rest of this
   * movement to a position that is set in the meantime, unless the box had no layout in between.
   * @param {number} top */
  scroll(top) {
    this.box.style.display = 'none';
    void this.box.offsetHeight;
    this.box.style.display = '';
    this.box.scrollTop = top;
  }

  /** go scrolls line n to the middle. @param {number} n */
  go(n) {
    this.at = n;
    this.follow = false;
    this.refill();
    this.scroll((n - this.removed) * lineHeight - this.box.clientHeight / 2);
  }

  /** note adds line n to the hits if it contains the wanted text. @param {Line} l @param {number} n */
  note(l, n) { if (this.wanted && l.t.toLowerCase().includes(this.wanted)) this.hits.push(n); }

  /** search finds the lines that contain a text, which must be in lower case. Later lines are searched as they arrive.
   * @param {string} text */
  search(text) {
    if (text === this.wanted) return;
    this.wanted = text;
    this.hits = [];
    this.lines.forEach((l, i) => this.note(l, this.removed + i));
  }

  /** step goes to the next hit after the current line, or to the previous one. After the last hit comes the first.
   * @param {boolean} back */
  step(back) {
    if (!this.hits.length) return;
    const last = this.hits.length - 1;
    let i = back ? this.hits.findLastIndex(n => n < this.at) : this.hits.findIndex(n => n > this.at);
    if (i < 0) i = back ? last : 0;
    this.go(this.hits[i]);
  }

  /** place returns the position of a line for the address of the page: its time, and the number of earlier lines with
   * the same time. Unlike the number of the line, it remains valid after a reload. It is empty if the time is unknown.
   * @param {number} n @returns {string} */
  place(n) {
    const i = n - this.removed, at = this.lines[i]?.a;
    if (!at) return '';
    const before = this.lines.slice(0, i).filter(l => l.a === at).length;
    return at + (before ? '.' + before : '');
  }

  /** error goes to the first line that reports an error, and returns whether there is one. @returns {boolean} */
  error() {
    const i = this.lines.findIndex(l => l.e);
    if (i >= 0) this.go(this.removed + i);
    return i >= 0;
  }
}

/** Sought looks for the line at a place of an address, until the line arrives or the user scrolls elsewhere. */
class Sought {
  /** @param {string} place */
  constructor(place) { [this.time, this.before = 0] = place.split('.').map(Number); this.seen = 0; }

  /** end ends the search. */
  end() { this.time = 0; }

  /** among returns the number of the line if it is among the lines that have arrived since the last call; -1 otherwise.
   * @param {Log} log @returns {number} */
  among(log) {
    const end = log.removed + log.lines.length;
    for (this.seen = Math.max(this.seen, log.removed); this.time && this.seen < end; this.seen++) {
      if (log.lines[this.seen - log.removed].a === this.time && this.before-- <= 0) return this.seen;
    }
    return -1;
  }
}

/** number returns a number as text with thousands separators. @param {number} n */
const number = n => n.toLocaleString('en');

/** stream adds the lines of a stream to a log, and passes the state of the stream to tell. If the connection is lost,
 * stream reconnects and continues after the last line.
 * @param {string} address @param {Log} log @param {(what: string) => void} tell */
function stream(address, log, tell) {
  const firstWait = 500, longestWait = 15_000;
  const note = document.getElementById('lognote');
  let after = '', wait = firstWait;
  const open = () => {
    const source = new EventSource(address + (after ? '&after=' + encodeURIComponent(after) : ''));
    let fresh = !after;
    source.addEventListener('lines', e => {
      if (fresh) log.clear();
      fresh = false;
      wait = firstWait;
      after = e.lastEventId;
      log.add(JSON.parse(e.data));
      tell(', live');
    });
    source.addEventListener('note', e => { if (note) note.hidden = !(note.textContent = JSON.parse(e.data)); });
    source.addEventListener('end', e => { source.close(); tell(e.data ? '; ' + e.data : ''); });
    source.onopen = () => tell(', live');
    source.onerror = async () => {
      source.close();
      tell('; the connection is lost, trying again');
      const answer = await fetch(address, {method: 'HEAD'}).catch(() => null);
      if (answer?.status === 401) { location.reload(); return; } // loading the page signs the user in again
      if (answer?.status === 404) { tell('; the job is gone'); return; }
      if (answer?.status === 403) tell('; you may no longer read these logs');
      setTimeout(open, wait);
      wait = Math.min(2 * wait, longestWait);
    };
  };
  open();
}

/** logs sets up the page of a log: its stream, its search and its keys. */
function logs() {
  const box = document.getElementById('log');
  if (!box || !box.dataset.stream) return;
  /** @param {string} id */
  const input = id => /** @type {HTMLInputElement} */ (document.getElementById(id));
  const state = /** @type {HTMLElement} */ (document.getElementById('logstate')), hits = /** @type {HTMLElement} */ (document.getElementById('hits'));
  const follow = input('follow'), find = input('find'), times = input('times');
  const log = new Log(box);
  const count = () => {
    const at = log.hits.indexOf(log.at);
    hits.textContent = !log.wanted ? '' : !log.hits.length ? 'no line' : `${at < 0 ? '' : number(at + 1) + ' of '}${number(log.hits.length)}`;
  };
  const asked = new URL(location.href).searchParams;
  find.value = asked.get('find') ?? '';
  log.search(find.value.toLowerCase());
  const sought = new Sought(asked.get('line') ?? '');
  /** remember stores the state of the page in its address, so that a reload restores it. */
  const remember = () => {
    const address = new URL(location.href);
    const line = log.follow || log.at < 0 ? '' : log.place(log.at);
    for (const [name, value] of Object.entries({times: times.checked ? '1' : '', find: find.value, line})) {
      if (value) address.searchParams.set(name, value);
      else address.searchParams.delete(name);
    }
    history.replaceState(null, '', address);
  };
  stream(box.dataset.stream, log, what => {
    const found = sought.among(log);
    if (found >= 0) { log.go(found); rest(); }
    const all = log.removed + log.lines.length;
    state.textContent = `${all ? number(all) : 'No'} line${all === 1 ? '' : 's'}${log.removed ? `, the last ${number(log.lines.length)} here` : ''}${what}`;
    count();
  });
  follow.onchange = () => {
    log.follow = follow.checked;
    if (log.follow) log.scroll(box.scrollHeight);
    remember();
  };
  const rest = () => { log.follow = follow.checked = false; sought.end(); };
  box.addEventListener('wheel', e => { if (e.deltaY < 0) rest(); }, {passive: true});
  // Following stops when the user leaves the end with the keys or the scroll bar.
  box.addEventListener('scroll', () => { if (box.scrollHeight - box.scrollTop - box.clientHeight > 2 * lineHeight) rest(); }, {passive: true});
  times.onchange = () => {
    log.times = times.checked;
    box.classList.toggle('times', times.checked);
    log.refill();
    remember();
  };
  const search = (/** @type {boolean} */ back) => {
    log.search(find.value.toLowerCase());
    if (log.hits.length) rest();
    log.step(back);
    count();
    remember();
  };
  find.form?.addEventListener('submit', e => {
    find.name = find.value ? 'find' : ''; // the browser does not submit an input without a name
    if (document.activeElement !== find) return;
    e.preventDefault();
    search(false);
  });
  find.addEventListener('keydown', e => {
    if (e.key !== 'Enter' || !e.shiftKey) return;
    e.preventDefault();
    search(true);
  });
  input('next').onclick = () => search(false);
  input('previous').onclick = () => search(true);
  input('error').onclick = () => {
    if (!log.error()) { hits.textContent = 'no error'; return; }
    rest();
    count();
    remember();
  };
  addEventListener('keydown', e => {
    const typing = e.target instanceof HTMLInputElement && e.target.type !== 'checkbox' || e.target instanceof HTMLSelectElement;
    if (typing || e.ctrlKey || e.metaKey || e.altKey || !['/', 'n', 'N'].includes(e.key)) return;
    e.preventDefault();
    if (e.key !== '/') { search(e.key === 'N'); return; }
    find.focus();
    find.select();
  });
}
logs();

/** submit checks the manifest while the user types, and reads files that the user opens or drops. */
function submit() {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById('submit'));
  if (!form) return;
  const text = /** @type {HTMLTextAreaElement} */ (document.getElementById('submit-text'));
  const namespace = /** @type {HTMLInputElement} */ (document.getElementById('submit-ns'));
  const file = /** @type {HTMLInputElement} */ (document.getElementById('submit-file'));
  const state = /** @type {HTMLElement} */ (document.getElementById('submit-state'));
  const wait = 500, most = 128 * 1024;
  let timer = 0, running = new AbortController();
  const check = async () => {
    running = new AbortController();
    state.textContent = 'Checking…';
    try {
      const body = new URLSearchParams({manifest: text.value, ns: namespace.value, step: 'check'});
      const answer = await fetch('/submit', {method: 'POST', body, headers: {Accept: 'application/json'}, signal: running.signal});
      if (!answer.ok) throw new Error(String(answer.status));
      for (const [id, html] of await answer.json()) replace(id, html, true);
      state.textContent = '';
    } catch (e) {
      if (/** @type {Error} */ (e).message === '401') { state.textContent = 'You are no longer signed in. Sign in again in another tab, then check again.'; return; }
      if (/** @type {Error} */ (e).name !== 'AbortError') state.textContent = 'The console does not answer. Check again.';
    }
  };
  const changed = () => {
    clearTimeout(timer);
    running.abort();
    // The result of the last check does not apply to the changed text.
    document.getElementById('ask-run')?.setAttribute('disabled', '');
    text.rows = Math.max(22, text.value.split('\n').length + 1);
    timer = setTimeout(check, wait);
  };
  /** @param {File | undefined} f */
  const take = async f => {
    if (!f) return;
    if (f.size > most) { state.textContent = `${f.name} is larger than ${most / 1024} KiB.`; return; }
    text.value = await f.text();
    changed();
  };
  text.addEventListener('input', changed);
  namespace.addEventListener('input', changed);
  file.onchange = () => { take(file.files?.[0]); file.value = ''; };
  form.addEventListener('dragover', e => { e.preventDefault(); text.classList.add('drop'); });
  form.addEventListener('dragleave', () => text.classList.remove('drop'));
  form.addEventListener('drop', e => {
    text.classList.remove('drop');
    if (!e.dataTransfer?.files.length) return;
    e.preventDefault();
    take(e.dataTransfer.files[0]);
  });
  form.addEventListener('click', e => {
    const line = Number(/** @type {HTMLElement} */ (e.target).dataset.line);
    if (!line) return;
    e.preventDefault();
    const lines = text.value.split('\n'), from = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
    text.focus({preventScroll: true});
    text.setSelectionRange(from, from + (lines[line - 1] || '').length);
    text.scrollIntoView({block: 'nearest'});
    scrollTo({top: text.getBoundingClientRect().top + scrollY + (line - 1) * lineHeight - innerHeight / 3});
  });
}
submit();
