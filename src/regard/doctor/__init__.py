"""The doctor: what a machine can do, and whether a model keeps its contracts.

    machine()              the machine, measured once and remembered        hardware.py
    check(model, ...)      a module of your own                             checks.py
    examine("en-de")       a model that ships, a saved one, or a run        folders.py

From a shell: ``regard doctor``, ``regard doctor en-de``, ``regard doctor runs/french``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.doctor.hardware import Machine
    from regard.doctor.report import FindingCallback, Report


def machine(fresh: bool = False, quick: bool = False, folder: str | Path | None = None) -> Machine:
    """This machine: what works, how fast, and what to choose; as remembered, unless asked for `fresh`.

    Measuring takes some fifteen seconds, `quick` some four; `folder` is where the disk's speed is measured.
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
    """Examine a module: does a batch equal its rows, does padding or the future leak, does every weight learn, ...

    `inputs` are what it reads, a batch each (token numbers B N or vectors B N C), in order or by name; a model of this
    library needs none. `score_by_length` are the true lengths of the rows (a tensor, or one for each input). `causal` says of
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
    """Examine what a name or a folder holds: a model that ships, a saved one, a run or one of its checkpoints.

    A run also trains `steps` updates on from its newest checkpoint, in a copy and twice (0: it does not).
    """
    from regard.doctor.folders import examine

    return examine(source, steps, on_finding)
