"""Defences against liars in plain NumPy, one upload or neighbour after another."""

import numpy as np


def median(deltas: np.ndarray) -> np.ndarray:
    """The middle of each number; of an even number of uploads, the middle two's mean.

    Args:
      deltas: The uploads, `[uploads, d]`, as for all functions here.
    """
    return np.median(deltas, axis=0)


def trimmed_mean(deltas: np.ndarray, b: int) -> np.ndarray:
    """Yin et al. 2018: the mean of each number without its b largest and smallest."""
    ordered = np.sort(deltas, axis=0)
    return ordered[b : len(deltas) - b].mean(0)


def krum(deltas: np.ndarray, f: int, multi: int = 1) -> np.ndarray:
    """Blanchard et al. 2017: s(i) sums the n − f − 2 nearest; the best are averaged."""
    scores = []
    for i, own in enumerate(deltas):
        squares = [((own - x) ** 2).sum() for j, x in enumerate(deltas) if j != i]
        scores.append(sum(sorted(squares)[: len(deltas) - f - 2]))
    best = np.argsort(scores, kind="stable")[:multi]
    return deltas[best].mean(0)


def centred_clipping(
    deltas: np.ndarray,
    weights: np.ndarray,
    center: np.ndarray,
    radius: float,
    iterations: int = 1,
) -> np.ndarray:
    """Karimireddy et al. 2021: v ← v + Σᵢ wᵢ·clip(Δᵢ − v, τ).

    Args:
      deltas: The uploads.
      weights: Their weights, which sum to one.
      center: v of the round before.
      radius: τ.
      iterations: How often.
    """
    for _ in range(iterations):
        pairs = zip(weights, deltas, strict=True)
        center = center + sum(w * clip(x - center, radius) for w, x in pairs)
    return center


def norm_clipping(deltas: np.ndarray, weights: np.ndarray, radius: float) -> np.ndarray:
    """Sun et al. 2019: Σᵢ wᵢ·clip(Δᵢ, τ)."""
    return sum(w * clip(x, radius) for w, x in zip(weights, deltas, strict=True))


def clipped_gossip(matrix: np.ndarray, models: np.ndarray, b: int) -> np.ndarray:
    """He et al. 2022: xᵢ + Σⱼ Wᵢⱼ·clip(xⱼ − xᵢ, τᵢ), the b farthest suspected.

    Args:
      matrix: W, `[n, n]`, as for all of gossip here.
      models: `[n, d]`.
      b: Number of liars that is assumed among a client's neighbours.
    """
    mixed = models.copy()
    for i, own in enumerate(models):
        neighbours = [j for j in range(len(models)) if j != i and matrix[i, j]]
        distance = {j: np.linalg.norm(models[j] - own) for j in neighbours}
        nearest_first = [j for _, j in sorted((distance[j], j) for j in neighbours)]
        trusted, suspected = nearest_first[:-b], nearest_first[-b:]
        weight = sum(matrix[i, j] for j in suspected)
        squares = sum(matrix[i, j] * distance[j] ** 2 for j in trusted)
        radius = np.sqrt(squares / weight)
        mixed[i] += sum(
            matrix[i, j] * clip(models[j] - own, radius) for j in neighbours
        )
    return mixed


def trimmed_gossip(matrix: np.ndarray, models: np.ndarray, b: int) -> np.ndarray:
    """Fang et al. 2022: the mean of xᵢ and the neighbours' numbers but 2b extremes."""
    mixed = models.copy()
    for i, own in enumerate(models):
        neighbours = [j for j in range(len(models)) if j != i and matrix[i, j]]
        ordered = np.sort(models[neighbours], axis=0)[b : len(neighbours) - b]
        mixed[i] = (own + ordered.sum(0)) / (1 + len(ordered))
    return mixed


def clip(vector: np.ndarray, radius: float) -> np.ndarray:
    """The vector, scaled down to length `radius` where it is longer."""
    norm = np.linalg.norm(vector)
    return vector * min(1, radius / norm) if norm else vector
