// Small charts, drawn as SVG and redrawn in place once a second.

import { h, setText, svg } from "./dom.js";

const STEPS = 60;

/** A line without axes, for rows and gauges. */
export function sparkline(width = 72, height = 18) {
  const line = svg("path", { fill: "none", class: "spark-line" });
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "spark", "aria-hidden": "true" }, line);
  return { node, draw: (values) => line.setAttribute("d", path(values, width, height, Math.max(...values, 0) || 1)) };
}

/** A chart of the last minute with one or two lines; `draw` gets a list per line. */
export function minuteChart(title, format, kinds) {
  const width = 300;
  const height = 84;
  const lines = kinds.map((kind) => svg("path", { fill: "none", class: `line ${kind.class}` }));
  const area = svg("path", { class: "area" });
  const grid = [0.25, 0.5, 0.75].map((share) => svg("line", { x1: 0, x2: width, y1: height * share, y2: height * share, class: "grid-line" }));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...grid, area, ...lines);
  const values = kinds.map((kind) => h("span", { class: `value ${kind.class}` }));
  const top = h("span", { class: "axis" });
  const legend = kinds.map((kind, at) => h("span", { class: "key-of" }, kind.name ? `${kind.name} ` : "", values[at]));
  const node = h("figure", { class: "chart" }, h("figcaption", {}, h("span", {}, title), h("span", { class: "legend" }, legend)), h("div", { class: "plot" }, picture, top));
  return {
    node,
    draw(series) {
      const most = Math.max(...series.flat().filter((value) => value !== null), 0);
      const scale = niceCeiling(most);
      series.forEach((list, at) => {
        lines[at].setAttribute("d", path(list, width, height, scale));
        setText(values[at], format(list.at(-1) ?? null));
      });
      area.setAttribute("d", areaPath(series[0], width, height, scale));
      setText(top, most ? format(scale) : "");
    },
  };
}

/** Horizontal bars, such as runs by batch size; `draw` gets pairs of a label and a value. */
export function bars(title, empty) {
  const list = h("ol", { class: "bars" });
  const note = h("p", { class: "muted" }, empty);
  const node = h("section", { class: "panel" }, h("h3", {}, title), note, list);
  return {
    node,
    draw(pairs, format) {
      note.hidden = pairs.length > 0;
      const most = Math.max(...pairs.map(([, value]) => value), 1e-9);
      while (list.children.length > pairs.length) list.lastChild.remove();
      pairs.forEach(([label, value], at) => {
        if (!list.children[at]) list.append(bar());
        const [name, meter, text] = list.children[at].children;
        setText(name, label);
        meter.firstChild.style.width = `${Math.max(1, (value / most) * 100)}%`;
        setText(text, format(value));
      });
    },
  };
}

function bar() {
  return h("li", {}, h("span", { class: "bar-name" }), h("span", { class: "bar" }, h("i")), h("span", { class: "bar-value" }));
}

/** A bar that is divided among named parts, with a legend; `parts` are [name, milliseconds, class]. */
export function timeline(parts, format) {
  const total = parts.reduce((sum, [, ms]) => sum + ms, 0) || 1;
  const shown = parts.filter(([, ms]) => ms > 0);
  const strip = h("div", { class: "strip", "aria-hidden": "true" }, shown.map(([, ms, kind]) => {
    const part = h("i", { class: `part ${kind}` });
    part.style.flexGrow = String(ms / total);
    return part;
  }));
  const legend = h("ul", { class: "strip-legend" }, shown.map(([name, ms, kind]) => h("li", {}, h("i", { class: `dot ${kind}`, "aria-hidden": "true" }), `${name} ${format(ms)}`)));
  return h("div", { class: "timeline" }, strip, legend);
}

function path(values, width, height, scale) {
  let text = "";
  let begins = true;
  values.forEach((value, at) => {
    if (value === null) { begins = true; return; }
    text += `${begins ? "M" : "L"}${x(at, values, width).toFixed(1)} ${y(value, height, scale).toFixed(1)}`;
    begins = false;
  });
  return text;
}

function areaPath(values, width, height, scale) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return "";
  const first = x(values.findIndex((value) => value !== null), values, width).toFixed(1);
  return `${path(values, width, height, scale).replace(/(?!^)M/g, "L")}L${width} ${height}L${first} ${height}Z`;
}

function x(at, values, width) { return width - ((values.length - 1 - at) * width) / (STEPS - 1); }

function y(value, height, scale) { return height - 2 - (value / scale) * (height - 6); }

function niceCeiling(value) {
  if (!value) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * unit).find((step) => step >= value);
}
