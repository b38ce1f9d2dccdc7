"""What an image classifier attends to, over the picture that it was shown."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard import see
from regard.attention.capture.watch import Traces
from regard.attention.observed_weights import ObservedWeights
from regard.core.errors import BadInput, UnknownName, did_you_mean, shorten
from regard.core.terminal_text import wrap
from regard.interpret.convolution_maps import convolution_maps, has_convolution_maps
from regard.interpret.figures.base import USUAL, FigureOptions, InspectionFigure
from regard.interpret.image_attribution import attribute_image, pooling_attributions, watch_image
from regard.see.overlay import SHARE_OF_MAX, TIMES_UNIFORM, relative_to_max, relative_to_uniform
from regard.see.pixel_attribution import ImagePoint

LISTED_LABELS = 10


class PixelAttributionFigure(InspectionFigure):
    """One map over the picture, a grid of one map for every head or pooling, or the gates of the channels beside it."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {
        "class": ("layer", "head", "query"),
        "heads": ("layer", "query"),
        "layers": ("query",),
        "rollout": ("query",),
        "relevance": ("label", "query"),
        "pooling": (),
        "gates": (),
        "gradcam": ("label",),
    }

    def __init__(self, inspection: Any, options: FigureOptions = USUAL, source: str = "") -> None:
        super().__init__(inspection, options, source)
        self.view, predictor = options.view or self._usual_view(), inspection.predictor
        self.point = None if options.query is None else parse_point(options.query, predictor.preprocess.size)
        if self.view in ("pooling", "gates"):
            seen, self.classes = watch_image(predictor, inspection.item)
            self.maps, self.caption, self.unit = self._pooling(seen) if self.view == "pooling" else self._gates(seen)
        elif self.view == "gradcam" or (self.view == "relevance" and not self._attends()):
            self.maps, self.caption, self.unit = self._convolutions()
        else:
            target = (options.label or True) if self.view == "relevance" else False
            self.attribution, self.classes = attribute_image(predictor, inspection.item, target)
            self.maps, self.caption, self.unit = self._draw()
        labels = predictor.labels
        some = labels if len(labels) <= LISTED_LABELS else labels[:: len(labels) // 4][:5]
        more = "" if len(labels) <= LISTED_LABELS else f" and {len(labels) - len(some):,} more"
        self.note = f"{inspection.model} knows {', '.join(some)}{more}; it says one of them whatever it is shown"

    def _usual_view(self) -> str:
        """Return the first of these views that the model has: tokens attend, a pooling attends, channels have gates,
        convolutions."""
        kinds = {held.kind for held in self.inspection.store.values()}
        if kinds - {"gradcam", "layercam"}:
            return "class" if "self" in kinds else "pooling" if "cross" in kinds else "gates"
        model = self.inspection.predictor.model
        gated = any(isinstance(x, ObservedWeights) and x.kind == "gate" for x in model.modules())
        return "gates" if gated or not has_convolution_maps(model) else "gradcam"

    def _attends(self) -> bool:
        return "self" in {held.kind for held in self.inspection.store.values()}

    @property
    def title(self) -> str:
        return f"{self.source}: {self.classes.label} ({100 * self.classes.probability:.0f} %)"

    def text(self, width: int = 100) -> str:
        best = list(self.classes.probabilities.items())[:3]
        line = "   ".join(f"{label} {100 * probability:.1f} %" for label, probability in best)
        if self.view == "gates":
            return "\n".join([line, "", *(gate_summary(name, gate) for name, gate in self.maps.items())])
        if not isinstance(self.maps, np.ndarray):
            return line
        says = "\n".join(wrap(f"The fuller a cell, the more: {self.caption}.", width))
        return f"{line}\n\n{see.text_heatmap(self.maps)}\n\n{says}"

    def save(self, file: Path) -> None:
        from PIL import Image

        photo = Image.open(io.BytesIO(self.inspection.picture))
        if self.view == "gates":
            see.channel_gates(photo, self.maps, self.title, self.caption, file)
            return
        draw = see.overlay if isinstance(self.maps, np.ndarray) else see.overlay_grid
        draw(photo, self.maps, self.title, self.caption, self.unit, self.point, file)

    def _draw(self) -> tuple[Any, str, str]:
        """Return what the view shows, one map or several by name, its caption and its unit."""
        layers, label = self.attribution.layers, self.options.label or self.classes.label
        query = self._query_name()
        rough = "" if self.attribution.exact else "; pooled pixels by receptive field"
        if self.view == "rollout":
            rollout = self.attribution.rollout(self.point).numpy()
            share = relative_to_uniform(rollout, self.attribution.uniform_weight())
            return share, f"rollout from {query} through {len(layers)} layers{rough}", TIMES_UNIFORM
        if self.view == "relevance":
            at = "" if self.point is None else " at this point"
            caption = f"relevance for {label}{at}: attention x gradient, {len(layers)} layers{rough}"
            return relative_to_max(self.attribution.relevance(self.point).numpy()), caption, SHARE_OF_MAX
        if self.view == "layers":
            rows = [(f"layer {n}", self._heads(n)) for n in range(len(layers))]
            return rows, f"attention from {query}, all layers and heads{rough}", TIMES_UNIFORM
        number = len(layers) - 1 if self.options.layer is None else self.options.layer
        maps, head = self._heads(number), self.options.head
        if self.view == "heads":
            return maps, f"attention from {query}, layer {number}{rough}", TIMES_UNIFORM
        if head is not None and head >= len(maps):
            raise BadInput(f"There is no head {head} in layer {number}; there are 0 to {len(maps) - 1}.")
        every = np.stack(list(maps.values()))
        one = every.mean(0) if head is None else every[head]
        which = f"head {head}" if head is not None else f"mean of {len(maps)} heads" if len(maps) > 1 else "one head"
        outside = 1 - float((one * self.attribution.uniform_weight(number)).sum())
        elsewhere = f"; {100 * outside:.0f} % falls on no pixel" if outside > 0.005 else ""
        return one, f"attention from {query}, layer {number}, {which}{elsewhere}{rough}", TIMES_UNIFORM

    def _convolutions(self) -> tuple[Any, str, str]:
        """Return Grad-CAM or the relevance of a network of convolutions."""
        predictor, label = self.inspection.predictor, self.options.label
        if label is not None and label not in predictor.labels:
            raise UnknownName(f"this model knows no label '{label}'; {did_you_mean(label, predictor.labels)}")
        number = None if label is None else predictor.labels.index(label)
        found, self.classes = convolution_maps(predictor, self.inspection.item, number)
        name = label or self.classes.label
        if self.view == "relevance":
            caption = f"relevance for {name}: activation x gradient, {len(found.grids)} grids"
            return relative_to_max(found.relevance().numpy()), caption, SHARE_OF_MAX
        rows, columns = found.grids[-1].shape[1:]
        return relative_to_max(found.grad_cam().numpy()), f"Grad-CAM for {name}, {rows} x {columns} cells", SHARE_OF_MAX

    def _pooling(self, seen: Traces) -> tuple[Any, str, str]:
        """Return a map for each pooling that attends."""
        poolings = pooling_attributions(seen.last_pass())
        rough = "" if all(each.exact for each in poolings.values()) else "; cells by their stride"
        maps = {
            name if heads == 1 else f"{name}, head {h}": relative_to_uniform(w.numpy(), each.uniform_weight())
            for name, each in poolings.items()
            for heads in [each.steps[-1].weights.shape[1]]
            for h, w in enumerate(each.heads(-1))
        }
        return maps, f"weights of the pooling{rough}", TIMES_UNIFORM

    def _gates(self, seen: Traces) -> tuple[Any, str, str]:
        """Return the gate of each channel, layer by layer."""
        gates = {trace.name: trace.weights[0, 0, 0].float().numpy() for trace in seen.traces("gate")}
        if not gates:
            raise BadInput(f"{self.inspection.model} has no channel gates: leave out --view gates.")
        return gates, "channel gates of every block: 0 shuts a channel, 1 lets it pass", "gate"

    def _heads(self, layer: int) -> dict[str, np.ndarray]:
        uniform = self.attribution.uniform_weight(layer)
        maps = self.attribution.heads(layer, self.point)
        return {f"head {h}": relative_to_uniform(w.numpy(), uniform) for h, w in enumerate(maps)}

    def _query_name(self) -> str:
        """Return which tokens the rows of the maps belong to."""
        if self.point is not None:
            return "this point"
        reads = self.attribution.reads
        if reads[: self.attribution.prefix].sum() < 0.5:
            return "the tokens that the head reads"
        return "the class token" if int((reads > 0).sum()) == 1 else "the class and the distillation token"


def gate_summary(name: str, gate: np.ndarray) -> str:
    """Return a line about the gates of one layer."""
    open_, shut = gate.argsort()[::-1][:3], gate.argsort()[:3]
    return (
        f"{name:24} {len(gate):5} channels   mean {gate.mean():.2f}   "
        f"most {', '.join(f'{n} ({gate[n]:.2f})' for n in open_)}   "
        f"least {', '.join(f'{n} ({gate[n]:.2f})' for n in shut)}"
    )


def parse_point(query: str, size: tuple[int, int]) -> ImagePoint:
    """Return a point "Y,X" in pixels of the image that the model sees, as fractions of its height and width."""
    numbers = query.replace(" ", "").split(",")
    if len(numbers) != 2 or not all(n.isdecimal() and len(n) < 10 for n in numbers):
        raise BadInput(f"--query must be a row and a column, such as 56,112; got '{shorten(query)}'.")
    y, x = map(int, numbers)
    if y >= size[0] or x >= size[1]:
        raise BadInput(f"--query {y},{x} is outside the image; the model sees {size[0]} x {size[1]} pixels.")
    return (y + 0.5) / size[0], (x + 0.5) / size[1]
