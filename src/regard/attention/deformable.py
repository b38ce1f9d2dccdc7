"""Deformable attention: each query looks at a few points of each level of a pyramid, which it chooses itself.

    softmax       o_n = Σ_m softmax(q_n·k_m) v_m                          all M cells                     O(N M D)
    deformable    o_n = Σ_l Σ_p a_nlp V_l(r_n + Δ_nlp)                    L levels, P points each         O(N L P D)

Weights a (a softmax over the L P points) and offsets Δ are linear maps of the query; there are no keys. V_l(x) is the
value at a point between the cells of level l, by bilinear interpolation, 0 outside. r_n is the query's reference: a
point, from which offsets count cells, or a box, in which they count its sides. It is linear in the values, so
`weights` gives the matrix over all cells that it stands for.

Zhu, Su, Lu, Li, Wang, Dai: Deformable DETR: Deformable Transformers for End-to-End Object Detection. ICLR 2021.
arXiv:2010.04159
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import pi

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


class DeformableAttention(nn.Module):
    """Attend from tokens to points of a pyramid.

    Args:
        width: of the tokens.
        heads: number of heads, each with its own points.
        levels: of the pyramid.
        points: of each head on each level.
        cross: whether the queries are others than the cells.
    """

    def __init__(self, width: int, heads: int, levels: int = 4, points: int = 4, cross: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise BadInput(f"width {width} is not divisible by {heads} heads; change one of them")
        self.heads, self.levels, self.points = heads, levels, points
        self.kind = "cross" if cross else "self"
        self.offsets = nn.Linear(width, heads * levels * points * 2)
        self.scores = nn.Linear(width, heads * levels * points)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.reset()

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        memory: Float[Tensor, "B M C"],
        references: Float[Tensor, "B N L R"],
        shapes: Sequence[tuple[int, int]],
        real: Bool[Tensor, "B M"] | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return what every query sees.

        Args:
            x: the queries.
            memory: the cells of all levels, one level after another, each row by row.
            references: of every query on every level, a point (x, y) or a box (centre x, y, width, height); fractions
                of the level with its padding.
            shapes: rows and columns of each level.
            real: False for cells that are padding, whose values count as 0.
        """
        if len(shapes) != self.levels or sum(y * x for y, x in shapes) != memory.shape[1]:
            raise BadInput(f"{memory.shape[1]} cells are not the {self.levels} levels {[tuple(s) for s in shapes]}")
        values = self.value(memory)
        values = values if real is None else values.masked_fill(~real[..., None], 0.0)
        mixed = self._sample(x, values.unflatten(-1, (self.heads, -1)), references, shapes)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def weights(
        self,
        x: Float[Tensor, "B N C"],
        memory: Float[Tensor, "B M C"],
        references: Float[Tensor, "B N L R"],
        shapes: Sequence[tuple[int, int]],
        real: Bool[Tensor, "B M"] | None = None,
    ) -> Float[Tensor, "B H N M"]:
        """Return the matrix that is applied to the values; rows sum to one unless points are outside or in padding."""
        places, attend = self._points(x, references, shapes)
        found = x.new_zeros(*x.shape[:2], self.heads, memory.shape[1])
        begin = 0
        for level, (rows, columns) in enumerate(shapes):
            size = torch.tensor([columns, rows], device=x.device)
            at = (places[:, :, :, level] + 1) / 2 * size - 0.5  # B N H P 2, in cells
            for corner in product((0, 1), (0, 1)):
                cell = at.floor() + torch.tensor(corner, device=x.device)
                inside = ((cell >= 0) & (cell < size)).all(-1)
                share = (1 - (at - cell).abs()).prod(-1) * inside * attend[:, :, :, level]
                index = cell.long().clamp(min=0).minimum(size - 1)
                found.scatter_add_(-1, begin + index[..., 1] * columns + index[..., 0], share)
            begin += rows * columns
        found = found if real is None else found * real[:, None, None]
        return found.transpose(1, 2)

    def _sample(
        self, x: Tensor, values: Float[Tensor, "B M H E"], references: Tensor, shapes: Sequence[tuple[int, int]]
    ) -> Float[Tensor, "B H N E"]:
        places, attend = self._points(x, references, shapes)
        found: Tensor | float = 0.0
        for level, part in enumerate(values.split([rows * columns for rows, columns in shapes], 1)):
            grid = part.permute(0, 2, 3, 1).flatten(0, 1).unflatten(-1, tuple(shapes[level]))  # (B H) E Y X
            seen = F.grid_sample(grid, places[:, :, :, level].transpose(1, 2).flatten(0, 1), align_corners=False)
            weight = attend[:, :, :, level].transpose(1, 2).flatten(0, 1)[:, None]  # (B H) 1 N P
            found = found + (seen * weight).sum(-1)
        assert isinstance(found, Tensor)
        return found.unflatten(0, (-1, self.heads)).mT

    def _points(self, x: Tensor, references: Tensor, shapes: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Return where each query looks, B N H L P 2, (x, y) from -1 to 1 over a level, and the weights, B N H L P."""
        each = (self.heads, self.levels, self.points)
        offsets = self.offsets(x).unflatten(-1, (*each, 2))
        attend = self.scores(x).unflatten(-1, (self.heads, -1)).softmax(-1).unflatten(-1, each[1:])
        at, box = references[:, :, None, :, None, :2], references[:, :, None, :, None, 2:]
        sides = [torch.full((), n, device=x.device, dtype=x.dtype) for rows, columns in shapes for n in (columns, rows)]
        cells = torch.stack(sides).view(-1, 1, 2)
        return 2 * (at + (offsets * box / (2 * self.points) if box.shape[-1] else offsets / cells)) - 1, attend

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise: head h looks in direction 2π h / H, its points at distances 1 to P, all weights equal."""
        nn.init.zeros_(self.offsets.weight)
        angle = torch.arange(self.heads) * (2 * pi / self.heads)
        direction = torch.stack([angle.cos(), angle.sin()], -1)
        direction = direction / direction.abs().amax(-1, keepdim=True)
        far = torch.arange(1, self.points + 1)
        start = direction[:, None, None] * far[:, None]  # H 1 P 2
        self.offsets.bias.copy_(start.expand(-1, self.levels, -1, -1).flatten())
        nn.init.zeros_(self.scores.weight)
        nn.init.zeros_(self.scores.bias)
        for layer in (self.value, self.out):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
