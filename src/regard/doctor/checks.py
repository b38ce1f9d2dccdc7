"""The contracts of a model, one function each, which returns a summary line or raises `Failed`.

    finite       every weight is finite
    tied         tied weights are one tensor
    runs         the model runs, gives finite outputs, and does not modify its inputs
    repeatable   two runs in eval mode are equal
    batch        a row in a batch gives what it gives alone, without padding
    rows         no row depends on another one (gradient)
    padding      padding has no influence (values and gradient)
    empty        a fully padded row affects neither other rows nor their gradients
    causal       no output depends on a later input (gradient), and a prefix gives the same outputs (values)
    steps        N steps equal one forward
    decoding     search gives the same in a batch and for single inputs
    saved        outputs after save and load are bitwise equal
    learns       every parameter gets a gradient
    bfloat16     outputs are close to those in float32
    float16      the same

Equality is checked in float64 to 1e-9 of the largest value (1e-4 if the model computes in float32 internally).
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
WEIGHTS = {"finite", "tied"}  # need no forward pass
EQUALITIES = {"batch", "padding", "empty", "causal", "steps", "decoding", "saved", "bfloat16", "float16"}


def examine(
    target: CheckTarget, only: Iterable[str] | None = None, on_finding: FindingCallback | None = None
) -> list[Finding]:
    """Run all checks, or those in `only`; torch's random state is restored."""
    names = list(CHECKS) if only is None else list(only)
    for name in names:
        if name not in CHECKS:
            raise UnknownName(f"no check is called '{name}'; {did_you_mean(name, CHECKS)}")
    found: list[Finding] = []
    with torch.random.fork_rng(devices=[]):
        for name in names:
            torch.manual_seed(0)
            found.append(finding(name, lambda name=name: _checked(name, target)))  # type: ignore[misc]
            if on_finding is not None:
                on_finding(found[-1])
    return found


def _checked(name: str, target: CheckTarget) -> str:
    """Run one check, unless an earlier finding makes it meaningless."""
    if target.has_nonfinite and name not in WEIGHTS:
        raise Skipped("some weights are not finite")
    if target.is_nondeterministic and name in EQUALITIES:
        raise Skipped("two runs differ, so nothing can be equal (see repeatable)")
    return CHECKS[name](target)


def finding(name: str, check: Callable[[], str]) -> Finding:
    """Run a check and return its finding."""
    start = time.monotonic()

    def make(state: str, message: str, location: str = "") -> Finding:
        return Finding(name, state, message, location, round(time.monotonic() - start, 3))  # type: ignore[arg-type]

    try:
        return make("ok", check())
    except Failed as failed:
        return make("failed", failed.message, failed.location)
    except Skipped as skipped:
        return make("skipped", str(skipped))
    except RegardError as error:
        return make("failed", str(error))
    except Exception as error:
        return make("failed", f"raised {type(error).__name__}: {' '.join(str(error).split())[:300]}")
