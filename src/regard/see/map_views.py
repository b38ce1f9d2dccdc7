"""What is done to weights before they are shown: fewer of them, in eight bits, and without the keys that heads rest on.

A sink is a key that a quarter of the queries see and to which they give a third of their weight, as a mean, and twice
an equal share: with even attention among few tokens every key would get a third.
"""

from __future__ import annotations

import numpy as np
import torch

SINK_MIN_WEIGHT, SINK_MIN_RATIO = (
    1 / 3,
    2.0,
)  # what makes a key a sink: this share of the weight, so many times an equal share


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """A tensor as float32 numbers."""
    found: np.ndarray = x.detach().float().cpu().numpy()
    return found


def max_pool_columns(w: np.ndarray, size: int) -> np.ndarray:
    """At most `size` columns: of each bin the largest."""
    m = w.shape[2]
    if m <= size:
        return w
    found: np.ndarray = np.maximum.reduceat(w, np.arange(size) * m // size, axis=2)
    return found


def nearest_columns(m: int, size: int) -> np.ndarray:
    """Which of m columns each of `size` pixels shows."""
    return np.arange(size) * m // size


def to_uint8(w: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Weights H N M as uint8, and for each head the weight that 255 is."""
    w = np.maximum(w, 0)
    scales = w.max(axis=(1, 2))
    pixels = np.rint(w * (255 / np.where(scales == 0, 1, scales))[:, None, None])
    return pixels.astype(np.uint8), scales.astype(float).tolist()


def remove_sinks(line: np.ndarray, sinks: list[int]) -> np.ndarray:
    """A row without its sinks, scaled to sum to what it did."""
    total, out = line.sum(), line.copy()
    out[sinks] = 0
    rest = out.sum()
    found: np.ndarray = out * (total / rest) if rest > 1e-6 else np.zeros_like(out)
    return found


def find_sinks(w: np.ndarray, own: np.ndarray | None) -> list[int]:
    """The sinks of one head, of some of its rows; `own` are the keys that are those queries themselves."""
    sees = w > 0
    share = sees / np.maximum(sees.sum(1, keepdims=True), 1)  # an equal share of what a query sees
    if own is not None:
        sees[np.arange(len(own)), own] = False
    many = sees.sum(0)
    mean, even = ((x * sees).sum(0) / np.maximum(many, 1) for x in (w, share))
    return np.flatnonzero(
        (many >= max(3, len(w) / 4)) & (mean >= SINK_MIN_WEIGHT) & (mean >= SINK_MIN_RATIO * even)
    ).tolist()
