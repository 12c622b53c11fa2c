// The round as the explorer has it, and the way of a gradient through it. A moment is the
// start of a cycle, the end of one of its local steps, or its upload; a gradient is
// {cycle, step, at}, `at` its place among the active.

const view = content;
const size = view.clients.length;
const moments = view.cycles.flatMap((cycle, number) => [
  { cycle: number, kind: "start", step: -1 },
  ...cycle.active.map((_, step) => ({ cycle: number, kind: "step", step })),
  { cycle: number, kind: "upload", step: cycle.active.length },
]);
const firstOf = view.cycles.map((_, number) => moments.findIndex((m) => m.cycle === number));
const largest = view.cycles.flatMap((c) => c.weight.flat()).reduce((a, b) => Math.max(a, b), 1e-12);
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
