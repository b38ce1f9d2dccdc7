"""What an export is made of: graphs with example inputs, and a script that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.shapes import Tensor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

TRACED, OTHER = (2, 12), (3, 17)  # rows and length of the traced example, and of one by which free axes are found
CHECKED = ((1, 5), (5, 21))  # of the batches on which `check` compares


class Function(nn.Module):
    """A function of tensors that reads the weights of a model, as a module to trace."""

    def __init__(self, model: nn.Module, function: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.model, self.function = model, function
        self.training = False  # without `eval`, which would change the model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(*inputs)


@dataclass(frozen=True)
class Graph:
    """A function to trace.

    `example` makes inputs of a number of rows and a length; an axis is free if it depends on one of them. The length of
    all examples is multiplied by `unit`, and at most `longest`.
    """

    name: str
    model: nn.Module
    function: Callable[..., tuple[Tensor, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    example: Callable[[int, int], tuple[Tensor, ...]]
    longest: int = 1_000_000

    def sample(self, shape: tuple[int, int]) -> tuple[Tensor, ...]:
        """Return example inputs of (rows, length)."""
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers do not change
            torch.manual_seed(0)
            return self.example(shape[0], min(shape[1], self.longest))

    @cached_property
    def traced(self) -> tuple[Tensor, ...]:
        """The example that is traced."""
        return self.sample(TRACED)

    @cached_property
    def axes(self) -> list[list[str | int]]:
        """The shape of every input: a number, or the name of a free axis."""
        found = []
        for one, other in zip(self.traced, self.sample(OTHER), strict=True):
            pairs = zip(one.shape, other.shape, strict=True)
            found.append([a if a == b else "batch" if (a, b) == (TRACED[0], OTHER[0]) else "length" for a, b in pairs])
        return found

    def module(self) -> nn.Module:
        """Return the module to trace."""
        return Function(self.model, self.function)

    def describe(self) -> dict[str, Any]:
        """Return its inputs and outputs, as config.json has them."""
        named = zip(self.inputs, self.traced, self.axes, strict=True)
        inputs = [
            {"name": name, "dtype": str(x.dtype).removeprefix("torch."), "shape": shape} for name, x, shape in named
        ]
        return {"inputs": inputs, "outputs": list(self.outputs)}


@dataclass(frozen=True)
class Plan:
    """All that an export writes, and how it is checked.

    `script` is the end of run.py: it has `config`, `np`, `sys`, and a function for every graph. It prints a line for
    each argument (or pair of arguments) that `answer` says Regard's way.
    """

    graphs: tuple[Graph, ...]
    script: str
    usage: str  # of run.py
    values: dict[str, Any] = field(default_factory=dict)  # what config.json has for the script
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None
    examples: Sequence[tuple[Any, ...]] = ()  # arguments of run.py, of one line each
    answer: Callable[..., str] | None = None  # Regard's line for these arguments; None: the graphs alone are checked
    tolerance: float = 1e-3  # of the numbers in these lines
    note: str = ""  # what the script does not do, for README.md
