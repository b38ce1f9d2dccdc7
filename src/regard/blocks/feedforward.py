"""Feed-forward layers: each token on its own, through a wider layer and back.

plain    W_down a(W_up x)                    a: ReLU (2017), GELU (BERT), GELU by a tanh (GPT) or a sigmoid, SiLU
gated    W_down (a(W_gate x) * W_up x)       Shazeer: GLU Variants Improve Transformer. 2020. arXiv:2002.05202
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction


class FeedForward(nn.Module):
    """Linear, activation, linear."""

    activation: ClassVar[Callable[..., Tensor]]
    takes_layer_state: ClassVar[bool] = False  # whether `forward` takes a LayerState too

    def __init__(self, width: int, hidden: int, dropout: Fraction = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.drop = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        out: Tensor = self.down(self.drop(type(self).activation(self.up(x))))
        return out


class GatedFeedForward(FeedForward):
    """A feed-forward whose hidden units are multiplied by a gate."""

    def __init__(self, width: int, hidden: int, dropout: Fraction = 0.0, bias: bool = True) -> None:
        super().__init__(width, hidden, dropout, bias)
        self.gate = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        out: Tensor = self.down(self.drop(type(self).activation(self.gate(x)) * self.up(x)))
        return out


class ReluFeedForward(FeedForward):
    """ReLU, as in the first Transformer."""

    activation = staticmethod(F.relu)


class GeluFeedForward(FeedForward):
    """GELU, as in BERT."""

    activation = staticmethod(F.gelu)


class TanhGeluFeedForward(FeedForward):
    """The tanh approximation of GELU, as in GPT: x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""

    activation = staticmethod(partial(F.gelu, approximate="tanh"))


class QuickGeluFeedForward(FeedForward):
    """The sigmoid approximation of GELU, as in ImageGPT and CLIP: x σ(1.702 x)."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid()


class SiluFeedForward(FeedForward):
    """SiLU ("swish"), as in Marian."""

    activation = staticmethod(F.silu)


class GatedReluFeedForward(GatedFeedForward):
    """ReGLU."""

    activation = staticmethod(F.relu)


class GatedGeluFeedForward(GatedFeedForward):
    """GEGLU."""

    activation = staticmethod(F.gelu)


class GatedTanhGeluFeedForward(GatedFeedForward):
    """GEGLU with the tanh approximation of GELU, as in T5 v1.1."""

    activation = staticmethod(partial(F.gelu, approximate="tanh"))


class GatedSiluFeedForward(GatedFeedForward):
    """SwiGLU."""

    activation = staticmethod(F.silu)
