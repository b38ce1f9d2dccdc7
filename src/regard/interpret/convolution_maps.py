"""What convolutions look at: maps of a label over the picture, for networks without attention.

    A_c          channel c of a grid of the network, g_c = ∂ logit / ∂ A_c
    Grad-CAM     relu( Σ_c mean(g_c) A_c )            of the last grid
    relevance    max over the grids of Σ_c relu(g_c) A_c, each divided by its largest value (LayerCAM)

Grad-CAM is coarse: a cell is 32 pixels wide in most networks, and its receptive field is larger. Relevance adds the
finer grids, so that it follows edges; it is activation x positive gradient, as the relevance of attention is weight x
positive gradient. Both say which pixels support a label, not what the network would say without them.

Selvaraju, Cogswell, Das, Vedantam, Parikh, Batra: Grad-CAM. ICCV 2017. arXiv:1610.02391
Jiang, Zhang, Hou, Cheng, Wei: LayerCAM. IEEE TIP 30, 2021
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import Unsupported
from regard.core.shapes import Float, Tensor
from regard.modalities.classes import Classes

if TYPE_CHECKING:
    from regard.tasks.image.image_classification import ImageClassifier


@dataclass(frozen=True, eq=False)
class ConvolutionMaps:
    """The grids of one pass, coarsest last, with the gradient of one logit, on a picture of `size` (Y X)."""

    grids: list[Float[Tensor, "C y x"]]
    gradients: list[Float[Tensor, "C y x"]]
    size: tuple[int, int]

    def grad_cam(self) -> Float[Tensor, "Y X"]:
        """Return Grad-CAM of the last grid, each of its cells over its pixels; at least 0."""
        grid, gradient = self.grids[-1], self.gradients[-1]
        return self._on_pixels(torch.einsum("c,cyx->yx", gradient.mean((1, 2)), grid).relu(), "nearest")

    def relevance(self) -> Float[Tensor, "Y X"]:
        """Return LayerCAM of all grids, from 0 to 1."""
        maps = [
            self._on_pixels((gradient.relu() * grid).sum(0).relu(), "bilinear")
            for grid, gradient in zip(self.grids, self.gradients, strict=True)
        ]
        return torch.stack([each / each.max().clamp(min=1e-12) for each in maps]).amax(0)

    def _on_pixels(self, cells: Float[Tensor, "y x"], mode: str) -> Float[Tensor, "Y X"]:
        return F.interpolate(cells[None, None], self.size, mode=mode)[0, 0]


def has_convolution_maps(model: nn.Module) -> bool:
    """Return whether a model has grids of channels: `features` of the contract of image models."""
    return callable(getattr(model, "features", None))


def convolution_maps(
    classifier: ImageClassifier, image: Any, label: int | None = None
) -> tuple[ConvolutionMaps, Classes]:
    """Return the grids of an image with the gradient of a label's logit (None: the predicted one), and its classes."""
    (found,), classes = maps_of_labels(
        classifier, image, lambda logits: [int(logits.argmax()) if label is None else label]
    )
    return found, classes


def maps_of_labels(
    classifier: ImageClassifier, image: Any, choose: Callable[[Tensor], Sequence[int]]
) -> tuple[list[ConvolutionMaps], Classes]:
    """Return the maps of the labels that `choose` picks by the logits, from one pass, and the image's classes.

    No gradient is left in the model's weights.
    """
    model = classifier.model
    values = classifier.preprocess(image, next(model.parameters())).requires_grad_()
    with torch.enable_grad(), _recorded_grids(model) as grids:
        logits = model(values)[0]
        kept = [grid for grid in grids if grid.dim() == 4 and grid.requires_grad]
        if not kept:
            raise Unsupported(f"{type(model).__name__} shows no grids of channels, so there is no map of a label.")
        last = [kept[n] for n in _coarsest_of_each_size(kept)]
        gradients = [torch.autograd.grad(logits[label], last, retain_graph=True) for label in choose(logits.detach())]
    classes = Classes.rank(classifier.labels, logits.detach().float().softmax(-1).tolist())
    grids, size = [grid.detach()[0].float() for grid in last], (values.shape[2], values.shape[3])
    return [ConvolutionMaps(grids, [each[0].float() for each in of], size) for of in gradients], classes


def _coarsest_of_each_size(grids: list[Tensor]) -> list[int]:
    """Return the place of the last grid of every size, finest first."""
    places = {tuple(grid.shape[2:]): n for n, grid in enumerate(grids)}
    return sorted(places.values(), key=lambda n: -grids[n].shape[2] * grids[n].shape[3])


@contextmanager
def _recorded_grids(model: nn.Module) -> Iterator[list[Tensor]]:
    """Record what `features` and `forward_features` return while the model runs, in order."""
    found: list[Tensor] = []

    def recording(method: Any) -> Any:
        def call(images: Tensor) -> Any:
            made = method(images)
            found.extend(made if isinstance(made, list) else [made])
            return made

        return call

    names = [name for name in ("features", "forward_features") if callable(getattr(model, name, None))]
    for name in names:
        object.__setattr__(model, name, recording(getattr(model, name)))
    try:
        yield found
    finally:
        for name in names:
            object.__delattr__(model, name)
