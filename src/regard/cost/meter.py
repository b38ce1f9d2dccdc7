"""A meter on every operation: its multiply-adds, the bytes it moves, and which tensors are alive when.

    work       products, convolutions, attention: torch's own formulas (torch.utils.flop_counter), 2 operations each
    traffic    what an operation reads and writes; views move nothing
    memory     a tensor counts from the operation that makes it until its last holder lets go of it

The same meter runs over real tensors and over fake ones, which have a shape and no numbers (FakeTensorMode). Autograd
keeps and frees the same tensors in both, so what a training step would hold at its peak is found without the memory for
it, exactly but for what kernels allocate inside.
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
PICKED = {aten.embedding, aten.index_select, aten.gather, aten.index}  # read only what they give
WRITTEN = {aten.index_copy_, aten.index_put_, aten.scatter_, aten.index_copy, aten.index_put}  # write what they get
COPIES = {aten._to_copy, aten.clone, aten.copy_, aten.native_dropout, aten.native_dropout_backward}
COPY = "copies of weights"


class Meter(TorchDispatchMode):
    """Writes what happens inside its block on a tape."""

    def __init__(self) -> None:
        super().__init__()
        self.op_log = OpLog()
        self.phase, self.part = "", ""
        self._numbers: dict[int, int] = {}  # address of a storage that is alive -> its number
        self._sizes: list[int] = []
        self._still: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # a question, not an operation
            return func(*args, **kwargs)
        if func.overloadpacket is aten._local_scalar_dense and isinstance(args[0], FakeTensor):
            return {torch.bool: False}.get(args[0].dtype, 1)  # a model asks for a number that is not there
        if self.phase == "backward" and func is aten.add.Tensor and _summed_by_autograd(args):
            func = aten.add_.Tensor
        out = func(*args, **kwargs)
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        self._count(func, given, made, args, kwargs, out)
        for x in made:
            self._see(x)
        if func.overloadpacket is aten._to_copy and given[0].untyped_storage()._cdata in self._still:
            self.label(made[0], COPY)
        return out

    # -- work and traffic ----------------------------------------------------------------------------------------------

    def _count(self, func: Any, given: list[Tensor], made: list[Tensor], args: Any, kwargs: Any, out: Any) -> None:
        packet = func.overloadpacket
        if packet is aten.convolution_backward and args[9] > 1 and not args[7]:
            self.add("product", _grouped_backward(*args), given, made)
        elif packet in flop_registry:
            self.add("product", int(flop_registry[packet](*args, **kwargs, out_val=out)), given, made)
        elif packet in PICKED:
            self.add("other", 0, made, made)
        elif packet in WRITTEN:
            self.add("other", 0, given[1:], given[1:])
        elif packet not in ALLOCATIONS and not _is_view(func, given, made):
            kind = "pointwise" if packet in COPIES or torch.Tag.pointwise in func.tags else "other"
            self.add(kind, 0, given, made)

    def add(self, kind: str, operations: int, given: Iterable[Tensor], made: Iterable[Tensor]) -> None:
        """Count one kernel."""
        moved = sum(x.numel() * x.element_size() for x in (*given, *made))
        self.op_log.entries.append(KernelRun(self.phase, self.part, Kernel(kind, operations, moved)))

    def note(self, what: str, amount: int) -> None:
        """Count something else."""
        self.op_log.entries.append(Note(self.phase, what, amount))

    def mark(self, what: str, stack: str = "", block: int = 0) -> None:
        """Mark this moment."""
        self.op_log.entries.append(Marker(what, stack, block))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Inside, everything is counted under this name."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def by_part(self, parts: dict[str, list[torch.nn.Module]]) -> Iterator[None]:
        """Inside, work is counted by the part of the model that does it."""
        above: list[str] = []
        handles = []

        def enter(name: str) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                above.append(self.part)
                self.part = name

            return hook

        def leave(*_: Any) -> None:
            self.part = above.pop()

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
        """Tensors that are there all along, weights and moments, and are not counted."""
        self._still |= {x.untyped_storage()._cdata for x in tensors}

    def _see(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        address = storage._cdata
        if address in self._numbers or address in self._still:
            return
        number, size = len(self._sizes), storage.nbytes()
        self._numbers[address] = number
        self._sizes.append(size)
        self.op_log.entries.append(Allocation(number, size))
        weakref.finalize(storage, self._gone, address, number).atexit = False

    def _gone(self, address: int, number: int) -> None:
        self._numbers.pop(address, None)
        self.op_log.entries.append(Allocation(number, -self._sizes[number]))

    def label(self, x: Tensor, what: str) -> None:
        """Say what a tensor is; what it was before this counts too."""
        number = self._numbers.get(x.untyped_storage()._cdata)
        if number is not None:
            self.op_log.labels[number] = what


def _summed_by_autograd(args: Any) -> bool:
    """Whether these are two gradients of one tensor, which autograd adds in place where nobody else holds the first
    one or its memory; but not while a mode such as this looks on. Some holders are its own, and this call's."""
    a, b = args[0], args[1]
    alike = isinstance(a, FakeTensor) and isinstance(b, FakeTensor) and a.shape == b.shape and a.dtype == b.dtype
    if not alike or torch.is_grad_enabled() or a._use_count() > 5:
        return False
    storage = a.untyped_storage()
    spread = storage.nbytes() != a.numel() * a.element_size()  # one number in many places
    return not spread and torch._C._storage_Use_Count(storage._cdata) <= 2


def _grouped_backward(out: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    """The gradients of a convolution in groups of channels, each as much work as the convolution.

    torch's own formula takes the gradient of the weights as if all channels met.
    """
    wanted = sum(map(bool, rest[-1][:2]))
    return wanted * 2 * out.numel() * weight[0].numel()


def _is_view(func: Any, given: list[Tensor], made: list[Tensor]) -> bool:
    if func._schema.is_mutable:
        return False
    held = {x.untyped_storage()._cdata for x in given}
    return bool(made) and all(x.untyped_storage()._cdata in held for x in made)
