// The explorer: words, controls and charts.

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
