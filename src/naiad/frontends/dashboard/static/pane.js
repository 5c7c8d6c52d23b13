// One model version: its state, what can be done with it, and the tabs with the rest.

import { modelPath, postJson } from "./api.js";
import { ConfigTab } from "./config.js";
import { confirmed, h, setText, toast } from "./dom.js";
import { LiveTab } from "./live.js";
import { addressOf } from "./models.js";
import { stateOf } from "./table.js";
import { TryTab } from "./tryit.js";
import { VersionsTab } from "./versions.js";

const TABS = [["live", "Live", LiveTab], ["try", "Try it", TryTab], ["config", "Configuration", ConfigTab], ["versions", "Versions", VersionsTab]];

export class ModelPane {
  constructor(store, model, version) {
    this.store = store;
    this.model = model;
    this.version = version;
    this.tab = "";
    this.opened = {};
    this.dot = h("i", { class: "dot", "aria-hidden": "true" });
    this.state = h("span", { class: "muted" });
    this.reason = h("p", { class: "reason-box" });
    this.load = h("button", { type: "button", onclick: () => this.change("load") }, "Load");
    this.unload = h("button", { type: "button", class: "danger-quiet", onclick: () => this.change("unload") }, "Unload");
    this.tabs = TABS.map(([id, title]) => h("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "pane-body", onclick: () => { location.replace(addressOf(model, version, id)); },
    }, title));
    this.body = h("div", { class: "pane-body", id: "pane-body", role: "tabpanel", tabIndex: 0 });
    this.node = h("section", { class: "pane", "aria-label": `Model ${model}`, onkeydown: (event) => { if (event.key === "Escape" && !event.defaultPrevented) location.hash = "#models"; } },
      h("div", { class: "pane-head" },
        h("a", { class: "close", href: "#models", "aria-label": "Close" }, "×"),
        h("h2", {}, model, version ? h("span", { class: "muted" }, ` version ${version}`) : ""),
        h("div", { class: "row" }, this.dot, this.state, h("span", { class: "grow" }), this.load, this.unload),
        this.reason,
        h("div", { class: "tabs", role: "tablist", "aria-label": "About the model", onkeydown: (event) => this.key(event) }, this.tabs)),
      this.body);
    this.ends = [store.on("rows", () => this.draw()), store.on("hello", () => this.draw())];
    this.draw();
  }

  row() { return this.store.find(this.model, this.version); }

  show(tab) {
    const found = TABS.find(([id]) => id === tab) ?? TABS[0];
    if (this.tab === found[0]) return;
    this.opened[this.tab]?.leave?.();
    [this.tab] = found;
    this.opened[this.tab] ??= new found[2](this.store, this);
    this.body.replaceChildren(this.opened[this.tab].node);
    this.body.setAttribute("aria-labelledby", `tab-${this.tab}`);
    this.body.scrollTop = 0;
    TABS.forEach(([id], at) => {
      this.tabs[at].setAttribute("aria-selected", String(id === this.tab));
      this.tabs[at].tabIndex = id === this.tab ? 0 : -1;
    });
    this.opened[this.tab].enter?.();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([id]) => id === this.tab);
    const next = (at + step + TABS.length) % TABS.length;
    this.tabs[next].focus();
    this.tabs[next].click();
    event.preventDefault();
  }

  draw() {
    const row = this.row();
    const state = row ? stateOf(row) : "unloaded";
    this.dot.className = `dot ${state}`;
    setText(this.state, row ? `${state}${row.k ? ` · ${row.k}` : ""}` : "not in the index");
    const reason = row?.w && row.w !== "unloaded" ? row.w : "";
    this.reason.hidden = !reason;
    setText(this.reason, reason);
    const may = this.store.may("model-repository") && this.store.hello.loads !== false;
    const why = this.store.may("model-repository") ? "The server polls its repositories" : "The API key lacks the scope 'manage'";
    for (const button of [this.load, this.unload]) { button.disabled = !may || this.busy; button.title = may ? "" : why; }
    setText(this.load, state === "ready" || state === "problem" ? "Reload" : "Load");
    this.unload.hidden = !["ready", "problem", "loading"].includes(state);
  }

  async change(action) {
    if (action === "unload" && !(await confirmed(`Unload ${this.model}?`, "All of its versions finish their requests and accept no further ones.", "Unload", true))) return;
    await this.run(action, {});
  }

  /** Loads or unloads the model; true when that succeeded. */
  async run(action, body) {
    this.busy = true;
    this.draw();
    try {
      await postJson(`/v2/repository/models/${encodeURIComponent(this.model)}/${action}`, body);
      toast(`${this.model}: ${action === "load" ? "loaded" : "unloading"}`);
      return true;
    } catch (error) {
      toast(`${this.model}: ${error.message}`, "bad");
      return false;
    } finally {
      this.busy = false;
      this.draw();
    }
  }

  close() {
    this.ends.forEach((end) => end());
    for (const tab of Object.values(this.opened)) tab.close?.();
  }

  path() { return modelPath(this.model, this.version); }
}
