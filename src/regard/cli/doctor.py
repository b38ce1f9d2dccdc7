"""``regard doctor``: what this machine can do, or whether a model keeps its contracts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.doctor.report import Finding


def doctor(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model to check: by name (regard list zoo), a folder, a run, or a checkpoint of a run.",
            show_default="the machine",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take a few seconds: skip disk, processes and training."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for checkpoints; its disk is measured.", show_default="here"),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=1000, help="Training steps to compare with a resumed run; 0 skips it."),
    ] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Measure this machine, or check a model.

    The machine: devices, dtypes that work and dtypes that crash, speed, threads, attention kernels, compiler, disk and
    processes, with recommended settings. A model: whether a batch gives the same as single inputs, padding or the
    future leaks, N steps equal one forward pass, all weights get gradients, and save and load keep the outputs; for a
    run also whether resuming is exact. Every check is a line; the exit status is 1 if one failed.

    \b
      regard doctor
      regard doctor --quick
      regard doctor en-de
      regard doctor runs/french
    """
    return _machine(quick, out, as_json) if source is None else _model(source, 0 if quick else steps, as_json)


def _machine(quick: bool, out: Path | None, as_json: bool) -> int:
    from regard.doctor.hardware import lines
    from regard.doctor.measure import measure
    from regard.runtime import hardware as core

    aloud = sys.stderr.isatty() and not as_json

    def say(line: str) -> None:
        if aloud:
            print(f"\r\x1b[Kmeasuring {line} ...", end="", file=sys.stderr, flush=True)

    found = measure(quick, out, say)
    if aloud:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    kept = core.cache_dir() / f"machine-{core.machine_key()}.json"
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return 0
    for label, words in lines(found):
        print(f"{label:14} {words}")
    where = f"~{os.sep}{kept.relative_to(Path.home())}" if kept.is_relative_to(Path.home()) else str(kept)
    print(f"{'kept':14} {where if kept.is_file() else f'nowhere: {core.cache_dir()} cannot be written'}")
    return 0


def _model(source: str, steps: int, as_json: bool) -> int:
    from regard.cli import FAILED
    from regard.core.terminal_text import terminal_width, wrap
    from regard.doctor import examine
    from regard.doctor.report import MESSAGE_COLUMN

    width = terminal_width()

    def say(finding: Finding) -> None:
        line = str(finding)
        if width:
            line = "\n".join(wrap(line, width, hanging=MESSAGE_COLUMN))
            colour = {"ok": "32", "failed": "1;31", "skipped": "33"}[finding.state]
            line = f"\x1b[{colour}m{line[:9]}\x1b[0m{line[9:]}"
        print(line, flush=True)

    report = examine(source, steps, None if as_json else say)
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        print(f"{report.subject}: {report.verdict}")
    return 0 if report.ok else FAILED
