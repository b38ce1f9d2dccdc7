"""``regard depth``: photos in, the depth of every pixel out."""

from __future__ import annotations

from regard.cli.options import Device, Json
from regard.cli.photos import Draw, Model, Photos, predict_photos


def depth(
    photos: Photos,
    model: Model = None,
    draw: Draw = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Estimate how far away every pixel of a photo is.

    Prints the range and the median. Relative depth has no unit: 0 is the nearest pixel of the photo, 1 the farthest.

    No model for it ships: train one on rendered rooms, or give a DPT that transformers saved.

    \b
      regard train rendered_unet --out runs/depth
      regard depth street.jpg --model runs/depth --draw depth.png
      regard depth photos/ --model runs/depth --draw drawn/
      regard depth street.jpg --model runs/depth --json
    """
    from regard.modalities.depth import Depth

    return predict_photos("depth", Depth, photos, model, {}, draw, as_json, device)
