"""SAC: sparse adaptive connection, an encoder that predicts which tokens attend to which.

    Transformer    h_n = attend(h_n, [h_1 ... h_N])                                                   O(N² D)
    SAC            h_n = attend(h_n, [h_n; h_m1 ... h_ma])                                            O(N a D)
    edges          z_t = LSTM(z_(t-1), h_m(t-1)),   m_t ~ softmax_m(q(z_t)·k(h_m) / √P + b_(m-n))     O(N² a P)

The text is a graph: of each layer's input, an LSTM predicts a edges for every node, one after another, beginning from
the node itself; b is a distance encoding. A node has an edge to itself and none twice. Edges are sampled in training
and the likeliest in evaluation. Sampling has no derivative, so the predictor learns from a reward, the log-likelihood
of the task (REINFORCE): each layer publishes the log-probabilities of its edges in its layer state, and the task
(`reinforced_classification`) adds the policy gradient. With a = N - 1 it is the Transformer.

Of the paper's variants this is the one in which all nodes are connected: a node is the source of as many edges as every
other. What differs: edges are distinct, they are the same for all heads of a layer, and the predictor's own scores are
between all pairs, as the paper's are, in a few dimensions P; the sizes are ours. No code was published.

Li, Meng, Zhou, Han, Wu, Li: SAC: Accelerating and Structuring Self-Attention via Sparse Adaptive Connection.
NeurIPS 2020. arXiv:2003.09833
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.aligners.hard import ForcedChoices, entropy
from regard.attention.gathered_attention import GatheredAttention, NeighbourGroup, Neighbours
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Traits
from regard.blocks.encoder import EncoderBlock
from regard.blocks.feedforward import ReluFeedForward
from regard.core.categorical import sample_categorical
from regard.core.config import field
from regard.core.layer_state import LayerState, PassState
from regard.core.shapes import Float, Int, Tensor
from regard.models.text_encoder import TextEncoder


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an encoder with predicted edges."""

    vocab: int
    width: int = 256
    heads: int = 4
    layers: int = 4
    ffn: int | None = None  # None: four times the width
    edges: int = 8  # a: of every token, besides the one to itself
    predictor_width: int = 32  # of the LSTM, and P of its scores
    distance: int = 32  # largest distance with a bias of its own
    length: int = 512  # maximum length with learned positions
    segments: int = 1  # 2: pairs of texts
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    positions: str = "learned"
    head: str | None = None  # classes(3), tags(23) or span; None: the vectors of all tokens


SIZES: dict[str, dict[str, Any]] = {  # our own
    "tiny": {"width": 32, "heads": 2, "layers": 2, "edges": 3, "predictor_width": 8, "length": 64},
    "small": {"width": 128, "layers": 2},
    "base": {},
}


class SAC(TextEncoder):
    """Tokens to the output of the head."""

    traits = Traits(
        cost="N² a P + N a D",
        paper="2003.09833",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        square=True,
        positional=True,
        family="sparse by content",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)
        sizes = config.width, config.predictor_width, config.edges, config.distance
        self.predictors = nn.ModuleList(EdgePredictor(*sizes) for _ in range(config.layers))
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        self.reset()

    def encode_vectors(
        self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"], pass_state: PassState
    ) -> tuple[Float[Tensor, "B N C"], Float[Tensor, "B C"]]:
        x = self.norm(x)
        for depth, (predict, block) in enumerate(zip(self.predictors, self.blocks, strict=True)):
            layer_state = pass_state.layer(depth)
            x = block(x, predict(x, lengths, layer_state), None, layer_state)
        real = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
        return x, (x * real).sum(1) / lengths.clamp(min=1)[:, None].to(x.dtype)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise matrices by Xavier, biases 0, embeddings normal with std 1/√width."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(std=self.config.width**-0.5)


class EdgePredictor(ForcedChoices, nn.Module):
    """Choose the edges of every node, one after another; a forced path has those of the nodes in order, B (N a)."""

    def __init__(self, width: int, hidden: int, edges: int, distance: int) -> None:
        super().__init__()
        self.edges, self.distance = edges, distance
        self.cell = nn.LSTMCell(width, hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(width, hidden)
        self.distance_bias = nn.Parameter(torch.zeros(2 * distance + 1))

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"], layer_state: LayerState) -> Neighbours:
        """Return who attends to whom; in training, publish the log-probabilities and entropies of the choices."""
        b, n, c = x.shape
        place = torch.arange(n, device=x.device)
        real = place < lengths[:, None]
        near = upcast(self.distance_bias)[(place - place[:, None]).clamp(-self.distance, self.distance) + self.distance]
        keys, state, at = self.key(x), None, place.expand(b, n)
        free = real[:, None] & real[..., None] & (place != place[:, None])  # B N N: nodes that have no edge yet
        index, exists, log_probs, entropies = [at], [real], [], []
        for step in range(self.edges):
            last = x.gather(1, at[..., None].expand(b, n, c))
            state = self.cell(last.flatten(0, 1), state)
            scores = upcast(self.query(state[0]).view(b, n, -1) @ keys.mT) * keys.shape[-1] ** -0.5 + near
            probabilities = masked_softmax(scores, free)
            at = self._choose(probabilities, step)
            chosen = probabilities.gather(-1, at[..., None]).squeeze(-1)
            log_probs.append(torch.where(chosen > 0, chosen, 1.0).log())  # of a node without a choice: 0
            entropies.append(entropy(probabilities))
            index.append(at)
            exists.append(free.any(-1))
            free = free.scatter(-1, at[..., None], False)
        if self.training:
            layer_state.publish("choice_log_prob", torch.stack(log_probs, -1).flatten(1))  # B (N a)
            layer_state.publish("choice_entropy", torch.stack(entropies, -1).flatten(1))
            layer_state.publish("choice_query", x.detach().repeat_interleave(self.edges, 1))
        return Neighbours([NeighbourGroup(torch.stack(index, -1), torch.stack(exists, -1))])

    def _choose(self, probabilities: Float[Tensor, "B N N"], step: int) -> Int[Tensor, "B N"]:
        if not self.training:
            return probabilities.argmax(-1)
        if self._path is None:
            return sample_categorical(probabilities)
        return self._path.view(*probabilities.shape[:2], self.edges)[..., step]


def _block(config: Config) -> EncoderBlock:
    attend = GatheredAttention(config.width // config.heads, dropout=config.attention_dropout)
    mix = MultiHeadAttention(config.width, config.heads, mechanism=attend)
    feed = ReluFeedForward(config.width, config.ffn or 4 * config.width, config.dropout)
    return EncoderBlock(mix, feed, [nn.LayerNorm(config.width) for _ in range(2)], False, config.dropout)
