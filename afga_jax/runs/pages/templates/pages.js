"use strict";
// What the pages share. Names from outside reach the document as text nodes only.

const content = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);

// Okabe and Ito's colours, distinct also for the colour-blind; black is the ink.
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8f98", "#a6761d", "#7570b3", "#66a61e"];
const DASHES = ["", "7 4", "2 3", "8 3 2 3"];
const colorOf = (number) => COLORS[number % COLORS.length];
const dashOf = (number) => DASHES[Math.floor(number / COLORS.length) % DASHES.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const SVG = new Set(["svg", "path", "line", "text", "g", "circle", "rect", "title"]);

/** An element with attributes and children; texts become text nodes. */
function make(name, attributes = {}, ...children) {
  const node = SVG.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function digits(value, count = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  return Number(value.toPrecision(count)).toLocaleString("en", { maximumFractionDigits: 8 });
}

function sized(value, unit = "B") {
  if (value === null || value === undefined) return "–";
  const steps = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  while (Math.abs(value) >= 1000 && step < steps.length - 1) { value /= 1000; step += 1; }
  const space = unit || steps[step] ? "\u202f" : "";
  return digits(value, 3) + space + steps[step] + unit;
}

function duration(hours) {
  if (hours === null || hours === undefined) return "–";
  const seconds = hours * 3600;
  if (seconds < 120) return `${digits(seconds, 3)}\u202fs`;
  return seconds < 7200 ? `${digits(seconds / 60, 3)}\u202fmin` : `${digits(hours, 3)}\u202fh`;
}

/** Round values at which an axis is marked. */
function ticks(low, high, count) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => span / s <= count) || 10 * power;
  const marks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-9 * span; at += step) marks.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return marks;
}

/**
 * A chart of curves with values on hover and by the arrow keys.
 * curves: {name, color, dash, x, y, low, high, hidden}; low and high bound a band.
 * Returns {node, draw(options)}; draw takes the same options again.
 */
function lineChart(options) {
  const tip = make("p", { class: "tip", "aria-live": "polite" });
  const svg = make("svg", { tabindex: "0", role: "img", "data-chart": options.id });
  const node = make("div", {}, svg, tip);
  let chosen = null;
  let places = [];
  const pad = { left: 52, right: 14, top: 10, bottom: 38 };

  function draw(changes) {
    options = { ...options, ...changes };
    const width = Math.max(260, node.clientWidth || 560);
    const height = options.height || Math.max(200, Math.min(340, width * 0.55));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", `${options.yLabel} against ${options.xLabel}. Arrow keys read values.`);
    const shown = options.curves.filter((curve) => !curve.hidden);
    const known = (values) => values.filter((v) => v !== null && Number.isFinite(v));
    const xs = shown.flatMap((c) => known(c.x));
    const ys = shown.flatMap((c) => known([...c.y, ...(c.low || []), ...(c.high || [])]));
    const bounds = (values, fixed) => {
      let [low, high] = values.length ? [Infinity, -Infinity] : [0, 1];
      for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
      if (low === high) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
      return fixed || [low, high];
    };
    const [x0, x1] = bounds(xs, options.xRange);
    let [y0, y1] = bounds(ys, options.yRange);
    if (!options.yRange) { const margin = 0.04 * (y1 - y0); y0 -= y0 === 0 ? 0 : margin; y1 += margin; }
    const px = (x) => pad.left + ((x - x0) / (x1 - x0)) * (width - pad.left - pad.right);
    const py = (y) => height - pad.bottom - ((y - y0) / (y1 - y0)) * (height - pad.top - pad.bottom);
    const format = options.yFormat || digits, across = options.xFormat || ((v) => sized(v, ""));
    svg.replaceChildren();
    for (const mark of ticks(y0, y1, 5)) {
      svg.append(make("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: py(mark), y2: py(mark) }));
      svg.append(make("text", { x: pad.left - 7, y: py(mark) + 4, "text-anchor": "end" }, format(mark)));
    }
    for (const mark of ticks(x0, x1, width < 420 ? 4 : 7)) {
      svg.append(make("text", { x: px(mark), y: height - pad.bottom + 16, "text-anchor": "middle" }, across(mark)));
    }
    svg.append(make("text", { x: (pad.left + width - pad.right) / 2, y: height - 4, "text-anchor": "middle" }, options.xLabel));
    for (const level of options.levels || []) {
      if (level.y < y0 || level.y > y1) continue;
      svg.append(make("line", { x1: pad.left, x2: width - pad.right, y1: py(level.y), y2: py(level.y), stroke: level.color, "stroke-dasharray": "2 4" }));
      svg.append(make("text", { x: width - pad.right, y: py(level.y) - 4, "text-anchor": "end" }, level.name));
    }
    for (const curve of shown) drawCurve(svg, curve, px, py);
    if (options.mark !== undefined && options.mark !== null) {
      svg.append(make("line", { class: "cross", x1: px(options.mark), x2: px(options.mark), y1: pad.top, y2: height - pad.bottom }));
    }
    places = [...new Set(xs)].sort((a, b) => a - b);
    node.pick = (x) => {
      svg.querySelectorAll(".picked").forEach((old) => old.remove());
      svg.append(make("line", { class: "cross picked", x1: px(x), x2: px(x), y1: pad.top, y2: height - pad.bottom }));
      const parts = [make("b", {}, `${options.xLabel} ${across(x)}`)];
      for (const curve of shown) {
        const at = nearest(curve.x, x);
        if (at < 0 || curve.y[at] === null) continue;
        svg.append(make("circle", { class: "picked", cx: px(curve.x[at]), cy: py(curve.y[at]), r: 4, fill: curve.color }));
        const more = curve.spread && curve.spread[at] ? ` ± ${format(curve.spread[at])}` : "";
        parts.push(" · ", make("span", { style: { color: curve.color } }, "● "), `${curve.name} `, make("b", {}, format(curve.y[at]) + more));
      }
      tip.replaceChildren(...parts);
      if (options.onpick) options.onpick(x);
    };
    node.at = (clientX) => {
      const box = svg.getBoundingClientRect();
      const x = x0 + (((clientX - box.left) / box.width) * width - pad.left) / (width - pad.left - pad.right) * (x1 - x0);
      return places[nearest(places, x)];
    };
  }

  svg.addEventListener("pointermove", (event) => { if (places.length) { chosen = node.at(event.clientX); node.pick(chosen); } });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !places.length) return;
    event.preventDefault();
    const at = chosen === null ? (step > 0 ? -1 : places.length) : places.indexOf(chosen);
    chosen = places[Math.max(0, Math.min(places.length - 1, at + step))];
    node.pick(chosen);
  });
  new ResizeObserver(() => draw({})).observe(node);
  return { node, draw };
}

function drawCurve(svg, curve, px, py) {
  const points = curve.x.map((x, i) => [x, curve.y[i]]).filter(([x, y]) => x !== null && y !== null);
  if (curve.low) {
    const band = curve.x.map((x, i) => [x, curve.low[i], curve.high[i]]).filter((p) => p.every((v) => v !== null));
    const up = band.map(([x, , high]) => `${px(x)},${py(high)}`), down = band.map(([x, low]) => `${px(x)},${py(low)}`).reverse();
    if (band.length > 1) svg.append(make("path", { d: `M${[...up, ...down].join("L")}Z`, fill: curve.color, opacity: 0.16 }));
  }
  const path = make("path", {
    d: points.length ? `M${points.map(([x, y]) => `${px(x)},${py(y)}`).join("L")}` : "",
    fill: "none", stroke: curve.color, "stroke-width": 2.2, "stroke-linejoin": "round", "stroke-dasharray": curve.dash || null, "data-curve": curve.name,
  });
  path.append(make("title", {}, curve.name));
  svg.append(path);
  if (points.length < 25) for (const [x, y] of points) svg.append(make("circle", { cx: px(x), cy: py(y), r: 2.6, fill: curve.color }));
}

function nearest(values, x) {
  let best = -1;
  values.forEach((value, i) => { if (value !== null && (best < 0 || Math.abs(value - x) < Math.abs(values[best] - x))) best = i; });
  return best;
}

/** A table from rows of texts; the first row is the head. */
function table(rows, attributes = {}) {
  const [head, ...body] = rows;
  const line = (cells, kind) => make("tr", {}, ...cells.map((cell) => make(kind, kind === "th" ? { scope: "col" } : {}, cell)));
  return make("div", { class: "scroll", tabindex: "0" }, make("table", attributes, make("thead", {}, line(head, "th")), make("tbody", {}, ...body.map((cells) => line(cells, "td")))));
}
