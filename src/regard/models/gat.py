"""Graph attention network: attention along edges whose scores are a sum, and no feed-forward layers.

    Transformer         s_nm = q_n·k_m / √D             q, k and v by maps of their own
    graph attention     s_nm = leaky(a·h_n + b·h_m)     q = k = v = h = W x, a and b learned for each head

    layer               x'_n = elu(Σ_m softmax_m(s_nm) h_m),   m: the neighbours of n, and n         O(N C² + E C)
    head                the heads of the last layer, as wide as the result, averaged

The masked Transformer of models/graph_transformer with additive scores, one matrix for queries, keys and values, and
neither norms nor feed-forward layers. `a·h_n` is the same for all keys, so without the leaky ReLU every node would give
its neighbours one ranking. Types of edges are not read; positions are appended to the features.

Veličković et al.: Graph Attention Networks. ICLR 2018. arXiv:1710.10903
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.edge_attention import EdgeMask, mix_pairs, neighbor_mask
from regard.attention.mask import DenseMask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.observed_weights import ObservedWeights
from regard.blocks.points import mean_of_points
from regard.blocks.sparse_linear import SparseLinear
from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract

SLOPE = 0.2  # of the leaky ReLU below zero


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a graph attention network; the defaults are the paper's for citation graphs."""

    input_dim: int = 8  # numbers of a node
    num_outputs: int = 2  # of a graph or of a node
    position_dim: int = field(0, low=0)  # numbers of a node's position; 0: none
    head_dim: int = 8
    heads: int = 8
    output_heads: int = 1  # of the last layer, averaged
    layers: int = 2
    head: Literal["graph", "nodes"] = "nodes"
    dropout: float = field(0.6, low=0, below=1)  # of the inputs and of the values of every layer
    attention_dropout: float = field(0.6, low=0, below=1)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "base": {},
}


class GAT(ModelContract):
    """Graphs to numbers, of the graph or of every node."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        width, drops = c.heads * c.head_dim, (c.dropout, c.attention_dropout)
        last = c.num_outputs if c.head == "nodes" else width
        inputs = [c.input_dim + c.position_dim, *[width] * (c.layers - 1)]
        self.layers = nn.ModuleList(GraphAttention(size, c.heads, c.head_dim, *drops) for size in inputs[:-1])
        self.layers.append(GraphAttention(inputs[-1], c.output_heads, last, *drops))
        self.head = nn.Linear(width, c.num_outputs) if c.head == "graph" else None

    def forward(
        self,
        nodes: Float[Tensor, "B N F"],
        edges: Int[Tensor, "B N N"],
        positions: Float[Tensor, "B N P"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Tensor:
        """Return B K for graphs, B N K for nodes. `edges` n m is 0 if n has no edge to m; nodes beyond `lengths` are
        padding."""
        x = nodes
        if self.config.position_dim:
            own = x.new_zeros(*x.shape[:2], self.config.position_dim) if positions is None else positions.to(x.dtype)
            x = torch.cat([x, own], -1)
        mask = neighbor_mask(edges, lengths)
        for layer in self.layers[:-1]:
            x = F.elu(layer(x, mask).transpose(1, 2).flatten(2))
        x = self.layers[-1](x, mask).mean(1)
        out: Tensor = x if self.head is None else self.head(mean_of_points(F.elu(x), lengths))
        return out


class GraphAttention(nn.Module):
    """Attend to what a mask allows, by additive scores."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout, self.attention_dropout = heads, dropout, attention_dropout
        self.project = SparseLinear(width, heads * head_dim, bias=False, dropout=dropout)
        self.query, self.key = (nn.Parameter(torch.empty(heads, 1, head_dim)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads, 1, head_dim))
        for parameter in (self.project.weight, self.query, self.key):
            nn.init.xavier_uniform_(parameter)
        self.observed = ObservedWeights("self")

    def forward(self, x: Float[Tensor, "B N C"], mask: DenseMask) -> Float[Tensor, "B H N D"]:
        h = self.project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key = (h * self.query).sum(-1), (h * self.key).sum(-1)  # B H N
        values = F.dropout(h, self.dropout, self.training)
        dropout = self.attention_dropout if self.training else 0.0
        if isinstance(mask, EdgeMask) and not self.observed._forward_hooks:
            b, n, m = mask.pairs
            scores = F.leaky_relu(query[b, :, n] + key[b, :, m], SLOPE)
            return mix_pairs(scores, values, mask, x.shape[1], dropout) + self.bias
        scores = F.leaky_relu(query[..., None] + key[:, :, None], SLOPE)
        weights = self.observed(masked_softmax(scores, mask.allowed[:, None]).to(values.dtype))
        return F.dropout(weights, dropout) @ values + self.bias
