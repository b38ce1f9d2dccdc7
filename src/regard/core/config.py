"""Configs: frozen dataclasses, to and from JSON, with typed ``key=value`` overrides.

An unknown key raises an error that suggests the nearest one; a value of the wrong type, one that names the type.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from regard.core.errors import RegardError, UnknownName, did_you_mean, shorten
from regard.core.validation import Range

C = TypeVar("C")


def field(
    default: Any = MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | str | None = None,
    help: str = "",
    group: str = "",
) -> Any:
    """Declare a field of a Config with the range of its numbers, a line of help, and the group it is listed under.

    ``label_smoothing: float = field(0.0, low=0, below=1)``. `validate` reads the range; without one, integers must be
    at least 1 and floats finite. `below` may be the name of another field: ``pad: int = field(0, low=0,
    below="vocab")``.
    """
    bounds = Range(low, high, above, below)
    metadata = {"range": None if bounds == Range() else bounds, "help": help, "group": group}
    return dataclasses.field(default=default, metadata=metadata)


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a dataclass to JSON values (tuples become lists); raise if a value is a module."""
    return {key: _to_json(value, key) for key, value in asdict_shallow(config).items()}


@cache
def _type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
    """Build a dataclass from JSON values, checking every name and type."""
    hints = _type_hints(cls)  # type: ignore[arg-type]
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise UnknownName(f"{cls.__name__} has no field '{key}'; {did_you_mean(key, known)}")
    return cls(**{key: coerce(value, hints[key], key) for key, value in values.items()})


def override(config: C, settings: Iterable[str]) -> C:
    """Apply ``a.b=value`` settings to a (nested) frozen dataclass."""
    for setting in settings:
        path, sign, text = setting.partition("=")
        if not sign:
            raise RegardError(f"cannot parse the setting {setting!r}; write key=value")
        config = _override(config, path.strip().split("."), text.strip(), path.strip())
    return config


def parse_setting(text: str, hint: Any, key: str) -> Any:
    """Return what was typed for a field as the field's type; a string stays as it was typed."""
    return text if hint is str else coerce(_parse_literal(text, hint), hint, key)


def missing_fields(error: TypeError) -> str:
    """Return the names in a "missing argument" error of a dataclass, as settings: ``vocab=..., width=...``."""
    names = re.findall(r"'(\w+)'", str(error).split("missing")[-1])
    return ", ".join(f"{name}=..." for name in names)


def asdict_shallow(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a dict, not recursively."""
    return {f.name: getattr(config, f.name) for f in fields(config)}


def coerce(value: Any, hint: Any, key: str) -> Any:
    """Convert a value to the type of a field, or raise an error that names the type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in inner:
            try:
                return coerce(value, option, key)
            except RegardError:
                continue
    elif hint is Any:
        return value
    elif is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if isinstance(value, Mapping):
            return from_dict(hint, value)
    elif hint is type(None):
        if value is None:
            return None
    elif origin in (tuple, Sequence):
        if isinstance(value, (list, tuple)) and not _has_wrong_length(value, inner if origin is tuple else ()):
            item = inner[0] if inner else Any
            return tuple(coerce(v, item, key) for v in value)
    elif origin is list:
        if isinstance(value, (list, tuple)):
            return [coerce(v, inner[0], key) for v in value]
    elif origin is dict or hint is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif origin is typing.Literal:
        if value in inner:
            return value
        raise RegardError(f"'{key}' is {value!r}; choose one of {', '.join(map(repr, inner))}")
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer of hundreds of digits
            return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    expected = hint.__name__ if isinstance(hint, type) and not inner else str(hint).replace("NoneType", "None")
    if origin is tuple and inner[-1:] == (...,) and isinstance(inner[0], type):
        expected = f"a list of {inner[0].__name__}"
    raise RegardError(f"'{key}' must be {expected}, got {shorten(repr(value))}")


def _to_json(value: Any, key: str) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {k: _to_json(v, f"{key}.{k}") for k, v in asdict(value).items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(v, key) for v in value]
    if isinstance(value, dict):
        return {k: _to_json(v, f"{key}.{k}") for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise RegardError(
        f"'{key}' is a {type(value).__name__}, which cannot be saved as JSON; register its class under a name "
        f"(for example MECHANISMS['mine'] = ('my_module', 'MyAttention')) and use that name as the spec"
    )


def _override(config: Any, path: list[str], text: str, whole: str) -> Any:
    if not is_dataclass(config):
        raise UnknownName(f"'{whole}' names a field of a value that has no fields")
    known = {f.name for f in fields(config)}
    if path[0] not in known:
        raise UnknownName(f"no setting is called '{whole}'; {did_you_mean(path[0], known)}")
    if len(path) > 1:
        return replace(config, **{path[0]: _override(getattr(config, path[0]), path[1:], text, whole)})  # type: ignore[type-var]
    if is_dataclass(getattr(config, path[0])):
        inner = sorted(f.name for f in fields(getattr(config, path[0])))
        raise RegardError(f"'{whole}' is a group of settings; set one of: {', '.join(f'{whole}.{n}' for n in inner)}")
    hint = _type_hints(type(config))[path[0]]  # type: ignore[arg-type]
    return replace(config, **{path[0]: coerce(_parse_literal(text, hint), hint, whole)})  # type: ignore[type-var]


def _parse_literal(text: str, hint: Any) -> Any:
    """Parse a value of the command line as a Python literal; bare words are strings."""
    if typing.get_origin(hint) is typing.Literal and text in typing.get_args(hint):  # "none" may be one of them
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    if hint is str:
        return text.strip("\"'")
    if typing.get_args(hint) == (str, ...) and not text.startswith(("(", "[")):  # comma-separated words
        return tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: brackets in brackets
        return text


def _has_wrong_length(value: Sequence[Any], items: tuple[Any, ...]) -> bool:
    """Whether a tuple has another length than its type."""
    return bool(items) and items[-1] is not ... and len(value) != len(items)
