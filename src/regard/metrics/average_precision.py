"""Average precision and recall of detected objects, by COCO's rule.

    precision(k) = TP / (TP + FP),  recall(k) = TP / objects        over the k detections with the highest scores
    AP = mean over r = 0, 0.01, ..., 1 of the highest precision at a recall of at least r
    AR = recall when at most 1, 10 or 100 detections of a class are taken from each image

Both are means over the classes that occur and over ten thresholds of IoU, 0.5 to 0.95. In each image a detection, best
score first, takes the free object of its class that it overlaps most. Crowd regions and objects outside the area
range are ignored: a detection that can only take one of those counts neither as right nor as wrong, nor does an
unmatched detection outside the range. Any number of detections may take the same crowd, and their overlap with it is
measured as a share of their own area. Equal scores rank in the order given.

Detections of different images and classes never compete, so the greedy matching runs over all of them together: step by
rank, and for each rank down the list of overlapping objects. The number of steps does not grow with that of images.

Lin, Maire, Belongie, Bourdev, Girshick, Hays, Perona, Ramanan, Zitnick, Dollár: Microsoft COCO. ECCV 2014.
arXiv:1405.0312
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.metrics.base import fraction
from regard.modalities import box_geometry

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of IoU
RECALLS = np.linspace(0, 1, 101)
MAX_DETECTIONS = (1, 10, 100)  # of a class in an image
AREAS = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}  # square pixels

DETECTION_METRICS = (
    fraction("ap", "AP"),
    fraction("ap50", "AP50"),
    fraction("ap75", "AP75"),
    *(fraction(f"ap_{size}", f"AP {size}") for size in ("small", "medium", "large")),
    *(fraction(f"ar_{most}", f"AR{most}") for most in MAX_DETECTIONS),
    *(fraction(f"ar_{size}", f"AR {size}") for size in ("small", "medium", "large")),
)


class AveragePrecision:
    """AP and AR of boxes or masks, accumulated image by image."""

    def __init__(self) -> None:
        self._detections: list[tuple[np.ndarray, ...]] = []  # score, class, area, rank in image and class
        self._objects: list[tuple[np.ndarray, ...]] = []  # class, area, crowd
        self._pairs: list[tuple[np.ndarray, ...]] = []  # detection, object, overlap: those that could match
        self._num_detections = self._num_objects = 0

    def update(
        self,
        regions: Any,
        scores: Any,
        classes: Any,
        true_regions: Any,
        true_classes: Any,
        crowd: Any = None,
        true_areas: Any = None,
    ) -> None:
        """Add one image.

        Args:
            regions: corners of the detected boxes in pixels (N 4), or their masks (N Y X), bool.
            scores: their scores (N).
            classes: their classes, any integers (N).
            true_regions, true_classes: the same of the true objects.
            crowd: True for the regions that hold many objects of their class; none by default.
            true_areas: areas that decide the area range, if other than those of the regions: COCO's boxes have the
                area of their mask.
        """
        scores, classes, true_classes = _array(scores, float), _array(classes, int), _array(true_classes, int)
        regions, true_regions = _regions(regions, len(scores)), _regions(true_regions, len(true_classes))
        if len(scores) != len(classes) or not np.isfinite(scores).all():
            raise BadInput(f"{len(classes)} detections need as many finite scores, got {len(scores)}: {scores[:5]} ...")
        crowd = np.zeros(len(true_classes), bool) if crowd is None else _array(crowd, bool)
        true_areas = _areas(true_regions) if true_areas is None else _array(true_areas, float)
        if not len(crowd) == len(true_areas) == len(true_classes):
            found = f"{len(crowd)} crowd flags and {len(true_areas)} areas"
            raise BadInput(f"{len(true_classes)} objects need as many crowd flags and areas, got {found}.")

        order = np.lexsort((-scores, classes))  # a stable sort by class, then score
        ordered = classes[order]
        rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        order, rank = order[rank < MAX_DETECTIONS[-1]], rank[rank < MAX_DETECTIONS[-1]]
        scores, classes, regions = scores[order], classes[order], regions[order]
        areas = _areas(regions)

        detection, thing = np.nonzero(classes[:, None] == true_classes)
        shared = _shared_areas(regions, true_regions, detection, thing)
        union = areas[detection] + np.where(crowd[thing], 0, _areas(true_regions)[thing] - shared)
        overlap = shared / np.where(shared > 0, union, 1)
        close = overlap >= THRESHOLDS[0]
        self._detections.append((scores, classes, areas, rank))
        self._objects.append((true_classes, true_areas, crowd))
        self._pairs.append((detection[close] + self._num_detections, thing[close] + self._num_objects, overlap[close]))
        self._num_detections += len(scores)
        self._num_objects += len(true_classes)

    def compute(self) -> dict[str, float]:
        """Return the numbers of `DETECTION_METRICS`; NaN where no object counts."""
        _, precision, recall = self._evaluate()
        ap = {name: _mean(each) for name, each in zip(AREAS, precision, strict=True)}
        ar = {name: _mean(each[..., -1]) for name, each in zip(AREAS, recall, strict=True)}
        sizes = [name for name in AREAS if name != "all"]
        return {
            "ap": ap["all"],
            "ap50": _mean(precision[0, :, 0]),
            "ap75": _mean(precision[0, :, 5]),
            **{f"ap_{name}": ap[name] for name in sizes},
            **{f"ar_{most}": _mean(recall[0, ..., m]) for m, most in enumerate(MAX_DETECTIONS)},
            **{f"ar_{name}": ar[name] for name in sizes},
        }

    def compute_by_class(self) -> dict[int, float]:
        """Return the AP of every class that has objects."""
        classes, precision, _ = self._evaluate()
        return {int(name): _mean(each) for name, each in zip(classes, precision[0], strict=True)}

    def _evaluate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the classes, precision (area, class, IoU, recall) and recall (area, class, IoU, most detections)."""
        if not self._detections:
            raise BadInput("there is nothing to score")
        scores, classes, areas, rank = (np.concatenate(each) for each in zip(*self._detections, strict=True))
        true_classes, true_areas, crowd = (np.concatenate(each) for each in zip(*self._objects, strict=True))
        detection, thing, overlap = (np.concatenate(each) for each in zip(*self._pairs, strict=True))
        names = np.unique(true_classes)
        order = np.lexsort((-scores, classes))
        starts, ends = (np.searchsorted(classes[order], names, side) for side in ("left", "right"))
        precision = np.full((len(AREAS), len(names), len(THRESHOLDS), len(RECALLS)), np.nan)
        recall = np.full((len(AREAS), len(names), len(THRESHOLDS), len(MAX_DETECTIONS)), np.nan)
        for a, (low, high) in enumerate(AREAS.values()):
            ignored = crowd | (true_areas < low) | (true_areas > high)
            matched = _match(detection, thing, overlap, rank, crowd, ignored)
            inside = (areas >= low) & (areas <= high)
            for k, name in enumerate(names):
                count = int(np.count_nonzero(~ignored & (true_classes == name)))
                if count:
                    rows = order[starts[k] : ends[k]]
                    right, wrong = matched[:, rows] == REGULAR, (matched[:, rows] == UNMATCHED) & inside[rows]
                    precision[a, k] = _interpolate(right, wrong, count)
                    hits = [right[:, rank[rows] < most].sum(1) for most in MAX_DETECTIONS]
                    recall[a, k] = np.stack(hits, 1) / count
        return names, precision, recall


UNMATCHED, REGULAR, IGNORED = range(3)  # what a detection took: nothing, an object, one that is ignored


def _match(
    detection: np.ndarray,
    thing: np.ndarray,
    overlap: np.ndarray,
    rank: np.ndarray,
    crowd: np.ndarray,
    ignored: np.ndarray,
) -> np.ndarray:
    """Return what every detection takes at every threshold (T N), by rank; ignored objects are its last choice."""
    order = np.lexsort((-thing, -overlap, ignored[thing], detection))  # equal overlaps: COCO takes the later object
    detection, thing, overlap = detection[order], thing[order], overlap[order]
    place = np.arange(len(order)) - np.searchsorted(detection, detection)  # in the detection's list
    step = rank[detection] * (place.max(initial=0) + 1) + place
    order = np.argsort(step, kind="stable")
    matched = np.zeros((len(THRESHOLDS), len(rank)), np.int8)
    taken = np.zeros((len(THRESHOLDS), len(crowd)), bool)
    for now in np.split(order, np.flatnonzero(np.diff(step[order])) + 1):
        d, g = detection[now], thing[now]
        free = (matched[:, d] == UNMATCHED) & ~(taken[:, g] & ~crowd[g]) & (overlap[now] >= THRESHOLDS[:, None])
        t, i = np.nonzero(free)
        matched[t, d[i]] = np.where(ignored[g[i]], IGNORED, REGULAR)
        taken[t, g[i]] = True
    return matched


def _interpolate(right: np.ndarray, wrong: np.ndarray, count: int) -> np.ndarray:
    """Return the highest precision at a recall of at least each of `RECALLS` (T 101), of ranked detections (T N)."""
    hits, misses = right.cumsum(1), wrong.cumsum(1)
    precision = hits / np.maximum(hits + misses, 1)
    highest = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    highest = np.concatenate([highest, np.zeros((len(hits), 1))], 1)  # of a recall that is never reached
    return np.stack([each[np.searchsorted(row / count, RECALLS)] for each, row in zip(highest, hits, strict=True)])


def _tensor(values: Any) -> torch.Tensor:
    return values.detach().cpu() if isinstance(values, torch.Tensor) else torch.as_tensor(np.asarray(values))


def _array(values: Any, kind: type) -> np.ndarray:
    found = _tensor(values)
    if kind is int and len(found) and found.is_floating_point():
        raise BadInput(f"Classes must be integers, got {found.dtype}.")
    return found.to({int: torch.int64, float: torch.float64, bool: torch.bool}[kind]).reshape(-1).numpy()


def _regions(regions: Any, count: int) -> torch.Tensor:
    found = _tensor(regions)
    found = found.reshape(0, 4) if not count and found.ndim < 3 and not len(found) else found
    found = found if found.ndim == 3 else found.double()
    if len(found) != count or not (found.ndim == 3 or (found.ndim == 2 and found.shape[1] == 4)):
        raise BadInput(f"Regions have shape {tuple(found.shape)}; expected ({count}, 4) or ({count}, rows, columns).")
    if found.ndim == 2 and not ((found[:, 2:] >= found[:, :2]).all() and found.isfinite().all()):
        raise BadInput("Boxes have swapped or infinite corners; expected left, top, right, bottom in pixels.")
    return found


def _areas(regions: torch.Tensor) -> np.ndarray:
    return (box_geometry.area(regions) if regions.ndim == 2 else regions.flatten(1).sum(1).double()).numpy()


def _shared_areas(a: torch.Tensor, b: torch.Tensor, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the area that regions a[i] and b[j] share, pair by pair."""
    if not len(i):
        return np.zeros(0)
    if a.ndim != b.ndim:
        raise BadInput(f"Regions of shape {tuple(a.shape)} and {tuple(b.shape)} cannot be compared: boxes or masks.")
    if a.ndim == 2:
        return box_geometry.intersection(a[i], b[j]).numpy()
    return (a.flatten(1).float() @ b.flatten(1).float().T)[i, j].double().numpy()  # exact below 2^24 pixels


def _mean(values: np.ndarray) -> float:
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if counted.size else float("nan")
