// Making elements. Texts are always text nodes: nothing that comes from the server is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, attributes (names with "-" or "role"), listeners ("on...") and children. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name.includes("-") || name in ATTRIBUTES) node.setAttribute(name, value === true ? "" : value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const ATTRIBUTES = { role: 1, for: 1, list: 1, open: 1, colspan: 1, scope: 1 };

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets a node's text only if it changes, so that selections and readers are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows a short message for a few seconds; errors stay until they are dismissed. */
export function toast(text, kind = "good") {
  const box = document.getElementById("toasts");
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => note.remove() }, "×");
  const note = h("div", { class: `toast ${kind}` }, h("span", {}, text), close);
  while (box.children.length > 3) box.firstChild.remove();
  box.append(note);
  if (kind !== "bad") setTimeout(() => note.remove(), 5000);
}

/** Asks a question in a dialog; resolves to true when it is confirmed. */
export function confirmed(title, text, action, dangerous = false) {
  return new Promise((resolve) => {
    const no = h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel");
    const yes = h("button", { type: "button", class: dangerous ? "danger" : "primary", onclick: () => dialog.close("yes") }, action);
    const heading = h("h2", { id: "dialog-title" }, title);
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, heading, h("p", {}, text), h("div", { class: "row end" }, no, yes));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Copies a text, and says so. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    const area = h("textarea", { value: text, class: "offscreen", "aria-label": "Text to copy" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    toast(done ? "Copied" : "The browser does not let the page copy: select the text instead", done ? "good" : "bad");
  }
}
