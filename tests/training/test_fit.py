"""What `fit` returns, against rounds that are run one by one."""

import io
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import pyplot

import afga_jax
import toy
from afga_jax.training import progress
from afga_jax.training.seeds import keys_of

KEY = jax.random.key(5)
OPTIONS = {"num_clients": 8, "active": 3, "local_steps": 2, "local_lr": 0.5}
DATA = toy.clients(8, samples=20)
POOLED = DATA.pooled()
TEST = afga_jax.Batch(POOLED.inputs[0, ::3], POOLED.targets[0, ::3])


def build(name="afga", task=None, **more):
    return afga_jax.build(name, task or toy.logistic(), **{**OPTIONS, **more})


def logits(params, stats, inputs):
    return inputs @ params["w"] + params["b"][None]


@pytest.fixture(scope="module")
def trained():
    task = toy.logistic()._replace(predict=logits)
    return afga_jax.fit(
        build(task=task),
        DATA,
        key=KEY,
        rounds=7,
        test=TEST,
        eval_every=3,
        per_client=True,
    )


def test_history_is_what_single_rounds_say(trained):
    algorithm, key = trained.algorithm, KEY
    state = algorithm.init(key)
    prices = afga_jax.ledger.costs(algorithm, state)
    step, history = jax.jit(algorithm.round), trained.history
    assert history.round.tolist() == list(range(1, 8))
    for number in range(7):
        state, info = step(key, state, DATA)
        for name in ("delta_norm", "spread", "gradients", "needed", "uploads"):
            value = getattr(history, name)[number]
            np.testing.assert_allclose(value, getattr(info, name), rtol=1e-4)
        np.testing.assert_allclose(history.train_loss[number], info.loss, rtol=1e-5)
        accuracy = history.train_metrics["accuracy"][number]
        np.testing.assert_allclose(accuracy, info.metrics["accuracy"], rtol=1e-5)
        row = prices.per_round(info, number)
        assert (history.bytes[number], history.hours[number]) == (
            row["bytes"],
            row["hours"],
        )
        counts = ("server_uploads", "server_downloads", "broadcasts", "gossip_messages")
        assert history.messages[number] == sum(row[name] for name in counts)
        if number + 1 in (3, 6, 7):
            metrics = afga_jax.evaluate(algorithm.task, state, TEST)
            np.testing.assert_allclose(
                history.test_loss[number], metrics["loss"], rtol=1e-4
            )
            assert history.test_accuracy[number] == metrics["accuracy"]
    chex.assert_trees_all_close(state.params, trained.state.params, rtol=1e-4)


def test_evaluated_rounds(trained):
    assert trained.history.evaluated.tolist() == [0, 0, 1, 0, 0, 1, 1]
    known = np.isfinite(trained.history.clients["client_loss_q90"])
    assert known.tolist() == trained.history.evaluated.tolist()


@pytest.mark.parametrize(("rounds", "count"), [(7, 7), (60, 20), (1, 1)])
def test_about_twenty_evaluations_unless_asked_otherwise(rounds, count):
    result = afga_jax.fit(build(), DATA, key=KEY, rounds=rounds, test=TEST)
    assert result.history.evaluated.sum() == count
    assert result.history.evaluated[-1]


def test_evaluating_on_the_way_changes_nothing(trained):
    blind = afga_jax.fit(trained.algorithm, DATA, key=KEY, rounds=7)
    chex.assert_trees_all_equal(blind.state, trained.state)
    assert np.isnan(blind.history.test_loss).all()
    assert blind.clients is None


def test_it_can_still_be_taken_apart(trained):
    state, info = trained
    assert state is trained.state
    np.testing.assert_array_equal(info.loss, trained.history.train_loss)


def test_evaluate_and_predict(trained):
    metrics = trained.evaluate()
    assert metrics["accuracy"] == trained.history.test_accuracy[-1]
    outputs = trained.predict(TEST.inputs)
    chex.assert_shape(outputs, (len(TEST.inputs), 2))
    right = outputs.argmax(1) == TEST.targets
    np.testing.assert_allclose(right.mean(), metrics["accuracy"], rtol=1e-6)
    first = afga_jax.Batch(TEST.inputs[:1], TEST.targets[:1])
    assert trained.evaluate(first)["accuracy"] == right[0]


def test_every_client(trained):
    again = trained.evaluate_clients()
    for name in ("loss", "accuracy"):
        np.testing.assert_array_equal(again.values[name], trained.clients.values[name])
    for name, value in trained.clients.summary().items():
        assert trained.history.clients[name][-1] == value


def test_its_text_is_one_line(trained):
    assert "8 clients, 7 rounds" in repr(trained)
    assert "\n" not in repr(trained)
    assert len(repr(trained)) < 200


def test_seeds_together_equal_seeds_apart():
    options = {"rounds": 4, "test": TEST, "eval_every": 2, "per_client": True}
    keys = keys_of(3, 2)
    task = toy.logistic()._replace(predict=logits)
    together = afga_jax.fit(build(task=task), DATA, key=keys, **options)
    outputs = together.predict(TEST.inputs)
    for seed, key in enumerate(keys):
        alone = afga_jax.fit(build(task=task), DATA, key=key, **options)
        for name, values in alone.history.columns().items():
            both = together.history.columns()[name]
            both = both if name == "round" else both[:, seed]
            np.testing.assert_allclose(both, values, rtol=1e-4, err_msg=name)
        accuracy = together.evaluate()["accuracy"][seed]
        assert accuracy == alone.evaluate()["accuracy"]
        expected = alone.predict(TEST.inputs)
        np.testing.assert_allclose(outputs[seed], expected, rtol=1e-4, atol=1e-6)


def test_who_mixes_is_drawn_for_the_ledger():
    options = {"num_clusters": 2, "active": 4, "adapted": "per_step", "mix_every": 1}
    algorithm = build("hafed_active", **options)
    prices = afga_jax.ledger.costs(algorithm, algorithm.init(KEY))
    assert prices.needs_plan
    result = afga_jax.fit(algorithm, DATA, key=KEY, rounds=3)
    for number in range(3):
        alone = jax.tree.map(lambda x: x[number], result.info)  # noqa: B023
        row = prices.per_round(alone, number, algorithm.plan(KEY, number))
        assert result.history.bytes[number] == row["bytes"]


def test_who_gets_the_model_is_counted():
    algorithm = afga_jax.build(
        *("hafed_partial", toy.logistic()),
        **{"num_clients": 12, "num_clusters": 2, "active": 4, "local_steps": 2},
        broadcast="sampled",
    )
    keys = keys_of(0, 2)
    result = afga_jax.fit(algorithm, toy.clients(12), key=keys, rounds=2)
    np.testing.assert_array_equal(result.info.receivers, np.full((2, 2), 4))
    prices = afga_jax.ledger.costs(algorithm, algorithm.init(KEY))
    alone = jax.tree.map(lambda x: x[1, 1], result.info)
    row = prices.per_round(alone, 1)
    assert (row["server_downloads"], row["broadcasts"]) == (4, 0)
    assert result.history.bytes[1, 1] == row["bytes"]


def test_links_are_the_hours():
    slow = afga_jax.ledger.Links(server_seconds=36, client_seconds=3.6)
    hours = [
        afga_jax.fit(build(), DATA, key=KEY, rounds=2, links=links).history.hours
        for links in (None, slow)
    ]
    np.testing.assert_allclose(2 * hours[0], hours[1])


def test_old_keys_are_the_same_keys():
    results = [
        afga_jax.fit(build(), DATA, key=key, rounds=2)
        for key in (jax.random.key(7), jax.random.PRNGKey(7))
    ]
    chex.assert_trees_all_equal(results[0].state, results[1].state)


def test_a_pair_of_arrays_is_test_data():
    inputs, targets = np.asarray(TEST.inputs), np.asarray(TEST.targets)
    result = afga_jax.fit(build(), DATA, key=KEY, rounds=1, test=(inputs, targets))
    assert result.evaluate()["accuracy"] == result.evaluate(TEST)["accuracy"]


def test_a_centralised_algorithm_takes_all_clients_or_one():
    for data in (DATA, POOLED):
        result = afga_jax.fit(build("sgd"), data, key=KEY, rounds=2)
        assert result.history.gradients.tolist() == [2, 2]


def test_divergence_is_said():
    algorithm = build("fedavg", local_lr=1e38)
    with pytest.warns(
        RuntimeWarning, match=r"not finite from round \d.*lower local_lr"
    ):
        afga_jax.fit(algorithm, DATA, key=KEY, rounds=5)


BAD = [
    ({"rounds": 0}, r"rounds = 0.*>= 1"),
    ({"eval_every": 0, "test": TEST}, r"eval_every = 0.*>= 1"),
    ({"eval_every": 2}, r"eval_every = 2.*nothing to evaluate.*test="),
    ({"test": DATA}, r"test is a ToyClients.*Batch\(inputs, targets\)"),
    ({"test": (TEST.inputs, TEST.targets[1:])}, r"lengths \[53, 54\]"),
    ({"test": (TEST.inputs[:0], TEST.targets[:0])}, r"lengths \[0\]"),
    ({"key": 0}, r"key = 0.*jax.random.key\(0\)"),
    ({"key": jnp.zeros(3, jnp.uint32)}, r"must be a random key"),
    ({"data": toy.clients(5)}, r"data has 5 clients.*num_clients=5"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_is_refused(given, message):
    options = {"data": DATA, "key": KEY, "rounds": 3, **given}
    with pytest.raises(ValueError, match=message):
        afga_jax.fit(build(), options.pop("data"), **options)


def test_what_was_not_given_is_named():
    result = afga_jax.fit(build(), DATA, key=KEY, rounds=1)
    with pytest.raises(ValueError, match=r"test is None.*needs samples"):
        result.evaluate()
    with pytest.raises(ValueError, match=r"no test accuracy.*test=batch"):
        _ = result.history.test_accuracy
    with pytest.raises(ValueError, match=r"no predict.*_replace"):
        result.predict(TEST.inputs)


class TestPandas:
    def test_it_is_asked_for_only_where_it_is_needed(self, trained, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            trained.history.to_pandas()

    @pytest.mark.parametrize("seeds", [0, 2])
    def test_a_line_for_each_round(self, seeds, monkeypatch):
        """pandas may be missing here: what it would be given is looked at."""
        given = type(sys)("pandas")
        given.DataFrame = dict
        monkeypatch.setitem(sys.modules, "pandas", given)
        key = keys_of(0, seeds) if seeds else KEY
        history = afga_jax.fit(build(), DATA, key=key, rounds=3).history
        table = history.to_pandas()
        lines = list(zip(table["round"], table.get("seed", [0] * 3), strict=True))
        rows = range(1, 4)
        assert lines == [(r, s) for r in rows for s in range(max(seeds, 1))]
        for (number, seed), loss in zip(lines, table["train_loss"], strict=True):
            assert loss == history.train_loss.reshape(3, -1)[number - 1, seed]


class TestPlot:
    def texts(self, figure):
        return [panel.get_ylabel() for panel in figure.axes]

    @pytest.fixture(autouse=True)
    def _closed(self):
        yield
        pyplot.close("all")

    def test_with_clients(self, trained):
        figure = trained.plot()
        texts = self.texts(figure)
        assert texts[0] == "test accuracy, %"
        assert texts[-1] == "clients"
        accuracy = figure.axes[0].lines[0]
        np.testing.assert_array_equal(accuracy.get_xdata(), [3, 6, 7])
        known = trained.history.evaluated
        expected = 100 * trained.history.test_accuracy[known]
        np.testing.assert_allclose(accuracy.get_ydata(), expected)
        file = io.BytesIO()
        figure.savefig(file, format="png")
        assert file.getvalue().startswith(b"\x89PNG")

    def test_without_test_data(self):
        result = afga_jax.fit(build(), DATA, key=keys_of(0, 2), rounds=3)
        figure = result.plot()
        assert self.texts(figure)[0] == "training accuracy, %"
        # A band over the seeds.
        assert len(figure.axes[0].collections) == 1

    def test_a_notebook_shows_it_once(self, trained, monkeypatch):
        monkeypatch.setattr("afga_jax.training.picture.in_notebook", lambda: True)
        before = pyplot.get_fignums()
        trained.plot()
        assert pyplot.get_fignums() == before


class TestProgress:
    def written(self, capsys, terminal, **options):
        sys.stderr.isatty = lambda: terminal
        result = afga_jax.fit(build(), DATA, key=KEY, test=TEST, rounds=9, **options)
        return result, capsys.readouterr()

    def test_a_terminal_shows_a_bar(self, capsys):
        result, written = self.written(capsys, terminal=True)
        assert "9/9" in written.err
        assert f"test accuracy={float(result.history.test_accuracy[-1]):.4g}" in (
            written.err
        )
        assert written.out == ""

    @pytest.mark.parametrize(
        ("terminal", "asked"), [(False, True), (True, False), (False, False)]
    )
    def test_elsewhere_nothing_is_written(self, capsys, terminal, asked):
        _, written = self.written(capsys, terminal, progress=asked)
        assert written == ("", "")

    def test_the_bar_changes_nothing(self, capsys):
        shown, _ = self.written(capsys, terminal=True, eval_every=9)
        quiet, _ = self.written(capsys, terminal=False, eval_every=9)
        chex.assert_trees_all_equal(shown.state, quiet.state)
        np.testing.assert_array_equal(shown.info.loss, quiet.info.loss)

    def test_a_kernel_is_a_notebook(self, monkeypatch):
        assert not progress.in_notebook()
        shell = type("Shell", (), {"config": {"IPKernelApp": {}}})()
        module = type(sys)("IPython")
        module.get_ipython = lambda: shell
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert progress.in_notebook()
        shell.config = {}
        assert not progress.in_notebook()
