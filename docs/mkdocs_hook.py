"""MkDocs hook: replace markers in pages by tables, help texts and pictures made from the source.

    <!-- table: attention -->        the rows of ``regard list attention``
    <!-- files: decoding -->         the files of a package, each with the first sentence of its docstring
    <!-- sizes: transformer -->      the sizes of a model, with their parameters
    <!-- fields: module.Class -->    the fields of a dataclass: default, and the comment or help beside it in the source
    <!-- help: translate -->         what ``regard translate --help`` prints
    <!-- datasets: sources -->       the datasets: what they are, where to get them, their licences
    <!-- datasets: files -->         the files that are read of each, and the recipes that use it
    <!-- variants: contents -->      tables of docs/variants.md (variants_tables.py)
    <!-- positions: back -->         tables of docs/positions.md (positions_tables.py)
    <!-- benchmark: own-data -->     what benchmarks/own_data.py measured: ours and the baselines
    <!-- plan: images -->            the plan of one of its cases, as it was printed
    <!-- picture: x.png | words -->  a picture of docs/assets with a caption; how to draw it, where it is not drawn yet

What stands between a marker and ``<!-- end -->`` was written into the page by make_tables.py, and is left as it is.

A built page that would fetch a script, a style or a picture from another machine is a warning, and so an error of the
strict build.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.regard")

HERE = Path(__file__).resolve().parent
ASSETS = HERE / "assets"
RESULTS = HERE.parent / "benchmarks" / "results"
SOURCE = HERE.parent / "src" / "regard"
_KINDS = "table|files|sizes|fields|help|picture|variants|positions|datasets|benchmark|plan"
MARK = re.compile(rf"^<!-- ({_KINDS}): (.+?) -->$(?P<written>\n(?:(?!<!--).*\n)*<!-- end -->$)?", re.MULTILINE)
_FETCHES = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\s>]+|<link\b[^>]*>", re.IGNORECASE
)
_FOREIGN = re.compile(r"href=[\"']?(?:https?:)?//", re.IGNORECASE)
_LOADED = re.compile(r"rel=[\"']?(?:stylesheet|icon|preload|preconnect|modulepreload|manifest)", re.IGNORECASE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the markers of a page, except those whose table is written below them."""
    up = "../" * page.file.src_uri.count("/")
    return MARK.sub(lambda found: found[0] if found["written"] else expand_marker(found[1], found[2], up), markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Warn about anything that a page would load from elsewhere."""
    for found in _FETCHES.finditer(output):
        tag = found[0]
        if not tag.lower().startswith("<link") or (_LOADED.search(tag) and _FOREIGN.search(tag)):
            log.warning("%s would fetch something from another machine: %s", page.file.src_uri, tag)
    return output


def expand_marker(kind: str, what: str, up: str = "") -> str:
    """Return the replacement of a marker; `up` is the path from the page to docs/."""
    if kind == "picture":
        return picture(*(part.strip() for part in what.split("|", 1)), up=up)
    if kind == "datasets":
        return table(datasets(what))
    if kind in ("variants", "positions"):
        sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
        found: str = import_module(f"{kind}_tables").expand(what)
        return found
    if kind == "benchmark":
        return table(scores(what))
    if kind == "plan":
        return f"```text\n{plan(what)}\n```"
    if kind == "help":
        return f"```text\n{help_text(what)}\n```"
    if kind == "fields":
        return table(fields(what))
    if kind == "files":
        return table(files(what))
    from regard import catalogue

    return table(catalogue.list(what) if kind == "table" else catalogue.sizes(what))


def table(rows: Sequence[dict[str, str]]) -> str:
    """Format rows as a Markdown table."""
    if not rows:
        return "(none here yet)"
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def datasets(what: str) -> list[dict[str, str]]:
    """Return where the datasets that recipes know come from, or their files with the recipes that use each."""
    from regard.data.datasets import DATASETS, datasets_of
    from regard.training.recipe import list_recipes, load_recipe

    if what == "sources":
        return [
            {
                "name": f"`{name}`",
                "what it is": info.what,
                "where to get it": f"[{re.match(r'https?://(github.com/.+|[^/]+)', info.home)[1]}]({info.home})",
                "licence": info.licence,
            }
            for name, info in DATASETS.items()
        ]
    needed = {name: datasets_of(load_recipe(name).data) for name in list_recipes()}
    return [
        {
            "name": f"`{name}`",
            "files that are read": info.files,
            "recipes": ", ".join(f"`{recipe}`" for recipe, names in needed.items() if name in names) or "-",
        }
        for name, info in DATASETS.items()
    ]


def files(package: str) -> list[dict[str, str]]:
    """Return the files of a package with the first sentence of each docstring; nothing is imported."""
    folder = SOURCE / package
    rows = []
    for path in sorted(folder.rglob("*.py"), key=lambda path: (len(path.relative_to(folder).parts), path)):
        if path.name not in ("__init__.py", "__main__.py"):
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            sentence = re.split(r"(?<=\w[.!?]) |[.:]$", " ".join(docstring.split("\n\n")[0].split()))[0]
            rows.append({"file": f"`{path.relative_to(folder)}`", "what": sentence.rstrip(".").replace("``", "`")})
    return rows


def fields(what: str) -> list[dict[str, str]]:
    """Return the fields of a dataclass: default, and its help and range, or the comment beside it in the source."""
    module_name, _, name = what.rpartition(".")
    cls = getattr(import_module(module_name), name)
    sources = [inspect.getsource(base) for base in reversed(cls.__mro__) if dataclasses.is_dataclass(base)]
    comments = dict(re.findall(r"^    (\w+): .*?  # (.+)$", "\n".join(sources), re.MULTILINE))
    rows = []
    for field in dataclasses.fields(cls):
        factory = field.default_factory
        value = field.default if factory is dataclasses.MISSING else factory()
        default = "required" if value is dataclasses.MISSING else f"`{value!r}`"
        notes = (field.metadata.get("help") or comments.get(field.name, ""), field.metadata.get("range") or "")
        what = "; ".join(str(note) for note in notes if str(note))
        rows.append({"name": f"`{field.name}`", "default": default, "what": what})
    return rows


def help_text(verb: str) -> str:
    """Return the help text of a command, printed 100 characters wide."""
    from regard.cli import main

    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        main([] if verb == "regard" else [*verb.split(), "--help"])
        out.flush()
    return "\n".join(line.rstrip() for line in out.buffer.getvalue().decode("utf-8").strip("\n").splitlines())


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases that a benchmark has measured."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))["cases"] if file.is_file() else []


def scores(name: str) -> list[dict[str, str]]:
    """Return a row for each case of a benchmark: the score of ours and of the baseline."""
    rows = []
    for case in cases(name):
        (_, ours), *others = case["contenders"].items()
        rows.append(
            {
                "data": case["data"],
                "starts from": case["start"],
                "measured": case["metric"],
                "Regard": f"{ours['score']:.3g}",
                "baseline": "; ".join(f"{found['score']:.3g} ({name})" for name, found in others),
                "time": f"{ours['seconds'] / 60:.1f} of {case['minutes']:g} minutes",
                "threads": str(case["threads"]),
                "seconds of a CPU": f"{ours['cpu_seconds']:.0f}" if "cpu_seconds" in ours else "not counted",
                "host load by others": f"{case['measured']['load']:.1f}",
            }
        )
    return rows


def plan(name: str) -> str:
    """Return the plan of a case of the own-data benchmark, fitted to a terminal."""
    found = [case for case in cases("own-data") if case["case"] == name]
    from regard.core.terminal_text import reflow

    return reflow("\n".join(found[-1]["run"]["plan"]), 100) if found else "not measured yet"


def picture(name: str, caption: str, up: str = "") -> str:
    """Return a picture of docs/assets with its caption, or how to draw it if it is missing."""
    if (ASSETS / name).is_file():
        return f"![{caption}]({up}assets/{name})\n\n*{caption}*"
    return f"*{caption}* Not drawn yet: `python docs/make_gallery.py` draws it once the trained models are there."
