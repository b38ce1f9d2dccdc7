"""The doctor: measure a machine, and check that a model keeps its contracts.

    machine()              measure the machine once and cache the result    hardware.py
    check(model, ...)      check any nn.Module                              checks.py
    examine("en-de")       check a shipped or saved model, or a run         folders.py

From a shell: ``regard doctor``, ``regard doctor en-de``, ``regard doctor runs/french``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.lazy_exports import public_dir

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.doctor.hardware import Machine
    from regard.doctor.report import FindingCallback, Report


def machine(fresh: bool = False, quick: bool = False, folder: str | Path | None = None) -> Machine:
    """Return what works on this machine, how fast, and what to choose; cached unless `fresh`.

    Measuring takes about 15 seconds, with `quick` about 4; `folder` is where disk speed is measured.
    """
    from regard.doctor.measure import load_measured, measure

    known = None if fresh else load_measured()
    return known if known is not None else measure(quick, None if folder is None else Path(folder))


def check(
    model: nn.Module,
    inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor] | None = None,
    *,
    causal: bool | int | str | None = None,
    lengths: Tensor | Sequence[Any] | Mapping[str, Tensor] | None = None,
    call: Callable[..., Any] | None = None,
    tied: Sequence[Sequence[str]] = (),
    only: Iterable[str] | None = None,
    on_finding: FindingCallback | None = None,
) -> Report:
    """Check a module: batch equals single rows, no leak from padding or the future, every weight learns, ...

    `inputs` are batches (token ids B N or vectors B N C), in order or by name; models of this library need
    none. `lengths` are the true lengths of the rows (a tensor, or one for each input). `causal` says of
    which input the output may not look ahead: True (the last), its number or its name. The model is called with its
    inputs and, where its arguments have a name for them, with the lengths or a mask; `call(model, *inputs, *lengths)`
    does it otherwise. `tied` are groups of parameter names that should be one tensor. The model is left as it is.
    """
    from regard.doctor.checks import examine as checks
    from regard.doctor.example_inputs import example_inputs
    from regard.doctor.report import Report
    from regard.doctor.target import CheckTarget, parse_inputs

    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    reads = example_inputs(model) if inputs is None else parse_inputs(model, inputs, lengths, causal, call)
    found = checks(CheckTarget(model, reads, tied), only, on_finding)
    return Report(type(model).__name__, tuple(found))


def examine(source: str | Path, steps: int = 2, on_finding: FindingCallback | None = None) -> Report:
    """Check what a name or a folder holds: a shipped or saved model, a run or one of its checkpoints.

    A run is also resumed twice for `steps` updates in a copy, to check exact resumption (0: skip).
    """
    from regard.doctor.folders import examine

    return examine(source, steps, on_finding)


__dir__ = public_dir(__name__)
