"""What every mixing answers, and what follows from the answers."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # `scipy.sparse` is imported where it is used first

from afga_jax.gossip.links import Links
from afga_jax.gossip.messages import StepMessages, in_sequence, of_matrix
from afga_jax.gossip.operators import Operator, by_matrix
from afga_jax.gossip.stencil import WrappedGrid
from afga_jax.population.sampling import Participants, Plan
from afga_jax.typing import Array


class Contraction(NamedTuple):
    """How fast clients come together while nobody computes.

    Attributes:
      rho: Factor by which disagreement contracts at worst in `steps` local steps; in
        mean square where chance plays a part.
      steps: The local steps that a mixing's whole pattern takes.
    """

    rho: float
    steps: int

    def drift(self, local_steps: int) -> float:
        """D = min{steps/(1 − ρ), 𝓘}: local steps that a client's drift lasts, at most.

        With steps = 1 it is HA-Fed's D_{τ,ρ} (AFGA: H), and the D of Chen et al.,
        Accelerating gossip SGD with periodic global averaging, 2021, where 𝓘 steps lie
        between exact averages. Without gossip, ρ = 1, nothing ends it before 𝓘.

        >>> Contraction(0.75, 1).drift(24), Contraction(1.0, 1).drift(24)
        (4.0, 24.0)
        """
        # ρ of a product that averages exactly is rounded, to either side of zero.
        left = 1 - self.rho
        return min(self.steps / left, local_steps) if left > 0 else float(local_steps)


class Mixing(ABC):
    """Who mixes with whom, when.

    A kind of mixing defines `rows`, `at` and `spectral_gap`. All else follows from
    these, by matrices of all rows; a kind with more structure has its own closed forms.
    """

    @abstractmethod
    def rows(self, plan: Plan, cycle: Array | int = 0) -> Array | None:
        """Ids of the clients that hold a model, in row order; None: 0, 1, …, N−1."""

    @abstractmethod
    def at(self, plan: Plan, step: Array | int, cycle: Array | int = 0) -> Operator:
        """The operator of a local step.

        Mixing that is random draws with `plan.mixing_key(step, cycle)`: the same for
        all engines and the ledger, another for every seed, round and step.
        """

    @abstractmethod
    def spectral_gap(self) -> float | None:
        """ρ, the largest over clusters; None where it changes with the plan."""

    def contraction(
        self, link_failure: float = 0.0, every: int = 1
    ) -> Contraction | None:
        """How fast clients come together; None: it is not known.

        Args:
          link_failure: Probability with which a link is down at a step, by itself.
          every: Number of local steps from one mixing to the next.
        """
        rho = self.spectral_gap()
        return None if rho is None or link_failure else Contraction(rho, every)

    @property
    def mixes(self) -> bool:
        """Whether clients ever mix."""
        return True

    #: Whether mixed models are sums of the models by W, whatever these are.
    linear = True
    #: Whether clients remember what their neighbours know of them (`exchange`).
    remembers = False

    def is_due(self, step: Array | int) -> Array | bool:
        """Whether anybody mixes after a local step."""
        return True

    def message_bits(self, size: int) -> float | None:
        """Bits of a message of so many numbers; None: the numbers as they are."""
        return None

    def degrees(self) -> np.ndarray | None:
        """How many neighbours clients have, `[n]`; None: it changes with the plan."""
        return None

    @property
    def symmetric(self) -> bool:
        """Whether W = Wᵀ at every step, as links that fail need it."""
        return True

    def over(
        self, links: Links, plan: Plan, step: Array | int, cycle: Array | int = 0
    ) -> Operator:
        """The operator of a local step over the links that are up.

        Args:
          links: Which links are up at this step.
          plan: The round's plan.
          step: Number of the local step in the cycle.
          cycle: Number of the cycle in the round.
        """
        matrix, ids = self.at(plan, step, cycle).matrix(), self.rows(plan, cycle)
        ids = jnp.arange(len(matrix)) if ids is None else ids
        return by_matrix(links.kept(matrix, ids))

    def neighbourhood(self, clients: np.ndarray) -> np.ndarray:
        """Positions such that clients that are close mix with each other first."""
        return np.zeros(len(clients), np.int64)

    def fixed_rows(self) -> np.ndarray | None:
        """The clients in row order, where it is the same in every round."""
        return None

    def holders(self, participants: Participants) -> np.ndarray:
        """Number of clients that hold a model, `[cycles, groups]`."""
        holders = participants.sizes.copy()
        # Those outside of a cycle's clusters are counted with the first cluster.
        holders[:, 0] += participants.num_clients - holders.sum(1)
        return holders

    def messages(self, participants: Participants) -> StepMessages:
        """The messages of each mixing step."""
        cycles = range(len(participants.clusters))

        # Compiled: drawn operation by operation, a matrix takes longer than a round.
        @functools.partial(jax.jit, static_argnums=2)
        def matrix_at(plan, step, cycle):
            return self.at(plan, step, cycle).matrix()

        def at(round, step, plan):
            matrices = (matrix_at(plan, step, cycle) for cycle in cycles)
            return in_sequence([of_matrix(matrix)] for matrix in matrices)

        return StepMessages(at, needs_plan=True)

    def grid(self, mixes: np.ndarray) -> WrappedGrid | None:
        """The clusters as grids that wrap around, where mixing is a mean of shifts.

        Args:
          mixes: How often clients mix after each local step, `[steps]`.
        """
        return None

    def involved(self, plan: Plan, cycle: int, clients: np.ndarray) -> Array | None:
        """Ids that mixing does not lead out of, among them `clients`; None: all."""
        return self.rows(plan, cycle)

    def sparse(
        self, plan: Plan, step: int, cycle: int, ids: np.ndarray
    ) -> "scipy.sparse.csr_array | None":
        """W of a step among the clients that are involved; None: nobody mixes.

        Args:
          plan: The round's plan, on the host.
          step: Number of the local step in the cycle.
          cycle: Number of the cycle in the round.
          ids: Ids of the clients that are `involved`, sorted and without padding.
        """
        matrix = np.asarray(self.at(plan, step, cycle).matrix(), np.float64)
        rows = self.rows(plan, cycle)
        if rows is not None:
            order = np.argsort(np.asarray(rows), kind="stable")[: len(ids)]
            matrix = matrix[np.ix_(order, order)]
        return scipy.sparse.csr_array(matrix)

    def sparse_steps(
        self, plan: Plan, steps: int, cycle: int, ids: np.ndarray
    ) -> "list[scipy.sparse.csr_array | None]":
        """`sparse` of all local steps; mixing that draws can do so for all at once."""
        return [self.sparse(plan, step, cycle, ids) for step in range(steps)]

    def matrix_entries(self, num_rows: int) -> int:
        """How many numbers the matrices have that `sparse` is made from."""
        return num_rows**2


@dataclass(frozen=True)
class Around(Mixing):
    """Another mixing with something done to it; what is not said is as there.

    Attributes:
      mixing: The mixing that something is done to.
    """

    mixing: Mixing

    def rows(self, plan, cycle=0):
        return self.mixing.rows(plan, cycle)

    def spectral_gap(self):
        return self.mixing.spectral_gap()

    @property
    def mixes(self):
        return self.mixing.mixes

    @property
    def symmetric(self):
        return self.mixing.symmetric

    def is_due(self, step):
        return self.mixing.is_due(step)

    def degrees(self):
        return self.mixing.degrees()

    def fixed_rows(self):
        return self.mixing.fixed_rows()

    def holders(self, participants):
        return self.mixing.holders(participants)

    def messages(self, participants):
        return self.mixing.messages(participants)


@dataclass(frozen=True)
class AmongTheSame(Around):
    """The same, where clients reach nobody whom they did not reach before."""

    def neighbourhood(self, clients):
        return self.mixing.neighbourhood(clients)

    def involved(self, plan, cycle, clients):
        return self.mixing.involved(plan, cycle, clients)

    def matrix_entries(self, num_rows):
        return self.mixing.matrix_entries(num_rows)


def positions(rows: Array | None, ids: Array, num_clients: int) -> Array:
    """The rows that hold these clients; padding is sent past the last row."""
    if rows is None:
        return ids
    # By comparing: cheaper to compile than a sort, and few ids are looked up at once.
    row = (ids[..., None] == rows.reshape(*[1] * ids.ndim, -1)).argmax(-1)
    return jnp.where(ids < num_clients, row, len(rows))
