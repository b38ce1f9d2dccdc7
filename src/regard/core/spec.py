"""Build parts from specs: ``"nystrom(landmarks=64)"`` -> the class registered under that name, with its arguments.

A registry is a literal dict, name -> (module, class), resolved only when the name is used. A spec holds literals only:
it is parsed, never evaluated. Names of arguments are checked and, for parts of this library, their types and ranges. A
module of the user's own passes through `build_part` unchanged.
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from regard.core.config import coerce
from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.core.plugins import load_plugins
from regard.core.validation import argument_ranges, check_range

Registry = dict[str, tuple[str, str]]

CONTEXT_ARGUMENTS = {  # by what stands around a part
    *("width", "heads", "head_dim", "query_width", "memory_width", "channels"),
    *("patch", "depth", "stride", "normalized_shape", "grid", "layer"),
}
CONTEXT_EXCEPTIONS = {("aligner", "width")}  # of the small network that scores
MAX_INTEGER, MAX_FLOAT, MAX_NAME = 512, 1e6, 100  # of a stranger's spec: a size, a number, and characters of a string
MAX_ITEMS = 8  # of a tuple in it
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Spec:
    """A name and its literal arguments: ``Spec.parse("rotary(base=1e4)")``."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()  # positional arguments: ``classes(3)``

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse ``name``, ``name(key=literal, ...)`` or ``name(literal, ...)``."""
        try:
            node = ast.parse(text.strip(), mode="eval").body
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                named = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords if k.arg}
                return cls(node.func.id, named, tuple(ast.literal_eval(a) for a in node.args))
            if isinstance(node, ast.Name):
                return cls(node.id)
        except (SyntaxError, ValueError):
            pass
        raise RegardError(f"cannot parse the spec {text!r}; write name or name(key=value, ...), values as literals")

    def __str__(self) -> str:
        inside = ", ".join([*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())])
        return f"{self.name}({inside})" if inside else self.name


def resolve(table: Registry, name: str, kind: str) -> type:
    """Import and return the class registered under a name."""
    if name not in table:
        load_plugins()
    if name not in table:
        raise UnknownName(f"no {kind} is called '{name}'; {did_you_mean(name, table)}")
    entry: Any = table[name]
    if not (isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(word, str) for word in entry)):
        raise RegardError(f"{kind} '{name}' is registered as {entry!r}; expected a pair of names (module, class)")
    cls: type = getattr(import_module(entry[0]), entry[1])
    return cls


def config_class(table: Registry, name: str, kind: str) -> type:
    """Return the Config of a registered class: its attribute `Config`, else the one of its module."""
    cls = resolve(table, name, kind)
    found: type = getattr(cls, "Config", None) or import_module(table[name][0]).Config
    return found


def build_part(table: Registry, spec: Any, kind: str, **context: Any) -> Any:
    """Build the part that a spec names; `context` are arguments from the caller, passed where the part takes them.

    Anything that is not a string is the user's own part and is returned unchanged.
    """
    if spec is None or isinstance(spec, (int, float, list, tuple, dict)):  # not a part
        raise RegardError(f"{spec!r} is no {kind}; write name or name(key=value, ...)")
    if not isinstance(spec, str):
        return spec
    parsed = Spec.parse(spec)
    cls = resolve(table, parsed.name, kind)
    takes = inspect.signature(cls).parameters
    for key in parsed.kwargs:
        if key not in takes:
            raise UnknownName(f"{kind} '{parsed.name}' takes no argument '{key}'; {did_you_mean(key, takes)}")
    first = dict(zip(takes, parsed.args, strict=False))
    if len(first) < len(parsed.args) or first.keys() & parsed.kwargs.keys():
        raise RegardError(f"{kind} '{parsed}' has too many arguments; it takes {', '.join(takes) or 'none'}")
    written = _coerce_arguments(cls, first | dict(parsed.kwargs), kind, parsed.name)
    for key, value in written.items():
        if key in CONTEXT_ARGUMENTS and (kind, key) not in CONTEXT_EXCEPTIONS and context.get(key, value) != value:
            raise RegardError(f"{key} of {kind} '{parsed.name}' must be {context[key]} here, got {value}")
    chosen = {k: v for k, v in context.items() if k in takes} | written
    if missing := [k for k, p in takes.items() if k not in chosen and p.default is p.empty and p.kind not in _VARIADIC]:
        raise RegardError(f"{kind} '{parsed}' needs {', '.join(missing)}: write {parsed.name}({missing[0]}=...)")
    return cls(**chosen)


def is_learned(table: Registry, spec: Any, kind: str, **context: Any) -> bool:
    """Return whether a part has parameters; it is built without memory for them, however large they are."""
    import torch

    with torch.device("meta"):
        return next(build_part(table, spec, kind, **context).parameters(), None) is not None


def _coerce_arguments(cls: type, written: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    """Convert arguments to the annotated types and check their ranges; parts of other packages check themselves."""
    if not written or cls.__module__.split(".")[0] not in ("regard", "torch"):
        return written
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]  # of the class itself, not of a subclass
    found = {key: coerce(value, hints.get(key, Any), f"{key} of {kind} {name}") for key, value in written.items()}
    ranges = argument_ranges(cls)
    for key, value in found.items():
        check_range(value, ranges.get(key), f"{key} of {kind} '{name}'")
    return found


def check_untrusted(spec: str) -> None:
    """Refuse a spec of a stranger with large numbers, before anything is built: a size of a million is gigabytes.

    A string may be the spec of an inner part, ``per_layer(base='learned(length=9)')``; it is checked likewise.
    """
    parsed = Spec.parse(spec)
    values = [*parsed.args, *parsed.kwargs.values()]
    while values:
        value = values.pop()
        if isinstance(value, tuple) and len(value) <= MAX_ITEMS:
            values.extend(value)
            continue
        if isinstance(value, str) and len(value) <= MAX_NAME:
            if "(" in value:
                check_untrusted(value)
            continue
        limit = MAX_FLOAT if isinstance(value, float) else MAX_INTEGER
        if value is not None and not (isinstance(value, (int, float)) and abs(value) <= limit):  # NaN is not either
            wanted = f"whole numbers up to {MAX_INTEGER}, others up to {MAX_FLOAT:.0e}, and names"
            raise BadInput(f"{parsed.name} takes {wanted} here, got {value!r:.40}")


def layer_spec(spec: Any, layer: int) -> Any:
    """Return the spec of one layer: a list has one a layer, cycled."""
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if not spec:
            raise RegardError("the list of specs, one for each layer, is empty; name at least one part")
        return spec[layer % len(spec)]
    return spec
