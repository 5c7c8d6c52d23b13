// The view of models: the table, and beside it the model that is chosen.

import { ModelPane } from "./pane.js";
import { h } from "./dom.js";
import { ModelTable } from "./table.js";

/** The address of a model's pane. */
export function addressOf(model, version, tab = "live") {
  return `#models/${encodeURIComponent(model)}/${encodeURIComponent(version || "-")}/${tab}`;
}

export class ModelView {
  constructor(store, choose) {
    this.store = store;
    this.choose = choose;
    this.table = new ModelTable(store, (row) => { location.hash = addressOf(row.n, row.v, this.pane?.tab ?? "live"); });
    this.node = h("div", { class: "split" }, this.table.node);
    this.end = store.on("set", () => this.mark());
  }

  show([model = "", version = "-", tab = "live"]) {
    const number = version === "-" ? "" : version;
    this.node.classList.toggle("open", Boolean(model));
    if (!model) {
      this.closePane();
    } else {
      if (this.pane?.model !== model || this.pane?.version !== number) {
        this.closePane();
        this.pane = new ModelPane(this.store, model, number);
        this.node.append(this.pane.node);
      }
      this.pane.show(tab);
    }
    this.choose({ model, version: number });
    this.mark();
  }

  mark() {
    this.table.choose(this.pane ? this.store.find(this.pane.model, this.pane.version)?.id ?? "" : "");
  }

  closePane() {
    this.pane?.close();
    this.pane?.node.remove();
    this.pane = null;
  }

  close() {
    this.end();
    this.closePane();
    this.table.close();
  }
}
