"""The two formats: a graph to a file, and a file to a function of tensors."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from regard.core.errors import BadInput, Unsupported, shorten
from regard.core.shapes import Tensor
from regard.export.plan import Graph

SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")

Run = Callable[..., list[Tensor]]


def write_graph(graph: Graph, folder: Path, kind: str) -> Run:
    """Trace a graph, write it into a folder, and return the function that runs the written file."""
    path = folder / f"{graph.name}{SUFFIX[kind]}"
    free = [
        {i: torch.export.Dim.DYNAMIC for i, size in enumerate(axes) if isinstance(size, str)} for axes in graph.axes
    ]
    try:
        with torch.no_grad(), quiet():
            if kind == "onnx":
                torch.onnx.export(
                    graph.module(), graph.traced, path, dynamo=True, dynamic_shapes=(tuple(free),), verbose=False,
                    input_names=graph.inputs, output_names=graph.outputs, external_data=is_large(graph),
                )  # fmt: skip
            else:
                program = torch.export.export(graph.module(), graph.traced, dynamic_shapes=(tuple(free),))
                torch.export.save(program, path)
    except Exception as error:
        raise Unsupported(explain_failure(graph, kind, error)) from error
    return open_graph(graph, path)


def open_graph(graph: Graph, path: Path) -> Run:
    """Return the function that runs a written graph."""
    if path.suffix == SUFFIX["torch"]:
        program = torch.export.load(path).module()
        return lambda *inputs: [x.detach() for x in program(*inputs)]
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    if names != list(graph.inputs):
        raise Unsupported(f"the graph '{graph.name}' lost inputs: it has {', '.join(names)}")

    def run(*inputs: Tensor) -> list[Tensor]:
        found = session.run(None, dict(zip(names, (x.numpy() for x in inputs), strict=True)))
        return [torch.from_numpy(x) for x in found]

    return run


def check_packages(kind: str) -> None:
    """Raise `BadInput` where the packages of a format are missing."""
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None] if kind == "onnx" else []
    if missing:
        raise BadInput(f"--onnx needs {', '.join(missing)}: pip install 'regard[onnx]', or export with --torch")


def is_large(graph: Graph) -> bool:
    """Whether the weights do not fit into one file of ONNX (protobuf: 2 GiB)."""
    return sum(x.numel() * x.element_size() for x in graph.model.parameters()) > 1.9 * 2**30


def explain_failure(graph: Graph, kind: str, error: Exception) -> str:
    """Return why a graph cannot be written or run, and what to do."""
    text, name = str(error), type(graph.model).__name__
    other = "--onnx" if kind == "torch" else "--torch"
    if re.search(r"(?i)specialized|constraint|guard|expected.*shape", text):
        why = "its loop over the length is unrolled, so that the graph would take one length only"
    else:
        why = f"{type(error).__name__}: {shorten(text, 200)}"
    return f"{name} cannot be exported with --{kind}: {why}. Try {other}, or serve it (regard serve)"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what the exporters print and warn of: it is about their own insides."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
