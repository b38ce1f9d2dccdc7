"""Ready to serve: the same model, its weight matrices kept in the form that the processor reads fastest.

    prepare     float32 as before, each matrix packed in blocks by oneDNN; outputs equal up to rounding
    quantize_int8    int8: a quarter of the memory to read at every step, and four products in the time of one
    compiled    for a GPU: what lies between the products of a decoding step becomes a few kernels (runtime.cuda_graph then
                records these); outputs equal up to rounding

    int8    y = (q(x / a) · q(W / s)ᵀ) a s + b        s: largest |weight| of each output, a: largest |input| of each row

The first two work in place, on the larger matrices of CPU models in float32, and leave everything else alone (a model
on a GPU comes back as it was). Embeddings stay as they are; a tied head gets a matrix of its own. What comes back can
be run and watched, but neither trained nor saved: save first.

The inputs of an int8 product are rounded row by row, so that no sentence changes because of others beside it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.blocks.decoder import DecoderBlock
from regard.blocks.feedforward import FeedForward, GeluFeedForward, ReluFeedForward, TanhGeluFeedForward
from regard.core.errors import Unsupported
from regard.core.shapes import Float, Tensor
from regard.runtime.cuda_graph import has_hooks

PACK_ROWS = 64  # packed for about this many rows; the same blocks serve from one row to many
MIN_ROWS = 6  # rows: oneDNN takes longer for one or two, for which it has a slower kernel
MIN_WEIGHTS = 2**17  # weights; below this the call itself takes longer than the product

# What may follow a product while its result is still at hand: oneDNN's name for it and how it is computed.
FUSED_ACTIVATIONS: dict[type[nn.Module], tuple[str, str]] = {
    ReluFeedForward: ("relu", ""),
    GeluFeedForward: ("gelu", "none"),
    TanhGeluFeedForward: ("gelu", "tanh"),
}


def pack_weights(model: nn.Module, rows: int = PACK_ROWS) -> nn.Module:
    """The model with packed weights, in place; twice is once. `rows`: how many go through a step together, about."""
    # one row is no product of matrices: the weights are read once, and fastest column by column
    return _replace_linears(model, _PackedLinear if _can_pack() and rows > 1 else _ColumnMajorLinear)


def quantize_int8(model: nn.Module) -> nn.Module:
    """The model with int8 weights, in place: faster and smaller than `pack_weights`, and not quite the same."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise Unsupported("this PyTorch has no int8 products for this processor; use prepare(model), which is float32")
    return _replace_linears(model, _Int8Linear)


def compile_step(model: nn.Module, **options: Any) -> nn.Module:
    """The model with its decoding step compiled, in place: worth it from some hundred tokens on; twice is once.

    Only steps whose shapes are static, as those that a GPU records; all others, and those of a model that is being
    watched, run as before. `options` go to torch.compile.
    """
    if not hasattr(model, "freeze"):
        raise Unsupported(f"the steps of a {type(model).__name__} have no static shapes, so they cannot be compiled")
    own: Any = model
    if not isinstance(own.step, _CompiledStep):
        own.step = _CompiledStep(own, options)
    return model


def weight_format(model: nn.Module) -> str:
    """In which form a model's products are taken: int8, or the dtype of its weights."""
    if any(isinstance(part, _Int8Linear) for part in model.modules()):
        return "int8"
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def is_inference_only(model: nn.Module) -> bool:
    """Whether a model was made ready here, so that nothing can be differentiated through it."""
    return any(isinstance(part, _InferenceLinear) for part in model.modules())


class _CompiledStep:
    """A model's `replay_step`, compiled for states that are frozen."""

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self.model, self.eager = model, model.step
        self.fast = torch.compile(model.step, dynamic=False, **options)

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        family = getattr(state, "family", None)
        frozen = family is not None and isinstance(family.filled, Tensor)
        step = self.fast if frozen and not has_hooks(self.model) else self.eager
        logits, state = step(tokens, state)
        return logits, state


class _NoBackward(torch.autograd.Function):
    """Says so where a gradient is asked for: without it, what lies behind a packed matrix would silently get none."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, x: Tensor) -> Tensor:
        """As it is."""
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refused."""
        raise Unsupported("a model made ready to serve has no gradients; load it anew")


class _InferenceLinear(nn.Module):
    """A linear map that can only be run."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear, then: tuple[str, str] = ("none", "")) -> None:
        super().__init__()
        self.then = then
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """The product, and the activation where one follows."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.product(x)
        with torch.no_grad():
            out = self.product(x)
        ended: Tensor = _NoBackward.apply(out, x)
        return ended

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """What the form of the weights makes of it."""
        raise NotImplementedError

    def activated(self, x: Tensor) -> Tensor:
        """The activation, where the product itself does not take it."""
        name, how = self.then
        return x.relu_() if name == "relu" else F.gelu(x, approximate=how) if name == "gelu" else x

    def train(self, mode: bool = True) -> _InferenceLinear:
        """Only out of training."""
        if mode:
            raise Unsupported("a model made ready to serve cannot be trained; load it anew")
        return super().train(mode)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise Unsupported("a model made ready to serve cannot be saved; save it first, or load it anew")


class _PackedLinear(_InferenceLinear):
    """Float32, in oneDNN's blocks: no row of the product waits for a weight to be rearranged."""

    def __init__(self, linear: nn.Linear, then: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, then)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), PACK_ROWS)

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """The activation follows while the result is still at hand."""
        (name, how), few = self.then, x.shape[:-1].numel()
        if few < MIN_ROWS:
            wide = x.new_zeros(MIN_ROWS, x.shape[-1])
            wide[:few] = x.reshape(few, x.shape[-1])
            some: Tensor = torch.ops.mkldnn._linear_pointwise(wide, self.weight, self.bias, name, [], how)
            return some[:few].view(*x.shape[:-1], some.shape[-1])
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], how)
        return out


class _ColumnMajorLinear(_InferenceLinear):
    """Float32, column by column: the fastest for one row, and what helps a little where there is no oneDNN."""

    def __init__(self, linear: nn.Linear, then: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, then)
        self.weight = linear.weight.detach().t().contiguous().t()

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """One after the other."""
        return self.activated(F.linear(x, self.weight, self.bias))


class _Int8Linear(_InferenceLinear):
    """Weights in int8, a scale for each output; inputs rounded on the way in, a scale for each row."""

    def __init__(self, linear: nn.Linear, then: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, then)
        self.packed = _pack_int8(linear.weight.detach())
        # FBGEMM finds one scale for all the rows it is given. So every row is brought to [-1, 1] first, and one row
        # that reaches both ends goes with them: then the scale it finds is always the same.
        self.ends = torch.zeros(linear.in_features)
        self.ends[0], self.ends[-1] = 1, -1

    @property
    def weight(self) -> Float[Tensor, "E C"]:
        """The weights as they act, after rounding."""
        matrix: Tensor = torch.ops.quantized.linear_unpack(self.packed)[0].dequantize()
        return matrix

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """Scale, multiply in integers, scale back."""
        rows = x.reshape(-1, x.shape[-1])
        largest = rows.abs().amax(-1, keepdim=True).clamp_min_(1e-30)
        scaled = rows.new_empty(len(rows) + 1, rows.shape[1])
        scaled[0] = self.ends
        torch.div(rows, largest, out=scaled[1:])
        out: Tensor = torch.ops.quantized.linear_dynamic(scaled, self.packed, not _uses_full_int8_range())[1:]
        out = out.mul_(largest) if self.bias is None else torch.addcmul(self.bias, out, largest)
        return self.activated(out).view(*x.shape[:-1], -1)


class _InferenceFeedForward(nn.Module):
    """Up and down, with the activation inside the first product."""

    def __init__(self, feed: FeedForward, make: Callable[..., _InferenceLinear]) -> None:
        super().__init__()
        self.up, self.down = make(feed.up, then=FUSED_ACTIVATIONS[type(feed)]), make(feed.down)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Each token on its own."""
        out: Tensor = self.down(self.up(x))
        return out


@torch.no_grad()
def _replace_linears(model: nn.Module, make: type[_InferenceLinear]) -> nn.Module:
    """The larger linear maps of the model made anew; one that stands in two places stays one."""
    if any(isinstance(part, _InferenceLinear) and not isinstance(part, make) for part in model.modules()):
        raise Unsupported("this model was made ready to serve in another way before; load it anew")
    places: dict[int, list[str]] = {}  # names only, so that every old matrix is freed as soon as its successor stands
    inside: set[str] = set()
    for name, part in model.named_modules(remove_duplicate=False):
        above = name.rpartition(".")[0]
        if not name or above in inside:
            continue
        if getattr(part, "reads_weights", False):  # of its linear maps: these have to stay matrices
            inside.add(name)
            continue
        if _is_feedforward(part):
            inside.add(name)
        if name in inside or _is_linear(part):
            places.setdefault(id(part), []).append(name)
    for names in places.values():
        old: Any = model.get_submodule(names[0])
        new = _InferenceFeedForward(old, make) if isinstance(old, FeedForward) else make(old)
        del old
        for name in names:
            above, _, last = name.rpartition(".")
            setattr(model.get_submodule(above), last, new)
    if any(isinstance(part, _InferenceLinear) for part in model.modules()):
        _use_matmul_attention(model)
    return model.eval()


def _use_matmul_attention(model: nn.Module) -> None:
    """Decoder blocks attend for one token of each beam at a time; there two products beat the fused kernel."""
    for block in model.modules():
        if isinstance(block, DecoderBlock):
            for part in (block.mix, block.cross):
                attend = getattr(part, "attend", None)
                if type(attend) is SoftmaxAttention and attend.backend == "sdpa":
                    attend.backend = "bmm"


def _is_feedforward(part: nn.Module) -> bool:
    return type(part) in FUSED_ACTIVATIONS and _is_linear(part.up) and _is_linear(part.down)  # type: ignore[arg-type]


def _is_linear(part: nn.Module) -> bool:
    """A matrix on a CPU, in float32, large enough to be worth it."""
    if type(part) is not nn.Linear:
        return False
    weight = part.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= MIN_WEIGHTS


@lru_cache(maxsize=1)
def _can_pack() -> bool:
    """Does oneDNN pack and multiply here? ProbeResult, since builds for other processors lack one or the other."""
    if not torch.backends.mkldnn.is_available():
        return False
    linear, x = nn.Linear(16, 16), torch.ones(2, 16)
    try:
        with torch.inference_mode():
            plain, then = _PackedLinear(linear), _PackedLinear(linear, FUSED_ACTIVATIONS[GeluFeedForward])
            wanted = linear(x)
            return torch.allclose(plain(x), wanted, atol=1e-5) and torch.allclose(then(x), F.gelu(wanted), atol=1e-5)
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _pack_int8(weight: Float[Tensor, "E C"]) -> Any:
    """FBGEMM's form of a matrix in int8, symmetric, a scale for each row (that is, for each output)."""
    scale = (weight.abs().amax(1) / 127).clamp_min(1e-30).double()
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch means to replace these tensors one day; there is no faster way yet
        try:
            torch.backends.quantized.engine = "fbgemm"
            zero = torch.zeros(len(weight), dtype=torch.long)
            rounded = torch.quantize_per_channel(weight.contiguous(), scale, zero, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rounded, None)
        finally:
            torch.backends.quantized.engine = engine


@lru_cache(maxsize=1)
def _uses_full_int8_range() -> bool:
    """May inputs use all eight bits? Older processors add pairs of products in 16 bits, where the largest overflow."""
    packed = _pack_int8(torch.ones(32, 64))
    out = torch.ops.quantized.linear_dynamic(torch.ones(2, 64), packed, False)
    return bool((out - 64).abs().max() < 1)
