"""What was measured of the attention mechanisms: speed and memory by length, and scores on long-range tasks.

    speed-cpu.json, speed-cuda.json     benchmarks/variants.py: seconds and bytes, forward and backward, by length
    scores/*.json                       benchmarks/variant_scores.py: one trained model each

The files lie in benchmarks/results/variants of a checkout and are shipped with the package. Here they are read, and
what is asked of them is computed: the exponent of the growth, the length from which a mechanism is faster than dense
softmax attention, the time at a length between two that were measured. Nothing is extrapolated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.core.errors import BadInput

DENSE = "softmax"  # by the kernel of F.scaled_dot_product_attention
DEVICES = ("cpu", "cuda")  # that benchmarks/variants.py measures
MAX_LOAD = 2.0  # of the host by other programs; times above it are rough (benchmarks/harness.py)
UPPER = 3  # lengths, the largest, over which the exponent is fitted
MODES = ("bidirectional", "causal")

Times = Mapping[int, float]  # length -> seconds


def measurement_folder() -> Path:
    """Return the folder of the measurements: in the installed package, or in the checkout."""
    package = Path(regard.__file__).resolve().parent
    inside = package / "measurements"
    return inside if inside.is_dir() else package.parents[1] / "benchmarks" / "results" / "variants"


@cache
def read_speeds(device: str) -> dict[str, Any] | None:
    """Return the record of a device, or None if nothing was measured there."""
    file = measurement_folder() / f"speed-{device}.json"
    return _read(file) if file.is_file() else None


@cache
def read_scores() -> list[dict[str, Any]]:
    """Return all scored runs, sorted by task, mechanism and seed."""
    found = [_read(file) for file in sorted((measurement_folder() / "scores").glob("*.json"))]
    return sorted(found, key=lambda run: (run["task"], run["attention"], run["seed"]))


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the measurement {file}: {error}") from None
    return found


def total_times(record: Mapping[str, Any], name: str, mode: str) -> dict[int, float]:
    """Return the seconds of forward and backward together, by length, as far as they were measured."""
    cells = record["cases"].get(name, {}).get(mode, {})
    return {int(n): cell["forward"] + cell["backward"] for n, cell in cells.items() if "failed" not in cell}


def peak_memory(record: Mapping[str, Any], name: str, mode: str) -> dict[int, float]:
    """Return the bytes of the largest peak, by length."""
    cells = record["cases"].get(name, {}).get(mode, {})
    return {int(n): cell["memory"] for n, cell in cells.items() if "failed" not in cell}


def is_busy(record: Mapping[str, Any]) -> bool:
    """Return whether other programs kept the host busy while something of the record was measured."""
    return any((case.get("measured", {}).get("load") or 0) > MAX_LOAD for case in record["cases"].values())


def is_causal_task(run: Mapping[str, Any]) -> bool:
    """Return whether the model of a scored run is causal: a GPT."""
    recipe = str(run.get("recipe", run["task"]))
    return recipe.endswith("_causal") or recipe.startswith("lm_")


def neighbours(values: Times, length: int) -> tuple[int, ...]:
    """Return the measured lengths that a value at this length is made of: itself, or the two around it."""
    if length in values:
        return (length,)
    return max((n for n in values if n < length), default=length), min(
        (n for n in values if n > length), default=length
    )


def fit_exponent(times: Times, upper: int = UPPER) -> float | None:
    """Return p of seconds ~ length^p over the largest lengths (least squares of logarithms); None for fewer than 2."""
    some = sorted(times)[-upper:]
    if len(some) < 2:
        return None
    return round(float(np.polyfit(np.log(some), np.log([times[n] for n in some]), 1)[0]), 2)


def find_crossover(times: Times, dense: Times) -> int | None:
    """Return the length from which on it was always faster than dense; between two measured, where the lines cross."""
    both = sorted(times.keys() & dense.keys())
    slower = [n for n in both if times[n] >= dense[n]]
    if not both or (slower and slower[-1] == both[-1]):
        return None
    if not slower:
        return both[0]
    low, high = slower[-1], both[both.index(slower[-1]) + 1]
    a, b = (math.log(times[n] / dense[n]) for n in (low, high))
    return round(low * (high / low) ** (a / (a - b))) if a > b else high


def interpolate(values: Times, length: int) -> float | None:
    """Return the value at a length from its measured neighbours, along a line of logarithms; None outside of them."""
    if length in values:
        return values[length]
    for low, high in pairwise(sorted(values)):
        if low < length < high:
            share = math.log(length / low) / math.log(high / low)
            return math.exp((1 - share) * math.log(values[low]) + share * math.log(values[high]))
    return None


def claimed_exponent(cost: str) -> float | None:
    """Return the power of N at large lengths that a cost such as "N √N D" stands for (M = N).

    Of a sum the largest power; log N counts as 0, and so does every other letter. None if it cannot be parsed.
    """
    try:
        return _power(_COST_TOKEN.findall(cost.replace("²", "^2").replace("³", "^3")))
    except (IndexError, ValueError):
        return None


_LENGTH = r"(?:\(\s*[NM]\s*\)|[NM])"
_COST_TOKEN = re.compile(rf"√\s*{_LENGTH}|log\s*{_LENGTH}|[NM](?![a-z])|\^[\d.]+|[A-Za-z_]+|[\d.]+|[-+/(),]")


def _power(tokens: list[str]) -> float:
    """Return the power of N of a sum of products; a closing bracket ends it."""
    terms, sign = [0.0], 1
    while tokens and tokens[0] != ")":
        token = tokens.pop(0)
        if token in "+-,":
            terms.append(0.0)
        elif token == "/":
            sign = -1
        else:
            power = 0.5 if token.startswith("√") else float(token in "NM")
            if token == "(":
                power = _power(tokens)
                tokens.pop(0)
            if tokens and tokens[0].startswith("^"):
                power *= float(tokens.pop(0)[1:])
            terms[-1] += sign * power
            sign = 1
    return max(terms)
