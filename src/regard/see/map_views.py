"""Prepare weights for display: max-pool columns, quantise to 8 bits, remove attention sinks.

A sink is a key visible to at least a quarter of the queries that gets, on average, at least a third of their weight and
at least twice a uniform share (uniform attention over three tokens would give every key a third).
"""

from __future__ import annotations

import numpy as np
import torch

SINK_MIN_WEIGHT = 1 / 3  # mean weight
SINK_MIN_RATIO = 2.0  # times a uniform share


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """Return a tensor as a float32 array."""
    found: np.ndarray = x.detach().float().cpu().numpy()
    return found


def max_pool_columns(w: np.ndarray, size: int) -> np.ndarray:
    """Max-pool the columns of H N M to at most `size`."""
    m = w.shape[2]
    if m <= size:
        return w
    found: np.ndarray = np.maximum.reduceat(w, np.arange(size) * m // size, axis=2)
    return found


def nearest_columns(m: int, size: int) -> np.ndarray:
    """Return which of m columns each of `size` pixels shows."""
    return np.arange(size) * m // size


def to_uint8(w: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Return weights H N M as uint8, and for each head the weight that 255 stands for."""
    w = np.maximum(w, 0)
    scales = w.max(axis=(1, 2))
    pixels = np.rint(w * (255 / np.where(scales == 0, 1, scales))[:, None, None])
    return pixels.astype(np.uint8), scales.astype(float).tolist()


def remove_sinks(rows: np.ndarray, sinks: list[int]) -> np.ndarray:
    """Set the sinks of rows (... M) to zero and rescale the rest of each to the same sum."""
    total, out = rows.sum(-1, keepdims=True), rows.copy()
    out[..., sinks] = 0
    rest = out.sum(-1, keepdims=True)
    found: np.ndarray = np.where(rest > 1e-6, out * (total / np.maximum(rest, 1e-6)), 0)
    return found


def find_sinks(w: np.ndarray, own: np.ndarray | None) -> list[int]:
    """Return the sinks among the keys of one head N M; `own` is the key at each query's own position, not counted."""
    sees = w > 0
    share = sees / np.maximum(sees.sum(1, keepdims=True), 1)  # a uniform share of the visible keys
    if own is not None:
        sees[np.arange(len(own)), own] = False
    many = sees.sum(0)
    mean, even = ((x * sees).sum(0) / np.maximum(many, 1) for x in (w, share))
    return np.flatnonzero(
        (many >= max(3, len(w) / 4)) & (mean >= SINK_MIN_WEIGHT) & (mean >= SINK_MIN_RATIO * even)
    ).tolist()
