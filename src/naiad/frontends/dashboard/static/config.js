// The tab with the configuration: every value with its origin, and an editor whose text is checked before the reload.

import { getJson, postJson } from "./api.js";
import { h, setText, toast } from "./dom.js";

export class ConfigTab {
  constructor(store, pane) {
    this.store = store;
    this.pane = pane;
    this.search = h("input", { type: "search", placeholder: "Filter fields", "aria-label": "Filter fields", oninput: () => this.draw() });
    this.onlySet = h("input", { type: "checkbox", id: "only-set", checked: true, onchange: () => this.draw() });
    this.list = h("dl", { class: "config" });
    this.file = h("span", { class: "muted" });
    this.text = h("textarea", { id: "edited", rows: 18, spellcheck: false, class: "code", oninput: () => this.edited() });
    this.problems = h("ol", { class: "problems", role: "status" });
    this.check = h("button", { type: "button", onclick: () => this.verify() }, "Check");
    this.reload = h("button", { type: "button", class: "primary", onclick: () => this.apply() }, "Check and reload");
    this.reset = h("button", { type: "button", class: "quiet", onclick: () => this.restore() }, "Undo all edits");
    this.editor = h("details", { class: "panel" }, h("summary", {}, "Edit and reload"),
      h("p", { class: "muted small" }, "The configuration as written, as JSON. The reload uses the edited text and leaves the files of the repository as they are: the next load without it reads them again. A model whose load fails goes on as it was."),
      h("label", { for: "edited" }, "Configuration"), this.text, this.problems, h("div", { class: "row" }, this.reload, this.check, this.reset));
    this.node = h("div", { class: "config-tab" },
      h("div", { class: "bar-of" }, this.search, h("label", { class: "check", for: "only-set" }, this.onlySet, "without defaults"), this.file),
      this.list, this.editor);
    this.read();
  }

  enter() { if (this.stale) this.read(); }
  leave() { this.stale = true; }

  async read() {
    this.stale = false;
    try {
      const version = this.pane.version ? `?version=${encodeURIComponent(this.pane.version)}` : "";
      this.found = await getJson(`explain/${encodeURIComponent(this.pane.model)}${version}`);
    } catch (error) {
      this.list.replaceChildren(h("div", {}, h("dt", {}, "The configuration is not known"), h("dd", {}, error.message)));
      return;
    }
    setText(this.file, this.found.file ?? "");
    if (!this.isEdited) this.restore();
    const may = this.store.may("model-repository") && this.store.hello.loads !== false;
    for (const button of [this.check, this.reload]) button.disabled = !may;
    this.draw();
  }

  draw() {
    const word = this.search.value.toLowerCase();
    const rows = (this.found?.fields ?? []).filter((row) => (word || !this.onlySet.checked || row.origin !== "default") && `${row.path} ${row.summary}`.toLowerCase().includes(word));
    this.list.replaceChildren(...rows.map((row) => h("div", { class: `field-row ${kindOf(row.origin)}` },
      h("dt", {}, h("code", {}, row.path)),
      h("dd", {}, h("span", { class: "value" }, shown(row)), h("span", { class: "origin" }, row.origin)),
      h("dd", { class: "muted small" }, row.summary, row.metric ? h("code", {}, ` ${row.metric}`) : ""))));
    if (!rows.length) this.list.replaceChildren(h("div", {}, h("dt", {}, "No field fits the filter"), h("dd", {}, "")));
  }

  restore() {
    this.isEdited = false;
    this.text.value = this.found ? JSON.stringify(this.found.written, null, 2) : "";
    this.problems.replaceChildren();
  }

  edited() {
    this.isEdited = true;
    this.problems.replaceChildren();
  }

  /** Checks the text on the server; true when it has no problem. */
  async verify() {
    let found;
    try {
      found = await postJson(`check/${encodeURIComponent(this.pane.model)}`, { config: this.text.value });
    } catch (error) {
      this.problems.replaceChildren(h("li", {}, error.message));
      return false;
    }
    this.problems.replaceChildren(...found.problems.map((problem) => this.problem(problem)));
    if (!found.problems.length) this.problems.append(h("li", { class: "good" }, "No problem was found."));
    return !found.problems.length;
  }

  problem({ message, line }) {
    if (!line) return h("li", {}, message);
    return h("li", {}, h("button", { type: "button", class: "link-button", onclick: () => this.goTo(line) }, `line ${line}`), ` ${message}`);
  }

  goTo(line) {
    const lines = this.text.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(begin, begin + (lines[line - 1]?.length ?? 0));
    this.text.scrollTop = (line - 4) * Number.parseFloat(getComputedStyle(this.text).lineHeight);
  }

  async apply() {
    if (!(await this.verify())) { toast("The configuration has problems; nothing was loaded", "bad"); return; }
    if (await this.pane.run("load", { parameters: { config: this.text.value } })) {
      this.isEdited = false;
      await this.read();
    }
  }
}

function kindOf(origin) {
  if (origin === "default") return "is-default";
  return origin === "auto-completed" || origin === "the model's files" ? "is-completed" : "is-written";
}

function shown(row) {
  if (row.value === null) return "not set";
  if (row.unit === "us") return `${row.value} µs`;
  return JSON.stringify(row.value);
}
