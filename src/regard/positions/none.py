"""No positions: attention then sees a bag of tokens, and a reordered input gives the same output, reordered.

    softmax    o_n = Σ_m exp(q_n·k_m) v_m / Σ_m exp(q_n·k_m)        no n or m but in the tokens themselves

A causal decoder still can tell order, from how many keys each query sees.

Haviv, Ram, Press, Izsak, Levy: Transformer Language Models without Positional Encodings Still Learn Positional
Information. Findings of EMNLP 2022. arXiv:2203.16634
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn


class NoPositions(nn.Module):
    """Enters nowhere."""

    kind: ClassVar[str] = "none"
