"""Build a model that is too large for one process: record how its weights are initialised, compute them one at a time.

    model, init = build_deferred(lambda: GPT(config))     larger tensors are on the meta device and take no memory
    apply_fsdp([model], world, precision)                 tensors are split over the processes, still without memory
    init.materialize(model, device)                       one tensor after the other is computed, its part is kept

The values are those of the ordinary initialisation, to the bit: each recorded draw remembers the state of the random
generator, which moves on as if the numbers had been drawn for good (they are drawn once and dropped). A tensor that is
initialised twice, by its layer and then by its model, is computed once. Where Python asks for a value (torch draws
truncated normals again until none is out of bounds), the operations that lead to it are run there and then.

Every process draws every tensor, embedding and head included, and keeps its part: the peak is the process's share of
the model and a few times its largest tensor. Time does not shrink with the number of processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.training.parallel.sharded_tensor import copy_values

MIN_DEFERRED = 2**16  # smaller tensors are made at once: tables, norms, biases
OVERWRITING = frozenset({"zero_", "fill_", "normal_", "uniform_", "copy_"})  # what was there before does not matter


@dataclass(frozen=True, eq=False)
class Operation:
    """One recorded operation that wrote to deferred tensors."""

    index: int
    call: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[FakeTensor, ...]  # new tensors
    reads: frozenset[int]  # storages
    overwrites: bool
    random_state: Tensor | None


class DeferredInit:
    """How to compute the deferred tensors of a model."""

    def __init__(self, recorder: _Recorder, origins: dict[str, FakeTensor]) -> None:
        self._recorder, self._origins = recorder, origins

    @torch.no_grad()
    def materialize(self, model: nn.Module, device: torch.device) -> None:
        """Give every tensor of the model its memory on the device and its initial values; sharded ones their part."""
        moved: dict[int, Tensor] = {}
        for table, name, x in _tensors(model):  # not Module.to_empty, which unties tied tensors
            if id(x) not in moved:
                there = torch.empty_like(x, device=device) if x.is_meta else x.to(device)
                is_parameter = isinstance(x, nn.Parameter)
                moved[id(x)] = nn.Parameter(there, x.requires_grad) if is_parameter else there
            table[name] = moved[id(x)]
        model._apply(lambda x: x)  # FSDP notices the new tensors
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        for name, origin in self._origins.items():
            copy_values(tensors[name], self._recorder.value(origin))
        self._recorder.operations.clear()


def build_deferred(build: Callable[[], nn.Module]) -> tuple[nn.Module, DeferredInit]:
    """Build a model whose larger tensors are on the meta device until they are materialised."""
    recorder = _Recorder(MIN_DEFERRED)
    with recorder:
        model = build()
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    origins = {name: x for name, x in tensors.items() if isinstance(x, FakeTensor)}
    replaced: dict[int, Tensor] = {}  # tied tensors stay tied
    for table, name, x in _tensors(model):
        if isinstance(x, FakeTensor):
            if id(x) not in replaced:
                empty = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
                replaced[id(x)] = nn.Parameter(empty, x.requires_grad) if isinstance(x, nn.Parameter) else empty
            table[name] = replaced[id(x)]
    for module in model.modules():
        if stray := [name for name, x in vars(module).items() if isinstance(x, FakeTensor)]:
            raise Unsupported(f"{type(module).__name__} keeps the tensor {stray[0]} outside its parameters and buffers")
    return model, DeferredInit(recorder, origins)


def _tensors(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Yield every parameter and buffer, with the table that holds it and its name there."""
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, x in table.items():
                if x is not None:
                    yield table, name, x


class _Recorder(TorchDispatchMode):
    """Runs what concerns large new tensors on fake ones and records it; runs everything else."""

    def __init__(self, smallest: int) -> None:
        super().__init__()
        self.smallest, self.fake = smallest, FakeTensorMode(allow_non_fake_inputs=True)
        self.operations: list[Operation] = []
        self.writers: defaultdict[int, list[Operation]] = defaultdict(list)  # by storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        deferred = [x for x in inputs if isinstance(x, FakeTensor)]
        if inputs and not deferred:
            return func(*args, **kwargs)
        try:
            with self.fake:
                out = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            real_args, real_kwargs = self._real((args, kwargs))
            found = func(*real_args, **real_kwargs)
            if isinstance(found, Tensor):
                raise Unsupported(f"{func} makes a tensor whose size depends on weights") from None
            return found
        outputs = [x for x in tree_leaves(out) if isinstance(x, FakeTensor)]
        if not inputs and sum(x.numel() for x in outputs) < self.smallest:
            return func(*args, **kwargs)
        self._record(func, args, kwargs, deferred, outputs)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, inputs: list[FakeTensor], outputs: list[FakeTensor]) -> None:
        known = {_storage(x) for x in inputs}
        new = tuple(x for x in outputs if _storage(x) not in known)
        written = [
            x
            for value, argument in zip((*args, *kwargs.values()), _arguments(func, args, kwargs), strict=True)
            if argument.alias_info is not None and argument.alias_info.is_write
            for x in tree_leaves(value)
            if isinstance(x, Tensor)
        ]
        if any(not isinstance(x, FakeTensor) for x in written):
            raise Unsupported(f"{func} writes what was deferred into a small tensor")
        if not new and not written:
            return  # a view
        generator = kwargs.get("generator") or torch.default_generator
        state = None
        if torch.Tag.nondeterministic_seeded in func.tags:
            state = generator.get_state()
            scratch = tree_map(lambda x: torch.zeros(x.shape, dtype=x.dtype) if isinstance(x, FakeTensor) else x, args)
            func(*scratch, **kwargs)  # moves the generator on
        own_args, own_kwargs = tree_map(  # copies of small tensors, which may change later
            lambda x: x.clone() if isinstance(x, Tensor) and not isinstance(x, FakeTensor) else x, (args, kwargs)
        )
        name = func._schema.name.removeprefix("aten::")
        targets = {_storage(x) for x in written}
        is_read_too = sum(_storage(x) in targets for x in inputs) > len(written)  # copied onto itself
        overwrites = bool(new) or (name in OVERWRITING and all(_is_whole(x) for x in written) and not is_read_too)
        reads = known - (targets if overwrites and not new else set())
        number = len(self.operations)
        operation = Operation(number, func, own_args, own_kwargs, new, frozenset(reads), overwrites, state)
        self.operations.append(operation)
        for storage in {*targets, *(_storage(x) for x in new)}:
            self.writers[storage].append(operation)

    def value(self, x: FakeTensor) -> Tensor:
        """Compute a deferred tensor."""
        real: Tensor = self._real(x)
        return real

    def _real(self, values: Any) -> Any:
        """Return values with the deferred tensors among them computed."""
        wanted = {_storage(x) for x in tree_leaves(values) if isinstance(x, FakeTensor)}
        needed: dict[int, Operation] = {}
        for storage in wanted:
            self._collect(storage, len(self.operations), needed)
        memory: dict[int, Tensor] = {}  # by storage: any tensor that has it

        def real(x: Any) -> Any:
            if not isinstance(x, FakeTensor):
                return x
            storage = _storage(x)
            if storage not in memory:  # it is overwritten as a whole
                memory[storage] = torch.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype)
            return memory[storage].as_strided(x.size(), x.stride(), x.storage_offset())

        for index in sorted(needed):
            operation = needed[index]
            kwargs = tree_map(real, operation.kwargs)
            with _random_state(operation.random_state, kwargs):
                out = operation.call(*tree_map(real, operation.args), **kwargs)
            made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            for fake, x in zip(operation.outputs, made, strict=False):
                if x.stride() != fake.stride():
                    raise Unsupported(f"{operation.call} lays its result out in another way than foretold")
                memory[_storage(fake)] = x
        return tree_map(real, values)

    def _collect(self, storage: int, before: int, needed: dict[int, Operation]) -> None:
        """Add the operations that determine a storage's content before operation `before`."""
        for operation in reversed(self.writers[storage]):
            if operation.index >= before:
                continue
            if operation.index not in needed:
                needed[operation.index] = operation
                for other in operation.reads:
                    self._collect(other, operation.index, needed)
            if operation.overwrites:
                return


class _random_state:
    """Draw from a stored state of the generator inside the block; the caller's generator does not move."""

    def __init__(self, state: Tensor | None, kwargs: dict[str, Any]) -> None:
        self.state = state
        if state is not None and kwargs.get("generator") is not None:
            kwargs["generator"] = torch.Generator().set_state(state)
            self.state = None

    def __enter__(self) -> None:
        if self.state is not None:
            self.before = torch.default_generator.get_state()
            torch.default_generator.set_state(self.state)

    def __exit__(self, *_: object) -> None:
        if self.state is not None:
            torch.default_generator.set_state(self.before)


def _arguments(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the schema's argument for every positional and named value."""
    by_name = {argument.name: argument for argument in func._schema.arguments}
    yield from func._schema.arguments[: len(args)]
    for name in kwargs:
        yield by_name[name]


def _storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _is_whole(x: Tensor) -> bool:
    """Return whether a tensor covers its storage."""
    return x.is_contiguous() and x.numel() * x.element_size() == x.untyped_storage().nbytes()
