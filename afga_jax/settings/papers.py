"""What the papers say of their settings, and what we add where they are silent.

Rows go from the general to the special: a later one that fits goes before an earlier.
"""

from afga_jax.data.partition import PAPER_SHARDS
from afga_jax.settings.families import ADAM, AMSGRAD
from afga_jax.settings.rates import AFGA, FEDCLUSTER, HAFED
from afga_jax.settings.row import Row

_NUMBERED = ("1", "2", "3", "4")
_CIFAR = ("cifar10", "cifar100")
_PROBLEMS = ("quadratic", "logistic")
_OURS = "ours"

SETTING_OF = [
    Row("ours: the papers' common data", {}, {"setting": "2"}),
    Row(
        "HA-Fed's data",
        {"dataset": ("fashion_mnist", "gaussians")},
        {"setting": "hafed"},
    ),
    Row("FedCluster's data", {"dataset": "mnist"}, {"setting": "fedcluster"}),
]

PAPERS = [
    # What the papers say of their settings.
    Row(
        AFGA,
        {"setting": _NUMBERED},
        {
            "num_clusters": 5,
            "local_steps": 24,
            "batch_size": 50,
            "rounds": 500,
            "partition": "dirichlet",
            "clustering": "equal",
        },
    ),
    Row(AFGA, {"setting": "1"}, {"num_clients": 100, "participation": 0.05}),
    Row(AFGA, {"setting": "2"}, {"num_clients": 50, "participation": 0.1}),
    Row(AFGA, {"setting": "3"}, {"num_clients": 100, "participation": 0.1}),
    Row(AFGA, {"setting": "4"}, {"num_clients": 50, "participation": 0.2}),
    Row(AFGA, {"setting": _NUMBERED, "dataset": "cifar10"}, {"target": 0.78}),
    Row(
        AFGA,
        {"setting": _NUMBERED, "dataset": "cifar100"},
        {"rounds": 600, "target": 0.52},
    ),
    Row(
        AFGA,
        {"setting": _NUMBERED, "dataset": "shakespeare"},
        {"local_steps": 100, "target": 0.52},
    ),
    Row(
        HAFED,
        {"setting": "hafed"},
        {
            "num_clients": 32,
            "participation": 0.25,
            "num_clusters": 4,
            "local_steps": 48,
            "batch_size": 50,
            "rounds": 500,
            "partition": "shards",
            "clustering": "equal",
        },
    ),
    Row(
        FEDCLUSTER,
        {"setting": "fedcluster"},
        {
            "num_clients": 1000,
            "participation": 0.1,
            "num_clusters": 10,
            "local_steps": 20,
            "batch_size": 30,
            "partition": "major_class",
            "clustering": "equal",
            "weighting": "size",
        },
    ),
    Row("ours: FedCluster gives no number", {"setting": "fedcluster"}, {"rounds": 100}),
    Row(
        FEDCLUSTER,
        {"setting": "fedcluster", "algo": "sgd"},
        {"local_steps": 1000, "batch_size": 60},
    ),
    Row(_OURS, {}, {"eval_every": 1, "checkpoint_every": 10}),
    # Models and the look of the data.
    Row(AFGA, {"dataset": _CIFAR}, {"model": "convmixer"}),
    Row(AFGA, {"dataset": "shakespeare"}, {"model": "lstm"}),
    Row(HAFED, {"dataset": "fashion_mnist"}, {"model": "cnn"}),
    Row("nearest: fashion_mnist, HA-Fed §6", {"dataset": "mnist"}, {"model": "cnn"}),
    Row(
        FEDCLUSTER,
        {"setting": "fedcluster", "dataset": ("cifar10", "mnist")},
        {"model": "alexnet"},
    ),
    Row(_OURS, {"dataset": "digits"}, {"model": "mlp"}),
    Row("HA-Fed App. F.1", {"dataset": "gaussians"}, {"model": "mlp"}),
    Row("the authors' code", {"dataset": _CIFAR}, {"augment": True}),
    Row("ours: of 0.8 million", {"dataset": "shakespeare"}, {"test_samples": 10_000}),
    # Partitions.
    Row(AFGA, {"partition": ("dirichlet", "dirichlet_client")}, {"alpha": 0.6}),
    *(
        Row(HAFED, {"partition": "shards", "dataset": dataset}, dict(shards))
        for dataset, shards in PAPER_SHARDS.items()
    ),
    Row(
        "nearest: fashion_mnist, HA-Fed §6",
        {"partition": "shards", "dataset": "mnist"},
        dict(PAPER_SHARDS["fashion_mnist"]),
    ),
    Row(
        _OURS,
        {"partition": "shards", "dataset": "digits"},
        {"num_shards": 96, "shard_size": 15, "shards_per_client": 3},
    ),
    Row(FEDCLUSTER, {"partition": ("major_class", "overlap")}, {"client_size": 500}),
    Row(
        _OURS,
        {"partition": ("major_class", "overlap"), "dataset": "digits"},
        {"client_size": 60},
    ),
    Row(f"{FEDCLUSTER}, Figs 4–6", {"partition": "major_class"}, {"rho_device": 0.5}),
    Row(FEDCLUSTER, {"clustering": "major_class"}, {"rho_cluster": 0.5}),
    # ε: HA-Fed gives it, AFGA only its grid.
    Row(HAFED, {"setting": "hafed"}, {"eps": 1e-8}),
    Row(
        "ours: of AFGA's grid, which leaves it open",
        {"setting": (*_NUMBERED, "fedcluster"), "algo": AMSGRAD},
        {"eps": 1e-6},
    ),
    Row(
        "Reddi et al., 2020; √1e-6 of FedAMSGrad",
        {"setting": (*_NUMBERED, "fedcluster"), "algo": ADAM},
        {"eps": 1e-3},
    ),
    # Data that no paper has: their sizes are ours at every scale.
    Row(
        _OURS,
        {"dataset": _PROBLEMS},
        {"partition": None, "model": None, "dimension": 10, "client_size": 50},
    ),
    Row(_OURS, {"dataset": "quadratic"}, {"sigma_g": 1.0, "sigma": 1.0}),
    Row(
        "HA-Fed App. F.1",
        {"dataset": "gaussians"},
        {
            "partition": None,
            "num_clients": 2,
            "participation": 1.0,
            "num_clusters": 1,
            "client_size": 10,
            "full_batch": True,
            "variance": 1.0,
            "hidden": (10,),
        },
    ),
    Row(
        "ours: HA-Fed App. F.1 gives none",
        {"dataset": "gaussians"},
        {"local_steps": 10, "rounds": 100, "batch_size": 10},
    ),
]
