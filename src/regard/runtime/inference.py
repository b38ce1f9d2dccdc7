"""Models prepared for inference: weight matrices in the layout that the processor reads fastest.

    pack_weights    float32 in oneDNN's blocked layout; outputs equal up to rounding
    quantize_int8   int8 weights: a quarter of the memory traffic, four products in the time of one
    compile_step    on a GPU, the operations between the products of a decoding step become a few kernels
                    (runtime.cuda_graph then captures them); outputs equal up to rounding

    int8    y = (q(x / a) · q(W / s)ᵀ) a s + b        s: largest |weight| of each output, a: largest |input| of each row

The first two work in place on the larger float32 matrices of CPU models and leave everything else alone (a model on a
GPU is returned unchanged). Embeddings stay as they are; a tied head gets its own matrix. The result can be run and
watched, but neither trained nor saved: save first.

The inputs of an int8 product are quantised row by row, so that a sentence does not depend on the others in its batch.
"""

from __future__ import annotations

import warnings
from collections import Counter
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
from regard.runtime import few_rows
from regard.runtime.cuda_graph import has_hooks
from regard.runtime.direct_blocks import use_direct_blocks

PACK_ROWS = 64  # rows that the blocked layout is chosen for; it works for any number
MIN_ROWS = 6  # fewer rows are padded to this: oneDNN's kernel for one or two rows is slower
COMPILE_AFTER = 30.0  # seconds of searching with one shape, after which compiling its step pays
MAX_COMPILED = 6  # shapes: torch's compiler gives up after eight
MIN_WEIGHTS = 2**17  # smaller matrices are left alone: the call takes longer than the product

# Activations that oneDNN fuses with the product: its name for them, and the variant.
FUSED_ACTIVATIONS: dict[type[nn.Module], tuple[str, str]] = {
    ReluFeedForward: ("relu", ""),
    GeluFeedForward: ("gelu", "none"),
    TanhGeluFeedForward: ("gelu", "tanh"),
}


def pack_weights(model: nn.Module, rows: int = PACK_ROWS) -> nn.Module:
    """Pack the model's weights in place, for steps of about `rows` rows; calling it again changes nothing."""
    # without the kernel for few rows, those of one row are read fastest column by column
    packs = _can_pack() and (rows > 1 or few_rows.load_library() is not None)
    return _replace_linears(model, _PackedLinear if packs else _ColumnMajorLinear)


def quantize_int8(model: nn.Module) -> nn.Module:
    """Quantise the weights to int8 in place: faster and smaller than `pack_weights`, but not exact."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise Unsupported(
            "this PyTorch has no int8 products for this processor; use pack_weights(model), which is float32"
        )
    return _replace_linears(model, _Int8Linear)


def compile_step(model: nn.Module, after: float = 0.0, **options: Any) -> nn.Module:
    """Compile the model's decoding step in place. Calling it again changes nothing.

    Only steps with static shapes (those that a GPU captures) are compiled; all others, and those of a watched model,
    run eagerly, as all do where the compiler fails. Compiling takes some ten seconds for each shape of a search (its
    rows, beams and slots), so with `after` it waits until searches of that shape have taken so many seconds: whatever
    comes next, it costs at most about as much as it might have saved. `options` go to torch.compile.
    """
    if not hasattr(model, "freeze"):
        raise Unsupported(f"the steps of {type(model).__name__} have no static shapes, so they cannot be compiled")
    decodable: Any = model
    if not isinstance(decodable.step, _CompiledStep):
        decodable.step = _CompiledStep(decodable, after, options)
    return model


def prepare_step(model: nn.Module) -> nn.Module:
    """On a GPU, compile those decoding steps of the model for which it pays; other models are left alone."""
    if next(model.parameters()).is_cuda and hasattr(model, "freeze"):
        compile_step(model, after=COMPILE_AFTER)
    return model


def weight_format(model: nn.Module) -> str:
    """Return the number format of a model's products: int8, or the dtype of its weights."""
    if any(isinstance(part, _Int8Linear) for part in model.modules()):
        return "int8"
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def is_inference_only(model: nn.Module) -> bool:
    """Return whether a model was prepared by this module, so that it has no gradients."""
    return any(isinstance(part, _InferenceLinear) for part in model.modules())


class _CompiledStep:
    """A model's `step`, compiled for states with static shapes: of all searches, or of those that run for long."""

    def __init__(self, model: Any, after: float, options: dict[str, Any]) -> None:
        self.model, self.eager, self.after = model, model.step, after
        self.fast = torch.compile(model.step, dynamic=False, **options)
        self.seconds: Counter[Any] = Counter()  # that searches took, by what their captured step fixes
        self.compiled: set[Any] = set()
        self.use_fast = after == 0

    def choose(self, key: Any) -> bool:
        """Choose how the next steps of a search run; return whether it differs from how they ran before."""
        if self.after == 0:
            return False
        found = key not in self.compiled and self.seconds[key] >= self.after and len(self.compiled) < MAX_COMPILED
        if found:
            self.compiled.add(key)
        self.use_fast = key in self.compiled
        return found

    def __call__(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        beam_table = getattr(state, "beam_table", None)
        frozen = beam_table is not None and isinstance(beam_table.filled, Tensor)
        if not (self.use_fast and frozen) or has_hooks(self.model):
            logits, state = self.eager(tokens, state)
            return logits, state
        try:
            logits, state = self.fast(tokens, state)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            warnings.warn(f"the decoding step runs uncompiled: {str(error).splitlines()[0]}", stacklevel=2)
            self.fast = self.eager
            logits, state = self.eager(tokens, state)
        return logits, state


def is_compiler_error(error: Exception) -> bool:
    """Return whether torch's compiler raised this, and not the model."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


class _NoBackward(torch.autograd.Function):
    """Raises on backward; without it, everything before a packed matrix would silently get no gradient."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, x: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Unsupported("a model prepared for inference has no gradients; load it again")


class _InferenceLinear(nn.Module):
    """A linear map without gradients, with an optional fused activation."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear, activation: tuple[str, str] = ("none", "")) -> None:
        super().__init__()
        self.activation = activation
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.product(x)
        with torch.no_grad():
            out = self.product(x)
        guarded: Tensor = _NoBackward.apply(out, x)
        return guarded

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        """Return the linear map of x, followed by the activation."""
        raise NotImplementedError

    def activated(self, x: Tensor) -> Tensor:
        """Apply the activation, for subclasses whose product does not fuse it."""
        name, variant = self.activation
        return x.relu_() if name == "relu" else F.gelu(x, approximate=variant) if name == "gelu" else x

    def train(self, mode: bool = True) -> _InferenceLinear:
        if mode:
            raise Unsupported("a model prepared for inference cannot be trained; load it again")
        return super().train(mode)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise Unsupported("a model prepared for inference cannot be saved; save it first, or load it again")


class _PackedLinear(_InferenceLinear):
    """Float32 weights in oneDNN's blocked layout, which a kernel of our own reads for few rows."""

    def __init__(self, linear: nn.Linear, activation: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, activation)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().contiguous(), PACK_ROWS)
        self.matrix = few_rows.find_matrix(self.weight, linear)

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        (name, variant), num_rows = self.activation, x.shape[:-1].numel()
        if self.matrix is not None and few_rows.is_few(x, num_rows, self.matrix.inputs):
            fused = few_rows.ACTIVATIONS.get(self.activation)
            found = few_rows.few_rows_linear(x, self.matrix, fused or 0)
            return self.activated(found) if fused is None else found
        if num_rows < MIN_ROWS:
            padded = x.new_zeros(MIN_ROWS, x.shape[-1])
            padded[:num_rows] = x.reshape(num_rows, x.shape[-1])
            padded_out: Tensor = torch.ops.mkldnn._linear_pointwise(padded, self.weight, self.bias, name, [], variant)
            return padded_out[:num_rows].view(*x.shape[:-1], padded_out.shape[-1])
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], variant)
        return out


class _ColumnMajorLinear(_InferenceLinear):
    """Float32 weights column by column: the fastest for one row, and a little faster where there is no oneDNN."""

    def __init__(self, linear: nn.Linear, activation: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, activation)
        self.weight = linear.weight.detach().t().contiguous().t()

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        return self.activated(F.linear(x, self.weight, self.bias))


class _Int8Linear(_InferenceLinear):
    """Int8 weights with a scale per output; inputs are quantised on the fly with a scale per row."""

    def __init__(self, linear: nn.Linear, activation: tuple[str, str] = ("none", "")) -> None:
        super().__init__(linear, activation)
        self.packed = _pack_int8(linear.weight.detach())
        # FBGEMM uses one scale for all rows. So every row is scaled to [-1, 1] first, and a row with both ends of that
        # range is added: the scale is then always the same.
        self.ends = torch.zeros(linear.in_features)
        self.ends[0], self.ends[-1] = 1, -1

    @property
    def weight(self) -> Float[Tensor, "E C"]:
        """Return the dequantised weights."""
        matrix: Tensor = torch.ops.quantized.linear_unpack(self.packed)[0].dequantize()
        return matrix

    def product(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        rows = x.reshape(-1, x.shape[-1])
        largest = rows.abs().amax(-1, keepdim=True).clamp_min_(1e-30)
        scaled = rows.new_empty(len(rows) + 1, rows.shape[1])
        scaled[0] = self.ends
        torch.div(rows, largest, out=scaled[1:])
        out: Tensor = torch.ops.quantized.linear_dynamic(scaled, self.packed, not _uses_full_int8_range())[1:]
        out = out.mul_(largest) if self.bias is None else torch.addcmul(self.bias, out, largest)
        return self.activated(out).view(*x.shape[:-1], -1)


class _InferenceFeedForward(nn.Module):
    """Feed-forward block with the activation fused into the first product."""

    def __init__(self, feed: FeedForward, make: Callable[..., _InferenceLinear]) -> None:
        super().__init__()
        self.up, self.down = make(feed.up, activation=FUSED_ACTIVATIONS[type(feed)]), make(feed.down)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        out: Tensor = self.down(self.up(x))
        return out


@torch.no_grad()
def _replace_linears(model: nn.Module, linear_class: type[_InferenceLinear]) -> nn.Module:
    """Replace the larger linear maps of the model; a shared module stays shared."""
    if any(isinstance(part, _InferenceLinear) and not isinstance(part, linear_class) for part in model.modules()):
        raise Unsupported("this model was prepared in another way before; load it again")
    names_by_module: dict[int, list[str]] = {}  # names only, so that each old matrix is freed as soon as it is replaced
    replaced: set[str] = set()
    for name, part in model.named_modules(remove_duplicate=False):
        parent = name.rpartition(".")[0]
        if not name or parent in replaced:
            continue
        if getattr(part, "reads_weights", False):  # it reads the matrices of its linear maps: leave them
            replaced.add(name)
            continue
        if _is_feedforward(part):
            replaced.add(name)
        if name in replaced or _is_linear(part):
            names_by_module.setdefault(id(part), []).append(name)
    for names in names_by_module.values():
        old: Any = model.get_submodule(names[0])
        new = _InferenceFeedForward(old, linear_class) if isinstance(old, FeedForward) else linear_class(old)
        del old
        for name in names:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new)
    if any(isinstance(part, _InferenceLinear) for part in model.modules()):
        _use_matmul_attention(model)
        use_direct_blocks(model, linear_class, _InferenceFeedForward)
    return model.eval()


def _use_matmul_attention(model: nn.Module) -> None:
    """Use plain matrix products in decoder blocks: for one token per beam they beat the fused kernel."""
    for block in model.modules():
        if isinstance(block, DecoderBlock):
            for part in (block.mix, block.cross):
                attend = getattr(part, "attend", None)
                if type(attend) is SoftmaxAttention and attend.backend == "sdpa":
                    attend.backend = "bmm"


def _is_feedforward(part: nn.Module) -> bool:
    return type(part) in FUSED_ACTIVATIONS and _is_linear(part.up) and _is_linear(part.down)  # type: ignore[arg-type]


def _is_linear(part: nn.Module) -> bool:
    """Return whether a module is a float32 linear map on a CPU, large enough to be worth replacing."""
    if type(part) is not nn.Linear:
        return False
    weight = part.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= MIN_WEIGHTS


@lru_cache(maxsize=1)
def _can_pack() -> bool:
    """Return whether oneDNN packs and multiplies correctly here; some builds cannot."""
    if not torch.backends.mkldnn.is_available():
        return False
    linear, x = nn.Linear(16, 16), torch.ones(2, 16)
    try:
        with torch.inference_mode():
            plain, fused = _PackedLinear(linear), _PackedLinear(linear, FUSED_ACTIVATIONS[GeluFeedForward])
            expected = linear(x)
            return torch.allclose(plain(x), expected, atol=1e-5) and torch.allclose(
                fused(x), F.gelu(expected), atol=1e-5
            )
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _pack_int8(weight: Float[Tensor, "E C"]) -> Any:
    """Quantise a matrix to int8 in FBGEMM's format, symmetric, with a scale per row (per output)."""
    scale = (weight.abs().amax(1) / 127).clamp_min(1e-30).double()
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation notice of quantised tensors; there is no faster way yet
        try:
            torch.backends.quantized.engine = "fbgemm"
            zero = torch.zeros(len(weight), dtype=torch.long)
            quantized = torch.quantize_per_channel(weight.contiguous(), scale, zero, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(quantized, None)
        finally:
            torch.backends.quantized.engine = engine


@lru_cache(maxsize=1)
def _uses_full_int8_range() -> bool:
    """Return whether inputs may use all eight bits; older processors overflow in sums of two products."""
    packed = _pack_int8(torch.ones(32, 64))
    out = torch.ops.quantized.linear_dynamic(torch.ones(2, 64), packed, False)
    return bool((out - 64).abs().max() < 1)
