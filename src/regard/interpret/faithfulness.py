"""Can a map be trusted? Scores of a map of an image: against a known mask, and against the model itself.

    attention mass      Σ_mask a / Σ a                  1: all of it on the object; uniform: the mask's share
    gain                mass / share                    1 is chance
    pointing game       is the largest value inside     several equally large: the share of them that is
    energy pointing     the mass inside the box around the mask
    deletion            mean of the answer's probability while pixels are blurred, most attended first    low: good
    insertion           the same, while they come back into the blurred image                          high: good
    randomised model    rank correlation with the map of the same network, its weights shuffled         near 0: good

A map may lie where the object is without the model using it, so the first four are not enough: deletion and insertion
ask the model. And a map that hardly changes when the weights are shuffled shows the image, not the model.

Zhang et al.: Top-down Neural Attention by Excitation Backprop. ECCV 2016 (pointing game); Wang et al.: Score-CAM. CVPR
2020 Workshops. arXiv:1910.01279 (energy-based); Petsiuk, Das, Saenko: RISE. BMVC 2018. arXiv:1806.07421 (deletion,
insertion); Adebayo et al.: Sanity Checks for Saliency Maps. NeurIPS 2018. arXiv:1810.03292
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.data.images.scene_batch import Scene
from regard.interpret.image_maps import TargetMap, find_maps

STEPS = 16  # of a deletion or an insertion
BLUR = 0.1  # standard deviation, as a share of the image's shorter side
MIN_IOU = 0.5  # of a found box with an object's, to be compared with its mask

Score = Callable[[Sequence[np.ndarray]], Sequence[float]]  # pictures Y X C to the probability of the answer


# -- against a mask ----------------------------------------------------------------------------------------------------


def mask_share(mask: np.ndarray) -> float:
    """Return the share of the image that a mask covers: what a uniform map has inside."""
    return float(np.mean(mask))


def attention_mass(weights: np.ndarray, mask: np.ndarray) -> float:
    """Return the share of a map Y X that lies in a mask Y X (0 to 1 for each pixel)."""
    weights, mask = _checked(weights, mask)
    return float((weights * mask).sum() / weights.sum())


def pointing_game(weights: np.ndarray, mask: np.ndarray) -> float:
    """Return 1 where the largest value lies in the mask, 0 where it does not; of several, the share that does."""
    weights, mask = _checked(weights, mask)
    return float(mask[weights >= weights.max() * (1 - 1e-6)].mean())


def energy_pointing_game(weights: np.ndarray, mask: np.ndarray) -> float:
    """Return the share of a map that lies in the box around a mask."""
    weights, mask = _checked(weights, mask)
    return attention_mass(weights, bounding_box(mask))


def bounding_box(mask: np.ndarray) -> np.ndarray:
    """Return the mask of the smallest box around a mask's pixels."""
    rows, columns = np.flatnonzero((mask > 0).any(1)), np.flatnonzero((mask > 0).any(0))
    box = np.zeros(mask.shape)
    if len(rows):
        box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = 1
    return box


def place_mask(mask: np.ndarray, region: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """Return a mask of an image on the pixels of a map: the region (left, top, right, bottom) that it shows, at its
    size; each pixel has the share that is in the mask."""
    left, top, right, bottom = region
    scale = 4  # samples per side of a pixel
    y = (torch.arange(scale * size[0]) + 0.5) / (scale * size[0]) * (bottom - top) + top
    x = (torch.arange(scale * size[1]) + 0.5) / (scale * size[1]) * (right - left) + left
    inside = ((y >= 0) & (y < mask.shape[0]))[:, None] & ((x >= 0) & (x < mask.shape[1]))
    rows, columns = y.long().clamp(0, mask.shape[0] - 1), x.long().clamp(0, mask.shape[1] - 1)
    sampled = torch.from_numpy(np.asarray(mask, float))[rows[:, None], columns] * inside
    found = F.avg_pool2d(sampled[None, None], scale)
    return found[0, 0].numpy()


def _checked(weights: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights, mask = np.asarray(weights, float), np.asarray(mask, float)
    if weights.shape != mask.shape or weights.ndim != 2:
        raise BadInput(f"a map and its mask must have one size, got {weights.shape} and {mask.shape}")
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() <= 0:
        raise BadInput("a map must have finite values of at least 0, and one above 0")
    return weights, mask


# -- against the model -------------------------------------------------------------------------------------------------


def deletion_curve(score: Score, picture: np.ndarray, weights: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """Return the answer's probability after 0 to `steps` equal shares of the pixels were blurred, the most attended
    first; its `curve_area` is low where the map shows what the model needs."""
    return _curve(score, picture, blurred(picture), weights, steps)


def insertion_curve(score: Score, picture: np.ndarray, weights: np.ndarray, steps: int = STEPS) -> np.ndarray:
    """Return the answer's probability while the pixels come back into the blurred picture, the most attended first."""
    return _curve(score, blurred(picture), picture, weights, steps)


def curve_area(curve: np.ndarray) -> float:
    """Return the area under a curve from 0 to 1, by trapezoids."""
    return float((curve[1:] + curve[:-1]).mean() / 2)


def _curve(score: Score, start: np.ndarray, end: np.ndarray, weights: np.ndarray, steps: int) -> np.ndarray:
    if weights.shape != start.shape[:2]:
        raise BadInput(f"a map and its picture must have one size, got {weights.shape} and {start.shape[:2]}")
    order = np.argsort(-np.asarray(weights, float).ravel(), kind="stable")
    places = np.empty(order.size)
    places[order] = np.arange(order.size)
    rank = places.reshape(weights.shape)
    masks = [rank < order.size * step / steps for step in range(steps + 1)]
    wide = [mask[..., None] if start.ndim == 3 else mask for mask in masks]
    return np.array(score([np.where(mask, end, start) for mask in wide]), float)


def blurred(picture: np.ndarray) -> np.ndarray:
    """Return a picture whose details are gone: a Gaussian blur of a tenth of its shorter side."""
    from PIL import Image, ImageFilter

    radius = BLUR * min(picture.shape[:2])
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


# -- against a network that has learned nothing ------------------------------------------------------------------------


@torch.no_grad()
def shuffle_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """Return a copy of a model whose parameters are each shuffled: the same numbers, in places without meaning."""
    found, rng = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for parameter in found.parameters():
        order = torch.randperm(parameter.numel(), generator=rng).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return found


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's correlation of two maps, -1 to 1; equal values share a rank. 0 where a map is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(x.ravel()) for x in (one, other))
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


# -- scenes with known masks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MaskedItem:
    """An input of a predictor, and what its maps are compared with: `mask_of(maps, n)` is the mask of the n-th map, or
    None where nothing in the picture is meant."""

    item: Any
    mask_of: Callable[[Sequence[TargetMap], int], np.ndarray | None]


def masked_scenes(
    name: str, split: str = "test", limit: int = 100
) -> tuple[Iterator[Scene | MaskedItem], dict[int, str]]:
    """Return the first scenes of a data set with masks, and the labels of the classes that are objects.

    scenes, one_object (a large piece of clothing over a texture), camvid, fashion_mnist and mnist (on black). For a
    model of questions, count_questions, same_questions, colour_questions and side_questions, each with the objects that
    it concerns; for a captioner, scene_captions, whose words for things are compared with the things.
    """
    from regard.data.images.camvid import CamVid
    from regard.data.images.composed_scenes import OPAQUE, Scenes
    from regard.data.images.image_dataset import ImageDataset

    if name not in MASKED_DATA:
        raise UnknownName(f"no images with masks are called '{name}'; {did_you_mean(name, MASKED_DATA)}")
    if name in ("fashion_mnist", "mnist"):
        images = ImageDataset(name).load(split)
        labels = images.settings.labels()
        rows = zip(images.pixels[:limit, 0].numpy(), images.labels[:limit].tolist(), strict=True)
        return (Scene(x[None].repeat(3, 0), classes=np.array([c]), masks=(x > OPAQUE)[None]) for x, c in rows), dict(
            enumerate(labels)
        )
    if name.endswith("_questions"):
        return _questions(name.removesuffix("_questions"), split, limit), {}
    if name == "scene_captions":
        return _captions(split, limit), {}
    one = Scenes(image_size=64, max_objects=1, min_side=0.5, max_side=0.9)
    data: Any = CamVid(annotations="panoptic") if name == "camvid" else Scenes() if name == "scenes" else one
    source, things = data.source(data.split(split)), set(data.things())
    return (source[i] for i in range(min(limit, len(source)))), {
        n: label for n, label in enumerate(data.labels()) if label in things
    }


KINDS = ("count", "same", "colour", "side")
MASKED_DATA = (
    *("scenes", "one_object", "camvid", "fashion_mnist", "mnist", "scene_captions"),
    *(f"{kind}_questions" for kind in KINDS),
)


def _questions(kind: str, split: str, limit: int) -> Iterator[MaskedItem]:
    """Yield a question of a kind about each scene, with the visible pixels of the objects that it concerns."""
    from regard.data.images.scene_questions import QuestionComposer, SceneQuestions

    settings = SceneQuestions(image_size=64)
    composer = QuestionComposer(settings, settings.split(split))
    for i in range(min(limit, settings.eval_examples)):
        scene = composer.compose(i)
        (asked,) = (each for each in scene.questions if each.kind == kind)
        mask = scene.masks[list(asked.objects)].any(0)
        item = {"image": scene.pixels.transpose(1, 2, 0), "question": asked.text}
        yield MaskedItem(item, lambda maps, n, mask=mask: mask)  # type: ignore[misc]


def _captions(split: str, limit: int) -> Iterator[MaskedItem]:
    """Yield scenes in which the k-th word "bag" of a caption means the k-th bag from the left."""
    from regard.data.images.scene_captions import CaptionComposer, SceneCaptions

    settings = SceneCaptions()
    composer = CaptionComposer(settings, settings.split(split))
    for i in range(min(limit, settings.eval_examples)):
        scene = composer[i]
        names = [name for name, _ in scene.things]

        def mask_of(maps: Sequence[TargetMap], n: int, names: list[str] = names, scene: Any = scene) -> Any:
            before = sum(each.label == maps[n].label for each in maps[:n])
            own = [mask for name, mask in zip(names, scene.masks, strict=True) if name == maps[n].label]
            return own[before] if before < len(own) else None

        yield MaskedItem(scene.pixels.transpose(1, 2, 0), mask_of)


# -- a model on many scenes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapScores:
    """Means over maps; None where nothing was measured."""

    maps: int
    share: float
    mass: float
    pointing: float
    energy: float
    deletion: float | None = None
    insertion: float | None = None
    random_mass: float | None = None  # of the model with shuffled weights
    random_correlation: float | None = None

    @property
    def gain(self) -> float:
        """Attention on the objects, in multiples of what a uniform map has."""
        return self.mass / self.share


def evaluate_maps(
    predictor: Any,
    scenes: Iterable[Scene | MaskedItem],
    method: str = "",
    things: Mapping[int, str] | None = None,
    curves: bool = True,
    randomize: bool = True,
    seed: int = 0,
) -> MapScores:
    """Score a predictor's maps of a method on scenes with masks.

    `things` are the numbers and labels of the classes that count as objects. A found box is compared with the mask of
    the object of its label that it overlaps most (by at least half; boxes of nothing are left out), the map of a class
    of pixels with all objects of that class; where the labels are others than the scenes', and for any other map, with
    the mask of all objects.
    """
    other = copy.copy(predictor)
    if randomize:
        other.model = shuffle_weights(predictor.model, seed).eval()
    rows: list[dict[str, float]] = []
    for scene in scenes:
        given = scene if isinstance(scene, MaskedItem) else _masked(scene, things)
        if given is None:
            continue
        found = find_maps(predictor, given.item, method)
        shuffled = find_maps(other, given.item, method, like=found) if randomize else []
        for n, each in enumerate(found):
            mask = given.mask_of(found, n)
            if mask is None or not (placed := place_mask(mask, each.region, each.weights.shape)).any():
                continue
            row = {
                "share": mask_share(placed),
                "mass": attention_mass(each.weights, placed),
                "pointing": pointing_game(each.weights, placed),
                "energy": energy_pointing_game(each.weights, placed),
            }
            if curves:
                row["deletion"] = curve_area(deletion_curve(each.score, each.picture, each.weights))
                row["insertion"] = curve_area(insertion_curve(each.score, each.picture, each.weights))
            if randomize:
                row["random_mass"] = attention_mass(shuffled[n].weights, placed)
                row["random_correlation"] = rank_correlation(each.weights, shuffled[n].weights)
            rows.append(row)
    if not rows:
        raise BadInput("no map could be compared with a mask: the model found none of the scenes' objects")
    return MapScores(len(rows), **{name: float(np.mean([row[name] for row in rows])) for name in rows[0]})


def _masked(scene: Scene, things: Mapping[int, str] | None) -> MaskedItem | None:
    """Return a scene's image with the masks of its objects; None where it has none."""
    classes, masks = _objects(scene, things)
    if not len(classes):
        return None
    return MaskedItem(scene.pixels.transpose(1, 2, 0), lambda maps, n: _target(maps[n], classes, masks, things))


def _objects(scene: Scene, things: Mapping[int, str] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes and masks of the objects; of a class map, one mask for each class."""
    if scene.masks is not None and scene.classes is not None:
        kept = np.array([things is None or int(c) in things for c in scene.classes], bool)
        return scene.classes[kept], scene.masks[kept]
    if scene.labels is None:
        raise BadInput("maps are compared with masks, which these scenes do not have")
    classes = np.array([c for c in np.unique(scene.labels).tolist() if things is None or c in things], np.int64)
    masks = [np.asarray(scene.labels == c) for c in classes]
    return classes, np.stack(masks) if masks else np.zeros((0, *scene.size), bool)


def _target(
    found: TargetMap, classes: np.ndarray, masks: np.ndarray, things: Mapping[int, str] | None
) -> np.ndarray | None:
    """Return the mask that a map is compared with; None for a box around nothing."""
    everything = np.asarray(masks.any(0))
    is_known = things is not None and found.label in things.values()
    own = [mask for c, mask in zip(classes, masks, strict=True) if is_known and things[int(c)] == found.label]  # type: ignore[index]
    if found.of_class:
        return np.asarray(np.any(own, 0)) if own else None
    if found.box is None or not is_known:
        return everything
    overlaps = [_iou(found.box, mask) for mask in own]
    return own[int(np.argmax(overlaps))] if overlaps and max(overlaps) >= MIN_IOU else None


def _iou(box: tuple[float, float, float, float], mask: np.ndarray) -> float:
    """Return the overlap of a box, in fractions of the image, with the box around a mask."""
    from regard.modalities.boxes import Box

    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return 0.0
    (height, width), (left, top, right, bottom) = mask.shape, box
    own = Box(columns[0], rows[0], columns[-1] + 1, rows[-1] + 1, "")
    return Box(left * width, top * height, right * width, bottom * height, "").iou(own)
