"""Where data sets come from: fetched, checked, decoded once and kept."""

from afga_jax.data.store.catalog import CATALOG, DataError
from afga_jax.data.store.sources import Access, load, load_roles

__all__ = ["CATALOG", "Access", "DataError", "load", "load_roles"]
