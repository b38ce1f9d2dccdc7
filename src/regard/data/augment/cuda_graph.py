"""What is done to a batch on a GPU, recorded once and played for every batch of that shape.

    launched    RandAugment behind a crop and a flip: some 500 small kernels, each asked for by the host
    recorded    one CUDA graph: the host asks once

A graph repeats the same kernels on the same memory, so batches are copied in and results copied out. Its random numbers
come from a generator of its own that is seeded before it is played: the same seed gives the same numbers as without the
graph, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.core.shapes import Tensor

Prepare = Callable[[tuple[Tensor, ...], torch.Generator], tuple[Tensor, ...]]


class GraphedAugmentation:
    """A function of tensors and a generator that neither waits for the device nor changes shapes by what is drawn."""

    def __init__(self, function: Prepare, given: tuple[Tensor, ...]) -> None:
        device = given[0].device
        self.given = tuple(x.clone() for x in given)
        self.generator = torch.Generator(device)
        now, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        aside.wait_stream(now)
        with torch.cuda.stream(aside):  # once for nothing: kernels are loaded, constants copied
            function(self.given, self.generator)
        now.wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        # thread_local: another thread may be pinning the next batch's memory meanwhile
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.found = function(self.given, self.generator)

    def __call__(self, given: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
        """What the function gives for these tensors and a generator of this seed."""
        for mine, each in zip(self.given, given, strict=True):
            mine.copy_(each, non_blocking=True)
        self.generator.manual_seed(seed)
        self.graph.replay()
        return tuple(x.clone() for x in self.found)
