"""Inspection of a predictor that reads a picture: its tokens as boxes on the picture that the model was shown.

Every grid of tokens that layers write is a side of its own: a ViT has one, a model in stages one for each stage. A
token's box holds all pixels it was made of. Windowed and pooled layers are shown on their grid, not window by window.
Rollout comes from `see.PixelAttribution`, which carries rows down to the pixels; here they are summed over the boxes of
the first grid. Outputs are in pixels of the given picture; `region` is the part of it that the model was shown.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Int, Tensor
from regard.core.trace import Slots, Trace
from regard.interpret.image_attribution import attribution_from_pass
from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.declared import DeclaredInspection

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

MAX_WEIGHTS = 2**27  # weights that a rollout or a relevance may make at once

Boxes = Int[Tensor, "N 4"]  # left, top, right, bottom, in pixels


class ImageInspection(DeclaredInspection):
    """A picture and the output of a predictor. The predictor has its preprocessing in `preprocess`."""

    input_axis = "patches"
    _last = ""  # the last layer whose tokens are patches

    def show(self) -> None:
        first = next(iter(self.item.values())) if isinstance(self.item, dict) else self.item
        self.preprocess: Any = getattr(self.predictor, "preprocess", None)
        shown = first if self.preprocess is None else self.preprocess.view(first)
        self.region = (0, 0, *shown.size) if self.preprocess is None else self.preprocess.region(first)
        file = io.BytesIO()
        shown.save(file, "PNG")
        self.picture, self.size = file.getvalue(), (shown.height, shown.width)

    @property
    def content(self) -> tuple[int, int]:
        """Rows and columns of the picture that are image, not border at the right or the bottom."""
        is_in_corner = self.preprocess is not None and self.preprocess.crop_mode == "corner"
        return self.preprocess.content(self.item) if is_in_corner else self.size

    @property
    def photo(self) -> PILImage:
        """The picture without that border."""
        from PIL import Image

        rows, columns = self.content
        return Image.open(io.BytesIO(self.picture or b"")).convert("RGB").crop((0, 0, columns, rows))

    # -- where tokens are ----------------------------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Set the sides of all maps, in the order in which tokens are cut, merged and pooled."""
        self.prefix = int(getattr(self.predictor.model, "num_prefix_tokens", 0))
        steps = self.store.steps()
        if not steps or not isinstance(steps[0], Trace) or steps[0].geometry is None:
            self.note = "This model does not say which pixels its tokens come from, so they are numbered."
            super().lay_out()
            return
        self._first, boxes = steps[0].geometry.keys, _pixel_boxes(*self.size)
        for step in steps:
            if isinstance(step, Trace):
                assert step.geometry is not None
                boxes = self._merged(step.geometry.keys, boxes)
                continue
            reads = writes = self._side(boxes)
            if step.kind == "cross":  # queries that are no patches: one of a pooling, or several of a decoder
                self._axes_of[step.name] = self._queries(step.rows), reads
                continue
            if step.geometry is not None and step.geometry.skip is not None:
                boxes = self._merged(step.geometry.skip, boxes)
                writes = self._side(boxes)
            elif step.geometry is None and step.rows != len(self.axes[writes].tokens):  # tokens that are no patches
                self._axes_of[step.name] = self._numbered(step.rows), self._numbered(step.columns)
                continue
            self._axes_of[step.name], self._last = (writes, reads), step.name
        for held in self.store.values():  # of earlier passes
            if held.name not in self._axes_of:
                self._axes_of[held.name] = self._numbered(held.rows), self._numbered(held.columns)
        if self.small and self._last:
            self.output_axis = self._axes_of[self._last][0]

    def _queries(self, many: int) -> str:
        if many == 1:
            self.axes["answer"] = Axis("answer", ["answer"], [NO_POSITION], [True])
            return "answer"
        return self._numbered(many, "queries")

    def _side(self, boxes: Boxes) -> str:
        """The side of a grid, made where it is new."""
        down, right = len(boxes[:, 1].unique()), len(boxes[:, 0].unique())
        name = "patches" if not self.axes else f"{down} x {right}"
        marks = ["[class]", *(f"[{n}]" for n in range(1, self.prefix))][: self.prefix]
        cells = [f"{n // right + 1},{n % right + 1}" for n in range(len(boxes))]
        positions = [{"box": [x, y, to - x, low - y]} for x, y, to, low in boxes.tolist()]
        known = [side.name for side in self.axes.values() if side.positions[self.prefix :] == positions]
        if known:
            return known[0]
        special = [True] * self.prefix + [False] * len(cells)
        self.axes[name] = Axis(name, marks + cells, [NO_POSITION] * self.prefix + positions, special)
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

    # -- through all layers --------------------------------------------------------------------------------------------

    @property
    def small(self) -> bool:
        """Whether all maps can be made at once."""
        return sum(held.heads * held.rows * held.columns for held in self.store.values()) <= MAX_WEIGHTS

    def rollout(self, query: int) -> np.ndarray:
        """Return the share of each patch in a token of the last layer; a special token stands for what the head reads.

        Of the patches alone: what ends at a class token is not on the map.
        """
        if not self._last:
            return super().rollout(query)
        side = self.axes[self._axes_of[self._last][0]]
        if not 0 <= query < len(side.tokens):
            raise BadInput(f"there is no token {query}; there are 0 to {len(side.tokens) - 1}")
        self._check_size()
        place = None
        if not side.special[query]:
            (x, y, w, h), (rows, columns) = side.positions[query]["box"], self.size
            place = (y + h / 2) / rows, (x + w / 2) / columns
        return self._on_patches(attribution_from_pass(self.predictor.model, self.steps_on_patches()).rollout(place))

    def steps_on_patches(self) -> list[Trace]:
        """Return the traces of the latest pass, up to the last layer whose tokens are patches."""
        steps = self.store.last_pass()
        return steps[: max(n for n, step in enumerate(steps) if step.name == self._last) + 1]

    def _check_size(self) -> None:
        if not self.small:
            raise Unsupported("This image has too many tokens for all layers at once; use single rows.")

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
