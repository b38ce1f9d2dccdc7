"""``regard segment``: photos in, segments (sets of pixels) with labels out."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import Device, Json
from regard.cli.photos import Draw, Model, Photos, predict_photos


def segment(
    photos: Photos,
    model: Model = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="X",
            help="Leave out pixels, or segments, with a lower score.",
            show_default="of the model",
        ),
    ] = None,
    scale: Annotated[
        list[float] | None,
        typer.Option(min=0.1, max=8, metavar="X", help="Average over this size of the photo; may be repeated."),
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored photo.")] = False,
    draw: Draw = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Find what every pixel of a photo belongs to.

    Prints label, score and share of the photo of every segment: one for each class, or one for each object where the
    model tells objects apart (panoptic). With --draw a picture is written even where nothing is found.

    The model that ships (scene-segments) knows clothes and emoji in composed scenes, and gives one of its names to
    anything.

    \b
      regard segment docs/assets/scene-segments.png --draw segments.png
      regard segment street.jpg --model runs/camvid --draw segments.png
      regard segment street.jpg --model runs/camvid --scale 0.75 --scale 1 --flip
      regard segment photos/ --model runs/camvid --json
    """
    from regard.modalities.masks import Masks

    given = {"min_score": min_score, "scales": tuple(scale) if scale else None, "flip": flip or None}
    options = {name: value for name, value in given.items() if value is not None}
    return predict_photos("segment", Masks, photos, model, options, draw, as_json, device)
