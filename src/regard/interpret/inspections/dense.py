"""Inspection of a model of every pixel: class maps or depth, and what its patches and class tokens attend to.

The output is the predictor's, of the whole photo, by windows where it is large. The maps are those of one pass over
`picture`, the photo as the model sees it at once.
"""

from __future__ import annotations

import numpy as np
import torch

from regard.core.shapes import Tensor
from regard.core.trace import Trace
from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.image import ImageInspection
from regard.see.pixel_attribution import PixelAttribution
from regard.tasks.image.scene_base import letterbox


class DenseInspection(ImageInspection):
    """A picture and a map of classes or depth over it."""

    figure = "dense"

    def predict_and_capture(self) -> None:
        model = self.predictor.model
        (self.prediction,) = self.predictor.predict([self.item], self.options)
        images, _ = letterbox([self.item], self.preprocess, next(model.parameters()))
        self._capture(lambda: model(images))

    def lay_out(self) -> None:
        """Place the patches; the tokens of Segmenter's mask decoder are the classes, then the patches."""
        super().lay_out()
        if not self.decoder_layers:
            return
        labels, cells = self.predictor.labels, self.axes["patches"]  # type: ignore[attr-defined]
        positions = [NO_POSITION] * len(labels) + cells.positions[self.prefix :]
        tokens = [*labels, *cells.tokens[self.prefix :]]
        special = [True] * len(labels) + cells.special[self.prefix :]
        self.axes["classes and patches"] = Axis("classes and patches", tokens, positions, special)
        for name in self.decoder_layers:
            self._axes_of[name] = "classes and patches", "classes and patches"
        used = {side for sides in self._axes_of.values() for side in sides}
        self.axes = {name: side for name, side in self.axes.items() if name in used}

    @property
    def decoder_layers(self) -> list[str]:
        """The layers of a mask decoder, whose first tokens are the classes."""
        return [name for name in self.store if name.startswith("head.")]

    @property
    def attribution(self) -> PixelAttribution:
        """The pass through the encoder, whose maps are carried down to the pixels."""
        steps = [step for step in self.steps_on_patches() if step.kind in ("self", "move")]
        last = steps[-1].num_outputs
        return PixelAttribution(steps, torch.full((last,), 1 / last, dtype=torch.float64), self.prefix)

    def class_maps(self, name: str) -> np.ndarray:
        """Return the attention of every class to the patches in a layer of the decoder: H K Y X, 1 is uniform."""
        many = len(self.predictor.labels)  # type: ignore[attr-defined]
        rows = self.store[name].rows_of(list(range(many)))[0][..., many:]  # H K M
        pixels = torch.stack([self._on_pixels(each) for each in rows.flatten(0, 1)])
        return self.cut(pixels.unflatten(0, rows.shape[:2]))

    def _on_pixels(self, weights: Tensor) -> Tensor:
        first = self.store.steps()[0]  # how patches are cut
        assert isinstance(first, Trace)
        assert first.geometry is not None
        return first.left_multiply(weights[None, None, None].float())[0, 0, 0].unflatten(-1, first.geometry.keys.grid)

    def cut(self, maps: Tensor, uniform: float | None = None) -> np.ndarray:
        """Return maps (... Y X) without the border, in multiples of uniform attention to the pixels of the canvas."""
        rows, columns = self.content
        scale = maps.shape[-2] * maps.shape[-1] if uniform is None else 1 / uniform
        found: np.ndarray = (maps[..., :rows, :columns] * scale).float().cpu().numpy()
        return found
