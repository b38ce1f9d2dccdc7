"""``regard caption``: photos in, a sentence for each out, and where the model looked at each of its words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json
from regard.cli.photos import Model, Photos

if TYPE_CHECKING:
    from regard.tasks.image.captioning import Captioner


def caption(
    photos: Photos,
    model: Model = None,
    beam_size: Annotated[
        int | None,
        typer.Option(min=1, max=256, metavar="N", help="Captions that the search keeps; 1: greedy.", show_default="5"),
    ] = None,
    k: Annotated[
        int, typer.Option("-k", "--num-candidates", min=1, metavar="N", help="Captions to print of each.")
    ] = 1,
    see: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw where it looked at each word of the best caption: .png, .svg or .html."
        ),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Write captions of photos.

    Prints the best caption of each photo. The model that ships has seen composed scenes of clothes and digits only, and
    says so; train one on photographs with the recipe flickr8k_attention.

    \b
      regard caption scene.png
      regard caption scene.png --see looked.png
      regard caption photos/ --model runs/captions --beam-size 10 -k 3 --json
    """
    from regard.cli import print_status
    from regard.cli.batch_runner import BatchRunner, Result, argument_items
    from regard.cli.options import make_options
    from regard.cli.output_files import check_output_files
    from regard.cli.photos import default_photo_model, load_photo_model
    from regard.cli.prepare import prepare_predictor
    from regard.cli.see import draw
    from regard.core.errors import BadInput, with_article
    from regard.interpret.figures import make_figure
    from regard.interpret.inspection import inspect
    from regard.modalities.text import Text
    from regard.tasks.image.captioning import Captioner

    name = default_photo_model("caption", Text) if model is None else model
    found = load_photo_model("caption", Text, name)
    if not isinstance(found, Captioner):
        raise BadInput(
            f"{name} is {with_article(type(found).__name__)}; regard caption needs a model that writes captions."
        )
    if see is not None:
        check_output_files([see])
        if len(photos) != 1 or Path(photos[0]).is_dir():
            raise typer.BadParameter(f"--see {see} draws one photo; give one file")
    given = {"num_candidates": k} | ({} if beam_size is None else {"beam_size": beam_size})
    options = make_options(found, given)
    prepare_predictor(found, device)
    print_status(f"this model knows {_known_words(found)}, and no other words")
    is_one = len(photos) == 1 and not Path(photos[0]).is_dir()

    def show(result: Result) -> list[str]:
        photo = "" if is_one else f"{result.item.name}\t"
        return [f"{photo}{each.text}" for each in result.output.candidates] if result.output is not None else []

    def also(result: Result) -> None:
        if see is not None:
            figure = make_figure(inspect(found, {"image": result.value}, name=name), source=result.item.name)
            for line in draw(figure, [see]):
                print_status(line)

    runner = BatchRunner.of(found, options, "caption", "give fewer or smaller photos")
    return runner.run(argument_items(found, photos), show, as_json, also=also)


def _known_words(captioner: Captioner) -> str:
    """Return some words of a captioner's vocabulary, and how many more there are."""
    from regard.tokens.word_tokenizer import word_ids

    words = [*word_ids(captioner.text)]
    return ", ".join(words[:24]) + (f" and {len(words) - 24:,} more" if len(words) > 24 else "")
