"""Augmentation captured as a CUDA graph, once per batch shape.

    eager    RandAugment after a crop and a flip: some 500 small kernels, each launched by the host
    graph    one launch

A graph repeats the same kernels on the same memory, so batches are copied in and results copied out. Its random numbers
come from its own generator, seeded before each replay: the same seed gives the same numbers as without the graph, to
the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.core.shapes import Tensor

Prepare = Callable[[tuple[Tensor, ...], torch.Generator], tuple[Tensor, ...]]


class GraphedAugmentation:
    """A captured function of tensors and a generator; it must not wait for the device nor have random shapes."""

    def __init__(self, function: Prepare, inputs: tuple[Tensor, ...]) -> None:
        device = inputs[0].device
        self.inputs = tuple(x.clone() for x in inputs)
        self.generator = torch.Generator(device)
        stream, side_stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        side_stream.wait_stream(stream)
        with torch.cuda.stream(side_stream):  # warmup: kernels are loaded, constants copied
            function(self.inputs, self.generator)
        stream.wait_stream(side_stream)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        # thread_local: another thread may be pinning memory meanwhile
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.outputs = function(self.inputs, self.generator)

    def __call__(self, inputs: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
        """Return the function's result for these tensors and a generator with this seed."""
        for static_input, each in zip(self.inputs, inputs, strict=True):
            static_input.copy_(each, non_blocking=True)
        self.generator.manual_seed(seed)
        self.graph.replay()
        return tuple(x.clone() for x in self.outputs)
