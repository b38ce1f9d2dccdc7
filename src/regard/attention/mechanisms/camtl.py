"""Conditional attention (CA-MTL): a bias between near places, made from the task at hand.

    softmax    w = softmax(s_nm)                                  s_nm = q_n·k_m / √D                   O(N M D)
    camtl      w = softmax(s_nm + A(z)_nm),   A(z)_nm = (1 + γ(z)_i) W_ni + β(z)_i,   i = m mod S       O(N M D)
               for n and m in the same block of S = length / blocks places, else A = 0

One network serves several tasks: z is the embedding of the task, γ and β are linear in it (feature-wise modulation),
and W, shared by the tasks, holds a score for every place and every place of its block. All heads get the same bias.

The number of the task, B integers, comes through the layer state under "task": publish it below the first layer,
``pass_state.layer(-1).publish("task", ids)``; with one task there is nothing to say.

Differs from the paper: only its conditional attention, without its conditional layer norm, adapters and sampling of
tasks; every layer has an embedding of its own. `blocks=None` is width // length, at least 1, as in the authors' code.

Pilault, Elhattami, Pal: Conditionally Adaptive Multi-Task Learning. ICLR 2021. arXiv:2009.09139
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.dense import PlacedAttention, token_positions
from regard.attention.protocol import Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction


class ConditionalAttention(PlacedAttention):
    """Softmax attention with a block-diagonal bias that depends on the task; `tasks` is their number."""

    traits = Traits(cost="N M D", paper="2009.09139", exact=False, square=True, positional=True, family="with a prior")

    def __init__(
        self,
        width: int,
        length: int | None,
        tasks: int = 1,
        blocks: int | None = None,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(length, dropout, scale)
        blocks = max(1, width // self.length) if blocks is None else blocks
        self.block = -(-self.length // blocks)
        self.tasks = nn.Parameter(torch.randn(tasks, width))  # z
        self.modulation = nn.Linear(width, 2 * self.block)  # γ and β
        nn.init.zeros_(self.modulation.bias)
        self.shared = nn.Parameter(torch.zeros(self.length, self.block))  # W

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        queries, keys = token_positions(q, k, mask, rows)
        gain, shift = self.modulation(self.tasks[self._task(layer_state)]).unsqueeze(1).chunk(2, -1)
        bias = upcast((1 + gain) * self.shared + shift)  # #B length block
        each = torch.arange(bias.shape[0], device=q.device)[:, None, None]
        picked = bias[each, queries[:, :, None], (keys % self.block)[:, None]]
        same = queries[:, :, None] // self.block == keys[:, None] // self.block
        return super().scores(q, k, mask, layer_state, rows) + (picked * same)[:, None]

    def publish(self, scores: Tensor, weights: Tensor, layer_state: LayerState | None) -> None:
        if layer_state is not None:
            layer_state.publish("task", layer_state.previous("task"))

    def _task(self, layer_state: LayerState | None) -> Tensor:
        """Return the tasks of the batch, B integers, or one for all."""
        task: Tensor | None = None if layer_state is None else layer_state.previous("task")
        if task is None and len(self.tasks) > 1:
            raise Unsupported(
                f"camtl was built for {len(self.tasks)} tasks but was not told which is at hand; "
                'publish it: pass_state.layer(-1).publish("task", ids), one integer for each input'
            )
        return torch.zeros(1, dtype=torch.long, device=self.tasks.device) if task is None else task

    def extra_repr(self) -> str:
        return f"tasks={len(self.tasks)}, block={self.block}, {super().extra_repr()}"
