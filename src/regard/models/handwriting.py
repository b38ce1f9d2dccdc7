"""Handwriting synthesis: an LSTM generates pen strokes, with a soft window that moves along the text.

    tokens      pen offsets (dx, dy, end of stroke); the text one-hot, with an end token
    positions   none: recurrence is ordered, the window moves forwards only
    attention   Gaussian mixture, from the state of the first layer, at every point
    head        a mixture of Gaussians for the next point, and the probability that the stroke ends

    h¹_t = LSTM(x_t, w_{t-1})     w_t = window(h¹_t) · text     hⁿ_t = LSTM(x_t, hⁿ⁻¹_t, w_t)     y_t of all hⁿ_t

Only the first layer runs step by step with the window; those above it read a whole line in one call. Without a text
(vocab=0) there is no window: the network of the paper's section 4. Writing stops when the window is at the end token;
in the paper, when it is past the last character.

Graves: Generating Sequences With Recurrent Neural Networks. 2013. arXiv:1308.0850 (section 5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import ALIGNERS
from regard.attention.aligners.base import align
from regard.attention.mask import PaddingMask
from regard.attention.protocol import context
from regard.blocks.decoder_state import tree_map
from regard.blocks.rnn import LSTMCell, init_rnn
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract

POINT = 3  # (dx, dy, end of stroke)
Cells = tuple[Tensor, ...]  # hidden and cell state of an LSTM, B 1 F each


@dataclass(frozen=True)
class Config:
    """Hyperparameters of the network; the defaults are the paper's (which has no dropout)."""

    vocab: int = field(low=0)  # characters and the end token; 0: no text
    hidden: int = 400  # units of a layer
    layers: int = 3
    mixtures: int = 20  # Gaussians of the next point
    aligner: Any = "gmm(mixtures=10, step=0.04)"  # step: initial speed, in characters a point
    dropout: float = field(0.0, low=0, below=1)  # of the output of a layer


# Paper is section 5 (56 characters and the end token); tiny learns digits on a CPU.
SIZES: dict[str, dict[str, Any]] = {
    "paper": {"vocab": 57},
    "unconditional": {"vocab": 0},
    "tiny": {"vocab": 11, "hidden": 128, "mixtures": 12, "aligner": "gmm(mixtures=4, step=0.04)"},
}


class Handwriting(ModelContract):
    """Points and a text to the mixture of the next point at every point."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config, hidden = config, config.hidden
        self.first_layer = WindowLSTM(config) if config.vocab else LSTMLayer(POINT, hidden)
        self.upper_layers = nn.ModuleList(
            LSTMLayer(POINT + hidden + config.vocab, hidden) for _ in range(config.layers - 1)
        )
        self.drop = nn.Dropout(config.dropout)
        self.head = MixtureDensityHead(config.layers * hidden, config.mixtures)

    def forward(
        self,
        points: Float[Tensor, "B T 3"],
        text: Int[Tensor, "B U"] | None = None,
        text_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> GaussianMixture:
        """Return the mixture of the point after each; points are padded on the right."""
        return self.read(points, self.start(points, text, text_lengths), pass_state)[0]

    def start(
        self, points: Float[Tensor, "B T 3"], text: Int[Tensor, "B U"] | None = None, lengths: Tensor | None = None
    ) -> HandwritingState:
        """Return the state before the first point of a text; `points` gives batch size, device and dtype."""
        like = points.new_zeros(points.shape[0], 1, self.config.hidden)
        if not self.config.vocab:
            return HandwritingState(
                None, None, (like, like), like[..., :0], None, ((like, like),) * len(self.upper_layers)
            )
        if text is None:
            raise BadInput("this model needs a text to write; pass `text`")
        one_hot = F.one_hot(text, self.config.vocab).to(points.dtype)
        mask = None if lengths is None else PaddingMask(lengths).real(text.shape[1])
        seen = one_hot.new_zeros(one_hot.shape[0], 1, self.config.vocab)
        return HandwritingState(one_hot, mask, (like, like), seen, None, ((like, like),) * len(self.upper_layers))

    def read(
        self, points: Float[Tensor, "B T 3"], state: HandwritingState, pass_state: PassState | None = None
    ) -> tuple[GaussianMixture, HandwritingState]:
        """Run from a state over one or more points; return the mixtures and the new state."""
        if isinstance(self.first_layer, WindowLSTM):
            x, seen, state = self.first_layer(points, state, pass_state)
        else:
            x, first = self.first_layer(points, state.first)
            seen, state = x[..., :0], replace(state, first=first)
        every, above = [x], []
        for layer, before in zip(self.upper_layers, state.above, strict=True):
            x, after = layer(torch.cat([points, self.drop(x), seen], -1), before)
            every.append(x)
            above.append(after)
        return self.head(self.drop(torch.cat(every, -1))), replace(state, above=tuple(above))

    def step(self, point: Float[Tensor, "B 3"], state: HandwritingState) -> tuple[GaussianMixture, HandwritingState]:
        """Return the mixture of the point after this one, and the new state."""
        found, state = self.read(point[:, None], state)
        return GaussianMixture(*(x[:, 0] for x in found)), state


@dataclass(frozen=True, eq=False)
class HandwritingState:
    """The state that is carried from point to point."""

    text: Float[Tensor, "B U V"] | None
    mask: Bool[Tensor, "B U"] | None
    first: Cells
    seen: Float[Tensor, "B 1 V"]  # window vector: the weighted mean of the characters
    window: Any  # state of the aligner
    above: tuple[Cells, ...]
    window_weights: Float[Tensor, "B 1 U"] | None = None  # weights of the window at the last point

    def select_rows(self, rows: Int[Tensor, " R"]) -> HandwritingState:
        return HandwritingState(*tree_map(lambda x: x[rows], tuple(vars(self).values())))


class LSTMLayer(nn.Module):
    """An LSTM that runs from a given state, in float32 also under autocast, where small gradients would vanish."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        init_rnn(self.lstm)
        _open_forget_gate(self.lstm.all_weights[0][2])

    @disable_compile
    def forward(self, x: Float[Tensor, "B T C"], state: Cells) -> tuple[Float[Tensor, "B T F"], Cells]:
        """Return all outputs and the last state."""
        with torch.autocast(x.device.type, enabled=False):
            dtype = self.lstm.all_weights[0][0].dtype
            says, keeps = (part.to(dtype).transpose(0, 1).contiguous() for part in state)
            states, (says, keeps) = self.lstm(x.to(dtype), (says, keeps))
        return states, (says.transpose(0, 1), keeps.transpose(0, 1))


class WindowLSTM(nn.Module):
    """The first layer: its input is the point and the window vector of the point before; it then moves the window."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, vocab = config.hidden, config.vocab
        self.cell = LSTMCell(POINT, vocab, hidden)
        _open_forget_gate(self.cell.state.bias)
        self.aligner = build_part(
            ALIGNERS, config.aligner, "aligner", query_width=hidden, memory_width=vocab, width=hidden
        )

    @disable_compile
    def forward(
        self, points: Float[Tensor, "B T 3"], state: HandwritingState, pass_state: PassState | None = None
    ) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T V"], HandwritingState]:
        """Return the outputs and window vectors of every point, and the new state."""
        if state.text is None:
            raise BadInput("this model needs a text to write; pass `text`")
        begin: nn.Linear = self.cell.input_gates  # type: ignore[assignment]  # there is one, since points have a width
        with torch.autocast(points.device.type, enabled=False):
            keys = self.aligner.keys(state.text)
            first, seen, window, window_weights = state.first, state.seen, state.window, state.window_weights
            every, sights = [], []
            pass_state = PassState() if pass_state is None else pass_state
            for t, known in enumerate(begin(points.to(begin.weight.dtype)).split(1, 1)):
                first = self.cell(known, seen, first)
                window_weights, window = align(self.aligner, first[0], keys, state.mask, window, pass_state.layer(t))
                seen = context(window_weights, state.text)
                every.append(first[0])
                sights.append(seen)
        moved = replace(state, first=first, seen=seen, window=window, window_weights=window_weights)
        return torch.cat(every, 1), torch.cat(sights, 1), moved


def _open_forget_gate(bias: Tensor) -> None:
    """Initialise the bias of the forget gate with 1."""
    with torch.no_grad():
        bias.chunk(4)[1].fill_(1.0)


def shift_right(points: Float[Tensor, "B T 3"]) -> Float[Tensor, "B T 3"]:
    """Return the inputs of a model that predicts these points: a zero point first."""
    first = torch.zeros_like(points[:, :1])
    first[..., 2] = 1
    return torch.cat([first, points[:, :-1]], 1)


# -- mixture density ---------------------------------------------------------------------------------------------------


MIN_STD = 0.02  # of σ, in units of the points: keeps a Gaussian from collapsing onto a point that repeats exactly
MAX_DISTANCE = 1e6  # from a mean, in the same unit; farther points count as this far
MAX_LOG_STD = 12.0  # of σ̂


class GaussianMixture(NamedTuple):
    """The distribution of the next point: P Gaussians in the plane, and the probability that the pen is lifted after
    it.

        p(x, up) = Σ_j π_j N(x; μ_j, σ_j, ρ_j) · e^up (1 - e)^(1 - up)

    With u, v = (x - μ) / σ the exponent is -(u² + (v - ρ u)² / (1 - ρ²)) / 2: a sum of squares, which rounding cannot
    make positive. Sampling with a bias b (0: as learned) sharpens: π̂ (1 + b), σ exp(-b); here also ê (1 + b).
    """

    log_weights: Float[Tensor, "*B P"]  # log π, which sum to one
    means: Float[Tensor, "*B P 2"]
    std: Float[Tensor, "*B P 2"]  # σ
    correlation: Float[Tensor, "*B P"]  # ρ
    pen_logit: Float[Tensor, "*B"]  # ê: the logit of the pen's lifting

    def log_prob(self, points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B"]:
        """Return the log-density of points, whatever the pen does."""
        # bounded before it is divided: beyond, a gradient would be zero times infinity
        away = (points.to(self.means.dtype)[..., None, :] - self.means).clamp(-MAX_DISTANCE, MAX_DISTANCE)
        u, v = (away / self.std).unbind(-1)
        narrow = 1 - self.correlation.square()
        squares = u.square() + (v - self.correlation * u).square() / narrow
        log_probs = -0.5 * (squares + narrow.log()) - self.std.log().sum(-1) - math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights + log_probs, -1)

    def pen_log_prob(self, up: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Return the log-probability of the pen's state: 1 lifted, 0 not."""
        return -F.binary_cross_entropy_with_logits(self.pen_logit, up.to(self.pen_logit.dtype), reduction="none")

    def sharpened(self, bias: float) -> GaussianMixture:
        """Return the mixture sharpened by a bias."""
        log_weights = torch.log_softmax(self.log_weights * (1 + bias), -1)
        return self._replace(
            log_weights=log_weights, std=self.std * math.exp(-bias), pen_logit=self.pen_logit * (1 + bias)
        )

    def sample(self, noise: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3"]:
        """Return a point and the pen's state from four numbers: one uniform for the component, two normal for the
        point, one uniform for the pen."""
        total = self.log_weights.exp().cumsum(-1)
        picked = (total <= noise[..., :1] * total[..., -1:]).sum(-1, keepdim=True)[..., None]  # *B 1 1
        mean, std = (x.gather(-2, picked.expand(*picked.shape[:-1], 2))[..., 0, :] for x in (self.means, self.std))
        correlation, one, two = self.correlation.gather(-1, picked[..., 0])[..., 0], noise[..., 1], noise[..., 2]
        away = torch.stack([one, correlation * one + (1 - correlation.square()).sqrt() * two], -1)
        up: Bool[Tensor, ...] = noise[..., 3] < torch.sigmoid(self.pen_logit)
        return torch.cat([mean + std * away, up[..., None].to(mean.dtype)], -1)


class MixtureDensityHead(nn.Module):
    """Map vectors to mixtures of `mixtures` Gaussians, in float32 or better.

        π = softmax(π̂)    μ = μ̂    σ = exp(σ̂) + MIN_STD    ρ = 0.999 tanh(ρ̂)    e = sigmoid(ê)        6 P + 1
        numbers

    Bishop: Mixture Density Networks. 1994; Graves 2013, equations 18 to 26, 61 and 62.
    """

    def __init__(self, width: int, mixtures: int) -> None:
        super().__init__()
        if mixtures < 1:
            raise BadInput(f"mixtures must be at least 1, got {mixtures}")
        self.mixtures = mixtures
        self.params = nn.Linear(width, 6 * mixtures + 1)
        nn.init.normal_(self.params.weight, std=width**-0.5)
        nn.init.zeros_(self.params.bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> GaussianMixture:
        p = self.mixtures
        numbers = self.params(x)
        numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
        log_weights, means, std, correlation, pen_logit = numbers.split([p, 2 * p, 2 * p, p, 1], -1)
        return GaussianMixture(
            torch.log_softmax(log_weights, -1),
            means.unflatten(-1, (p, 2)),
            std.clamp(max=MAX_LOG_STD).exp().unflatten(-1, (p, 2)) + MIN_STD,
            0.999 * torch.tanh(correlation),
            pen_logit[..., 0],
        )
