"""Positions added in every layer: to the inputs of the queries and keys, never to the values.

    added        x_n + p_n                         to the tokens, once; every layer must carry it along
    per layer    q_n = W_q (x_n + p_n)             k_m = W_k (x_m + p_m)        v_m = W_v x_m

What is attended by place stays apart from what is mixed. `base` are the positions whose vectors are added. DETR adds
sines over the image to the encoder's layers and learned object queries to the decoder's.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from regard.core.errors import Unsupported
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import Spec, build_part, resolve
from regard.positions import POSITIONS
from regard.positions.traits import PositionTraits


class PerLayerPositions(nn.Module):
    """Position vectors for the inputs of q and k in every layer; `base` names positions that are added to tokens."""

    kind: ClassVar[str] = "qk_input"
    traits: ClassVar = PositionTraits("sequence", invariant=frozenset({"shift"}))  # with base='sinusoidal'

    def __init__(self, width: int, length: int, base: str = "sinusoidal") -> None:
        super().__init__()
        if resolve(POSITIONS, Spec.parse(base).name, "positions").kind != "added":  # type: ignore[attr-defined]
            raise Unsupported(f"'{base}' positions are not vectors added to tokens; use base='sinusoidal' or 'learned'")
        self.base = build_part(POSITIONS, base, "positions", width=width, length=length)
        self.width = width

    def vectors(self, index: Int[Tensor, "#B N"]) -> Float[Tensor, "#B N C"]:
        """Return the vector of every position."""
        dtype = next((p.dtype for p in self.base.parameters()), torch.get_default_dtype())
        zeros = torch.zeros(*index.shape, self.width, dtype=dtype, device=index.device)
        out: Tensor = self.base(zeros, index)
        return out

    def check_length(self, n: int) -> None:
        """Raise an error if the base has no vectors for n positions."""
        if hasattr(self.base, "check_length"):
            self.base.check_length(n)
