// The request of the form as a program: curl, Python over HTTP, Python over gRPC.

import { count, FLOATS } from "./tensors.js";

const MOST_VALUES = 64;
const NUMPY = { BOOL: "np.bool_", FP16: "np.float16", FP32: "np.float32", FP64: "np.float64", BYTES: "np.object_" };

/** The programs by name. `inputs` are {name, datatype, shape, values}, of which long ones become zeros. */
export function snippets(server, model, version, inputs, outputs, hasKey, grpc) {
  return {
    curl: curl(server, model, version, inputs, hasKey),
    Python: python("http", server, model, version, inputs, outputs, hasKey),
    gRPC: python("grpc", grpc, model, version, inputs, outputs, hasKey),
  };
}

function curl(server, model, version, inputs, hasKey) {
  const long = inputs.some((input) => !isShort(input) || !isJson(input));
  const tensors = inputs.map((input) => JSON.stringify({ name: input.name, datatype: input.datatype, shape: input.shape, data: isShort(input) ? jsonValues(input) : ["..."] }));
  const body = `{"inputs": [\n  ${tensors.join(",\n  ")}\n]}`;
  const path = `${pathOf(model, version)}/infer`;
  const key = keyOption(hasKey);
  const note = long ? "# The values in \"...\" do not fit here, or JSON does not have them: put them into the body.\n" : "";
  return `${note}curl -s ${server}${path}${key} \\\n  -H 'Content-Type: application/json' -d @- <<'END'\n${body}\nEND\n`;
}

/** The programs for a decoupled model, whose flat inputs are `body`. */
export function streamSnippets(server, model, version, body, inputs, hasKey, grpc) {
  const text = JSON.stringify(body);
  const url = `${server}${pathOf(model, version)}/generate_stream`;
  const json = text.length < 4000 ? text : "{}";
  const headers = `{"Content-Type": "application/json"${hasKey ? `, "Authorization": f"Bearer {os.environ['NAIAD_API_KEY']}"` : ""}}`;
  return {
    curl: `curl -sN ${url}${keyOption(hasKey)} \\\n  -H 'Content-Type: application/json' -d @- <<'END'\n${json}\nEND\n`,
    Python: [...(hasKey ? ["import os"] : []), "from urllib.request import Request, urlopen", "", `body = ${quoted(json)}.encode()`,
      `with urlopen(Request(${quoted(url)}, body, ${headers})) as events:`, "    for line in events:", "        print(line.decode(), end=\"\")", ""].join("\n"),
    gRPC: python("grpc", grpc, model, version, inputs, [], hasKey)
      .replace(/result = client\.infer\((.*)\)\n/, (_, given) => `client.start_stream(lambda result, error: print(error or result.get_response())${hasKey ? `, ${given.slice(given.indexOf("headers="))}` : ""})\nclient.async_stream_infer(${given.replace(/, headers=.*/, "")})\nclient.stop_stream()\n`),
  };
}

function pathOf(model, version) { return `/v2/models/${encodeURIComponent(model)}${version ? `/versions/${version}` : ""}`; }

function keyOption(hasKey) { return hasKey ? ` \\\n  -H "Authorization: Bearer $NAIAD_API_KEY"` : ""; }

function python(kind, server, model, version, inputs, outputs, hasKey) {
  const url = server.replace(/^https?:\/\//, "");
  const tls = server.startsWith("https:") ? ", ssl=True" : "";
  const lines = [`# pip install "tritonclient[${kind}]"`, ...(hasKey ? ["import os", ""] : []), "import numpy as np", `import tritonclient.${kind} as triton`, "",
    `client = triton.InferenceServerClient("${url}"${tls})`, "inputs = []"];
  for (const input of inputs) {
    lines.push(`values = ${array(input)}`, `tensor = triton.InferInput(${quoted(input.name)}, list(values.shape), "${input.datatype}")`, "tensor.set_data_from_numpy(values)", "inputs.append(tensor)");
  }
  const options = [quoted(model), "inputs", ...(version ? [`model_version="${version}"`] : []), ...(hasKey ? [`headers={"${kind === "grpc" ? "authorization" : "Authorization"}": f"Bearer {os.environ['NAIAD_API_KEY']}"}`] : [])];
  lines.push(`result = client.infer(${options.join(", ")})`);
  for (const name of outputs) lines.push(`print(result.as_numpy(${quoted(name)}))`);
  return `${lines.join("\n")}\n`;
}

function array({ datatype, shape, values }) {
  const type = NUMPY[datatype] ?? (datatype === "BF16" ? "np.float32" : `np.${datatype.toLowerCase()}`);
  const size = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  if (!isShort({ shape, values })) return `np.zeros(${size}, ${type})  # put your values here`;
  const texts = values.map((value) => literal(value, datatype));
  return `np.array([${texts.join(", ")}], ${type}).reshape(${size})`;
}

function literal(value, datatype) {
  if (datatype === "BYTES") return `${quoted(String(value))}.encode()`;
  if (datatype === "BOOL") return /^(true|1)$/i.test(String(value)) ? "True" : "False";
  const word = String(value).toLowerCase();
  if (word === "nan") return "np.nan";
  if (/^[+-]?inf(inity)?$/.test(word)) return word.startsWith("-") ? "-np.inf" : "np.inf";
  return String(value);
}

function jsonValues({ datatype, values }) {
  if (datatype === "BYTES") return values.map(String);
  if (datatype === "BOOL") return values.map((value) => /^(true|1)$/i.test(String(value)));
  return values.map((value) => (Number.isFinite(Number(value)) ? Number(value) : "..."));
}

function isShort({ shape, values }) { return count(shape) <= MOST_VALUES && values.length <= MOST_VALUES; }

// The protocol's JSON has neither NaN nor 16-bit floats.
function isJson({ datatype, values }) {
  return !["FP16", "BF16"].includes(datatype) && (!FLOATS.has(datatype) || values.every((value) => Number.isFinite(Number(value))));
}

function quoted(text) { return JSON.stringify(text); }
