// The end of the server's log.

import { h, setText } from "./dom.js";

const MOST_LINES = 2000;
const LEVELS = { all: 0, warnings: 30, errors: 40 };

export class LogView {
  constructor(store) {
    this.store = store;
    this.level = h("select", { "aria-label": "Lines", onchange: () => this.filter() }, Object.keys(LEVELS).map((name) => h("option", { value: name }, name)));
    this.search = h("input", { type: "search", placeholder: "Filter lines", "aria-label": "Filter lines", oninput: () => this.filter() });
    this.follow = h("input", { type: "checkbox", checked: true, id: "follow" });
    this.lines = h("div", { class: "log", role: "log", "aria-live": "off", tabIndex: 0, "aria-label": "Log", onscroll: () => this.scrolled() });
    this.note = h("p", { class: "empty" });
    this.node = h("section", { class: "column fill", "aria-label": "Log" },
      h("div", { class: "bar-of" }, h("h2", {}, "Log"), this.level, this.search, h("label", { for: "follow", class: "check" }, this.follow, "follow")), this.note, this.lines);
    this.ends = [store.on("log", (found) => this.add(found)), store.on("hello", () => { this.lines.replaceChildren(); this.explain(); })];
    this.explain();
  }

  explain() {
    const { hello } = this.store;
    const text = hello.page && !this.store.may("logging") ? "The API key lacks the scope 'manage', which the log needs." : "";
    setText(this.note, text);
    this.note.hidden = !text;
  }

  add({ lines, skipped }) {
    const added = [];
    if (skipped) added.push(h("div", { class: "skipped" }, `${skipped} lines are left out`));
    for (const [level, text] of lines) {
      const kind = level >= 40 ? "error" : level >= 30 ? "warning" : "";
      // Tables are wider than most windows: their lines must not be broken.
      const line = h("div", { class: text.includes("\n+--") ? `${kind} wide` : kind }, text);
      line.dataset.level = String(level);
      this.match(line);
      added.push(line);
    }
    this.lines.append(...added);
    while (this.lines.children.length > MOST_LINES) this.lines.firstChild.remove();
    if (this.follow.checked) this.lines.scrollTop = this.lines.scrollHeight;
  }

  match(line) {
    const isShown = Number(line.dataset.level ?? 50) >= LEVELS[this.level.value] && line.textContent.toLowerCase().includes(this.search.value.toLowerCase());
    line.hidden = !isShown;
  }

  filter() {
    for (const line of this.lines.children) this.match(line);
  }

  scrolled() {
    const fromEnd = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight;
    if (fromEnd > 40) this.follow.checked = false;
    else if (fromEnd < 4) this.follow.checked = true;
  }

  close() { this.ends.forEach((end) => end()); }
}
