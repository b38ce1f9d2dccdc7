"""Positions: attention alone does not see order. There are four places to add it:

    added           x_n + p_n                    to the tokens, once
    per_layer       W (x_n + p_n)                to the inputs of queries and keys, in every layer
    qk_transforms   (R_n q_n) · (R_m k_m)        to queries and keys, in every layer
    bias            q_n · k_m + b(m - n)         to the scores, in every layer

Every part takes explicit indices (#B N), so that decoding one token, with a cache, and a whole sentence are the same
call. Learned tables are parameters; formulas are computed where they are needed, for any index, and not saved.
"""

from __future__ import annotations

from regard.core.lazy_exports import lazy_exports
from regard.core.spec import Registry

POSITIONS: Registry = {
    "sinusoidal": ("regard.positions.added.sinusoidal", "SinusoidalPositions"),
    "learned": ("regard.positions.added.learned", "LearnedPositions"),
    "rotary": ("regard.positions.qk_transforms.rotary", "RotaryPositions"),
    "relative": ("regard.positions.bias.relative", "RelativePositions"),
    "alibi": ("regard.positions.bias.alibi", "AlibiPositions"),
    "per_layer": ("regard.positions.per_layer", "PerLayerPositions"),
    "none": ("regard.positions.none", "NoPositions"),
}

# For tokens on a grid of rows and columns, by the size of the grid.
GRID_POSITIONS: Registry = {
    "learned": ("regard.positions.added.grid", "GridPositions"),
    "sinusoidal": ("regard.positions.added.grid_sinusoidal", "AddedSinusoidalGridPositions"),
}

# For the cells of a window: a bias for every relative position, by the size of the window.
WINDOW_BIASES: Registry = {
    "table": ("regard.positions.bias.window", "TableWindowBias"),
    "continuous": ("regard.positions.bias.continuous", "ContinuousWindowBias"),
}

_MODULES = {"bias.decomposed": ("DecomposedPositions",), "bias.window": ("WindowBias",)}
__getattr__, __dir__ = lazy_exports(__name__, _MODULES, POSITIONS, GRID_POSITIONS, WINDOW_BIASES)
