"""What failures cost: rounds of AFGA with links and clients that fail, against none.

    python -m benchmarks.conditions

The MLP 784-100-10 of `benchmarks.rounds`, 24 local steps, batch 50, with both engines;
planning on the host counts. The variants take turns, so that a busy machine hurts them
alike, and a ratio is the median of the ratios of laps that follow each other; `cpu` is
the same of processor time, which other programs hardly touch. Fewer gradients are
computed where clients leave: the ratio per gradient is printed beside. The last line
says whether a round with both costs at most 1.25 times one without. A minute or two.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

import afga_jax
from afga_jax.training.trainer import AHEAD
from benchmarks.rounds import RandomClients, perceptron

LIMIT, MEASURED = 1.25, ("laps", "cpu", "needed")
VARIANTS = {
    "off": None,
    "links": afga_jax.Faults(link_failure=0.2),
    "clients": afga_jax.Faults(client_dropout=0.2),
    "both": afga_jax.Faults(client_dropout=0.2, link_failure=0.2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_clients", type=int, default=100)
    parser.add_argument("--active", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--engines", default="dense,span")
    args = parser.parse_args()
    key = jax.random.key(0)
    data = RandomClients(
        jax.random.normal(key, (2000, 784)),
        jax.random.randint(key, (2000,), 0, 10),
        jnp.full(args.num_clients, 2000),
    )
    print(f"N={args.num_clients} M={args.active}, {jax.devices()[0].platform}")
    heads = f"{'ms/round':>10}{'needed':>8}{'ratio':>7}{'cpu':>7}{'per gradient':>14}"
    print(f"{'':14}{heads}")
    worst = 0.0
    for engine in args.engines.split(","):
        runs = {name: _started(args, engine, name, key, data) for name in VARIANTS}
        for _ in range(args.repeats):
            for run in runs.values():
                _lap(run, key, data)
        worst = max(worst, _print(engine, runs)["both"])
    verdict = "holds" if worst <= LIMIT else "does not hold"
    print(f"a round with both costs at most {LIMIT} times one without: {verdict}")


def _started(args, engine: str, name: str, key, data) -> dict:
    algorithm = afga_jax.build(
        "afga",
        perceptron(),
        num_clients=args.num_clients,
        active=args.active,
        local_lr=0.01,
        faults=VARIANTS[name],
    )
    trainer = afga_jax.Trainer(algorithm, afga_jax.Execution(engine), donate=True)
    run = {"trainer": trainer, "state": trainer.init(key)}
    run |= {name: [] for name in MEASURED}
    _lap(run, key, data)
    for name in MEASURED:
        run[name].clear()
    return run


def _lap(run: dict, key, data) -> None:
    """Two blocks of rounds: while the first runs, the host plans the second."""
    start, spent = time.perf_counter(), time.process_time()
    state, info = run["trainer"].run(key, run["state"], data, 2 * AHEAD)
    jax.block_until_ready(state)
    run["laps"].append((time.perf_counter() - start) / (2 * AHEAD))
    run["cpu"].append((time.process_time() - spent) / (2 * AHEAD))
    run["needed"].append(float(info.needed.mean()))
    run["state"] = state


def _print(engine: str, runs: dict[str, dict]) -> dict[str, float]:
    """A line for each variant; returns its ratios."""
    base, ratios = runs["off"], {}
    for name, run in runs.items():
        ratio, cpu = (_ratio(run[kind], base[kind]) for kind in ("laps", "cpu"))
        needed = statistics.fmean(run["needed"])
        per_gradient = ratio * statistics.fmean(base["needed"]) / needed
        median = 1e3 * statistics.median(run["laps"])
        print(
            f"{engine + ', ' + name:14}{median:>10.1f}{needed:>8.0f}{ratio:>7.2f}"
            f"{cpu:>7.2f}{per_gradient:>14.2f}",
            flush=True,
        )
        ratios[name] = ratio
    return ratios


def _ratio(laps: list[float], others: list[float]) -> float:
    pairs = zip(laps, others, strict=True)
    return statistics.median(lap / other for lap, other in pairs)


if __name__ == "__main__":
    main()
