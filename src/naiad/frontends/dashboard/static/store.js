// What the page knows: the rows of all model versions by number, their last minute, and the server's figures.
//
// Fields of a row: n model, v version, s state, w why it is not ready, k backend, r requests/s, e failures/s,
// p [p50, p99] in ms, q requests in the queue, d mean time in the queue in ms, b mean batch size, u share of the
// instances' time in use, i [idle, busy, down] instances, m bytes of memory.

const HISTORY = 60;

export class Store {
  constructor() {
    this.rows = new Map();
    this.server = {};
    this.hello = { allowed: [], keys: false };
    this.total = { rate: [], failed: [] };
    this.listeners = new Map();
  }

  /** Calls `listener` at each event of a kind: "rows", "set" (rows came or went), "hello", "detail", "log". */
  on(kind, listener) {
    const found = this.listeners.get(kind) ?? new Set();
    found.add(listener);
    this.listeners.set(kind, found);
    return () => found.delete(listener);
  }

  emit(kind, value) {
    for (const listener of [...(this.listeners.get(kind) ?? [])]) listener(value);
  }

  greet(hello) {
    this.hello = { ...hello, allowed: hello.allowed ?? [] };
    this.emit("hello", this.hello);
  }

  may(feature) { return this.hello.allowed.includes(feature); }

  /** Takes every row, and drops what was known before. The last minute of rows that are still there is kept. */
  replace(found) {
    const before = new Map([...this.rows.values()].map((row) => [`${row.n}\n${row.v}`, row.history]));
    this.rows = new Map();
    for (const [id, fields] of Object.entries(found.set)) {
      const history = before.get(`${fields.n}\n${fields.v}`) ?? emptyHistory();
      this.rows.set(id, { id, history, ...fields });
    }
    this.server = { ...this.server, ...found.server };
    this.emit("set");
    this.emit("rows");
  }

  /** Takes what changed in the last second. */
  change(found) {
    let others = found.gone.length > 0;
    for (const id of found.gone) this.rows.delete(String(id));
    for (const [id, fields] of Object.entries(found.set)) {
      const row = this.rows.get(id);
      if (row) {
        others ||= "s" in fields;
        Object.assign(row, fields);
      } else {
        others = true;
        this.rows.set(id, { id, history: emptyHistory(), ...fields });
      }
    }
    this.server = { ...this.server, ...found.server };
    this.note();
    if (others) this.emit("set");
    this.emit("rows");
  }

  note() {
    let rate = 0;
    let failed = 0;
    for (const row of this.rows.values()) {
      rate += row.r ?? 0;
      failed += row.e ?? 0;
      push(row.history.rate, row.r ?? 0);
      push(row.history.p50, row.p ? row.p[0] : null);
      push(row.history.p99, row.p ? row.p[1] : null);
      push(row.history.queue, row.q ?? 0);
    }
    push(this.total.rate, rate);
    push(this.total.failed, failed);
  }

  find(name, version) {
    for (const row of this.rows.values()) if (row.n === name && (!version || row.v === version)) return row;
    return undefined;
  }
}

function emptyHistory() { return { rate: [], p50: [], p99: [], queue: [] }; }

function push(list, value) {
  list.push(value);
  if (list.length > HISTORY) list.shift();
}
