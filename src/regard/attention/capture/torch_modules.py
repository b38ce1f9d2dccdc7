"""Attention maps of models of other libraries, which call PyTorch's functions.

    scaled_dot_product_attention     timm, transformers, nn.Transformer, most recent code: the weights are computed from
                                     q, k, v and the mask, for the requested rows only
    softmax, then a product              attention written out: the tensor that multiplies the values, before dropout

A TorchFunctionMode sees every such call of the thread; hooks on all modules tell which module runs innermost. A softmax
alone proves nothing: it is followed through the functions after it (masks, mixtures, dropout, a dropped sink column) to
the product that contracts its keys with values, and that operand is the map. Weights that are no map of queries and
keys (of channels, of bands, without scores of queries and keys) raise `Unsupported` with the name of the module.

Modules of this library report for themselves. Other kernels (flash-attn, xformers) and compiled code are not seen
(`watch` runs compiled models eagerly). The output is unchanged to the bit, except that nn.Transformer's layers and
nn.MultiheadAttention leave their fast path for inference, which differs from their forward in the last digits.
"""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from math import inf, prod
from types import FunctionType
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.capture import AttentionCall, AttentionObserver, is_recomputing
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor

SOFTMAX_FUNCTIONS = (F.softmax, torch.softmax, Tensor.softmax)
CROSS_ATTENTION_NAME = re.compile(r"cross|encoder_att|encdec|multihead_attn|context_att", re.IGNORECASE)  # usual names
HEAD_COUNT_NAMES = ("num_heads", "num_attention_heads", "heads", "n_heads", "n_head", "nhead", "num_attn_heads")
SCORES = "scores"  # what is known of a product of two activations, and of what is made of it
# Functions by name, since each exists as a function, a method and an operator.
PRODUCTS = {"matmul", "__matmul__", "bmm", "baddbmm", "einsum"}
COPIES = {"dropout", "dropout_", "to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone"}
MATRIX_TRANSPOSE: Any = Tensor.mT
TRANSPOSES = {"transpose", "swapaxes", "swapdims", "permute"}
RESHAPES = {"view", "reshape", "flatten", "unflatten", "_unsafe_view"}
REARRANGEMENTS = RESHAPES | {
    "__getitem__", "as_strided", "cat", "chunk", "concat", "expand", "gather", "index_select", "movedim", "narrow",
    "pad", "repeat", "repeat_interleave", "roll", "select", "split", "squeeze", "stack", "unbind", "unfold",
    "unsqueeze",
}  # fmt: skip
NEW_FEATURES = {"layer_norm", "rms_norm", "group_norm", "batch_norm", "conv1d"}  # what they make is no score any more


def is_external(module: nn.Module) -> bool:
    """Whether a module may attend through PyTorch's functions: not of this library, nor a plain layer of torch.nn."""
    return isinstance(module, nn.MultiheadAttention) or not type(module).__module__.startswith(("regard.", "torch.nn."))


class TorchFunctionObserver(TorchFunctionMode):
    """Reports every map computed outside the modules of this library, inside the block."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        only: str,
        observer: AttentionObserver,
        is_watching: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()
        self.modules, self.only, self.observer, self.is_watching = modules, only, observer, is_watching
        self.running: list[tuple[str, torch.Size | None]] = []  # paths of modules, and the shapes of what they read
        self.heads: int | None = None  # of the running nn.MultiheadAttention, whose weights are (B H) N M
        self.softmaxes: list[Softmax] = []
        self.known: Any = WeakTensorKeyDictionary()  # Weights or SCORES
        self._undo = ExitStack()

    def __enter__(self) -> TorchFunctionObserver:
        for path, module in self.modules.items():
            if isinstance(
                module, (torch.jit.ScriptModule, nn.Softmax)
            ):  # takes no hooks; the module that holds it does
                continue
            enter, leave = self._hooks(path)
            self._undo.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            self._undo.callback(module.register_forward_hook(leave, always_call=True).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._undo.close()
        unused = dict.fromkeys(softmax.name for softmax in self.softmaxes if not softmax.used)
        if unused and error[0] is None:
            warnings.warn(
                f"no map of {', '.join(map(self._describe, unused))}: a softmax of products of activations was not "
                "seen to multiply values, so it is not recorded",
                stacklevel=2,
            )

    def _hooks(self, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.is_watching():
                read = next(_tensors([*args, *kwargs.values()]), None)
                self.running.append((path, None if read is None else read.shape))

        def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self.is_watching():
                self.running.pop()

        return enter, leave

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by PyTorch for each of its functions, with the mode off."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._on_sdpa(func(*args, **kwargs), *args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._on_multihead(args, kwargs)
        out = func(*args, **kwargs)
        if not self.running or is_recomputing() or self._is_own():
            return out
        name = getattr(func, "__name__", "")
        if func in SOFTMAX_FUNCTIONS:
            self._on_softmax(out, args[0] if args else kwargs["input"], args[1] if len(args) > 1 else kwargs.get("dim"))
        elif name in PRODUCTS:
            self._on_product(name, args, kwargs, out)
        elif self.known:
            self._follow(func, args, kwargs, out)
        return out

    def _is_own(self) -> bool:
        """Whether a module of this library runs, which reports for itself."""
        known = (type(self.modules[path]) for path, _ in self.running[1:])
        return any(issubclass(kind, Mechanism) or kind.__module__.startswith("regard.") for kind in known)

    def _current_module(self) -> str | None:
        """Return the running module, if it is watched and no module of this library reports for itself."""
        if not self.running or is_recomputing() or not fnmatch(self.running[-1][0], self.only) or self._is_own():
            return None
        return self.running[-1][0]

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
        layout = self._layout(query.shape[:-2], query.shape[-2], key.shape[-2], value, value.stride()[:-2])
        q, k, v, seen = (layout.to_bhnm(x) for x in (query, key, value, out))
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        mask = None if attn_mask is None else _mask_to_bhnm(attn_mask, layout)
        call = AttentionCall(name, CapturedSDPA(scale, is_causal, mask), None, (q, k, v), {}, None, _kind(name))
        with torch._C.DisableTorchFunction():  # nor does an outer block see this
            self.observer.before_attention(call)
            self.observer.after_attention(call, seen)
        return layout.undo(seen, out.shape)  # made of what was reported, so that its gradient passes there

    def _on_softmax(self, out: Tensor, scores: Tensor, axis: int | None) -> None:
        """Follow the weights from here on."""
        if axis is None or out.is_nested or out.ndim < 2:
            return
        softmax = Softmax(self.running[-1][0], scores in self.known)
        if softmax.of_scores and out.ndim > 2 and fnmatch(softmax.name, self.only):
            self.softmaxes.append(softmax)
        self.known[out] = Weights((softmax,), axis % out.ndim, tuple(range(out.ndim)))

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Note what the output of a function holds of the weights or scores among its arguments."""
        inputs = [x for x in _tensors([*args, *kwargs.values()]) if x in self.known]
        weights = [(x, self.known[x]) for x in inputs if self.known[x] != SCORES]
        if not weights and (func.__name__ in NEW_FEATURES or (func.__name__ == "linear" and out.ndim < 4)):
            return
        for made in _tensors([out]) if inputs else ():
            found = weights[0][1].follow(weights[0][0], func, args, kwargs, made) if weights else SCORES
            if isinstance(found, Weights):
                sources = dict.fromkeys(source for _, known in weights for source in known.sources)
                found = replace(found, sources=tuple(sources))
            if found is not None:
                self.known[made] = found

    def _on_product(self, name: str, args: Any, kwargs: Any, out: Tensor) -> None:
        """Report weights if this is their product with values; note that other products of activations are scores."""
        operands = list(_tensors([*args, *kwargs.values()]))[-2:]
        if len(operands) < 2 or any(isinstance(x, nn.Parameter) for x in operands):
            return
        known = [self.known.get(x, SCORES) for x in operands]
        if known == [SCORES, SCORES]:
            self.known[out] = SCORES
            return
        module = self._current_module()
        if module is None:
            return
        if SCORES not in known:
            self._refuse("multiplies several matrices of weights with one another")
        first = known[1] == SCORES
        weights: Weights = known[0] if first else known[1]
        tensor, values = operands if first else operands[::-1]
        product = Product.parse(name, str(args[0]), tensor, values, first)
        if product is None or not (weights.of_scores or tensor.ndim >= 4):  # no attention: experts, say
            return
        if weights.axes is None:
            self._refuse("rearranges its weights before they multiply the values, as bands and blocks of keys are")
        keys, queries = weights.axes[product.keys], weights.axes[product.queries]
        if keys != weights.keys:
            return
        if not weights.of_scores:
            self._refuse("makes its weights without scores of queries and keys, as outlook and linear attention do")
        if queries is None:
            self._refuse("joins queries and heads before its weights multiply the values")
        is_new = not all(source.used for source in weights.sources)  # else the same weights multiply more values
        for source in weights.sources:
            source.used = True
        if not is_new:
            return
        undropped = tensor if weights.undropped is None else weights.undropped
        leads = [axis for axis in range(undropped.ndim) if axis not in (keys, queries)]
        strides = {axis: stride for at, stride in product.strides.items() if (axis := weights.axes[at]) is not None}
        layout = self._layout(
            torch.Size(undropped.shape[axis] for axis in leads),
            undropped.shape[queries],
            undropped.shape[keys],
            values,
            [strides.get(axis) for axis in leads],
            product.value_axes,
        )
        order = [*leads, queries, keys]
        with torch._C.DisableTorchFunction():
            self.observer.on_weights(module, _kind(module), undropped, lambda x: layout.to_bhnm(x.permute(order)))

    def _layout(
        self,
        leads: torch.Size,
        n: int,
        m: int,
        values: Tensor,
        strides: Sequence[int | None],
        value_axes: tuple[int, int] = (-2, -1),
    ) -> Layout:
        """Tell which of the axes before N and M are heads; refuse weights that are no map of queries and keys."""
        if self.heads is not None and len(leads) == 1:  # nn.MultiheadAttention joins batch and heads, in this order
            return Layout(torch.Size((leads[0] // self.heads, self.heads)), range(1, 2))
        layout = Layout(leads, self._head_axes(leads, strides))
        read = self.running[-1][1]
        if read is None:
            return layout
        tokens = _token_counts(read)
        value_keys, channels = value_axes
        over_channels = n == m and n * layout.num_heads in read and values.shape[channels] in tokens
        if over_channels and (m not in tokens or values.stride(channels) > values.stride(value_keys)):
            self._refuse("attends over channels, not over tokens")
        is_repeated = len(read) == 4 and layout.batch > read[0] and layout.batch * m > read[0] * min(tokens)
        partitions = layout.batch * m in {read[0] * count for count in tokens}
        if n != m and (layout.has_windows or is_repeated) and not partitions:
            self._refuse("attends in blocks whose keys overlap")
        return layout

    def _head_axes(self, leads: torch.Size, strides: Sequence[int | None]) -> range:
        """Tell which of the axes before N and M are heads.

        The module's own number of heads decides. PyTorch's convention is the last axis, but windows may stand there:
        of several that fit, heads are nearest to the channels in the memory of the values.
        """
        running = self.running[:-3:-1]  # the innermost module and the one that holds it
        named = (getattr(self.modules[path], name, None) for path, _ in running for name in HEAD_COUNT_NAMES)
        heads = next((count for count in named if isinstance(count, int) and count > 0), None)
        if len(leads) == 1:
            read = self.running[-1][1]
            if heads in (None, 1) and (read is None or leads[0] in read[:2]):
                return range(0)
            if read is not None and leads[0] == read[0]:
                self._refuse("multiplies values head by head")
            if heads != leads[0]:
                self._refuse("joins batch and heads in one axis", "run one input at a time, or ")
            return range(1)
        if heads is None or not leads:
            return range(max(len(leads) - 1, 0), len(leads))
        spans = [range(i, j) for i in range(len(leads)) for j in range(i + 1, len(leads) + 1)]
        fitting = [span for span in spans if prod(leads[i] for i in span) == heads]
        if not fitting:
            self._refuse(f"has {heads} heads, but weights of shape {' '.join(map(str, leads))} N M")

        def distance(span: range) -> tuple[int, float, int]:
            stride = strides[span[-1]] if len(leads) > 2 else None
            return len(span), inf if stride is None else float(stride), -span[-1]

        return min(fitting, key=distance)

    def _describe(self, path: str) -> str:
        kind = type(self.modules[path])
        return f"'{path}' ({kind.__module__}.{kind.__name__})"

    def _refuse(self, why: str, advice: str = "") -> NoReturn:
        raise Unsupported(
            f"{self._describe(self.running[-1][0])} {why}, so it has no map of queries and keys to show; {advice}watch "
            "other modules (only=)"
        )

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


@dataclass(eq=False)
class Softmax:
    """One call of softmax."""

    name: str  # of the module
    of_scores: bool  # of a product of two activations, as q k is
    used: bool = False  # whether its weights were seen to multiply values


@dataclass(frozen=True, eq=False)
class Weights:
    """What is known of a tensor that was made of softmax weights."""

    sources: tuple[Softmax, ...]
    keys: int  # the axis of `undropped` that the softmax ran over
    axes: tuple[int | None, ...] | None  # the axis of `undropped` for each of the tensor (None: joined); None: lost
    undropped: Tensor | None = None  # the weights before dropout and casts; None: the tensor itself

    @property
    def of_scores(self) -> bool:
        return any(source.of_scores for source in self.sources)

    def follow(self, tensor: Tensor, func: Any, args: Any, kwargs: Any, out: Tensor) -> Weights | None:
        """Return what is known of `out`, which a function made of `tensor`; None if it holds no weights."""
        name, before, after = getattr(func, "__name__", ""), tensor.shape, out.shape
        undropped = tensor if self.undropped is None else self.undropped
        if self.axes is None or self.keys not in self.axes:
            return self if name in REARRANGEMENTS or after == before else None
        keys = self.axes.index(self.keys)
        if name in TRANSPOSES or func == MATRIX_TRANSPOSE.__get__:
            numbered = torch.empty(tuple(range(tensor.ndim)), device="meta")  # axis n has size n
            order = func(numbered, *args[1:], **{a: b for a, b in kwargs.items() if a != "input"}).shape
            return replace(self, axes=tuple(self.axes[axis] for axis in order), undropped=undropped)
        if name in COPIES and after == before:
            return replace(self, undropped=undropped)
        if (
            name in RESHAPES and after[-2:] == before[-2:] and keys >= tensor.ndim - 2
        ):  # batch and heads joined or split
            return replace(self, axes=(*[None] * (out.ndim - 2), *self.axes[-2:]), undropped=undropped)
        is_sliced = name in ("__getitem__", "narrow") and out.ndim == tensor.ndim and after[keys] < before[keys]
        if after == before or (
            (is_sliced or (name == "linear" and keys < tensor.ndim - 1))  # without some keys; heads mixed
            and all(after[i] == before[i] for i in range(out.ndim) if i != (keys if is_sliced else out.ndim - 1))
        ):
            return Weights(self.sources, keys, tuple(range(out.ndim)))
        return replace(self, axes=None, undropped=None) if name in REARRANGEMENTS else None


@dataclass(frozen=True, eq=False)
class Product:
    """A product that contracts one axis of weights with values: axes of the weights, and of the values."""

    keys: int
    queries: int
    values: Tensor
    value_axes: tuple[int, int]  # keys, channels
    strides: Mapping[int, int]  # of the values, by the axis of the weights that both have

    @staticmethod
    def parse(name: str, equation: str, weights: Tensor, values: Tensor, weights_first: bool) -> Product | None:
        """Return the product, if it is one of weights and values; the equation is that of an einsum."""
        if min(weights.ndim, values.ndim) < 2:
            return None
        if name == "einsum":
            own, other, out = _labels(equation, weights, values, weights_first)
        else:
            lead = string.ascii_letters[: max(weights.ndim, values.ndim) - 2]
            pair = ("NM", "MD") if weights_first else ("MN", "DM")
            own, other = (lead[len(lead) - x.ndim + 2 :] + ab for x, ab in zip((weights, values), pair, strict=True))
            out = lead + "ND"
        keys = [label for label in own if label in other and label not in out]
        queries = [label for label in own if label not in other and label in out]
        channels = [label for label in other if label not in own and label in out]
        if len(keys) != 1 or not queries or not channels:
            return None
        return Product(
            own.index(keys[0]),
            own.index(queries[-1]),
            values,
            (other.index(keys[0]), other.index(channels[-1])),
            {own.index(label): values.stride(other.index(label)) for label in own if label in other},
        )


@dataclass(frozen=True)
class Layout:
    """The axes before N and M (or D): which of them are heads; all others are inputs, windows too."""

    leads: torch.Size
    heads: range

    @property
    def order(self) -> list[int]:
        """The axes with heads last."""
        return [*(axis for axis in range(len(self.leads)) if axis not in self.heads), *self.heads]

    @property
    def num_heads(self) -> int:
        return prod(self.leads[axis] for axis in self.heads)

    @property
    def batch(self) -> int:
        return prod(self.leads) // self.num_heads

    @property
    def has_windows(self) -> bool:
        return len(self.leads) - len(self.heads) > 1

    def to_bhnm(self, x: Tensor) -> Tensor:
        """Return weights, a mask, queries, keys or values (maybe of fewer heads) as B H N M or B H N D."""
        x = x if x.ndim == len(self.leads) + 2 else x.reshape(*self.leads, *x.shape[-2:])
        ordered = x.permute(*self.order, -2, -1)
        return ordered.reshape(self.batch, -1 if self.heads else 1, *x.shape[-2:])

    def undo(self, x: Float[Tensor, "B H N D"], shape: torch.Size) -> Tensor:
        """Return the output of attention with its own axes again."""
        ordered = x.reshape(*(self.leads[axis] for axis in self.order), *x.shape[-2:])
        back = [self.order.index(axis) for axis in range(len(self.leads))]
        return ordered.permute(*back, -2, -1).reshape(shape)


def _kind(name: str) -> str:
    """Guess the kind of attention from the module's name."""
    return "cross" if CROSS_ATTENTION_NAME.search(name) else "self"


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values, and in lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (one for one in value if isinstance(one, Tensor))


def _token_counts(shape: torch.Size) -> set[int]:
    """Return how many tokens an input of this shape may hold: B N C, B Y X C or B C Y X."""
    if len(shape) == 4:
        return {shape[1] * shape[2], shape[2] * shape[3]}
    return {prod(shape[1:-1])} if len(shape) > 2 else {shape[0]}


def _labels(equation: str, weights: Tensor, values: Tensor, weights_first: bool) -> tuple[str, str, str]:
    """Return the labels of the axes of weights, values and output in an einsum; an ellipsis becomes capital letters."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    first, second = inputs.split(",")
    own, other = (first, second) if weights_first else (second, first)
    hidden = [x.ndim - len(labels.replace("...", "")) for x, labels in ((weights, own), (values, other))]
    letters = string.ascii_uppercase[: max(hidden)]
    own, other = (
        labels.replace("...", letters[len(letters) - count :])
        for labels, count in zip((own, other), hidden, strict=True)
    )
    return own, other, out.replace("...", letters)


def _mask_to_bhnm(mask: Tensor, layout: Layout) -> Tensor:
    """Return a mask for q with the axes of a layout as one for q as B H N D: #B #H #N #M."""
    if mask.ndim <= 2 or layout.order == [0, 1]:
        return mask[(None,) * (4 - mask.ndim)]
    return layout.to_bhnm(mask.expand(*layout.leads, *mask.shape[-2:]))
