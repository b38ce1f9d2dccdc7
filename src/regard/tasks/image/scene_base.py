"""What the tasks over scenes share: images of one canvas, normalised, and the settings that the data determine.

An image is resized to fit the canvas (`Preprocess`, mode "corner") and stands in its top left corner; the rest of the
canvas is 0 after normalisation, whatever the mean. So the numbers of an image are the same in training and prediction,
and do not depend on the other images of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor, pair
from regard.core.spec import resolve
from regard.core.validation import validate
from regard.modalities.image import Preprocess
from regard.modalities.letterbox import Letterbox
from regard.tasks.base import SplitTask

if TYPE_CHECKING:  # a predictor starts without the modules of training
    from regard.data.images.scene_batch import SceneBatch

BATCH_PIXELS = 2**22  # pixels of a batch of a predictor
EVAL_PIXELS = 2**22  # pixels of a batch of `evaluate`


@dataclass(frozen=True)
class SceneTaskConfig:
    """Settings of training that all these tasks have."""

    augment: tuple[str, ...] = ()  # specs in order (data.augment.scenes): "flip", "affine(degrees=5)", "color_jitter"

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """Return the scenes of a name to evaluate a saved model on, given its config.json."""
        return evaluation_scenes(corpus, saved, changes)


class SceneTask(SplitTask[Any]):
    """A task over a dataset of scenes. Its Config has `augment`, specs of augmentations of scenes."""

    split_size = unit = "images"
    ragged = False  # all batches have one canvas

    def __init__(self, config: Any, data: Any, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        from regard.data.augment.scenes import SceneAugment

        self.config, self.labels = config, list(data.labels())
        self.augment = SceneAugment(config.augment) if config.augment else None
        if data.image_size is None:
            raise BadInput(
                f"{data.title()} has images of many sizes; set data.image_size, the size that the model reads."
            )
        self.preprocess = Preprocess(
            pair(data.image_size), len(data.mean), tuple(data.mean), tuple(data.std), 1.0, "bilinear", "corner"
        )

    @property
    def num_outputs(self) -> int:
        """Channels of the model's output."""
        return len(self.labels)

    def fit(self, config: Any) -> Any:
        """Return the model's config with the canvas, the channels and the outputs, where it has fields for them."""
        known = {field.name for field in fields(config)}
        size = self.preprocess.size
        made = {
            "image_size": size[0] if size[0] == size[1] else size,
            "channels": self.preprocess.channels,
            "num_outputs": self.num_outputs,
            "num_classes": self.num_outputs,
        }
        return replace(config, **{name: value for name, value in made.items() if name in known})

    def images(self, batch: SceneBatch) -> Float[Tensor, "B C Y X"]:
        """Return the images of a batch on the canvas, normalised, 0 around them."""
        return on_canvas(self.preprocess.normalize(batch.pixels) * batch.inside[:, None], self.preprocess.size)

    def augmented(self, batch: SceneBatch, rng: torch.Generator | None) -> SceneBatch:
        """Return a training batch after one draw that moves pixels and annotations together."""
        if self.augment is None:
            return batch
        return self.augment(batch, torch.Generator(batch.pixels.device) if rng is None else rng)

    def count(self, batch: SceneBatch) -> int:
        return len(batch.pixels)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "labels": self.labels, "preprocess": to_dict(self.preprocess)}

    def card(self) -> str:
        y, x = self.preprocess.size
        train = self.dataset("train")
        return f"{self.data.title()}, {len(train):,} images of at most {y} x {x} pixels, {len(self.labels)} classes"

    def eval_batches(self, model: nn.Module, split: str) -> Any:
        """Yield the batches of a split on the device of a model in evaluation mode."""
        model.eval()
        device, (y, x) = next(model.parameters()).device, self.preprocess.size
        for batch in self.dataset(split).eval_batches(max(1, EVAL_PIXELS // (16 * y * x))):
            yield batch.to(device)


def evaluation_scenes(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """Return scenes in the size that a saved model reads, given its config.json.

    `corpus` is the name of a dataset of scenes, or a folder in the format of COCO or of masks. Where the model has
    labels, they must be those of the data.
    """
    from regard.data import DATA
    from regard.data.images.coco import COCO
    from regard.data.images.mask_folder import MaskFolder
    from regard.data.images.scene_dataset import SceneDataset

    task = saved["task"]
    kind: Any = resolve(DATA, corpus, "data") if corpus in DATA else None
    if kind is not None and not issubclass(kind, SceneDataset):
        raise BadInput(f"'{corpus}' has no scenes, which a model of the task '{task['name']}' is evaluated on")
    if kind is None:
        kind = MaskFolder if task["name"] == "semantic_segmentation" else COCO
        changes = {"path": corpus, **changes}
    rows, columns = task["preprocess"]["size"]
    size = (rows, columns) if kind.__dataclass_fields__["image_size"].type != "int" else rows
    data = kind(image_size=size, **changes)
    if "labels" in task and list(data.labels()) != task["labels"]:
        raise BadInput(
            f"the model knows {', '.join(task['labels'][:5])} ... ({len(task['labels'])} labels), {data.title()} has "
            f"{', '.join(data.labels()[:5])} ... ({len(data.labels())}); they must be the same, in the same order"
        )
    return data


def on_canvas(images: Tensor, size: tuple[int, int], value: float = 0) -> Tensor:
    """Return images (... Y X) padded at the right and the bottom to a canvas; larger ones are an error."""
    rows, columns = images.shape[-2:]
    if rows > size[0] or columns > size[1]:
        raise BadInput(
            f"An image has {rows} x {columns} pixels, more than the {size[0]} x {size[1]} that the model reads."
        )
    return F.pad(images, (0, size[1] - columns, 0, size[0] - rows), value=value)


def letterbox(
    images: Sequence[Any], preprocess: Preprocess, like: Tensor
) -> tuple[Float[Tensor, "B C Y X"], Int[Tensor, "B 2"]]:
    """Return photos on the canvas of a model, normalised, 0 around them, and the rows and columns of each in it."""
    pixels = preprocess.batch(images, like)
    sizes = torch.tensor([preprocess.content(image) for image in images], device=like.device)
    rows, columns = (torch.arange(side, device=like.device) for side in pixels.shape[2:])
    inside = (rows < sizes[:, :1])[:, :, None] & (columns < sizes[:, 1:])[:, None, :]
    return pixels * inside[:, None], sizes


def batches(images: Sequence[Any], preprocess: Preprocess) -> Iterator[Sequence[Any]]:
    """Yield photos in their order, in batches that a model reads in one size."""
    for (rows, columns), group in groupby(images, lambda image: preprocess.at(image).size):
        same, many = list(group), max(1, BATCH_PIXELS // (4 * rows * columns))
        for begin in range(0, len(same), many):
            check_cancelled()
            yield same[begin : begin + many]


def map_to_photo(
    values: Float[Tensor, "y x"], preprocess: Preprocess, photo: Any, mode: str = "bilinear"
) -> Float[Tensor, "Y X"]:
    """Return a map of what the model saw, at any resolution, resized to the pixels of the photo.

    Beside a border it is resized bilinearly, so that the border is not mixed in.
    """
    size = photo.height, photo.width
    if preprocess.crop_mode == "corner":
        return Letterbox(size, preprocess.size).map_to_image(values)
    return F.interpolate(values[None, None], size, mode=mode, align_corners=False)[0, 0]


def whole_view(preprocess: Preprocess | Mapping[str, Any]) -> Preprocess:
    """Return a preprocessing, perhaps given as plain values, that shows the model the whole photo."""
    if isinstance(preprocess, Mapping):
        preprocess = from_dict(Preprocess, preprocess)
    if preprocess.crop_mode in ("center", "border") or preprocess.crop < 1:
        how = f"crop_mode='{preprocess.crop_mode}', crop={preprocess.crop}"
        raise BadInput(f"The model must see the whole photo: crop_mode='corner' or 'squash' with crop=1; got {how}.")
    return preprocess


def check_outputs(model: nn.Module, labels: Sequence[str], num_outputs: int) -> None:
    """Refuse labels that are not as many as the outputs of a model."""
    config = getattr(model, "config", None)
    found = getattr(config, "num_outputs", getattr(config, "num_classes", None))
    if found is not None and found != num_outputs:
        raise BadInput(f"The model has {found:,} classes, got {len(labels):,} labels; give one for each class.")
