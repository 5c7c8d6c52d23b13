// Numbers as people read them.

const NONE = "–";

/** A number to three significant digits, such as 12.3k. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)}G`;
  if (size >= 1e6) return `${digits(value / 1e6)}M`;
  if (size >= 1e4) return `${digits(value / 1e3)}k`;
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return String(Math.round(value));
  if (size >= 10) return strip(value.toFixed(1));
  if (size >= 0.01) return strip(value.toFixed(2));
  return value.toPrecision(2);
}

function strip(text) {
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

/** Milliseconds with a unit that fits. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return NONE;
  if (ms >= 60000) return `${digits(ms / 60000)} min`;
  if (ms >= 1000) return `${digits(ms / 1000)} s`;
  if (ms >= 1) return `${digits(ms)} ms`;
  return `${digits(ms * 1000)} µs`;
}

/** Bytes with a unit that fits. */
export function bytes(value) {
  if (!value) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${digits(value)} ${units[unit]}`;
}

/** A share, 0 to 1. */
export function percent(value) {
  return value === null || value === undefined ? NONE : `${Math.round(value * 100)}%`;
}

/** The time of day of seconds since 1970. */
export function timeOfDay(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

/** One value of a tensor. */
export function element(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return Number.isFinite(value) ? String(Number(value.toPrecision(6))) : String(value);
}
