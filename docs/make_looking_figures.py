"""Draw what a captioner, a model of questions, a model of glimpses or DRAW does, with failures: pictures of the pages.

    python docs/make_looking_figures.py RUN NAME [--split test] [--limit 200]

RUN is the folder of a run. docs/assets/looking-NAME.png has six rows: the first three pictures of the split, then the
three that are worst. Of a captioner (scored by CIDEr-D against its references) the picture and what it attended at five
words; of questions (wrong answers, the surest first) the picture and what the answer attended; of glimpses (likewise)
the path. Of DRAW docs/assets/NAME.gif, sixteen drawings, step by step.
"""

from __future__ import annotations

import argparse
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import regard
from regard.training.recipe import load_saved_recipe

ASSETS = Path(__file__).resolve().parent / "assets"
FIRST, WORST = 3, 3
RIGHT = 10.0  # also the highest CIDEr-D
WORDS = 5  # of a caption, whose maps are shown
SMALL = {"a", "an", "the", "on", "in", "of", "and", "is", "are", "with", "to", "at", "his", "her", "its", "by"}


class Example(NamedTuple):
    """One picture, how good the answer is (`RIGHT`: right), and its panels: pixels, a map or none, a title."""

    score: float
    panels: list[tuple[np.ndarray, np.ndarray | None, str]]


def caption_examples(predict: Any, data: Any, split: str, limit: int) -> list[Example]:
    """Return captions of photographs with their CIDEr-D."""
    from regard.data.images.captions import clean_caption
    from regard.metrics.cider import cider

    photos, references = captioned(data, split, limit)
    captions = [str(predict(photo)) for photo in photos]
    cleaned = [[clean_caption(each) for each in several] for several in references]
    return [
        Example(score, CaptionPanels(predict, photo, caption, several[0], score))  # type: ignore[arg-type]
        for score, photo, caption, several in zip(cider(captions, cleaned), photos, captions, references, strict=True)
    ]


class CaptionPanels:
    """The panels of one caption, made when they are drawn."""

    def __init__(self, predict: Any, photo: Any, caption: str, reference: str, score: float) -> None:
        self.given = predict, photo, caption, reference, score

    def __iter__(self) -> Any:
        from regard.interpret.image_maps import find_maps

        predict, photo, caption, reference, score = self.given
        shown = np.asarray(predict.preprocess.view(photo))
        title = "\n".join(
            [*textwrap.wrap(caption, 34), *textwrap.wrap(f"({reference})", 40)[:3], f"CIDEr-D {score:.2f}"]
        )
        yield shown, None, title
        maps = [each for each in find_maps(predict, photo) if each.label not in SMALL][:WORDS]
        for each in maps:
            yield each.picture, each.weights, each.label


def captioned(data: Any, split: str, limit: int) -> tuple[list[Any], list[list[str]]]:
    """Return the pictures of a split and their captions, of photographs or of composed scenes."""
    if hasattr(data, "rows"):
        files, rows = data.files(), data.part(split)[:limit]
        return [files.read(row.image) for row in rows], [row.captions for row in rows]
    from regard.data.images.scene_captions import CaptionComposer

    composer = CaptionComposer(data, data.split(split))
    scenes = [composer[i] for i in range(min(limit, data.eval_examples))]
    return [scene.pixels.transpose(1, 2, 0) for scene in scenes], [[scene.caption] for scene in scenes]


def question_examples(predict: Any, data: Any, split: str, limit: int) -> list[Example]:
    """Return questions about scenes, one of each kind in turn; the score is the right answer's probability."""
    from regard.data.images.scene_questions import QuestionComposer
    from regard.interpret.image_maps import find_maps

    composer, found = QuestionComposer(data, data.split(split)), []
    for i in range(min(limit, data.eval_examples)):
        scene = composer.compose(i)
        asked, picture = scene.questions[i % 4], scene.pixels.transpose(1, 2, 0)
        item = {"image": picture, "question": asked.text}
        said = predict(picture, asked.text)
        (each,) = find_maps(predict, item)
        says = f"{said.label} ({100 * said.probability:.0f} %)" + (
            "" if said.label == asked.answer else f", not {asked.answer}"
        )
        right = said.probabilities.get(asked.answer, 0.0) if said.label != asked.answer else RIGHT
        title = "\n".join([*textwrap.wrap(asked.text, 40), says])
        found.append(Example(right, [(picture, None, title), (each.picture, each.weights, "what the answer attended")]))
    return found


def glimpse_examples(predict: Any, data: Any, split: str, limit: int) -> list[Example]:
    """Return classified images with the path over them; the score is the right label's probability."""
    from regard.interpret.figures import make_figure
    from regard.interpret.inspection import inspect

    part, labels, found = data.load(split), predict.labels, []
    for start in range(0, min(limit, len(part)), 100):
        batch = part.collate(np_rows(start, min(limit, len(part), start + 100))).to("cpu")
        for pixels, label in zip(batch.pixels.numpy(), batch.labels.tolist(), strict=True):
            image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
            said = predict(image)
            right = said.probabilities.get(labels[label], 0.0) if said.label != labels[label] else RIGHT
            found.append((right, image, said, labels[label]))
    chosen = found[:FIRST] + sorted((row for row in found[FIRST:] if row[0] < RIGHT), key=lambda row: row[0])[:WORST]
    drawn = []
    for right, image, said, label in chosen:
        file = io.BytesIO()
        image.save(file, "PNG")
        path = ASSETS / ".glimpses.png"
        make_figure(inspect(predict, {"image": file.getvalue()}), source=f"a {label}").save(path)
        drawn.append(Example(right, [(np.asarray(Image.open(path).convert("RGB")), None, f"says {said.label}")]))
        path.unlink()
    return drawn


def np_rows(start: int, stop: int) -> Any:
    """Return row numbers as a tensor."""
    import torch

    return torch.arange(start, stop)


def draw_sheet(chosen: Sequence[Example], file: Path) -> None:
    """Draw a row of panels for every example."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [list(each.panels) for each in chosen]
    wide = max(map(len, rows))
    figure, axes = plt.subplots(
        len(rows),
        wide,
        figsize=(2.3 * wide if wide > 1 else 7, 2.6 * len(rows)),
        constrained_layout=True,
        squeeze=False,
    )
    for number, (panels, own) in enumerate(zip(rows, axes, strict=True)):
        for axis in own:
            axis.axis("off")
        for k, ((picture, weights, title), axis) in enumerate(zip(panels, own, strict=False)):
            axis.imshow(picture)
            if weights is not None:
                bright = weights / max(float(weights.max()), 1e-12)
                axis.imshow(np.zeros_like(bright), cmap="gray", alpha=0.75 * (1 - bright), vmin=0, vmax=1)
            mark = "failure: " if number >= FIRST and not k else ""
            axis.set_title(f"{mark}{title}", fontsize=7)
    figure.savefig(file, dpi=80)
    plt.close(figure)


def draw_animation(predict: Any, file: Path) -> None:
    """Draw sixteen drawings of DRAW, step by step, as one GIF."""
    drawn = predict(list(range(16)))
    frames = [
        np.concatenate([np.concatenate([drawn[4 * y + x].frames[step] for x in range(4)], 1) for y in range(4)], 0)
        for step in range(len(drawn[0].frames))
    ]
    shown = [Image.fromarray(each).resize((224, 224), Image.Resampling.NEAREST) for each in frames]
    times = [max(20, 3000 // len(shown))] * (len(shown) - 1) + [1500]
    shown[0].save(file, save_all=True, append_images=shown[1:], duration=times, loop=0)


EXAMPLES = {
    "Captioner": caption_examples,
    "VisualQuestionAnswerer": question_examples,
    "GlimpseClassifier": glimpse_examples,
}


def draw(run: Path, name: str, split: str, limit: int) -> Path:
    """Draw the picture of a run and return its file."""
    recipe, predict = load_saved_recipe(run), regard.load(run)
    kind = type(predict).__name__
    if kind == "LatentImageGenerator":
        draw_animation(predict, ASSETS / f"{name}.gif")
        return ASSETS / f"{name}.gif"
    found = EXAMPLES[kind](predict, recipe.data, split, limit)
    worst = sorted((each for each in found[FIRST:] if each.score < RIGHT), key=lambda each: each.score)[:WORST]
    file = ASSETS / f"looking-{name}.png"
    draw_sheet([*found[:FIRST], *worst], file)
    return file


def main() -> None:
    """Draw the picture of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=200, help="of the pictures that are scored")
    arguments = parser.parse_args()
    print(draw(arguments.run, arguments.name, arguments.split, arguments.limit))


if __name__ == "__main__":
    main()
