"""``regard see`` for an image: draw over it what a classifier attends to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.images import describe_labels, load_image_classifier, path_exists
from regard.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from regard.see.pixel_attribution import ImagePoint, PixelAttribution
    from regard.tasks.image.image_classifier import ImageClassifier


def see_image(
    file: str,
    model: str | None,
    opened: Any,
    view: str,
    layer: int | None,
    head: int | None,
    query: str | None,
    label: str | None,
    files: Sequence[Path],
) -> int:
    """Say what is in an image, and draw what the model looked at, over it."""
    from regard import see
    from regard.cli import html_page, print_status
    from regard.interpret.image_attribution import attribute_image
    from regard.serve.http.model_pool import parse_model_argument

    _check_options(view, layer, head, label)
    name, classifier = load_image_classifier(file, model, opened, "cpu", gradients=True)
    place = None if query is None else _place(query, classifier.preprocess.size)
    photo = _shown(classifier, file)
    attribution, found = attribute_image(classifier, file, (label or True) if view == "relevance" else False)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it likes to talk about its font cache
    drawn, caption, unit = _drawn(attribution, view, layer, head, place, label or found.label)
    print_status(describe_labels(name, classifier))
    likely = list(found.probabilities.items())[:3]
    print("   ".join(f"{kind} {100 * share:.1f} %" for kind, share in likely), end="\n\n")
    title = f"{Path(file).name}: {found.label} ({100 * found.probability:.0f} %)"
    large = not isinstance(drawn, list | dict)
    if large:
        print(see.text_heatmap(drawn), end="\n\n")
    for picture in files:
        if html_page.is_page(picture):
            html_page.write_page(
                picture, parse_model_argument(name)[0], classifier, {"image": Path(file).read_bytes()}, title
            )
            if view != "class" or (layer, head, place) != (None, None, None):
                print_status(f"{picture} holds all layers, heads and places; --view and its like are for .png and .svg")
            print(f"drawn: {picture}")
            continue
        (see.overlay if large else see.overlay_grid)(photo, drawn, title, caption, unit, place, picture)
        print(f"drawn: {picture}")
    return 0


def _shown(classifier: ImageClassifier, file: str) -> Any:
    """A file as the model sees it; an error names the file."""
    if path_exists(file) and Path(file).is_dir():
        raise BadInput(f"{file} is a folder; give one of the images in it, or ask regard classify about all of them")
    try:
        return classifier.preprocess.view(file)
    except BadInput as error:
        raise BadInput(str(error) if file in str(error) else f"{file}: {error}") from None


def _check_options(view: str, layer: int | None, head: int | None, label: str | None) -> None:
    """Refuse options that a view has no use for."""
    for option, value, views in (
        ("--layer", layer, ("class", "heads")),
        ("--head", head, ("class",)),
        ("--label", label, ("relevance",)),
    ):
        if value is not None and view not in views:
            raise BadInput(f"{option} is for --view {' and '.join(views)}; {view} has no use for it")


def _place(query: str, size: tuple[int, int]) -> ImagePoint:
    """A place y,x in pixels of the image as the model sees it, as shares of its sides."""
    numbers = query.replace(" ", "").split(",")
    if len(numbers) != 2 or not all(n.isdecimal() for n in numbers):
        raise BadInput(f"--query is a row and a column, as 56,112; not '{query}'")
    y, x = map(int, numbers)
    if y >= size[0] or x >= size[1]:
        raise BadInput(f"--query {y},{x} is not on the image, of which the model sees {size[0]} x {size[1]} pixels")
    return (y + 0.5) / size[0], (x + 0.5) / size[1]


def _drawn(
    attribution: PixelAttribution, view: str, layer: int | None, head: int | None, place: ImagePoint | None, label: str
) -> tuple[Any, str, str]:
    """What a view shows: one map, or many by their names; what stands above it, and the unit."""
    import numpy as np

    from regard.see.overlay import SHARE_OF_MAX, TIMES_UNIFORM, relative_to_max, relative_to_uniform

    which = "from this place" if place is not None else _query_description(attribution)
    rough = "" if attribution.exact else "; what convolutions pool is taken for their receptive field"
    if view == "rollout":
        whole = relative_to_uniform(attribution.rollout(place).numpy(), attribution.uniform_weight())
        return whole, f"{which}, through {len(attribution.layers)} layers{rough}", TIMES_UNIFORM
    if view == "relevance":
        seen = "" if place is None else ", seen from this place"
        many = len(attribution.layers)
        said = f"what spoke for {label}{seen}: attention times its gradient, through {many} layers{rough}"
        return relative_to_max(attribution.relevance(place).numpy()), said, SHARE_OF_MAX
    if view == "layers":
        rows = [(f"layer {n}", _heads(attribution, n, place)) for n in range(len(attribution.layers))]
        return rows, f"{which}, every layer and head{rough}", TIMES_UNIFORM
    number = len(attribution.layers) - 1 if layer is None else layer
    maps = _heads(attribution, number, place)
    if view == "heads":
        return maps, f"{which}, layer {number}{rough}", TIMES_UNIFORM
    if head is not None and head >= len(maps):
        raise BadInput(f"there is no head {head} in layer {number}; there are 0 to {len(maps) - 1}")
    every = np.stack(list(maps.values()))
    who = f"head {head}" if head is not None else "its head" if len(maps) == 1 else f"mean of {len(maps)} heads"
    own = every[head] if head is not None else every.mean(0)
    return (
        own,
        f"{which}, layer {number}, {who}{_outside_share(own * attribution.uniform_weight(number))}{rough}",
        TIMES_UNIFORM,
    )


def _heads(attribution: PixelAttribution, layer: int, place: ImagePoint | None) -> dict[str, np.ndarray]:
    from regard.see.overlay import relative_to_uniform

    alike = attribution.uniform_weight(layer)
    return {f"head {h}": relative_to_uniform(w.numpy(), alike) for h, w in enumerate(attribution.heads(layer, place))}


def _query_description(attribution: PixelAttribution) -> str:
    """Whose look is drawn."""
    if attribution.reads[: attribution.prefix].sum() < 0.5:
        return "the tokens that the answer is read from"
    return "the class token" if int((attribution.reads > 0).sum()) == 1 else "the class and the distillation token"


def _outside_share(weights: np.ndarray) -> str:
    """What of a look fell on no pixel."""
    gone = 1 - float(weights.sum())
    return f"; {100 * gone:.0f} % of it is at no pixel" if gone > 0.005 else ""
