"""Graph Transformer: nodes attend to their neighbours, or to all nodes with a bias for the edge between them.

    tokens      features of nodes B N F through a linear map
    positions   where a node is in its graph (positions/graph: Laplacian, random walk), through a linear map, added
    attention   q·k + b[type of the edge], a bias per head; attend="neighbors": only along edges and to itself, which is
                graph attention as a masked Transformer; attend="all": every node, an absent edge being a type too
    head        mean over the nodes (one row for the graph), or a row for every node

A permutation of the nodes permutes the result. Without positions and with attend="neighbors" it tells graphs apart no
better than the Weisfeiler-Leman test; positions lift that (CSL, docs/how/graphs.md).

What differs from the paper: edges enter as a bias that is learned for each type (Graphormer), not as vectors of their
own that layers update; every node attends to itself too; layer norm.

Dwivedi, Bresson: A Generalization of Transformer Networks to Graphs. AAAI Workshop 2021. arXiv:2012.09699
Ying et al.: Do Transformers Really Perform Bad for Graph Representation? NeurIPS 2021. arXiv:2106.05234 (the bias)
Veličković et al.: Graph Attention Networks. ICLR 2018. arXiv:1710.10903 (attention along edges)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from regard.attention.edge_attention import EdgeBias, EdgeMask, neighbor_mask
from regard.attention.mask import Mask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks.encoder import EncoderBlock
from regard.blocks.feedforward import GeluFeedForward
from regard.blocks.points import mean_of_points
from regard.blocks.sparse_linear import SparseLinear
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.positions import Bias, PositionInfo, TensorBias
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a graph Transformer."""

    input_dim: int = 8  # numbers of a node
    num_outputs: int = 2  # of a graph or of a node
    edge_types: int = 1
    position_dim: int = field(0, low=0)  # numbers of a node's position; 0: none
    width: int = 64
    heads: int = 4
    layers: int = 4
    ffn: int | None = None  # None: twice the width
    attend: Literal["neighbors", "all"] = "neighbors"
    head: Literal["graph", "nodes"] = "graph"
    input_dropout: float = field(0.0, low=0, below=1)  # of the numbers of the nodes
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 16, "heads": 2, "layers": 2}, "base": {}}


class GraphTransformer(ModelContract):
    """Graphs to numbers, of the graph or of every node."""

    forward_methods = ("encode",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = SparseLinear(config.input_dim, config.width, dropout=config.input_dropout)
        self.place = nn.Linear(config.position_dim, config.width, bias=False) if config.position_dim else None
        self.edge_bias = nn.Parameter(torch.zeros(config.edge_types + 2, config.heads))  # none, the types, itself
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block(layer) for layer in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.num_outputs)

    def _block(self, layer: int) -> EncoderBlock:
        c = self.config
        spec = layer_spec(c.attention, layer)
        mix = build_mixer(spec, width=c.width, heads=c.heads, layer=layer, dropout=c.attention_dropout)
        feed = GeluFeedForward(c.width, c.ffn or 2 * c.width, c.dropout)
        return EncoderBlock(mix, feed, [nn.LayerNorm(c.width) for _ in range(2)], True, c.dropout)

    def forward(
        self,
        nodes: Float[Tensor, "B N F"],
        edges: Int[Tensor, "B N N"],
        positions: Float[Tensor, "B N P"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Tensor:
        """Return B K for graphs, B N K for nodes. `edges` n m: 0 if n has no edge to m, else 1 + its type; nodes beyond
        `lengths` are padding."""
        x = self.encode(nodes, edges, positions, lengths, pass_state)
        out: Tensor = self.head(mean_of_points(x, lengths) if self.config.head == "graph" else x)
        return out

    def encode(
        self,
        nodes: Float[Tensor, "B N F"],
        edges: Int[Tensor, "B N N"],
        positions: Float[Tensor, "B N P"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return the vectors of the nodes after all blocks."""
        x = self.embed(nodes)
        if self.place is not None and positions is not None:
            x = x + self.place(positions.to(x.dtype))
        x, n = self.drop(x), nodes.shape[1]
        mask, bias = self._mask_and_bias(nodes, edges, lengths)
        index, state = torch.arange(n, device=x.device)[None], PassState() if pass_state is None else pass_state
        where = PositionInfo(index, index, bias=bias)
        for depth, block in enumerate(self.blocks):
            x = block(x, mask, where, state.layer(depth))
        normed: Tensor = self.norm(x)
        return normed

    def _mask_and_bias(self, nodes: Tensor, edges: Tensor, lengths: Tensor | None) -> tuple[Mask | None, Bias]:
        bias = EdgeBias(self.edge_bias, edges)
        mask: Mask | None = PaddingMask.from_lengths(nodes, lengths)
        if self.config.attend == "neighbors":
            mask = neighbor_mask(edges, lengths)
            if isinstance(mask, EdgeMask):
                return mask, bias
        return mask, TensorBias(bias.dense())  # made once for all layers
