"""Other positions in a model that was trained with its own: what does it know of order without them?

    a stack (Transformer, GPT, BERT)     its positions are exchanged: none, sinusoidal, rotary, alibi
    a grid (ViT), windows (Swin)         what is added, to tokens or to scores, can be left out: none

Positions that are learned cannot be put in, as nobody learned them for this model.
"""

from __future__ import annotations

from contextlib import ExitStack
from fnmatch import fnmatch
from typing import Any

import torch
from torch import nn

from regard.blocks.causal import CausalStack
from regard.blocks.decoder import Decoder
from regard.blocks.encoder import Stack
from regard.core.errors import BadInput, Unsupported, did_you_mean
from regard.core.spec import Spec, build_part, is_learned
from regard.positions import POSITIONS
from regard.positions.added.grid import GridPositions
from regard.positions.bias.window import WindowBias


def override_positions(model: nn.Module, pattern: str, spec: str, undo: ExitStack) -> None:
    """Exchange the positions of everything whose name matches; `undo` puts the old ones back."""
    parts = {name: part for name, part in model.named_modules() if _has_positions(part)}
    if not parts:
        raise Unsupported(f"this {type(model).__name__} has no positions that can be exchanged while it runs")
    if not (matching := {name: part for name, part in parts.items() if fnmatch(name, pattern)}):
        raise BadInput(f"no positions are at '{pattern:.80}'; {did_you_mean(pattern, parts)}")
    none = Spec.parse(spec).name == "none"
    for name, part in matching.items():
        if isinstance(part, Stack):
            _swap_positions(part, _make_positions(model, part, spec), undo)
        elif not none:
            raise Unsupported(f"positions of a grid ('{name}') can only be left out: spec='none', not {spec!r:.40}")
        else:
            undo.callback(part.register_forward_hook(_without_positions, prepend=True).remove)


def _has_positions(part: nn.Module) -> bool:
    if isinstance(part, Stack):
        return bool(part.positions.kind != "none")
    return isinstance(part, (GridPositions, WindowBias))


def _without_positions(part: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    """Tokens as they came, or a bias of nothing."""
    x: torch.Tensor = args[0] if isinstance(part, GridPositions) else torch.zeros_like(output)
    return x


def _make_positions(model: nn.Module, stack: Stack, spec: str) -> nn.Module:
    """Positions of this name in the sizes of the stack."""
    config: Any = getattr(model, "config", None)
    mixer: Any = getattr(stack.blocks[0], "mix", None)
    width, heads = getattr(config, "width", None), getattr(config, "heads", None)
    if width is None or heads is None:
        raise Unsupported(f"a {type(model).__name__} does not say how wide its stacks are: positions cannot be made")
    head_dim = getattr(getattr(mixer, "project", None), "head_dim", width // heads)
    sizes = {"width": width, "heads": heads, "head_dim": head_dim, "length": getattr(config, "length", 1)}
    sizes["causal"] = isinstance(stack, (Decoder, CausalStack))
    if is_learned(POSITIONS, spec, "positions", **sizes):
        raise Unsupported(f"'{spec}' positions are learned, which this model never did; take one that is a formula")
    made: nn.Module = build_part(POSITIONS, spec, "positions", **sizes)
    return made.eval()


def _swap_positions(stack: Stack, made: nn.Module, undo: ExitStack) -> None:
    before = stack.positions
    stack.positions = made

    def back() -> None:
        stack.positions = before

    undo.callback(back)
