"""Which graph, how many clusters, how often to mix: best first, without training.

    python -m experiments.advise --num_clients=50 --active=5
    python -m experiments.advise --num_clients=64 --active=8 --link_failure=0.1
    python -m experiments.advise --server_speed=10 --client_speed=100

Lists topologies, numbers of clusters K and of local steps q from one mixing to the next
with

    ρ           factor by which mixing contracts disagreement at worst; for a sequence
                of graphs of its product, over so many local steps; in mean square
                where chance plays a part
    D           min{steps/(1 − ρ), local steps}: local steps that drift lasts, at most
    theory      met, or which conditions of AFGA and CAFGA are not: ρ ≤ M/(M+N) (within
                a cluster m/(m+n)), R ≥ 𝓘·M; –: it says nothing of such mixing
    messages    of a round, all kinds; then their bytes, and simulated hours

Best first is by hours a round × D: theory's bounds have D in the term through which a
graph enters, so this is the time until that term is down to some size. It is an order,
not a forecast: how many rounds a choice takes only training tells. So it is also said
who is first if rounds grow with a power of D only; * marks what can be first at all,
since no other has fewer hours and a smaller D.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afga_jax import checks
from afga_jax.runs import advice, command, flags
from afga_jax.runs.advice import Advice, Advices, Asked
from afga_jax.runs.config import Field, fields
from afga_jax.runs.record import write_text
from afga_jax.runs.report.tables import NOTHING, csv_lines, number, text
from afga_jax.training.ledger import Links
from afga_jax.training.memory import size

_KNOWN = {field.name: field for field in fields()}
_POSITIVE = {"above": 0}
_WHOLE = {"at_least": 1}
_FIELDS = (
    _KNOWN["num_clients"]._replace(default=50),
    _KNOWN["active"]._replace(help="M, clients that upload; else a tenth of all."),
    _KNOWN["participation"]._replace(help="M/N, in place of --active."),
    _KNOWN["local_steps"]._replace(default=24),
    _KNOWN["rounds"]._replace(help="R, for the theory's conditions.", default=500),
    Field("parameters", int, 1_000_000, "model", "Numbers of the model, 4 B each."),
    _KNOWN["server_seconds"],
    _KNOWN["client_seconds"],
    Field(
        *("server_speed", float, None, "run"),
        "Mbit/s to the server: a message then takes its bytes over it, and "
        "--server_seconds only if they are given.",
        _POSITIVE,
    ),
    Field(
        *("client_speed", float, None, "run", "The same between clients."), _POSITIVE
    ),
    _KNOWN["link_failure"],
    Field(
        *("topologies", str, None, "topology"),
        "Graphs to try, with commas between them; else all that need no data.",
    ),
    Field("clusters", tuple, None, "topology", "K to try; else some.", _WHOLE),
    Field("periods", tuple, None, "topology", "q to try; else 1,2,4,8.", _WHOLE),
    Field("show", int, 15, "run", "Rows to print.", _WHOLE),
    _KNOWN["out"]._replace(help="CSV file of all rows."),
    _KNOWN["plugin"],
)
_AS_GIVEN = ("local_steps", "rounds", "parameters", "link_failure")
_DEFAULTS = {field.name: field.default for field in _FIELDS}
_BYTES = 4


def advise(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    with command.reading():
        asked, shown, out = read(arguments)
    advices = advice.advise(asked)
    rows = [_row(*numbered) for numbered in enumerate(advices.best_first, 1)]
    if out is not None:
        write_text(out, csv_lines(rows))
    print(page(asked, advices, shown))
    if out is not None:
        print(f"all {len(rows)} rows: {out}")
    return 0


def read(arguments: Sequence[str]) -> tuple[Asked, int, Path | None]:
    """What is asked, the number of rows to print, and the file of all rows."""
    values = flags.define(_FIELDS)
    flags.parse(arguments, values, usage=__doc__, known=_FIELDS)
    given = flags.given(values, _FIELDS)
    shown, out = given.get("show", _DEFAULTS["show"]), given.get("out")
    checks.integer("show", shown)
    return _asked(given), shown, None if out is None else Path(out)


def page(asked: Asked, advices: Advices, shown: int) -> str:
    """What is printed.

    Args:
      asked: What advice is wanted for.
      advices: All choices.
      shown: Number of rows.
    """
    best = advices.best_first
    marked = zip(best[:shown], advice.undominated(best), strict=False)
    body = [_cells(*pair) for pair in marked]
    left = len(best) - len(body)
    notes = [
        "best first: by hours a round × D; an order, not a forecast (--help).",
        *([f"{left} more: --show={len(best)}."] if left > 0 else []),
        "if rounds grow with Dʰ, first is",
        *_first_by_power(best),
        *_asked_by_theory(best),
        *(f"left out: {reason}" for reason in advices.left_out),
    ]
    head = ["  topology", "K", "q", "ρ", "in steps", "D", "theory", "messages"]
    table = text([*head, "sent", "h/round", "h × D"], body, notes)
    return f"{_about(asked)}\n\n{table}".rstrip()


def _asked(given: dict[str, Any]) -> Asked:
    chosen = {**_DEFAULTS, **given}
    clients, active, share = (
        chosen[name] for name in ("num_clients", "active", "participation")
    )
    if active is not None and share is not None:
        raise ValueError("active and participation say the same: give one of them.")
    for field in _FIELDS:  # of one's own; `Asked` checks the others
        if field.kind is float and chosen[field.name] is not None:
            checks.number(field.name, chosen[field.name], **field.bounds)
    if active is None:
        active = max(1, round((0.1 if share is None else share) * clients))
    links = Links(_seconds("server", chosen, given), _seconds("client", chosen, given))
    names = chosen["topologies"]
    return Asked(
        num_clients=clients,
        active=active,
        links=links,
        topologies=tuple(names.split(",")) if names else (),
        clusters=chosen["clusters"] or (),
        periods=chosen["periods"] or (),
        **{name: chosen[name] for name in _AS_GIVEN},
    )


def _seconds(kind: str, chosen: dict[str, Any], given: dict[str, Any]) -> float:
    """Of a message: its bytes over the speed, and what it takes beside that."""
    speed = chosen[f"{kind}_speed"]
    if speed is None:
        return chosen[f"{kind}_seconds"]
    sending = 8e-6 * _BYTES * chosen["parameters"] / speed
    return given.get(f"{kind}_seconds", 0.0) + sending


def _about(asked: Asked) -> str:
    failing = "no link fails"
    if asked.link_failure:
        failing = f"a link between clients is down with {asked.link_failure:.0%}"
    return (
        f"{asked.num_clients} clients, {asked.active} upload, {asked.local_steps} "
        f"local steps, {asked.rounds} rounds; {failing}\n"
        f"a message is {size(_BYTES * asked.parameters)}: "
        f"{asked.links.server_seconds:g} s to or from the server, "
        f"{asked.links.client_seconds:g} s between clients"
    )


def _cells(choice: Advice, mark: bool) -> list[str]:
    return [
        f"{'*' if mark else ' '} {choice.topology}",
        f"{choice.clusters}",
        f"{choice.period}" if choice.topology != advice.NONE else NOTHING,
        f"{choice.contraction.rho:.3f}",
        f"{choice.contraction.steps}",
        f"{choice.drift:.1f}",
        _theory(choice),
        number(choice.messages),
        size(choice.spent["bytes"]),
        f"{choice.hours:.3f}",
        f"{choice.score:.3f}",
    ]


def _theory(choice: Advice) -> str:
    if not choice.conditions:
        return NOTHING
    missed = [
        name[0] for name, sides in choice.conditions.items() if not sides["holds"]
    ]
    return f"not {', '.join(missed)}" if missed else "met"


def _asked_by_theory(choices: Sequence[Advice]) -> list[str]:
    bounds = {
        f"{name} = {sides['right']:.3g}": None
        for choice in choices
        for name, sides in choice.conditions.items()
    }
    return [f"theory asks for {', '.join(bounds)}"] if bounds else []


def _first_by_power(choices: Sequence[Advice]) -> list[str]:
    lines = []
    for share in advice.ranges(choices):
        choice = choices[share.method]
        what = "no gossip"
        if choice.topology != advice.NONE:
            what = f"{choice.topology}, K = {choice.clusters}, q = {choice.period}"
        lines.append(f"  h from {share.low:.2f} to {share.high:.2f}: {what}")
    return lines


def _row(place: int, choice: Advice) -> dict[str, Any]:
    """A choice for programs."""
    return {
        "place": place,
        "topology": choice.topology,
        "clusters": choice.clusters,
        "period": choice.period,
        "rho": choice.contraction.rho,
        "rho_steps": choice.contraction.steps,
        "drift": choice.drift,
        "theory": _theory(choice),
        "messages": choice.messages,
        **choice.spent,
        "hours_times_drift": choice.score,
    }
