"""Number: a single finite number handed in, such as the return that an agent is to reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

from regard.core.errors import BadInput, shorten
from regard.modalities.base import NO_LIMITS, NUMBER, Input, Limits, Source


class Number(Input):
    """A finite number; from a shell argument its decimal form."""

    kind = "number"
    units = ""

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> float:
        try:
            value = math.nan if isinstance(source, bool) else float(source)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise BadInput(f"Expected a finite number, got {shorten(repr(source), 60)}.")
        return value

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, (Real, str))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        for text in arguments:
            yield Source(text, text)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return NUMBER
