// The page as a whole: the stream, the gauges at the top, and which view is shown. The address after "#" names the view.

import { hasKey, setKey } from "./api.js";
import { sparkline } from "./charts.js";
import { ModelView } from "./models.js";
import { h, setText } from "./dom.js";
import { bytes, number, percent } from "./format.js";
import { LogView } from "./log.js";
import { SlowView } from "./slow.js";
import { Store } from "./store.js";
import { EventStream } from "./stream.js";
import { postJson } from "./api.js";

const store = new Store();
const main = document.getElementById("main");
const link = document.getElementById("link");
let view = null;
let page = "";
let wanted = { model: "", version: "", log: false };

const stream = new EventStream("events", {
  hello: (hello) => { page = hello.page; store.greet(hello); describe(hello); choose({}); },
  all: (found) => store.replace(found),
  changes: (found) => store.change(found),
  detail: (found) => store.emit("detail", found),
  log: (found) => store.emit("log", found),
}, connectionChanged);

/** Tells the server what this page shows beside the rows: a model in detail, the log. */
export function choose(change) {
  wanted = { ...wanted, ...change };
  if (page) postJson(`page/${page}`, wanted).catch(() => {});
}

function describe(hello) {
  setText(document.getElementById("server"), `${hello.name} ${hello.version}`);
  document.title = `${hello.name} – Naiad`;
  document.getElementById("key").hidden = !hello.keys && !hasKey();
}

function connectionChanged(state, text) {
  link.className = `link ${state}`;
  setText(link, { live: "live", lost: "connection lost", refused: "locked" }[state]);
  link.title = text;
  document.body.classList.toggle("stale", state !== "live");
  if (state !== "live") page = "";
  if (state === "refused") askForKey(text);
}

function askForKey(reason) {
  document.getElementById("key").hidden = false;
  if (document.querySelector("dialog[open]")) return;
  const field = h("input", { type: "password", id: "key-field", autocomplete: "off", spellcheck: false, size: 40 });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "key-title" }, "API key"),
    h("p", {}, reason || "The key is kept in this page's memory alone, and is gone when you close or reload it."),
    h("label", { for: "key-field" }, "Key"), field,
    h("div", { class: "row end" },
      h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      h("button", { type: "submit", value: "use", class: "primary" }, "Use this key")));
  const dialog = h("dialog", { "aria-labelledby": "key-title" }, form);
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "use") { setKey(field.value); stream.start(); }
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}

class Gauges {
  constructor(box) {
    this.box = box;
    this.spark = sparkline(64, 20);
    this.values = {};
    for (const [id, title] of [["rate", "requests/s"], ["failed", "failures/s"], ["open", "in flight"], ["cpu", "processor"], ["memory", "memory"]]) {
      this.values[id] = h("span", {}, "–");
      const spark = id === "rate" ? h("span", { class: "gauge-spark" }, this.spark.node) : null;
      box.append(h("div", { class: `gauge ${id}` }, h("dt", {}, title), h("dd", {}, this.values[id], spark)));
    }
  }

  draw() {
    const { total, server, rows } = store;
    setText(this.values.rate, number(total.rate.at(-1) ?? 0));
    setText(this.values.failed, number(total.failed.at(-1) ?? 0));
    this.values.failed.classList.toggle("bad-text", Boolean(total.failed.at(-1)));
    setText(this.values.open, number(server.f ?? 0));
    setText(this.values.cpu, server.cpu === undefined ? "–" : percent(server.cpu));
    setText(this.values.memory, bytes(server.mem));
    this.spark.draw(total.rate);
    setText(document.getElementById("count"), String(new Set([...rows.values()].map((row) => row.n)).size));
  }
}

function route() {
  const [name = "models", ...rest] = location.hash.slice(1).split("/").map(decodeURIComponent);
  const wants = name in VIEWS ? name : "models";
  if (view?.name !== wants) {
    view?.close();
    main.replaceChildren();
    view = VIEWS[wants]();
    view.name = wants;
    main.append(view.node);
  }
  for (const anchor of document.querySelectorAll("nav.views a")) {
    if (anchor.hash === `#${wants}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  choose({ log: wants === "log", ...(wants === "models" ? {} : { model: "", version: "" }) });
  view.show?.(rest);
}

const VIEWS = {
  models: () => new ModelView(store, choose),
  slow: () => new SlowView(store),
  log: () => new LogView(store),
};

function theme() {
  const button = document.getElementById("theme");
  const prefersLight = matchMedia("(prefers-color-scheme: light)");
  const apply = (name) => {
    document.documentElement.dataset.theme = name;
    setText(button, name === "dark" ? "Light" : "Dark");
    button.setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} theme`);
  };
  apply(prefersLight.matches ? "light" : "dark");
  prefersLight.addEventListener("change", () => apply(prefersLight.matches ? "light" : "dark"));
  button.addEventListener("click", () => apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}

theme();
const gauges = new Gauges(document.getElementById("gauges"));
store.on("rows", () => gauges.draw());
document.getElementById("key").addEventListener("click", () => askForKey(""));
window.addEventListener("hashchange", route);
// A browser keeps a page that one has left, for its button "back". Its stream would take one of the few connections that
// the browser has to a server, so that the seventh page waited for a minute.
window.addEventListener("pagehide", () => stream.stop());
window.addEventListener("pageshow", (event) => { if (event.persisted) stream.start(); });
route();
stream.start();
