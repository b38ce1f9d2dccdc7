"""What the numbers of a model over images may be, so that what makes no model is said before one is built.

shares         0 <= x < 1: how much is left out
counts         1 or more, each of them where there are several; `classes` and `prefix` may be 0
None           nobody said: not looked at
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from regard.core.errors import BadInput

SHARES = ("dropout", "attention_dropout", "drop_path")
COUNTS = {
    **dict.fromkeys(("classes", "prefix"), 0),
    **dict.fromkeys(("image", "channels", "frames", "patch", "kernel", "convolutions", "window", "keys"), 1),
    **dict.fromkeys(("width", "heads", "layers", "ffn", "representation"), 1),
}


def within(config: Any) -> None:
    """Refuse a Config with a number that it cannot have; other fields are left to those who read them."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if value is None:
            continue
        if name in SHARES and not 0 <= value < 1:
            raise BadInput(f"{name} is {value}; it is a share, from 0 to less than 1")
        if name == "ratio" and not 0 < value < math.inf:
            raise BadInput(f"ratio is {value}; a number above 0 is needed")
        if name in COUNTS:
            _count(name, value, COUNTS[name])


def _count(name: str, value: Any, least: int) -> None:
    several = isinstance(value, (list, tuple))
    if several and not value:
        raise BadInput(f"{name} is empty; give a number for each stage")
    if any(number < least for number in (value if several else [value])):
        raise BadInput(f"{name} is {value}; at least {least} is needed")
