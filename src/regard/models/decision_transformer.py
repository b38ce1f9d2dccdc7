"""Decision Transformer: predict the next action from returns-to-go, states and actions.

    tokens      three a step: return-to-go, state, action, each through a linear map; then a norm
    positions   a learned table of timesteps, the same row added to the three tokens of a step
    attention   softmax with H heads, every token sees itself and what came before it; norm first
    head        linear, on the state's token: the action (through tanh); on the action's: next state and return

There is no value function and no planning: conditioned on a high return, it imitates what led to high returns.
Actions are vectors, or one of several classes. A history shorter than the context is padded on the right.

Chen, Lu, Rajeswaran, Lee, Grover, Laskin, Abbeel, Srinivas, Mordatch: Decision Transformer. NeurIPS 2021.
arXiv:2106.01345
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.causal import CausalBlock, CausalStack
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions import POSITIONS


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Decision Transformer; the defaults are the paper's for control."""

    state_dim: int  # size of a state
    action_dim: int  # size of an action, or number of actions
    action_type: Literal["tanh", "linear", "discrete"] = "tanh"  # vectors within [-1, 1], any vectors, one of several
    width: int = 128
    heads: int = 1
    layers: int = 3
    ffn: int | None = None  # None: four times the width
    length: int = 1000  # timesteps of the longest episode
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    feedforward: str = "relu"
    attention: Any = "softmax"


# Table 9 of the paper (Hopper: state 11, action 3); tiny learns the pendulum on a CPU.
SIZES: dict[str, dict[str, Any]] = {
    "hopper": {"state_dim": 11, "action_dim": 3},
    "tiny": {
        "state_dim": 3, "action_dim": 1, "width": 64, "heads": 2, "length": 80, "dropout": 0.0, "attention_dropout": 0.0
    },
}  # fmt: skip


class Predictions(NamedTuple):
    """Predictions of every step: the action, the next state and return."""

    actions: Float[Tensor, "B T A"]  # or logits of discrete actions
    states: Float[Tensor, "B T S"]
    returns: Float[Tensor, "B T"]


class DecisionTransformer(ModelContract):
    """Episodes to the action of every step."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config, width, classes = config, config.width, config.action_type == "discrete"
        self.embed_return = nn.Linear(1, width)
        self.embed_state = nn.Linear(config.state_dim, width)
        self.embed_action = nn.Embedding(config.action_dim, width) if classes else nn.Linear(config.action_dim, width)
        self.time = build_part(POSITIONS, "learned", "positions", width=width, length=config.length)
        self.norm = nn.LayerNorm(width)
        blocks = [_block(config, layer) for layer in range(config.layers)]
        self.decoder = CausalStack(
            blocks, build_part(POSITIONS, "none", "positions"), nn.LayerNorm(width), config.dropout
        )
        self.action = nn.Linear(width, config.action_dim)
        self.state = nn.Linear(width, config.state_dim)
        self.reward = nn.Linear(width, 1)
        self.reset()

    def forward(
        self,
        returns: Float[Tensor, "B T"],
        states: Float[Tensor, "B T S"],
        actions: Float[Tensor, "B T A"] | Int[Tensor, "B T"],
        timesteps: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Predictions:
        """Return the predictions of every step; the action of a step does not influence its own prediction."""
        x = self.hidden(returns, states, actions, timesteps, lengths, pass_state)
        seen, done = x[:, :, 1], x[:, :, 2]
        action = self.action(seen)
        action = action.tanh() if self.config.action_type == "tanh" else action
        return Predictions(action, self.state(done), self.reward(done)[..., 0])

    def hidden(
        self,
        returns: Float[Tensor, "B T"],
        states: Float[Tensor, "B T S"],
        actions: Float[Tensor, "B T A"] | Int[Tensor, "B T"],
        timesteps: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T 3 C"]:
        """Return the hidden states of the three tokens of every step."""
        three = self.embed_return(returns[..., None]), self.embed_state(states), self.embed_action(actions)
        timed = [self.time(one, timesteps) for one in three]
        x = self.norm(torch.stack(timed, 2).flatten(1, 2))  # B 3T C: return, state, action, return, ...
        x = self.decoder(x, None if lengths is None else PaddingMask(3 * lengths), pass_state)
        return x.unflatten(1, (-1, 3))

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as GPT-2."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.weight.normal_(std=0.02)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()  # type: ignore[operator]


def _block(config: Config, layer: int) -> CausalBlock:
    hidden = 4 * config.width if config.ffn is None else config.ffn
    mix = build_mixer(
        layer_spec(config.attention, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        causal=True,
        dropout=config.attention_dropout,
    )
    feed = build_part(FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=hidden)
    return CausalBlock(mix, feed, [nn.LayerNorm(config.width) for _ in range(2)], True, config.dropout)
