"""All algorithms as functions, and how one is built.

`afga_jax.algorithms.afga(task, num_clients=100)` is `build("afga", task,
num_clients=100)`, with a signature and a docstring of its own. Editors read them from
the stub file beside this one, which `python tests/stub.py` writes.
"""

# In the order of the papers' tables; importing a module registers what it defines.
from afga_jax.algorithms.fedopt import (  # isort: skip
    fedavg,
    fedavgm,
    fednova,
    fedamsgrad,
    fedams,
    fedadam,
    fedyogi,
    fedadagrad,
    sgd,
)
from afga_jax.algorithms.corrected import fedprox, scaffold, feddyn  # isort: skip
from afga_jax.algorithms.adaptive_gossip import (  # isort: skip
    afga,
    cafga,
    afga_adapted,
    cafga_adapted,
)
from afga_jax.algorithms.hybrid import (  # isort: skip
    hafed,
    hafed_partial,
    hafed_active,
    tthf,
)
from afga_jax.algorithms.cycling import fedcluster  # isort: skip
from afga_jax.algorithms.outer import slowmo, diloco  # isort: skip
from afga_jax.algorithms.decentralized import (  # isort: skip
    dsgd,
    dadam,
    damsgrad,
    pga,
    dfedavgm,
    epidemic,
)
from afga_jax.algorithms.assemble import FederatedAlgorithm
from afga_jax.algorithms.compose import compose
from afga_jax.algorithms.options import Options, option
from afga_jax.algorithms.registry import (
    ALGORITHMS,
    FAMILIES,
    Algorithm,
    algorithm,
    build,
    lookup,
)

__all__ = [
    "ALGORITHMS",
    "FAMILIES",
    "Algorithm",
    "FederatedAlgorithm",
    "Options",
    "afga",
    "afga_adapted",
    "algorithm",
    "build",
    "cafga",
    "cafga_adapted",
    "compose",
    "dadam",
    "damsgrad",
    "dfedavgm",
    "diloco",
    "dsgd",
    "epidemic",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedamsgrad",
    "fedavg",
    "fedavgm",
    "fedcluster",
    "feddyn",
    "fednova",
    "fedprox",
    "fedyogi",
    "hafed",
    "hafed_active",
    "hafed_partial",
    "lookup",
    "option",
    "pga",
    "scaffold",
    "sgd",
    "slowmo",
    "tthf",
]
