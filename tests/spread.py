"""Rounds on several devices, against one.

Run where JAX has eight devices (`test_scale`), or two (`test_two_devices`).
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

import afga_jax
import toy
from afga_jax import aggregators, attacks, compressors, data, robust
from afga_jax.data.partition.assignment import stored
from afga_jax.mesh import make_mesh
from afga_jax.optimizers.aggregators import Aggregator, AggregatorState
from afga_jax.rounds.client_blocks import can_be_split, split
from afga_jax.rounds.execution import Execution
from afga_jax.training import engine_choice, memory, trainer
from afga_jax.training.placement import placement
from afga_jax.training.seeds import keys_of
from benchmarks import collectives

CLIENTS, ROUNDS, KEY = 16, 3, 1
STEPS = {"local_steps": 3}
SOME = {"active": 4, **STEPS}
TWO = {"num_clusters": 2, **SOME}
FAULTS = afga_jax.Faults(0.3, 0.3, 0.3, upload_loss=0.2)


def remembering(options):
    """AFGA with momentum that persists, a median, and errors that clients keep."""

    def apply(key, deltas, weights, state, ids):
        wanted = deltas + state.clients
        sent = jnp.where(jnp.abs(wanted) > 0.1, wanted, 0)
        real = jnp.where(weights[:, None] > 0, sent, jnp.nan)
        kept = state._replace(server=state.server + 1, clients=wanted - sent)
        return jnp.nanmedian(real, axis=0), kept, {"rounds": kept.server}

    def init(params):
        return AggregatorState(jnp.zeros(()), jnp.zeros_like(params))

    return afga_jax.compose(
        options,
        compute="resampled",
        topology="ring",
        server=afga_jax.fedamsgrad(options.server_lr),
        aggregator=Aggregator(init, apply),
        keep_optimizer=True,
    )


# What the devices exchange differs: neighbours' rows, means, matrices, nothing.
CASES = {
    "afga": ("afga", SOME),
    "torus": ("afga", {**SOME, "topology": "torus"}),
    "random graph": ("afga", {**SOME, "topology": "random"}),
    "star, mix first": ("afga", {**SOME, "topology": "star", "mixing_order": "before"}),
    "cafga": ("cafga", TWO),
    "unequal clusters": (
        "cafga",
        {**STEPS, "participation": 0.25, "clustering": [0] * 4 + [1] * 9 + [2] * 3},
    ),
    "afga_adapted": ("afga_adapted", SOME),
    "cafga_adapted": ("cafga_adapted", TWO),
    "hafed": ("hafed", TWO),
    "tthf": ("tthf", {**STEPS, "num_clusters": 2}),
    "to the sampled": (
        "tthf",
        {**STEPS, "num_clusters": 2, "mix_times": 2, "broadcast": "sampled"},
    ),
    "epidemic": ("epidemic", STEPS),
    "diloco": ("diloco", STEPS),
    "hafed_active": ("hafed_active", {**TWO, "mix_every": 2}),
    "fedcluster": ("fedcluster", {**STEPS, "participation": 0.5, "num_clusters": 2}),
    "scaffold": ("scaffold", {**SOME, "active": 5}),
    "remembering": (remembering, {**SOME, "local_optimizer": "momentum"}),
    "own rates": ("cafga", {**TWO, "local_lr": np.geomspace(0.1, 0.9, CLIENTS)}),
    "fednova": ("fednova", {**SOME, "client_steps": [1, 2, 3, 1] * 4}),
    "moments": ("afga", {**SOME, "local_optimizer": "adam", "full_batch": True}),
    "dsgd": ("dsgd", STEPS),
    "faults": ("cafga", {**TWO, "faults": FAULTS}),
    "faults, star": ("afga", {**SOME, "faults": FAULTS, "topology": "star"}),
    "faults, random graph": ("afga", {**SOME, "faults": FAULTS, "topology": "random"}),
    "faults, pga": ("pga", {**STEPS, "pga_period": 2, "faults": FAULTS}),
    "pga in clusters": ("pga", {**STEPS, "num_clusters": 2, "pga_period": 2}),
}
SPANNED = (
    "afga",
    "cafga",
    "afga_adapted",
    "cafga_adapted",
    "hafed",
    "hafed_active",
    "fedcluster",
    "scaffold",
    "fednova",
    "tthf",
    "remembering",
    "own rates",
    "faults",
)
# On eight devices; the others on four, and those of `test_two_devices` on two.
ON_EIGHT = (
    "afga",
    "cafga",
    "afga_adapted",
    "cafga_adapted",
    "hafed",
    "fedcluster",
    "scaffold",
    "dsgd",
)
SINGLE = ("afga", "dsgd")


def double():
    """Prints how far both engines are from one device, in double precision."""
    results = {}
    with jax.enable_x64(True):
        for name in CASES:
            compare(results, name, (8 if name in ON_EIGHT else 4,))
    print(json.dumps(results))


def others():
    """Prints how far other numbers, copied data and several seeds are from one device.

    And what the devices send each other in a round.
    """
    single, counts = {}, {"afga": 8, "cafga": 2, "star, mix first": 8}
    for name in SINGLE:
        compare(single, name, (8,))
    exchanged = {name: sent(built(name), number) for name, number in counts.items()}
    with jax.enable_x64(True):
        copied = functools.partial(rounds, built("afga"), data=toy.clients(CLIENTS))
        alone, shared = copied([None, 4])
        found = [worst(shared, alone)]
        found += [worst(one, alone) for one in copied([2], "span", 2)]
        results = {"copied": found, "seeds": seeds_apart()}
    print(json.dumps({"single": single, "sent": exchanged, **results}))


def on_two():
    """Prints how far both engines on two devices are from one."""
    results = {}
    with jax.enable_x64(True):
        compare(results, "afga", (2,))
    print(json.dumps(results))


def defences_on_two():
    """Prints how far defences and compressors on two devices are from one.

    On the server, and in gossip.
    """
    defences = {
        "median": aggregators.median(),
        "trimmed_mean": aggregators.trimmed_mean(1),
        "krum": aggregators.krum(1, 2),
        "centred_clipping": aggregators.centred_clipping(0.3, 2),
        "norm_clipping": aggregators.norm_clipping(0.3),
    }
    top_k, qsgd = compressors.top_k(0.3), compressors.qsgd(4)
    dissensus, nan = attacks.dissensus(0.3), attacks.nan(0.3)
    unequal = {**STEPS, "participation": 0.25, "clustering": [0] * 4 + [1] * 12}
    guarded = {
        "lies": ("afga", {**SOME, "attack": dissensus, "compress_uploads": qsgd}),
        "clipped": (
            "cafga",
            {
                **{**unequal, "attack": dissensus, "faults": FAULTS},
                "gossip_defence": robust.clipped(1),
            },
        ),
        "trimmed mean": (
            "afga",
            {
                **{**SOME, "topology": "exponential", "attack": nan},
                "gossip_defence": robust.trimmed_mean(1),
            },
        ),
        "qsgd": ("cafga", {**unequal, "compress_gossip": qsgd}),
        "top-k": ("dsgd", {**STEPS, "mix_every": 2, "compress_gossip": top_k}),
    }
    for name, aggregator in defences.items():
        guarded[name] = ("afga", {**SOME, "active": 5, "aggregator": aggregator})
    results = {}
    with jax.enable_x64(True):
        for name, case in guarded.items():
            CASES[name] = case
            compare(results, name, (2,))
    print(json.dumps(results))


def shared_slots():
    """Prints how far the span engine is from the dense one, on all devices there are.

    As a user has them who gives no mesh; of several seeds, the rounds that were run.
    """
    results, wide = {}, Execution("span", slot_width=2)
    key, keys = jax.random.key(KEY), keys_of(0, 2)
    with jax.enable_x64(True):
        for name in ("afga", "moments", "scaffold", "fedcluster"):
            ended = []
            for execution in (wide, Execution("dense")):
                trainer = afga_jax.Trainer(built(name), execution, capacity=2)
                start = trainer.init(key)
                ended.append(jax.device_get(trainer.run(key, start, clients(), 2)))
                spanned = trainer.choice.engine == "span"
                assert trainer.choice.devices == (2 if spanned else 1)
            results[name] = worst(*ended)
        trainer = afga_jax.Trainer(built("afga"), wide, capacity=2)
        state, _ = trainer.run(keys, trainer.init(keys), clients(), 2)
        state, seen = trainer.run(keys, state, clients(), 1)
        assert seen.loss.shape == (1, 2)
        results["rounds"] = state.round.tolist()
    print(json.dumps(results))


def built(name):
    algo, options = CASES[name]
    full = options.get("full_batch", False)
    task = toy.logistic(norm=not full)
    options = {"num_clients": CLIENTS, "local_lr": 0.5, **options}
    return afga_jax.build(algo, task, **options)


def clients():
    """As a user has them: samples of all clients in one array, some shared by two."""
    rng, sizes = np.random.default_rng(0), np.arange(CLIENTS) % 5 + 2
    held = rng.permutation(np.arange(sizes.sum()) % (sizes.sum() - 9))
    inputs = rng.normal(size=(len(held), 3)).astype(jnp.zeros(()).dtype)
    targets = (inputs.sum(1) > 0).astype(int)
    return data.from_arrays(inputs, targets, stored(held, sizes), batch_size=4)


def compare(results, name, devices):
    """Both engines on several devices, with the dense one on one."""
    algorithm = built(name)
    expected = rounds(algorithm, [None])[0]
    results[name] = apart(algorithm, devices, expected)
    if name in SPANNED:
        results[f"{name}, span"] = apart(algorithm, devices, expected, "span", 8)


def apart(algorithm, devices, expected, *how):
    """Of everything after three rounds, from one device's dense engine."""
    return [worst(one, expected) for one in rounds(algorithm, devices, *how)]


def rounds(algorithm, devices, engine_="dense", width=None, data=None):
    """State and diagnostics on each number of devices; None: without a mesh."""
    key, data = jax.random.key(KEY), clients() if data is None else data
    mesh = devices[-1] and make_mesh({"clients": devices[-1]}, clients=CLIENTS)
    execution = Execution(engine_, slot_width=width, mesh=mesh)
    choice, planner = engine_choice.choose(algorithm, key, execution)
    assert choice.devices == (devices[-1] or 1)
    plans = planner(key, range(8))
    start = jax.device_get(jax.jit(algorithm.init)(key))
    ended = []
    for number in devices:
        where = None
        if number is not None:
            mesh = make_mesh({"clients": number}, clients=CLIENTS)
            where = placement(mesh, key, blocks=choice.engine == "dense")
        given = {"key": key, "state": start, "data": data}
        if where is not None:
            if can_be_split(data, algorithm.recipe):
                given["data"] = split(data, algorithm.recipe, number)
            given = {name: where.put(name, one) for name, one in given.items()}
        execution = Execution(mesh=where and where.mesh)
        run = trainer.compiled(algorithm.round, execution, where)
        result = run(given.pop("key"), **given, plans=plans, begin=0, rounds=ROUNDS)
        state, info = jax.device_get(result)
        ended.append((state, info._replace(contained=named(info.contained))))
    return ended


def named(contained):
    """Which clients were left out; how many rows nobody has depends on the devices."""
    return jax.tree.map(
        lambda ids: (ids[..., None] == np.arange(CLIENTS)).any(-2), contained
    )


def worst(found, expected):
    """The largest difference, relative to the largest number of the same array."""

    def apart(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        scale = np.abs(b).max(initial=0)
        return float(np.abs(a - b).max(initial=0) / (scale or 1))

    return max(jax.tree.leaves(jax.tree.map(apart, found, expected)))


def seeds_apart():
    """Two seeds, each on four devices, against both on one; a block that goes on."""
    keys, data = keys_of(0, 2), clients()
    ended = []
    for axes in (None, {"seeds": 2, "clients": 4}):
        mesh = axes and make_mesh(axes, clients=CLIENTS, seeds=2)
        execution = Execution("dense", mesh=mesh)
        trainer = afga_jax.Trainer(built("scaffold"), execution)
        state = trainer.start(keys, data)
        for number in (1, 2):
            state, seen = trainer.run(keys, state, data, number)
        ended.append(jax.device_get((state, seen)))
        held = state.controls["w"].sharding.shard_shape(state.controls["w"].shape)
    assert held == (1, CLIENTS // 4, 3, 2), held
    return worst(*reversed(ended))


def sent(algorithm, devices):
    """Collectives of one round: names, bytes, whether in the local steps' loop."""
    key = jax.random.key(KEY)
    compiled = collectives.one_round(algorithm, clients(), key, devices)
    state = jax.eval_shape(algorithm.init, key)
    model = memory.bytes_of((state.params, state.stats))
    batch = jax.eval_shape(lambda held: held.batch(key, jnp.int32(0)), clients())
    return {
        "model": model,
        "batch": memory.bytes_of(batch),
        "ops": collectives.found(compiled.as_text()),
    }
