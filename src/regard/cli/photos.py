"""Photos on the command line: what ``regard detect``, ``segment`` and ``depth`` share, one for each kind of output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import BadInput, with_article

if TYPE_CHECKING:
    from regard.cli.batch_runner import Result
    from regard.modalities.base import Output
    from regard.tasks.predictor import Predictor

Photos = Annotated[
    list[str], typer.Argument(metavar="PHOTOS...", help="Image files, or folders of them.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="A model by name (regard list zoo), a folder, or a run.", show_default="the one that ships"
    ),
]
Draw = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Draw what is found over the photos: a file (.png, .svg), or a folder for several."
    ),
]

RECIPES = {  # that train a small model for a verb, on data that are made from a seed or small
    "ask": "vqa_scenes", "caption": "scene_captions", "depth": "rendered_unet", "detect": "scenes_detr_cpu",
    "segment": "scenes_segmenter",
}  # fmt: skip


def predict_photos(
    verb: str,
    kind: type[Output],
    photos: Sequence[str],
    model: str | None,
    options: Mapping[str, Any],
    draw: Path | None,
    as_json: bool,
    device: str,
) -> int:
    """Run a model with outputs of a kind on photos: print them, draw them, and return the exit status."""
    from regard.cli import print_status
    from regard.cli.batch_runner import BatchRunner, argument_items
    from regard.cli.options import make_options
    from regard.cli.prepare import prepare_predictor
    from regard.cli.run import draw_result

    found = load_photo_model(verb, kind, model)
    chosen = make_options(found, options)
    predictor = prepare_predictor(found, device)
    is_one = len(photos) == 1 and not Path(photos[0]).is_dir()
    if draw is not None and draw.suffix and draw.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"cannot draw to {draw}; end its name in .png or .svg, or give a folder")
    if draw is not None and draw.suffix and not is_one:
        raise typer.BadParameter(f"--draw {draw} is one file; give a folder for several photos")

    def show(result: Result) -> list[str]:
        name = "" if is_one else f"{result.item.name}\t"
        return [] if result.output is None else [f"{name}{line}" for line in str(result.output).split("\n")]

    def also(result: Result) -> None:
        if draw is not None:
            print_status(draw_result(result, draw))

    if labels := getattr(predictor, "labels", None):
        more = f" and {len(labels) - 10:,} more" if len(labels) > 10 else ""
        print_status(f"this model knows {', '.join(labels[:10])}{more}, and nothing else")
    runner = BatchRunner.of(predictor, chosen, verb, "give fewer or smaller photos")
    return runner.run(argument_items(predictor, photos), show, as_json, also=also)


def load_photo_model(verb: str, kind: type[Output], name: str | None) -> Predictor:
    """Return the model of a name, a folder or a run, or the one that ships, which takes photos and gives this kind."""
    from regard.cli.images import takes_images
    from regard.cli.prepare import load_predictor

    name = default_photo_model(verb, kind) if name is None else name
    found = load_predictor(name)
    if not takes_images(found) or found.outputs is not kind:
        what = type(found).__name__
        raise BadInput(
            f"{name} is {with_article(what)}; regard {verb} needs a model from photos to {kind.__name__.lower()}."
        )
    made: Predictor = found
    return made


def default_photo_model(verb: str, kind: type[Output], asks: bool = False) -> str:
    """Return the name of the shipped model from photos, with `asks` and a text about each, to outputs of a kind."""
    from regard.api import zoo_tasks
    from regard.core.spec import resolve
    from regard.modalities.image import Image
    from regard.modalities.text import Text
    from regard.tasks import PREDICTORS

    inputs = [Image, Text] if asks else [Image]

    for name, task in zoo_tasks().items():
        if task in PREDICTORS:
            cls: Any = resolve(PREDICTORS, task, "task")
            if cls.outputs is kind and [*cls.inputs.values()] == inputs:
                return name
    raise BadInput(
        f"No model for regard {verb} ships with this version; train one "
        f"(regard train {RECIPES[verb]} --out runs/{verb}) and give it: --model runs/{verb}. "
        "A folder saved by transformers will do where regard reads its model."
    )
