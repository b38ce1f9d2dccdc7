"""Positions: attention alone does not see order. There are four places to add it:

    added           x_n + p_n                    to the tokens, once
    per_layer       W (x_n + p_n)                to the inputs of queries and keys, in every layer
    qk_transforms   (R_n q_n) · (R_m k_m)        to queries and keys, in every layer
    bias            q_n · k_m + b(m - n)         to the scores, in every layer

Every part takes explicit indices (#B N), so that decoding one token, with a cache, and a whole sentence are the same
call. Learned tables are parameters; formulas are computed where they are needed, for any index, and not saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

# Biases that depend on the query; a layer computes them from its own.
QUERY_BIASES: Registry = {
    "transformer_xl": ("regard.positions.bias.transformer_xl", "TransformerXLPositions"),
    "decomposed": ("regard.positions.bias.decomposed", "DecomposedPositions"),
}

# Vectors of coordinates: of points in any number of dimensions, of patches with a size on the ground.
POINT_POSITIONS: Registry = {
    "fourier": ("regard.positions.added.fourier", "FourierFeatures"),
    "ground": ("regard.positions.added.ground", "GroundPositions"),
}

# Vectors of longitude and latitude.
GLOBE_POSITIONS: Registry = {
    "harmonics": ("regard.positions.added.spherical", "SphericalHarmonics"),
    "fourier": ("regard.positions.added.globe", "GlobeFourierFeatures"),
    "sinusoidal": ("regard.positions.added.globe", "GlobeSinusoids"),
    "unit_vector": ("regard.positions.added.globe", "UnitVectors"),
    "degrees": ("regard.positions.added.globe", "Degrees"),
}

# Vectors of the nodes of a graph.
GRAPH_POSITIONS: Registry = {
    "laplacian": ("regard.positions.graph.laplacian", "LaplacianPositions"),
    "random_walk": ("regard.positions.graph.random_walk", "RandomWalkPositions"),
}

# All of them: what ``regard list positions`` shows, and what the contract test and the benchmark go through.
ENCODINGS: tuple[Registry, ...] = (
    *(POSITIONS, GRID_POSITIONS, WINDOW_BIASES, QUERY_BIASES),
    *(POINT_POSITIONS, GLOBE_POSITIONS, GRAPH_POSITIONS),
)

_MODULES = {"bias.window": ("WindowBias",), "traits": ("PositionTraits",)}
if TYPE_CHECKING:
    from regard.positions._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, *ENCODINGS)
