// The one stream of events. It is read with fetch, since EventSource cannot send an API key, and opened again when it ends.

import { request } from "./api.js";

const LONGEST_WAIT_MS = 10000;
const SILENCE_MS = 8000;

export class EventStream {
  /** `handlers` has a function for each event; `onstate` gets "live", "lost" or "refused", and a text. */
  constructor(path, handlers, onstate) {
    this.path = path;
    this.handlers = handlers;
    this.onstate = onstate;
    this.attempt = 0;
    this.generation = 0;
  }

  /** Opens the stream, now; an open one is closed first. */
  start() {
    this.stop();
    this.run(this.generation);
  }

  stop() {
    this.generation += 1;
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.controller?.abort();
  }

  async run(generation) {
    this.controller = new AbortController();
    try {
      const response = await request("GET", this.path, { signal: this.controller.signal });
      this.attempt = 0;
      await this.read(response.body.getReader(), generation);
      this.again(generation, "the server has closed the connection");
    } catch (error) {
      if (generation !== this.generation) return;
      if (error.status === 401 || error.status === 403) this.onstate("refused", error.message);
      else this.again(generation, error.name === "AbortError" ? "the server is silent" : error.message);
    }
  }

  again(generation, text) {
    if (generation !== this.generation) return;
    this.onstate("lost", text);
    clearTimeout(this.silence);
    this.attempt += 1;
    this.timer = setTimeout(() => this.run(generation), Math.min(LONGEST_WAIT_MS, 500 * 2 ** Math.min(this.attempt, 5)));
  }

  async read(reader, generation) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => this.controller.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      if (done || generation !== this.generation) return;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) this.deliver(event);
    }
  }

  deliver(text) {
    const [first, ...data] = text.split("\n");
    const name = first.replace("event: ", "");
    const handler = this.handlers[name];
    if (!handler) return;
    if (name === "hello") this.onstate("live", "");
    handler(JSON.parse(data.join("\n").replace("data: ", "")));
  }
}
