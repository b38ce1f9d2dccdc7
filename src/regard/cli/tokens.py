"""``regard tokens``: texts in, the pieces and numbers that a model reads them as out.

An input gives two lines, its pieces over their numbers (of JSON one line). One that cannot be used leaves them empty,
so that lines 13 and 14 of the output are always line 7 of the input, and is named on stderr; the status at the end is
then 1. On a terminal the two are folded to its width, with an empty line between inputs.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.line_processor import LineProcessor
from regard.cli.options import Json

if TYPE_CHECKING:
    from regard.cli.lines import Line
    from regard.interpret.tokenization import TokenInfo
    from regard.tokens.tokenizer import Tokenizer


def tokens(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A model by name (regard list zoo; minilm), a folder (also one of transformers), a run, or a "
            "tokenizer.json.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts; without them, lines are read from stdin."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the pieces and the numbers that a model reads a text as.

    Pieces stand over their numbers, with the marks of the vocabulary: a space before a word is shown as ▁, and ## goes
    on with a word. A number with a + is that of a token which the model adds, one with a ? that of text which the
    vocabulary does not know. JSON also has where each piece stands in the text, in characters; null: nowhere.

    \b
      regard tokens "Two unbelievably good dogs." --model fill-en
      regard tokens "The [MASK] sat on the mat." "Hello." --model minilm --json
      regard tokens --model tokenizer.json < lines.txt
    """
    from regard.cli import lines

    windows = lines.read_lines(text, "texts")
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else None
    return _Processor(load_tokenizing_model(model), width, as_json).run(windows, "cut into tokens")


def load_tokenizing_model(name: str) -> Any:
    """What reads text under a name: a model with its vocabulary, or a vocabulary by itself."""
    from regard.cli import print_status
    from regard.cli.prepare import load_predictor
    from regard.core.errors import BadInput, RegardError
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
        what = f"{name} is a {type(found).__name__}"
        raise BadInput(f"{what}, which reads no text by a vocabulary: there are no tokens to show")
    return found


def _vocabulary(name: str) -> Tokenizer | None:
    """The vocabulary in a folder, where it holds one."""
    from regard.tokens.tokenizer import Tokenizer

    for folder in (Path(name), Path(name) / "model"):
        if any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
            return Tokenizer.load(folder)
    return None


class _Processor(LineProcessor["list[Piece]"]):
    """Windows of lines in, pieces and numbers out; keeps count."""

    failure_message = "could not be cut into tokens: left empty ({})"

    def __init__(self, reader: Any, width: int | None, as_json: bool) -> None:
        super().__init__()
        self.reader, self.width, self.as_json = reader, width, as_json

    def __call__(self, window: list[Line]) -> list[str]:
        """The output lines of a window."""
        self.check(window)
        usable = [line for line in window if line.text.strip()]
        found = dict(zip([line.number for line in usable], self.predict_with_fallback(usable, lost=[]), strict=True))
        self.done += sum(bool(each) for each in found.values())
        return [row for line in window for row in self._shown(line, found.get(line.number, []))]

    def predict(self, some: list[Line]) -> list[list[TokenInfo]]:
        """The pieces of each."""
        from regard.cli.lines import replace_control_characters
        from regard.interpret.tokenization import tokenize

        return [tokenize(self.reader, replace_control_characters(line)) for line in some]

    def _shown(self, line: Line, found: list[TokenInfo]) -> Iterator[str]:
        if self.as_json:
            said = _json(found) if found else self.error(line)
            yield json.dumps({"number": line.number, "text": line.text, **said}, ensure_ascii=False)
        elif self.width is None:
            yield from fold_columns(found, None) or ("", "")
        else:
            yield from [*fold_columns(found, self.width), ""]


def _json(found: list[TokenInfo]) -> dict[str, Any]:
    return {
        "pieces": [each.piece for each in found],
        "ids": [each.id for each in found],
        "spans": [each.span for each in found],
        "added": [each.added for each in found],
        "unknown": [each.unknown for each in found],
    }


def fold_columns(found: list[TokenInfo], width: int | None) -> list[str]:
    """Pieces over their numbers, in columns; as many pairs of lines as fit a width, or one pair."""
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
