"""Results made from a tensor, kept while the tensor lives unchanged: what every step of training would make again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from regard.core.shapes import Tensor

T = TypeVar("T")


class TensorMemo(Generic[T]):
    """`make(tensor)`, called again only for another tensor, or after this one was changed in place.

    It remembers large tensors of a CPU alone, outside of compiled code. The result must not hold the tensor itself,
    which would then live for ever.
    """

    LARGE = 2**20

    def __init__(self, make: Callable[[Tensor], T]) -> None:
        self.make, self.known = make, WeakTensorKeyDictionary()

    def __call__(self, tensor: Tensor) -> T:
        if not self.takes(tensor):
            return self.make(tensor)
        version, found = self.known.get(tensor, (-1, None))
        if version != tensor._version:
            found = self.make(tensor)
            self.known[tensor] = tensor._version, found
        return found

    def takes(self, tensor: Tensor) -> bool:
        """Return whether the result of this tensor would be kept."""
        if tensor.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        return tensor.numel() >= self.LARGE and not tensor.is_inference()  # whose changes are not counted
