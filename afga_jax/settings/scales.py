"""The sizes `small`, for a CPU in minutes, and `smoke`, for seconds.

They follow the papers' rows. Learning rates that `small` does not tune are the papers'.
"""

from afga_jax.settings.row import Row

_IMAGES = ("cifar10", "cifar100", "fashion_mnist", "mnist", "digits")
_PROBLEMS = ("quadratic", "logistic")
_SMALL = "ours: a CPU in minutes"
_SMOKE = "ours: seconds"

SMALL = [
    Row(_SMALL, {"scale": "small"}, {"rounds": 100, "eval_every": 5, "target": None}),
    Row(
        _SMALL,
        {"scale": "small", "model": "convmixer"},
        {"width": 64, "depth": 4, "patch": 4},
    ),
    Row(_SMALL, {"scale": "small", "model": "resnet18"}, {"width": 16}),
    Row(
        _SMALL,
        {"scale": "small", "model": "alexnet"},
        {"features": (16,), "hidden": (96, 48)},
    ),
    Row(
        _SMALL,
        {"scale": "small", "model": "lstm"},
        {"embedding": 16, "hidden": (64,), "layers": 1},
    ),
    Row(
        _SMALL,
        {"scale": "small", "setting": "hafed", "dataset": _IMAGES},
        {"num_clients": 16, "local_steps": 12},
    ),
    Row(_SMALL, {"scale": "small", "setting": "fedcluster"}, {"num_clients": 100}),
    Row(
        _SMALL,
        {"scale": "small", "setting": "fedcluster", "algo": "sgd"},
        {"local_steps": 100},
    ),
    Row(_SMALL, {"scale": "small", "dataset": "fashion_mnist"}, {"rounds": 50}),
    Row(_SMALL, {"scale": "small", "dataset": "mnist"}, {"model": "cnn", "rounds": 50}),
    Row(
        _SMALL,
        {"scale": "small", "dataset": "mnist", "model": "cnn"},
        {"features": (8, 16)},
    ),
    Row(
        _SMALL,
        {"scale": "small", "dataset": "shakespeare"},
        {"local_steps": 24, "test_samples": 2000},
    ),
    Row(
        _SMALL,
        {"scale": "small", "dataset": ("digits", *_PROBLEMS)},
        {
            "num_clients": 20,
            "participation": 0.25,
            "num_clusters": 5,
            "local_steps": 8,
            "batch_size": 16,
            "rounds": 80,
            "eval_every": 2,
        },
    ),
]

SMOKE = [
    Row(
        _SMOKE,
        {"scale": "smoke"},
        {
            "rounds": 3,
            "eval_every": 1,
            "local_steps": 4,
            "batch_size": 8,
            "test_samples": 200,
            "target": None,
        },
    ),
    Row(
        _SMOKE,
        {"scale": "smoke", "dataset": (*_IMAGES, "shakespeare", *_PROBLEMS)},
        {"num_clients": 8, "participation": 0.5, "num_clusters": 2},
    ),
    Row(
        _SMOKE,
        {"scale": "smoke", "model": "convmixer"},
        {"width": 8, "depth": 1, "patch": 4},
    ),
    Row(_SMOKE, {"scale": "smoke", "model": "resnet18"}, {"width": 4}),
    Row(_SMOKE, {"scale": "smoke", "model": "cnn"}, {"features": (4, 4)}),
    Row(
        _SMOKE,
        {"scale": "smoke", "model": "alexnet"},
        {"features": (4,), "hidden": (16,)},
    ),
    Row(
        _SMOKE,
        {"scale": "smoke", "model": "lstm"},
        {"embedding": 8, "hidden": (8,), "layers": 1},
    ),
    Row(_SMOKE, {"scale": "smoke", "dataset": "mnist"}, {"model": "cnn"}),
    Row(
        _SMOKE,
        {"scale": "smoke", "partition": "shards", "dataset": "digits"},
        {"num_shards": 40, "shard_size": 30, "shards_per_client": 3},
    ),
]
