"""Count the fused kernels of a GPU, whatever machine the count runs on.

    attention     fused: saves q, k, v, the output and one number per row, never the map
                  forward: two products over all pairs; backward: five, since the scores are recomputed
    windows       one kernel indexes the windows in place: no partition, shift, mask or reverse
    rms norm      one kernel, which saves its input and one number per row
    dropout       saves one byte per element
    loss          one kernel computes the loss and its gradient from the logits, in their dtype
    autocast      norms and softmax run in float32

A causal mask does not reduce the count, as in torch's own counter, although kernels skip about half of the pairs.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from regard.attention import window_attention
from regard.attention.window_attention import MAX_HEAD_DIM, MAX_WINDOW_CELLS
from regard.core.shapes import Tensor
from regard.cost.meter import Meter
from regard.losses import fused_linear_cross_entropy

FLOAT32_OPS = (F.layer_norm, F.rms_norm, F.group_norm, F.softmax, F.log_softmax, Tensor.softmax, Tensor.log_softmax)


class GPUKernelMode(TorchFunctionMode):
    """Replace attention by fused attention, and run norms and softmax in float32 under autocast.

    The mode is off in a backward pass; `wrap` keeps it on for modules that are recomputed there.
    """

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def __enter__(self) -> GPUKernelMode:
        patched: dict[tuple[Any, str], Any] = {
            (fused_linear_cross_entropy, "can_use_triton"): lambda z: True,
            (fused_linear_cross_entropy, "cross_entropy_with_grad"): self.cross_entropy,
            (window_attention, "window_attention_qkv"): self.windows,
            (window_attention.WindowAttention, "_uses_kernel"): _uses_kernel,
        }
        self.before = {place: getattr(*place) for place in patched}
        for (owner, name), function in patched.items():
            setattr(owner, name, function)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for (owner, name), function in self.before.items():
            setattr(owner, name, function)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func is F.dropout:
            return dropout(*args, **kwargs)
        if func in FLOAT32_OPS and torch.is_autocast_enabled("cpu"):
            args = tuple(_to_float32(x) for x in args)
            kwargs = {key: _to_float32(x) for key, x in kwargs.items()}
        if func is F.rms_norm:
            return self.rms_norm(*args, **kwargs)
        return func(*args, **kwargs)

    def wrap(self, module: torch.nn.Module) -> None:
        """Make a module run under this mode wherever it is called."""
        forward = module.forward

        def run(*args: Any, **kwargs: Any) -> Any:
            with GPUKernelMode(self.meter):
                return forward(*args, **kwargs)

        module.forward = run

    def rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        """RMS norm as one kernel."""
        out: Tensor = _RMSNorm.apply(x, weight, self.meter)
        return out

    def cross_entropy(
        self, z: Tensor, target: Tensor, vocab: int, label_smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy of rows of logits and its gradient, as one kernel."""
        losses, g = z.new_empty(len(z), dtype=torch.float32), torch.empty_like(z)
        self.meter.add("other", 0, (z,), (losses, g))
        return losses, g

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """Fused attention."""
        if torch.is_autocast_enabled("cpu"):
            q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
        if attn_mask is not None:
            torch.broadcast_shapes(attn_mask.shape, (*q.shape[:-1], k.shape[-2]))
        out: Tensor = _FusedAttention.apply(q, k, v, attn_mask, self.meter)
        return out

    def windows(
        self, qkv: Tensor, bias: Tensor | None, *, window: tuple[int, int], scale: Tensor | float, **_: Any
    ) -> Tensor:
        """Window attention as one kernel."""
        out: Tensor = _Windows.apply(qkv, bias, scale if isinstance(scale, Tensor) else None, window, self.meter)
        return out


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout that saves a byte mask instead of the scaled mask."""
    return torch.native_dropout(x, p, True)[0] if training and p else x


def _to_float32(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16) else x


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, meter: Meter) -> Tensor:
        out, rows = x.new_empty(x.shape), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        ctx.save_for_backward(x, weight, rows)
        ctx.meter = meter
        meter.add("other", 0, (x,), (out,))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight, _ = ctx.saved_tensors
        grads = x.new_empty(x.shape)
        ctx.meter.add("other", 0, (x, gradients[0]), (grads,))
        return grads, None if weight is None else weight.new_empty(weight.shape), None


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, meter: Meter) -> Tensor:
        *outer, heads, n, _ = q.shape
        out = q.new_empty(*outer, n, heads, v.shape[-1]).transpose(-3, -2)  # heads of a token are contiguous
        rows = q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, mask, out, rows)
        ctx.meter = meter
        meter.add("attention", attention_operations(q, k, v), (q, k, v), (out,))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, mask, out, _ = ctx.saved_tensors
        grads = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
        operations = attention_operations(q, k, v, backward=True)
        ctx.meter.add("attention", operations, (q, k, v, out, gradients[0]), grads)
        needs_mask_grad = mask is not None and ctx.needs_input_grad[3]
        return *grads, mask.new_empty(mask.shape) if needs_mask_grad else None, None


class _Windows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Any, scale: Any, window: tuple[int, int], meter: Meter) -> Tensor:
        out = qkv.new_empty((*qkv.shape[:3], *qkv.shape[4:]))
        ctx.save_for_backward(qkv, bias, scale)
        ctx.meter, ctx.products = meter, _product_in_windows(qkv, window)
        meter.add("attention", 2 * ctx.products, (qkv,), (out,))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        grads = [None if x is None else torch.empty_like(x) for x in ctx.saved_tensors]
        ctx.meter.add("attention", 5 * ctx.products, (ctx.saved_tensors[0], gradients[0]), (grads[0],))
        return *grads, None, None


def _uses_kernel(mixer: window_attention.WindowAttention, x: Tensor) -> bool:
    """Whether a GPU would use the window kernel."""
    small = mixer.window[0] * mixer.window[1] <= MAX_WINDOW_CELLS
    return mixer.can_fuse() and small and mixer.project.head_dim <= MAX_HEAD_DIM


def _product_in_windows(qkv: Tensor, window: tuple[int, int]) -> int:
    """Return the operations of one product over all pairs of all windows, padded at the edges."""
    batch, rows, columns, _, heads, head_dim = qkv.shape
    windows = batch * -(-rows // window[0]) * -(-columns // window[1])
    return 2 * windows * heads * (window[0] * window[1]) ** 2 * head_dim


def attention_operations(q: Tensor, k: Tensor, v: Tensor, backward: bool = False) -> int:
    """Count scores and values; backward: scores again, and gradients of weights, values, queries and keys."""
    pairs = prod(q.shape[:-1]) * k.shape[-2]
    head_dim, wide = q.shape[-1], v.shape[-1]
    return 2 * pairs * (3 * head_dim + 2 * wide if backward else head_dim + wide)
