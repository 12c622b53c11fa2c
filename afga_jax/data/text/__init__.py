"""How a text becomes client data: speaking roles, and windows of a corpus of them."""

from afga_jax.data.text import shakespeare
from afga_jax.data.text.corpus import (
    Corpus,
    from_roles,
    grouped,
    held_out_text,
    natural,
    spread,
    text_clients,
)
from afga_jax.data.text.shakespeare import Role

__all__ = [
    "Corpus",
    "Role",
    "from_roles",
    "grouped",
    "held_out_text",
    "natural",
    "shakespeare",
    "spread",
    "text_clients",
]
