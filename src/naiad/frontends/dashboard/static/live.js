// The tab with figures of the last minute: rate, latencies, queue, batch sizes, and where the time goes.

import { bars, minuteChart, timeline } from "./charts.js";
import { h, setText } from "./dom.js";
import { bytes, duration, number, percent } from "./format.js";

const STAGES = [["queue", "q"], ["inputs", "i"], ["model", "m"], ["outputs", "o"]];

export class LiveTab {
  constructor(store, pane) {
    this.store = store;
    this.pane = pane;
    this.rate = minuteChart("Requests per second", number, [{ name: "", class: "a" }]);
    this.latency = minuteChart("Latency", duration, [{ name: "p50", class: "a" }, { name: "p99", class: "b" }]);
    this.queue = minuteChart("Requests in the queue", number, [{ name: "", class: "a" }]);
    this.sizes = bars("Runs by batch size, in the last second", "No batch ran in the last second.");
    this.stages = h("div", {}, h("p", { class: "muted" }, "No request in the last second."));
    this.facts = h("dl", { class: "facts" });
    this.values = {};
    for (const [id, title] of [["instances", "Instances"], ["busy", "Their time in use"], ["batch", "Mean batch"], ["wait", "Mean time in the queue"], ["failed", "Failures/s"], ["memory", "Memory"]]) {
      this.values[id] = h("dd", {}, "–");
      this.facts.append(h("div", {}, h("dt", {}, title), this.values[id]));
    }
    this.node = h("div", { class: "live-tab" }, this.facts, this.rate.node, this.latency.node, this.queue.node,
      h("section", { class: "panel" }, h("h3", {}, "Where the time of a request goes"), this.stages), this.sizes.node,
      h("p", { class: "muted small" }, "p50 and p99 are those of about the last ten seconds. They are kept while a dashboard is open."));
    this.ends = [store.on("rows", () => this.draw()), store.on("detail", (found) => this.detail(found))];
    this.draw();
  }

  draw() {
    const row = this.pane.row();
    if (!row) return;
    this.rate.draw([row.history.rate]);
    this.latency.draw([row.history.p50, row.history.p99]);
    this.queue.draw([row.history.queue]);
    const [idle, busy, down] = row.i?.length ? row.i : [null, null, null];
    setText(this.values.instances, idle === null ? "–" : `${idle + busy + down}${down ? `, ${down} down` : ""}`);
    setText(this.values.busy, idle === null ? "–" : percent(row.u));
    setText(this.values.batch, number(row.b));
    setText(this.values.wait, duration(row.d));
    setText(this.values.failed, number(row.e ?? 0));
    setText(this.values.memory, bytes(row.m));
  }

  detail(found) {
    if (found.n !== this.pane.model || found.v !== this.pane.version) return;
    this.sizes.draw(Object.entries(found.sizes), (count) => `${number(count)}/s`);
    const parts = found.stages && STAGES.map(([name, kind], at) => [name, found.stages[at], kind]);
    this.stages.replaceChildren(parts ? timeline(parts, duration) : h("p", { class: "muted" }, "No request in the last second."));
  }

  close() { this.ends.forEach((end) => end()); }
}
