"""Data sets, how they are dealt to clients, and how clients draw batches from them."""

from afga_jax.data.dataset import Dataset

__all__ = ["Dataset"]
