"""Attention maps of models of other libraries, which call PyTorch's functions.

    scaled_dot_product_attention     timm, transformers, nn.Transformer, most recent code: the weights are computed from
                                     q, k, v and the mask, for the requested rows only
    softmax over the last of B H N M     attention written out: the weights themselves

A TorchFunctionMode sees every such call of the thread; hooks on all modules tell which module runs innermost. Modules
of this library report for themselves. Other kernels (flash-attn, xformers) and compiled code are not seen (`watch` runs
compiled models eagerly). The output is unchanged to the bit, except that nn.Transformer's layers and
nn.MultiheadAttention leave their fast path for inference, which differs from their forward in the last digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fnmatch import fnmatch
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.attention.capture import AttentionCall, AttentionObserver, is_recomputing
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor

SOFTMAX_FUNCTIONS = (F.softmax, torch.softmax, Tensor.softmax)
CROSS_ATTENTION_NAME = re.compile(r"cross|encoder_att|encdec|multihead_attn|context_att", re.IGNORECASE)  # usual names


def is_external(module: nn.Module) -> bool:
    """Whether a module may attend through PyTorch's functions: not of this library, nor a plain layer of torch.nn."""
    return isinstance(module, nn.MultiheadAttention) or not type(module).__module__.startswith(("regard.", "torch.nn."))


class TorchFunctionObserver(TorchFunctionMode):
    """Reports every map computed outside the modules of this library, inside the block."""

    def __init__(self, modules: Mapping[str, nn.Module], only: str, observer: AttentionObserver) -> None:
        super().__init__()
        self.modules, self.only, self.observer = modules, only, observer
        self.running: list[str] = []
        self.heads: int | None = None  # of the running nn.MultiheadAttention, whose weights are (B H) N M
        self._undo = ExitStack()

    def __enter__(self) -> TorchFunctionObserver:
        for path, module in self.modules.items():
            if isinstance(
                module, (torch.jit.ScriptModule, nn.Softmax)
            ):  # takes no hooks; the module that holds it does
                continue
            enter, leave = self._hooks(path)
            self._undo.callback(module.register_forward_pre_hook(enter).remove)
            self._undo.callback(module.register_forward_hook(leave, always_call=True).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._undo.close()

    def _hooks(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            self.running.append(path)

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self.running.pop()

        return enter, leave

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each of its functions, with the mode off."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._on_sdpa(func(*args, **kwargs), *args, **kwargs)
        if func in SOFTMAX_FUNCTIONS:
            return self._on_softmax(func(*args, **kwargs), args[1] if len(args) > 1 else kwargs.get("dim"))
        if func is F.multi_head_attention_forward:
            return self._on_multihead(args, kwargs)
        return func(*args, **kwargs)

    def _current_module(self) -> str | None:
        """Return the running module, if it is watched and no module of this library reports for itself."""
        if not self.running or is_recomputing() or not fnmatch(self.running[-1], self.only):
            return None
        known = (type(self.modules[path]) for path in self.running[1:])
        if any(issubclass(kind, Mechanism) or kind.__module__.startswith("regard.") for kind in known):
            return None
        return self.running[-1]

    def _on_sdpa(
        self,
        out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Report a call of scaled_dot_product_attention; return its output."""
        name = self._current_module()
        if name is None or query.is_nested:
            return out
        q, k, v, seen = (_to_bhnd(x) for x in (query, key, value, out))
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        mask = None if attn_mask is None else _mask_to_bhnm(attn_mask, query.shape[:-2], q.shape[:2])
        call = AttentionCall(name, CapturedSDPA(scale, is_causal, mask), None, (q, k, v), {}, None, _kind(name))
        self.observer.before_attention(call)
        self.observer.after_attention(call, seen)
        return seen.view(out.shape)  # a view of what was reported, so that its gradient passes there

    def _on_softmax(self, out: Tensor, axis: int | None) -> Tensor:
        """Report a softmax if it is over the keys of attention weights; return its output."""
        if axis not in (-1, out.ndim - 1) or out.ndim != (3 if self.heads else 4) or out.is_nested:
            return out
        name = self._current_module()
        if name is None:
            return out
        if self.heads is None:
            self.observer.on_weights(name, _kind(name), out)
            return out
        each = out.unflatten(0, (-1, self.heads))
        self.observer.on_weights(name, _kind(name), each)
        return each.flatten(0, 1)

    def _on_multihead(self, args: Any, kwargs: Any) -> Any:
        """Run the function of nn.MultiheadAttention without its check for modes, which would call this mode again and
        again, so that the functions it calls are seen."""
        unwrapped = FunctionType(
            F.multi_head_attention_forward.__code__,
            F.multi_head_attention_forward.__globals__ | {"has_torch_function": lambda tensors: False},
            argdefs=F.multi_head_attention_forward.__defaults__,
        )
        self.heads = kwargs.get("num_heads", args[4] if len(args) > 4 else None)
        try:
            with _ReenteredMode(self):
                return unwrapped(*args, **kwargs)
        finally:
            self.heads = None


class _ReenteredMode(TorchFunctionMode):
    """Re-enters a mode that runs already, without its hooks."""

    def __init__(self, mode: TorchFunctionObserver) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.mode.__torch_function__(func, types, args, kwargs)


class CapturedSDPA(Mechanism):
    """A call of scaled_dot_product_attention; `mask` is boolean (True: may attend) or additive."""

    traits = Traits(cost="N M D", paper="1706.03762", headwise=False)  # the mask may differ between heads

    def __init__(self, scale: float, causal: bool, mask: Tensor | None) -> None:
        super().__init__()
        self.scale, self.causal, self.mask = scale, causal, mask

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Any = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        n, m = q.shape[2], k.shape[2]
        each = q.shape[1] // k.shape[1]
        keys = k if each == 1 else k.repeat_interleave(each, dim=1)
        scores = (upcast(q[:, :, queries]) * self.scale) @ upcast(keys).mT  # scaling q saves a matrix N M
        allowed = torch.ones(n, m, dtype=torch.bool, device=q.device).tril()[queries] if self.causal else None
        if self.mask is not None:
            own = self.mask.expand(*self.mask.shape[:2], n, m)[:, :, queries]
            real = own if own.dtype == torch.bool else own != float("-inf")
            allowed = real if allowed is None else allowed & real
            scores = scores if own.dtype == torch.bool else scores + own.masked_fill(~real, 0.0)
        return masked_softmax(scores, allowed).to(q.dtype)


def _kind(name: str) -> str:
    """Guess the kind of attention from the module's name."""
    return "cross" if CROSS_ATTENTION_NAME.search(name) else "self"


def _to_bhnd(x: Tensor) -> Float[Tensor, "B H N D"]:
    """Return x as B H N D: with fewer axes as one head or input, with more all leading axes as the batch."""
    if x.ndim >= 4:
        return x.flatten(0, -4)
    return x[:, None] if x.ndim == 3 else x[None, None]


def _mask_to_bhnm(mask: Tensor, before: torch.Size, batch_heads: torch.Size) -> Tensor:
    """Return a mask for q of shape (*before, N, D) as one for q as B H N D: #B #H #N #M."""
    if mask.ndim <= 2 or len(before) == 2:
        return mask[(None,) * (4 - mask.ndim)]
    return mask.expand(*before, *mask.shape[-2:]).reshape(*batch_heads, *mask.shape[-2:])
