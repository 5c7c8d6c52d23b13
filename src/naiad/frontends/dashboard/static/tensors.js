// Tensors: datatypes, values from texts, and the binary form of the protocol (little endian), which has NaN and large
// integers where JSON has not.

const KINDS = {
  BOOL: { bytes: 1, array: Uint8Array }, UINT8: { bytes: 1, array: Uint8Array }, INT8: { bytes: 1, array: Int8Array },
  UINT16: { bytes: 2, array: Uint16Array }, INT16: { bytes: 2, array: Int16Array }, FP16: { bytes: 2, array: Uint16Array }, BF16: { bytes: 2, array: Uint16Array },
  UINT32: { bytes: 4, array: Uint32Array }, INT32: { bytes: 4, array: Int32Array }, FP32: { bytes: 4, array: Float32Array },
  UINT64: { bytes: 8, array: BigUint64Array }, INT64: { bytes: 8, array: BigInt64Array }, FP64: { bytes: 8, array: Float64Array },
};
const BIG = new Set(["INT64", "UINT64"]);
export const FLOATS = new Set(["FP16", "BF16", "FP32", "FP64"]);

/** The protocol's name of a datatype of a configuration. */
export function wireType(name) {
  const short = name.replace("TYPE_", "");
  return short === "STRING" ? "BYTES" : short;
}

export function count(shape) { return shape.reduce((product, size) => product * size, 1); }

/** A shape from a text such as "1, 3, 224"; an error for anything else. */
export function parseShape(text) {
  const parts = text.replace(/[[\]]/g, "").split(/[\s,x×]+/).filter(Boolean).map(Number);
  if (parts.some((size) => !Number.isInteger(size) || size < 0)) throw new Error(`'${text}' is no shape: expected sizes such as 1, 3, 224`);
  return parts;
}

/** The values in a text: JSON, or words with spaces or commas between them; for BYTES a line for each, or JSON. */
export function parseValues(text, datatype) {
  const trimmed = text.trim();
  if (trimmed.startsWith("[")) {
    let found;
    try {
      // Integers beyond 2^53 lose their last digits as numbers, so they are read as texts.
      found = JSON.parse(BIG.has(datatype) ? trimmed.replace(/-?\d{16,}/g, '"$&"') : trimmed);
    } catch (error) {
      throw new Error(`the values are no JSON: ${error.message}`);
    }
    return found.flat(Infinity);
  }
  if (datatype === "BYTES") return text.split("\n");
  return trimmed.split(/[\s,]+/).filter(Boolean);
}

/** The bytes of values; an error names the first that does not fit the datatype. */
export function encode(values, datatype) {
  if (datatype === "BYTES") return encodeStrings(values);
  const kind = KINDS[datatype];
  if (!kind) throw new Error(`the page cannot write ${datatype}`);
  const array = new kind.array(values.length);
  for (let at = 0; at < values.length; at += 1) array[at] = convert(values[at], datatype);
  return new Uint8Array(array.buffer);
}

function convert(value, datatype) {
  if (datatype === "BOOL") {
    if (/^(true|1)$/i.test(String(value))) return 1;
    if (/^(false|0)$/i.test(String(value))) return 0;
    throw new Error(`'${value}' is neither true nor false`);
  }
  if (BIG.has(datatype)) {
    try { return BigInt(value); } catch { throw new Error(`'${value}' is no whole number`); }
  }
  const words = { nan: NaN, inf: Infinity, "+inf": Infinity, "-inf": -Infinity, infinity: Infinity, "-infinity": -Infinity };
  const word = String(value).toLowerCase();
  const number = word in words ? words[word] : Number(value);
  if (Number.isNaN(number) && word !== "nan") throw new Error(`'${value}' is no number`);
  if (!FLOATS.has(datatype) && !Number.isInteger(number)) throw new Error(`'${value}' is no whole number, which ${datatype} needs`);
  if (datatype === "FP16") return toHalf(number);
  if (datatype === "BF16") return toBfloat(number);
  return number;
}

function encodeStrings(values) {
  const encoder = new TextEncoder();
  const parts = values.map((value) => (value instanceof Uint8Array ? value : encoder.encode(String(value))));
  const out = new Uint8Array(parts.reduce((size, part) => size + 4 + part.length, 0));
  const view = new DataView(out.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.length, true);
    out.set(part, at + 4);
    at += 4 + part.length;
  }
  return out;
}

/** Up to `most` values from the bytes of a tensor, and all numbers as an array for statistics (null for BYTES). */
export function decode(bytes, datatype, most) {
  if (datatype === "BYTES") return { first: decodeStrings(bytes, most), all: null };
  const kind = KINDS[datatype];
  if (!kind) return { first: [], all: null };
  // The bytes may lie anywhere in the body, and arrays need an aligned beginning.
  const raw = new kind.array(bytes.slice().buffer, 0, Math.floor(bytes.length / kind.bytes));
  const all = datatype === "FP16" ? Float32Array.from(raw, fromHalf) : datatype === "BF16" ? Float32Array.from(raw, fromBfloat) : raw;
  const first = Array.from(all.subarray(0, most));
  return { first: datatype === "BOOL" ? first.map((value) => value !== 0) : first, all: BIG.has(datatype) ? null : all };
}

function decodeStrings(bytes, most) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const decoder = new TextDecoder("utf-8");
  const found = [];
  let at = 0;
  while (at + 4 <= bytes.length && found.length < most) {
    const size = view.getUint32(at, true);
    found.push(decoder.decode(bytes.subarray(at + 4, at + 4 + Math.min(size, 2000))) + (size > 2000 ? "…" : ""));
    at += 4 + size;
  }
  return found;
}

/** What can be said of many numbers: the least, the greatest, the mean, and how many are NaN or infinite. */
export function statistics(all) {
  let least = Infinity;
  let most = -Infinity;
  let sum = 0;
  let finite = 0;
  let nans = 0;
  for (const value of all) {
    if (Number.isNaN(value)) { nans += 1; continue; }
    if (value < least) least = value;
    if (value > most) most = value;
    if (Number.isFinite(value)) { sum += value; finite += 1; }
  }
  return { least, most, mean: finite ? sum / finite : NaN, nans, infinite: all.length - finite - nans };
}

/** The places of the `most` greatest numbers. */
export function greatest(all, most) {
  const found = [];
  all.forEach((value, at) => {
    if (Number.isNaN(value) || (found.length === most && value <= all[found[most - 1]])) return;
    const place = found.findIndex((other) => all[other] < value);
    found.splice(place < 0 ? found.length : place, 0, at);
    if (found.length > most) found.pop();
  });
  return found;
}

const FLOAT = new Float32Array(1);
const BITS = new Uint32Array(FLOAT.buffer);

function toHalf(value) {
  FLOAT[0] = value;
  const bits = BITS[0];
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const fraction = bits & 0x7fffff;
  if (exponent >= 31) return sign | (Number.isNaN(value) ? 0x7e00 : 0x7c00);
  if (exponent <= 0) {
    if (exponent < -10) return sign;
    const shift = 14 - exponent;
    const whole = fraction | 0x800000;
    return sign | ((whole + (1 << (shift - 1)) - 1 + ((whole >>> shift) & 1)) >>> shift);
  }
  // To nearest, halves to even; a carry into the exponent is right.
  return sign | (((exponent << 23) | fraction) + 0xfff + ((bits >>> 13) & 1)) >>> 13;
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 31;
  const fraction = bits & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

function toBfloat(value) {
  FLOAT[0] = value;
  return Number.isNaN(value) ? 0x7fc0 : (BITS[0] + 0x7fff + ((BITS[0] >>> 16) & 1)) >>> 16;
}

function fromBfloat(bits) {
  BITS[0] = bits << 16;
  return FLOAT[0];
}
