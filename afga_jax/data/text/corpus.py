"""A text with many speakers as client data: windows of characters and what follows.

The text is kept once, as codes; a client holds runs of window starts in it. Papers do
not say how Shakespeare was split or dealt, so: the last fifth of each role is for
testing, no window reaches across the cut, and clients are roles, groups of roles, or
Dirichlet proportions of every role.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from afga_jax import checks
from afga_jax.data.clients import Clients, client_data
from afga_jax.data.partition.assignment import Ranges, ranges
from afga_jax.data.samples import Windows
from afga_jax.data.text.shakespeare import ALPHABET, WINDOW, Role, encode
from afga_jax.typing import Batch


class Corpus(NamedTuple):
    """Roles as one text, cut for training and testing.

    Attributes:
      text: Codes of all roles' characters, one role after another, uint8; of tokens,
        int32.
      users: Names of the roles.
      window: Number of characters per sample; the next one is its target.
      train_starts: Index of each role's first training window, `[roles]`.
      train_counts: Number of each role's training windows, `[roles]`.
      test_starts: Index of each role's first test window, `[roles]`.
      test_counts: Number of each role's test windows, 0 if it is short, `[roles]`.
      num_codes: Number of codes that there can be: characters of the alphabet, or
        tokens.
    """

    text: np.ndarray
    users: tuple[str, ...]
    window: int
    train_starts: np.ndarray
    train_counts: np.ndarray
    test_starts: np.ndarray
    test_counts: np.ndarray
    num_codes: int = len(ALPHABET)


def from_roles(
    roles: Sequence[Role],
    *,
    window: int = WINDOW,
    test_fraction: float = 0.2,
    alphabet: str = ALPHABET,
) -> Corpus:
    """Puts roles into one text and cuts each for testing.

    The test part is the last `test_fraction` of a role's characters. A role with a part
    too short for one window is used for training only, whole; a role too short for any
    is left out.

    Args:
      roles: Roles from `load_roles`, `shakespeare.parse`, or one's own.
      window: Number of characters per sample.
      test_fraction: Fraction of each role's text for testing; 0: none.
      alphabet: Characters in the order of their codes.

    Returns:
      The corpus.

    Example:
      >>> roles = [Role("a", "play", "A", "x" * 20), Role("b", "play", "B", "y" * 6)]
      >>> text = from_roles(roles, window=3)
      >>> text.train_counts.tolist(), text.test_counts.tolist()
      ([13, 3], [1, 0])
    """
    codes = [(role.user, encode(role.text, alphabet)) for role in roles]
    return from_codes(codes, len(alphabet), window=window, test_fraction=test_fraction)


def from_codes(
    codes: Sequence[tuple[str, np.ndarray]],
    num_codes: int,
    *,
    window: int = WINDOW,
    test_fraction: float = 0.2,
) -> Corpus:
    """Puts texts that are codes already into one, and cuts each for testing.

    Args:
      codes: Name of each role, and the codes of its characters or tokens.
      num_codes: Number of codes that there can be.
      window: Number of codes per sample.
      test_fraction: Fraction of each text for testing; 0: none.

    Returns:
      The corpus.
    """
    checks.integer("window", window)
    checks.number("test_fraction", test_fraction, at_least=0, below=1)
    long = [(user, text) for user, text in codes if len(text) > window]
    if not long:
        raise ValueError(
            f"none of the {len(codes)} roles has more than {window} characters; give "
            "longer texts or a shorter window."
        )
    users, texts = zip(*long, strict=True)
    lengths = np.array([len(text) for text in texts])
    starts = np.cumsum(lengths) - lengths
    train = np.ceil(lengths * (1 - test_fraction)).astype(int)
    too_short = np.minimum(train, lengths - train) <= window
    train = np.where(too_short, lengths, train)
    return Corpus(
        text=np.concatenate(texts),
        users=users,
        window=window,
        train_starts=starts,
        train_counts=train - window,
        test_starts=starts + train,
        test_counts=np.where(too_short, 0, lengths - train - window),
        num_codes=num_codes,
    )


def natural(text: Corpus) -> Ranges:
    """Makes each role a client.

    Args:
      text: Corpus whose roles are cut for training and testing.

    Returns:
      Who holds which training windows.
    """
    runs = np.ones(len(text.users), int)
    return ranges(text.train_starts, text.train_counts, runs)


def grouped(text: Corpus, num_clients: int, *, seed: int = 0) -> Ranges:
    """Deals whole roles to clients at random; numbers of roles differ by one at most.

    Args:
      text: Corpus whose roles are cut for training and testing.
      num_clients: Number of clients.
      seed: Seed of the partition.

    Returns:
      Who holds which training windows.
    """
    checks.integer("num_clients", num_clients)
    if num_clients > len(text.users):
        raise ValueError(
            f"{num_clients} clients cannot share {len(text.users)} roles; use fewer, "
            "or `spread`, which divides every role."
        )
    order = np.random.default_rng(seed).permutation(len(text.users))
    runs = [len(part) for part in np.array_split(order, num_clients)]
    return ranges(text.train_starts[order], text.train_counts[order], np.array(runs))


def spread(
    text: Corpus, num_clients: int, *, alpha: float = 0.6, seed: int = 0
) -> Ranges:
    """Divides each role's windows among the clients by Dir(α·1_N).

    A client's part is one run of consecutive windows, the clients in random order along
    the role: a client reads a passage, not single letters of it. A client that comes
    out empty takes half of the longest run there is.

    Args:
      text: Corpus whose roles are cut for training and testing.
      num_clients: Number of clients, N.
      alpha: Concentration α; small: each role sits with few clients.
      seed: Seed of the partition.

    Returns:
      Who holds which training windows.
    """
    checks.integer("num_clients", num_clients)
    checks.number("alpha", alpha, above=0, fix="the papers use 0.3 and 0.6")
    if num_clients > text.train_counts.sum():
        raise ValueError(
            f"{num_clients} clients cannot share {text.train_counts.sum()} windows; "
            "use fewer clients."
        )
    random = np.random.default_rng(seed)
    shape = (len(text.users), num_clients)
    proportions = random.dirichlet(np.full(num_clients, alpha), size=len(text.users))
    counts = text.train_counts[:, None]
    cuts = np.rint(np.cumsum(proportions, axis=1) * counts).astype(int)
    cuts[:, -1] = text.train_counts
    lengths = np.diff(cuts, axis=1, prepend=0)
    starts = text.train_starts[:, None] + cuts - lengths
    owners = random.permuted(np.broadcast_to(np.arange(num_clients), shape), axis=1)
    kept = lengths > 0
    return _owned_runs(starts[kept], lengths[kept], owners[kept], num_clients)


def text_clients(text: Corpus, assignment: Ranges, *, batch_size: int) -> Clients:
    """Client data whose windows are cut from the text on the device.

    Args:
      text: Corpus whose roles are cut for training and testing.
      assignment: Who holds which windows, from `natural`, `grouped` or `spread`.
      batch_size: Number of windows per batch.

    Returns:
      Data with inputs int32 `[batch, window]` and targets int32 `[batch]`.
    """
    source = Windows(text.text, text.window)
    return client_data(source, assignment, batch_size=batch_size)


def held_out_text(text: Corpus, limit: int = 10_000) -> Batch:
    """Test windows, evenly spaced over all there are.

    Args:
      text: Corpus whose roles are cut for training and testing.
      limit: Largest number of windows; all 0.8 million would hardly differ.

    Returns:
      Inputs int32 `[tests, window]` and targets int32 `[tests]`.
    """
    checks.integer("limit", limit)
    total = int(text.test_counts.sum())
    if not total:
        raise ValueError(
            f"no role has a test part of more than {text.window} characters; raise "
            "test_fraction or give longer texts."
        )
    tested = text.test_counts > 0
    runs = np.array([tested.sum()])
    tests = ranges(text.test_starts[tested], text.test_counts[tested], runs)
    number = min(limit, total)
    position = np.arange(number) * total // number
    chosen = tests.sample(np.zeros(number, int), position)
    return Windows(jnp.asarray(text.text), text.window).take(jnp.asarray(chosen))


def _owned_runs(
    starts: np.ndarray, lengths: np.ndarray, owners: np.ndarray, num_clients: int
) -> Ranges:
    """Sorts runs by client, after the longest are halved for those without any."""
    for client in np.setdiff1d(np.arange(num_clients), owners):
        longest = np.argmax(lengths)
        half = lengths[longest] // 2
        if not half:
            # Nothing is left to halve: somebody has several runs of a single window.
            busiest = np.argmax(np.bincount(owners))
            owners[np.argmax(owners == busiest)] = client
            continue
        lengths[longest] -= half
        starts = np.append(starts, starts[longest] + lengths[longest])
        lengths = np.append(lengths, half)
        owners = np.append(owners, client)
    order = np.argsort(owners, kind="stable")
    runs = np.bincount(owners, minlength=num_clients)
    return ranges(starts[order], lengths[order], runs)
