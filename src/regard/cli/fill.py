"""``regard fill``: the words that may stand where [MASK] stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json
from regard.core.errors import BadInput

if TYPE_CHECKING:
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
    k: Annotated[int, typer.Option("-k", "--top-k", min=1, metavar="N", help="How many words for each mask.")] = 5,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Guess the hidden words of a text.

    For each [MASK] its likeliest words come with their probabilities; with one mask in the text, so does the text with
    the word in its place. Several masks are guessed each by itself.

    \b
      regard fill "The [MASK] sat on the mat."
      regard fill "The [MASK] is on the [MASK]." -k 3
    """
    from regard.cli import lines
    from regard.modalities.mask_fills import fill_masks

    source = lines.read_lines(text, "text")
    filler, several = load_mask_filler(model, device), text is None or len(text) > 1
    read = 0
    for window in source:
        for line in window:
            lines.reject_bad_line(line)
        asked = [line.text for line in window if line.text.strip()]
        read += len(asked)
        for one, found in zip(asked, filler(asked, top_k=k), strict=True):
            masks = found.masks
            if as_json:
                print(json.dumps(found.to_json() | {"text": one}, ensure_ascii=False))
                continue
            if several:
                print(one.strip())
            for number, guesses in enumerate(masks, 1):
                if len(masks) > 1:
                    print(f"mask {number}")
                for guess in guesses:
                    whole = f"\t{fill_masks(one, [guess.word], filler.mask_token).strip()}" if len(masks) == 1 else ""
                    print(f"{guess.probability:.4f}\t{guess.word}{whole}")
    if not read:
        raise BadInput("there is nothing to fill in: the input is empty")
    return 0


def load_mask_filler(model: str, device: str = "auto") -> FillMask:
    """The filler of a name or a folder, ready."""
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.text.masked_lm import FillMask

    return prepare_predictor(
        load_predictor_as(FillMask, model, "which does not guess words; give a model that does"), device
    )
