// One inference request with binary tensors, and its response.

import { getJson, request } from "./api.js";

const LENGTH = "Inference-Header-Content-Length";
export const MOST_BYTES = 256 * 1024 * 1024;

/** The body and the headers of a request; inputs are {name, datatype, shape, bytes}. */
export function makeRequest(inputs, parameters) {
  const header = {
    inputs: inputs.map(({ name, datatype, shape, bytes }) => ({ name, datatype, shape, parameters: { binary_data_size: bytes.length } })),
    parameters: { ...parameters, binary_data_output: true },
  };
  const head = new TextEncoder().encode(JSON.stringify(header));
  return { body: new Blob([head, ...inputs.map((input) => input.bytes)]), headers: { "Content-Type": "application/octet-stream", [LENGTH]: String(head.length) } };
}

/** Sends a request to a model; resolves to {header, outputs, bytes, ms, stages}, with the bytes of each output. */
export async function infer(path, inputs, parameters, signal) {
  const { body, headers } = makeRequest(inputs, parameters);
  const begun = performance.now();
  const response = await request("POST", `${path}/infer`, { body, headers: { ...headers, "Want-Server-Timing": "1" }, signal });
  const firstByte = performance.now();
  const whole = await read(response);
  const ended = performance.now();
  const length = Number(response.headers.get(LENGTH) ?? whole.length);
  const header = JSON.parse(new TextDecoder().decode(whole.subarray(0, length)));
  let at = length;
  const outputs = (header.outputs ?? []).map((output) => {
    const size = output.parameters?.binary_data_size ?? 0;
    const bytes = whole.subarray(at, at + size);
    at += size;
    return { ...output, bytes };
  });
  return { header, outputs, bytes: whole.length, ms: ended - begun, receivingMs: ended - firstByte, stages: stagesOf(response.headers.get("Server-Timing") ?? "") };
}

/** The stages of this one request, in milliseconds; null where the server names only the whole. */
function stagesOf(serverTiming) {
  const ms = Object.fromEntries(serverTiming.split(",").map((part) => part.trim().split(";dur=")).map(([name, value]) => [name, Number(value)]));
  if (!("infer" in ms || "cache" in ms)) return null;
  const { read = 0, queue = 0, batch = 0, input = 0, infer = 0, output = 0, cache = 0 } = ms;
  return { requests: 1, queue, batch, inputs: read + input, model: infer, outputs: output, cache };
}

async function read(response) {
  const announced = Number(response.headers.get("Content-Length") ?? 0);
  if (announced > MOST_BYTES) {
    response.body.cancel();
    throw new Error(`the answer has ${announced} bytes; the page reads up to ${MOST_BYTES}`);
  }
  return new Uint8Array(await response.arrayBuffer());
}

/** The counters of a model from which `stagesBetween` finds the time of a request. */
export async function counters(path) {
  const found = (await getJson(`${path}/stats`)).model_stats;
  const stats = found.at(-1).inference_stats;
  return { version: found.at(-1).version, ...stats };
}

/** The mean milliseconds of each stage between two looks at the counters; null when no request was counted. */
export function stagesBetween(before, after) {
  const requests = after.success.count - before.success.count;
  if (requests < 1 || before.version !== after.version) return null;
  const ms = (stage) => (after[stage].ns - before[stage].ns) / requests / 1e6;
  return { requests, queue: ms("queue"), inputs: ms("compute_input"), model: ms("compute_infer"), outputs: ms("compute_output"), whole: ms("success") };
}

/** Reads the events of a decoupled model, up to `most` of them; calls back for each. */
export async function stream(path, body, onevent, most, signal) {
  const response = await request("POST", `${path}/generate_stream`, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let seen = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return seen;
    rest += decoder.decode(value, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      seen += 1;
      if (seen > most) { reader.cancel(); return seen; }
      onevent(event.replace(/^data: /, ""));
    }
  }
}
