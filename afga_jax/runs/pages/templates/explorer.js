// The round explorer. A moment is the start of a cycle, the end of one of its local
// steps, or its upload; a gradient is {cycle, step, at}, `at` its place among the active.

const view = content;
const size = view.clients.length;
const moments = view.cycles.flatMap((cycle, number) => [
  { cycle: number, kind: "start", step: -1 },
  ...cycle.active.map((_, step) => ({ cycle: number, kind: "step", step })),
  { cycle: number, kind: "upload", step: cycle.active.length },
]);
const firstOf = view.cycles.map((_, number) => moments.findIndex((m) => m.cycle === number));
const largest = Math.max(...view.cycles.flatMap((c) => c.weight.flat()), 1e-12);
const meanWeight = mean(view.cycles.flatMap((c) => c.weight.flat()));
const order = [...view.clients.keys()].sort((a, b) => view.cluster[a] - view.cluster[b] || a - b);
const lineOf = new Int32Array(size);
order.forEach((client, line) => { lineOf[client] = line; });
const state = { moment: 0, hovered: null, pinned: null, client: null, colour: "cluster", timer: null };
for (const graph of view.graphs) graph.columns = graph.columns.map(unpacked);
const edges = new Map(); // by graph: pairs of clients, each once
let places = [];

/** The numbers of half-open ranges: from, to, from, to, … */
function unpacked(ranges) {
  const numbers = [];
  for (let i = 0; i < ranges.length; i += 2) for (let number = ranges[i]; number < ranges[i + 1]; number += 1) numbers.push(number);
  return numbers;
}

function mean(values) { return values.length ? values.reduce((a, b) => a + b, 0) / values.length : 0; }
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const clientName = (client) => `client ${view.clients[client]}`;
const stepsOf = (number) => view.cycles[number].active.length;
const isLost = (g) => !view.cycles[g.cycle].needed[g.step][g.at];
const weightOf = (g) => view.cycles[g.cycle].weight[g.step][g.at];
const clientOf = (g) => view.cycles[g.cycle].active[g.step][g.at];
const shownGradient = () => state.hovered || state.pinned;
const same = (a, b) => a && b && a.cycle === b.cycle && a.step === b.step && a.at === b.at;

/** x ← Wx; rows that several clients share are summed once. */
function mixed(graph, shares) {
  if (!graph) return shares;
  const sums = graph.columns.map((columns, number) => {
    const weights = graph.weights[number];
    let sum = 0;
    columns.forEach((column, k) => { sum += shares[column] * (weights.length ? weights[k] : weights); });
    return sum * 1e-7;
  });
  return Float64Array.from(shares, (own, client) => (graph.row[client] < 0 ? own : sums[graph.row[client]]));
}

/** The shares of a gradient in the clients' models, after each step from its own on. */
let followed = { gradient: null, shares: [] };
function sharesOf(gradient) {
  if (same(followed.gradient, gradient)) return followed.shares;
  const cycle = view.cycles[gradient.cycle];
  let now = new Float64Array(size);
  now[clientOf(gradient)] = 1;
  const shares = [];
  for (let step = gradient.step; step < cycle.active.length; step += 1) {
    if (step > gradient.step || !view.mix_first) now = mixed(view.graphs[cycle.mixing[step]], now);
    shares.push(now);
  }
  followed = { gradient, shares };
  return shares;
}

/** Its shares at a moment; null: it is not there yet, or the cycle is over. */
function sharesAt(gradient, moment) {
  const { cycle, step } = moments[moment];
  if (cycle !== gradient.cycle || step < gradient.step) return null;
  const shares = sharesOf(gradient);
  return shares[Math.min(step - gradient.step, shares.length - 1)];
}

// ---- Colours -------------------------------------------------------------------------

function mixedColor(from, to, share) {
  const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [parse(from), parse(to)];
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * share)).join(",")})`;
}

const commonest = view.labels && view.labels.map((row) => row.indexOf(Math.max(...row)));
const farthest = view.cycles.map((c) => (c.distance ? Math.max(...c.distance.map((row) => Math.max(...row)), 1e-12) : null));
let theme = {};

function colourOf(client, shares) {
  if (shares) {
    const top = shares.reduce((a, b) => Math.max(a, b), 0);
    return shares[client] > 0 ? mixedColor(theme.low, theme.accent, 0.15 + 0.85 * Math.sqrt(shares[client] / top)) : theme.card;
  }
  const { cycle, step } = moments[state.moment];
  if (state.colour === "label") return mixedColor(theme.low, colorOf(commonest[client]), 0.25 + 0.75 * view.labels[client][commonest[client]]);
  if (state.colour === "distance") {
    const rows = view.cycles[cycle].distance;
    const far = step < 0 ? 0 : rows[Math.min(step, rows.length - 1)][client];
    return mixedColor(theme.low, theme.accent, Math.sqrt(far / farthest[cycle]));
  }
  return colorOf(view.cluster[client]);
}

// ---- The graph -----------------------------------------------------------------------

/** Points at equal distances on a closed curve; many clients need more of it than a circle has. */
function closedCurve(count, radius) {
  const waves = count > 150 ? 9 : 0, fine = 20 * Math.max(count, 100);
  const at = (angle) => {
    const r = radius * (waves ? 0.74 + 0.26 * Math.cos(waves * (angle + Math.PI / 2)) : 1);
    return [r * Math.cos(angle), r * Math.sin(angle)];
  };
  const points = [...Array(fine + 1).keys()].map((i) => at((2 * Math.PI * i) / fine - Math.PI / 2));
  const along = [0];
  for (let i = 1; i <= fine; i += 1) along.push(along[i - 1] + Math.hypot(points[i][0] - points[i - 1][0], points[i][1] - points[i - 1][1]));
  const spacing = along[fine] / count;
  const chosen = [];
  for (let i = 0, k = 0; k < count; k += 1) {
    while (along[i] < k * spacing) i += 1;
    chosen.push(points[i]);
  }
  return { chosen, spacing };
}

/** Each cluster is a closed curve; several stand around a circle. */
function layout(width) {
  if (layout.width === width) return;
  layout.width = width;
  const clusters = [...new Set(order.map((client) => view.cluster[client]))];
  const margin = 26, half = width / 2 - margin;
  const many = clusters.length;
  const turn = many > 1 ? Math.sin(Math.PI / many) : 1;
  const inner = many > 1 ? (half * turn) / (1 + turn) : half;
  const outer = many > 1 ? half - inner : 0;
  places = new Array(size);
  clusters.forEach((cluster, number) => {
    const members = order.filter((client) => view.cluster[client] === cluster);
    const angle = (2 * Math.PI * number) / many - Math.PI / 2;
    const [cx, cy] = [width / 2 + outer * Math.cos(angle), width / 2 + outer * Math.sin(angle)];
    const radius = members.length > 1 ? inner * (many > 1 ? 0.8 : 1) : 0;
    const curve = closedCurve(members.length, radius);
    members.forEach((client, k) => { places[client] = [cx + curve.chosen[k][0], cy + curve.chosen[k][1]]; });
    const spacing = members.length > 1 ? curve.spacing : 40;
    layout.dot = Math.min(number ? layout.dot : 11, Math.max(2.2, 0.42 * spacing));
    layout.named = (number ? layout.named : true) && spacing > 30;
  });
}

function edgesOf(number) {
  if (!edges.has(number)) {
    const graph = view.graphs[number], pairs = [];
    graph.row.forEach((row, client) => {
      if (row < 0) return;
      for (const other of graph.columns[row]) if (other < client || (other > client && !reads(graph, other, client))) pairs.push([client, other]);
    });
    edges.set(number, pairs);
  }
  return edges.get(number);
}
const reads = (graph, client, other) => graph.row[client] >= 0 && graph.columns[graph.row[client]].includes(other);
const MOST_LINES = 4000;

function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function drawGraph() {
  const canvas = byId("graph");
  const width = canvas.parentElement.clientWidth;
  const pen = prepared(canvas, width, width);
  layout(width);
  const { cycle: number, kind, step } = moments[state.moment];
  const cycle = view.cycles[number], gradient = shownGradient();
  const shares = gradient && sharesAt(gradient, state.moment);
  const before = gradient && state.moment > 0 ? sharesAt(gradient, state.moment - 1) : null;
  const graph = cycle.mixing[Math.max(0, Math.min(step, cycle.mixing.length - 1))];
  if (graph >= 0) drawLines(pen, graph, kind === "step", shares, before, gradient);
  const active = new Map(kind === "step" ? cycle.active[step].map((client, at) => [client, at]) : []);
  const uploads = new Set(view.served ? cycle.uploads : []), holders = new Set(cycle.holders);
  for (let client = 0; client < size; client += 1) {
    drawClient(pen, client, { shares, active, uploads, holds: holders.has(client), cycle, step, kind });
  }
  if (kind === "upload" && view.served) drawServer(pen, width, cycle);
}

function drawLines(pen, number, now, shares, before, gradient) {
  const pairs = edgesOf(number), every = Math.ceil(pairs.length / MOST_LINES);
  pen.strokeStyle = now ? theme.quiet : theme.faint;
  pen.lineWidth = 1;
  pen.globalAlpha = Math.max(0.05, Math.min(now ? 0.65 : 0.9, 700 / pairs.length));
  pen.beginPath();
  for (let i = 0; i < pairs.length; i += every) {
    const [a, b] = pairs[i];
    pen.moveTo(...places[a]);
    pen.lineTo(...places[b]);
  }
  pen.stroke();
  if (gradient && shares && now) {
    const had = (client) => (before ? before[client] > 0 : client === clientOf(gradient));
    pen.strokeStyle = theme.accent;
    pen.lineWidth = 1.8;
    pen.globalAlpha = 0.6;
    pen.beginPath();
    let drawn = 0;
    for (const [a, b] of pairs) {
      if (!(had(a) || had(b)) || drawn > MOST_LINES) continue;
      drawn += 1;
      pen.moveTo(...places[a]);
      pen.lineTo(...places[b]);
    }
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawClient(pen, client, { shares, active, uploads, holds, cycle, step, kind }) {
  const [x, y] = places[client];
  const computes = active.has(client);
  const radius = layout.dot * (computes ? 1.35 : 1) + (computes ? 1 : 0);
  const lost = computes && !cycle.needed[step][active.get(client)];
  if (computes) {
    pen.fillStyle = theme.glow;
    pen.globalAlpha = 0.55;
    circle(pen, x, y, radius + 5);
    pen.fill();
  }
  pen.globalAlpha = holds ? (computes || shares || kind !== "step" ? 1 : 0.75) : 0.25;
  pen.fillStyle = colourOf(client, shares);
  circle(pen, x, y, radius);
  pen.fill();
  if (shares) { pen.strokeStyle = theme.faint; pen.lineWidth = 1; pen.stroke(); }
  else if (state.colour === "label" && layout.dot > 6) pie(pen, client, x, y, radius);
  pen.globalAlpha = 1;
  if (computes) {
    pen.strokeStyle = lost ? theme.lost : theme.ink;
    pen.lineWidth = lost ? 2.4 : 1.6;
    circle(pen, x, y, radius);
    pen.stroke();
  }
  if (uploads.has(client)) {
    pen.strokeStyle = theme.upload;
    pen.lineWidth = 2;
    circle(pen, x, y, radius + 3.5);
    pen.stroke();
  }
  if (client === state.client) {
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 1;
    circle(pen, x, y, radius + 7);
    pen.stroke();
  }
  if (layout.named) {
    pen.fillStyle = theme.quiet;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(view.clients[client], x, y - radius - 7);
  }
}

function drawServer(pen, width, cycle) {
  const [cx, cy] = [width / 2, width / 2];
  pen.strokeStyle = theme.upload;
  pen.lineWidth = 1.2;
  pen.globalAlpha = 0.7;
  pen.beginPath();
  for (const client of cycle.uploads) { pen.moveTo(...places[client]); pen.lineTo(cx, cy); }
  pen.stroke();
  pen.globalAlpha = 1;
  pen.fillStyle = theme.upload;
  circle(pen, cx, cy, 17);
  pen.fill();
  pen.fillStyle = theme.card;
  pen.font = "600 17px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.fillText("Δ", cx, cy + 6);
}

function circle(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
}

function pie(pen, client, x, y, radius) {
  let from = -Math.PI / 2;
  view.labels[client].forEach((share, label) => {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.arc(x, y, radius, from, (from += 2 * Math.PI * share));
    pen.fillStyle = colorOf(label);
    pen.fill();
  });
}

// ---- All gradients: clients by steps -------------------------------------------------

const plane = { left: 8, right: 14, top: 8, bottom: 24 };
const planeX = (moment, width) => plane.left + ((moment + 0.5) / moments.length) * (width - plane.left - plane.right);
const planeY = (client, height) => plane.top + ((lineOf[client] + 0.5) / size) * (height - plane.top - plane.bottom);

function drawPlane() {
  const canvas = byId("plane");
  const width = canvas.parentElement.clientWidth, height = Math.max(220, Math.min(width, 12 * size + 60));
  const pen = prepared(canvas, width, height);
  const column = planeX(1, width) - planeX(0, width), line = (height - plane.top - plane.bottom) / size;
  pen.fillStyle = theme.glow;
  pen.globalAlpha = 0.35;
  pen.fillRect(planeX(state.moment, width) - column / 2, plane.top, column, height - plane.top - plane.bottom);
  pen.globalAlpha = 1;
  const gradient = shownGradient();
  if (gradient) drawCone(pen, gradient, width, height, column, line);
  const dot = Math.max(1.6, Math.min(6, 0.42 * column, Math.max(2.2, 0.6 * line)));
  drawClusterLines(pen, width, height);
  view.cycles.forEach((cycle, number) => {
    cycle.active.forEach((row, step) => row.forEach((client, at) => {
      const [x, y] = [planeX(firstOf[number] + 1 + step, width), planeY(client, height)];
      drawGradient(pen, x, y, dot, cycle.needed[step][at], cycle.weight[step][at]);
    }));
    pen.fillStyle = theme.upload;
    const x = planeX(firstOf[number] + 1 + stepsOf(number), width);
    if (view.served) for (const client of cycle.uploads) triangle(pen, x, planeY(client, height), Math.max(3, dot));
  });
  if (gradient) {
    pen.strokeStyle = isLost(gradient) ? theme.lost : theme.ink;
    pen.lineWidth = 2;
    circle(pen, planeX(firstOf[gradient.cycle] + 1 + gradient.step, width), planeY(clientOf(gradient), height), dot + 4);
    pen.stroke();
  }
  pen.fillStyle = theme.quiet;
  pen.font = "11.5px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.fillText("start", plane.left, height - 6);
  pen.textAlign = "right";
  pen.fillText(view.served ? "upload" : "end", width - 4, height - 6);
}

function drawGradient(pen, x, y, dot, needed, weight) {
  circle(pen, x, y, dot);
  if (needed) {
    pen.fillStyle = mixedColor(theme.low, theme.ink, 0.12 + 0.88 * (Math.max(0, weight) / largest));
    pen.fill();
  } else {
    pen.strokeStyle = theme.lost;
    pen.lineWidth = Math.min(1.6, dot * 0.6);
    pen.stroke();
  }
}

function drawCone(pen, gradient, width, height, column, line) {
  const first = firstOf[gradient.cycle] + 1 + gradient.step;
  pen.fillStyle = theme.accent;
  sharesOf(gradient).forEach((shares, later) => {
    const top = shares.reduce((a, b) => Math.max(a, b), 0);
    for (let client = 0; client < size; client += 1) {
      if (!(shares[client] > 0)) continue;
      pen.globalAlpha = 0.12 + 0.75 * Math.sqrt(shares[client] / top);
      pen.fillRect(planeX(first + later, width) - column / 2, planeY(client, height) - line / 2, column + 0.5, Math.max(1, line) + 0.3);
    }
  });
  pen.globalAlpha = 1;
}

function drawClusterLines(pen, width, height) {
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let line = 1; line < size; line += 1) {
    if (view.cluster[order[line]] === view.cluster[order[line - 1]]) continue;
    const y = (planeY(order[line], height) + planeY(order[line - 1], height)) / 2;
    pen.moveTo(plane.left, y);
    pen.lineTo(width - plane.right, y);
  }
  pen.stroke();
}

function triangle(pen, x, y, half) {
  pen.beginPath();
  pen.moveTo(x - half, y - half);
  pen.lineTo(x + half, y);
  pen.lineTo(x - half, y + half);
  pen.fill();
}

// ---- Words ---------------------------------------------------------------------------

function momentName({ cycle, kind, step }) {
  const where = view.cycles.length > 1 ? `cycle ${cycle + 1} of ${view.cycles.length}, ` : "";
  if (kind === "start") return `${where}start`;
  return where + (kind === "step" ? `step ${step + 1} of ${stepsOf(cycle)}` : view.served ? "upload" : "end");
}

function momentText() {
  const { cycle: number, kind, step } = moments[state.moment];
  const cycle = view.cycles[number], spent = view.ledger[state.moment];
  const before = view.ledger[state.moment - 1] || { server_downloads: 0, broadcasts: 0, gossip_messages: 0, server_uploads: 0 };
  if (kind === "start") {
    if (!view.served) return "Every client goes on from its own model.";
    const passed = spent.broadcasts - before.broadcasts;
    return `The server sends its model x to ${plural(spent.server_downloads - before.server_downloads, "client")}` +
      (passed ? `, and they pass it on to ${plural(passed, "other")}.` : ".");
  }
  if (kind === "step") {
    const computed = cycle.gradients[step] - (step ? cycle.gradients[step - 1] : 0);
    const lost = cycle.needed[step].filter((needed) => !needed).length;
    const sent = spent.gossip_messages - before.gossip_messages;
    return `${plural(computed, "client")} compute${computed === 1 ? "s" : ""} a gradient` +
      (lost ? `; ${lost === 1 ? "one of them is" : `${lost} of them are`} lost` : "") +
      (sent ? `. Clients mix: ${plural(sent, "message")}.` : ". Nobody mixes.");
  }
  if (!view.served) return "The mean of all models is what is judged.";
  return `${plural(spent.server_uploads - before.server_uploads, "client")} upload what they hold; ` +
    "their weighted mean Δ is what the server steps by.";
}

function gradientText(gradient) {
  if (!gradient) return "Point at a gradient in the pictures, or choose one below, to see which clients it has reached and with which weight it enters Δ.";
  const cycle = view.cycles[gradient.cycle], weight = weightOf(gradient), reaches = cycle.reaches[gradient.step][gradient.at];
  const shares = sharesAt(gradient, state.moment);
  const parts = [`The gradient of ${clientName(clientOf(gradient))} at step ${gradient.step + 1}`];
  const models = reaches < 0 ? "" : ` In the end it is part of ${plural(reaches, "model")}`;
  if (isLost(gradient)) {
    const nobody = reaches <= 1 ? "" : ", none of which is uploaded";
    parts.push(` is lost: it reaches nobody who uploads.${models}${models ? `${nobody}.` : ""}`);
  } else if (weight > 0) {
    parts.push(` enters ${view.served ? "Δ" : "the mean"} with weight ${digits(weight)}, ${digits(weight / meanWeight, 3)} times the mean.${models}${models ? "." : ""}`);
  } else parts.push(" has no weight of its own in Δ, but gradients that enter Δ may read it.");
  if (shares) {
    const reached = [...shares.keys()].filter((client) => shares[client] > 0).sort((a, b) => shares[b] - shares[a]);
    const some = reached.slice(0, 5).map((client) => `${view.clients[client]} (${digits(shares[client], 3)})`);
    const more = reached.length > 5 ? ` and ${reached.length - 5} more` : "";
    parts.push(` Now it has reached ${plural(reached.length, "client")}, with shares: ${some.join(", ")}${more}.`);
  } else if (moments[state.moment].cycle === gradient.cycle) parts.push(" It is not computed yet.");
  return parts.join("");
}

function clientText(client) {
  const cycle = view.cycles[moments[state.moment].cycle];
  const label = view.labels ? `, ${Math.round(100 * view.labels[client][commonest[client]])} % of its samples are “${labelName(commonest[client])}”` : "";
  const upload = cycle.uploads.indexOf(client);
  const role = view.served && upload >= 0 ? `; it uploads, with weight ${digits(cycle.upload_weight[upload])}` : cycle.holders.includes(client) ? "" : "; it takes no part";
  return `${clientName(client)[0].toUpperCase()}${clientName(client).slice(1)} of cluster ${view.cluster[client]}${label}${role}. It computes no gradient now.`;
}

const labelName = (label) => view.label_names[label] ?? String(label);

// ---- The page ------------------------------------------------------------------------

function readTheme() {
  for (const name of ["ink", "quiet", "line", "faint", "card", "accent", "lost", "upload", "glow", "ground"]) theme[name] = css(`--${name}`);
  theme.low = window.matchMedia("(prefers-color-scheme: dark)").matches ? "#2a323c" : "#e9ecef";
}

function showPictures() {
  const begun = performance.now();
  drawGraph();
  drawPlane();
  explorer.milliseconds = performance.now() - begun;
}

function showGradient() {
  const gradient = shownGradient();
  byId("gradient").textContent = !gradient && state.client !== null ? clientText(state.client) : gradientText(gradient);
  byId("release").hidden = !state.pinned;
  document.querySelectorAll("#gradients button").forEach((button) => button.setAttribute("aria-pressed", String(same(state.pinned, button.gradient))));
}

function follow(gradient, client = null) {
  if (same(state.hovered, gradient) && state.client === client) return;
  state.hovered = gradient;
  state.client = client;
  showPictures();
  showGradient();
}

function keep(gradient) {
  state.pinned = same(state.pinned, gradient) ? null : gradient;
  state.hovered = null;
  showPictures();
  showGradient();
}

const MOST_BUTTONS = 48;

function showButtons() {
  const { cycle: number, kind, step } = moments[state.moment];
  const box = byId("gradients");
  if (kind !== "step") { box.replaceChildren(); return; }
  const cycle = view.cycles[number];
  const buttons = cycle.active[step].slice(0, MOST_BUTTONS).map((client, at) => {
    const gradient = { cycle: number, step, at };
    const said = isLost(gradient) ? "lost" : `weight ${digits(weightOf(gradient), 3)}`;
    const button = make("button", {
      type: "button", class: isLost(gradient) ? "lost" : null,
      onmouseenter: () => follow(gradient), onmouseleave: () => follow(null),
      onfocus: () => follow(gradient), onblur: () => follow(null), onclick: () => keep(gradient),
    }, `${clientName(client)} · ${said}`);
    button.gradient = gradient;
    return button;
  });
  const hidden = cycle.active[step].length - buttons.length;
  box.replaceChildren(...buttons, ...(hidden > 0 ? [make("span", { class: "quiet" }, `and ${hidden} more in the pictures`)] : []));
}

function showLedger() {
  const spent = view.ledger[state.moment];
  const tiles = [
    ["between clients", plural(spent.gossip_messages + spent.broadcasts, "message")],
    ["from the server", plural(spent.server_downloads, "message")],
    ["to the server", plural(spent.server_uploads, "message")],
    ["sent", sized(spent.bytes)],
    ["simulated time", duration(spent.hours)],
  ];
  byId("ledger").replaceChildren(...tiles.map(([name, value]) => make("div", {}, make("b", {}, value), make("span", {}, name))));
}

const charts = [];

function show(moment) {
  state.moment = Math.max(0, Math.min(moments.length - 1, moment));
  const slider = byId("moment");
  slider.value = state.moment;
  slider.setAttribute("aria-valuetext", momentName(moments[state.moment]));
  byId("when").textContent = momentName(moments[state.moment]);
  byId("said").textContent = momentText();
  showButtons();
  showLedger();
  showPictures();
  showGradient();
  for (const chart of charts) chart.draw({ mark: chart.markOf(moments[state.moment]) });
}

function play(on) {
  clearInterval(state.timer);
  state.timer = on ? setInterval(() => (state.moment + 1 < moments.length ? show(state.moment + 1) : play(false)), 700) : null;
  if (on && state.moment + 1 === moments.length) show(0);
  byId("play").textContent = on ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", String(on));
}

function addChart(title, about, options, markOf) {
  const chart = lineChart(options);
  chart.markOf = markOf;
  charts.push(chart);
  const named = options.curves.length > 1 ? options.curves : [];
  const key = make("ul", { class: "key" }, ...named.map(({ name, color }) => make("li", {}, make("span", { class: "swatch", style: { borderTopColor: color } }), name)));
  byId("charts").append(make("section", { class: "card" }, make("h2", {}, title), make("p", { class: "quiet" }, about), key, chart.node));
}

function addCharts() {
  const steps = view.cycles.flatMap((cycle, number) => cycle.active.map((_, step) => firstOf[number] + 1 + step - 2 * number));
  const percent = (v) => `${digits(100 * v, 3)} %`;
  const series = (name, field, number) => ({ name, color: colorOf(number), x: steps, y: view.cycles.flatMap((c) => c[field]) });
  const atStep = ({ cycle, step }) => (step < 0 ? null : firstOf[cycle] + 1 + Math.min(step, stepsOf(cycle) - 1) - 2 * cycle);
  addChart(
    "How unequal the gradients count",
    "If the round ended after a step: the share of its gradients so far that would enter Δ, and their effective share, (Σw)²/(n·Σw²), which is 100 % where all weigh the same.",
    { id: "weights", curves: [series("enter Δ", "arrived", 0), series("effective share", "effective", 1)], xLabel: "local step", yLabel: "share of the gradients", yFormat: percent, yRange: [0, 1] },
    atStep,
  );
  if (view.cycles.every((cycle) => cycle.distance)) {
    const means = view.cycles.flatMap((cycle) => cycle.distance.map(mean));
    addChart(
      "How far the clients are apart, by the plan",
      "Mean squared distance from the mean model, if gradients were orthogonal and of length one.",
      { id: "distance", curves: [{ name: "distance", color: colorOf(2), x: steps, y: means }], xLabel: "local step", yLabel: "mean squared distance" },
      atStep,
    );
  }
  if (!view.measured) return;
  const rows = view.measured, has = rows.consensus && rows.consensus.some((v) => v !== null);
  const name = has ? "consensus" : "spread";
  addChart(
    has ? "How far the clients were apart, measured" : "How far the uploads were apart, measured",
    has ? "Mean squared distance of all clients' models from their mean at the end of the local steps, by round." : "Weighted mean of ‖Δᵢ − Δ‖² over the uploads, by round. Train with --consensus to have the distance between all clients.",
    { id: "measured", curves: [{ name, color: colorOf(3), x: rows.round, y: rows[name] }], xLabel: "round", yLabel: name },
    () => view.round + 1,
  );
}

function addKey() {
  const options = [["cluster", "by cluster"]];
  if (view.labels) options.push(["label", "by label"]);
  if (view.cycles.every((cycle) => cycle.distance)) options.push(["distance", "by distance"]);
  byId("colour").append(...options.map(([value, name]) => make("option", { value }, name)));
  byId("colour").addEventListener("change", (event) => { state.colour = event.target.value; showKey(); showPictures(); });
  showKey();
}

function showKey() {
  const dot = (style) => make("span", { class: "dot", style });
  const entries = [
    [{ background: "var(--card)", borderColor: "var(--ink)", boxShadow: "0 0 0 3px var(--glow)" }, "computes"],
    [{ background: "var(--card)", borderColor: "var(--lost)", boxShadow: "0 0 0 3px var(--glow)" }, "computes a lost gradient"],
  ];
  if (view.served) entries.push([{ borderColor: "var(--upload)" }, "uploads"]);
  if (state.colour === "label") view.labels[0].slice(0, 12).forEach((_, label) => entries.push([{ background: colorOf(label) }, labelName(label)]));
  byId("key").replaceChildren(...entries.map(([style, name]) => make("li", {}, dot(style), name)));
}

function nearestClient(event) {
  const box = byId("graph").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null, far = (layout.dot + 14) ** 2;
  places.forEach(([px, py], client) => {
    const away = (px - x) ** 2 + (py - y) ** 2;
    if (away < far) [best, far] = [client, away];
  });
  return best;
}

function gradientOfClient(client) {
  const { cycle, kind, step } = moments[state.moment];
  const at = kind === "step" && client !== null ? view.cycles[cycle].active[step].indexOf(client) : -1;
  return at < 0 ? null : { cycle, step, at };
}

function nearestGradient(event) {
  const canvas = byId("plane"), box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null, far = 18 ** 2;
  view.cycles.forEach((cycle, number) => cycle.active.forEach((row, step) => {
    const px = planeX(firstOf[number] + 1 + step, box.width);
    if (Math.abs(px - x) > 18) return;
    row.forEach((client, at) => {
      const away = (px - x) ** 2 + (planeY(client, box.height) - y) ** 2;
      if (away < far) [best, far] = [{ cycle: number, step, at }, away];
    });
  }));
  return best;
}

function listen() {
  const slider = byId("moment");
  slider.max = moments.length - 1;
  slider.addEventListener("input", () => { play(false); show(Number(slider.value)); });
  byId("play").addEventListener("click", () => play(!state.timer));
  byId("back").addEventListener("click", () => { play(false); show(state.moment - 1); });
  byId("forth").addEventListener("click", () => { play(false); show(state.moment + 1); });
  byId("release").addEventListener("click", () => keep(null));
  const graph = byId("graph"), area = byId("plane");
  const overGraph = (event) => { const client = nearestClient(event); follow(gradientOfClient(client), client); };
  graph.addEventListener("pointermove", overGraph);
  graph.addEventListener("pointerdown", overGraph);
  graph.addEventListener("click", (event) => { const gradient = gradientOfClient(nearestClient(event)); if (gradient) keep(gradient); });
  area.addEventListener("pointermove", (event) => follow(nearestGradient(event)));
  area.addEventListener("click", (event) => { const gradient = nearestGradient(event); if (gradient) keep(gradient); });
  for (const canvas of [graph, area]) canvas.addEventListener("pointerleave", () => follow(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.pinned) keep(null);
    if (event.key === " " && event.target === document.body) { event.preventDefault(); play(!state.timer); }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); showPictures(); });
  new ResizeObserver(() => showPictures()).observe(byId("graph").parentElement);
}

/** For a console, tests and benchmarks. */
const explorer = { moments, show, keep, sharesOf, milliseconds: 0 };
window.explorer = explorer;

readTheme();
document.title = `${view.name} · round ${view.round}`;
byId("title").textContent = document.title;
byId("facts").append(...view.facts.map(([name, value]) => make("li", {}, `${name} `, make("b", {}, String(value)))));
byId("notes").append(...view.notes.map((note) => make("p", { class: "note" }, note)));
addKey();
addCharts();
listen();
show(Math.min(1, moments.length - 1));
