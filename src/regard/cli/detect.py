"""``regard detect``: photos in, boxes with labels and scores out."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import Device, Json
from regard.cli.photos import Draw, Model, Photos, predict_photos


def detect(
    photos: Photos,
    model: Model = None,
    min_score: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="X", help="Leave out boxes with a lower score.", show_default="0.5"),
    ] = None,
    draw: Draw = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Find objects in photos.

    Prints label, score and corners (left, top, right, bottom, in pixels) of every object, best first. With --draw a
    picture is written even where nothing is found.

    The model that ships (scenes) knows clothes in composed scenes.

    \b
      regard detect docs/assets/scene-objects.png --draw boxes.png
      regard detect street.jpg --model runs/scenes --draw boxes.png
      regard detect photos/ --model runs/scenes --min-score 0.8 --draw drawn/
      regard detect street.jpg --model runs/scenes --json
    """
    from regard.modalities.boxes import Boxes

    options = {} if min_score is None else {"min_score": min_score}
    return predict_photos("detect", Boxes, photos, model, options, draw, as_json, device)
