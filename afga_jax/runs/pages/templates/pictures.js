// What the explorer draws: the clients of a moment, and all gradients of the round.

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
