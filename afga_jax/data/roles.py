"""Speaking roles as plain arrays, so that the decoded cache can hold them."""

from collections.abc import Sequence

import numpy as np

from afga_jax.data.cache import Arrays
from afga_jax.data.shakespeare import Role


def pack(roles: Sequence[Role]) -> Arrays:
    r"""Stores roles in arrays.

    Args:
      roles: The roles.

    Returns:
      Their names as strings `[roles]`, all texts as one uint8 array of UTF-8 and the
      place where each ends.

    Example:
      >>> role = Role("HAMLET_GHOST", "HAMLET", "GHOST", "Mark me.\n")
      >>> unpack(pack([role])) == [role]
      True
    """
    texts = [role.text.encode("utf-8") for role in roles]
    names = {
        field: np.array([getattr(role, field) for role in roles], np.str_)
        for field in ("user", "play", "speaker")
    }
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return names | {"text": np.frombuffer(b"".join(texts), np.uint8), "ends": ends}


def unpack(arrays: Arrays) -> list[Role]:
    """The roles that `pack` stored, in their order."""
    text = arrays["text"].tobytes()
    starts = [0, *arrays["ends"][:-1]]
    texts = [
        text[start:end].decode("utf-8")
        for start, end in zip(starts, arrays["ends"], strict=True)
    ]
    names = (arrays[field].tolist() for field in ("user", "play", "speaker"))
    return [Role(*fields) for fields in zip(*names, texts, strict=True)]
