"""Positions: attention is blind to order, so each token has to be told where it is. Three places to tell it:

    added     x_n + p_n                    to the tokens, once
    turned    (R_n q_n) · (R_m k_m)        to queries and keys, in every layer
    biased    q_n · k_m + b(m - n)         to the scores, in every layer

Every part takes explicit indices (#B N), so that decoding one token, a cache and a whole sentence are the same call.
Only what is learned is a parameter and is saved; what is a formula is computed where it is needed, for any index.
"""

from __future__ import annotations

from regard.core.spec import Registry

POSITIONS: Registry = {
    "sinusoidal": ("regard.positions.added.sinusoidal", "SinusoidalPositions"),
    "learned": ("regard.positions.added.learned", "LearnedPositions"),
    "rotary": ("regard.positions.qk_transforms.rotary", "RotaryPositions"),
    "relative": ("regard.positions.bias.relative", "RelativePositions"),
    "alibi": ("regard.positions.bias.alibi", "AlibiPositions"),
    "none": ("regard.positions.none", "NoPositions"),
}

# Of tokens on a grid of rows and columns: told by the grid's size, not by an index.
GRID_POSITIONS: Registry = {
    "learned": ("regard.positions.added.grid", "GridPositions"),
}

# Between the cells of a window of rows and columns: a bias for every step, told by the window's size.
WINDOW_BIASES: Registry = {
    "table": ("regard.positions.bias.window", "TableWindowBias"),
    "continuous": ("regard.positions.bias.continuous", "ContinuousWindowBias"),
}
