"""Panoptic quality: how well every pixel's class and object are told.

    PQ = Σ IoU over TP / (TP + FP/2 + FN/2) = SQ · RQ
    SQ = Σ IoU over TP / TP                           segmentation quality
    RQ = TP / (TP + FP/2 + FN/2)                      recognition quality, an F1

A predicted and a true segment of one class match where their IoU is above 0.5; segments do not overlap, so at most one
pair of each does. Each number is the mean over the classes that occur. Things (countable) have a segment per object;
all pixels of a stuff class in an image are one segment.

Void pixels (0 in the truth) do not count in the IoU. An unmatched prediction is dropped, not wrong, where more than
half of it is void or crowd of its class; a crowd is never missed. This is the rule of COCO's panoptic task.

Kirillov, He, Girshick, Rother, Dollár: Panoptic Segmentation. CVPR 2019. arXiv:1801.00868
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from regard.core.errors import BadInput
from regard.metrics.base import fraction

PANOPTIC_METRICS = (
    fraction("pq", "PQ"),
    fraction("sq", "SQ"),
    fraction("rq", "RQ"),
    *(fraction(f"{key}_{kind}", f"{key.upper()} {kind}") for kind in ("things", "stuff") for key in ("pq", "sq", "rq")),
)


class PanopticQuality:
    """PQ, SQ and RQ, accumulated image by image; `stuff` has the classes that are not countable."""

    def __init__(self, stuff: Collection[int] = ()) -> None:
        self.stuff = frozenset(stuff)
        self._sums: dict[int, np.ndarray] = {}  # of each class: IoU over TP, TP, FP, FN

    def update(
        self,
        segments: np.ndarray,
        classes: Mapping[int, int],
        true_segments: np.ndarray,
        true_classes: Mapping[int, int],
        crowd: Collection[int] = (),
    ) -> None:
        """Add one image.

        Args:
            segments: the predicted segment of every pixel (Y X), 0 for none.
            classes: the class of every predicted segment.
            true_segments, true_classes: the same of the truth, where 0 is void.
            crowd: the true segments that are crowds.
        """
        if np.shape(segments) != np.shape(true_segments):
            shapes = f"{np.shape(segments)} and {np.shape(true_segments)}"
            raise BadInput(f"Predicted and true segments have shapes {shapes}; expected the same.")
        if unknown := set(crowd) - set(true_classes):
            raise BadInput(f"Crowd segments {sorted(unknown)} are not among the true segments.")
        found, kinds, _ = self._index(segments, classes, frozenset())
        true, true_kinds, is_crowd = self._index(true_segments, true_classes, frozenset(crowd))
        pixels = np.bincount(true * len(kinds) + found, minlength=len(true_kinds) * len(kinds))
        pixels = pixels.reshape(len(true_kinds), len(kinds))  # 0 is void in both

        size, true_size = pixels.sum(0), pixels.sum(1)
        void, shared = pixels[0, 1:], pixels[1:, 1:]
        size, true_size, kinds, true_kinds, is_crowd = size[1:], true_size[1:], kinds[1:], true_kinds[1:], is_crowd[1:]
        same = true_kinds[:, None] == kinds
        iou = shared / np.maximum(true_size[:, None] + size - void - shared, 1)
        match = same & (iou > 0.5) & ~is_crowd[:, None]
        dropped = void + (shared * (same & is_crowd[:, None])).sum(0) > 0.5 * size
        wrong, missed = ~match.any(0) & ~dropped, ~match.any(1) & ~is_crowd
        for kind in np.union1d(kinds, true_kinds).tolist():
            hit = match & (true_kinds == kind)[:, None]
            sums = iou[hit].sum(), hit.sum(), (wrong & (kinds == kind)).sum(), (missed & (true_kinds == kind)).sum()
            self._sums[kind] = self._sums.get(kind, np.zeros(4)) + np.array(sums)

    def _index(
        self, segments: np.ndarray, classes: Mapping[int, int], crowd: frozenset[int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the number of every pixel's segment, and of each segment its class and whether it is a crowd."""
        ids = np.array([0, *sorted(classes)])
        flat = np.asarray(segments).reshape(-1)
        place = np.searchsorted(ids, flat).clip(max=len(ids) - 1)
        if min(classes, default=1) < 1:
            raise BadInput(f"Segment {min(classes)} cannot have a class: 0 is void; number segments from 1.")
        if len(stray := flat[ids[place] != flat]):
            raise BadInput(f"Segment {stray[0]} has no class; every segment but 0, void, needs one.")
        if len(empty := ids[1:][np.bincount(place, minlength=len(ids))[1:] == 0]):
            raise BadInput(f"Segment {empty[0]} has a class but no pixels; leave it out.")
        keys = [(classes[i], 0 if classes[i] in self.stuff else i, i in crowd) for i in ids[1:].tolist()]
        merged = {key: number for number, key in enumerate(dict.fromkeys(keys), 1)}
        numbers = np.array([0, *(merged[key] for key in keys)])
        kinds, is_crowd = [-1, *(key[0] for key in merged)], [False, *(key[2] for key in merged)]
        return numbers[place], np.array(kinds), np.array(is_crowd)

    def compute(self) -> dict[str, float]:
        """Return the numbers of `PANOPTIC_METRICS`; NaN where no class counts."""
        by_class = self.compute_by_class()
        kinds = {"": by_class.keys(), "_things": by_class.keys() - self.stuff, "_stuff": by_class.keys() & self.stuff}
        return {
            f"{key}{suffix}": float(np.mean([by_class[name][key] for name in names])) if names else float("nan")
            for suffix, names in kinds.items()
            for key in ("pq", "sq", "rq")
        }

    def compute_by_class(self) -> dict[int, dict[str, float]]:
        """Return PQ, SQ and RQ of every class that was matched, missed or wrongly found."""
        if not self._sums:
            raise BadInput("there is nothing to score")
        found = {}
        for name, (iou, tp, fp, fn) in sorted(self._sums.items()):
            if tp + fp + fn:
                rq, sq = tp / (tp + fp / 2 + fn / 2), iou / max(tp, 1)
                found[name] = {"pq": float(sq * rq), "sq": float(sq), "rq": float(rq)}
        return found
