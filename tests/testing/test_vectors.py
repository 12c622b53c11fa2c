"""Test vectors: the files are what boxes and package compute, and mistakes show."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import afga_jax
import toy
from afga_jax.keys import batch_key
from afga_jax.testing import boxes, parts, vectors
from afga_jax.typing import Batch
from cases import marked

KEY = jax.random.key(0)
HYPER = ("local_lr", "server_lr", "b1", "b2", "eps", "mix_every", "feddyn_alpha")
# Names of the package where a vector's is not one, and its further options.
BUILT = {
    f"{name}_{adapted}": (name, {"adapted": adapted})
    for name in ("afga_adapted", "cafga_adapted")
    for adapted in ("per_step", "per_round")
}
close = np.testing.assert_allclose


# Without the others of their kind, which are slow.
QUICK = ("afga", "cafga_adapted_per_step", "feddyn")


@pytest.mark.parametrize("name", vectors.NAMES)
def test_made_anew_it_is_the_file(name):
    made, shipped = vectors.make(name), vectors.load(name)
    assert list(made) == list(shipped)
    for array in made:
        assert made[array].dtype == shipped[array].dtype
        # Other processors may sum in another order.
        close(made[array], shipped[array], rtol=0, atol=1e-13, err_msg=array)


@struct.dataclass
class Recorded:
    """A vector's batches, found by the key that an algorithm draws them with."""

    keys: jax.Array  # [places, words]
    inputs: jax.Array  # [places, samples, features]
    targets: jax.Array
    sizes: jax.Array

    def batch(self, key, client):
        same = (self.keys == jax.random.key_data(key)[None]).all(1)
        place = jnp.argmax(same)
        # A batch that nobody recorded must not pass for another.
        inputs = jnp.where(same.any(), self.inputs[place], jnp.nan)
        return Batch(inputs, self.targets[place])


def recorded(vector, cycles):
    updates, steps, clients = vector["active"].shape
    places = [
        (update // cycles, update % cycles, step, client)
        for update in range(updates)
        for step in range(steps)
        for client in range(clients)
    ]
    keys = jax.vmap(lambda place: batch_key(KEY, *place))(jnp.array(places))
    flat = lambda x: jnp.asarray(x.reshape(len(places), *x.shape[3:]))  # noqa: E731
    arrays = flat(vector["inputs"]), flat(vector["targets"])
    return Recorded(jax.random.key_data(keys), *arrays, jnp.asarray(vector["sizes"]))


def plan_of(vector, drawn, number):
    """The plan of a round as the vector has it, in the form of one that was drawn."""
    labels = vector["clusters"]
    cycles, groups = drawn.clusters.shape
    now = slice(number * cycles, (number + 1) * cycles)
    active, upload = vector["active"][now], vector["upload"][now]
    clusters = np.arange(groups)[None]
    if cycles > 1:
        clusters = np.array([[labels[mask.argmax()]] for mask in upload])

    def ids(masks, like):
        """Ids of masks `[..., clients]` and their number, for each cluster."""
        rows = np.full(like.shape, len(labels), np.int32)
        counts = np.zeros(like.shape[:-1], np.int32)
        for place in np.ndindex(counts.shape):
            cycle, group = place[0], place[-1]
            mask = masks[place[:-1]] & (labels == clusters[cycle, group])
            counts[place] = mask.sum()
            rows[place][: mask.sum()] = np.flatnonzero(mask)
        return rows, counts

    part = drawn.cycles
    active, active_count = ids(active, part.active)
    upload, upload_count = ids(upload, part.upload)
    part = part._replace(
        active=active,
        active_count=None if part.active_count is None else active_count,
        upload=upload,
        upload_count=None if part.upload_count is None else upload_count,
        members=None if part.members is None else upload.reshape(cycles, -1),
    )
    return jax.tree.map(jnp.asarray, drawn._replace(clusters=clusters, cycles=part))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", marked(vectors.NAMES, QUICK))
def test_package_computes_it(name):
    vector = vectors.load(name)
    algorithm, options = BUILT.get(name, (name, {}))
    algorithm = afga_jax.build(
        algorithm,
        toy.logistic(vectors.FEATURES),
        num_clients=len(vector["sizes"]),
        local_steps=vector["active"].shape[1],
        clustering=vector["clusters"].tolist(),
        participation=vectors.PARTICIPATION,
        **{number: vector[number].item() for number in HYPER if number in vector},
        **options,
    )
    cycles = len(algorithm.plan(KEY, 0).clusters)
    data, run = recorded(vector, cycles), jax.jit(algorithm.round)
    weights, bias = np.split(vector["start"], [-vectors.CLASSES])
    params = {"w": weights.reshape(vectors.FEATURES, -1), "b": bias}
    state = started(algorithm, jax.tree.map(jnp.asarray, params))
    for number in range(len(vector["expected"]) // cycles):
        plan = plan_of(vector, algorithm.plan(KEY, number), number)
        state, _ = run(KEY, state, data, plan)
        expected = vector["expected"][(number + 1) * cycles - 1]
        close(toy.flat(state)[0], expected, rtol=0, atol=1e-10)


def started(algorithm, params):
    """The first state, with these parameters for the server and for every client."""
    state = algorithm.init(KEY).replace(params=params)
    if not state.clients:
        return state
    models, memories = state.clients
    everybody = jax.tree.map(lambda x: jnp.stack([x] * vectors.CLIENTS), params)
    return state.replace(clients=(models._replace(params=everybody), memories))


class Given(parts.Draws):
    """Gradients that are looked up, as who has another model would."""

    def __init__(self, *_):
        self.places = []

    def gradient(self, step, client, params, stats):
        self.places.append((step, client, params))
        return 0.0, self.given[step, client], stats


def replay(vector, **changes):
    """AFGA's box with a vector's own matrices and gradients: its models and draws."""
    masks, upload = vector["active"], vector["upload"]
    ids = lambda mask: set(np.flatnonzero(mask).tolist())  # noqa: E731
    rounds = []
    for r, active in enumerate(masks):
        draws = Given(0, [ids(mask) for mask in active], ids(upload[r]), None, None)
        draws.given, draws.mixing = vector["gradients"][r], vector["mixing"][r]
        rounds.append(draws)
    clusters = [ids(vector["clusters"] == k) for k in np.unique(vector["clusters"])]
    problem = parts.BoxStart(
        vector["start"], np.zeros(0), vector["sizes"], [sorted(k) for k in clusters]
    )
    moments = {name: vector[name].item() for name in ("b1", "b2", "eps")}
    settings = {
        "matrix_at": lambda draws, step: draws.mixing[step],
        "server": lambda: parts.fedamsgrad(**moments),
        "local_lr": vector["local_lr"],
        "server_lr": vector["server_lr"],
        **changes,
    }
    results = boxes.by_matrices(problem, [[draws] for draws in rounds], **settings)
    return np.array([result.params for result in results]), rounds


ADAPTIVE = [
    name
    for name in vectors.NAMES
    if name.startswith(("afga", "cafga", "hafed", "fedamsgrad"))
]


@pytest.mark.parametrize("name", ADAPTIVE)
def test_matrices_points_and_gradients_fit_together(name):
    vector = vectors.load(name)
    models, rounds = replay(vector)
    close(models, vector["expected"], rtol=0, atol=1e-12)
    for draws, points in zip(rounds, vector["points"], strict=True):
        for step, client, params in draws.places:
            close(params, points[step, client], rtol=0, atol=1e-12)
    nobody = ~vector["active"]
    assert np.isnan(vector["points"][nobody]).all()
    assert (vector["gradients"][nobody] == 0).all()
    assert np.isfinite(vector["points"][~nobody]).all()


def without_maximum(b1=0.9, b2=0.6, eps=1e-3):
    m = v = 0.0

    def step(delta):
        nonlocal m, v
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        return m / np.sqrt(v + eps)

    return step


MISTAKES = {
    "no maximum": {"server": without_maximum},
    "ε outside the root": {
        "server": lambda: parts.fedamsgrad(b2=0.6, eps=1e-3, eps_inside=False)
    },
    "FedAMS": {"server": lambda: parts.fedams(b2=0.6, eps=1e-3)},
    "mixing before the step": {"mixing_order": "before"},
    "no mixing": {"matrix_at": lambda draws, step: np.eye(vectors.CLIENTS)},
    "no mixing after the last step": {
        "matrix_at": lambda draws, step: (
            draws.mixing[step] if step < 2 else np.eye(vectors.CLIENTS)
        )
    },
    "weights by size": {"by_size": True},
    "complete graph": {
        "matrix_at": lambda draws, step: np.full([vectors.CLIENTS] * 2, 1 / 9)
    },
}


@pytest.mark.parametrize("name", ["afga", "cafga", "hafed_partial"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_shows(name, mistake):
    vector = vectors.load(name)
    wrong, _ = replay(vector, **MISTAKES[mistake])
    assert np.abs(wrong - vector["expected"]).max() > 1e-5


def test_mean_over_all_uploads_shows():
    vector = vectors.load("cafga")
    together = {**vector, "clusters": np.zeros_like(vector["clusters"])}
    wrong, _ = replay(together)
    assert np.abs(wrong - vector["expected"]).max() > 1e-4


@pytest.mark.parametrize("name", vectors.NAMES)
def test_weights_are_of_the_uploads(name):
    vector = vectors.load(name)
    weights, labels = vector["weights"], vector["clusters"]
    assert ((weights > 0) == vector["upload"]).all()
    close(weights.sum(1), 1)
    if name == "fedcluster":
        samples = np.where(vector["upload"], vector["sizes"], 0)
        close(weights, samples / samples.sum(1, keepdims=True))
    else:
        for k in np.unique(labels):
            close(weights[:, labels == k].sum(1), 1 / len(np.unique(labels)))


def test_unknown_name():
    with pytest.raises(ValueError, match=r"'fedsgd'.*one of afga, cafga"):
        vectors.load("fedsgd")


def test_command_writes_the_files_and_needs_no_test_runner(tmp_path):
    program = (
        "import runpy, sys; sys.argv[1:] = [sys.argv[1]]\n"
        "runpy.run_module('afga_jax.testing.vectors', run_name='__main__')\n"
        "assert 'pytest' not in sys.modules"
    )
    folder = tmp_path / "new"
    done = subprocess.run(
        [sys.executable, "-c", program, folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(folder / f"{name}.npz") for name in vectors.NAMES
    ]
    with np.load(folder / "afga.npz") as file:
        close(file["expected"], vectors.load("afga")["expected"], rtol=0, atol=1e-13)
