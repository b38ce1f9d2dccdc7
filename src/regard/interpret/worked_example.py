"""Self-attention in six steps, with numbers that can be checked by hand.

    1  q = x W_q    k = x W_k    v = x W_v        three vectors of every token
    2  s_nm = q_n · k_m                           a score for every pair
    3  s_nm / √d_k                                so that wide vectors do not saturate the softmax
    4  w_n = softmax(s_n / √d_k)                  all positive, and a row sums to one
    5  w_nm v_m                                   every value by its weight
    6  z_n = Σ_m w_nm v_m                         their sum: what the token has become

The example is that of the lectures: "Thinking Machines", where the first word scores 112 and 96, divided by 8 that is
14 and 12, and the softmax gives 0.88 and 0.12. There d_k is 64; three numbers of each vector are written out, and the
others are zero, so that every product can be checked. A test compares z with the softmax mechanism.

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. arXiv:1706.03762
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import Any

import torch

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

Matrix = list[list[float]]

THINKING_MACHINES: dict[str, Any] = {
    "tokens": ["Thinking", "Machines"],
    "x": [[1, 0, 1, 0], [0, 1, 0, 1]],
    "w_q": [[5, 1, 2], [2, 4, 1], [3, 3, 2], [1, 2, 5]],
    "w_k": [[6, 1, 3], [3, 3, 2], [4, 3, 1], [5, 1, 2]],
    "w_v": [[1, 0, 2], [2, 1, 0], [0, 3, 1], [1, 0, 4]],
    "d_k": 64,
}
MAX_TOKENS, MAX_WIDTH = 12, 16  # small enough to read
MAX_VALUE = 1e6


def attention_steps(
    tokens: list[str],
    x: Matrix,
    w_q: Matrix,
    w_k: Matrix,
    w_v: Matrix,
    d_k: float | None = None,
    mask: Mask | None = None,
) -> dict[str, Any]:
    """Return every step as plain numbers; `d_k` is the key width of step 3, by default that of w_k."""
    given = {name: _matrix(name, value) for name, value in (("x", x), ("w_q", w_q), ("w_k", w_k), ("w_v", w_v))}
    n, c = given["x"].shape
    if len(tokens) != n:
        raise BadInput(f"{len(tokens)} tokens need as many rows of x, not {n}")
    for name in ("w_q", "w_k", "w_v"):
        if given[name].shape[0] != c:
            raise BadInput(f"x is {c} wide, so {name} needs {c} rows, not {given[name].shape[0]}")
    if given["w_q"].shape[1] != given["w_k"].shape[1]:
        raise BadInput("queries and keys are multiplied, so w_q and w_k need as many columns")
    width = float(given["w_k"].shape[1] if d_k is None else d_k)
    if not (isfinite(width) and 1 <= width <= MAX_VALUE):
        raise BadInput(f"d_k is the width of a key, from 1 to {MAX_VALUE:.0f}, not {d_k}")
    q, k, v = (given["x"] @ given[name] for name in ("w_q", "w_k", "w_v"))
    scores = q @ k.mT
    scaled = scores / sqrt(width)
    allowed = torch.ones(n, n, dtype=torch.bool) if mask is None else mask.dense(1, n, n)[0, 0]
    weights = masked_softmax(scaled, allowed)
    weighted = weights[..., None] * v  # n m e: what every query takes of every value
    return {
        "tokens": list(tokens),
        "d_k": width,
        "root": sqrt(width),
        **{name: value.tolist() for name, value in given.items()},
        "q": q.tolist(),
        "k": k.tolist(),
        "v": v.tolist(),
        "scores": scores.tolist(),
        "scaled": scaled.tolist(),
        "allowed": allowed.tolist(),
        "weights": weights.tolist(),
        "weighted": weighted.tolist(),
        "z": weighted.sum(1).tolist(),
    }


def _matrix(name: str, rows: Matrix) -> Float[Tensor, "N C"]:
    """Return numbers as a matrix in float64; raise if they are none."""
    if not rows or len(rows) > MAX_TOKENS or not rows[0] or len(rows[0]) > MAX_WIDTH:
        raise BadInput(f"{name} has 1 to {MAX_TOKENS} rows of 1 to {MAX_WIDTH} numbers each")
    if any(len(row) != len(rows[0]) for row in rows):
        raise BadInput(f"the rows of {name} are not of one length")
    if not all(isfinite(value) and abs(value) <= MAX_VALUE for row in rows for value in row):
        raise BadInput(f"{name} holds a number that is too large or none")
    return torch.tensor(rows, dtype=torch.float64)
