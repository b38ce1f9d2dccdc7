"""Laplacian positions: the eigenvectors of a graph that vary least over its edges.

    L = I - D^-1/2 A D^-1/2         L u_k = λ_k u_k,   0 = λ_0 <= λ_1 <= ... <= 2
    p_n = (u_1[n], ..., u_k[n])     the first k after those of λ = 0                                        O(N³)

On a path they are the cosines of a sinusoidal code; on any graph nodes that are near get similar numbers. Rules for
what the formula leaves open:

    directed graphs        A = max(A, Aᵀ): directions are dropped
    disconnected graphs    λ = 0 has an eigenvector for each component; all of them are left out, since they only say
                           which component a node is in; an isolated node is a component, with zeros
    k >= n                 missing columns are zeros
    signs                  u and -u are both right: `flip_signs` draws new ones for every training batch; `canonical`
                           fixes one, so that predictions are repeatable
    equal eigenvalues      any rotation of their eigenvectors is right; nothing is done about it

Dwivedi, Bresson: A Generalization of Transformer Networks to Graphs. AAAI Workshop 2021. arXiv:2012.09699
Dwivedi, Joshi, Luu, Laurent, Bengio, Bresson: Benchmarking Graph Neural Networks. JMLR 2023. arXiv:2003.00982
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Range
from regard.positions.traits import PositionTraits

ZERO = 1e-6  # eigenvalues below count as zero


class LaplacianPositions(nn.Module):
    """`k` numbers for every node."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("graph", invariant=frozenset({"relabeling"}))

    def __init__(self, k: Annotated[int, Range(low=1)] = 8) -> None:
        super().__init__()
        self.k = self.width = k

    def forward(self, edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N k"]:
        """Return the positions of all nodes, with `canonical` signs."""
        return laplacian_positions(edges, nodes, self.k)[0]


def adjacency_matrix(edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N N"]:
    """Return 1 where there is an edge, in float64; repeated edges count once."""
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    if edges.numel():
        low, high = (int(end) for end in edges.aminmax())
        if low < 0 or high >= nodes:
            raise BadInput(f"edges must name nodes 0 to {nodes - 1}, got {low if low < 0 else high}")
        adjacency[edges[0], edges[1]] = 1
    return adjacency


def normalized_laplacian(edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N N"]:
    """Return the symmetric normalised Laplacian in float64; directions, repeated edges and self-loops are dropped."""
    adjacency = adjacency_matrix(edges, nodes)
    adjacency = torch.maximum(adjacency, adjacency.T).fill_diagonal_(0)
    degree = adjacency.sum(1)
    scale = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
    return torch.diag((degree > 0).double()) - scale[:, None] * adjacency * scale


def laplacian_positions(
    edges: Int[Tensor, "2 E"], nodes: int, k: int
) -> tuple[Float[Tensor, "N k"], Float[Tensor, " k"]]:
    """Return the k eigenvectors with the smallest eigenvalues above zero, and the eigenvalues; zeros where there are
    fewer."""
    values, vectors = torch.linalg.eigh(normalized_laplacian(edges, nodes))
    first = int((values < ZERO).sum())
    values, vectors = values[first : first + k], vectors[:, first : first + k]
    missing = k - len(values)
    positions = torch.nn.functional.pad(canonical(vectors), (0, missing))
    return positions.float(), torch.nn.functional.pad(values, (0, missing)).float()


def canonical(vectors: Float[Tensor, "N k"]) -> Float[Tensor, "N k"]:
    """Return the vectors with the sign for which the entry farthest from zero is positive."""
    if not vectors.numel():
        return vectors
    largest = vectors.gather(0, vectors.abs().round(decimals=9).argmax(0, keepdim=True))
    return vectors * torch.where(largest < 0, -1.0, 1.0).to(vectors.dtype)


def flip_signs(positions: Float[Tensor, "B N k"], rng: torch.Generator | None = None) -> Float[Tensor, "B N k"]:
    """Return the positions with a random sign for every column of every graph."""
    drawn = torch.rand(positions.shape[0], 1, positions.shape[2], generator=rng, device=positions.device)
    return torch.where(drawn < 0.5, -positions, positions)
