"""Predictors that read pictures: the graph takes bytes B C Y X of the model's size and normalises them itself."""

from __future__ import annotations

from typing import Any

import torch

from regard.core.config import to_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.export.plan import Graph, Plan
from regard.export.text import ranked

LOAD_PICTURE = ("import math", "from PIL import Image, ImageOps")
EXAMPLE = "picture.png"  # that `check` shows to both
FIXED_VIEWS = ("squash", "center", "border", "corner")  # in which all pictures have one size


def picture_values(predictor: Any) -> tuple[dict[str, Any], Any]:
    """Return what config.json has of a preprocessing, and the function that makes example pixels."""
    shown = predictor.preprocess
    if shown.crop_mode not in FIXED_VIEWS:
        raise Unsupported(
            f"this model reads every picture in a size of its own (crop_mode='{shown.crop_mode}'), which is not "
            "exported; set one size (predictor.preprocess with crop_mode='squash'), or export its network (--network)"
        )

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return (torch.randint(0, 256, (rows, shown.channels, *shown.size), dtype=torch.uint8),)

    return {"preprocess": to_dict(shown)}, example


def picture_lines(shown: Any) -> str:
    """Return the lines of run.py that read `file` into `pixels`: the picture resized and cropped as the model sees it.

    `image` is the upright picture, `view` what the model sees.
    """
    (rows, columns), how = shown.size, f"Image.Resampling.{shown.resample.upper()}"
    high, wide = int(rows / shown.crop), int(columns / shown.crop)
    margin = "round((side - cut) / 2)" if shown.crop_rounding == "even" else "((side - cut) // 2)"
    # the size to which the picture is resized; where it lies in what the model sees
    sizes = {
        "squash": f"{wide}, {high}",
        "corner": f"(min(cut, max(1, round(side * min({wide} / image.width, {high} / image.height)))) "
        f"for side, cut in zip(image.size, ({wide}, {high})))",
        "border": f"(max(1, round(side / max(image.width / {wide}, image.height / {high}))) for side in image.size)",
        "center": f"(max(math.floor(side * max({wide} / image.width, {high} / image.height) + 1e-6), cut) "
        f"for side, cut in zip(image.size, ({columns}, {rows})))"
        if high == wide
        else f"(max(round(side / min(image.width / {wide}, image.height / {high})), cut) "
        f"for side, cut in zip(image.size, ({columns}, {rows})))",
    }
    lines = [
        "image = ImageOps.exif_transpose(Image.open(file))",
        "if image.mode[0] in 'IF':",
        "    sys.exit(f'{file} has more than 8 bits a pixel; save it with 8.')",
        "image = image.convert('RGBA')  # what is transparent is white",
        "image = Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image).convert('RGB')",
        f"width, height = {sizes[shown.crop_mode]}",
        f"resized = image.resize((width, height), {how})",
    ]
    if shown.crop_mode == "corner":
        place = "(0, 0)"
    elif shown.crop_mode == "border":
        place = f"tuple((cut - side) // 2 if side < cut else -{margin} for side, cut in zip(resized.size, ({columns}, {rows})))"  # noqa: E501
    else:
        place = f"tuple(-{margin} for side, cut in zip(resized.size, ({columns}, {rows})))"
    if (shown.crop_mode, shown.crop) == ("squash", 1.0):
        lines.append("view = resized")
    else:
        fill = tuple(round(255 * mean) for mean in (shown.mean * 3)[:3])
        lines += [f"view = Image.new('RGB', ({columns}, {rows}), {fill})", f"view.paste(resized, {place})"]
    array = "np.array(view.convert('L'))[None, None]"
    lines.append(f"pixels = {array if shown.channels == 1 else 'np.array(view).transpose(2, 0, 1)[None]'}")
    return "\n".join(f"    {line}" for line in lines)


def plan_classification(predictor: Any, name: str) -> Plan:
    """Return the plan of a classifier of pictures."""
    if getattr(predictor, "paths", 1) != 1:
        raise Unsupported(
            f"this model averages {predictor.paths} random paths of glimpses, which a graph cannot draw; load it and "
            "set predictor.paths = 1 (it follows the means), or serve it (regard serve)"
        )
    values, example = picture_values(predictor)

    def run(pixels: Tensor) -> tuple[Tensor, ...]:
        return (predictor.logits(predictor.preprocess.normalize(pixels), None).float().softmax(-1),)

    script = f"""\
model = load("model")
for file in sys.argv[1:]:
{picture_lines(predictor.preprocess)}
    (probabilities,) = model(pixels)
    best = probabilities[0].argmax()
    print(config["labels"][best], f"{{probabilities[0, best]:.4f}}", sep="\\t")
"""
    return Plan(
        (Graph("model", predictor.model, run, ("pixels",), ("probabilities",), example),),
        script,
        "PICTURE...",
        values | {"labels": list(predictor.labels)},
        LOAD_PICTURE,
        ("pillow",),
        examples=[(EXAMPLE,)],
        answer=lambda file: ranked(predictor(file)),
    )


def plan_segmentation(predictor: Any, name: str) -> Plan:
    """Return the plan of a semantic segmenter: one window, the whole picture or its middle."""
    values, example = picture_values(predictor)

    def run(pixels: Tensor) -> tuple[Tensor, ...]:
        return (predictor.model(predictor.preprocess.normalize(pixels)).float().softmax(1),)

    script = f"""\
model = load("model")
for file in sys.argv[1:]:
{picture_lines(predictor.preprocess)}
    (probabilities,) = model(pixels)
    classes = probabilities[0].argmax(0)
    Image.fromarray(classes.astype(np.uint8)).save(f"{{file}}.classes.png")  # of what the model sees
    shares = np.bincount(classes.ravel(), minlength=len(config["labels"])) / classes.size
    print(*(f"{{label}} {{share:.4f}}" for label, share in zip(config["labels"], shares) if share), sep="\\t")
"""

    def answer(file: str) -> str:
        pixels = torch.from_numpy(_pixels(predictor, file))
        classes = run(pixels)[0][0].argmax(0)
        shares = classes.flatten().bincount(minlength=len(predictor.labels)) / classes.numel()
        named = zip(predictor.labels, shares.tolist(), strict=True)
        return "\t".join(f"{label} {share:.4f}" for label, share in named if share)

    return Plan(
        (Graph("model", predictor.model, run, ("pixels",), ("probabilities",), example),),
        script,
        "PICTURE...",
        values | {"labels": list(predictor.labels)},
        LOAD_PICTURE,
        ("pillow",),
        examples=[(EXAMPLE,)],
        answer=torch.no_grad()(answer),
        note="it writes the classes of what the model sees, at the model's size: Regard slides over a larger picture "
        "and resizes the answer to it",
    )


def _pixels(predictor: Any, file: str) -> Any:
    import numpy as np

    found = np.array(predictor.preprocess.view(file))
    return found[None, None] if predictor.preprocess.channels == 1 else found.transpose(2, 0, 1)[None].copy()


def _letterboxed(predictor: Any, pixels: Tensor, sizes: Tensor) -> Tensor:
    """Return pixels normalised, 0 around the picture of these rows and columns."""
    rows, columns = (torch.arange(side, device=pixels.device) for side in pixels.shape[2:])
    inside = (rows < sizes[:, :1])[:, :, None] & (columns < sizes[:, 1:])[:, None, :]
    found: Tensor = predictor.preprocess.normalize(pixels) * inside[:, None]
    return found


def _sized(predictor: Any, example: Any) -> Any:
    """Return example pixels with the rows and columns of the picture on each canvas."""
    high, wide = predictor.preprocess.size

    def sized(rows: int, length: int) -> tuple[Tensor, ...]:
        sizes = [(high, wide), (high, max(1, wide // 2)), (max(1, high // 2), wide)]
        return (*example(rows, length), torch.tensor([sizes[n % 3] for n in range(rows)]))

    return sized


# the rows and columns of the picture in what the model sees
SIZES = "    sizes = np.array([[min(resized.height, view.height), min(resized.width, view.width)]])"


def plan_detection(predictor: Any, name: str) -> Plan:
    """Return the plan of an object detector."""
    from regard.tasks.image.object_detection import detections

    values, example = picture_values(predictor)

    def run(pixels: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        return tuple(detections(predictor.model(_letterboxed(predictor, pixels, sizes), sizes)))

    script = f"""\
model = load("model")
for file in sys.argv[1:]:
{picture_lines(predictor.preprocess)}
{SIZES}
    scores, classes, boxes = model(pixels, sizes)
    for n in scores[0].argsort()[::-1]:
        if scores[0, n] >= config["min_score"]:
            corners = boxes[0, n] * (image.size * 2)  # left, top, right, bottom
            print(config["labels"][classes[0, n]], f"{{scores[0, n]:.4f}}", *(f"{{x:.1f}}" for x in corners), sep="\\t")
"""
    threshold = 0.5

    def answer(file: str) -> str:
        found = predictor(file, min_score=threshold).boxes
        rows = ((each.label, each.score, (each.left, each.top, each.right, each.bottom)) for each in found)
        return "\n".join("\t".join([k, f"{score:.4f}", *(f"{x:.1f}" for x in box)]) for k, score, box in rows)

    return Plan(
        (
            Graph(
                "model",
                predictor.model,
                run,
                ("pixels", "sizes"),
                ("scores", "classes", "boxes"),
                _sized(predictor, example),
            ),
        ),
        script,
        "PICTURE...",
        values | {"labels": list(predictor.labels), "min_score": threshold},
        LOAD_PICTURE,
        ("pillow",),
        examples=[(EXAMPLE,)],
        answer=answer,
        tolerance=0.11,  # of boxes, printed in tenths of a pixel
    )


def plan_depth(predictor: Any, name: str) -> Plan:
    """Return the plan of a depth estimator."""
    values, example = picture_values(predictor)

    def run(pixels: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        return (predictor.model(_letterboxed(predictor, pixels, sizes))[:, 0].float(),)

    script = f"""\
model = load("model")
for file in sys.argv[1:]:
{picture_lines(predictor.preprocess)}
{SIZES}
    (inverse,) = model(pixels, sizes)
    scale = inverse.shape[1] / view.height
    near = inverse[0, : round(sizes[0, 0] * scale), : round(sizes[0, 1] * scale)]  # without what is around the picture
    near = (near - near.min()) / max(near.max() - near.min(), 1e-12)
    Image.fromarray((255 * near).astype(np.uint8)).resize(image.size).save(f"{{file}}.near.png")  # white is near
    print(f"{{near.mean():.4f}}")
"""

    @torch.no_grad()
    def answer(file: str) -> str:
        shown = predictor.preprocess
        (rows, columns), pixels = shown.content(file), torch.from_numpy(_pixels(predictor, file))
        inverse = run(pixels, torch.tensor([[rows, columns]]))[0][0]
        scale = inverse.shape[0] / shown.size[0]
        near = inverse[: round(rows * scale), : round(columns * scale)]
        return f"{float((near - near.min()).mean() / (near.max() - near.min()).clamp(min=1e-12)):.4f}"

    return Plan(
        (Graph("model", predictor.model, run, ("pixels", "sizes"), ("inverse_depth",), _sized(predictor, example)),),
        script,
        "PICTURE...",
        values,
        LOAD_PICTURE,
        ("pillow",),
        examples=[(EXAMPLE,)],
        answer=answer,
        note="it writes inverse depth as a picture (white is near) and prints its mean",
    )


def plan_question_answering(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that answers questions about a picture."""
    values, example = picture_values(predictor)
    words = predictor.vocabulary

    def run(pixels: Tensor, questions: Tensor) -> tuple[Tensor, ...]:
        return (predictor.model(predictor.preprocess.normalize(pixels), questions).float().softmax(-1),)

    def asked(rows: int, length: int) -> tuple[Tensor, ...]:
        return (*example(rows, length), torch.randint(2, words.size, (rows, length)))

    from regard.tokens.story_words import WORD

    script = f"""\
model = load("model")
numbers = {{word: 2 + i for i, word in enumerate(config["answers"] + config["words"])}}
for file, question in zip(sys.argv[1::2], sys.argv[2::2]):
{picture_lines(predictor.preprocess)}
    words = re.findall(config["word"], question.lower())
    if unknown := [word for word in words if word not in numbers]:
        sys.exit(f"The model does not know {{', '.join(unknown)}}.")
    (probabilities,) = model(pixels, np.array([[numbers[word] for word in words]]))
    best = probabilities[0].argmax()
    print(config["answers"][best], f"{{probabilities[0, best]:.4f}}", sep="\\t")
"""
    question = _example_question(predictor.known)
    longest = getattr(getattr(predictor.model, "config", None), "length", 10**6)
    return Plan(
        (Graph("model", predictor.model, run, ("pixels", "questions"), ("probabilities",), asked, longest),),
        script,
        "PICTURE QUESTION...",
        values | {"answers": list(words.answers), "words": list(words.others), "word": WORD.pattern},
        ("import re", *LOAD_PICTURE),
        ("pillow",),
        examples=[(EXAMPLE, question)],
        answer=lambda file, question: ranked(predictor(file, question)),
        note="questions of forms that the model was not taught are answered too: Regard refuses them",
    )


def _example_question(known: Any) -> str:
    """Return a question of the first form that a model was taught."""
    words = list[str]()
    for part in known.forms[0].split():
        slot = known.slots.get(part.strip("{}"), [part]) if part.startswith("{") else [part]
        words.append(next(word for word in slot if word and word not in words))
    return " ".join(words)
