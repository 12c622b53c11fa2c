"""The sizes `small`, for a CPU in minutes, and `smoke`, for seconds.

They follow the papers' rows. Learning rates that `small` does not tune are the papers'.
"""

import functools

from afga_jax.settings.row import row

_IMAGES = ("cifar10", "cifar100", "fashion_mnist", "mnist", "digits")
_PROBLEMS = ("quadratic", "logistic")

_small = functools.partial(row, "ours: a CPU in minutes", scale="small")
_smoke = functools.partial(row, "ours: seconds", scale="smoke")

SMALL = [
    _small({"rounds": 100, "eval_every": 5, "target": None}),
    _small({"width": 64, "depth": 4, "patch": 4}, model="convmixer"),
    _small({"width": 16}, model="resnet18"),
    _small({"features": (16,), "hidden": (96, 48)}, model="alexnet"),
    _small({"embedding": 16, "hidden": (64,), "layers": 1}, model="lstm"),
    _small({"num_clients": 16, "local_steps": 12}, setting="hafed", dataset=_IMAGES),
    _small({"num_clients": 100}, setting="fedcluster"),
    _small({"local_steps": 100}, setting="fedcluster", algo="sgd"),
    _small({"rounds": 50}, dataset="fashion_mnist"),
    _small({"model": "cnn", "rounds": 50}, dataset="mnist"),
    _small({"features": (8, 16)}, dataset="mnist", model="cnn"),
    _small({"local_steps": 24, "test_samples": 2000}, dataset="shakespeare"),
    _small(
        {
            "num_clients": 20,
            "participation": 0.25,
            "num_clusters": 5,
            "local_steps": 8,
            "batch_size": 16,
            "rounds": 80,
            "eval_every": 2,
        },
        dataset=("digits", *_PROBLEMS),
    ),
]

SMOKE = [
    _smoke(
        {
            "rounds": 3,
            "eval_every": 1,
            "local_steps": 4,
            "batch_size": 8,
            "test_samples": 200,
            "target": None,
        }
    ),
    _smoke(
        {"num_clients": 8, "participation": 0.5, "num_clusters": 2},
        dataset=(*_IMAGES, "shakespeare", *_PROBLEMS),
    ),
    _smoke({"width": 8, "depth": 1, "patch": 4}, model="convmixer"),
    _smoke({"width": 4}, model="resnet18"),
    _smoke({"features": (4, 4)}, model="cnn"),
    _smoke({"features": (4,), "hidden": (16,)}, model="alexnet"),
    _smoke({"embedding": 8, "hidden": (8,), "layers": 1}, model="lstm"),
    _smoke({"model": "cnn"}, dataset="mnist"),
    _smoke(
        {"num_shards": 40, "shard_size": 30, "shards_per_client": 3},
        partition="shards",
        dataset="digits",
    ),
]
