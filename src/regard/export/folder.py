"""Write an export, and check it: the written graphs against the model, run.py against the predictor."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from regard.core.errors import BadInput, RegardError, Unsupported, shorten
from regard.core.shapes import Tensor
from regard.core.spec import resolve
from regard.export import FORMATS, PLANS, REFUSED
from regard.export.formats import SUFFIX, Run, check_packages, explain_failure, quiet, write_graph
from regard.export.network import plan_network
from regard.export.plan import CHECKED, OTHER, Graph, Plan
from regard.tasks import task_name
from regard.weights.folder import CARD, CONFIG, atomic_folder, read_json, write_json, write_text

MARK = "regard_export"  # the key of config.json that says what a folder is
SCRIPT_FILE = "run.py"
TOLERANCE = 2e-3  # of a difference, relative to the largest value of an output
TIME_LIMIT = 300  # seconds for run.py

LOAD = {
    "onnx": """\
    session = onnxruntime.InferenceSession(here / f"{name}.onnx", providers=["CPUExecutionProvider"])
    return lambda *inputs: session.run(None, dict(zip([each.name for each in session.get_inputs()], inputs)))
""",
    "torch": """\
    program = torch.export.load(here / f"{name}.pt2").module()
    return lambda *inputs: [x.detach().numpy() for x in program(*map(torch.from_numpy, inputs))]
""",
}
RUNTIME = {"onnx": "onnxruntime", "torch": "torch"}


@dataclass(frozen=True)
class Difference:
    """How far the written file of a graph is from the model on one batch, or run.py from the predictor on one input."""

    what: str  # "model", "run.py"
    on: str  # "1 x 5": a batch and its length; or the input
    largest: float  # of all outputs, absolute
    allowed: float

    def __str__(self) -> str:
        return f"{self.what}, {self.on}: largest difference {self.largest:.1e} (allowed {self.allowed:.1e})"


@dataclass(frozen=True)
class Exported:
    """A written export: its folder, its files, and how it differs from the model (without `check`: one batch)."""

    folder: Path
    files: tuple[str, ...]
    differences: tuple[Difference, ...]


def export_model(
    model: Any, folder: str | Path, kind: str = "onnx", *, check: bool = False, network: bool = False
) -> Exported:
    """Write a predictor, or a model, as graphs that run without Regard.

    `kind` is "onnx" or "torch". `check` compares the files with the model on batches of other sizes, and the answers of
    run.py, in a process that cannot import Regard, with those of the predictor. `network` exports the network alone:
    tensors in, tensors out. A folder that cannot be written, or whose files differ, is not left behind.
    """
    if kind not in FORMATS:
        raise BadInput(f"the format must be one of {', '.join(FORMATS)}, got {kind!r}")
    check_packages(kind)
    module: nn.Module = model if isinstance(model, nn.Module) else model.model
    weight = next(module.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise BadInput(
            f"a model is exported on the CPU in float32, got {weight.dtype} on {weight.device}; move it first"
        )
    was_training = module.training
    module.eval()
    try:
        with atomic_folder(Path(folder), _is_export) as new:
            return _write(model, new, kind, check, network, Path(folder))
    finally:
        module.train(was_training)


def make_plan(model: Any, network: bool = False) -> tuple[Plan, str]:
    """Return how a predictor or a model is exported, and the name of its task; raise `Unsupported` if it is not."""
    name = "" if isinstance(model, nn.Module) else task_name(model)
    if network or isinstance(model, nn.Module):
        return plan_network(model if isinstance(model, nn.Module) else model.model, True), name
    if name in REFUSED:
        raise Unsupported(
            f"{type(model).__name__} is not exported: {REFUSED[name]}. Serve it (regard serve), or export its network "
            "alone, tensors in and out (--network; network=True)"
        )
    if name not in PLANS:
        raise Unsupported(
            f"{type(model).__name__} is not exported: regard.export.PLANS has no plan for it; export its network alone "
            "(--network; network=True)"
        )
    plan: Plan = resolve(PLANS, name, "task")(model, name)
    return plan, name


def _write(model: Any, new: Path, kind: str, check: bool, network: bool, folder: Path) -> Exported:
    plan, name = make_plan(model, network)
    try:
        runs = [write_graph(graph, new, kind) for graph in plan.graphs]
    except Unsupported:
        alone = network or isinstance(model, nn.Module)
        if not alone or all(size != "length" for graph in plan.graphs for axes in graph.axes for size in axes):
            raise
        plan = plan_network(plan.graphs[0].model, False)  # its length is unrolled: the batch alone is free
        runs = [write_graph(graph, new, kind) for graph in plan.graphs]
    _write_files(plan, new, kind, name, model)
    batches = (*CHECKED, OTHER) if check else (OTHER,)
    found = [each for graph, run in zip(plan.graphs, runs, strict=True) for each in _compare(graph, run, kind, batches)]
    if check:
        found += _compare_script(plan, new)
    for each in found:
        if not each.largest <= each.allowed:
            raise RegardError(f"the export differs from the model and was not kept: {each}")
    return Exported(folder, tuple(sorted(file.name for file in new.iterdir())), tuple(found))


def _is_export(folder: Path) -> bool:
    """Whether a folder is an export, and may be replaced by another."""
    with suppress(RegardError):
        return MARK in read_json(folder / CONFIG)
    return False


# -- files -------------------------------------------------------------------------------------------------------------


def _write_files(plan: Plan, new: Path, kind: str, name: str, model: Any) -> None:
    graphs = {graph.name: {"file": f"{graph.name}{SUFFIX[kind]}"} | graph.describe() for graph in plan.graphs}
    about = {MARK: 1, "regard": regard.__version__, "format": kind, "task": name or None, "graphs": graphs}
    write_json(new / CONFIG, about | plan.values)
    if plan.tokenizer is not None:
        plan.tokenizer.save(new)
    write_text(new / SCRIPT_FILE, make_script(plan, kind, name))
    write_text(new / CARD, _readme(plan, kind, name, model))
    for given in plan.examples[:1]:
        if given[0] == "example.npz":
            _save_arrays(new / given[0], plan.graphs[0])


def make_script(plan: Plan, kind: str, name: str) -> str:
    """Return run.py."""
    standard = ["json", "sys", *(line.split()[1] for line in plan.imports if line in STANDARD)]
    others = [f"import {RUNTIME[kind]}", *(line for line in plan.imports if line not in STANDARD), "import numpy as np"]
    imports = [f"import {', '.join(sorted(standard))}", "from pathlib import Path", "", *_sorted_imports(others)]
    usage = plan.usage.replace("\\", "\\\\").replace('"', '\\"')  # a model's words must not end the docstring
    about = f"{_title(name or 'network')} without Regard: python {SCRIPT_FILE} {usage}"
    needs = " ".join(["numpy", RUNTIME[kind], *plan.packages])
    return f'''"""{about}

Needs: pip install {needs}
"""

{chr(10).join(imports)}

here = Path(__file__).parent
config = json.loads((here / "config.json").read_text(encoding="utf-8"))


def load(name):
{LOAD[kind]}

{plan.script}'''


STANDARD = ("import re", "import math")


def _sorted_imports(lines: list[str]) -> list[str]:
    return sorted(lines, key=lambda line: (line.split()[0] != "import", line.split()[1].lower()))


def _title(name: str) -> str:
    """Return the name of a task as a heading: "CTC speech recognition"."""
    words = name.replace("_", " ")
    return words.replace("ctc", "CTC") if words.startswith("ctc") else words[0].upper() + words[1:]


def _readme(plan: Plan, kind: str, name: str, model: Any) -> str:
    graphs = "\n".join(f"| `{graph.name}{SUFFIX[kind]}` | {_shapes(graph)} | {', '.join(graph.outputs[:4])}{' ...' if len(graph.outputs) > 4 else ''} |" for graph in plan.graphs)  # fmt: skip  # noqa: E501
    card = getattr(model, "card", None)
    note = f"\nIn `run.py`, {plan.note}.\n" if plan.note else ""
    return f"""# {_title(name or type(model).__name__)}

Exported by Regard {regard.__version__}. It runs without Regard:

    pip install {" ".join(["numpy", RUNTIME[kind], *plan.packages])}
    python {SCRIPT_FILE} {plan.usage}
{note}
| file | inputs | outputs |
|---|---|---|
{graphs}
| `config.json` | | the graphs, labels, preprocessing, special tokens |
{"| `tokenizer.json` | | the tokenizer, of the package tokenizers |" if plan.tokenizer is not None else ""}
{f"{chr(10)}{card}" if isinstance(card, str) else ""}"""


def _shapes(graph: Graph) -> str:
    named = [f"{name} [{', '.join(map(str, axes))}]" for name, axes in zip(graph.inputs, graph.axes, strict=True)]
    return ", ".join([*named[:4], *(["..."] if len(named) > 4 else [])])


# -- checks ------------------------------------------------------------------------------------------------------------


def _compare(graph: Graph, run: Run, kind: str, batches: tuple[tuple[int, int], ...]) -> Iterator[Difference]:
    """Yield how far a written graph is from the model on each of these batches."""
    module = graph.module()
    for rows, length in batches:
        inputs = graph.sample((rows, length))
        with torch.no_grad():
            wanted = module(*(x.clone() for x in inputs))
        try:
            found = run(*inputs)
        except Exception as error:
            raise Unsupported(explain_failure(graph, kind, error)) from error
        largest, scale = _largest_difference(wanted, tuple(found))
        yield Difference(graph.name, f"{rows} x {min(length, graph.longest)}", largest, TOLERANCE * max(1.0, scale))


def _largest_difference(wanted: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> tuple[float, float]:
    """Return the largest difference of all outputs, and the largest value; infinite where shapes differ."""
    if [x.shape for x in wanted] != [x.shape for x in found]:
        return math.inf, 1.0
    largest = scale = 0.0
    for a, b in zip(wanted, found, strict=True):
        a, b = a.double(), b.double()
        finite = a.isfinite() & b.isfinite()
        if not torch.equal(a[~finite], b[~finite]):
            return math.inf, 1.0
        if finite.any():
            largest, scale = max(largest, float((a - b)[finite].abs().max())), max(scale, float(a[finite].abs().max()))
    return largest, scale


BLOCKED = "import runpy, sys; sys.modules['regard'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"  # noqa: E501


def run_script(folder: Path, arguments: list[str]) -> str:
    """Return what run.py of an export prints, in a process that cannot import Regard."""
    words = [sys.executable, "-c", BLOCKED, str(folder / SCRIPT_FILE), *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, encoding="utf-8", timeout=TIME_LIMIT, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise RegardError(f"{SCRIPT_FILE} did not end within {TIME_LIMIT} seconds") from None
    if done.returncode:
        raise RegardError(
            f"{SCRIPT_FILE} failed: {done.stderr.strip().splitlines()[-1] if done.stderr else 'silently'}"
        )
    return done.stdout


def _compare_script(plan: Plan, folder: Path) -> Iterator[Difference]:
    """Yield how far the lines of run.py are from those of the predictor."""
    if plan.answer is None or not plan.examples:
        return
    import tempfile

    from regard.export.examples import write_example

    with tempfile.TemporaryDirectory() as scratch:
        examples = [
            tuple(write_example(each, Path(scratch), folder, plan) for each in given) for given in plan.examples
        ]
        printed = run_script(folder, [each for given in examples for each in given]).strip("\n")
        with quiet():  # an example need not be like what the model was trained on
            wanted = "\n".join(plan.answer(*given) for given in examples).strip("\n")
        shown = "; ".join(str(given[0]) for given in plan.examples)
        difference = line_difference(wanted, printed)
        if math.isinf(difference):
            raise RegardError(
                f"{SCRIPT_FILE} answers otherwise than Regard, so nothing was kept: {shorten(printed, 200)!r} for "
                f"{shorten(wanted, 200)!r} ({shorten(shown, 100)})"
            )
        yield Difference(SCRIPT_FILE, shown, difference, plan.tolerance)


def line_difference(wanted: str, found: str) -> float:
    """Return the largest difference between the numbers of two texts; infinite where anything else differs."""
    a, b = wanted.split(), found.split()
    if len(a) != len(b):
        return math.inf
    largest = 0.0
    for one, other in zip(a, b, strict=True):
        if one == other:
            continue
        try:
            difference = abs(float(one) - float(other))
        except ValueError:
            return math.inf
        if math.isnan(difference):
            return math.inf
        largest = max(largest, difference)
    return largest


def _save_arrays(path: Path, graph: Graph) -> None:
    import numpy as np

    arrays: dict[str, Any] = {name: x.numpy() for name, x in zip(graph.inputs, graph.traced, strict=True)}
    np.savez(path, **arrays)
