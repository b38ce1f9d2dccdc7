"""Looking at a picture: patches on the picture that the model was shown, and what stands before them.

Every grid of tokens that layers write is a side of its own: a ViT has one, a model in stages one for each stage. A
token's box holds all pixels it was made of. Windowed and pooled layers are shown on their grid, not window by window.
Rollout and relevance come from `see.PixelAttribution`, which carries rows down to the pixels; here they are summed over the boxes
of the first grid.
"""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np
import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Int, Tensor
from regard.core.trace import Slots, Trace
from regard.interpret.image_attribution import attribution_from_pass, run_with_attribution
from regard.interpret.inspection import NO_PLACE, Inspection, Side
from regard.interpret.inspections.rollout import require_gradients
from regard.modalities.classes import Classes
from regard.see.pixel_attribution import PixelAttribution
from regard.tasks.image.image_classifier import ImageClassifier

TOP_LABELS = 10  # labels that are told
MAX_WEIGHTS = 2**27  # weights that a rollout or a relevance may make at once

Boxes = Int[Tensor, "N 4"]  # left, top, right, bottom, in pixels


class ImageInspection(Inspection):
    """A picture and what is in it; relevance is asked for a label."""

    task = "image_classification"
    input_types: ClassVar[dict[str, Any]] = {"image": bytes}
    input = "patches"
    predictor: ImageClassifier

    def read(self) -> None:
        """Show the picture to the model."""
        shown = self.predictor.preprocess.view(self.given["image"])
        file = io.BytesIO()
        shown.save(file, "PNG")
        self.picture = file.getvalue()
        self.values = self.predictor.preprocess(shown, next(self.predictor.model.parameters()))
        logits = self._run(self.values)[0]
        found = Classes.rank(self.predictor.labels, torch.softmax(logits.float(), -1).tolist())
        self.output = {
            "label": found.label,
            "probabilities": dict(list(found.probabilities.items())[:TOP_LABELS]),
            "width": shown.width,
            "height": shown.height,
        }
        self.prefix = int(getattr(self.predictor.model, "num_prefix_tokens", 0))
        self._lay_out()
        if self.small:
            self.output_side = self._of[self._last][0]

    # -- where tokens are ----------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """The sides of all maps, in the order in which tokens are cut, merged and pooled."""
        steps = self.store.steps()
        if not isinstance(steps[0], Trace) or steps[0].geometry is None:
            raise Unsupported("nothing in this model says how its tokens were cut out of the picture")
        self._first, boxes = steps[0].geometry.keys, _pixel_boxes(*self.predictor.preprocess.size)
        self._of: dict[str, tuple[str, str]] = {}
        self._last = ""
        for step in steps:
            if isinstance(step, Trace):
                assert step.geometry is not None
                boxes = self._merged(step.geometry.keys, boxes)
                continue
            reads = writes = self._side(boxes)
            if step.kind == "cross":  # a pooling that attends: one query, the answer's
                self.sides["answer"] = Side("answer", ["answer"], [NO_PLACE], [True])
                self._of[step.name] = "answer", reads
                continue
            if step.geometry is not None and step.geometry.skip is not None:
                boxes = self._merged(step.geometry.skip, boxes)
                writes = self._side(boxes)
            self._of[step.name], self._last = (writes, reads), step.name

    def _side(self, boxes: Boxes) -> str:
        """The side of a grid, made where it is new."""
        down, right = len(boxes[:, 1].unique()), len(boxes[:, 0].unique())
        name = "patches" if not self.sides else f"{down} x {right}"
        marks = ["[class]", *(f"[{n}]" for n in range(1, self.prefix))][: self.prefix]
        cells = [f"{n // right + 1},{n % right + 1}" for n in range(len(boxes))]
        places = [{"box": [x, y, to - x, low - y]} for x, y, to, low in boxes.tolist()]
        known = [side.name for side in self.sides.values() if side.places[self.prefix :] == places]
        if known:
            return known[0]
        special = [True] * self.prefix + [False] * len(cells)
        self.sides[name] = Side(name, marks + cells, [NO_PLACE] * self.prefix + places, special)
        return name

    def _merged(self, slots: Slots, boxes: Boxes) -> Boxes:
        """The boxes of slots that are made of cells with these boxes."""
        cells = slots.cells[0].flatten(0, 1).cpu()  # N P
        if int(cells.max()) >= len(boxes):  # tokens before the grid are its first cells
            cells = torch.where(cells < 0, cells, cells - self.prefix)[self.prefix :]
        real, each = (cells >= 0)[..., None], boxes[cells.clamp(min=0)]
        low = torch.where(real, each[..., :2], 2**30).amin(1)
        high = torch.where(real, each[..., 2:], -1).amax(1)
        return torch.cat([low, high], 1)

    def sides_of(self, held: LazyMap) -> tuple[str, str]:
        """The grids that a layer writes and reads."""
        return self._of[held.name]

    # -- through all layers --------------------------------------------------------------------------------------------

    @property
    def small(self) -> bool:
        """Whether all maps can be made at once."""
        return sum(held.heads * held.rows * held.columns for held in self.store.values()) <= MAX_WEIGHTS

    @property
    def targets(self) -> list[str]:
        """Every label."""
        return self.predictor.labels if self.small else []

    def rollout(self, query: int) -> np.ndarray:
        """How much of each patch reaches a token of the last layer; one that is no patch asks for what the head reads.

        Of the patches alone: what ends at a class token is not on the map.
        """
        side = self.sides[self._of[self._last][0]]
        if not 0 <= query < len(side.tokens):
            raise BadInput(f"there is no token {query}; there are 0 to {len(side.tokens) - 1}")
        self._check()
        place = None
        if not side.special[query]:
            (x, y, w, h), (rows, columns) = side.places[query]["box"], self.predictor.preprocess.size
            place = (y + h / 2) / rows, (x + w / 2) / columns
        return self._on_patches(attribution_from_pass(self.predictor.model, self.store.last_pass()).rollout(place))

    def relevance(self, target: int) -> np.ndarray:
        """How much each patch spoke for a label."""
        if not 0 <= target < len(self.predictor.labels):
            raise BadInput(f"there is no label {target}; there are 0 to {len(self.predictor.labels) - 1}")
        self._check()
        require_gradients(self.predictor.model)
        with self._with_interventions():
            sight: PixelAttribution = run_with_attribution(self.predictor.model, self.values, True, target)[0]
        return self._on_patches(sight.relevance())

    def _check(self) -> None:
        if not self.small:
            raise Unsupported("this picture has too many tokens for all layers at once; look at single rows")

    def _on_patches(self, pixels: Tensor) -> np.ndarray:
        """Sums over the pixels of every patch (one that lies in several is shared), nothing for what is no patch; one
        that the edge cuts counts as if it were whole."""
        cells = self._first.cells[0].flatten(0, 1).cpu()  # N P
        real, flat = cells >= 0, pixels.detach().float().cpu().flatten()
        shared = flat / cells[real].bincount(minlength=len(flat)).clamp(min=1)
        there = self._first.shares()[0].flatten(0, 1).sum(1).cpu()  # of each patch
        found = ((shared[cells.clamp(min=0)] * real).sum(1) / there).numpy()
        return np.concatenate([np.zeros(self.prefix, np.float32), found]).astype(np.float32)


def _pixel_boxes(rows: int, columns: int) -> Boxes:
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.stack([x, y, x + 1, y + 1], -1).flatten(0, 1)
