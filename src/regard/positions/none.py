"""No positions: attention is then permutation equivariant.

A causal decoder can still infer order from the number of keys that each query sees.

Haviv, Ram, Press, Izsak, Levy: Transformer Language Models without Positional Encodings Still Learn Positional
Information. Findings of EMNLP 2022. arXiv:2203.16634
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from regard.positions.traits import PositionTraits


class NoPositions(nn.Module):
    """No positions."""

    kind: ClassVar[str] = "none"
    traits: ClassVar = PositionTraits("sequence", invariant=frozenset({"shift"}))
