"""Averages of weights: an exponential moving average during training, and the mean of the last checkpoints after it.

Both stand in for a lower learning rate at the end. The moving average is in float32 and has a warmup: at update n its
decay is at most (1 + n) / (10 + n), so that the first weights are soon forgotten. Sharded weights are averaged shard by
shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.training.parallel.sharded_tensor import copy_values, to_local


class ExponentialMovingAverage:
    """Exponential moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = {name: x for name, x in named_tensors(model).items() if x.is_floating_point()}
        self.averages = {name: x.detach().float().clone() for name, x in self.parameters.items()}

    def decay_at(self, step: int) -> float:
        """Return the decay of update `step`, counted from 1."""
        return min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, decay: float | Tensor) -> None:
        """Move towards the weights; a decay on the device is not read by the host."""
        pairs = [(to_local(self.averages[name]), to_local(x).float()) for name, x in self.parameters.items()]
        pairs = [pair for pair in pairs if pair[0].numel()]  # a process may have no part of a short tensor
        if pairs:
            averages = [average for average, _ in pairs]
            change = torch._foreach_sub([x for _, x in pairs], averages)
            torch._foreach_mul_(change, 1 - decay)
            torch._foreach_add_(averages, change)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; tied ones under their first name only."""
    stored = model.state_dict(keep_vars=True)
    buffers = {name: x for name, x in model.named_buffers() if name in stored}
    return dict(model.named_parameters()) | buffers


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], where: object = "weights") -> None:
    """Copy weights into a model; names that are missing on either side raise an error that lists both."""
    own = named_tensors(model)
    missing, unknown = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or unknown:
        raise BadInput(f"{where} does not fit the model: missing {missing or 'none'}, unknown {unknown or 'none'}")
    for name, x in own.items():
        if x.shape != weights[name].shape:
            raise BadInput(f"{where}: {name} is {tuple(weights[name].shape)}, the model's is {tuple(x.shape)}")
        copy_values(x, weights[name])


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights in several files or checkpoints; non-float tensors come from the last."""
    from regard.training.checkpoint.checkpoints import read_weights

    total: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for file in files:
        last = read_weights(file)
        for name, x in last.items():
            if x.is_floating_point():
                total[name] = total[name] + x.double() if name in total else x.double()
    return {name: (total[name] / len(files)).to(x.dtype) if name in total else x for name, x in last.items()}
