// The report of one or several runs.

const RELOAD_SECONDS = 5;
const runs = content.runs;
// What is chosen stands in the address, so that a page that reloads keeps it.
const chosen = new URLSearchParams(location.hash.slice(1));
const hidden = new Set((chosen.get("hidden") || "").split(",").filter(Boolean).map(Number));
const percent = (value) => (value === null ? "–" : `${digits(100 * value, 4)} %`);
const axisFormat = { round: (v) => digits(v, 6), gradients_total: (v) => sized(v, ""), bytes_total: (v) => sized(v), hours: (v) => digits(v, 3) };
const isShare = (metric) => metric.endsWith("accuracy");

function curvesOf(metric, axis) {
  return runs.map((run, number) => {
    const y = run.mean[metric], spread = run.deviation[metric], banded = run.seeds > 1;
    const bound = (sign) => y.map((v, i) => (v === null || spread[i] === null ? null : v + sign * spread[i]));
    return {
      name: run.name, color: colorOf(number), dash: dashOf(number), hidden: hidden.has(number),
      x: run.x[axis], y, spread: banded ? spread : null, low: banded ? bound(-1) : null, high: banded ? bound(1) : null,
    };
  });
}

function remember(name, value) {
  chosen.set(name, value);
  history.replaceState(null, "", `#${chosen}`);
}

function addCurves() {
  const pick = (id, options) => {
    const select = byId(id);
    select.append(...options.map(([value, label]) => make("option", { value }, label)));
    if (options.some(([value]) => value === chosen.get(id))) select.value = chosen.get(id);
    select.addEventListener("change", () => { remember(id, select.value); draw(); });
    return select;
  };
  const known = content.axes.filter(([name]) => runs.some((run) => run.x[name].some((v) => v !== null)));
  const metric = pick("metric", content.metrics), axis = pick("axis", known);
  const label = (pairs, name) => pairs.find(([value]) => value === name)[1];
  const options = () => ({
    id: "curves", curves: curvesOf(metric.value, axis.value),
    xLabel: label(content.axes, axis.value), yLabel: label(content.metrics, metric.value),
    xFormat: axisFormat[axis.value], yFormat: isShare(metric.value) ? percent : digits,
    levels: isShare(metric.value) ? runs.flatMap((run, number) => (run.paper === null || hidden.has(number) ? [] : [{ y: run.paper, name: `paper, ${run.name}`, color: colorOf(number) }])) : [],
  });
  const chart = lineChart(options());
  const draw = () => chart.draw(options());
  byId("chart").append(chart.node);
  byId("legend").append(...runs.map((run, number) => {
    const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(number)) },
      make("span", { class: "swatch", style: { borderTopColor: colorOf(number), borderTopStyle: dashOf(number) ? "dashed" : "solid" } }), run.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(number)) hidden.add(number);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      remember("hidden", [...hidden].join(","));
      draw();
    });
    return button;
  }));
  draw();
}

function addSettings() {
  const rows = (differs) => content.settings.filter((row) => row[1] === differs).map(([name, , cells]) => [name, ...cells]);
  const head = ["setting", ...runs.map((run) => run.name)];
  const box = byId("settings"), apart = rows(true), alike = rows(false);
  if (runs.length > 1) {
    box.append(make("h3", {}, apart.length ? "What differs" : "Nothing differs"));
    if (apart.length) box.append(table([head, ...apart], { class: "settings", id: "differs" }));
  }
  const same = table([["setting", "value"], ...alike.map((row) => row.slice(0, 2))], { class: "settings", id: "alike" });
  box.append(make("details", runs.length > 1 ? {} : { open: "" }, make("summary", {}, runs.length > 1 ? `What all share: ${alike.length} settings` : "All settings"), same));
}

/** Clients as columns, classes as rows; the darker, the more samples. */
function heatMap({ counts, label_names }) {
  const canvas = make("canvas", { role: "img", "aria-label": `Samples of ${counts.length} clients in ${counts[0].length} classes; the text below reads each.` });
  const said = make("p", { class: "tip", "aria-live": "polite" }, "Point at the map, or use the arrow keys in it.");
  canvas.tabIndex = 0;
  const classes = counts[0].length, line = classes > 40 ? 5 : 16, top = Math.max(...counts.map((row) => Math.max(...row)), 1);
  const label = (number) => label_names[number] ?? String(number);
  let at = [0, 0];
  const paint = () => {
    const width = canvas.parentElement.clientWidth, ratio = window.devicePixelRatio || 1, height = classes * line;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = css("--accent");
    counts.forEach((row, client) => row.forEach((count, name) => {
      pen.globalAlpha = count ? 0.08 + 0.92 * Math.sqrt(count / top) : 0.03;
      pen.fillRect((client / counts.length) * width, name * line, width / counts.length + 0.3, line - 1);
    }));
  };
  const tell = () => {
    const [client, name] = at, total = counts[client].reduce((a, b) => a + b, 0);
    said.textContent = `Client ${client} holds ${counts[client][name]} of “${label(name)}” among its ${total} samples.`;
  };
  const bounded = (value, count) => Math.max(0, Math.min(count - 1, value));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    at = [bounded(Math.floor(((event.clientX - box.left) / box.width) * counts.length), counts.length), bounded(Math.floor((event.clientY - box.top) / line), classes)];
    tell();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    at = [bounded(at[0] + move[0], counts.length), bounded(at[1] + move[1], classes)];
    tell();
  });
  const box = make("div", {}, canvas);
  new ResizeObserver(paint).observe(box);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  return make("div", {}, box, said);
}

function addPartitions() {
  for (const part of content.partitions) {
    const box = byId("partitions");
    if (content.partitions.length > 1) box.append(make("h3", {}, part.runs.join(", ")));
    if (part.note) box.append(make("p", { class: "quiet" }, part.note));
    if (!part.counts) continue;
    box.append(make("p", { class: "quiet" }, `Clients from left to right (0 to ${part.counts.length - 1}), classes from top to bottom: ${part.counts[0].slice(0, 12).map((_, i) => part.label_names[i] ?? i).join(", ")}${part.counts[0].length > 12 ? ", …" : ""}.`), heatMap(part));
  }
  if (!content.partitions.length) byId("partitions").append(make("p", { class: "quiet" }, "Only curves are known of these runs."));
}

function addClients() {
  if (!content.clients.length) {
    byId("clients").append(make("p", { class: "quiet" }, "Not measured: train with --per_client to have every client's accuracy."));
    return;
  }
  const metric = content.clients[0].metric, format = isShare(metric) ? percent : digits;
  const number = (about) => runs.findIndex((run) => run.name === about.run);
  const curves = content.clients.map((about) => ({
    name: about.run, color: colorOf(number(about)), dash: dashOf(number(about)),
    x: about.values.map((_, i) => (about.values.length > 1 ? (100 * i) / (about.values.length - 1) : 50)), y: about.values,
  }));
  const chart = lineChart({ id: "clients", curves, xLabel: "clients, % (from the worst served)", yLabel: metric, yFormat: format, xFormat: (v) => digits(v, 3) });
  byId("clients").append(make("p", { class: "quiet" }, `Clients in the order of their ${metric} on their own samples, after round ${content.clients[0].round}.`), chart.node);
  const levels = Object.keys(content.clients[0].quantiles);
  byId("clients").append(table([["run", "worst tenth", ...levels], ...content.clients.map((about) => [about.run, format(about.worst_tenth), ...levels.map((level) => format(about.quantiles[level]))])]));
  chart.draw({});
}

function addBreakEven() {
  const about = content.break_even, box = byId("break-even");
  if (about.reason) { box.append(make("p", { class: "quiet" }, `Not to be said of these runs: ${about.reason}`)); return; }
  box.append(make("p", { class: "quiet" }, `Simulated hours to ${percent(about.target)}, against the price of a link between clients over that of one to the server, r. Where a curve with gossip is below the others, gossip pays.`));
  const pair = make("div", { class: "pair" });
  for (const { kind, hours, table: rows, ratio } of about.kinds) {
    const curves = runs.flatMap((run, number) => (hours[number] ? [{ name: run.name, color: colorOf(number), dash: dashOf(number), x: about.ratios.map(Math.log10), y: hours[number] }] : []));
    const chart = lineChart({ id: `even-${kind}`, curves, xLabel: "r", yLabel: "hours", xFormat: (v) => digits(10 ** v, 2), mark: Math.log10(ratio) });
    pair.append(make("div", {}, make("h3", {}, `by ${kind}`), chart.node, table(rows)));
    chart.draw({});
  }
  box.append(pair);
}

function addCommands() {
  for (const run of runs) {
    byId("commands").append(make("h3", {}, run.name));
    if (run.folder) byId("commands").append(make("p", { class: "quiet" }, run.folder));
    if (run.command) byId("commands").append(make("pre", {}, run.command));
    const versions = Object.entries(run.versions).map(([name, version]) => `${name} ${version}`);
    if (versions.length) byId("commands").append(make("p", { class: "quiet" }, versions.join(" · ")));
  }
}

document.title = `${content.live ? "● " : ""}${content.title}`;
byId("title").textContent = content.title;
byId("states").append(...runs.map((run) => make("li", {}, make("b", {}, run.name), ` ${run.status}`)));
byId("notes").append(...content.cautions.map((line) => make("p", { class: "note" }, line)));
byId("table").append(table(content.table, { id: "comparison" }), make("p", { class: "quiet" }, content.table_notes.join(" ")));
byId("ledger").append(table(content.ledger, { id: "costs-table" }));
addCurves();
addSettings();
addPartitions();
addClients();
addBreakEven();
addCommands();
if (content.live) {
  byId("notes").append(make("p", { class: "quiet", role: "status" }, `This run goes on; the page looks for news every ${RELOAD_SECONDS} seconds.`));
  setInterval(() => { if (!document.hidden) location.reload(); }, 1000 * RELOAD_SECONDS);
}
