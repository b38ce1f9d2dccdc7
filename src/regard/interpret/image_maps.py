"""Maps of a predictor that reads a picture, one for each thing that it says: what interpret.faithfulness scores.

    classifier          class, rollout, relevance, pooling, glimpses     one map, of the predicted label
    detector            cross, rollout                                   one for each found object
    segmenter           class                                            one for each class that was found
    captioner           align                                            one for each word
    questions           cross                                            one, of the token that the answer is read from

Each comes with the picture that the model was shown, the part of the given image that this is, and the probability of
the answer on any other picture of that size.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.core.errors import BadInput, Unsupported, did_you_mean
from regard.core.shapes import Tensor
from regard.interpret.image_attribution import attribute_image, pooling_attributions, watch_image
from regard.interpret.inspection import inspect
from regard.modalities.image import Image

Score = Callable[[Sequence[np.ndarray]], list[float]]
CHUNK = 32  # pictures scored at a time


@dataclass(frozen=True, eq=False)
class TargetMap:
    """A map of one thing that a model says of a picture."""

    label: str
    weights: np.ndarray  # Y X, at least 0
    picture: np.ndarray  # Y X C or Y X, bytes: what the model was shown
    region: tuple[float, float, float, float]  # of the given image, in its pixels: left, top, right, bottom
    score: Score  # pictures to the probability of the answer
    box: tuple[float, float, float, float] | None = None  # of a found object, in fractions of the picture
    query: int = -1
    of_class: bool = False  # of all pixels of a class, not of one object


def find_maps(predictor: Any, image: Any, method: str = "", like: Sequence[TargetMap] = ()) -> list[TargetMap]:
    """Return the maps of what a predictor says of an image; of what `like` says, if that is given.

    An empty method means the first of the predictor's.
    """
    make = next((SOURCES[base.__name__] for base in type(predictor).__mro__ if base.__name__ in SOURCES), None)
    if make is None:
        raise Unsupported(
            f"{type(predictor).__name__} has no maps of an image; supported: {', '.join(SOURCES)}, and classes derived "
            "from them"
        )
    found: list[TargetMap] = make(predictor, image, method, like)
    return found


def classifier_maps(predictor: Any, image: Any, method: str, like: Sequence[TargetMap]) -> list[TargetMap]:
    """Return the map of the predicted label."""
    chosen = _choose(
        method, ("glimpses",) if hasattr(predictor, "glimpses") else ("rollout", "class", "relevance", "pooling")
    )
    label = like[0].label if like else predictor(image).label
    if chosen == "glimpses":
        seen, _ = watch_image(predictor, image)
        glimpses = [trace.weights for trace in seen.traces("glimpse")]
        weights = torch.cat(glimpses, 2)[0, 0].mean(0).unflatten(0, predictor.preprocess.size)
    elif chosen == "pooling":
        seen, _ = watch_image(predictor, image)
        poolings = pooling_attributions(seen.last_pass()).values()
        weights = torch.stack([each.heads(-1).mean(0) for each in poolings]).mean(0)
    else:
        attribution, _ = attribute_image(predictor, image, label if chosen == "relevance" else False)
        weights = (
            attribution.rollout() if chosen == "rollout"
            else attribution.relevance() if chosen == "relevance"
            else attribution.heads(-1).mean(0)
        )  # fmt: skip
    index = predictor.labels.index(label)

    def probability(values: Tensor) -> Tensor:
        return predictor.logits(values, None).float().softmax(-1)[:, index]

    return [_on_view(predictor, image, label, weights, probability)]


def captioner_maps(predictor: Any, image: Any, method: str, like: Sequence[TargetMap]) -> list[TargetMap]:
    """Return a map for each word of the caption: the mean of all layers and heads that attend to the picture."""
    _choose(method, ("align",))
    caption = " ".join(each.label for each in like) if like else str(predictor(image))
    said, traces = predictor.analyze(image, caption)
    if not traces:
        raise Unsupported("this captioner attends to no part of the picture")
    words = said.split()
    rows = torch.stack([trace.weights[0].float().mean(0) for trace in traces]).mean(0)  # T M
    target = torch.tensor([[predictor.text.bos, *predictor.encode(said)]])
    found = []
    for n, word in enumerate(words):
        weights = _enlarge(rows[n].unflatten(0, predictor.grid_size), predictor.preprocess.size)

        def probability(values: Tensor, n: int = n) -> Tensor:
            given = target.to(values.device).expand(len(values), -1)
            logits: Tensor = predictor.model(values, given)
            return logits[:, n].float().softmax(-1)[:, int(target[0, n + 1])]

        found.append(_on_view(predictor, image, word, weights, probability))
    return found


def question_maps(predictor: Any, item: Any, method: str, like: Sequence[TargetMap]) -> list[TargetMap]:
    """Return the map of the token that the answer is read from, in the last layer; `item` has image and question."""
    _choose(method, ("cross",))
    inspection: Any = inspect(predictor, {**item, "image": _file_of(item["image"])})
    cells = inspection.word_maps(inspection.layer_names()[-1]).mean(0)[0]  # Y X, of the patches
    label = like[0].label if like else inspection.prediction.label
    weights = _enlarge(torch.from_numpy(np.ascontiguousarray(cells)), inspection.size)
    picture = np.asarray(inspection.photo)

    def score(pictures: Sequence[np.ndarray]) -> list[float]:
        asked = [{**item, "image": Image.read(each)} for each in pictures]
        return [float(each.probabilities.get(label, 0.0)) for each in predictor.predict(asked, predictor.options())]

    return [TargetMap(label, weights.numpy(), picture, inspection.region, score)]


def detector_maps(predictor: Any, image: Any, method: str, like: Sequence[TargetMap]) -> list[TargetMap]:
    """Return a map for each found object: the last layer's cross-attention, or its rollout through the encoder."""
    from PIL import Image as PIL

    from regard.tasks.image.scene_base import letterbox

    chosen, inspection = _choose(method, ("cross", "rollout")), inspect(predictor, {"image": _file_of(image)})
    detector: Any = inspection
    objects = [each for each in detector.objects() if each.score >= detector.options.min_score]
    if like:
        objects = [detector.said[each.query] for each in like]
    if not objects:
        return []
    picture, (wide, high) = np.asarray(detector.photo), Image.read(image).size
    if chosen == "rollout":
        maps = detector.rollout_of(objects)
    else:
        maps = list(detector.on_pixels(detector.layer_names("cross")[-1], [one.query for one in objects]).mean(0))
    labels = [each.label for each in like] or [one.label for one in objects]

    def score_of(query: int, label: str) -> Score:
        def probability(pictures: Sequence[np.ndarray]) -> Tensor:
            pixels = [PIL.fromarray(each) for each in pictures]
            out = predictor.model(*letterbox(pixels, predictor.preprocess, next(predictor.model.parameters())))
            return out.logits[-1][:, query].float().softmax(-1)[:, predictor.labels.index(label)]

        return _in_chunks(probability)

    region = (0.0, 0.0, float(wide), float(high))
    return [
        TargetMap(label, np.asarray(each, float), picture, region, score_of(one.query, label), one.box, one.query)
        for one, label, each in zip(objects, labels, maps, strict=True)
    ]


def segmenter_maps(predictor: Any, image: Any, method: str, like: Sequence[TargetMap]) -> list[TargetMap]:
    """Return the map of each class that was found: what its token attends to in the last layer of a mask decoder."""
    _choose(method, ("class",))
    inspection: Any = inspect(predictor, {"image": _file_of(image)})
    if not inspection.decoder_layers:
        raise Unsupported("this model has no tokens of classes, whose attention could be shown (a Segmenter has)")
    maps = inspection.class_maps(inspection.decoder_layers[-1]).mean(0)  # K Y X
    picture, (wide, high) = np.asarray(inspection.photo), Image.read(image).size
    labels = [each.label for each in like] or [mask.label for mask in inspection.prediction.masks]
    own = predictor.probabilities(Image.read(image)).argmax(0)

    def score_of(index: int) -> Score:
        pixels = own == index

        def score(pictures: Sequence[np.ndarray]) -> list[float]:
            found = [predictor.probabilities(Image.read(each))[index][pixels] for each in pictures]
            return [float(each.mean()) if len(each) else 0.0 for each in found]

        return score

    region = (0.0, 0.0, float(wide), float(high))
    return [
        TargetMap(
            label,
            np.asarray(maps[predictor.labels.index(label)], float),
            picture,
            region,
            score_of(predictor.labels.index(label)),
            of_class=True,
        )
        for label in labels
    ]


# By the name of the predictor's class or of a base class.
SOURCES: Mapping[str, Callable[[Any, Any, str, Sequence[TargetMap]], list[TargetMap]]] = {
    "ImageClassifier": classifier_maps,
    "ObjectDetector": detector_maps,
    "SemanticSegmenter": segmenter_maps,
    "Captioner": captioner_maps,
    "VisualQuestionAnswerer": question_maps,
}


def _choose(method: str, methods: Sequence[str]) -> str:
    if method and method not in methods:
        raise BadInput(f"no map of this model is called '{method}'; {did_you_mean(method, methods)}")
    return method or methods[0]


def _on_view(
    predictor: Any, image: Any, label: str, weights: Tensor, probability: Callable[[Tensor], Tensor]
) -> TargetMap:
    """Return a map on the picture that a predictor with a preprocessing was shown."""
    how, like = predictor.preprocess, next(predictor.model.parameters())
    picture = np.asarray(how.view(image))

    def of_pictures(pictures: Sequence[np.ndarray]) -> Tensor:
        pixels = torch.from_numpy(np.stack(pictures)).to(like.device)
        pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
        return probability(how.normalize(pixels).to(like.dtype))

    found = weights.detach().float().cpu().numpy().clip(0)
    return TargetMap(label, found, picture, how.region(image), _in_chunks(of_pictures))


def _in_chunks(probability: Callable[[Sequence[np.ndarray]], Tensor]) -> Score:
    @torch.no_grad()
    def score(pictures: Sequence[np.ndarray]) -> list[float]:
        found = [probability(pictures[at : at + CHUNK]).tolist() for at in range(0, len(pictures), CHUNK)]
        return [value for some in found for value in some]

    return score


def _file_of(image: Any) -> bytes:
    """Return an image as the bytes of a file, which an inspection takes."""
    buffer = io.BytesIO()
    Image.read(image).save(buffer, "PNG")
    return buffer.getvalue()


def _enlarge(cells: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a map of cells on pixels, each pixel with the value of its cell."""
    return torch.nn.functional.interpolate(cells[None, None].float(), size, mode="nearest")[0, 0]
