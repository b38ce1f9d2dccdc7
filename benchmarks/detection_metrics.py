"""AP and AR of detections by COCO's rule: Regard against pycocotools, taking turns.

    python benchmarks/detection_metrics.py              1,000 images, one thread -> results/detection-metrics.json
    python benchmarks/detection_metrics.py --quick      small, nothing written

Both take the same objects and detections, already in memory: pycocotools as its COCO objects, whose index is not in the
time; ours as arrays of each image, where adding the images is. All twelve numbers must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
from pathlib import Path
from typing import Any

import harness
import numpy as np

CONTENDERS = ("regard", "pycocotools")
harness.PACKAGES = ("regard", "pycocotools", "torch", "numpy")


def make_images(count: int, classes: int = 80, detections: int = 100) -> list[dict[str, np.ndarray]]:
    """Return images with about seven objects in about three classes, and detections near them and far from them."""
    rng, images = np.random.default_rng(0), []
    for _ in range(count):
        n = rng.poisson(7)
        size = np.exp(rng.uniform(np.log(10), np.log(300), (n, 2)))
        true = np.concatenate([rng.uniform(0, 500, (n, 2)), size], 1)  # left, top, width, height
        true_classes = rng.choice(rng.choice(classes, 3), n)
        boxes = np.concatenate([rng.uniform(0, 500, (detections, 2)), rng.uniform(10, 300, (detections, 2))], 1)
        names, scores = rng.choice(classes, detections), rng.random(detections) * 0.6
        if n:
            near = np.flatnonzero(rng.random(detections) < 0.4)
            source = rng.integers(n, size=len(near))
            boxes[near] = true[source] + rng.normal(0, 0.1, (len(near), 4)) * size[source].repeat(2, 1)
            boxes[near, 2:] = boxes[near, 2:].clip(1)
            names[near], scores[near] = true_classes[source], rng.random(len(near))
        images.append({"boxes": boxes, "scores": scores, "classes": names, "true": true, "true_classes": true_classes,
                       "crowd": rng.random(n) < 0.02})  # fmt: skip
    return images


def ours(images: list[dict[str, np.ndarray]]) -> Any:
    """Return a function that computes the twelve numbers."""
    import torch

    from regard.metrics.average_precision import AveragePrecision
    from regard.modalities.box_geometry import xywh_to_corners

    rows = [
        (xywh_to_corners(torch.tensor(i["boxes"])), i["scores"], i["classes"], xywh_to_corners(torch.tensor(i["true"])),
         i["true_classes"], i["crowd"])
        for i in images
    ]  # fmt: skip

    def evaluate() -> list[float]:
        metric = AveragePrecision()
        for row in rows:
            metric.update(*row)
        return [-1.0 if np.isnan(value) else value for value in metric.compute().values()]

    return evaluate


def theirs(images: list[dict[str, np.ndarray]]) -> Any:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations, results = [], []
    for number, i in enumerate(images):
        for box, name, crowd in zip(i["true"].tolist(), i["true_classes"].tolist(), i["crowd"].tolist(), strict=True):
            each = {"id": len(annotations) + 1, "image_id": number, "category_id": name, "bbox": box}
            annotations.append(each | {"iscrowd": int(crowd), "area": box[2] * box[3]})
        for box, name, score in zip(i["boxes"].tolist(), i["classes"].tolist(), i["scores"].tolist(), strict=True):
            results.append({"image_id": number, "category_id": name, "bbox": box, "score": score})
    truth = COCO()
    truth.dataset = {"images": [{"id": n} for n in range(len(images))], "annotations": annotations}
    truth.dataset["categories"] = [{"id": n} for n in range(80)]
    truth.createIndex()
    found = truth.loadRes(results)

    def evaluate() -> list[float]:
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        return evaluation.stats.tolist()

    return evaluate


def child(name: str, args: argparse.Namespace) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        evaluate = (ours if name == "regard" else theirs)(make_images(args.images))

    def turn() -> dict[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()):
            began = time.perf_counter()
            values = evaluate()
            return {"seconds": time.perf_counter() - began, "values": values}

    harness.serve_requests(turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small, and nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args)
        return
    if args.quick:
        args.images, args.rounds = 50, 2
    options = [f"--images={args.images}"]
    children = [harness.Child(name, str(Path(__file__)), options, threads=1) for name in CONTENDERS]
    record, steal = harness.machine(), harness.Steal()
    turns = harness.rounds(children, args.rounds)
    for process in children:
        process.close()
    a, b = (turns[0][name]["values"] for name in CONTENDERS)
    difference = max(abs(x - y) for x, y in zip(a, b, strict=True))
    if difference > 1e-9:
        raise SystemExit(f"the numbers differ by {difference}: {a} and {b}")
    record |= {"images": args.images, "threads": 1, "ap": a[0], "max_difference": difference}
    record["seconds"] = {name: harness.median_and_range(t[name]["seconds"] for t in turns) for name in CONTENDERS}
    ratio = harness.median_and_range(t["pycocotools"]["seconds"] / t["regard"]["seconds"] for t in turns)
    record |= {"times_faster": ratio, "steal": steal.share()}
    print(harness.table([["", "seconds"], *([n, f"{record['seconds'][n]['median']:.3f}"] for n in CONTENDERS)]))
    print(f"AP {a[0]:.4f} by both; Regard is {ratio['median']} times as fast ({ratio['min']} to {ratio['max']})")
    if not args.quick:
        print(harness.write("detection-metrics.json", record))


if __name__ == "__main__":
    main()
