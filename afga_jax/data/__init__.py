"""Which data the clients learn from: data sets, partitions, samples and their draws.

>>> from afga_jax import data
>>> digits = data.digits()
>>> assignment = data.partition.build("dirichlet", digits.train_targets, 20, alpha=0.6)
>>> clients = data.from_dataset(digits, assignment, batch_size=16)
>>> clients.num_clients, data.held_out(digits).inputs.shape
(20, (355, 8, 8, 1))
"""

from afga_jax.data import partition, samples
from afga_jax.data.builtin import digits, gaussians
from afga_jax.data.clients import (
    Clients,
    client_data,
    from_arrays,
    from_dataset,
    held_out,
)
from afga_jax.data.dataset import Dataset
from afga_jax.data.own import OWN_DATASETS, register
from afga_jax.data.partition import class_picture, show
from afga_jax.data.store import Access, DataError, load, load_roles
from afga_jax.data.synthetic import Problem, logistic, quadratic
from afga_jax.data.tables import from_huggingface, from_parquet
from afga_jax.data.text import (
    Corpus,
    from_roles,
    grouped,
    held_out_text,
    natural,
    shakespeare,
    spread,
    text_clients,
)

__all__ = [
    "OWN_DATASETS",
    "Access",
    "Clients",
    "Corpus",
    "DataError",
    "Dataset",
    "Problem",
    "class_picture",
    "client_data",
    "digits",
    "from_arrays",
    "from_dataset",
    "from_huggingface",
    "from_parquet",
    "from_roles",
    "gaussians",
    "grouped",
    "held_out",
    "held_out_text",
    "load",
    "load_roles",
    "logistic",
    "natural",
    "partition",
    "quadratic",
    "register",
    "samples",
    "shakespeare",
    "show",
    "spread",
    "text_clients",
]
