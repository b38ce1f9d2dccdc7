"""Random-walk positions: how likely a walker is back after 1, 2, ..., k steps.

    P = D^-1 A          p_n = (P_nn, P²_nn, ..., P^k_nn)                                                    O(k N³)

They need no signs and no eigenvectors, and differ between nodes that message passing cannot tell apart, but equal nodes
(those that a symmetry of the graph exchanges) get equal positions. A walker follows the directions of a directed graph;
one that cannot leave a node is lost, so an isolated node has zeros.

Dwivedi, Luu, Laurent, Bengio, Bresson: Graph Neural Networks with Learnable Structural and Positional Representations.
ICLR 2022. arXiv:2110.07875
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Range
from regard.positions.graph.laplacian import adjacency_matrix
from regard.positions.traits import PositionTraits


class RandomWalkPositions(nn.Module):
    """`k` numbers for every node."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("graph", invariant=frozenset({"relabeling"}))

    def __init__(self, k: Annotated[int, Range(low=1)] = 8) -> None:
        super().__init__()
        self.k = self.width = k

    def forward(self, edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N k"]:
        """Return the positions of all nodes."""
        return random_walk_positions(edges, nodes, self.k)


def random_walk_positions(edges: Int[Tensor, "2 E"], nodes: int, k: int) -> Float[Tensor, "N k"]:
    """Return the probabilities of being back after 1 to k steps."""
    adjacency = adjacency_matrix(edges, nodes)
    step = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    power, found = torch.eye(nodes, dtype=torch.float64), []
    for _ in range(k):
        power = power @ step
        found.append(power.diagonal())
    return torch.stack(found, 1).float() if found else torch.zeros(nodes, 0)
