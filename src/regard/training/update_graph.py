"""A whole update captured as a CUDA graph and replayed: one launch instead of hundreds or thousands.

    batch shape seen for the first times   the update runs as usual: kernels are compiled, chosen and loaded
    then                                   captured once: loss, gradient, clipping, optimizer, moving average, sums
    from then on                           batch and numbers are copied into the graph's inputs, the graph is replayed

A graph repeats the same kernels on the same memory. What differs between updates enters through tensors on the device:
the batches, the weight of each batch, the learning rate, the update number, the decay of the moving average, and the
states of the random generators. Batches of other shapes get graphs of their own, which share one memory pool; a shape
that never repeats runs without one.

Capturing runs the Python code of an update once and keeps only its kernels. An update that waits for the device cannot
be captured; one that draws random numbers or counts on the host would repeat them for ever. Both are detected, and the
run goes on without graphs.
"""

from __future__ import annotations

import gc
import random
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard
from regard.core.errors import is_out_of_memory
from regard.core.shapes import Float, Tensor

WARMUP_UPDATES = 2  # of a shape, before it is captured
MAX_GRAPHS = 64  # shapes


@dataclass(frozen=True)
class UpdateNumbers:
    """The numbers of one update: plain ones, or tensors on the device."""

    step: Any  # updates done before this one
    learning_rate: Any
    ema_decay: Any
    weights: Sequence[Any]  # factor of the summed loss of each batch

    def to_host(self) -> Float[Tensor, " numbers"]:
        """Return all numbers in page-locked memory."""
        values = [self.step, self.learning_rate, self.ema_decay, *self.weights]
        return torch.tensor(values, dtype=torch.float64, pin_memory=True)

    @staticmethod
    def from_device(values: Float[Tensor, " numbers"]) -> UpdateNumbers:
        """Return the numbers as tensors on the device, from a copy of `to_host`."""
        step, *others = values.unbind()
        learning_rate, ema_decay, *weights = (x.float() for x in others)
        return UpdateNumbers(step, learning_rate, ema_decay, weights)


Compute = Callable[[Sequence[Any], UpdateNumbers], None]


@dataclass(frozen=True, eq=False)
class _CapturedUpdate:
    graph: torch.cuda.CUDAGraph
    batches: list[Any]
    numbers: Float[Tensor, " numbers"]


class UpdateGraphs:
    """Runs updates, and captures those whose batch shapes repeat.

    `compute(batches, numbers)` is one update, which moves the batches to the device; `generators` are those it draws
    from besides torch's default one; `say` prints a line; `host_state` returns the plain values that a task keeps
    between updates. With `enabled=False`, nothing is captured.
    """

    def __init__(
        self,
        compute: Compute,
        device: torch.device,
        generators: Sequence[torch.Generator],
        say: Callable[[str], None],
        enabled: bool = True,
        host_state: Callable[[], Any] = dict,
    ) -> None:
        self.compute, self.device, self.generators, self.say = compute, device, generators, say
        self.enabled, self.host_state = enabled, host_state
        self.seen: Counter[Hashable] = Counter()
        self.graphs: dict[Hashable, _CapturedUpdate] = {}
        self.pool: Any = None
        self.replays = 0

    def run(self, batches: Sequence[Any], numbers: UpdateNumbers) -> None:
        """Run one update on batches in page-locked memory."""
        key = tuple((type(b), *(_key(x) for x in b)) for b in batches)
        captured = self.graphs.get(key)
        if captured is None and self._should_capture(key):
            captured = self._try_capture(key, batches, numbers)
        if captured is None:
            self.seen[key] += 1
            values = numbers.to_host().to(self.device, non_blocking=True)
            self.compute(batches, UpdateNumbers.from_device(values))
            return
        for static, batch in zip(captured.batches, batches, strict=True):
            for x, value in zip(static, batch, strict=True):
                if isinstance(x, Tensor):
                    x.copy_(value, non_blocking=True)
        captured.numbers.copy_(numbers.to_host(), non_blocking=True)
        captured.graph.replay()
        self.replays += 1

    def clear(self) -> None:
        """Free all graphs; shapes are captured anew."""
        self.graphs.clear()
        self.seen.clear()

    def _should_capture(self, key: Hashable) -> bool:
        return self.enabled and self.seen[key] >= WARMUP_UPDATES and len(self.graphs) < MAX_GRAPHS

    def _try_capture(self, key: Hashable, batches: Sequence[Any], numbers: UpdateNumbers) -> _CapturedUpdate | None:
        """Capture an update; where that fails, say why and capture none from now on."""
        generators = [torch.cuda.default_generators[self.device.index or 0], *self.generators]
        states = [generator.get_state() for generator in generators]
        try:
            self.graphs[key] = self._capture(batches, numbers)
        except Exception as error:
            self.enabled = False
            reason = "out of GPU memory" if is_out_of_memory(error) else _describe(error)
            self.clear()
            torch.cuda.empty_cache()
            for generator, state in zip(generators, states, strict=True):  # a failed capture leaves them capturing
                fresh = torch.Generator(self.device)
                fresh.set_state(state)
                generator.graphsafe_set_state(fresh.graphsafe_get_state())
            self.say(f"updates are not captured as CUDA graphs: {reason}")
            return None
        return self.graphs[key]

    def _capture(self, batches: Sequence[Any], numbers: UpdateNumbers) -> _CapturedUpdate:
        static = [type(b)(*(x.to(self.device) if isinstance(x, Tensor) else x for x in b)) for b in batches]
        values = numbers.to_host().to(self.device)
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        drawn, kept = _host_random_state(), self.host_state()
        torch.cuda.synchronize(self.device)
        with _no_garbage_collection():
            # thread_local: another thread pins memory meanwhile
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                self.compute(static, UpdateNumbers.from_device(values))
            except BaseException:
                with suppress(RuntimeError):  # it says only that the capture failed
                    graph.capture_end()
                raise
            graph.capture_end()
        if drawn != _host_random_state():
            raise RuntimeError("random numbers are drawn on the host")
        if kept != self.host_state():
            raise RuntimeError("the task counts on the host")
        return _CapturedUpdate(graph, static, values)


@contextmanager
def training_stream(device: torch.device) -> Iterator[None]:
    """Use a stream of its own inside the block: the default stream cannot be captured."""
    if device.type != "cuda":
        yield
        return
    default, own = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    own.wait_stream(default)
    with torch.cuda.stream(own):
        yield
    default.wait_stream(own)


def _key(x: Any) -> Hashable:
    """Return what a graph fixes about a field of a batch: of a tensor its shape, of anything else which it is."""
    return (x.shape, x.dtype) if isinstance(x, Tensor) else id(x)


def _describe(error: Exception) -> str:
    """Return the first line of an error, and the line of Regard's own code that raised it, if any did."""
    package = Path(regard.__file__).parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if package in Path(frame.filename).parents]
    own = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    place = f" ({Path(own[-1].filename).relative_to(package)}:{own[-1].lineno})" if own else ""
    return (str(error).strip().split("\n")[0] or type(error).__name__) + place


def _host_random_state() -> tuple[bytes, int]:
    return torch.get_rng_state().numpy().tobytes(), hash(random.getstate())


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect garbage before the block, not inside: freeing memory of another stream would end the capture."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
