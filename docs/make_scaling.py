"""Refresh docs/scaling.md: run its commands again and replace their output.

    python docs/make_scaling.py            rewrite the page
    python docs/make_scaling.py --check    only check that the page is up to date

The lines below the single `regard cost` command of a console block are replaced by its output. In a table whose first
column is `with`, a row is the last command above plus these options; in a table whose first column is `line`, a row is
that line of the block above. Columns in COLUMNS are filled in, others are left alone. The table of measurements comes
from benchmarks/results/cost-cpu.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard import cli
from regard.cost.report import count, size, span

PAGE = Path(__file__).resolve().parent / "scaling.md"
MEASURED = PAGE.parents[1] / "benchmarks" / "results" / "cost-cpu.json"
BLOCK = re.compile(r"```console\n(.*?)```\n|((?:^\|[^\n]*\|\n)+)", re.M | re.S)
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "parameters": lambda f: count(f["parameters"], "B"),
    "tokens": lambda f: count(f["run"]["items"], "B"),
    "updates": lambda f: f"{f['run']['updates']:,}",
    "kept": lambda f: size(f["saved_for_backward"]),
    "required": lambda f: size(f["memory"]["required"]),
    "fits": lambda f: "yes" if f["fits"] else "no",
    "sent": lambda f: size(sum(flow["bytes"] for flow in f["sent"].values())),
    "computing": lambda f: span(f["seconds"]["computing"]),
    "waiting": lambda f: span(waiting) if (waiting := f["seconds"]["all"] - f["seconds"]["computing"]) > 0 else "0",
    "an update": lambda f: span(f["seconds"]["all"]),
    "tokens/s": lambda f: f"{f['items_per_second']:,.0f}",
    "tokens/s a device": lambda f: f"{f['items_per_second'] / f['devices']:,.0f}",
    "of the peak": lambda f: f"{f['utilisation']:.0%}",
    "days": lambda f: f"{f['run']['seconds'] / 86400:.1f}",
    "device hours": lambda f: f"{f['run']['seconds'] / 3600 * f['devices']:,.0f}",
}


def refresh_page(text: str) -> str:
    """Return the page with fresh command output and tables."""
    above: list[str] = []

    def fresh(found: re.Match[str]) -> str:
        if found[1] is not None:
            lines = found[1].splitlines()
            above[:] = [line.removeprefix("$ ") for line in lines if line.startswith("$ regard cost")]
            if len(above) == 1 and len(lines) > 1:
                return f"```console\n{lines[0]}\n{command_output(above[0])}```\n"
            return found[0]
        return _table(found[2], above)

    return BLOCK.sub(fresh, text)


@lru_cache(maxsize=64)
def command_output(command: str) -> str:
    """Return the output of a command, without trailing spaces."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.main(shlex.split(command)[1:])
    if status:
        raise SystemExit(f"{command}: exit status {status}")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _table(text: str, above: list[str]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    head, body = rows[0], rows[2:]
    if head[:2] == ["model", "rows"]:
        return _markdown([head, *_measurements()])
    if head[0] not in ("with", "line"):
        return text
    for i, row in enumerate(body):
        words = row[0].strip("`")
        command = f"{above[-1]} {words}" if head[0] == "with" else above[int(words) - 1]
        found = json.loads(command_output(f"{command} --json"))
        for j, column in enumerate(head):
            if column in COLUMNS:
                body[i][j] = COLUMNS[column](found)
    return _markdown([head, *body])


def _measurements() -> list[list[str]]:
    """Return rows of estimated and measured costs."""
    rows = []
    for case in json.loads(MEASURED.read_text(encoding="utf-8"))["cases"]:
        estimated, real = case["contenders"]["estimated"], case["contenders"]["eager"]
        cells = [f"{x[key]:,.5g}" for key in ("memory_mib", "gflops") for x in (estimated, real)]
        ratio = estimated["memory_mib"] / real["memory_mib"]
        rows.append([case["model"], case["rows"], case["mode"], *cells[:2], f"{ratio:.3f}", *cells[2:]])
    return rows


def _markdown(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def main() -> int:
    """Write or check the page."""
    old = PAGE.read_text(encoding="utf-8")
    new = refresh_page(old)
    if "--check" in sys.argv:
        print("up to date" if new == old else "docs/scaling.md is out of date: python docs/make_scaling.py")
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
