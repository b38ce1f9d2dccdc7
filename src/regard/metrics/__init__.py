"""Metrics: BLEU, ROUGE, WER, F1, AP, PQ, mIoU, AbsRel, ... each tested equal to its peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "average_precision": ("DETECTION_METRICS", "AveragePrecision"),
    "base": ("Metric", "describe_metrics", "find_metric"),
    "bleu": ("Score", "bleu_tokenized", "chrf"),
    "by_length": ("score_by_length",),
    "classification": (
        "chunk_f1", "exact_match", "extract_chunks", "macro_f1", "matthews_correlation", "word_f1"
    ),
    "depth": ("DEPTH_METRICS", "DepthErrors"),
    "generation": ("exact_match_and_f1", "phoneme_error_rate"),
    "mean_iou": ("SEGMENTATION_METRICS", "MeanIoU"),
    "panoptic_quality": ("PANOPTIC_METRICS", "PanopticQuality"),
    "word_error_rate": ("EditCounts", "count_corpus_edits", "count_edits"),
}  # fmt: skip
if TYPE_CHECKING:
    from regard.metrics._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
