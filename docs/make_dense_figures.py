"""Draw what a trained detector, segmenter or depth model says of test images, beside the truth, with failures.

    python docs/make_dense_figures.py RUN NAME [--split test]     docs/assets/dense-NAME.png, from the run in a folder
    python docs/make_dense_figures.py scenes scenes --recipe scenes_detr_cpu      of a model that ships

Six rows, each the picture, the truth and what the model says: the first three images of the split, then the three on
which it scores worst. The score of an image is printed above it: for boxes, the share that is right (F1: same label and
an IoU of at least 0.5); for masks, the mean over the true segments of the IoU with the best found segment of that
label; for depth, δ1 after the best scale and shift.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

import regard
from regard.modalities.boxes import Box, Boxes
from regard.modalities.depth import Depth
from regard.modalities.masks import Mask, Masks
from regard.see.outputs import draw_output
from regard.tasks.image.depth_estimation import aligned_depth
from regard.training.recipe import load_recipe, load_saved_recipe

ASSETS = Path(__file__).resolve().parent / "assets"
FIRST, WORST = 3, 3
WIDE = 300  # pixels of a picture on the page


def truth_of(scene: Any, labels: list[str], predict: Any) -> Any:
    """Return the annotations of a scene as an output of the predictor's kind."""
    (rows, columns), kind = scene.size, predict.outputs
    if kind is Depth:
        inverse = 1 / scene.depth
        low, high = np.nanmin(inverse), np.nanmax(inverse)
        return Depth((high - inverse) / max(high - low, 1e-12))
    if kind is Boxes:
        pairs = zip(scene.boxes.tolist(), scene.classes.tolist(), strict=True)
        return Boxes(tuple(Box(*box, labels[k]) for box, k in pairs), columns, rows)
    if hasattr(predict, "things"):  # panoptic
        pairs = zip(scene.masks, scene.classes.tolist(), strict=True)
        return Masks(tuple(Mask(np.asarray(mask), labels[k]) for mask, k in pairs), columns, rows)
    return Masks.from_labels(scene.labels, dict(enumerate(labels)))


def score_of(found: Any, scene: Any, truth: Any) -> float:
    """Return how well an output fits the truth, 0 to 1."""
    if isinstance(found, Depth):
        depth = torch.from_numpy(scene.depth)[None]
        known = depth.isfinite() & (depth > 0)
        fitted = aligned_depth(torch.from_numpy(1 - found.values)[None], depth, known)
        ratio = torch.maximum(fitted / depth, depth / fitted)[known]
        return float((ratio < 1.25).float().mean())
    if isinstance(found, Boxes):
        free, right = list(truth.boxes), 0
        for box in found.boxes:
            best = max((b for b in free if b.label == box.label), key=box.iou, default=None)
            if best is not None and box.iou(best) >= 0.5:
                free.remove(best)
                right += 1
        return 2 * right / max(1, len(found) + len(truth))
    return float(
        np.mean([max([_iou(t, f) for f in found.masks if f.label == t.label], default=0) for t in truth.masks])
    )


def _iou(a: Mask, b: Mask) -> float:
    return float((a.pixels & b.pixels).sum() / max(1, (a.pixels | b.pixels).sum()))


def draw(run: str, name: str, split: str, limit: int, recipe_name: str | None = None) -> Path:
    """Draw the sheet of a run, or of a model and the data of a recipe, and return its file."""
    recipe = load_recipe(recipe_name) if recipe_name else load_saved_recipe(Path(run))
    predict = regard.load(run)
    scenes = recipe.data.load(split)
    labels, scored = list(recipe.data.labels()), []
    for i in range(min(len(scenes), limit)):
        scene = scenes[i]
        photo = Image.fromarray(scene.pixels.transpose(1, 2, 0))
        found, truth = predict(photo), truth_of(scene, labels, predict)
        scored.append((score_of(found, scene, truth), i, photo, truth, found))
    failures = sorted(scored[FIRST:], key=lambda row: row[:2])[:WORST]
    rows = []
    for what, chosen in (("", scored[:FIRST]), ("failure: ", failures)):
        for score, i, photo, truth, found in chosen:
            outputs, titles = _same_labels(truth, found), ("truth", f"{what}{100 * score:.0f} %")
            drawn = [_picture(photo, out, title) for out, title in zip(outputs, titles, strict=True)]
            rows.append([_plain(photo, f"{split} {i}", drawn[0].height), *drawn])
    high = [max(picture.height for picture in row) for row in rows]
    sheet = Image.new("RGB", (3 * WIDE, sum(high)), "white")
    for n, row in enumerate(rows):
        for k, picture in enumerate(row):
            sheet.paste(picture, (k * WIDE, sum(high[:n])))
    out = ASSETS / f"dense-{name}.png"
    sheet.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(out, optimize=True)
    return out


def _plain(photo: Image.Image, title: str, high: int) -> Image.Image:
    """Return the picture alone, at the bottom of a sheet of this height, below a title."""
    photo = photo.resize((WIDE, round(photo.height * WIDE / photo.width)), Image.Resampling.NEAREST)
    sheet = Image.new("RGB", (WIDE, max(high, photo.height)), "white")
    sheet.paste(photo, (0, sheet.height - photo.height))
    ImageDraw.Draw(sheet).text((WIDE // 2, 8), title, "black", anchor="mm")
    return sheet


def _same_labels(truth: Any, found: Any) -> tuple[Any, Any]:
    """Return masks with an empty one for every label that only the other has, so that colours agree."""
    if not isinstance(truth, Masks):
        return truth, found
    names, nothing = (
        [{m.label for m in each.masks} for each in (truth, found)],
        np.zeros((truth.height, truth.width), bool),
    )
    sides = []
    for each, own, other in zip((truth, found), names, reversed(names), strict=True):
        more = tuple(Mask(nothing, label, 0.0) for label in sorted(other - own))
        sides.append(Masks((*each.masks, *more), each.width, each.height))
    return sides[0], sides[1]


def _picture(photo: Image.Image, output: Any, title: str) -> Image.Image:
    if max(photo.size) < 200:  # text on a small picture would cover it
        scale = 200 / max(photo.size)
        photo, output = _enlarged(photo, output, round(scale))
    file = io.BytesIO()
    draw_output(photo, output, title).savefig(file, dpi=90)
    picture = Image.open(file).convert("RGB")
    return picture.resize((WIDE, round(picture.height * WIDE / picture.width)), Image.Resampling.LANCZOS)


def _enlarged(photo: Image.Image, output: Any, by: int) -> tuple[Image.Image, Any]:
    """Return a picture and its output, each pixel `by` times as wide and high."""
    wide, high = photo.width * by, photo.height * by
    photo = photo.resize((wide, high), Image.Resampling.NEAREST)
    if isinstance(output, Boxes):
        boxes = (Box(*(by * side for side in box[:4]), box.label, box.score) for box in output.boxes)
        return photo, Boxes(tuple(boxes), wide, high)
    if isinstance(output, Masks):
        masks = (Mask(mask.pixels.repeat(by, 0).repeat(by, 1), mask.label, mask.score) for mask in output.masks)
        return photo, Masks(tuple(masks), wide, high)
    return photo, Depth(output.values.repeat(by, 0).repeat(by, 1))


def main() -> None:
    """Draw the sheet of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the folder of a run, or a model")
    parser.add_argument("name")
    parser.add_argument("--split", default="test")
    parser.add_argument("--recipe", help="whose data it is, where the model is not the folder of a run")
    parser.add_argument("--limit", type=int, default=200, help="of the images that are scored")
    arguments = parser.parse_args()
    print(draw(arguments.run, arguments.name, arguments.split, arguments.limit, arguments.recipe))


if __name__ == "__main__":
    main()
