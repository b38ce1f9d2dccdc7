"""Gradient reach: how much an output depends on inputs far before it, and can learn from them.

    reach(read, 100, 32)[d]   =   mean over drawn inputs of  ‖∂ y_N / ∂ x_(N-d)‖        Frobenius, d = 0 ... N - 1

In a recurrent network this is a product of d Jacobian matrices: it fades or explodes with the distance, unless gates
keep it. In attention every position is one step away.

Bengio, Simard, Frasconi: Learning Long-Term Dependencies with Gradient Descent is Difficult. 1994. Pascanu, Mikolov,
Bengio: On the Difficulty of Training Recurrent Neural Networks. ICML 2013. arXiv:1211.5063
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

Read = Callable[[Float[Tensor, "B N C"]], Float[Tensor, "B N E"]]


def gradient_by_distance(read: Read, length: int, width: int, inputs: int = 4, seed: int = 0) -> Float[Tensor, " N"]:
    """The size of the gradient of the last output by the distance of an input: [0] is the last itself.

    `read` takes vectors B N C, drawn here from a normal distribution, to vectors B N E: a layer, a stack, a reader.
    """
    if length < 1 or width < 1 or inputs < 1:
        raise BadInput(f"a reach needs length, width and inputs of at least 1, not {length}, {width} and {inputs}")
    drawn = torch.randn(inputs, length, width, generator=torch.Generator().manual_seed(seed))
    drawn.requires_grad_()
    with torch.enable_grad():
        last = read(drawn)[:, -1]
        squares = torch.zeros(inputs, length)
        for output in last.unbind(-1):  # a row of the Jacobian of every input at once: they do not meet
            (slope,) = torch.autograd.grad(output.sum(), drawn, retain_graph=True)
            squares += slope.square().sum(-1)
    return squares.sqrt().mean(0).flip(0)
