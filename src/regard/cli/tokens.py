"""``regard tokens``: texts in, the tokens and ids that a model reads them as out.

An input gives two lines, its tokens over their ids (of JSON one line). One that cannot be used leaves both empty, so
that lines 13 and 14 of the output are always line 7 of the input. On a terminal the two are folded to its width, with
an empty line between inputs.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Json

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result
    from regard.interpret.tokenization import TokenInfo
    from regard.tokens.tokenizer import Tokenizer


def tokens(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts; without them, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A model by name (regard list zoo; minilm), a folder (also one of transformers), a run, or a "
            "tokenizer.json.",
        ),
    ] = "en-de",
    as_json: Json = False,
) -> int:
    """Show the tokens and the ids that a model reads a text as.

    Tokens stand over their ids, as the vocabulary spells them: ▁ is a space before a word, and ## continues a word. An
    id with a + is that of a token which the model adds, one with a ? that of text which the vocabulary does not know.
    JSON also has the first and last character of each token in the text; null for an added token.

    \b
      regard tokens "Two unbelievably good dogs." --model fill-en
      regard tokens "The [MASK] sat on the mat." "Hello." --model minilm --json
      regard tokens --model tokenizer.json < lines.txt
    """
    from regard.cli import lines
    from regard.cli.batch_runner import BatchRunner, line_items
    from regard.interpret.tokenization import tokenize

    source = lines.read_lines(text, "texts")
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None
    reader = load_tokenizing_model(model)

    def show(result: Result) -> list[str]:
        found = fold_columns(result.output.found if result.output is not None else [], width)
        return found or ["", ""] if width is None else [*found, ""]

    runner = BatchRunner(lambda texts, _: [_Tokens(tokenize(reader, each)) for each in texts], "tokenize")
    return runner.run(line_items(source, lines.replace_control_characters), show, as_json)


def load_tokenizing_model(name: str) -> Any:
    """Return what reads text under a name: a model with its vocabulary, or a vocabulary alone."""
    from regard.cli import print_status
    from regard.cli.prepare import load_predictor
    from regard.core.errors import BadInput, RegardError, with_article
    from regard.interpret.tokenization import can_tokenize
    from regard.models.bert import BERT
    from regard.tasks.text.encoder_base import EncoderPredictor
    from regard.tokens.tokenizer import Tokenizer

    if Path(name).is_file():
        return Tokenizer.load(name)
    try:
        found = load_predictor(name)
    except RegardError as error:
        if (alone := _vocabulary(name)) is None:
            raise
        print_status(f"only the vocabulary of {name} can be read, so that what its model adds is not shown ({error})")
        return alone
    if not hasattr(found, "text") and (alone := _vocabulary(name)) is not None:  # a model that was saved without a task
        return EncoderPredictor(found, alone) if isinstance(found, BERT) else alone
    if not can_tokenize(found):
        what = f"{name} is {with_article(type(found).__name__)}"
        raise BadInput(f"{what}, which reads no text by a vocabulary: there are no tokens to show")
    return found


def _vocabulary(name: str) -> Tokenizer | None:
    """Return the vocabulary of a folder; None where it has none."""
    from regard.tokens.tokenizer import Tokenizer

    for folder in (Path(name), Path(name) / "model"):
        if any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
            return Tokenizer.load(folder)
    return None


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a text."""

    found: list[TokenInfo]

    def to_json(self) -> dict[str, Any]:
        return {
            "pieces": [each.piece for each in self.found],
            "ids": [each.id for each in self.found],
            "spans": [each.span for each in self.found],
            "added": [each.added for each in self.found],
            "unknown": [each.unknown for each in self.found],
        }


def fold_columns(found: list[TokenInfo], width: int | None) -> list[str]:
    """Return tokens over their ids, in columns: as many pairs of lines as fit a width, or one pair."""
    from regard.see.terminal import display_width, pad_to_width
    from regard.see.token_display import visible

    rows, used = list[tuple[list[str], list[str]]](), 0
    for each in found:
        piece, number = visible(each.piece), f"{'+' * each.added}{'?' * each.unknown}{each.id}"
        column = max(display_width(piece), display_width(number))
        if not rows or (width is not None and used + column > width):
            rows.append(([], []))
            used = 0
        rows[-1][0].append(pad_to_width(piece, column))
        rows[-1][1].append(pad_to_width(number, column))
        used += column + 2
    return ["  ".join(cells).rstrip() for pair in rows for cells in pair]
