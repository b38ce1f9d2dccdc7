"""Ranges of numbers, checked before anything is built.

A range stands where the number is declared: on a field of a Config (``regard.core.config.field``) or in the annotation
of a constructor argument (``Annotated[float, Range(above=0)]``). Without one, integers must be at least 1 and floats
finite; of a tuple every number is checked, and None, strings and booleans are not.
"""

from __future__ import annotations

import re
import sys
import typing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any

from regard.core.errors import BadInput, shorten


@dataclass(frozen=True)
class Range:
    """Finite numbers x with low <= x <= high and above < x < below; `below` may name another field of the Config."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | str | None = None

    def __contains__(self, x: float) -> bool:
        assert not isinstance(self.below, str), "resolve it first"
        return (
            abs(x) <= sys.float_info.max  # not NaN, infinite or an integer of hundreds of digits
            and (self.low is None or x >= self.low)
            and (self.high is None or x <= self.high)
            and (self.above is None or x > self.above)
            and (self.below is None or x < self.below)
        )

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"from {self.low} to {self.high}"
        words = {"at least": self.low, "above": self.above, "at most": self.high, "less than": self.below}
        return " and ".join(f"{word} {x}" for word, x in words.items() if x is not None) or "a finite number"

    def resolve(self, config: Any) -> Range:
        """Replace the name of another field by its value; 0 means that it is not known yet."""
        return replace(self, below=getattr(config, self.below) or None) if isinstance(self.below, str) else self


Fraction = Annotated[float, Range(low=0, below=1)]
Count = Annotated[int, Range(low=0)]  # a number of things of which there may be none
Seed = Annotated[int, Range(low=0)]  # of a generator of a part's own


def validate(config: Any, prefix: str = "", **overrides: Range) -> None:
    """Raise `BadInput` if a number of a Config, or of a Config inside it, is out of its range.

    `prefix` stands before the names of the fields in messages ("train."); `overrides` replace the range of a field.
    """
    for field in fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        if isinstance(value, str) and (choices := _choices(str(field.type))) and value not in choices:
            raise BadInput(f"{path} is {value!r}; choose one of {', '.join(map(repr, choices))}")
        if is_dataclass(value):
            if not hasattr(value, "__post_init__"):  # else it checks itself
                validate(value, f"{path}.")
            continue
        if value == () and field.default != ():
            raise BadInput(f"{path} must have at least one number, got ()")
        default = Range() if "float" in str(field.type) else Range(low=1)
        allowed = overrides.get(field.name) or field.metadata.get("range") or default
        check_range(value, allowed.resolve(config), path)


@cache
def _choices(annotation: str) -> tuple[str, ...]:
    """Return the strings that an annotation ``Literal["a", "b"]`` allows; none for any other annotation."""
    found = re.fullmatch(r"(?:typing\.)?Literal\[(.*)\](?: \| None)?", annotation)
    return tuple(re.findall(r"[\"']([^\"']*)[\"']", found[1])) if found else ()


def argument_ranges(cls: type) -> dict[str, Range]:
    """Return the declared ranges of a class's arguments: on its fields or in the annotations of `__init__`."""
    hints = typing.get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    if is_dataclass(cls):
        notes |= {field.name: (field.metadata.get("range"),) for field in fields(cls)}
    return {name: note for name, found in notes.items() for note in found if isinstance(note, Range)}


def check_range(value: Any, allowed: Range | None, name: str) -> None:
    """Raise `BadInput` if a number, or one in a (nested) tuple, is out of range."""
    numbers = _numbers(value)
    allowed = allowed or (Range() if any(isinstance(x, float) for x in numbers) else Range(low=1))
    if not all(x in allowed for x in numbers):
        raise BadInput(f"{name} must be {allowed}, got {shorten(value)}")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _numbers(each)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []
