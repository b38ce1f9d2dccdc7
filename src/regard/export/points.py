"""Predictors that read point clouds: padded to the most points that the model reads."""

from __future__ import annotations

from typing import Any

import torch

from regard.core.shapes import Tensor
from regard.export.plan import Graph, Plan
from regard.export.text import random_lengths, ranked

EXAMPLE = "points.npy"  # that `check` shows to both


def plan_points(predictor: Any, name: str) -> Plan:
    """Return the plan of a classifier of clouds, or of their points."""
    model, most = predictor.model, predictor.preprocess.max_points
    of_points = name == "point_segmentation"

    def run(points: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        found = model(points, lengths).float().softmax(-1)
        if of_points:  # of padding, nothing is said
            real = torch.arange(most, device=points.device) < lengths[:, None]
            found = found.masked_fill(~real[..., None], 0.0)
        return (found,)

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return torch.randn(rows, most, 3), most // 2 + random_lengths(rows, most // 2)

    show = (
        'print(*(config["labels"][best] for best in probabilities[0, : len(points)].argmax(-1)))'
        if of_points
        else 'print(config["labels"][best := probabilities[0].argmax()], f"{probabilities[0, best]:.4f}", sep="\\t")'
    )
    script = f"""\
model, most = load("model"), config["max_points"]
for file in sys.argv[1:]:
    points = np.load(file) if file.endswith(".npy") else np.loadtxt(file)  # rows of x, y, z
    if len(points) > most:
        points = points[np.sort(np.random.default_rng(0).permutation(len(points))[:most])]
    points = points - points.mean(0)
    points = points / np.linalg.norm(points, axis=1).max()
    padded = np.pad(points, ((0, most - len(points)), (0, 0))).astype(np.float32)
    (probabilities,) = model(padded[None], np.array([len(points)]))
    {show}
"""

    def answer(file: str) -> str:
        found = predictor(file)
        return " ".join(predictor.labels[k] for k in found.labels.tolist()) if of_points else ranked(found)

    return Plan(
        (Graph("model", model, run, ("points", "lengths"), ("probabilities",), example),),
        script,
        "POINTS.npy...",
        {"labels": list(predictor.labels), "max_points": most},
        examples=[(EXAMPLE,)],
        answer=answer,
        note="of a larger cloud it draws other points than Regard",
    )
