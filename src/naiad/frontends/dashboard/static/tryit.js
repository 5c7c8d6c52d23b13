// The tab with a form for one request, made from the model's signature.

import { ApiError, getJson, hasKey } from "./api.js";
import { timeline } from "./charts.js";
import { copy, h, setText } from "./dom.js";
import { bytes, duration, element, number } from "./format.js";
import { imageLayout, imageValues, SCALINGS } from "./image.js";
import { counters, infer, stagesBetween, stream } from "./infer.js";
import { snippets, streamSnippets } from "./snippets.js";
import { count, decode, encode, FLOATS, greatest, parseShape, parseValues, statistics, wireType } from "./tensors.js";

const MOST_SHOWN = 64;
const MOST_EVENTS = 200;
const MOST_FILLED = 4096;

export class TryTab {
  constructor(store, pane) {
    this.store = store;
    this.pane = pane;
    this.node = h("div", { class: "try" }, h("p", { class: "muted" }, "Loading"));
    this.read();
  }

  async read() {
    try {
      this.config = await getJson(`${this.pane.path()}/config`);
    } catch (error) {
      const again = h("button", { type: "button", onclick: () => this.read() }, "Try again");
      this.node.replaceChildren(h("p", { class: "empty" }, error.message), again);
      return;
    }
    this.build();
  }

  get isDecoupled() { return Boolean(this.config.model_transaction_policy?.decoupled); }

  build() {
    const { config } = this;
    const batch = config.max_batch_size > 0;
    this.inputs = (config.input ?? []).map((input) => new InputField(input, batch));
    this.parameters = h("input", { type: "text", id: "parameters", placeholder: config.sequence_batching ? '{"sequence_id": 1, "sequence_start": true}' : "{}", spellcheck: false });
    this.send = h("button", { type: "submit", class: "primary" }, "Send the request");
    this.stop = h("button", { type: "button", hidden: true, onclick: () => this.controller?.abort() }, "Stop");
    this.result = h("div", { class: "result", role: "status" });
    this.program = h("pre", { tabIndex: 0, "aria-label": "The request as a program" });
    this.kinds = ["curl", "Python", "gRPC"].map((name, at) => h("button", { type: "button", class: "chip", "aria-pressed": String(at === 0), onclick: () => this.showProgram(name) }, name));
    this.kind = "curl";
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); this.run(); }, oninput: () => this.showProgram(this.kind), onchange: () => this.showProgram(this.kind) },
      this.inputs.map((input) => input.node),
      h("div", { class: "field" }, h("label", { for: "parameters" }, "Parameters of the request, as JSON"), this.parameters),
      h("div", { class: "row" }, this.send, this.stop));
    this.node.replaceChildren(form, this.result,
      h("details", { class: "panel" }, h("summary", {}, "The request as a program"), h("div", { class: "row" }, this.kinds, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => copy(this.program.textContent) }, "Copy")), this.program));
    if (!this.store.may("inference")) this.say("The API key lacks the scope 'infer', which requests need.", "bad");
    this.showProgram("curl");
  }

  showProgram(name) {
    this.kind = name;
    this.kinds.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    const inputs = this.inputs.filter((input) => !input.isLeftOut).map((input) => input.described());
    // Port 0 is the page's own, whose number the server does not know before it listens.
    const [port, isEncrypted] = this.store.hello.grpc ?? [0, false];
    const grpc = `${isEncrypted ? "https://" : ""}${location.hostname}:${port || location.port || (location.protocol === "https:" ? 443 : 80)}`;
    const found = this.isDecoupled ? streamSnippets(location.origin, this.pane.model, this.pane.version, this.flatBody(), inputs, hasKey(), grpc) : snippets(location.origin, this.pane.model, this.pane.version, inputs, (this.config.output ?? []).map((output) => output.name), hasKey(), grpc);
    setText(this.program, name === "gRPC" && !this.store.hello.grpc ? "# This server does not serve gRPC.\n" : found[name]);
  }

  /** The inputs as `generate` takes them: a value, or a list of values. */
  flatBody() {
    const body = {};
    for (const input of this.inputs) {
      try {
        const values = input.isLeftOut ? [] : input.typed();
        if (values.length) body[input.name] = values.length === 1 ? values[0] : values;
      } catch {
        // The form says what is wrong with the values once they are sent.
        body[input.name] = null;
      }
    }
    return body;
  }

  say(text, kind = "muted") { this.result.replaceChildren(h("p", { class: kind === "bad" ? "error-box" : "muted" }, text)); }

  async run() {
    this.controller = new AbortController();
    this.send.disabled = true;
    this.stop.hidden = false;
    this.say("Waiting for the response");
    try {
      const parameters = this.readParameters();
      if (this.isDecoupled) await this.runStream(parameters);
      else await this.runOnce(parameters);
    } catch (error) {
      const status = error instanceof ApiError && error.status ? `${error.status}: ` : "";
      this.say(error.name === "AbortError" ? "Stopped." : `${status}${error.message}`, "bad");
    } finally {
      this.send.disabled = false;
      this.stop.hidden = true;
    }
  }

  readParameters() {
    const text = this.parameters.value.trim();
    if (!text) return {};
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`the parameters are no JSON: ${error.message}`);
    }
  }

  async tensors() {
    const found = [];
    for (const input of this.inputs) if (!input.isLeftOut) found.push(await input.tensor());
    return found;
  }

  async runOnce(parameters) {
    const path = this.pane.path();
    const inputs = await this.tensors();
    const before = await counters(path).catch(() => null);
    const answer = await infer(path, inputs, parameters, this.controller.signal);
    const after = before && await counters(path).catch(() => null);
    const stages = answer.stages ?? (after && stagesBetween(before, after));
    this.result.replaceChildren(this.timing(answer, stages), ...answer.outputs.map(outputNode));
    this.result.firstChild.scrollIntoView({ block: "nearest" });
  }

  timing(answer, stages) {
    const parts = [];
    if (stages) {
      parts.push(["queue", stages.queue, "q"], ...(stages.batch ? [["wait for its batch", stages.batch, "q"]] : []));
      parts.push(["inputs", stages.inputs, "i"], stages.cache ? ["response cache", stages.cache, "m"] : ["model", stages.model, "m"], ["outputs", stages.outputs, "o"]);
      const server = parts.reduce((sum, [, ms]) => sum + ms, 0);
      parts.push(["network, browser and the rest", Math.max(0, answer.ms - server), "w"]);
    } else {
      parts.push(["whole request", answer.ms, "w"]);
    }
    const note = stages?.requests > 1 ? `Mean of ${stages.requests} requests that the model completed meanwhile.` : "";
    return h("section", { class: "panel" },
      h("h3", {}, `${duration(answer.ms)}, ${bytes(answer.bytes)}`, h("span", { class: "muted" }, answer.header.model_version ? ` from version ${answer.header.model_version}` : "")),
      timeline(parts, duration), note ? h("p", { class: "muted small" }, note) : null);
  }

  async runStream(parameters) {
    const list = h("ol", { class: "events" });
    const head = h("p", { class: "muted" }, "No response yet");
    this.result.replaceChildren(head, list);
    const body = { ...parameters, ...this.flatBody() };
    const begun = performance.now();
    let first = 0;
    let shown = 0;
    const seen = await stream(this.pane.path(), body, (text) => {
      first ||= performance.now() - begun;
      shown += 1;
      list.append(h("li", {}, text.slice(0, 2000)));
      setText(head, `${shown} responses`);
    }, MOST_EVENTS, this.controller.signal);
    setText(head, `${Math.min(seen, MOST_EVENTS)} responses${seen > MOST_EVENTS ? ", further ones are left out" : ""}; the first after ${duration(first)}, all after ${duration(performance.now() - begun)}`);
  }
}

let fields = 0;

class InputField {
  constructor(input, batch) {
    fields += 1;
    this.id = `input-${fields}`;
    this.name = input.name;
    this.datatype = wireType(input.data_type);
    this.dims = (input.dims ?? []).map(Number);
    this.batch = batch;
    this.layout = this.datatype === "BYTES" ? null : imageLayout(input.format, this.dims);
    const shape = [...(batch ? [1] : []), ...this.dims.map((size) => (size > 0 ? size : this.layout ? 224 : 1))];
    this.shape = h("input", { type: "text", id: `${this.id}-shape`, value: shape.join(", "), spellcheck: false, class: "shape" });
    this.values = h("textarea", { id: `${this.id}-values`, rows: count(shape) > 8 ? 4 : 2, spellcheck: false, value: this.example(shape), "aria-describedby": `${this.id}-hint` });
    this.file = h("input", { type: "file", id: `${this.id}-file`, accept: this.datatype === "BYTES" ? "" : "image/*", onchange: () => this.preview() });
    this.scaling = h("select", { id: `${this.id}-scaling` }, Object.keys(SCALINGS).map((name) => h("option", { value: name }, name)));
    if (!FLOATS.has(this.datatype)) this.scaling.value = "0 to 255";
    this.picture = h("div", { class: "preview" });
    this.skip = input.optional ? h("input", { type: "checkbox", id: `${this.id}-skip`, checked: true }) : null;
    const fills = this.datatype === "BYTES" ? [] : ["zeros", "ones", "random"].map((name) => h("button", { type: "button", class: "chip", onclick: () => this.fill(name) }, name));
    const takesFile = this.layout || this.datatype === "BYTES";
    this.node = h("fieldset", { class: "panel" },
      h("legend", {}, input.name, h("span", { class: "muted" }, ` ${this.datatype} [${this.dims.join(", ")}]${batch ? ", batched" : ""}`)),
      this.skip ? h("label", { class: "check", for: `${this.id}-skip` }, this.skip, "leave this optional input out") : null,
      h("div", { class: "row" }, h("label", { for: `${this.id}-shape` }, "Shape"), this.shape, h("span", { class: "grow" }), fills),
      h("label", { for: `${this.id}-values` }, "Values"), this.values,
      h("p", { class: "muted small", id: `${this.id}-hint` }, this.datatype === "BYTES" ? "A line for each string, or a JSON list." : "Numbers, or a JSON list. A single value fills the shape. NaN and inf are numbers too."),
      takesFile ? h("div", { class: "row" }, h("span", { class: "pair" }, h("label", { for: `${this.id}-file` }, this.layout ? "Image" : "File as bytes"), this.file),
        this.layout ? h("span", { class: "pair" }, h("label", { for: `${this.id}-scaling` }, "Scaling"), this.scaling) : null) : null,
      this.picture);
  }

  get isLeftOut() { return Boolean(this.skip?.checked); }

  example(shape) {
    if (this.datatype === "BYTES") return "text";
    if (this.datatype === "BOOL") return "true";
    return count(shape) <= 16 ? Array.from({ length: count(shape) }, (_, at) => at).join(" ") : "0";
  }

  fill(name) {
    const size = count(parseShape(this.shape.value));
    if (name !== "random") { this.values.value = name === "zeros" ? "0" : "1"; }
    else if (size > MOST_FILLED) this.values.value = "random";
    else this.values.value = Array.from({ length: size }, () => this.random()).join(" ");
    this.file.value = "";
    this.picture.replaceChildren();
    this.values.dispatchEvent(new Event("input", { bubbles: true }));
  }

  random() {
    if (FLOATS.has(this.datatype)) return Number(Math.random().toFixed(4));
    return Math.floor(Math.random() * (this.datatype === "BOOL" ? 2 : 100));
  }

  async preview() {
    const [file] = this.file.files;
    this.picture.replaceChildren();
    if (!file || !this.layout) return;
    try {
      const { shape, canvas } = await imageValues(file, this.layout, this.scaling.value, !FLOATS.has(this.datatype));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", "The image as the model gets it");
      this.picture.append(canvas);
      this.shape.value = [...(this.batch ? [1] : []), ...shape].join(", ");
    } catch {
      this.picture.append(h("p", { class: "error-box" }, "The browser cannot read this file as an image."));
    }
  }

  /** The values of the text, one for each element of the shape. */
  flat() {
    const size = count(parseShape(this.shape.value));
    if (this.values.value.trim() === "random") return Array.from({ length: size }, () => this.random());
    let values = parseValues(this.values.value, this.datatype);
    if (values.length === 1 && size > 1) values = new Array(size).fill(values[0]);
    return values;
  }

  /** The values as JSON has them. */
  typed() {
    const values = this.flat();
    if (this.datatype === "BYTES") return values.map(String);
    return values.map((value) => (this.datatype === "BOOL" ? /^(true|1)$/i.test(String(value)) : Number(value)));
  }

  async tensor() {
    const shape = parseShape(this.shape.value);
    const [file] = this.file.files ?? [];
    if (file && this.layout) {
      const { values, shape: one } = await imageValues(file, this.layout, this.scaling.value, !FLOATS.has(this.datatype));
      return { name: this.name, datatype: this.datatype, shape: [...(this.batch ? [1] : []), ...one], bytes: encode(values, this.datatype) };
    }
    const values = file ? [new Uint8Array(await file.arrayBuffer())] : this.flat();
    if (values.length !== count(shape)) throw new Error(`${this.name} has ${values.length} values, and its shape [${shape.join(", ")}] needs ${count(shape)}`);
    try {
      return { name: this.name, datatype: this.datatype, shape, bytes: encode(values, this.datatype) };
    } catch (error) {
      throw new Error(`${this.name}: ${error.message}`);
    }
  }

  /** What the programs show of it. */
  described() {
    try {
      const shape = parseShape(this.shape.value);
      const isLong = count(shape) > MOST_SHOWN || this.file.files?.length;
      return { name: this.name, datatype: this.datatype, shape, values: isLong ? new Array(MOST_SHOWN + 1) : this.flat() };
    } catch {
      return { name: this.name, datatype: this.datatype, shape: [], values: [] };
    }
  }
}

function outputNode(output) {
  const { first, all } = decode(output.bytes, output.datatype, MOST_SHOWN);
  const total = count(output.shape);
  const children = [h("h3", {}, output.name, h("span", { class: "muted" }, ` ${output.datatype} [${output.shape.join(", ")}], ${bytes(output.bytes.length)}`))];
  if (all && total > 1 && output.datatype !== "BOOL") children.push(summary(all));
  if (all && FLOATS.has(output.datatype) && output.shape.at(-1) >= 10 && total === output.shape.at(-1)) children.push(top(all));
  children.push(h("pre", { class: "values", tabIndex: 0, "aria-label": `First values of ${output.name}` }, first.map(element).join(output.datatype === "BYTES" ? "\n" : "  ") + (total > first.length ? `  … ${total - first.length} more` : "")));
  return h("section", { class: "panel" }, children);
}

function summary(all) {
  const found = statistics(all);
  const odd = found.nans || found.infinite;
  return h("p", { class: "small" }, `least ${element(found.least)} · mean ${element(found.mean)} · greatest ${element(found.most)}`,
    odd ? h("span", { class: "bad-text" }, ` · ${number(found.nans)} NaN, ${number(found.infinite)} infinite`) : "");
}

function top(all) {
  return h("ol", { class: "top" }, greatest(all, 5).map((at) => h("li", {}, h("b", {}, `#${at}`), ` ${element(all[at])}`)));
}
