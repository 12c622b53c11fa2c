"""Client data: whose samples are drawn, how evenly, and what is done to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import afga_jax
from afga_jax import data, models
from afga_jax.data import partition, samples
from afga_jax.data.partition.assignment import members, ranges, stored
from afga_jax.data.samples import Arrays, Images, Windows
from afga_jax.typing import ClientData

NUM_SAMPLES = 60
LABELS = np.arange(NUM_SAMPLES) % 3
# Client 0 has one sample, fewer than any batch; sample 59 belongs to nobody.
UNEVEN = stored(np.random.default_rng(0).permutation(59), np.array([1, 7, 21, 30]))
RUNS = ranges(np.array([10, 40, 0, 30]), np.array([5, 1, 9, 8]), np.array([2, 1, 1]))
ASSIGNMENTS = {
    "stored": UNEVEN,
    "ranges": RUNS,
    "overlap": partition.overlap(LABELS, 5, client_size=8),
    "major_class": partition.major_class(LABELS, 5, client_size=8, rho_device=0.7),
}
each_assignment = pytest.mark.parametrize("held", ASSIGNMENTS.values(), ids=ASSIGNMENTS)


# Compiled once per assignment and batch size, for all tests.
draw = jax.jit(lambda clients, key, client: clients.batch(key, client))
whole = jax.jit(lambda clients, client: clients.full(client))
MANY = 3000


def numbered(held, batch_size=MANY):
    """Data whose inputs and targets are the samples' own numbers."""
    numbers = np.arange(NUM_SAMPLES)
    return data.from_arrays(
        numbers.astype(np.float32), numbers, held, batch_size=batch_size
    )


@each_assignment
class TestEveryAssignment:
    def test_it_is_client_data(self, held):
        clients = numbered(held)
        assert isinstance(clients, ClientData)
        assert clients.num_clients == held.num_clients
        leaves, treedef = jax.tree.flatten(clients)
        assert all(isinstance(leaf, jax.Array) for leaf in leaves)
        assert jax.tree.unflatten(treedef, leaves).batch_size == MANY

    def test_in_double_precision_the_same_samples_are_held(self, held, x64):
        clients = numbered(held)
        for client in range(held.num_clients):
            own = members(held, client)
            indices = np.asarray(clients.indices(client))
            np.testing.assert_array_equal(indices[: len(own)], own)

    def test_indices_are_the_clients_own_padded_by_repetition(self, held):
        clients = numbered(held)
        for client in range(held.num_clients):
            own = members(held, client)
            indices = np.asarray(clients.indices(client))
            assert indices.shape == (held.capacity,)
            np.testing.assert_array_equal(indices, np.resize(own, held.capacity))

    def test_only_own_samples_are_ever_seen(self, held):
        for client in range(held.num_clients):
            poisoned = np.full(NUM_SAMPLES, np.nan, np.float32)
            poisoned[members(held, client)] = 1
            source = Arrays(poisoned, LABELS)  # `from_arrays` would refuse it
            clients = data.client_data(source, held, batch_size=MANY)
            batch = draw(clients, jax.random.key(client), client)
            assert np.isfinite(batch.inputs).all()
            assert np.isfinite(whole(clients, client).inputs).all()

    def test_draws_are_uniform_over_own_samples(self, held):
        clients = numbered(held)
        for client in range(held.num_clients):
            own = members(held, client)
            drawn = np.asarray(draw(clients, jax.random.key(1), client).targets)
            counts = np.bincount(drawn, minlength=NUM_SAMPLES)[own]
            assert counts.sum() == MANY
            assert len(own) == 1 or stats.chisquare(counts).pvalue > 1e-3

    def test_mapped_draws_are_those_of_one_client(self, held):
        clients = numbered(held)
        ids = jnp.arange(held.num_clients)
        keys = jax.random.split(jax.random.key(2), held.num_clients)
        mapped = jax.jit(lambda d, k, c: jax.vmap(d.batch)(k, c))(clients, keys, ids)
        full = jax.jit(lambda d, c: jax.vmap(d.full)(c))(clients, ids)
        for client in range(held.num_clients):
            one = draw(clients, keys[client], client)
            np.testing.assert_array_equal(mapped.targets[client], one.targets)
            everything = whole(clients, client)
            np.testing.assert_array_equal(full.targets[client], everything.targets)
            np.testing.assert_array_equal(full.mask[client], everything.mask)

    def test_full_is_every_own_sample_once_under_the_mask(self, held):
        clients = numbered(held)
        for client in range(held.num_clients):
            batch = whole(clients, client)
            real = np.asarray(batch.targets)[np.asarray(batch.mask) == 1]
            np.testing.assert_array_equal(np.sort(real), np.sort(members(held, client)))
            assert float(batch.mask.sum()) == held.sizes[client]

    def test_pooled_is_one_client_with_each_distinct_sample_once(self, held):
        pooled = numbered(held).pooled()
        everybody = {s for c in range(held.num_clients) for s in members(held, c)}
        batch = whole(pooled, 0)
        assert pooled.num_clients == 1
        assert sorted(batch.targets.tolist()) == sorted(everybody)
        assert batch.mask.sum() == len(everybody)

    def test_sizes_take_an_array_of_clients(self, held):
        ids = jnp.array([1, 0, 1])
        sizes = jax.jit(lambda d, i: d.sizes[i])(numbered(held), ids)
        assert sizes.tolist() == [len(members(held, client)) for client in ids.tolist()]

    @pytest.mark.parametrize("client", [-1, 5])
    def test_a_client_out_of_range_is_refused(self, held, client):
        clients = numbered(held)
        for ask in (
            lambda: clients.batch(jax.random.key(0), client),
            lambda: clients.full(client),
            lambda: clients.indices(client),
        ):
            with pytest.raises(ValueError, match=rf"client {client} is outside \[0, "):
                ask()


def test_compiled_draws_are_the_eager_ones():
    clients, key = numbered(UNEVEN), jax.random.key(2)
    np.testing.assert_array_equal(
        draw(clients, key, 2).targets, clients.batch(key, 2).targets
    )
    np.testing.assert_array_equal(whole(clients, 2).targets, clients.full(2).targets)


def test_a_key_decides_the_draw():
    clients = numbered(UNEVEN)
    first, again, other = (
        draw(clients, jax.random.key(seed), 3).targets for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_draw_for_one_of_ten_million_is_the_same_program():
    def program(num_clients):
        held = partition.overlap(LABELS, num_clients, client_size=8)
        clients = numbered(held)
        return str(jax.make_jaxpr(draw)(clients, jax.random.key(0), jnp.asarray(3)))

    assert program(100) == program(10_000_000)


class TestImages:
    PIXELS = np.random.default_rng(3).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    TARGETS = np.arange(20)

    def test_crop_and_flip_equal_plain_numpy(self):
        random = np.random.default_rng(4)
        offsets = random.integers(0, 9, (20, 2))
        mirror = random.integers(0, 2, 20).astype(bool)
        moved = samples.cropped(jnp.asarray(self.PIXELS), jnp.asarray(offsets), 4)
        moved = samples.flipped(moved, jnp.asarray(mirror))
        for image, (top, left), flip, result in zip(
            self.PIXELS, offsets, mirror, moved, strict=True
        ):
            frame = np.zeros((14, 13, 3), np.uint8)
            frame[4:10, 4:9] = image
            window = frame[top : top + 6, left : left + 5]
            expected = window[:, ::-1] if flip else window
            np.testing.assert_array_equal(result, expected)

    def test_augmentation_reaches_every_offset_and_flips_half(self):
        # One bright pixel in the middle tells where its image went.
        pixels = np.zeros((1, 9, 9, 1), np.uint8)
        pixels[0, 4, 4] = 255
        source = samples.images(pixels, np.zeros(1, int), mean=[0.0], std=[1.0])
        source = source.replace(pad=4, flip=True)
        take = jax.jit(lambda source, chosen, key: source.take(chosen, key))
        batch = take(source, jnp.zeros(8100, int), jax.random.key(5))
        place = np.asarray(batch.inputs).reshape(8100, 81).argmax(axis=1)
        assert stats.chisquare(np.bincount(place, minlength=81)).pvalue > 1e-3
        still = source.replace(pad=0)
        edge = jnp.zeros((1, 9, 9, 1), jnp.uint8).at[0, 4, 0].set(255)
        still = still.replace(inputs=edge)
        batch = take(still, jnp.zeros(1000, int), jax.random.key(6))
        flips = np.asarray(batch.inputs[:, 4, 8, 0]).sum()
        assert stats.binomtest(int(flips), 1000).pvalue > 1e-3

    def test_normalisation_has_mean_zero_and_deviation_one(self, x64):
        source = samples.images(self.PIXELS, self.TARGETS)
        values = source.take(jnp.arange(20)).inputs
        scaled = self.PIXELS / 255
        mean, std = scaled.mean(axis=(0, 1, 2)), scaled.std(axis=(0, 1, 2))
        np.testing.assert_allclose(values, (scaled - mean) / std, rtol=0, atol=1e-13)
        np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), 0, atol=1e-13)
        np.testing.assert_allclose(values.std(axis=(0, 1, 2)), 1, rtol=1e-13)

    def test_images_stay_bytes_on_the_device(self):
        clients = data.client_data(
            samples.images(self.PIXELS, self.TARGETS),
            partition.iid(self.TARGETS, 4),
            batch_size=3,
        )
        assert clients.source.inputs.dtype == jnp.uint8
        assert clients.batch(jax.random.key(0), 1).inputs.dtype == jnp.float32

    def test_batches_are_augmented_and_full_is_not(self):
        held = partition.iid(self.TARGETS, 1)
        plain = samples.images(self.PIXELS, self.TARGETS)
        moving = samples.images(self.PIXELS, self.TARGETS, augment=True)
        assert (moving.pad, moving.flip) == (4, True)
        still = data.client_data(plain, held, batch_size=64)
        clients = data.client_data(moving, held, batch_size=64)
        key = jax.random.key(7)
        first, second = draw(still, key, 0), draw(clients, key, 0)
        np.testing.assert_array_equal(first.targets, second.targets)
        moved = np.any(np.asarray(first.inputs != second.inputs), axis=(1, 2, 3))
        assert moved.mean() > 0.8
        np.testing.assert_array_equal(still.full(0).inputs, clients.full(0).inputs)

    def test_the_same_sample_twice_in_a_batch_is_augmented_twice(self):
        source = samples.images(self.PIXELS, self.TARGETS, augment=True)
        batch = source.take(jnp.zeros(32, int), jax.random.key(8))
        assert len(np.unique(np.asarray(batch.inputs), axis=0)) > 8

    def test_held_out_is_normalised_by_the_training_images(self):
        digits = data.digits()
        batch = data.held_out(digits)
        train = digits.train_inputs / 255
        expected = (digits.test_inputs / 255 - train.mean()) / train.std()
        # float32: eight bits of value, scaled and shifted.
        np.testing.assert_allclose(batch.inputs, expected, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(batch.targets, digits.test_targets)
        assert batch.mask is None

    def test_held_out_in_chunks_is_the_whole(self):
        pixels = np.random.default_rng(9).integers(0, 256, (2345, 2, 2, 3), np.uint8)
        labels = np.arange(2345) % 5
        made = data.Dataset("made", pixels, labels, pixels, labels, num_classes=5)
        whole = samples.images(pixels, labels).take(jnp.arange(2345))
        np.testing.assert_array_equal(data.held_out(made).inputs, whole.inputs)
        some = data.held_out(made, limit=7)
        np.testing.assert_array_equal(some.inputs, whole.inputs[::335])
        np.testing.assert_array_equal(some.targets, labels[::335])

    def test_constant_images_and_other_types_are_refused(self):
        with pytest.raises(ValueError, match=r"std = 0.0.*> 0.*constant"):
            samples.images(np.zeros((4, 2, 2, 1), np.uint8), np.zeros(4, int))
        with pytest.raises(ValueError, match=r"float64.*\(4, 2\).*give uint8"):
            samples.images(np.zeros((4, 2)), np.zeros(4, int))


class TestWindows:
    TEXT = np.random.default_rng(10).integers(0, 80, NUM_SAMPLES + 6, dtype=np.uint8)

    def test_windows_are_slices_with_the_next_character(self):
        batch = Windows(jnp.asarray(self.TEXT), 6).take(jnp.array([0, 17, 59]))
        for row, start in enumerate([0, 17, 59]):
            np.testing.assert_array_equal(
                batch.inputs[row], self.TEXT[start : start + 6]
            )
            assert batch.targets[row] == self.TEXT[start + 6]
        assert batch.inputs.dtype == batch.targets.dtype == jnp.int32

    def test_windows_stay_within_the_clients_runs(self):
        for client in range(RUNS.num_clients):
            text = np.full(NUM_SAMPLES + 6, 255, np.uint8)
            for start in members(RUNS, client):
                text[start : start + 7] = 1
            clients = data.client_data(Windows(text, 6), RUNS, batch_size=200)
            batch = draw(clients, jax.random.key(client), client)
            assert batch.inputs.shape == (200, 6)
            assert int(batch.inputs.max()) == int(batch.targets.max()) == 1

    def test_the_text_is_stored_once_as_bytes(self):
        clients = data.client_data(Windows(self.TEXT, 6), RUNS, batch_size=2)
        assert clients.source.text.dtype == jnp.uint8
        assert clients.source.text.shape == (NUM_SAMPLES + 6,)


def test_trees_of_inputs_are_taken_leaf_by_leaf():
    inputs = {"a": np.arange(6.0), "b": np.arange(12).reshape(6, 2)}
    batch = Arrays(*jax.tree.map(jnp.asarray, (inputs, np.arange(6)))).take(
        jnp.array([4, 1])
    )
    assert batch.inputs["a"].tolist() == [4, 1]
    assert batch.inputs["b"].tolist() == [[8, 9], [2, 3]]


@pytest.mark.parametrize("batch_size", [0, -3, 2.5])
def test_a_batch_of_nothing_is_refused(batch_size):
    with pytest.raises(ValueError, match=rf"batch_size = {batch_size}, but it must be"):
        numbered(UNEVEN, batch_size=batch_size)


def test_an_assignment_of_other_samples_is_refused():
    with pytest.raises(ValueError, match=r"deals sample 58, there are only 10"):
        data.from_arrays(np.zeros(10), np.zeros(10), UNEVEN, batch_size=2)
    with pytest.raises(ValueError, match=r"deals sample 40, there are only 24"):
        data.client_data(Windows(np.zeros(30, np.uint8), 6), RUNS, batch_size=2)
    held = partition.iid(np.zeros(1443, int), 3)
    with pytest.raises(ValueError, match=r"deals sample 1442, there are only 1442"):
        data.from_dataset(data.digits(), held, batch_size=2)


def test_inputs_and_targets_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"lengths \[60, 61\].*one target per sample"):
        data.from_arrays(np.zeros(60), np.zeros(61), UNEVEN, batch_size=2)


class TestDataset:
    def fields(self, **changes):
        fields = {
            "name": "tiny",
            "train_inputs": np.zeros((3, 2), np.uint8),
            "train_targets": np.array([0, 1, 1]),
            "test_inputs": np.zeros((2, 2), np.uint8),
            "test_targets": np.array([0, 1]),
            "num_classes": 2,
        }
        return fields | changes

    def test_labels_become_int32_and_classes_get_names(self):
        made = data.Dataset(**self.fields())
        assert made.train_targets.dtype == made.test_targets.dtype == np.int32
        assert made.label_names == ("0", "1")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_classes": 1}, r"train split: label 1 of sample 1.*\[0, 1\).*raise"),
            ({"test_targets": np.array([0, -1])}, r"test split: label -1 of sample 1"),
            ({"train_targets": np.array([0, 1])}, r"3 inputs but 2 targets"),
            ({"train_targets": np.zeros(3)}, r"float64.*one integer per sample"),
            ({"num_classes": 0}, r"num_classes is 0.*at least 1"),
            ({"label_names": ("cat",)}, r"1 label names for 2 classes"),
            ({"test_inputs": np.zeros((2, 3), np.uint8)}, r"\(2,\).*\(3,\).*alike"),
            (
                {
                    "train_inputs": np.zeros((0, 2), np.uint8),
                    "train_targets": np.zeros(0, int),
                },
                r"training split is empty",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused(self, changes, message):
        with pytest.raises(ValueError, match=f"(?s)tiny.*{message}"):
            data.Dataset(**self.fields(**changes))


def test_image_source_is_a_pytree_with_static_options():
    source = samples.images(TestImages.PIXELS, TestImages.TARGETS, augment=True)
    assert isinstance(source, Images)
    assert len(jax.tree.leaves(source)) == 4


class TestBelow:
    @pytest.mark.parametrize("bound", [1, 2, 9, 1000, 65536, 65537, 2**31 - 1, 2**31])
    def test_it_is_the_upper_half_of_the_product(self, bound):
        bits = np.random.default_rng(11).integers(0, 2**32, 1000, dtype=np.uint32)
        bits[:3] = 0, 2**32 - 1, 2**16 - 1
        found = samples.below(jnp.asarray(bits), np.uint32(bound))
        expected = [int(b) * bound >> 32 for b in bits]
        assert found.dtype == jnp.int32
        np.testing.assert_array_equal(found, expected)

    def test_all_numbers_are_equally_likely(self):
        bits = jax.random.bits(jax.random.key(0), (90_000,))
        counts = np.bincount(samples.below(bits, 9), minlength=9)
        # Five standard deviations of a count of mean 10,000.
        np.testing.assert_allclose(counts, 10_000, rtol=0, atol=500)


class TestOwnArrays:
    HELD = partition.by_client(np.array([0, 0, 1, 1]))
    INPUTS, LABELS = np.eye(4, dtype=np.float32), np.array([0, 1, 1, 3])

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (
                INPUTS + np.array([[1.0], [1], [np.nan], [np.inf]]),
                "of sample 2 are NaN",
            ),
            (np.array(["a", "b", "c", "d"]), "hold an array of <U1, but"),
            (["a", "b", "c", "d"], "inputs hold 'a', but they must be arrays"),
            (np.array([None] * 4), "hold an array of object, but"),
            ([[1.0, 2.0]] * 4, "inputs hold 1.0, but they must be arrays"),
        ],
    )
    def test_what_is_no_array_of_finite_numbers(self, inputs, message):
        with pytest.raises(ValueError, match=message):
            data.from_arrays(inputs, self.LABELS, self.HELD, batch_size=2)

    @pytest.mark.parametrize(
        ("labels", "input_shape", "message"),
        [
            (np.array([0, 1, 1000, 3]), (4,), r"label 1000 of sample 2 .* \[0, 4\)"),
            (np.array([0, 1, -1, 3]), (4,), "label -1 of sample 2"),
            (LABELS.astype(float), (4,), "give one integer per sample"),
            (LABELS, (5,), r"shape \(4,\), but .* input_shape = \(5,\)"),
        ],
    )
    def test_what_the_task_cannot_take(self, labels, input_shape, message):
        model = models.create("mlp", num_classes=4)
        task = models.classifier(model, input_shape)
        algorithm = afga_jax.build("fedavg", task, num_clients=2, active=1)
        clients = data.from_arrays(self.INPUTS, labels, self.HELD, batch_size=2)
        with pytest.raises(ValueError, match=message):
            afga_jax.fit(algorithm, clients, key=jax.random.key(0), rounds=1)
