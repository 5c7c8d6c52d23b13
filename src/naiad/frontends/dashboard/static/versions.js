// The tab about versions: which share of the requests each gets, aliases, the shadow, promotion and rollback.

import { getJson, modelPath, postJson } from "./api.js";
import { confirmed, h, toast } from "./dom.js";
import { number } from "./format.js";
import { stateOf } from "./table.js";

export class VersionsTab {
  constructor(store, pane) {
    this.store = store;
    this.pane = pane;
    this.node = h("div", { class: "versions" });
  }

  enter() { this.read(); }

  path(rest = "") { return `${modelPath(this.pane.model)}/routes${rest}`; }

  async read() {
    try {
      this.draw(await getJson(this.path()));
    } catch (error) {
      this.node.replaceChildren(h("p", { class: "empty" }, error.message));
    }
  }

  rows() {
    return [...this.store.rows.values()].filter((row) => row.n === this.pane.model && row.v).sort((a, b) => Number(a.v) - Number(b.v));
  }

  draw(found) {
    const split = found.routes?.split ?? found.split ?? {};
    const routes = found.routes ?? found;
    const may = this.store.may("model-repository");
    const newest = this.rows().filter((row) => row.s === "READY").at(-1)?.v;
    const total = Object.values(split).reduce((sum, weight) => sum + weight, 0);
    const fields = this.rows().map((row) => {
      const weight = split[row.v] ?? (total ? 0 : row.v === newest ? 1 : 0);
      const input = h("input", { type: "number", min: 0, max: 1000000, step: 1, value: weight, disabled: !may, "aria-label": `Weight of version ${row.v}` });
      const aliases = Object.entries(routes.aliases ?? {}).filter(([, version]) => String(version) === row.v).map(([name]) => name);
      const promote = h("button", { type: "button", disabled: !may || row.s !== "READY", onclick: () => this.promote(row.v) }, "Promote");
      const line = h("tr", {}, h("th", { scope: "row" }, row.v), h("td", {}, h("i", { class: `dot ${stateOf(row)}`, "aria-hidden": "true" }), ` ${stateOf(row)}`),
        h("td", {}, input), h("td", { class: "num" }, share(weight, total || 1)), h("td", { class: "num" }, number(row.r)), h("td", {}, aliases.join(", ") || "–"), h("td", {}, promote));
      return { version: row.v, input, line };
    });
    const shadow = routes.shadow ? h("p", {}, `Version ${routes.shadow.version ?? routes.shadow} is the shadow: it gets copies of requests, and its responses are compared and dropped.`) : null;
    this.node.replaceChildren(
      h("p", { class: "muted" }, total ? "Requests that name no version are divided by these weights." : "Requests that name no version go to the highest version that is ready."),
      h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Versions" }, h("table", { class: "plain" },
        h("thead", {}, h("tr", {}, ["Version", "State", "Weight", "Share", "Requests/s", "Aliases", "Action"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, fields.map((field) => field.line)))),
      ...(shadow ? [shadow] : []),
      h("div", { class: "row" },
        h("button", { type: "button", class: "primary", disabled: !may, onclick: () => this.split(fields) }, "Use these weights"),
        h("button", { type: "button", disabled: !may, onclick: () => this.rollBack() }, "Back to the routes before"),
        h("button", { type: "button", onclick: () => this.read() }, "Refresh")),
      h("details", {}, h("summary", {}, "Routes as the API shows them"), h("pre", { tabIndex: 0 }, JSON.stringify(found, null, 2))));
  }

  split(fields) {
    const weights = Object.fromEntries(fields.map(({ version, input }) => [version, Number(input.value)]).filter(([, weight]) => weight > 0));
    return this.send(this.path(), { split: weights }, "The weights are in use");
  }

  async promote(version) {
    const text = `It gets all requests that name no version.`;
    if (await confirmed(`Promote version ${version}?`, text, "Promote")) await this.send(this.path("/promote"), { version }, `Version ${version} gets all requests`);
  }

  async rollBack() {
    if (await confirmed("Go back?", "The routes before the last change come into use again.", "Go back")) await this.send(this.path("/rollback"), {}, "The routes before are in use again");
  }

  async send(path, body, text) {
    try {
      this.draw(await postJson(path, body));
      toast(text);
    } catch (error) {
      toast(error.message, "bad");
    }
  }
}

function share(weight, total) { return `${Math.round((weight / total) * 1000) / 10}%`; }
