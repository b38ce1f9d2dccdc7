"""Which attention mechanism for a length, from measurements alone.

    advise(16384, causal=True, device="cuda")         ranked by the time of forward and backward at that length
    advise(4096, device="cpu", accuracy=0.95)         only those that keep 95 % of dense attention's scores

Times are those of benchmarks/variants.py, between two measured lengths along a line of logarithms; beyond them there is
no advice. Scores are means over the long-range tasks that a mechanism and dense attention were both trained on
(benchmarks/variant_scores.py), each divided by dense attention's: tasks of encoders or, for a causal mask, of decoders.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.attention import MECHANISMS, MIXERS
from regard.core.errors import BadInput, Unsupported
from regard.cost.measurements import (
    DENSE,
    DEVICES,
    interpolate,
    is_busy,
    is_causal_task,
    neighbours,
    peak_memory,
    read_scores,
    read_speeds,
    total_times,
)

LOWER_IS_BETTER = ("loss", "bits_per_byte", "perplexity")


@dataclass(frozen=True)
class Candidate:
    """A mechanism at a length: what was measured of it."""

    name: str
    seconds: float  # forward and backward
    speedup: float  # over dense attention
    memory: float  # bytes at the peak
    dense_memory: float
    score: float | None  # share of dense attention's score, mean of the tasks; None: not scored
    tasks: tuple[str, ...]  # it was scored on


@dataclass(frozen=True)
class Advice:
    """Candidates, best first, and where the numbers come from."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]  # name -> why
    source: str
    lengths: tuple[int, ...]  # that the numbers are made of
    is_busy: bool  # whether other programs kept the machine busy

    @property
    def best(self) -> Candidate:
        return self.candidates[0]


def advise(length: int, causal: bool = False, device: str = "cpu", accuracy: float | None = None) -> Advice:
    """Return the mechanisms measured at a length, fastest first; raise `Unsupported` where no measurement fits."""
    if length < 1:
        raise BadInput(f"the length must be at least 1, got {length}")
    if accuracy is not None and not 0 < accuracy <= 1:
        raise BadInput(f"accuracy is a share of dense attention's score, above 0 and up to 1, got {accuracy}")
    if device not in DEVICES:
        raise BadInput(f"mechanisms are measured on {' and '.join(DEVICES)}, got device '{device}'")
    record = read_speeds(device)
    if record is None:
        raise Unsupported(
            f"nothing was measured on {device} yet, so there is no advice for it; measure with "
            f"python benchmarks/variants.py --device {device}"
        )
    mode = "causal" if causal else "bidirectional"
    dense = interpolate(total_times(record, DENSE, mode), length)
    if dense is None:
        lengths = sorted(total_times(record, DENSE, mode))
        known = f"{lengths[0]:,} to {lengths[-1]:,}" if lengths else "none"
        raise Unsupported(
            f"no measurement of {mode} dense attention fits a length of {length:,} on {device}; measured: {known}; "
            f"measure others with python benchmarks/variants.py --device {device} --lengths {length}"
        )
    dense_memory = interpolate(peak_memory(record, DENSE, mode), length) or 0.0
    found, left_out = [], {name: "not measured" for name in (*MECHANISMS, *MIXERS) if name not in record["cases"]}
    left_out.pop("multihead", None)  # dense attention with its projections
    for name in record["cases"]:
        seconds = interpolate(total_times(record, name, mode), length)
        if seconds is None:
            left_out[name] = f"not measured at {length:,}, {mode}"
            continue
        score, tasks = relative_score(name, causal=causal)
        if accuracy is not None and name != DENSE and (score is None or score < accuracy):
            left_out[name] = "not scored yet" if score is None else f"keeps {100 * score:.0f} % of the scores"
            continue
        memory = interpolate(peak_memory(record, name, mode), length) or 0.0
        found.append(Candidate(name, seconds, dense / seconds, memory, dense_memory, score, tasks))
    found.sort(key=lambda candidate: candidate.seconds)
    where = record.get("gpu") or record.get("cpu", device)
    sizes = f"batch {record['batch']}, {record['heads']} heads of {record['head_dim']}, {record['dtype']}"
    source = f"{where}, {record['date']}; {sizes}{', one thread' if device == 'cpu' else ''}"
    around = neighbours(total_times(record, DENSE, mode), length)
    return Advice(tuple(found), left_out, source, around, is_busy(record))


def relative_score(
    name: str, runs: Iterable[Mapping[str, Any]] | None = None, causal: bool | None = None
) -> tuple[float | None, tuple[str, ...]]:
    """Return the mean share of dense attention's score over the tasks both were trained on, and those tasks.

    `causal` chooses the tasks of decoders or of encoders; None: all.
    """
    by_task: dict[str, dict[str, list[float]]] = {}
    lower = set()
    for run in read_scores() if runs is None else runs:
        if "value" in run and causal in (None, is_causal_task(run)):
            by_task.setdefault(run["task"], {}).setdefault(run["attention"], []).append(run["value"])
            lower |= {run["task"]} if run["metric"] in LOWER_IS_BETTER else set()
    shares = {}
    for task, values in by_task.items():
        if name in values and DENSE in values:
            own, dense = statistics.mean(values[name]), statistics.mean(values[DENSE])
            top, bottom = (dense, own) if task in lower else (own, dense)
            shares[task] = top / bottom if bottom else 0.0
    return (statistics.mean(shares.values()) if shares else None), tuple(shares)
