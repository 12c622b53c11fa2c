"""Data sets, how they are dealt to clients, and how clients draw batches from them.

>>> from afga_jax import data
>>> digits = data.digits()
>>> held = data.partition.build("dirichlet", digits.train_targets, 20, alpha=0.6)
>>> clients = data.from_dataset(digits, held, batch_size=16)
>>> clients.num_clients, data.held_out(digits).inputs.shape
(20, (355, 8, 8, 1))
"""

from afga_jax.data import partition, samples, shakespeare
from afga_jax.data.builtin import digits, gaussians
from afga_jax.data.catalog import DataError
from afga_jax.data.clients import (
    Clients,
    client_data,
    from_arrays,
    from_dataset,
    held_out,
)
from afga_jax.data.corpus import (
    Corpus,
    from_roles,
    grouped,
    held_out_text,
    natural,
    spread,
    text_clients,
)
from afga_jax.data.dataset import Dataset
from afga_jax.data.picture import class_picture
from afga_jax.data.sources import Access, load, load_roles
from afga_jax.data.synthetic import Problem, logistic, quadratic

__all__ = [
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
    "samples",
    "shakespeare",
    "spread",
    "text_clients",
]
