"""Measure one training update, forward pass or decoding step of one device on fake tensors.

    training_step    forward, backward, update: operations and traffic of each, saved activations, peak memory
    forward_pass     a whole input at once
    decoding_step    one more token of every output, with a full cache

All numbers are of *one* device, with its rows of the batch and its slices of the matrices. Communication and time are
in estimate.py.
"""

from __future__ import annotations

import gc
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.protocol import Mechanism
from regard.attention.window_attention import WindowAttention, padded_size
from regard.blocks.mixture_of_experts import moe_layers
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.core.shapes import Tensor
from regard.cost import extrapolate, meta_model, tensor_parallel
from regard.cost.kernels import GPUKernelMode
from regard.cost.meta_model import InputShape, fake_tensors
from regard.cost.meter import Meter
from regard.cost.op_log import Kernel, OpLog
from regard.positions.added.learned import LearnedPositions

FLOAT = 4  # bytes: weights, gradients and moments are float32 in every precision
GRADIENT = "gradients"


@dataclass(frozen=True)
class ExecutionPlan:
    """How one device runs a pass."""

    precision: str = "bfloat16"  # dtype of matrix products: float32 or bfloat16
    recompute: bool = False
    tensor_parallel: int = 1  # devices that share every matrix
    sharded: bool = False  # FSDP: weights are gathered when needed, in the dtype of the products
    optimizer: str = "adamw"
    accumulate: int = 1
    is_cpu: bool = False  # count the CPU's own kernels


@dataclass
class PassCosts:
    """Measured costs. Sizes are in bytes, work in operations (two per multiply-add)."""

    parameters: dict[str, int] = field(default_factory=dict)  # of this device, by part; tied ones count once
    tied: frozenset[str] = frozenset()  # parts whose parameters another part owns
    unsliced_parameters: int = 0
    inactive: int = 0  # parameters of experts that a token is not routed to
    blocks: list[int] = field(default_factory=list)  # parameters of each repeated block
    buffers: int = 0
    state: int = 0  # of the optimizer
    kernels: dict[str, Counter[Kernel]] = field(default_factory=dict)  # of one pass, and of one update
    work: dict[str, int] = field(default_factory=dict)  # of the forward pass, by part
    saved_for_backward: int = 0  # alive between forward and backward, without weights and their copies
    peak: dict[str, int] = field(default_factory=dict)  # without weights and optimizer state, by kind
    notes: Counter[str] = field(default_factory=Counter)  # forward: entries of attention maps, bytes of all-reduces
    update_bytes: int = 0  # temporary tensors of the update
    cache: int = 0  # decoding state
    items: int = 0
    unit: str = "tokens"
    stride: tuple[int, int] | None = None  # pixels per token, for models with a stem

    @property
    def total(self) -> int:
        """All parameters of this device."""
        return sum(self.parameters.values())

    @property
    def maps(self) -> dict[str, int]:
        """Entries of all attention maps, by module."""
        return {what.removeprefix("map "): n for what, n in self.notes.items() if what.startswith("map ")}

    def operations(self, *phases: str) -> int:
        """Return the operations of these phases."""
        return sum(k.operations * n for p in phases for k, n in self.kernels.get(p, Counter()).items())

    def moved(self, *phases: str, fused: bool = True) -> int:
        """Return the bytes that kernels read and write; `fused` leaves out pointwise ones, which a compiler fuses."""
        counted = ((k, n) for p in phases for k, n in self.kernels.get(p, Counter()).items())
        return sum(k.moved * n for k, n in counted if not (fused and k.kind == "pointwise"))


# -- training ----------------------------------------------------------------------------------------------------------


def training_step(config: Any, shape: InputShape, plan: ExecutionPlan) -> PassCosts:
    """Measure one update of one device."""
    model, sizes, update = _batch_independent(config, plan)
    found = replace(sizes, kernels={})
    op_log = _training_log(config, shape, plan)
    passes = min(plan.accumulate, 2)
    for phase, kernels in op_log.kernels().items():
        found.kernels[phase] = Counter({kernel: n // passes for kernel, n in kernels.items()})
    found.kernels |= update.kernels()
    found.work = {part: n // passes for part, n in op_log.work("forward").items()}
    if "head" in found.parameters and "loss" in found.kernels:  # one of its three products is the forward one
        found.work["head"] = found.operations("loss") // 3
    found.notes = Counter({what: n // passes for what, n in op_log.noted("forward").items()})
    found.saved_for_backward = op_log.alive("loss").get("", 0)
    found.peak = op_log.peak(leave_out=(GRADIENT,) if plan.sharded else ())
    if not plan.sharded:  # for sharded updates see estimate._training_memory
        found.peak = max(found.peak, update.peak(), key=lambda peak: sum(peak.values()))
    found.items, found.unit = meta_model.count_items(model, shape)
    return found


_CACHE: dict[tuple[str, int, str], tuple[nn.Module, PassCosts, OpLog]] = {}


def _batch_independent(config: Any, plan: ExecutionPlan) -> tuple[nn.Module, PassCosts, OpLog]:
    """Return what does not depend on the batch: model, sizes and update. Recent results are cached."""
    key = repr(config), plan.tensor_parallel, plan.optimizer
    if key not in _CACHE:
        with _fake_model_errors():
            model = meta_model.build(config).train()
            found, _ = _model_sizes(model, plan)
            optimizer = build_optimizer(model, plan.optimizer)
            found.state = sum(x.numel() * x.element_size() for x in optimizer.tensors().values())
            update = _update(model, optimizer)
            found.update_bytes = update.peak().get("", 0)
        if len(_CACHE) > 8:
            _CACHE.clear()
        _CACHE[key] = model, found, update
    return _CACHE[key]


def saved_activation_bytes(config: Any, shape: InputShape, plan: ExecutionPlan) -> int:
    """Return the bytes that one device keeps between forward and backward."""
    return _training_log(config, shape, plan, backward=False).alive("loss").get("", 0)


def _training_log(
    config: Any, shape: InputShape, plan: ExecutionPlan, backward: bool = True, short: bool = True
) -> OpLog:
    """Return the log of the passes of an update; stacks of equal blocks are shortened and extrapolated."""
    with _fake_model_errors():
        model, meter = meta_model.build(config).train(), Meter()
        cuts = _slice(model, plan)
        missing = extrapolate.drop_repeated_blocks(model) if short else {}
        if plan.sharded and plan.precision == "bfloat16":
            _to_bfloat16(model)
        if plan.recompute:
            _recompute(model, plan, meter)
        meter.leave_out([*model.parameters(), *model.buffers()])
        with (
            meter,
            _kernels_of(plan, meter),
            _count_maps(model, cuts, meter),
            extrapolate.mark_blocks(model, meter, missing),
        ):
            for _ in range(min(plan.accumulate, 2) if backward else 1):  # the second pass adds to existing gradients
                batch = meta_model.make_batch(model, shape)
                with meter.during("forward"), _autocast(plan.precision), meter.by_part(modules_by_part(model)):
                    total = meta_model.training_loss(model, batch, meter.during, plan.is_cpu)
                meter.mark("loss")
                if backward:
                    with meter.during("backward"):
                        (total / 2).backward()  # the training loop divides by the number of tokens
                    for p in model.parameters():
                        if p.grad is not None:
                            meter.label(p.grad, GRADIENT)
        try:
            return extrapolate.restore_blocks(meter.op_log, missing)
        except extrapolate.IrregularStack:
            pass
    return _training_log(config, shape, plan, backward, short=False)


def _update(model: nn.Module, optimizer: Any) -> OpLog:
    """Return the log of an optimizer update."""
    meter = Meter()
    meter.leave_out([*model.parameters(), *optimizer.tensors().values()])
    with meter, meter.during("update"):
        for p in model.parameters():
            p.grad = torch.empty_like(p)
            meter.label(p.grad, GRADIENT)
        optimizer.step(1e-3)
    return meter.op_log


def build_optimizer(model: nn.Module, spec: str) -> Any:
    """Return the optimizer that training would build."""
    from regard.training.optimizers.muon import fused_projections
    from regard.training.optimizers.optimizer import Optimizer, parameters_without_decay

    return Optimizer(
        dict(model.named_parameters()), spec, rows=fused_projections(model), no_decay=parameters_without_decay(model)
    )


def _recompute(model: nn.Module, plan: ExecutionPlan, meter: Meter) -> None:
    from regard.training.parallel.parallelize import enable_gradient_checkpointing, transformer_blocks

    if not transformer_blocks(model):
        raise Unsupported(f"{type(model).__name__} has no repeated blocks to recompute; omit --recompute")
    for block in transformer_blocks(model) if not plan.is_cpu else []:
        GPUKernelMode(meter).wrap(block)
    enable_gradient_checkpointing(model)


# -- inference ---------------------------------------------------------------------------------------------------------


def forward_pass(config: Any, shape: InputShape, plan: ExecutionPlan) -> PassCosts:
    """Measure one forward pass, with weights in the dtype of the products."""
    with _fake_model_errors(), torch.no_grad():
        model, found, cuts, meter = _inference_model(config, plan)
        missing = extrapolate.drop_repeated_blocks(model)
        with (
            meter,
            _kernels_of(plan, meter),
            _count_maps(model, cuts, meter),
            extrapolate.mark_blocks(model, meter, missing),
        ):
            batch = {name: _input_dtype(x, plan) for name, x in meta_model.make_batch(model, shape).items()}
            with meter.during("forward"), meter.by_part(modules_by_part(model)):
                model(**batch)
        op_log = extrapolate.restore_blocks(meter.op_log, missing)
        found.kernels, found.work, found.notes = op_log.kernels(), op_log.work("forward"), op_log.noted("forward")
        found.peak = op_log.peak()
        found.items, found.unit = meta_model.count_items(model, shape)
        return found


def decoding_step(config: Any, shape: InputShape, plan: ExecutionPlan, beam_size: int = 1) -> PassCosts:
    """Measure the last of `length` decoding steps, with `beam_size` beams per row."""
    with _fake_model_errors(), torch.no_grad():
        model, found, cuts, meter = _inference_model(config, plan)
        if not callable(getattr(model, "start", None)):
            raise Unsupported(f"{type(model).__name__} is not autoregressive; omit --decode")
        decodable: Any = model
        length = meta_model.row_length(model, shape, "target" if _start_argument(model) == "source" else "tokens")
        _check_length(model, length + (shape.source or 1) - 1 if _start_argument(model) == "prompts" else length)
        with meter, _kernels_of(plan, meter), _count_maps(model, cuts, meter):
            with meter.during("forward"):
                tokens, state = decodable.start(_start_input(model, shape), capacity=1 + beam_size * length)
            tokens = tokens.expand(-1, beam_size).contiguous()
            if beam_size > 1:
                state = decodable.select(state, None, torch.zeros(shape.batch, beam_size, dtype=torch.long))
            if callable(getattr(model, "freeze", None)):
                _, state = decodable.step(tokens, state)  # some caches are allocated by the first step
                state = decodable.freeze(state)  # from here on, a step reads the whole cache
            with meter.during("step"):
                _, state = decodable.step(tokens, state)
        found.kernels, found.notes, found.peak = meter.op_log.kernels(), meter.op_log.noted("step"), meter.op_log.peak()
        found.cache = _state_bytes(state)
        found.items = shape.batch
        return found


def _check_length(model: nn.Module, needed: int) -> None:
    """Raise if decoding needs more positions than are learned."""
    for name, module in model.named_modules():
        if isinstance(module, LearnedPositions) and not name.startswith("encoder") and needed > module.length:
            raise BadInput(f"{needed} positions are needed, but {module.length} are learned: set length={needed}")


def _start_argument(model: nn.Module) -> str:
    """Return the first argument of `start`: source or prompts."""
    return next(iter(inspect.signature(model.start).parameters))  # type: ignore[arg-type]


def _start_input(model: nn.Module, shape: InputShape) -> Tensor:
    """Return a source, or a prompt (of one token by default)."""
    length = meta_model.row_length(model, shape, "source") if _start_argument(model) == "source" else shape.source or 1
    return torch.zeros(shape.batch, length, dtype=torch.long)


def _state_bytes(state: Any) -> int:
    """Return the bytes of all tensors in a nested state."""
    found: dict[int, int] = {}

    def visit(x: Any, deep: int = 0) -> None:
        if isinstance(x, Tensor):
            found[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
        elif deep < 8 and isinstance(x, (list, tuple, dict)):
            for one in x.values() if isinstance(x, dict) else x:
                visit(one, deep + 1)
        elif deep < 8 and hasattr(x, "__dict__"):
            visit(vars(x), deep + 1)

    visit(state)
    return sum(found.values())


def _inference_model(config: Any, plan: ExecutionPlan) -> tuple[nn.Module, PassCosts, dict[str, str], Meter]:
    """Return a model in eval mode with weights in the dtype of the products, its sizes, slices and a meter."""
    model, meter = meta_model.build(config).eval(), Meter()
    found, cuts = _model_sizes(model, plan)
    if plan.precision == "bfloat16":
        _to_bfloat16(model)
    meter.leave_out([*model.parameters(), *model.buffers()])
    return model, found, cuts, meter


# -- shared ------------------------------------------------------------------------------------------------------------


@contextmanager
def _fake_model_errors() -> Iterator[None]:
    """Inside the context, use fake tensors and raise errors of shapes as `BadInput`."""
    was = gc.isenabled()
    gc.disable()  # frees of cyclic garbage must not depend on earlier runs; also faster
    try:
        with fake_tensors():
            yield
    except RegardError:
        raise
    except DynamicOutputShapeException as error:
        raise Unsupported(
            f"the shapes of this model depend on values, which fake tensors do not have: {error}"
        ) from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise BadInput(f"the model does not take this input shape: {str(error).splitlines()[0][:200]}") from error
    finally:
        if was:
            gc.enable()


def _model_sizes(model: nn.Module, plan: ExecutionPlan) -> tuple[PassCosts, dict[str, str]]:
    """Return the sizes of a model and slice its matrices."""
    unsliced = by_part(model)
    tied = frozenset(part for part, n in unsliced.items() if not n)
    found = PassCosts(
        unsliced_parameters=sum(unsliced.values()),
        inactive=sum(part.unused_parameters for part in moe_layers(model)),
        tied=tied,
    )
    cuts = _slice(model, plan)
    found.parameters = by_part(model) if cuts else unsliced
    found.buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    patch = getattr(getattr(model, "config", None), "patch_size", None)
    found.stride = getattr(getattr(model, "stem", None), "stride", (patch, patch) if isinstance(patch, int) else None)
    found.blocks = [
        sum(p.numel() for p in b.parameters()) for blocks in extrapolate.block_stacks(model).values() for b in blocks
    ]
    return found, cuts


def _slice(model: nn.Module, plan: ExecutionPlan) -> dict[str, str]:
    """Slice the matrices for one device. FlexAttention is counted as SDPA, which saves the same tensors."""
    for module in model.modules():
        if isinstance(module, SoftmaxAttention) and module.backend == "flex":
            module.backend = "sdpa"
    return tensor_parallel.slice_matrices(model, plan.tensor_parallel) if plan.tensor_parallel > 1 else {}


def _to_bfloat16(model: nn.Module) -> None:
    """Cast weights to bfloat16 and keep ties (`model.to` cannot swap fake tensors)."""
    converted: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None and p.is_floating_point():
                if p not in converted:
                    converted[p] = nn.Parameter(torch.empty_like(p, dtype=torch.bfloat16), p.requires_grad)
                module._parameters[name] = converted[p]


def _input_dtype(x: Tensor, plan: ExecutionPlan) -> Tensor:
    """Cast a floating-point input to the dtype of the weights."""
    return x.to(torch.bfloat16) if plan.precision == "bfloat16" and x.is_floating_point() else x


def _kernels_of(plan: ExecutionPlan, meter: Meter) -> AbstractContextManager[Any]:
    return nullcontext() if plan.is_cpu else GPUKernelMode(meter)


def _autocast(precision: str) -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def _count_maps(model: nn.Module, cuts: dict[str, str], meter: Meter) -> Iterator[None]:
    """Inside the context, note the entries of all attention maps by module (layers together), and all-reduces."""
    handles = []

    def mechanism(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            q, k = args[0], args[1]
            meter.note(f"map {name}", q.numel() // q.shape[-1] * k.shape[-2])

        return hook

    def windows(name: str) -> Any:
        def hook(mixer: WindowAttention, args: tuple[Any, ...]) -> None:
            y, x = padded_size((args[0].shape[1], args[0].shape[2]), mixer.window)
            heads = args[0].shape[3] // mixer.project.head_dim
            meter.note(f"map {name}", args[0].shape[0] * heads * y * x * mixer.window[0] * mixer.window[1])

        return hook

    def aligner(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            meter.note(f"map {name}", out[0].numel())

        return hook

    for path, module in model.named_modules():
        name = re.sub(r"\.\d+(?=\.\D*$|$)", ".*", path).removesuffix(".attend")  # layers together, stages separate
        if isinstance(module, WindowAttention):  # on a GPU a kernel replaces its mechanism
            handles.append(module.register_forward_pre_hook(windows(name)))
        elif isinstance(module, Mechanism) and not isinstance(
            model.get_submodule(path.rpartition(".")[0]), WindowAttention
        ):
            handles.append(module.register_forward_pre_hook(mechanism(name), with_kwargs=True))
        elif callable(getattr(module, "weights", None)) and callable(getattr(module, "keys", None)):  # an Aligner
            handles.append(module.register_forward_hook(aligner(name)))
    try:
        with tensor_parallel.count_all_reduces(model, cuts, meter):
            yield
    finally:
        for handle in handles:
            handle.remove()


# -- parts -------------------------------------------------------------------------------------------------------------


def part_of(path: str) -> str:
    """Return the part that a module or parameter belongs to, layers and norms together: ``decoder.blocks.*.feed``."""
    names = path.split(".")
    numbers = [i for i, name in enumerate(names) if name.isdigit()]
    if not numbers:
        return ".".join(names[:2]) if len(names) > 2 and names[1] in ("norm", "positions") else names[0]
    at = numbers[0] + 1
    while at < len(names) and any(name.isdigit() for name in names[at : at + 2]):  # nested lists
        at += 1
    if at < len(names) - 1 or names[-1] not in ("weight", "bias"):  # else the layer is an element of the list
        at += 1
    end = min(at, len(names))
    last = names[end - 1]
    shown_names = ["*" if name.isdigit() else name for name in names[:end]]
    if last.rstrip("0123456789").endswith("norm"):
        shown_names[-1] = "norms"
    return ".".join(shown_names)


def by_part(model: nn.Module) -> dict[str, int]:
    """Return the parameters of each part in model order; tied ones count at their first occurrence."""
    found: dict[str, int] = {}
    counted: set[int] = set()
    for name, p in model.named_parameters(remove_duplicate=False):
        part = part_of(name)
        found[part] = found.get(part, 0) + (0 if id(p) in counted else p.numel())
        counted.add(id(p))
    return found


def modules_by_part(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Return the root modules of each part."""
    found: dict[str, list[nn.Module]] = {}
    names = set(by_part(model))
    for path, module in model.named_modules():
        part = part_of(path) if path else ""
        if part in names and len(path.split(".")) == len(part.split(".")):
            found.setdefault(part, []).append(module)
    return found
