"""Log every operation with its operations and bytes moved, and the lifetime of every tensor.

    work       matrix products, convolutions, attention: torch's formulas (torch.utils.flop_counter)
    traffic    bytes that an operation reads and writes; views move nothing
    memory     a storage counts from the operation that allocates it until it is freed

The meter works on real and on fake tensors (FakeTensorMode). Autograd keeps and frees the same tensors in both, so the
peak of a training step is exact, except for what kernels allocate internally.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from regard.core.shapes import Tensor
from regard.cost.op_log import Allocation, Kernel, KernelRun, Marker, Note, OpLog

aten = torch.ops.aten
ALLOCATIONS = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten.lift_fresh}
READ_OUTPUT_ONLY = {aten.embedding, aten.index_select, aten.gather, aten.index}  # read as many bytes as they return
WRITE_INPUT_ONLY = {
    aten.index_copy_,
    aten.index_put_,
    aten.scatter_,
    aten.index_copy,
    aten.index_put,
}  # write as many bytes as they are passed
COPIES = {aten._to_copy, aten.clone, aten.copy_, aten.native_dropout, aten.native_dropout_backward}
COPY = "copies of weights"


class Meter(TorchDispatchMode):
    """Log the operations inside the context in `op_log`."""

    def __init__(self) -> None:
        super().__init__()
        self.op_log = OpLog()
        self.phase, self.part = "", ""
        self._numbers: dict[int, int] = {}  # address of a live storage -> its number
        self._sizes: list[int] = []
        self._ignored: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # a query, not an operation
            return func(*args, **kwargs)
        if func.overloadpacket is aten._local_scalar_dense and isinstance(args[0], FakeTensor):
            return {torch.bool: False}.get(
                args[0].dtype, 1
            )  # the model reads a value, which a fake tensor does not have
        if self.phase == "backward" and func is aten.add.Tensor and _summed_by_autograd(args):
            func = aten.add_.Tensor
        out = func(*args, **kwargs)
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        self._count(func, inputs, outputs, args, kwargs, out)
        for x in outputs:
            self._track(x)
        if func.overloadpacket is aten._to_copy and inputs[0].untyped_storage()._cdata in self._ignored:
            self.label(outputs[0], COPY)
        return out

    # -- work and traffic ----------------------------------------------------------------------------------------------

    def _count(self, func: Any, inputs: list[Tensor], outputs: list[Tensor], args: Any, kwargs: Any, out: Any) -> None:
        packet = func.overloadpacket
        if packet is aten.convolution_backward and args[9] > 1 and not args[7]:
            self.add("product", _grouped_backward(*args), inputs, outputs)
        elif packet in flop_registry:
            self.add("product", int(flop_registry[packet](*args, **kwargs, out_val=out)), inputs, outputs)
        elif packet in READ_OUTPUT_ONLY:
            self.add("other", 0, outputs, outputs)
        elif packet in WRITE_INPUT_ONLY:
            self.add("other", 0, inputs[1:], inputs[1:])
        elif packet not in ALLOCATIONS and not _is_view(func, inputs, outputs):
            kind = "pointwise" if packet in COPIES or torch.Tag.pointwise in func.tags else "other"
            self.add(kind, 2 * outputs[0].numel() if packet is aten.addcmul_ else 0, inputs, outputs)

    def add(self, kind: str, operations: int, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> None:
        """Log one kernel."""
        moved = sum(x.numel() * x.element_size() for x in (*inputs, *outputs))
        self.op_log.entries.append(KernelRun(self.phase, self.part, Kernel(kind, operations, moved)))

    def note(self, what: str, amount: int) -> None:
        """Log an amount under a name."""
        self.op_log.entries.append(Note(self.phase, what, amount))

    def mark(self, what: str, stack: str = "", block: int = 0) -> None:
        """Log a marker."""
        self.op_log.entries.append(Marker(what, stack, block))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Inside the context, log kernels under this phase."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def by_part(self, parts: dict[str, list[torch.nn.Module]]) -> Iterator[None]:
        """Inside the context, log kernels under the part of the model that runs them."""
        enclosing: list[str] = []
        handles = []

        def enter(name: str) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                enclosing.append(self.part)
                self.part = name

            return hook

        def leave(*_: Any) -> None:
            self.part = enclosing.pop()

        for name, modules in parts.items():
            for module in modules:
                handles.append(module.register_forward_pre_hook(enter(name)))
                handles.append(module.register_forward_hook(leave, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # -- memory --------------------------------------------------------------------------------------------------------

    def leave_out(self, tensors: Iterable[Tensor]) -> None:
        """Do not count these tensors, such as weights and moments."""
        self._ignored |= {x.untyped_storage()._cdata for x in tensors}

    def _track(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        address = storage._cdata
        if address in self._numbers or address in self._ignored:
            return
        number, size = len(self._sizes), storage.nbytes()
        self._numbers[address] = number
        self._sizes.append(size)
        self.op_log.entries.append(Allocation(number, size))
        weakref.finalize(storage, self._free, address, number).atexit = False

    def _free(self, address: int, number: int) -> None:
        self._numbers.pop(address, None)
        self.op_log.entries.append(Allocation(number, -self._sizes[number]))

    def label(self, x: Tensor, what: str) -> None:
        """Label a tensor, from its allocation on."""
        number = self._numbers.get(x.untyped_storage()._cdata)
        if number is not None:
            self.op_log.labels[number] = what


def _summed_by_autograd(args: Any) -> bool:
    """Whether autograd would add these two gradients in place: nothing else references the first or its storage.

    Under a dispatch mode autograd does not do so; a few references are its own and this call's."""
    a, b = args[0], args[1]
    alike = isinstance(a, FakeTensor) and isinstance(b, FakeTensor) and a.shape == b.shape and a.dtype == b.dtype
    if not alike or torch.is_grad_enabled() or a._use_count() > 5:
        return False
    storage = a.untyped_storage()
    is_expanded = storage.nbytes() != a.numel() * a.element_size()  # expanded
    return not is_expanded and torch._C._storage_Use_Count(storage._cdata) <= 2


def _grouped_backward(out: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    """Return the operations of the backward pass of a grouped convolution.

    torch's formula counts the gradient of the weights as if there were one group.
    """
    num_gradients = sum(map(bool, rest[-1][:2]))
    return num_gradients * 2 * out.numel() * weight[0].numel()


def _is_view(func: Any, inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    if func._schema.is_mutable:
        return False
    storages = {x.untyped_storage()._cdata for x in inputs}
    return bool(outputs) and all(x.untyped_storage()._cdata in storages for x in outputs)
