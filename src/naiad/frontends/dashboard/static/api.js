// Requests to the server. The API key is kept in this module's memory alone: it is gone with the page.

let key = "";

export function setKey(text) { key = text.trim(); }
export function hasKey() { return key !== ""; }

/** An error that the server sent: its status and its text. */
export class ApiError extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

function withKey(headers) {
  return key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
}

/** The response to a request; an ApiError for another status than 2xx. */
export async function request(method, path, { body, headers = {}, signal } = {}) {
  let response;
  try {
    response = await fetch(path, { method, body, signal, headers: withKey(headers), credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not respond");
  }
  if (!response.ok) throw new ApiError(response.status, await errorText(response));
  return response;
}

async function errorText(response) {
  const text = (await response.text()).slice(0, 20000);
  try {
    return JSON.parse(text).error || text;
  } catch {
    return text || `${response.status} ${response.statusText}`;
  }
}

export async function getJson(path, signal) {
  return (await request("GET", path, { signal })).json();
}

/** Posts JSON; resolves to the answer's JSON, null for an empty one. */
export async function postJson(path, value, signal) {
  const response = await request("POST", path, { body: JSON.stringify(value), headers: { "Content-Type": "application/json" }, signal });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/** The path of a model, or of one of its versions. */
export function modelPath(model, version = "") {
  const path = `/v2/models/${encodeURIComponent(model)}`;
  return version ? `${path}/versions/${encodeURIComponent(version)}` : path;
}
