"""The contracts of a model, one function each: it gives the line of one that is kept, and raises what it found.

    finite       every weight is a number
    tied         weights that should be one tensor are one
    runs         the model runs on its inputs, gives numbers, and leaves its inputs alone
    repeatable   in eval mode, two runs give the same
    batch        a row in a batch gives what it gives alone, without padding
    rows         no row depends on another one (gradient)
    padding      what stands behind the end of a row changes nothing (values and gradient)
    empty        a row of nothing but padding spoils neither the others nor their gradient
    causal       no output depends on a later input (gradient), and a prefix gives what the whole gives (values)
    steps        N steps equal one forward
    decoding     searching a batch finds what searching single inputs finds
    saved        saved and loaded, it gives the same, to the bit
    learns       every parameter gets a gradient
    bfloat16     the outputs in this type are close to those in float32
    float16      the same

What is equal is equal in float64, up to 1e-9 of the largest value (1e-4 where the model computes in float32 inside).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch

from regard.core.errors import RegardError, UnknownName, did_you_mean
from regard.doctor.equality import batch, decoding, repeatable, runs, saved, steps
from regard.doctor.influence import causal, empty, padding, rows
from regard.doctor.report import Failed, Finding, FindingCallback, Skipped
from regard.doctor.target import CheckTarget
from regard.doctor.weights import finite, learns, low_precision, tied

CHECKS: dict[str, Callable[[CheckTarget], str]] = {
    "finite": finite,
    "tied": tied,
    "runs": runs,
    "repeatable": repeatable,
    "batch": batch,
    "rows": rows,
    "padding": padding,
    "empty": empty,
    "causal": causal,
    "steps": steps,
    "decoding": decoding,
    "saved": saved,
    "learns": learns,
    "bfloat16": low_precision("bfloat16"),
    "float16": low_precision("float16"),
}
WEIGHTS = {"finite", "tied"}  # look at weights only
EQUALITIES = {"batch", "padding", "empty", "causal", "steps", "decoding", "saved", "bfloat16", "float16"}


def examine(
    target: CheckTarget, only: Iterable[str] | None = None, on_finding: FindingCallback | None = None
) -> list[Finding]:
    """Make the checks, or some of them, one after another; torch's random numbers are left as they were."""
    wanted = list(CHECKS) if only is None else list(only)
    for name in wanted:
        if name not in CHECKS:
            raise UnknownName(f"no check is called '{name}'; {did_you_mean(name, CHECKS)}")
    found: list[Finding] = []
    with torch.random.fork_rng(devices=[]):
        for name in wanted:
            torch.manual_seed(0)
            found.append(finding(name, lambda name=name: _checked(name, target)))  # type: ignore[misc]
            if on_finding is not None:
                on_finding(found[-1])
    return found


def _checked(name: str, target: CheckTarget) -> str:
    """One check, unless what was found before leaves it no meaning."""
    if target.has_nonfinite and name not in WEIGHTS:
        raise Skipped("some weights are not finite")
    if target.is_nondeterministic and name in EQUALITIES:
        raise Skipped("two runs differ, so nothing can be equal (see repeatable)")
    return CHECKS[name](target)


def finding(name: str, check: Callable[[], str]) -> Finding:
    """What a check found, however it ended."""
    began = time.monotonic()

    def made(state: str, message: str, location: str = "") -> Finding:
        return Finding(name, state, message, location, round(time.monotonic() - began, 3))  # type: ignore[arg-type]

    try:
        return made("ok", check())
    except Failed as failed:
        return made("failed", failed.message, failed.location)
    except Skipped as skipped:
        return made("skipped", str(skipped))
    except RegardError as error:
        return made("failed", str(error))
    except Exception as error:
        return made("failed", f"raised {type(error).__name__}: {' '.join(str(error).split())[:300]}")
