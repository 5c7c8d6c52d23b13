// The slow requests of the last minutes, each with its cause and its timeline.

import { getJson } from "./api.js";
import { timeline } from "./charts.js";
import { h, setText } from "./dom.js";
import { duration, timeOfDay } from "./format.js";
import { addressOf } from "./models.js";

const REFRESH_MS = 5000;
const STAGES = [["before_reading", "before reading", "w"], ["reading", "reading", "r"], ["queue", "queue", "q"], ["inputs", "inputs", "i"], ["model", "model", "m"], ["outputs", "outputs", "o"], ["response", "response", "s"]];
const MOST = 200;

export class SlowView {
  constructor(store) {
    this.store = store;
    this.note = h("p", { class: "empty" }, "Loading");
    this.list = h("ol", { class: "slow-list" });
    this.node = h("section", { class: "column", "aria-label": "Slow requests" },
      h("div", { class: "bar-of" }, h("h2", {}, "Slow requests"), h("span", { class: "muted" }, "of the last five minutes, the slowest first")), this.note, this.list);
    this.timer = setInterval(() => { if (!document.hidden) this.read(); }, REFRESH_MS);
    this.end = store.on("hello", () => this.read());
    this.read();
  }

  async read() {
    if (this.store.hello.page && !this.store.hello.slow) {
      this.say("The server does not record slow requests. Start it with --slow-requests=100, say.");
      return;
    }
    try {
      this.draw((await getJson("/v2/traces/slow")).slow_requests.slice(0, MOST));
    } catch (error) {
      this.say(error.message);
    }
  }

  say(text) {
    setText(this.note, text);
    this.note.hidden = !text;
    if (text) this.list.replaceChildren();
  }

  draw(requests) {
    if (this.list.contains(document.activeElement) || String(getSelection())) return;
    this.say(requests.length ? "" : "No request has taken longer than 10 ms in the last five minutes.");
    this.list.replaceChildren(...requests.map((found) => this.item(found)));
  }

  item(found) {
    const parts = STAGES.map(([id, name, kind]) => [name, (found.stages_us[id] ?? 0) / 1000, kind]);
    return h("li", { class: "panel slow" },
      h("div", { class: "row" },
        h("b", { class: "figure" }, duration(found.duration_us / 1000)),
        h("a", { href: addressOf(found.model, found.version) }, found.model),
        h("span", { class: "muted" }, `version ${found.version}${found.id ? ` · request ${found.id}` : ""} · ${timeOfDay(found.time)} · batch of ${found.batch_rows}`)),
      h("p", {}, h("span", { class: "tag" }, found.cause.replaceAll("_", " ")), ` ${found.explanation}`, found.place ? h("code", {}, ` ${found.place}`) : ""),
      timeline(parts, duration),
      found.client_not_reading_us ? h("p", { class: "muted" }, `The caller did not read for ${duration(found.client_not_reading_us / 1000)}.`) : null);
  }

  close() {
    clearInterval(this.timer);
    this.end();
  }
}
