// The table of models. Only the rows in sight exist as elements, so that thousands of models scroll.

import { sparkline } from "./charts.js";
import { h, setText } from "./dom.js";
import { bytes, duration, number } from "./format.js";

const ROW = 36;
const MARGIN = 6;
const COLUMNS = [
  { id: "state", title: "State", sort: (row) => ORDER[stateOf(row)] ?? 9 },
  { id: "name", title: "Model", sort: (row) => row.n },
  { id: "version", title: "Version", sort: (row) => Number(row.v) },
  { id: "rate", title: "Requests/s", sort: (row) => -(row.r ?? -1) },
  { id: "p50", title: "p50", sort: (row) => -(row.p?.[0] ?? -1) },
  { id: "p99", title: "p99", sort: (row) => -(row.p?.[1] ?? -1) },
  { id: "queue", title: "Queue", sort: (row) => -(row.q ?? -1) },
  { id: "batch", title: "Batch", sort: (row) => -(row.b ?? -1) },
  { id: "instances", title: "Instances", sort: (row) => -(row.u ?? -1) },
  { id: "memory", title: "Memory", sort: (row) => -(row.m ?? -1) },
];
const ORDER = { failed: 0, problem: 0, loading: 1, unloading: 2, ready: 3, unloaded: 4 };

/** The state of a row as the page names it: ready, problem, loading, unloading, failed, unloaded. */
export function stateOf(row) {
  if (row.s === "READY") return row.w ? "problem" : "ready";
  if (row.s === "LOADING") return "loading";
  if (row.s === "UNLOADING") return "unloading";
  return row.s === "UNAVAILABLE" && row.w && row.w !== "unloaded" ? "failed" : "unloaded";
}

export class ModelTable {
  constructor(store, onopen) {
    this.store = store;
    this.onopen = onopen;
    this.filter = "";
    this.sort = COLUMNS[1];
    this.shown = [];
    this.current = "";
    this.chosen = "";
    this.pool = new Map();
    this.search = h("input", { type: "search", placeholder: "Filter models", "aria-label": "Filter models", oninput: () => this.rebuild(true) });
    this.states = h("select", { "aria-label": "State", onchange: () => this.rebuild(true) }, ["all states", "ready", "not ready"].map((text) => h("option", { value: text }, text)));
    this.summary = h("span", { class: "muted", role: "status" });
    this.headers = COLUMNS.map((column) => this.header(column));
    this.canvas = h("div", { class: "rows", role: "rowgroup" });
    this.empty = h("p", { class: "empty" });
    this.grid = h("div", { class: "table", role: "grid", tabIndex: 0, "aria-label": "Models", onscroll: () => this.draw(), onkeydown: (event) => this.key(event) },
      h("div", { class: "head", role: "rowgroup" }, h("div", { role: "row", class: "cells" }, this.headers)), this.canvas);
    this.node = h("section", { class: "list", "aria-label": "Models" }, h("div", { class: "bar-of" }, this.search, this.states, this.summary), this.grid, this.empty);
    this.ends = [store.on("set", () => this.rebuild()), store.on("rows", () => this.update())];
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.grid);
    this.rebuild();
  }

  close() {
    this.ends.forEach((end) => end());
    this.resized.disconnect();
  }

  header(column) {
    const button = h("button", { type: "button", class: "sort", tabIndex: -1, onclick: () => { this.sort = column; this.rebuild(true); } }, column.title);
    return h("div", { role: "columnheader", class: `cell ${column.id}` }, button);
  }

  /** Chooses which rows are shown, in which order. */
  rebuild(fromTop = false) {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.states.value;
    this.shown = [...this.store.rows.values()].filter((row) => {
      const text = `${row.n} ${row.k ?? ""}`.toLowerCase();
      const isReady = stateOf(row) === "ready";
      return words.every((word) => text.includes(word)) && (wanted === "all states" || (wanted === "ready") === isReady);
    });
    this.order();
    if (fromTop) this.grid.scrollTop = 0;
    this.headers.forEach((header, at) => {
      if (COLUMNS[at] === this.sort) header.setAttribute("aria-sort", "ascending");
      else header.removeAttribute("aria-sort");
    });
    const all = this.store.rows.size;
    setText(this.summary, this.shown.length === all ? "" : `${this.shown.length} of ${all}`);
    this.grid.setAttribute("aria-rowcount", String(this.shown.length + 1));
    this.empty.hidden = this.shown.length > 0;
    setText(this.empty, all ? "No model fits the filter." : "The repositories have no model.");
    this.draw();
  }

  order() {
    const { sort } = this.sort;
    const compare = (a, b) => {
      const [one, other] = [sort(a), sort(b)];
      if (one < other) return -1;
      if (one > other) return 1;
      return a.n < b.n ? -1 : a.n > b.n ? 1 : Number(a.v) - Number(b.v);
    };
    this.shown.sort(compare);
  }

  update() {
    // Rows that jump each second cannot be clicked: figures are sorted anew only while nobody points at them.
    if (this.sort.id !== "name" && !this.grid.matches(":hover") && document.activeElement !== this.grid) this.order();
    this.draw();
  }

  draw() {
    this.canvas.style.height = `${this.shown.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / ROW) - MARGIN);
    const last = Math.min(this.shown.length, Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / ROW) + MARGIN);
    const used = new Set();
    for (let at = first; at < last; at += 1) {
      const row = this.shown[at];
      used.add(row.id);
      let line = this.pool.get(row.id);
      if (!line) {
        line = new Line(row, () => { this.current = row.id; this.open(row); });
        this.pool.set(row.id, line);
        this.canvas.append(line.node);
      }
      line.node.style.transform = `translateY(${at * ROW}px)`;
      line.draw(row, at, row.id === this.current, row.id === this.chosen);
    }
    for (const [id, line] of this.pool) if (!used.has(id)) { line.node.remove(); this.pool.delete(id); }
    if (used.has(this.current)) this.grid.setAttribute("aria-activedescendant", `row-${this.current}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  choose(id) {
    this.chosen = id;
    this.draw();
  }

  open(row) {
    this.onopen(row);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.grid.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    const at = this.shown.findIndex((row) => row.id === this.current);
    if (event.key === "Enter" && at >= 0) { this.open(this.shown[at]); event.preventDefault(); return; }
    if (!(event.key in steps) || !this.shown.length) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.shown.length - 1, (at < 0 && steps[event.key] === 1 ? -1 : at) + steps[event.key]));
    this.current = this.shown[next].id;
    const top = next * ROW;
    const room = this.grid.clientHeight - ROW;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + ROW > this.grid.scrollTop + room) this.grid.scrollTop = top + ROW - room;
    this.draw();
  }
}

class Line {
  constructor(row, onclick) {
    this.spark = sparkline();
    this.cells = Object.fromEntries(COLUMNS.map((column) => [column.id, h("div", { role: "gridcell", class: `cell ${column.id}` })]));
    this.dot = h("i", { class: "dot", "aria-hidden": "true" });
    this.state = h("span", { class: "state" });
    this.cells.state.append(this.dot, this.state);
    this.name = h("b");
    this.short = h("span", { class: "short-version" });
    this.backend = h("span", { class: "muted" });
    this.reason = h("span", { class: "reason" });
    this.cells.name.append(this.name, this.short, this.backend, this.reason);
    this.rate = h("span", { class: "figure" });
    this.cells.rate.append(this.spark.node, this.rate);
    this.busy = h("i");
    this.instances = h("span");
    this.cells.instances.append(h("span", { class: "meter", "aria-hidden": "true" }, this.busy), this.instances);
    this.node = h("div", { role: "row", id: `row-${row.id}`, class: "cells line-of", onclick }, Object.values(this.cells));
  }

  draw(row, at, isCurrent, isChosen) {
    const state = stateOf(row);
    this.node.className = `cells line-of ${state}${isCurrent ? " current" : ""}${isChosen ? " chosen" : ""}`;
    this.node.setAttribute("aria-rowindex", String(at + 2));
    this.node.setAttribute("aria-selected", String(isChosen));
    this.dot.className = `dot ${state}`;
    setText(this.state, state);
    setText(this.name, row.n);
    setText(this.backend, row.k ? ` ${row.k}` : "");
    setText(this.reason, row.w && row.w !== "unloaded" ? ` ${row.w}` : "");
    this.cells.name.title = row.w || row.n;
    setText(this.cells.version, row.v || "");
    setText(this.short, row.v ? ` ${row.v}` : "");
    const isLoaded = row.s === "READY";
    this.spark.draw(isLoaded ? row.history.rate : []);
    setText(this.rate, isLoaded ? number(row.r) : "");
    this.rate.classList.toggle("bad-text", Boolean(row.e));
    this.rate.title = row.e ? `${number(row.e)} failures/s` : "";
    setText(this.cells.p50, isLoaded ? duration(row.p?.[0]) : "");
    setText(this.cells.p99, isLoaded ? duration(row.p?.[1]) : "");
    setText(this.cells.queue, isLoaded ? number(row.q) : "");
    setText(this.cells.batch, isLoaded ? number(row.b) : "");
    setText(this.cells.memory, isLoaded ? bytes(row.m) : "");
    const count = row.i?.length ? row.i[0] + row.i[1] + row.i[2] : 0;
    setText(this.instances, isLoaded && count ? (row.i[2] ? `${count - row.i[2]}/${count}` : String(count)) : "");
    this.busy.style.width = `${Math.round((row.u ?? 0) * 100)}%`;
    this.busy.parentNode.classList.toggle("off", !isLoaded || !count);
    this.cells.instances.title = count ? `${row.i[0]} idle, ${row.i[1]} busy, ${row.i[2]} down; ${Math.round((row.u ?? 0) * 100)}% of their time in use` : "";
  }
}
