"""BP-Transformer: a token sees its neighbours one by one and the rest of the text in ever larger spans.

    Transformer    h_n = attend(h_n, [h_1 ... h_N])                                                  O(N² D)
    token          h_n = attend(h_n, [h_n; k neighbours of each level on either side])               O(N k log(N/k) D)
    span           u   = attend(u, [the tokens of its span])                                         O(N log N D)

A binary partition halves the text down to single tokens; its nodes are the tokens (level 0) and spans of 2, 4, 8 ...
tokens. Going up from a token, the next k nodes on the left and on the right are taken at every level, so that together
they cover the whole text exactly once, finely nearby and coarsely far away; the first node of a level whose other half
is already covered is replaced by its uncovered half. Tokens and spans are updated together, by one attention in which
every kind of edge (level, side, distance) adds a learned vector to the key; spans begin as zeros. The vector of a text
is its root.

What differs from the authors' code: the tree is cut at the true length of every text of a batch; an edge to a span that
does not exist is left out there (theirs points at another node); classification uses both sides (theirs the left one).

Ye, Guo, Gan, Qiu, Zhang: BP-Transformer: Modelling Long-Range Context via Binary Partitioning. 2019. arXiv:1911.04070
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.gathered_attention import GatheredAttention, NeighbourGroup, Neighbours
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Traits
from regard.blocks.encoder import EncoderBlock
from regard.blocks.feedforward import ReluFeedForward
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.models.text_encoder import TextEncoder


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a BP-Transformer; the defaults are those of the authors for SST-5."""

    vocab: int
    width: int = 300
    heads: int = 6
    layers: int = 4
    ffn: int = 600
    neighbours: int = 4  # k, nodes of each level on either side
    edge_levels: int = 2  # levels whose edges have vectors of their own; the others share those of the last
    length: int = 512  # of a predictor's rows; the tree takes any
    segments: int = 1  # 2: pairs of texts
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.3, low=0, below=1)
    positions: str = "none"  # the edges know the distance
    head: str | None = None  # classes(3), tags(23) or span; None: the vectors of all tokens


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"width": 32, "heads": 2, "layers": 2, "ffn": 64, "neighbours": 2, "length": 64},
    "small": {"width": 128, "heads": 4, "layers": 3, "ffn": 256},
    "base": {},
}


class BPTransformer(TextEncoder):
    """Tokens to the output of the head."""

    traits = Traits(
        cost="N k log(N / k) D",
        paper="1911.04070",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        square=True,
        positional=True,
        family="sparse by position",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.reset()

    def encode_vectors(
        self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"], pass_state: PassState
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B C"]]:
        n, tree = x.shape[1], PartitionTree.of(x.shape[1], self.config.neighbours, x.device)
        mask = tree.mask(lengths, self.config.edge_levels)
        nodes = torch.cat([self.norm(x), x.new_zeros(x.shape[0], tree.size - n, x.shape[2])], 1)
        for depth, block in enumerate(self.blocks):
            nodes = block(nodes, mask, None, pass_state.layer(depth))
        roots = tree.roots(lengths)[:, None, None].expand(-1, 1, nodes.shape[2])
        return nodes[:, :n], nodes.gather(1, roots)[:, 0]

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise matrices by Xavier, biases 0, embeddings normal with std 1/√width."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(std=self.config.width**-0.5)


def _block(config: Config) -> EncoderBlock:
    types = (2 * config.neighbours + 1) * config.edge_levels
    attend = GatheredAttention(config.width // config.heads, types, config.attention_dropout)
    mix = MultiHeadAttention(config.width, config.heads, mechanism=attend, bias=False)
    feed = ReluFeedForward(config.width, config.ffn, config.dropout)
    return EncoderBlock(mix, feed, [nn.LayerNorm(config.width) for _ in range(2)], False, config.dropout)


# -- the tree ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartitionTree:
    """The binary partition of n tokens; nodes are numbered level by level, the tokens first."""

    n: int
    counts: tuple[int, ...]  # nodes of each level
    places: Int[Tensor, "N J"]  # nodes that a token sees, itself first: their places on their levels
    levels: Int[Tensor, "N J"]
    edges: Int[Tensor, " J"]  # the level at which each was taken, times 2k + 1, plus which it is: 0 itself, 1 ... 2k
    neighbours: int

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(self.counts)

    @staticmethod
    def of(n: int, neighbours: int, device: torch.device | str = "cpu") -> PartitionTree:
        """Return the tree of n tokens on a device."""
        counts = [n]
        while counts[-1] > 1:
            counts.append((counts[-1] + 1) // 2)
        token, steps = torch.arange(n, device=device)[:, None], torch.arange(neighbours, device=device)
        places, levels, edges = [token], [torch.zeros_like(token)], [token.new_zeros(1)]
        left, right = token - 1, token + 1  # the next node on either side, at the current level
        left_half = right_half = torch.zeros_like(token, dtype=torch.bool)  # whether half of it is covered already
        covered = 0  # tokens on either side, at least
        for level in range(len(counts)):
            for side, (node, half, covered_half) in enumerate(
                ((left - steps, 2 * left, left_half), (right + steps, 2 * right + 1, right_half))
            ):
                replaced = covered_half & (steps == 0)  # by its other half, one level below
                places.append(torch.where(replaced, half, node))
                levels.append(level - replaced.long())
                edges.append((2 * neighbours + 1) * level + 2 * steps + 1 + side)
            covered += (neighbours << level) - (1 << level) // 2
            if covered >= n - 1:
                break
            left, right = left - neighbours, right + neighbours
            left_half, right_half = left % 2 == 0, right % 2 == 1
            left, right = left // 2, right // 2
        return PartitionTree(n, tuple(counts), torch.cat(places, 1), torch.cat(levels, 1), torch.cat(edges), neighbours)

    def starts(self) -> Int[Tensor, " L"]:
        """Return the number of the first node of each level."""
        spans = self.spans()
        counts = (self.n + spans - 1) // spans
        return counts.cumsum(0) - counts

    def spans(self) -> Int[Tensor, " L"]:
        """Return the number of tokens of a node of each level."""
        return 1 << torch.arange(len(self.counts), device=self.edges.device)

    def mask(self, lengths: Int[Tensor, " B"], edge_levels: int) -> Neighbours:
        """Return who sees whom in texts of these lengths: tokens their lists, spans their tokens."""
        exists = (self.places >= 0) & (self.places * self.spans()[self.levels] < lengths[:, None, None])
        index = (self.starts()[self.levels] + self.places).clamp(0, self.size - 1)
        width = 2 * self.neighbours + 1
        types = torch.minimum(self.edges, (edge_levels - 1) * width + self.edges % width).expand_as(index)
        groups = [NeighbourGroup(index[None], exists, types)]
        for level, count in enumerate(self.counts[1:], 1):
            tokens = torch.arange(count << level, device=lengths.device).view(count, -1)
            edge = torch.full_like(tokens, min(level, edge_levels - 1) * width)
            inside = tokens[None] < lengths[:, None, None]
            groups.append(NeighbourGroup(tokens.clamp(max=self.n - 1)[None], inside, edge))
        return Neighbours(groups)

    def roots(self, lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return the number of the root of a text of each length: the first node of the first level that has one."""
        return self.starts()[(self.spans() < lengths[:, None]).sum(1)]
