"""``regard fill``: the words that may stand where [MASK] stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, make_options

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result
    from regard.tasks.text.masked_lm import FillMask


def fill(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Text with [MASK] in it; without it, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="A model by name (regard list zoo), or a folder, also a BERT of transformers."
        ),
    ] = "fill-en",
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="Words to print for each mask.")] = 5,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Predict the masked words of a text.

    For each [MASK] its most likely words are printed with their probabilities; where the text has one mask, also the
    text with the word in its place. Several masks are predicted independently.

    \b
      regard fill "The [MASK] sat on the mat."
      regard fill "The [MASK] is on the [MASK]." -k 3
    """
    from regard.cli import lines
    from regard.cli.batch_runner import BatchRunner, line_items
    from regard.modalities.mask_fills import fill_masks

    source = lines.read_lines(text, "text")
    filler, several = load_mask_filler(model, device), text is None or len(text) > 1

    def show(result: Result) -> Iterator[str]:
        if result.output is None:
            return
        given, masks = str(result.value), result.output.masks
        if several:
            yield given.strip()
        for number, guesses in enumerate(masks, 1):
            if len(masks) > 1:
                yield f"mask {number}"
            for guess in guesses:
                whole = f"\t{fill_masks(given, [guess.word], filler.mask_token).strip()}" if len(masks) == 1 else ""
                yield f"{guess.probability:.4f}\t{guess.word}{whole}"

    runner = BatchRunner.of(filler, make_options(filler, {"top_k": k}), "fill in")
    noun = "line" if text is None else "text"
    return runner.run(line_items(source, lambda line: filler.read_item({"text": line}), noun), show, as_json)


def load_mask_filler(model: str, device: str = "auto") -> FillMask:
    """Return the mask filler of a name or a folder, ready."""
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.text.masked_lm import FillMask

    return prepare_predictor(load_predictor_as(FillMask, model, "which does not predict masked words"), device)
